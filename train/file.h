/* Files that appear under their name only when they are whole: written under NAME.partial, synced, renamed. */
#ifndef GW_TRAIN_FILE_H
#define GW_TRAIN_FILE_H

#include <gradwire/status.h>
#include <stdbool.h>
#include <stdio.h>

#define GW_PARTIAL ".partial"

struct gw_file {
    FILE *stream; /* write here; NULL where not open */
    char path[4096], partial[4096 + 16];
};

gw_status gw_file_open(const char *folder, const char *name, struct gw_file *file);

/* An error where a write failed so far: a full disk is noticed here, not at the end. */
gw_status gw_file_check(struct gw_file *file);

/* Syncs and renames. Closes the file in every case; where it fails, or was never open, nothing gets the final name. */
gw_status gw_file_commit(struct gw_file *file);

/* Closes without giving the final name; `keep` leaves the .partial file. Does nothing after a commit. */
void gw_file_discard(struct gw_file *file, bool keep);

#endif
