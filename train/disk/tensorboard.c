/* Writes scalars and histograms as TensorBoard event files, and finds where the events of a given step begin. */
#include "disk/tensorboard.h"
#include "wire/bytes.h"

#include <string.h>

uint32_t gw_crc32c(const void *bytes, size_t n_bytes)
{
    uint32_t crc = ~0u;
    for (const uint8_t *p = bytes; n_bytes; n_bytes--, p++) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82F63B78u & -(crc & 1));
    }
    return ~crc;
}

/* TFRecord stores checksums masked. So a checksum of data that holds checksums is still a good one. */
static uint32_t masked(const void *bytes, size_t n_bytes)
{
    uint32_t crc = gw_crc32c(bytes, n_bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* A message under construction, in the wire format of protocol buffers. */
struct message {
    uint8_t bytes[1536]; /* a histogram is the longest */
    size_t n;
};

static void put(struct message *m, const void *bytes, size_t n_bytes)
{
    memcpy(m->bytes + m->n, bytes, n_bytes);
    m->n += n_bytes;
}

static void put_varint(struct message *m, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        m->bytes[m->n++] = (uint8_t)(value | 0x80);
    m->bytes[m->n++] = (uint8_t)value;
}

enum wire_type { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_key(struct message *m, unsigned field, enum wire_type type)
{
    put_varint(m, field << 3 | type);
}

static void put_bytes(struct message *m, unsigned field, const void *bytes, size_t n_bytes)
{
    put_key(m, field, BYTES);
    put_varint(m, n_bytes);
    put(m, bytes, n_bytes);
}

/* A double or a float, as it lies in memory. */
static void put_fixed(struct message *m, unsigned field, const void *value, size_t n_bytes)
{
    put_key(m, field, n_bytes == 8 ? FIXED64 : FIXED32);
    put(m, value, n_bytes);
}

static void write_record(FILE *file, const struct message *m)
{
    uint8_t head[12], tail[4];
    gw_put64(head, m->n);
    gw_put32(head + 8, masked(head, 8));
    gw_put32(tail, masked(m->bytes, m->n));
    fwrite(head, 1, sizeof head, file);
    fwrite(m->bytes, 1, m->n, file);
    fwrite(tail, 1, sizeof tail, file);
}

/* The fields of the messages, by number. Event: 1 wall_time (double), 2 step (int64), 3 file_version (string), 5
 * summary. Summary: 1 value. Summary.Value: 1 tag, 2 simple_value (float), 5 histo. HistogramProto, all doubles: 1 min,
 * 2 max, 3 num, 4 sum, 5 sum_squares, 6 bucket_limit, 7 bucket. The last two are repeated and packed. */
void gw_tensorboard_begin(FILE *file, double wall_time)
{
    static const char version[] = "brain.Event:2";
    struct message event = {.n = 0};
    put_fixed(&event, 1, &wall_time, sizeof wall_time);
    put_bytes(&event, 3, version, strlen(version));
    write_record(file, &event);
}

/* Writes an event with one Summary.Value in it. */
static void write_value(FILE *file, double wall_time, uint64_t step, const struct message *entry)
{
    struct message summary = {.n = 0}, event = {.n = 0};
    put_bytes(&summary, 1, entry->bytes, entry->n);
    put_fixed(&event, 1, &wall_time, sizeof wall_time);
    put_key(&event, 2, VARINT);
    put_varint(&event, step);
    put_bytes(&event, 5, summary.bytes, summary.n);
    write_record(file, &event);
}

void gw_tensorboard_scalar(FILE *file, double wall_time, uint64_t step, const char *tag, float value)
{
    struct message entry = {.n = 0};
    put_bytes(&entry, 1, tag, strnlen(tag, 64));
    put_fixed(&entry, 2, &value, sizeof value);
    write_value(file, wall_time, step, &entry);
}

void gw_tensorboard_histogram(FILE *file, double wall_time, uint64_t step, const char *tensor, const char *kind,
                              const struct gw_histogram *h)
{
    struct message entry = {.n = 0}, proto = {.n = 0};
    double limits[GW_HISTOGRAM_BINS], counts[GW_HISTOGRAM_BINS];
    char tag[96];
    if (h->n == 0)
        return;
    for (uint32_t bin = 0; bin < GW_HISTOGRAM_BINS; bin++) {
        limits[bin] = gw_histogram_limit(h, bin);
        counts[bin] = (double)h->counts[bin];
    }
    const double fields[] = {h->least, h->largest, (double)h->n, h->sum, h->squares};
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        put_fixed(&proto, i + 1, &fields[i], sizeof *fields);
    put_bytes(&proto, 6, limits, sizeof limits);
    put_bytes(&proto, 7, counts, sizeof counts);
    snprintf(tag, sizeof tag, "gradient/%s/%s", tensor, kind);
    put_bytes(&entry, 1, tag, strlen(tag));
    put_bytes(&entry, 5, proto.bytes, proto.n);
    write_value(file, wall_time, step, &entry);
}

/* The step of an event that a function above wrote: field 2, which stands behind the time. The first record has no
 * step, which counts as 0. */
static uint64_t event_step(const uint8_t *event, uint64_t n_bytes)
{
    uint64_t step = 0;
    if (n_bytes < 10 || event[9] != (2 << 3 | VARINT))
        return 0;
    for (uint64_t i = 10; i < n_bytes && i < 20; i++) {
        step |= (uint64_t)(event[i] & 0x7f) << 7 * (i - 10);
        if (event[i] < 0x80)
            break;
    }
    return step;
}

long gw_tensorboard_end_before(FILE *file, uint64_t step, uint64_t *next)
{
    uint8_t head[12], event[sizeof((struct message *)0)->bytes + 4];
    *next = 0;
    for (long end = 0;; end = ftell(file)) {
        if (fread(head, 1, sizeof head, file) != sizeof head || gw_get32(head + 8) != masked(head, 8))
            return end;
        uint64_t n_bytes = gw_get64(head);
        if (n_bytes > sizeof event - 4 || fread(event, 1, n_bytes + 4, file) != n_bytes + 4 ||
            gw_get32(event + n_bytes) != masked(event, n_bytes) || event_step(event, n_bytes) >= step)
            return end;
        if (end > 0) /* the first record is of no step */
            *next = event_step(event, n_bytes) + 1;
    }
}
