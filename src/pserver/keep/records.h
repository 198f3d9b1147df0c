/* Writes and reads files of records, of which snapshots and journals are made: docs/pserver-snapshots.md. A record is a
 * type, a head and a body. Its checksum also covers its place: the file's kind and generation, and the record's number
 * in the file. So a record that was copied from another place is noticed. Numbers are little-endian.
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

/* A file of the last kind has no records: its header tells which generation of a folder is the newest. */
enum gw_ps_records_kind { GW_PS_SNAPSHOT, GW_PS_JOURNAL, GW_PS_NEWEST };

/* The caller chooses the types of records. Only this one is fixed: it ends a snapshot, and its head is a u64, the
 * number of records before it. */
#define GW_PS_RECORD_END 255

/* A flag of a journal: it begins after a gap. Records between it and the journal before it are missing. So it is of use
 * only with the snapshot of its own generation. */
#define GW_PS_RECORDS_GAP 1u

/* ---- writing --------------------------------------------------------------------------------------------- */

struct gw_ps_records {
    int fd; /* the caller opens and closes it */
    enum gw_ps_records_kind kind;
    uint64_t generation;
    uint64_t n;       /* how many records so far */
    uint64_t n_bytes; /* bytes of the header and of all records: the next one begins there */
};

/* Begins a file: writes the header into the open, empty file. Errors: GW_ERR_SYSTEM. */
gw_status gw_ps_records_begin(struct gw_ps_records *records, int fd, enum gw_ps_records_kind kind, uint64_t generation,
                              uint32_t flags);

/* Writes one more record. When the call returns, the operating system has the record, but it is not on disk yet. If the
 * call fails, the file is cut back to its whole records. Errors: GW_ERR_SYSTEM, and errno says why. */
gw_status gw_ps_records_append(struct gw_ps_records *records, uint8_t type, const void *head, size_t n_head,
                               const void *body, size_t n_body);

/* Writes the last record of a snapshot. Errors: as above. */
gw_status gw_ps_records_end(struct gw_ps_records *records);

/* ---- reading --------------------------------------------------------------------------------------------- */

/* A function that gets each record in order. Head and body are borrowed. The body is aligned to 64 bytes. If the
 * function returns an error, the reading ends. */
typedef gw_status gw_ps_replay(void *user, uint8_t type, const void *head, size_t n_head, const void *body,
                               size_t n_body);

enum gw_ps_records_state {
    GW_PS_RECORDS_WHOLE,
    /* The file ends within a record or a header, or has only zeros from somewhere within one to the end. The process or
     * the machine that wrote it ended there. */
    GW_PS_RECORDS_TORN,
    GW_PS_RECORDS_DAMAGED, /* some bytes of the file were altered */
    /* The file cannot be read, or it is another file than its name says. Its bytes may still be good. */
    GW_PS_RECORDS_NOT_READ,
};

struct gw_ps_records_found {
    enum gw_ps_records_state state;
    uint32_t flags;
    uint64_t generation;
    uint64_t n;       /* how many whole records there are, from the first on */
    uint64_t n_bytes; /* bytes of the header and of these records; 0: not even the header is whole */
    uint64_t length;  /* bytes of the file */
    char why[256];    /* what is wrong behind these records; and what helps, if the file cannot be read */
};

/* Reads a file of n_bytes bytes from its beginning. replay NULL: only looks at it. If something is wrong with the file,
 * `found` says so; the records before that have been replayed. A file of kind GW_PS_NEWEST may have any generation. The
 * call never takes more memory than the length of the file allows. Errors: GW_ERR_MEMORY, and those of `replay`. */
gw_status gw_ps_records_read(gw_context *context, FILE *file, uint64_t n_bytes, enum gw_ps_records_kind kind,
                             uint64_t generation, gw_ps_replay *replay, void *user, struct gw_ps_records_found *found);

#endif
