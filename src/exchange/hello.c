/* The first message of every member to every other: what must be the same on all of them, as lines of text. */
#include "base/error.h"
#include "base/memory.h"
#include "exchange/state.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How much of a line a sentence shows. */
#define MOST_SHOWN 120

/* Lines that each end with a line feed and hold nothing that a terminal would act on. */
static bool is_lines(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 32 && c != '\n') || c == 127)
            return false;
    }
    return n_bytes == 0 || text[n_bytes - 1] == '\n';
}

/* Names, sizes, and what else of tensors changes frames. */
static uint64_t hash_tensors(const gw_tensor *tensors, uint32_t n)
{
    uint64_t hash = 0;
    for (uint32_t t = 0; t < n; t++) {
        uint8_t bytes[9 + GW_MAX_NAME] = {tensors[t].last_layer};
        const char *name = tensors[t].name ? tensors[t].name : "";
        gw_put64(bytes + 1, tensors[t].n_elems);
        memcpy(bytes + 9, name, strlen(name)); /* its encoder stands, so it is short enough */
        hash = gw_hash_now()->whole(bytes, sizeof bytes, hash);
    }
    return hash;
}

static uint64_t hash_groups(const struct gw_exchange *ex)
{
    uint64_t hash = 0;
    for (uint32_t t = 0; t < ex->n_tensors; t++) {
        uint8_t bytes[4];
        gw_put32(bytes, ex->tensors[t].group);
        hash = gw_hash_now()->whole(bytes, sizeof bytes, hash);
    }
    return hash;
}

static uint64_t hash_machines(const struct gw_exchange *ex)
{
    uint64_t hash = 0;
    for (uint32_t r = 0; r < ex->link.size; r++) {
        uint8_t bytes[4];
        gw_put32(bytes, ex->machine_of[r].first); /* whatever their numbers are */
        hash = gw_hash_now()->whole(bytes, sizeof bytes, hash);
    }
    return hash;
}

gw_status gw_hello_init(struct gw_exchange *ex, const gw_exchange_options *o)
{
    char own[HELLO_MOST];
    uint64_t n_elems = 0;
    for (uint32_t t = 0; t < ex->n_tensors; t++)
        n_elems += ex->tensors[t].n_elems;
    const char *identity = o->identity ? o->identity : "";
    size_t length = strlen(identity);
    const char *end = length > 0 && identity[length - 1] != '\n' ? "\n" : "";
    int n = snprintf(own, sizeof own,
                     "codec = %s\n"
                     "seed = %" PRIu64 "\n"
                     "tensors = %u\n"
                     "elements = %" PRIu64 "\n"
                     "names and sizes = %016" PRIx64 "\n"
                     "groups = %u\n"
                     "tensors of groups = %016" PRIx64 "\n"
                     "ranks of machines = %016" PRIx64 "\n"
                     "%s%s",
                     gw_codec_canonical(ex->codec), ex->seed, ex->n_tensors, n_elems, hash_tensors(o->tensors, o->n_tensors),
                     ex->n_groups, hash_groups(ex), hash_machines(ex), identity, end);
    if (n < 0 || (size_t)n >= sizeof own)
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_options.identity takes %zu bytes; at most about %d are possible", length,
                       HELLO_MOST - 512);
    if (!is_lines(own, (size_t)n))
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_options.identity must be lines of text, without other control characters");
    ex->hello = gw_strdup(ex->context, own);
    ex->have_hello = gw_calloc(ex->context, ex->link.size, sizeof *ex->have_hello);
    return ex->hello && ex->have_hello ? GW_OK : GW_ERR_MEMORY;
}

/* Takes a line off the front of a text, without its line feed. */
static bool next_line(const char **text, size_t *n_bytes, const char **line, int *length)
{
    const char *end = *n_bytes ? memchr(*text, '\n', *n_bytes) : NULL;
    *line = "nothing in its place";
    *length = (int)strlen(*line);
    if (!end)
        return false;
    *line = *text;
    *length = (int)(end - *text);
    *n_bytes -= (size_t)(end + 1 - *text);
    *text = end + 1;
    return true;
}

static int shown(int length)
{
    return length < MOST_SHOWN ? length : MOST_SHOWN;
}

gw_status gw_hello_check(struct gw_exchange *ex, const gw_message *message)
{
    uint32_t from = message->from;
    struct message_header h = message_header_read(message->bytes);
    if (h.nth_step != MESSAGE_VERSION)
        return gw_fail(GW_ERR_ARGUMENT, "rank %u has messages of version %u, and this rank of version %d; all members must have the same",
                       from, h.nth_step, MESSAGE_VERSION);
    const char *theirs = message_body(message->bytes), *ours = ex->hello;
    size_t n_theirs = message->n_bytes - MESSAGE_HEADER, n_ours = strlen(ours);
    if (h.flags || h.group || h.run || h.step || n_theirs >= HELLO_MOST || !is_lines(theirs, n_theirs))
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u's first message, of %zu bytes, is not lines of text, %d bytes at most", from,
                       message->n_bytes, HELLO_MOST);
    if (from == ex->link.rank || ex->have_hello[from])
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent its first message out of turn", from);
    for (;;) {
        const char *their, *our;
        int their_length, our_length;
        bool more = next_line(&theirs, &n_theirs, &their, &their_length);
        more |= next_line(&ours, &n_ours, &our, &our_length);
        if (!more)
            break;
        if (their_length != our_length || memcmp(their, our, (size_t)our_length))
            return gw_fail(GW_ERR_ARGUMENT, "rank %u has %.*s, and this rank %.*s; all members must have the same", from,
                           shown(their_length), their, shown(our_length), our);
    }
    ex->have_hello[from] = true;
    ex->n_hellos++;
    return GW_OK;
}
