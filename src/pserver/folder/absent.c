/* Builds without SQLite keep nothing: a server with a folder is refused. */
#include "pserver/folder/folder.h"

#ifndef GW_HAVE_SQLITE
gw_status gw_ps_folder_open(struct gw_ps_store *store, const struct gw_ps_folder_options *options,
                            struct gw_ps_folder **out)
{
    (void)store, (void)out;
    return gw_fail(GW_ERR_UNSUPPORTED, "this build has no SQLite, and keeps nothing in %s (--snapshot)",
                   options->folder);
}

/* What is asked of a folder, of which there is none. */
#define ABSENT(type, function, answer, parameter)                                                                      \
    type function(parameter)                                                                                           \
    {                                                                                                                  \
        (void)folder;                                                                                                  \
        answer;                                                                                                        \
    }
ABSENT(void, gw_ps_folder_close, return, struct gw_ps_folder *folder)
ABSENT(void, gw_ps_folder_note, return, struct gw_ps_folder *folder)
ABSENT(void, gw_ps_folder_look, return, struct gw_ps_folder *folder)
ABSENT(bool, gw_ps_folder_is_due, return false, const struct gw_ps_folder *folder)
ABSENT(void, gw_ps_folder_commit, return, struct gw_ps_folder *folder)
ABSENT(struct gw_ps_folder_info, gw_ps_folder_info, return (struct gw_ps_folder_info){.exists = false},
       const struct gw_ps_folder *folder)
#endif
