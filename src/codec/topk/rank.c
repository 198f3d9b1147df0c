/* Finds the k-th largest magnitude of a list of tensors exactly, in linear time. It also guesses that magnitude from a
 * sample, which saves passes over long tensors. */
#include "codec/topk/rank.h"
#include "base/memory.h"
#include "base/scratch.h"
#include "base/threads.h"
#include "wire/frame.h"

#include <math.h>

/* ---- lists ------------------------------------------------------------------------------------------- */

gw_status gw_select_list_init(gw_context *context, const struct gw_select_part *parts, uint32_t n_parts,
                              struct gw_select_list *list)
{
    *list = (struct gw_select_list){.parts = parts, .n_parts = n_parts};
    if (n_parts > 1) {
        list->first_chunk = gw_alloc(context, (size_t)n_parts + 1, sizeof *list->first_chunk);
        if (!list->first_chunk)
            return GW_ERR_MEMORY;
    }
    for (uint32_t p = 0; p < n_parts; p++) {
        if (list->first_chunk)
            list->first_chunk[p] = list->n_chunks;
        list->n += parts[p].n;
        list->n_chunks += gw_div_up(parts[p].n, GW_CHUNK);
    }
    if (list->first_chunk)
        list->first_chunk[n_parts] = list->n_chunks;
    return GW_OK;
}

void gw_select_list_fini(gw_context *context, struct gw_select_list *list)
{
    gw_free(context, list->first_chunk);
}

struct gw_select_chunk gw_select_list_chunk(const struct gw_select_list *list, uint64_t i)
{
    uint32_t low = 0, end = list->n_parts; /* the last part that begins at chunk i or before it; it is never an empty
                                            * one */
    while (end - low > 1) {
        uint32_t middle = low + (end - low) / 2;
        if (list->first_chunk[middle] <= i)
            low = middle;
        else
            end = middle;
    }
    uint64_t begin = (i - (list->first_chunk ? list->first_chunk[low] : 0)) * GW_CHUNK,
             left = list->parts[low].n - begin;
    return (struct gw_select_chunk){low, begin, left < GW_CHUNK ? left : GW_CHUNK};
}

uint32_t gw_select_list_slots(gw_context *context, const struct gw_select_list *list)
{
    return list->n_chunks < 2 ? 1 : gw_thread_count(context);
}

/* ---- the k-th largest -------------------------------------------------------------------------------- */

/* |a| as bits. */
static inline uint32_t bits_of(const struct gw_select_part *part, uint64_t i)
{
    float a = part->g[i];
    if (part->residual) {
        const bool sent = part->sent[i / 64] >> (i % 64) & 1;
        a += sent ? gw_select_left(part->value, part->over, part->residual[i]) : part->residual[i];
    }
    return gw_float_bits(a) & 0x7FFFFFFFu;
}

/* Finds the k-th largest of n numbers from `low` to `high`, in linear time. It overwrites x. *k becomes the count of
 * those among the k that are equal to it. */
static uint32_t kth_largest(uint32_t *x, uint64_t n, uint64_t *k, uint32_t low, uint32_t high)
{
    uint32_t bins[2048];
    while (low < high) {
        unsigned n_bins = 16, shift = 0;
        while (n_bins < 2048 && n_bins < n)
            n_bins *= 2;
        while ((high - low) >> shift >= n_bins)
            shift++;
        memset(bins, 0, n_bins * sizeof *bins);
        for (uint64_t i = 0; i < n; i++)
            bins[(x[i] - low) >> shift]++;
        uint32_t bin = n_bins - 1;
        for (; bins[bin] < *k; bin--)
            *k -= bins[bin];
        uint64_t n_left = 0;
        for (uint64_t i = 0; i < n; i++) {
            x[n_left] = x[i];
            n_left += (x[i] - low) >> shift == bin;
        }
        n = n_left;
        low += bin << shift;
        high = low + ((1u << shift) - 1);
    }
    return low;
}

/* Up to this length the search works on a copy of the list. */
#define SMALL 65536u

static gw_status find_small(gw_context *context, const struct gw_select_list *list, uint64_t *k, uint32_t low,
                            uint32_t high, uint32_t *bits)
{
    uint32_t *x = gw_scratch_take(context, (size_t)list->n, sizeof *x);
    if (!x)
        return GW_ERR_MEMORY;
    uint64_t n = 0;
    for (uint32_t p = 0; p < list->n_parts; p++)
        for (uint64_t i = 0; i < list->parts[p].n; i++)
            x[n++] = bits_of(&list->parts[p], i);
    *bits = kth_largest(x, n, k, low, high);
    gw_scratch_give(context, x);
    return GW_OK;
}

/* A histogram of the magnitudes from `low` to `high`. Each thread has one. */
#define N_BINS 8192u
struct histogram {
    const struct gw_select_list *list;
    uint32_t low, high;
    unsigned shift;
    uint64_t *bins; /* N_BINS of each slot */
};

static void count_chunk(uint64_t i, uint32_t slot, void *user)
{
    const struct histogram *h = user;
    struct gw_select_chunk chunk = gw_select_list_chunk(h->list, i);
    const struct gw_select_part *part = &h->list->parts[chunk.part];
    uint64_t *bins = h->bins + (size_t)slot * N_BINS;
    uint32_t width = h->high - h->low;
    for (uint64_t e = chunk.begin; e < chunk.begin + chunk.n; e++) {
        uint32_t at = bits_of(part, e) - h->low;
        if (at <= width)
            bins[at >> h->shift]++;
    }
}

gw_status gw_rank_find(gw_context *context, const struct gw_select_list *list, uint64_t *k, uint32_t low, uint32_t high,
                       uint32_t *bits)
{
    if (list->n <= SMALL)
        return find_small(context, list, k, low, high, bits);
    uint32_t n_slots = gw_select_list_slots(context, list);
    struct histogram h = {.list = list, .low = low, .high = high};
    h.bins = gw_scratch_take(context, (size_t)n_slots * N_BINS, sizeof *h.bins);
    if (!h.bins)
        return GW_ERR_MEMORY;
    /* Each round takes the bin that holds the k-th largest. k then loses the elements above that bin, and `low` and
     * `high` become the bin's ends. The rounds end when a bin is one value wide. */
    while (h.low < h.high) {
        h.shift = 0;
        while ((h.high - h.low) >> h.shift >= N_BINS)
            h.shift++;
        memset(h.bins, 0, (size_t)n_slots * N_BINS * sizeof *h.bins);
        gw_parallel_for(context, list->n_chunks, count_chunk, &h);
        for (uint32_t slot = 1; slot < n_slots; slot++)
            for (uint32_t bin = 0; bin < N_BINS; bin++)
                h.bins[bin] += h.bins[slot * (size_t)N_BINS + bin];
        uint32_t bin = N_BINS - 1;
        for (; h.bins[bin] < *k; bin--)
            *k -= h.bins[bin];
        h.low += bin << h.shift;
        h.high = h.low + ((1u << h.shift) - 1);
    }
    *bits = h.low;
    gw_scratch_give(context, h.bins);
    return GW_OK;
}

/* ---- a guess ----------------------------------------------------------------------------------------- */

#define LEAST_SAMPLE 4096u
#define MOST_SAMPLE 65536u

uint64_t gw_rank_sample_size(uint64_t n)
{
    return n / 256 < LEAST_SAMPLE ? LEAST_SAMPLE : n / 256 > MOST_SAMPLE ? MOST_SAMPLE : n / 256;
}

uint64_t gw_rank_sample_place(uint64_t n, uint64_t s)
{
    /* The place is anywhere in the s-th of runs of equal length. So a sample follows no period of the tensor. */
    uint64_t run = n / gw_rank_sample_size(n), mixed = (s + 1) * 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9u;
    return s * run + (uint64_t)((unsigned __int128)mixed * run >> 64);
}

/* Every element of a sample comes from memory. So many are asked for before they are needed. */
#define AHEAD 24u

static void ask_for(const struct gw_select_part *part, uint64_t i)
{
    if (i >= part->n)
        return;
    __builtin_prefetch(part->g + i);
    if (part->residual) {
        __builtin_prefetch(part->residual + i);
        __builtin_prefetch(part->sent + i / 64);
    }
}

gw_status gw_rank_guess(gw_context *context, const struct gw_select_list *list, uint64_t k, uint32_t *bits,
                        uint64_t *most)
{
    *most = k;
    if (list->n <= LEAST_SAMPLE)
        return gw_rank_find(context, list, &k, 0, 0x7FFFFFFFu, bits);
    uint64_t n_sample = gw_rank_sample_size(list->n);
    /* The k-th largest of the list is expected at place `expected` of the sorted sample. j is four standard deviations
     * beyond that place, so the j-th largest of the sample is hardly ever above the k-th of the list. *most is how many
     * elements of the list may be above the j-th of the sample, with six deviations to spare. */
    double expected = (double)k / (double)list->n * (double)n_sample, j = ceil(expected + 4 * sqrt(expected) + 8);
    double above = (j + 6 * sqrt(j) + 16) / (double)n_sample * (double)list->n;
    *most = above < (double)list->n ? (uint64_t)above : list->n;
    *most = *most < k ? k : *most;
    *bits = 0;
    if (j >= n_sample)
        return GW_OK;

    float *sample = gw_scratch_take(context, n_sample, sizeof *sample);
    if (!sample)
        return GW_ERR_MEMORY;
    uint64_t base = 0; /* where part p begins in the list */
    for (uint64_t s = 0, p = 0; s < n_sample; s++) {
        uint64_t at = gw_rank_sample_place(list->n, s);
        for (; at - base >= list->parts[p].n; p++)
            base += list->parts[p].n;
        ask_for(&list->parts[p], gw_rank_sample_place(list->n, s + AHEAD) - base);
        sample[s] = gw_bits_float(bits_of(&list->parts[p], at - base));
    }
    const struct gw_select_part part = {.g = sample, .n = n_sample};
    struct gw_select_list of_sample;
    uint64_t place = (uint64_t)j;
    gw_status status = gw_select_list_init(context, &part, 1, &of_sample);
    if (status == GW_OK)
        status = gw_rank_find(context, &of_sample, &place, 0, 0x7FFFFFFFu, bits);
    gw_scratch_give(context, sample);
    return status;
}
