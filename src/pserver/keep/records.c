/* Writes and reads files of records. The reader tells a whole file from one that is cut or altered, and says where it
 * ends. */
#include "pserver/keep/records.h"
#include "base/error.h"
#include "base/memory.h"
#include "wire/bytes.h"
#include "wire/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { RECORD_HEADER = 24, CHECKSUM = 8, END_HEAD = 8, PIECE = 1 << 18, SECTOR = 512 };

static const struct {
    const char *magic, *what;
} kinds[] = {
    [GW_PS_SNAPSHOT] = {"GWPSNAPS", "a snapshot"},
    [GW_PS_JOURNAL] = {"GWPJRNAL", "a journal"},
    [GW_PS_NEWEST] = {"GWPNEWST", "the number of the newest generation"},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* The seed of a record's checksum. It depends on the place of the record. */
static uint64_t seed_of(enum gw_ps_records_kind kind, uint64_t generation, uint64_t ordinal)
{
    uint8_t place[24];
    gw_put64(place, kind);
    gw_put64(place + 8, generation);
    gw_put64(place + 16, ordinal);
    return gw_hash_now()->whole(place, sizeof place, 0);
}

/* ---- writing --------------------------------------------------------------------------------------------- */

/* Writes all parts to the file from `at` on. It changes the parts. */
static bool write_all(int fd, struct iovec *parts, int n, uint64_t at)
{
    while (n > 0) {
        ssize_t wrote = pwritev(fd, parts, n, (off_t)at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return false;
        at += (uint64_t)wrote;
        while (n > 0 && (size_t)wrote >= parts->iov_len) {
            wrote -= (ssize_t)parts->iov_len;
            parts++;
            n--;
        }
        if (n > 0) {
            parts->iov_base = (char *)parts->iov_base + wrote;
            parts->iov_len -= (size_t)wrote;
        }
    }
    return true;
}

static void make_header(uint8_t header[GW_PS_RECORDS_HEADER], enum gw_ps_records_kind kind, uint64_t generation,
                        uint32_t flags)
{
    memcpy(header, kinds[kind].magic, 8);
    gw_put32(header + 8, GW_PS_RECORDS_VERSION);
    gw_put32(header + 12, flags);
    gw_put64(header + 16, generation);
    gw_put64(header + 24, gw_hash_now()->whole(header, 24, 0));
}

gw_status gw_ps_records_begin(struct gw_ps_records *records, int fd, enum gw_ps_records_kind kind, uint64_t generation,
                              uint32_t flags)
{
    uint8_t header[GW_PS_RECORDS_HEADER];
    make_header(header, kind, generation, flags);
    struct iovec part = {header, sizeof header};
    if (!write_all(fd, &part, 1, 0))
        return gw_fail(GW_ERR_SYSTEM, "it cannot be written: %s", strerror(errno));
    *records = (struct gw_ps_records){.fd = fd, .kind = kind, .generation = generation, .n_bytes = sizeof header};
    return GW_OK;
}

gw_status gw_ps_records_append(struct gw_ps_records *records, uint8_t type, const void *head, size_t n_head,
                               const void *body, size_t n_body)
{
    const struct gw_hash *hash = gw_hash_now();
    const uint64_t seed = seed_of(records->kind, records->generation, records->n);
    uint8_t header[RECORD_HEADER] = {0}, checksum[CHECKSUM];
    struct gw_hash_state state;
    gw_put32(header, (uint32_t)n_head);
    header[4] = type;
    gw_put64(header + 8, n_body);
    gw_put64(header + 16, hash->whole(header, 16, seed));
    hash->begin(&state, seed);
    hash->add(&state, header, sizeof header);
    hash->add(&state, head, n_head);
    hash->add(&state, body, n_body);
    gw_put64(checksum, hash->end(&state));
    struct iovec parts[] = {{header, sizeof header},
                            {(void *)head, n_head},
                            {(void *)body, n_body},
                            {checksum, sizeof checksum}};
    if (!write_all(records->fd, parts, 4, records->n_bytes)) {
        const int error = errno;
        gw_status status =
            gw_fail(GW_ERR_SYSTEM, "it cannot be written: %s%s", strerror(error),
                    ftruncate(records->fd, (off_t)records->n_bytes) == 0 ? "" : ", nor cut back to what was whole");
        errno = error;
        return status;
    }
    records->n++;
    records->n_bytes += GW_PS_RECORD_AROUND + n_head + n_body;
    return GW_OK;
}

gw_status gw_ps_records_end(struct gw_ps_records *records)
{
    uint8_t count[END_HEAD];
    gw_put64(count, records->n);
    return gw_ps_records_append(records, GW_PS_RECORD_END, count, sizeof count, NULL, 0);
}

/* ---- reading --------------------------------------------------------------------------------------------- */

struct reader {
    gw_context *context;
    FILE *file;
    uint64_t n_bytes, at;
    enum gw_ps_records_kind kind;
    uint64_t generation;
    struct gw_ps_records_found *found;
    struct gw_hash_state state; /* checksum of the record that is being read */
    /* head and body of the record; if nobody wants the body, only a piece of it at a time */
    uint8_t *head, *body;
    uint64_t head_room, body_room;
    bool ended; /* the last record of a snapshot was read */
};

#define ZEROS_FROM "from within the record at byte %" PRIu64 " on it holds only zeros"

/* Notes that the good part of the file ends here, and why. */
__attribute__((format(printf, 3, 4))) static bool stop(struct reader *reader, enum gw_ps_records_state state,
                                                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reader->found->why, sizeof reader->found->why, format, args);
    va_end(args);
    reader->found->state = state;
    return false;
}

static bool take(struct reader *reader, void *into, size_t n)
{
    if (fread(into, 1, n, reader->file) != n)
        return stop(reader, GW_PS_RECORDS_NOT_READ, "it cannot be read at byte %" PRIu64 ": %s", reader->at,
                    ferror(reader->file) ? strerror(errno) : "it has become shorter while it was read");
    reader->at += n;
    return true;
}

static uint64_t left(const struct reader *reader)
{
    return reader->n_bytes - reader->at;
}

/* True if there are only zeros up to the end. If a machine loses power, its disk may hold zeros at the end of a file:
 * the file had grown, but its bytes had not come yet. */
static bool only_zeros(struct reader *reader, const uint8_t *first, size_t n_first)
{
    uint8_t bytes[4096];
    if (n_first)
        memcpy(bytes, first, n_first);
    for (size_t n = n_first;; n = left(reader) < sizeof bytes ? (size_t)left(reader) : sizeof bytes) {
        if (n > n_first && !take(reader, bytes, n))
            return false;
        for (size_t i = 0; i < n; i++)
            if (bytes[i])
                return false;
        n_first = 0;
        if (left(reader) == 0)
            return true;
    }
}

/* True if the bytes may be the begin of a header. The flags may be any: the checksum comes only at the end. */
static bool begins_header(const struct reader *reader, const uint8_t *bytes, size_t n)
{
    static const uint32_t flags[] = {0, GW_PS_RECORDS_GAP};
    uint8_t header[GW_PS_RECORDS_HEADER];
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        make_header(header, reader->kind, reader->generation, flags[i]);
        if (memcmp(header, bytes, n) == 0)
            return true;
    }
    return false;
}

/* The header's checksum is right. Checks that the header is the one that the file's name promises. */
static bool check_header(struct reader *reader, const uint8_t header[GW_PS_RECORDS_HEADER])
{
    const uint64_t generation = gw_get64(header + 16);
    size_t kind = 0;
    while (kind < N_KINDS && memcmp(header, kinds[kind].magic, 8) != 0)
        kind++;
    if (kind == N_KINDS)
        return stop(reader, GW_PS_RECORDS_NOT_READ, "it is no file of a parameter server");
    if (gw_get32(header + 8) != GW_PS_RECORDS_VERSION)
        return stop(reader, GW_PS_RECORDS_NOT_READ,
                    "it is of version %u, and this program reads %d; start the program that wrote it",
                    gw_get32(header + 8), GW_PS_RECORDS_VERSION);
    if (kind != reader->kind || (generation != reader->generation && kind != GW_PS_NEWEST))
        return stop(reader, GW_PS_RECORDS_NOT_READ,
                    "by its header it is %s of generation %" PRIu64 "; give it its own name back", kinds[kind].what,
                    generation);
    reader->generation = generation;
    reader->found->generation = generation;
    reader->found->flags = gw_get32(header + 12);
    reader->found->n_bytes = reader->at;
    return true;
}

static bool read_header(struct reader *reader)
{
    uint8_t header[GW_PS_RECORDS_HEADER];
    const size_t n = left(reader) < sizeof header ? (size_t)left(reader) : sizeof header;
    if (!take(reader, header, n))
        return false;
    if (n < sizeof header && begins_header(reader, header, n))
        return stop(reader, GW_PS_RECORDS_TORN, "its header is cut short");
    if (only_zeros(reader, header, n))
        return stop(reader, GW_PS_RECORDS_TORN, "it holds only zeros");
    if (reader->found->state == GW_PS_RECORDS_NOT_READ)
        return false;
    if (n < sizeof header || gw_get64(header + 24) != gw_hash_now()->whole(header, 24, 0))
        return stop(reader, GW_PS_RECORDS_DAMAGED,
                    "its header does not match its checksum: bytes of it were altered, or it is another program's");
    return check_header(reader, header);
}

static gw_status make_room(gw_context *context, uint8_t **memory, uint64_t *room, uint64_t n)
{
    if (n <= *room)
        return GW_OK;
    gw_free(context, *memory);
    *room = 0;
    *memory = gw_alloc(context, n, 1);
    if (!*memory)
        return GW_ERR_MEMORY;
    *room = n;
    return GW_OK;
}

/* Reads the next n bytes, and adds them to the checksum. If there is less room than n, it reads pieces over each other.
 */
static bool take_part(struct reader *reader, uint8_t *into, uint64_t room, uint64_t n)
{
    while (n > 0) {
        const size_t now = (size_t)(n < room ? n : room);
        if (!take(reader, into, now))
            return false;
        gw_hash_now()->add(&reader->state, into, now);
        n -= now;
    }
    return true;
}

/* Reads the lengths and the type of the record, and checks them, so that they can be trusted. */
static bool read_record_header(struct reader *reader, uint8_t header[RECORD_HEADER])
{
    const uint64_t begin = reader->at, seed = seed_of(reader->kind, reader->generation, reader->found->n);
    if (left(reader) < RECORD_HEADER)
        return stop(reader, GW_PS_RECORDS_TORN, "it ends within the record at byte %" PRIu64, begin);
    if (!take(reader, header, RECORD_HEADER))
        return false;
    if (gw_get64(header + 16) != gw_hash_now()->whole(header, 16, seed)) {
        if (!header[RECORD_HEADER - 1] && only_zeros(reader, NULL, 0))
            return stop(reader, GW_PS_RECORDS_TORN, ZEROS_FROM, begin);
        return reader->found->state == GW_PS_RECORDS_WHOLE &&
               stop(reader, GW_PS_RECORDS_DAMAGED,
                    "the record at byte %" PRIu64 " is damaged: its lengths do not match their checksum", begin);
    }
    const uint64_t n_head = gw_get32(header), n_body = gw_get64(header + 8);
    if (n_head > GW_PS_RECORD_MOST_HEAD)
        return stop(reader, GW_PS_RECORDS_DAMAGED, "the record at byte %" PRIu64 " has a head of %" PRIu64 " bytes",
                    begin, n_head);
    if (left(reader) < n_head + CHECKSUM || left(reader) - n_head - CHECKSUM < n_body)
        return stop(reader, GW_PS_RECORDS_TORN, "it ends within the record at byte %" PRIu64, begin);
    gw_hash_now()->begin(&reader->state, seed);
    gw_hash_now()->add(&reader->state, header, RECORD_HEADER);
    return true;
}

/* A record does not match its checksum. True if its last bytes never came to disk: there are zeros from somewhere
 * within it to the end of the file. A record that came to disk and was altered later is not like this, because it ends
 * in its checksum, which is not zero. If only a part of the checksum is missing, the rest has come and must fit. There
 * must also be a reason why that part is missing: there are zeros behind the record too, or the missing part begins at
 * a sector of the disk. */
static bool never_came(struct reader *reader, const uint8_t stored[CHECKSUM], uint64_t computed)
{
    uint8_t expected[CHECKSUM];
    const uint64_t end = reader->at;
    size_t came = CHECKSUM;
    while (came > 0 && !stored[came - 1])
        came--;
    gw_put64(expected, computed);
    const bool sector_begins = (end - 1) / SECTOR * SECTOR >= end - (CHECKSUM - came);
    const bool has_reason = came == 0 || left(reader) > 0 || sector_begins;
    return came < CHECKSUM && memcmp(stored, expected, came) == 0 && has_reason && only_zeros(reader, NULL, 0);
}

/* Reads head, body and checksum of the record. *whole false: the good part of the file ends here. */
static gw_status read_record(struct reader *reader, bool keep_body, const uint8_t header[RECORD_HEADER], bool *whole)
{
    const uint64_t begin = reader->at - RECORD_HEADER, n_head = gw_get32(header), n_body = gw_get64(header + 8);
    uint8_t checksum[CHECKSUM];
    *whole = false;
    GW_TRY(make_room(reader->context, &reader->head, &reader->head_room, n_head + 1));
    GW_TRY(make_room(reader->context, &reader->body, &reader->body_room,
                     keep_body || n_body < PIECE ? n_body + 1 : PIECE));
    if (!take_part(reader, reader->head, reader->head_room, n_head) ||
        !take_part(reader, reader->body, reader->body_room, n_body) || !take(reader, checksum, sizeof checksum))
        return GW_OK;
    const uint64_t computed = gw_hash_now()->end(&reader->state);
    *whole = gw_get64(checksum) == computed;
    if (!*whole && never_came(reader, checksum, computed))
        stop(reader, GW_PS_RECORDS_TORN, ZEROS_FROM, begin);
    else if (!*whole && reader->found->state == GW_PS_RECORDS_WHOLE)
        stop(reader, GW_PS_RECORDS_DAMAGED, "the record at byte %" PRIu64 " does not match its checksum", begin);
    return GW_OK;
}

/* Checks the last record of a snapshot: it says how many records came before, and nothing may follow it. */
static bool is_end(struct reader *reader, const uint8_t header[RECORD_HEADER])
{
    if (reader->kind != GW_PS_SNAPSHOT || header[4] != GW_PS_RECORD_END)
        return false;
    reader->ended = true;
    if (gw_get32(header) != END_HEAD || gw_get64(reader->head) != reader->found->n || left(reader))
        stop(reader, GW_PS_RECORDS_DAMAGED, "its last record, at byte %" PRIu64 ", does not fit what is there",
             reader->found->n_bytes);
    return true;
}

static gw_status read_records(struct reader *reader, gw_ps_replay *replay, void *user)
{
    uint8_t header[RECORD_HEADER];
    bool whole = true;
    while (left(reader) && read_record_header(reader, header)) {
        GW_TRY(read_record(reader, replay != NULL, header, &whole));
        if (!whole || is_end(reader, header))
            break;
        if (replay)
            GW_TRY(replay(user, header[4], reader->head, gw_get32(header), reader->body, gw_get64(header + 8)));
        reader->found->n++;
        reader->found->n_bytes = reader->at;
    }
    if (reader->kind == GW_PS_SNAPSHOT && !reader->ended && reader->found->state == GW_PS_RECORDS_WHOLE)
        stop(reader, GW_PS_RECORDS_TORN, "its last record is missing");
    return GW_OK;
}

gw_status gw_ps_records_read(gw_context *context, FILE *file, uint64_t n_bytes, enum gw_ps_records_kind kind,
                             uint64_t generation, gw_ps_replay *replay, void *user, struct gw_ps_records_found *found)
{
    struct reader reader = {
        .context = context, .file = file, .n_bytes = n_bytes, .kind = kind, .generation = generation, .found = found};
    *found = (struct gw_ps_records_found){.state = GW_PS_RECORDS_WHOLE, .length = n_bytes};
    gw_status status = read_header(&reader) ? read_records(&reader, replay, user) : GW_OK;
    gw_free(context, reader.head);
    gw_free(context, reader.body);
    return status;
}
