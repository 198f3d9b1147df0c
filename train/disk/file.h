/* Writes files that get their name only when they are whole. A file is written as NAME.partial, synced, and renamed.
 * Also reads whole files. */
#ifndef GW_TRAIN_FILE_H
#define GW_TRAIN_FILE_H

#include <gradwire/status.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define GW_PARTIAL ".partial"

struct gw_file {
    FILE *stream; /* write here; NULL if not open */
    char path[4096], partial[4096 + 16];
};

/* Makes an empty file. again: opens one that an interrupted run left, at its start, for reading and writing:
 * NAME.partial, or NAME, which becomes NAME.partial again; if neither is there, the file is empty, too. */
gw_status gw_file_open(const char *folder, const char *name, bool again, struct gw_file *file);

enum { GW_FILE_LINE = 16384 }; /* no run writes a longer line */
/* Reads a line, with its end. false: there is none, or it is longer, or has a byte of 0. */
bool gw_file_line(FILE *stream, char text[GW_FILE_LINE]);

/* Drops all bytes from offset `at` on. The next write goes there. */
gw_status gw_file_cut(struct gw_file *file, long at);

gw_status gw_file_sync(struct gw_file *file);

/* Returns an error if a write has failed so far. So a full disk is noticed early. */
gw_status gw_file_check(struct gw_file *file);

/* Syncs and renames the file, and closes it in every case. If it fails, or the file was never open, no file gets the
 * final name. */
gw_status gw_file_commit(struct gw_file *file);

/* Closes without giving the final name; `keep` leaves the .partial file. Does nothing after a commit. */
void gw_file_discard(struct gw_file *file, bool keep);

/* Reads a regular file, or its first `most` bytes if it has more. *file_bytes: how many it has, as the file system
 * tells. The caller frees *bytes with gw_free. */
gw_status gw_file_read(const char *path, size_t most, uint8_t **bytes, size_t *n_bytes, uint64_t *file_bytes);

/* Reads a JSON file of at most `most` bytes. `what` ends the sentence if it is none. The caller drops *json, which is
 * NULL after an error. */
gw_status gw_file_read_json(const char *path, size_t most, const char *what, json_t **json);

/* Writes FOLDER/NAME, whole or not at all, with `json` in it, which this drops. json NULL: there was no memory for it.
 */
gw_status gw_file_write_json(const char *folder, const char *name, json_t *json);

#endif
