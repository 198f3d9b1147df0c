/* Builds without SQLite keep nothing: a server with a folder is refused. */
#include "base/error.h"
#include "pserver/keep/keep.h"

#ifndef GW_HAVE_SQLITE
gw_status gw_ps_keep_open(gw_context *context, struct gw_ps_store *store, const struct gw_ps_keep_options *options,
                          struct gw_ps_keep **out)
{
    (void)context, (void)store, (void)out;
    return gw_fail(GW_ERR_UNSUPPORTED, "this build has no SQLite, and keeps nothing in %s (--snapshot)",
                   options->folder);
}

bool gw_ps_keep_was_there(const struct gw_ps_keep *keep)
{
    (void)keep;
    return false;
}

void gw_ps_keep_close(struct gw_ps_keep *keep)
{
    (void)keep;
}

void gw_ps_keep_note(struct gw_ps_keep *keep)
{
    (void)keep;
}

bool gw_ps_keep_is_due(const struct gw_ps_keep *keep)
{
    (void)keep;
    return false;
}

void gw_ps_keep_commit(struct gw_ps_keep *keep)
{
    (void)keep;
}

struct gw_ps_keep_info gw_ps_keep_info(const struct gw_ps_keep *keep)
{
    (void)keep;
    return (struct gw_ps_keep_info){.durable = false};
}
#endif
