/* The folder of a server as numbered rows of bytes, in an SQLite database. What was committed is on disk. The rows do
 * not say what they mean (folder.c), and their bytes have no checksum here.
 *
 *     DIR/state.db      the database: one table, row(id, body). While a server runs, the newest commits are in
 *                       state.db-wal
 *     DIR/lock          locked while a server runs, as DIR itself is. It holds the number of the last commit (u64),
 *                       so that a lost or altered state.db-wal is noticed: SQLite itself would go on without the
 *                       commits */
#ifndef GW_PSERVER_FOLDER_ROWS_H
#define GW_PSERVER_FOLDER_ROWS_H

#include <gradwire/context.h>
#include <gradwire/status.h>

#include <stdbool.h>
#include <stdint.h>

/* A value longer than a piece lies in rows with the numbers that follow, so the lowest 10 bits of a number are 0. */
#define GW_PS_ROW_STEP 1024u

struct gw_ps_rows;

/* Opens the folder, and makes it if it is missing. Nothing in it is changed if that fails. Errors: GW_ERR_ARGUMENT (the
 * path), GW_ERR_SYSTEM (the folder cannot be used, or is another server's; the sentence says what to do),
 * GW_ERR_MEMORY. */
gw_status gw_ps_rows_open(gw_context *context, const char *folder, struct gw_ps_rows **out);
/* The caller has read the rows, and they are good: from here on they may be written. newest: the number of the last
 * commit. Errors: GW_ERR_SYSTEM (commits are missing). */
gw_status gw_ps_rows_accept(struct gw_ps_rows *rows, uint64_t newest);
/* NULL is allowed. */
void gw_ps_rows_close(struct gw_ps_rows *rows);

/* The least number of a row that is at least *id. GW_NOT_YET: there is none. Errors: GW_ERR_SYSTEM. */
gw_status gw_ps_rows_find(struct gw_ps_rows *rows, uint64_t *id, size_t *n_bytes);
/* Reads n_bytes bytes that were put there. Errors: GW_ERR_SYSTEM (they are not there, or are not as long). */
gw_status gw_ps_rows_get(struct gw_ps_rows *rows, uint64_t id, void *bytes, size_t n_bytes);

/* Errors: GW_ERR_SYSTEM (a file to which commits go was removed or renamed; the sentence names it). */
gw_status gw_ps_rows_look(struct gw_ps_rows *rows);

/* A commit is begin, then any puts and drops, then end. `number` counts commits. After an error, call undo: nothing has
 * changed. If there was no room, it also empties the log, as far as the database has room; true: try once more. If
 * another program writes to the database, begin waits for its end, for patience_ms at most. Errors: GW_ERR_SYSTEM. */
gw_status gw_ps_rows_begin(struct gw_ps_rows *rows, int patience_ms);
gw_status gw_ps_rows_put(struct gw_ps_rows *rows, uint64_t id, const void *bytes, size_t n_bytes);
gw_status gw_ps_rows_drop(struct gw_ps_rows *rows, uint64_t from, uint64_t to); /* the rows from <= id < to */
gw_status gw_ps_rows_end(struct gw_ps_rows *rows, uint64_t number);
bool gw_ps_rows_undo(struct gw_ps_rows *rows);

/* Bytes of the database's files. */
uint64_t gw_ps_rows_bytes(const struct gw_ps_rows *rows);

#endif
