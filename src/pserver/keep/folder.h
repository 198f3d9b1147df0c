/* The folder in which a server keeps its snapshots and journals: its lock, the names of the files, and which files are
 * there. */
#ifndef GW_PSERVER_KEEP_FOLDER_H
#define GW_PSERVER_KEEP_FOLDER_H

#include "pserver/keep/records.h"

#define GW_PS_FILE_NAME 64

struct gw_ps_folder {
    char path[4096];
    int fd, lock; /* -1: not open */
};

/* "snapshot-00000007.gws", "journal-00000007.gwj", or "newest". */
struct gw_ps_file_name {
    char text[GW_PS_FILE_NAME];
};
struct gw_ps_file_name gw_ps_file_name(enum gw_ps_records_kind kind, uint64_t generation);

/* The generations of the files of one kind that are in the folder, ascending. */
struct gw_ps_generations {
    uint64_t *at;
    size_t n;
};

/* Opens the folder and locks it: nobody else can open it until it is closed. If the folder is missing, it is made, but
 * its parents are not. Errors: GW_ERR_SYSTEM (it cannot be made or written; another server has it), GW_ERR_ARGUMENT
 * (the path is too long). */
gw_status gw_ps_folder_open(struct gw_ps_folder *folder, const char *path);
void gw_ps_folder_close(struct gw_ps_folder *folder);

/* Lists the snapshots and journals in the folder. The caller frees each .at with gw_free. Files that an interrupted
 * snapshot left (.partial) are removed. Errors: GW_ERR_SYSTEM, GW_ERR_MEMORY. */
gw_status gw_ps_folder_list(gw_context *context, const struct gw_ps_folder *folder, struct gw_ps_generations *snapshots,
                            struct gw_ps_generations *journals);

/* Opens a file of the folder and reads it as gw_ps_records_read does. If it cannot be opened, `found` says so, and says
 * what helps. If the name belongs to something that is no file, such as a pipe, the call does not wait for it. Errors:
 * GW_ERR_MEMORY, and those of `replay`. */
gw_status gw_ps_folder_read(gw_context *context, const struct gw_ps_folder *folder, enum gw_ps_records_kind kind,
                            uint64_t generation, gw_ps_replay *replay, void *user, struct gw_ps_records_found *found);

/* One file tells which generation is the newest. It is needed because snapshot and journal of the newest generation may
 * be removed together, and nothing else shows that they were there. read: *there is false if there is no such file.
 * write: replaces the file as a whole, and waits until it is on disk. Files of that generation must be there before.
 * Errors: GW_ERR_SYSTEM, GW_ERR_MEMORY. */
gw_status gw_ps_folder_read_newest(gw_context *context, const struct gw_ps_folder *folder, bool *there,
                                   uint64_t *generation);
gw_status gw_ps_folder_write_newest(const struct gw_ps_folder *folder, uint64_t generation);

bool gw_ps_generations_have(const struct gw_ps_generations *generations, uint64_t generation);

#endif
