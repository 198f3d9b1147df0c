/* Writes and compares the first message of every member to every other: what must be the same on all of them, as lines
 * of text. */
#include "base/error.h"
#include "base/lines.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "exchange/state.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A hash of the names and sizes of all tensors, and of what else changes frames. */
static uint64_t hash_tensors(const gw_tensor *tensors, uint32_t n)
{
    uint64_t hash = 0;
    for (uint32_t t = 0; t < n; t++) {
        uint8_t bytes[9] = {tensors[t].last_layer};
        const char *name = tensors[t].name ? tensors[t].name : "";
        gw_put64(bytes + 1, tensors[t].n_elems);
        hash = gw_hash_now()->whole(bytes, sizeof bytes, hash);
        hash = gw_hash_now()->whole(name, strlen(name), hash);
    }
    return hash;
}

static uint64_t hash_number(uint32_t number, uint64_t hash)
{
    uint8_t bytes[4];
    gw_put32(bytes, number);
    return gw_hash_now()->whole(bytes, sizeof bytes, hash);
}

gw_status gw_hello_init(struct gw_exchange *ex, const gw_exchange_options *o)
{
    char own[HELLO_MOST];
    uint64_t n_elems = 0, groups = 0, machines = 0;
    for (uint32_t t = 0; t < ex->n_tensors; t++) {
        n_elems += ex->tensors[t].n_elems;
        groups = hash_number(ex->tensors[t].group, groups);
    }
    /* Ranks on the same machine get the same number, whatever the options' is. */
    for (uint32_t r = 0; r < ex->size; r++)
        machines = hash_number(ex->machine_of[r].first, machines);
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
                     "first owner = %u\n"
                     "%s%s%s%s%s",
                     gw_codec_traits_of(ex->codec).canonical, ex->seed, ex->n_tensors, n_elems,
                     hash_tensors(o->tensors, o->n_tensors), ex->n_groups, groups, machines, ex->turn,
                     ex->optimizer ? "server optimizer = " : "", ex->optimizer ? ex->optimizer : "",
                     ex->optimizer ? "\n" : "", identity, end);
    if (n < 0 || (size_t)n >= sizeof own)
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_options.identity takes %zu bytes; at most about %d are possible",
                       length, HELLO_MOST - GW_OPTION_TEXT_BYTES - 1024);
    if (!gw_lines_are_good(own, (size_t)n))
        return gw_fail(GW_ERR_ARGUMENT,
                       "gw_exchange_options.identity must be lines of text, without other control characters");
    if (!gw_lines_have_names(own, (size_t)n))
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_options.identity has a line without \"=\"; right is name = value");
    ex->hello = gw_strdup(ex->context, own);
    ex->members = gw_calloc(ex->context, ex->size, sizeof *ex->members);
    return ex->hello && ex->members ? GW_OK : GW_ERR_MEMORY;
}

gw_status gw_hello_check(struct gw_exchange *ex, const gw_message *message)
{
    uint32_t from = message->from;
    struct message_header h = message_header_read(message->bytes);
    if (h.nth_step != MESSAGE_VERSION)
        return gw_fail(
            GW_ERR_ARGUMENT,
            "rank %u has messages of version %u, and this rank of version %d; all members must have the same", from,
            h.nth_step, MESSAGE_VERSION);
    const char *theirs = message_body(message->bytes), *ours = ex->hello;
    size_t n_theirs = message->n_bytes - MESSAGE_HEADER;
    if (h.flags || h.group || h.run || h.step || n_theirs >= HELLO_MOST || !gw_lines_are_good(theirs, n_theirs))
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "rank %u's first message, of %zu bytes, is not lines of text, %d bytes at most", from,
                       message->n_bytes, HELLO_MOST);
    if (from == ex->rank || ex->members[from].said_hello)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent its first message out of turn", from);
    struct gw_lines_difference difference;
    if (gw_lines_differ(theirs, n_theirs, ours, strlen(ours), &difference))
        return gw_fail(GW_ERR_ARGUMENT, "rank %u has %s, and this rank %s; all members must have the same", from,
                       difference.first, difference.second);
    ex->members[from].said_hello = true;
    ex->members[from].left = false; /* it may have left an earlier exchange on this link */
    ex->n_hellos++;
    return GW_OK;
}
