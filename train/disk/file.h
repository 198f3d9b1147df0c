/* Files that appear under their name only when they are whole: they are written under NAME.partial, synced, renamed.
 * It also reads whole files. */
#ifndef GW_TRAIN_FILE_H
#define GW_TRAIN_FILE_H

#include <gradwire/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define GW_PARTIAL ".partial"

struct gw_file {
    FILE *stream; /* write here; NULL if not open */
    char path[4096], partial[4096 + 16];
};

gw_status gw_file_open(const char *folder, const char *name, struct gw_file *file);

/* Opens for reading and writing, at its start, what an interrupted run left: NAME.partial, or NAME, which becomes
 * NAME.partial again; an empty file where neither is there. */
gw_status gw_file_reopen(const char *folder, const char *name, struct gw_file *file);

/* Drops everything from offset `at` on; what is written next stands there. */
gw_status gw_file_cut(struct gw_file *file, long at);

/* What was written so far is on disk. */
gw_status gw_file_sync(struct gw_file *file);

/* An error where a write failed so far: a full disk is noticed here, not at the end. */
gw_status gw_file_check(struct gw_file *file);

/* Syncs and renames. Closes the file in every case; where it fails, or was never open, nothing gets the final name. */
gw_status gw_file_commit(struct gw_file *file);

/* Closes without giving the final name; `keep` leaves the .partial file. Does nothing after a commit. */
void gw_file_discard(struct gw_file *file, bool keep);

/* The whole of a regular file; memory is no more than the file system says it is long. *bytes is freed with gw_free. */
gw_status gw_file_read(const char *path, uint8_t **bytes, size_t *n_bytes);

#endif
