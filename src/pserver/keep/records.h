/* Writes and reads files of records, of which snapshots and journals are made: docs/pserver-snapshots.md. A record is a
 * type, a head and a body. Its checksum also covers where it stands: the file's kind and generation, and the record's
 * number there. So bytes of another place cannot pass for it. Numbers are little-endian.
 *
 *     offset  header of a file                            a record
 *     0       magic "GWPSNAPS", "GWPJRNAL", "GWPNEWST"    bytes of the head u32
 *     4                                                   type u8, 0, 0, 0
 *     8       version u32                                 bytes of the body u64
 *     12      flags u32
 *     16      generation u64                              XXH3 of all that
 *     24      XXH3 of all that                            head; body; XXH3 of everything before */
#ifndef GW_PSERVER_KEEP_RECORDS_H
#define GW_PSERVER_KEEP_RECORDS_H

#include <gradwire/context.h>
#include <gradwire/status.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define GW_PS_RECORDS_VERSION 1
#define GW_PS_RECORDS_HEADER 32 /* bytes of a file's header */
#define GW_PS_RECORD_AROUND 32  /* bytes of a record beside its head and body */
#define GW_PS_RECORD_MOST_HEAD (1u << 20)

/* The last one has no records: it says by its header which generation is the newest of a folder. */
enum gw_ps_records_kind { GW_PS_SNAPSHOT, GW_PS_JOURNAL, GW_PS_NEWEST };

/* Types are whoever's who writes; but this one ends a snapshot: u64, how many records came before it. */
#define GW_PS_RECORD_END 255

/* Of a journal: records between it and the one before it are missing, and only with the snapshot of its own generation
 * it is of use. */
#define GW_PS_RECORDS_GAP 1u

/* ---- writing --------------------------------------------------------------------------------------------- */

struct gw_ps_records {
    int fd; /* the caller's */
    enum gw_ps_records_kind kind;
    uint64_t generation;
    uint64_t n;       /* records so far */
    uint64_t n_bytes; /* of the header and all of them: where the next one begins */
};

/* Makes the open, empty file one without records. Errors: GW_ERR_SYSTEM. */
gw_status gw_ps_records_begin(struct gw_ps_records *records, int fd, enum gw_ps_records_kind kind, uint64_t generation,
                              uint32_t flags);

/* Writes one more record: in the system's hands when it returns, not on disk. Where that fails the file is cut back to
 * what was whole. Errors: GW_ERR_SYSTEM, and errno says why. */
gw_status gw_ps_records_append(struct gw_ps_records *records, uint8_t type, const void *head, size_t n_head,
                               const void *body, size_t n_body);

/* The last record of a snapshot. Errors: as above. */
gw_status gw_ps_records_end(struct gw_ps_records *records);

/* ---- reading --------------------------------------------------------------------------------------------- */

/* Is given each record in order; both are borrowed, the body is aligned to 64 bytes. An error ends the reading. */
typedef gw_status gw_ps_replay(void *user, uint8_t type, const void *head, size_t n_head, const void *body,
                               size_t n_body);

enum gw_ps_records_state {
    GW_PS_RECORDS_WHOLE,
    /* The file ends within a record or a header, or holds only zeros from within one on: who wrote it ended there. */
    GW_PS_RECORDS_TORN,
    GW_PS_RECORDS_DAMAGED, /* bytes of it were altered */
    /* It cannot be read, or it is another file than its name says: nothing tells that its bytes are not good. */
    GW_PS_RECORDS_NOT_READ,
};

struct gw_ps_records_found {
    enum gw_ps_records_state state;
    uint32_t flags;
    uint64_t generation;
    uint64_t n;       /* whole records, from the first on */
    uint64_t n_bytes; /* that these and the header take; 0: not even a header */
    uint64_t length;  /* of the file */
    char why[256];    /* what is wrong behind these, and what helps if it is not read */
};

/* Reads a file of n_bytes bytes from its beginning. replay NULL: looks only. What is wrong with the file is told in
 * `found`, and what came before has been replayed then. Of GW_PS_NEWEST any generation is right. Memory is taken for
 * what the file is long enough for. Errors: GW_ERR_MEMORY, replay's. */
gw_status gw_ps_records_read(gw_context *context, FILE *file, uint64_t n_bytes, enum gw_ps_records_kind kind,
                             uint64_t generation, gw_ps_replay *replay, void *user, struct gw_ps_records_found *found);

#endif
