/* Builds without SQLite keep nothing: a server with a folder is refused. */
#include "base/error.h"
#include "pserver/folder/folder.h"

/* none of these looks at what it is asked */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#ifndef GW_HAVE_SQLITE
gw_status gw_ps_folder_open(gw_context *context, struct gw_ps_store *store, const struct gw_ps_folder_options *options,
                            struct gw_ps_folder **out)
{
    return gw_fail(GW_ERR_UNSUPPORTED, "this build has no SQLite, and keeps nothing in %s (--snapshot)",
                   options->folder);
}

void gw_ps_folder_close(struct gw_ps_folder *folder)
{
}

void gw_ps_folder_note(struct gw_ps_folder *folder)
{
}

bool gw_ps_folder_is_due(const struct gw_ps_folder *folder)
{
    return false;
}

void gw_ps_folder_commit(struct gw_ps_folder *folder)
{
}

struct gw_ps_folder_info gw_ps_folder_info(const struct gw_ps_folder *folder)
{
    return (struct gw_ps_folder_info){.exists = false};
}
#endif
