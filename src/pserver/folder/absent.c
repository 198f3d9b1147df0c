/* Builds without SQLite keep nothing: a server with a folder is refused. */
#include "base/error.h"
#include "pserver/folder/folder.h"

#ifndef GW_HAVE_SQLITE
gw_status gw_ps_folder_open(gw_context *context, struct gw_ps_store *store, const struct gw_ps_folder_options *options,
                            struct gw_ps_folder **out)
{
    (void)context, (void)store, (void)out;
    return gw_fail(GW_ERR_UNSUPPORTED, "this build has no SQLite, and keeps nothing in %s (--snapshot)",
                   options->folder);
}

/* What is asked of a folder, of which there is none. */
#define ABSENT(type, function, parameter, answer)                                                                      \
    type function(parameter)                                                                                           \
    {                                                                                                                  \
        (void)folder;                                                                                                  \
        answer;                                                                                                        \
    }
ABSENT(void, gw_ps_folder_close, struct gw_ps_folder *folder, return )
ABSENT(void, gw_ps_folder_note, struct gw_ps_folder *folder, return )
ABSENT(bool, gw_ps_folder_is_due, const struct gw_ps_folder *folder, return false)
ABSENT(void, gw_ps_folder_commit, struct gw_ps_folder *folder, return )
ABSENT(struct gw_ps_folder_info, gw_ps_folder_info, const struct gw_ps_folder *folder,
       return (struct gw_ps_folder_info){.exists = false})
#endif
