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

/* The generations of which files of one kind are there, ascending. */
struct gw_ps_generations {
    uint64_t *at;
    size_t n;
};

/* Makes the folder if it is missing, its parents excepted, and locks it: until it is closed nobody else can open it.
 * Errors: GW_ERR_SYSTEM (it cannot be made or written; another server has it), GW_ERR_ARGUMENT (the path is too long).
 */
gw_status gw_ps_folder_open(struct gw_ps_folder *folder, const char *path);
void gw_ps_folder_close(struct gw_ps_folder *folder);

/* What is there; .at is freed with gw_free. What an interrupted snapshot left (.partial) is removed. Errors:
 * GW_ERR_SYSTEM, GW_ERR_MEMORY. */
gw_status gw_ps_folder_list(gw_context *context, const struct gw_ps_folder *folder, struct gw_ps_generations *snapshots,
                            struct gw_ps_generations *journals);

/* Opens a file of the folder and reads it as gw_ps_records_read() does. If it cannot be opened, that is told in
 * `found`, and what helps. A file that is none, a pipe say, is not waited for. Errors: GW_ERR_MEMORY, replay's. */
gw_status gw_ps_folder_read(gw_context *context, const struct gw_ps_folder *folder, enum gw_ps_records_kind kind,
                            uint64_t generation, gw_ps_replay *replay, void *user, struct gw_ps_records_found *found);

/* The file that tells which generation is the newest: if its snapshot and its journal are removed together, nothing
 * else tells that they were there. Read: *there is false if no such file is there. Write: another takes its place as a
 * whole, and is on disk; files of that generation must be there before. Errors: GW_ERR_SYSTEM, GW_ERR_MEMORY. */
gw_status gw_ps_folder_read_newest(gw_context *context, const struct gw_ps_folder *folder, bool *there,
                                   uint64_t *generation);
gw_status gw_ps_folder_write_newest(const struct gw_ps_folder *folder, uint64_t generation);

bool gw_ps_generations_have(const struct gw_ps_generations *generations, uint64_t generation);

#endif
