/* Feeds bytes from strangers to every door of the library: decode, inspect, reduce, the tcp link's meeting, and the
 * parameter server with its files.
 *
 * Frames carry a checksum, so nearly every mutation of one would end there. The mode byte says what is repaired before
 * the library sees the frame; mutations then reach what lies behind the checksum. */
#include "entries.h"
#include "base/error.h"
#include "codec/wire_codec.h"
#include "pserver/protocol/message.h"
#include "wire/bytes.h"
#include "wire/hash.h"
#ifdef GW_HAVE_TCP
#include "link/tcp/wire.h"
#include "net/connection.h"
#endif

#include <gradwire/gradwire.h>
#include <stdlib.h>
#include <string.h>
#ifdef GW_HAVE_TCP
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#endif

enum mode {
    MODE_SEAL = 1,    /* magic, version, payload length and checksum are made right */
    MODE_AGREE = 2,   /* reduce: frames 1.. take the first one's slice and codec, and ranks 0, 1, 2, ... */
    MODE_SCALERS = 4, /* reduce: frames 1.. take the first one's scalers */
};

/* A frame of a few bytes may rightly stand for 2^34 zeros. To decode these would only cost time. */
#define MAX_ELEMENTS (1u << 20)
#define MAX_FRAMES 8

/* Offsets of header fields (docs/wire-format.md). */
enum {
    AT_CODEC = 3,
    AT_CODE = 4,
    AT_FLAGS = 5,
    AT_WORKERS = 6,
    AT_RANK = 8,
    AT_TENSOR = 12,
    AT_BUCKET = 20,
    AT_COUNT = 32,
    AT_PAYLOAD_BYTES = 40
};

static void promise(int kept)
{
    if (!kept)
        abort();
}

/* One context serves the whole process. */
static gw_context *context(void)
{
    static gw_context *only;
    if (!only)
        promise(gw_context_create(NULL, &only) == GW_OK);
    return only;
}

static size_t head_bytes(const uint8_t *frame)
{
    return gw_frame_head_bytes(
        gw_frame_n_scalers(frame[AT_CODEC], gw_get32(frame + AT_BUCKET), gw_get64(frame + AT_COUNT)));
}

static void seal(uint8_t *frame, size_t size)
{
    if (size < GW_HEADER_BYTES)
        return;
    frame[0] = 'G';
    frame[1] = 'W';
    frame[2] = GW_FRAME_VERSION;
    size_t head = head_bytes(frame);
    if (head <= size)
        gw_put64(frame + AT_PAYLOAD_BYTES, size - head);
    gw_frame_reseal(frame, size);
}

/* Makes a copy that ends where its memory ends, so that sanitizers see a read past it. */
static uint8_t *exact_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    promise(copy != NULL);
    memcpy(copy, data, size);
    return copy;
}

/* Decodes a frame that was parsed. If and only if a frame can be decoded, its symbols can be counted. */
static void decode_checked(const uint8_t *frame, size_t size, const gw_frame_info *info)
{
    if (info->n_elems > MAX_ELEMENTS)
        return;
    float *out = malloc(info->n_elems ? info->n_elems * sizeof *out : 1);
    const size_t n_counts = 2 * (size_t)info->workers + 1;
    uint64_t *counts = malloc(n_counts * sizeof *counts);
    promise(out && counts);
    gw_status decoded = gw_decode(context(), frame, size, out, info->n_elems);
    uint64_t n_nonzero = 0;
    double bits = 0;
    gw_status counted = gw_frame_symbols(context(), frame, size, counts, n_counts, &n_nonzero, &bits);
    promise((decoded == GW_OK) == (counted == GW_OK));
    if (counted == GW_OK)
        promise(n_nonzero <= info->n_elems && bits >= 0);
    free(out);
    free(counts);
}

int gw_fuzz_decode(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    uint8_t *frame = exact_copy(data + 1, size - 1);
    if (data[0] & MODE_SEAL)
        seal(frame, size - 1);
    gw_frame_info info;
    if (gw_frame_parse(frame, size - 1, &info) == GW_OK) {
        promise(info.frame_bytes <= size - 1 && info.payload_bytes <= info.frame_bytes);
        decode_checked(frame, size - 1, &info);
    } else {
        float nothing;
        promise(gw_decode(context(), frame, size - 1, &nothing, 1) < 0);
        promise(*gw_last_error() != 0);
    }
    free(frame);
    return 0;
}

int gw_fuzz_inspect(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    uint8_t *frame = exact_copy(data + 1, size - 1);
    if (data[0] & MODE_SEAL)
        seal(frame, size - 1);
    gw_frame_info info;
    if (gw_frame_parse(frame, size - 1, &info) == GW_OK) {
        promise(info.codec && info.code);
        gw_frame_scaler(frame, size - 1, 0);
        gw_frame_scaler(frame, size - 1, info.n_scalers - 1);
        promise(gw_frame_scaler(frame, size - 1, info.n_scalers) == 0);
        if (info.n_elems <= MAX_ELEMENTS)
            gw_ignore(gw_frame_symbols(context(), frame, size - 1, NULL, 0, NULL, NULL));
    }
    free(frame);
    return 0;
}

/* Changes a frame so that it could stand beside `first`, as the frame of worker `rank`. */
static void make_agree(uint8_t *frame, size_t size, const uint8_t *first, size_t first_size, uint32_t rank,
                       uint8_t mode)
{
    if (size < GW_HEADER_BYTES || first_size < GW_HEADER_BYTES)
        return;
    frame[AT_CODEC] = first[AT_CODEC];
    memcpy(frame + AT_TENSOR, first + AT_TENSOR, AT_PAYLOAD_BYTES - AT_TENSOR);
    gw_put32(frame + AT_RANK, rank);
    size_t head = head_bytes(first);
    /* If the count is wild, the sum in head_bytes may wrap. */
    if (mode & MODE_SCALERS && head >= GW_HEADER_BYTES && head <= size && head <= first_size)
        memcpy(frame + GW_HEADER_BYTES, first + GW_HEADER_BYTES, head - GW_HEADER_BYTES);
}

/* The average of frames that could be added must itself be a good frame. */
static void reduce_checked(uint8_t *const *frames, const size_t *sizes, uint32_t n)
{
    gw_frame_info info;
    uint64_t workers = 0; /* an average stands for several workers */
    for (uint32_t i = 0; i < n; i++) {
        if (gw_frame_parse(frames[i], sizes[i], &info) != GW_OK)
            continue;
        if (info.n_elems > MAX_ELEMENTS)
            return;
        workers += info.average ? info.workers : 1;
    }
    size_t capacity = gw_reduce_bound((const void *const *)frames, sizes, n), bytes = 0;
    uint8_t *average = malloc(capacity ? capacity : 1);
    promise(average != NULL);
    gw_status status = gw_reduce(context(), (const void *const *)frames, sizes, n, NULL, average, capacity, &bytes);
    promise(status != GW_ERR_CAPACITY);
    if (status == GW_OK) {
        promise(bytes <= capacity && gw_frame_parse(average, bytes, &info) == GW_OK);
        promise(info.average && info.workers == workers && info.frame_bytes == bytes);
        float *out = malloc(info.n_elems ? info.n_elems * sizeof *out : 1);
        promise(out && gw_decode(context(), average, bytes, out, info.n_elems) == GW_OK);
        free(out);
    }
    free(average);
}

int gw_fuzz_reduce(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    uint8_t mode = data[0], *frames[MAX_FRAMES];
    size_t sizes[MAX_FRAMES], at = 1;
    uint32_t n = 0;
    while (n < MAX_FRAMES && size - at >= 2) {
        size_t length = data[at] | (size_t)data[at + 1] << 8;
        at += 2;
        length = length < size - at ? length : size - at;
        frames[n] = exact_copy(data + at, length);
        sizes[n] = length;
        if (mode & MODE_AGREE && n > 0)
            make_agree(frames[n], length, frames[0], sizes[0], n, mode);
        if (mode & MODE_SEAL)
            seal(frames[n], length);
        at += length;
        n++;
    }
    if (n > 0)
        reduce_checked(frames, sizes, n);
    for (uint32_t i = 0; i < n; i++)
        free(frames[i]);
    return 0;
}

/* If a request is read as good, and written again, it must have the same bytes. */
static void request_checked(const uint8_t *bytes, size_t n_bytes)
{
    struct gw_ps_request request;
    uint8_t again[GW_PS_HEAD_BYTES];
    gw_status status = gw_ps_request_read(bytes, n_bytes, &request);
    promise(strlen(request.key) <= GW_PS_MOST_NAME && strlen(request.scale_key) <= GW_PS_MOST_NAME &&
            strlen(request.codec) <= GW_PS_MOST_NAME);
    promise(status == GW_OK || *gw_last_error() != 0);
    if (status == GW_OK)
        promise(gw_ps_request_write(again, &request) == n_bytes && memcmp(again, bytes, n_bytes) == 0);
}

static void answer_checked(const uint8_t *bytes, size_t n_bytes)
{
    struct gw_ps_answer answer;
    uint8_t again[GW_PS_HEAD_BYTES];
    gw_status status = gw_ps_answer_read(bytes, n_bytes, &answer);
    promise(strlen(answer.sentence) < sizeof answer.sentence);
    if (status == GW_OK && answer.status == GW_OK)
        promise(answer.shape.n_dims <= GW_PS_MOST_DIMS && gw_ps_answer_write(again, &answer) == n_bytes &&
                memcmp(again, bytes, n_bytes) == 0);
}

int gw_fuzz_pserver(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    uint8_t *bytes = exact_copy(data + 1, size - 1);
    if (data[0] >= 2 && size - 1 >= 8) { /* else most inputs would end at the magic number */
        memcpy(bytes, data[0] % 2 ? "GWPQ" : "GWPA", 4);
        bytes[4] = GW_PS_VERSION;
        bytes[5] = (uint8_t)(1 + bytes[5] % (GW_PS_OPERATIONS - 1));
        bytes[7] = 0;
    }
    if (data[0] % 2)
        request_checked(bytes, size - 1);
    else
        answer_checked(bytes, size - 1);
    free(bytes);
    return 0;
}

bool gw_fuzz_pserver_is_good(const uint8_t *data, size_t size)
{
    struct gw_ps_request request;
    struct gw_ps_answer answer;
    return size > 0 && (data[0] % 2 ? gw_ps_request_read(data + 1, size - 1, &request)
                                    : gw_ps_answer_read(data + 1, size - 1, &answer)) == GW_OK;
}

#ifdef GW_HAVE_TCP
static void *take_place(void *connection, const struct gw_net_message *message)
{
    const struct gw_net_connection *c = connection;
    const uint64_t n_bytes = message->n_header + message->n_bytes;
    promise(!message->is_small && !message->bytes && n_bytes > GW_NET_SMALL && n_bytes <= c->most_bytes);
    free(exact_copy(message->header, message->n_header));
    return message->kind == GW_TCP_DATA ? malloc(message->n_bytes) : gw_net_nowhere;
}

/* What a stranger's bytes become: messages of a connection, and the bodies of the tcp link's messages. */
int gw_fuzz_join(const uint8_t *data, size_t size)
{
    int ends[2];
    uint64_t longest = size > 0 && data[0] & 1 ? 100000 : GW_NET_SMALL;
    struct gw_net_connection c;
    struct gw_net_message message;
    gw_status status;
    if (size < 1 || size > 65536 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 0;
    const int room = 1 << 20;
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    promise(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    gw_net_init(&c, context());
    c.most_bytes = longest;
    c.most_header = data[0] & 2 ? GW_NET_MOST_HEADER : 0;
    c.place = take_place;
    c.place_user = &c;
    promise(gw_net_adopt(&c, ends[0], NULL, NULL, false) == GW_OK);
    promise(gw_net_establish(&c) == GW_OK);
    for (size_t at = 1, n; at < size; at += n) { /* it comes in parts */
        n = 1 + data[at] * 40u < size - at ? 1 + data[at] * 40u : size - at;
        if (send(ends[1], data + at, n, MSG_NOSIGNAL) != (ssize_t)n)
            break;
        while ((status = gw_net_next(&c, &message)) == GW_OK) {
            struct gw_tcp_join join;
            struct gw_tcp_member members[3];
            struct gw_tcp_hello hello;
            char text[GW_TCP_TEXT_BYTES];
            uint64_t number;
            const size_t n_all = message.n_header + message.n_bytes;
            promise(message.n_header <= c.most_header && n_all <= longest &&
                    message.is_small == (n_all <= GW_NET_SMALL));
            free(exact_copy(message.header, message.n_header));
            if (message.bytes == gw_net_nowhere) {
                gw_net_consume(&c);
                continue;
            }
            uint8_t *bytes = exact_copy(message.bytes, message.n_bytes);
            if (gw_tcp_join_read(bytes, message.n_bytes, &join))
                promise(strlen(join.address.place) < sizeof join.address.place);
            gw_tcp_table_read(bytes, message.n_bytes, 3, 1, &number, members);
            gw_tcp_hello_read(bytes, message.n_bytes, &hello);
            promise(!gw_tcp_text_read(bytes, message.n_bytes, text) || strlen(text) < sizeof text);
            promise(!gw_tcp_refuse_read(bytes, message.n_bytes, &status, text) || strlen(text) < sizeof text);
            free(bytes);
            gw_net_consume(&c);
            if (!message.is_small)
                free(message.bytes);
        }
        if (status == GW_ERR_PEER)
            break;
    }
    if (c.body && c.body != gw_net_nowhere)
        free(c.body);
    gw_net_close(&c);
    close(ends[1]);
    return 0;
}
#else
int gw_fuzz_join(const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    return 0;
}
#endif
