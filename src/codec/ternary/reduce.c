/* Ternary frames after the wire: checks, decoding, counting, and the owner's sum. With shared scalers S is the sum of
 * the ternary values in integers, and the average is S * (s/N). */
#include "base/error.h"
#include "base/memory.h"
#include "base/scratch.h"
#include "base/threads.h"
#include "codec/ternary/ternary.h"
#include "wire/bytes.h"
#include "wire/hash.h"

/* A decoded tensor of more elements stays in no cache. So stores go around the cache. */
#define STREAM_ELEMENTS (4u << 20)

/* If more than one thread works, so many chunks are added up in parallel before they are joined. */
#define WAVE 64

/* The size of a chunk of n elements whose code has no table. */
static size_t fixed_size(const struct gw_frame *frame, uint32_t n)
{
    if (!(frame->flags & GW_FLAG_AVERAGE))
        return ternary_plain_bytes(frame->code, n, 0);
    const struct ternary_sums sums = ternary_sums_of(frame->workers);
    return ternary_packed_size(&sums, n);
}

static bool code_is_legal(uint32_t code, const struct gw_frame *frame)
{
    if (!(frame->flags & GW_FLAG_AVERAGE))
        return code <= CODE_MASK || code == CODE_RANS;
    return code == CODE_PACKED || (code == CODE_RANS && frame->workers <= LEVELS_MAX_WORKERS);
}

gw_status ternary_check_frame(const struct gw_frame *frame)
{
    bool average = frame->flags & GW_FLAG_AVERAGE;
    if (!code_is_legal(frame->code, frame) && (frame->code != CODE_MIXED || n_chunks_of(frame) < 2))
        return gw_fail(GW_ERR_FRAME_FIELD, "%s frame has code %s, which is not for it",
                       average ? "an average" : "a push", ternary_code_names[frame->code]);
    if (average && frame->flags & GW_FLAG_PRIVATE)
        return gw_fail(GW_ERR_FRAME_FIELD, "an average frame cannot hold a worker's own scalers");
    uint64_t n_chunks = n_chunks_of(frame), total = 0;
    if (ternary_has_table(frame->code, n_chunks)) {
        if (frame->payload_bytes / ENTRY_BYTES < n_chunks)
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "the payload has %zu bytes; the sizes of %llu chunks alone take more",
                           frame->payload_bytes, (unsigned long long)n_chunks);
        total = ENTRY_BYTES * n_chunks;
        for (uint64_t c = 0; c < n_chunks; c++) {
            uint32_t entry = ternary_get_entry(frame->payload, c);
            if (frame->code == CODE_MIXED ? !code_is_legal(ENTRY_CODE(entry), frame) : ENTRY_CODE(entry) != 0)
                return gw_fail(GW_ERR_FRAME_PAYLOAD, "chunk %llu has code %u, which is not for it",
                               (unsigned long long)c, ENTRY_CODE(entry));
            total += ENTRY_SIZE(entry);
        }
        /* the function that reads the single chunk finds out */
    } else if (n_chunks && ternary_sizes_differ(frame->code)) {
        total = frame->payload_bytes;
    } else if (n_chunks) {
        total = (n_chunks - 1) * fixed_size(frame, GW_CHUNK) + fixed_size(frame, chunk_elems(frame, n_chunks - 1));
    }
    if (total != frame->payload_bytes)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "the payload has %zu bytes; its chunks take %llu", frame->payload_bytes,
                       (unsigned long long)total);
    return GW_OK;
}

/* ---- where chunks stand ---------------------------------------------------------------------- */

/* The offsets of the chunks in the payload: n_chunks + 1 of them. NULL: there is no memory. */
static size_t *chunk_offsets(gw_context *context, const struct gw_frame *frame)
{
    uint64_t n_chunks = n_chunks_of(frame);
    size_t *offsets = gw_alloc(context, n_chunks + 1, sizeof *offsets);
    if (!offsets)
        return NULL;
    const bool table = ternary_has_table(frame->code, n_chunks);
    offsets[0] = table ? ENTRY_BYTES * n_chunks : 0;
    for (uint64_t c = 0; c < n_chunks; c++) {
        size_t bytes = table                               ? ENTRY_SIZE(ternary_get_entry(frame->payload, c))
                       : ternary_sizes_differ(frame->code) ? frame->payload_bytes
                                                           : fixed_size(frame, chunk_elems(frame, c));
        offsets[c + 1] = offsets[c] + bytes;
    }
    return offsets;
}

/* ---- decode and count ------------------------------------------------------------------------ */

/* The memory that one thread works in. */
struct slot {
    struct ternary_bits *bits;          /* reduce: of GW_ADD_FRAMES frames; else of GW_RANS_TOGETHER chunks */
    struct ternary_sum_scratch scratch; /* for averages */
    struct ternary_sum_scratch added;   /* reduce: for averages that are added up */
    float *values;                      /* see take_values */
};

/* A loop over chunks on the context's threads. */
struct job {
    gw_context *context;
    const struct gw_frame *frame; /* the pushes, or the one frame */
    uint32_t n_frames;
    size_t **offsets;         /* of each frame */
    struct ternary_sums sums; /* of an average */
    struct slot *slots;
    uint32_t n_slots;
    float *out; /* decode; private scalers' sums */
    /* reduce */
    enum ternary_code code; /* of the average */
    uint32_t n_pushes;      /* how many frames are pushes; averages come after them */
    uint64_t first;         /* the chunk that a wave begins with */
    uint32_t entries[WAVE];
    uint8_t *to, *wave; /* chunk first + i goes to: to + i * stride. wave: a wave's bytes */
    size_t stride;
    /* On one thread: a hash of each frame, and last that of the average. They are taken while chunks pass by. Else
     * NULL. */
    struct gw_hash_state *hashes;
};

/* Chunk c of frame r. */
static struct ternary_piece piece_of(const struct job *job, uint32_t r, uint64_t c)
{
    const struct gw_frame *frame = &job->frame[r];
    const size_t *at = job->offsets[r] + c;
    const enum ternary_code code =
        frame->code == CODE_MIXED ? ENTRY_CODE(ternary_get_entry(frame->payload, c)) : frame->code;
    return (struct ternary_piece){code, frame->payload + at[0], at[1] - at[0], chunk_elems(frame, c)};
}

static void job_fini(struct job *job)
{
    for (uint32_t i = 0; job->slots && i < job->n_slots; i++) {
        struct slot *slot = &job->slots[i];
        gw_scratch_give(job->context, slot->bits);
        gw_scratch_give(job->context, slot->values);
        ternary_sum_scratch_fini(job->context, &slot->scratch);
        ternary_sum_scratch_fini(job->context, &slot->added);
    }
    gw_free(job->context, job->slots);
    for (uint32_t i = 0; job->offsets && i < job->n_frames; i++)
        gw_free(job->context, job->offsets[i]);
    gw_free(job->context, job->offsets);
    gw_scratch_give(job->context, job->wave);
    gw_free(job->context, job->hashes);
}

/* Finds the offsets of all frames, and takes slots with bitmaps. */
static gw_status job_init(struct job *job, gw_context *context, const struct gw_frame *frames, uint32_t n_frames)
{
    *job = (struct job){.context = context, .frame = frames, .n_frames = n_frames};
    uint64_t n_chunks = n_chunks_of(frames);
    uint32_t threads = gw_thread_count(context), n_bits = n_frames < GW_ADD_FRAMES ? n_frames : GW_ADD_FRAMES;
    if (n_bits < n_chunks && n_bits < GW_RANS_TOGETHER)
        n_bits = n_chunks < GW_RANS_TOGETHER ? (uint32_t)n_chunks : GW_RANS_TOGETHER;
    job->n_slots = n_chunks > 1 ? threads : 1;
    job->slots = gw_calloc(context, job->n_slots, sizeof *job->slots);
    job->offsets = gw_calloc(context, n_frames, sizeof *job->offsets);
    if (!job->slots || !job->offsets)
        return GW_ERR_MEMORY;
    for (uint32_t i = 0; i < n_frames; i++) {
        job->offsets[i] = chunk_offsets(context, &frames[i]);
        if (!job->offsets[i])
            return GW_ERR_MEMORY;
    }
    for (uint32_t i = 0; i < job->n_slots; i++) {
        job->slots[i].bits = gw_scratch_take(context, n_bits, sizeof *job->slots[i].bits);
        if (!job->slots[i].bits)
            return GW_ERR_MEMORY;
    }
    return GW_OK;
}

static gw_status job_scratch(struct job *job, uint32_t workers)
{
    job->sums = ternary_sums_of(workers);
    for (uint32_t i = 0; i < job->n_slots; i++)
        GW_TRY(ternary_sum_scratch_init(job->context, &job->sums, job->frame->count, &job->slots[i].scratch));
    return GW_OK;
}

/* Takes `n_chunks` chunks of floats for each slot. */
static gw_status take_values(struct job *job, uint32_t n_chunks)
{
    for (uint32_t i = 0; i < job->n_slots; i++) {
        job->slots[i].values = gw_scratch_take(job->context, (size_t)n_chunks * GW_CHUNK, sizeof(float));
        if (!job->slots[i].values)
            return GW_ERR_MEMORY;
    }
    return GW_OK;
}

static float scaler_at(const struct gw_frame *frame, uint64_t i)
{
    return gw_get_float(frame->scalers + 4 * (frame->bucket ? i / frame->bucket : 0));
}

/* Where the run of one scaler ends that holds element i of the chunk of n elements that begins at element `base`. */
static uint64_t run_end(const struct gw_frame *frame, uint64_t base, uint64_t i, uint64_t n)
{
    const uint64_t left = frame->bucket ? frame->bucket - (base + i) % frame->bucket : n;
    return left < n - i ? i + left : n;
}

/* Makes floats of the bitmaps of the chunk that begins at element `base` of the slice. */
static void expand_chunk(const struct gw_frame *frame, const struct ternary_bits *bits, uint64_t base, uint32_t n,
                         bool stream, float *out)
{
    const struct gw_kernels *kernels = gw_kernels_now();
    if (!frame->bucket || frame->bucket % 64 == 0) {
        for (uint64_t i = 0; i < n;) {
            const uint64_t stop = run_end(frame, base, i, n);
            kernels->expand(bits->nonzero + i / 64, bits->sign + i / 64, stop - i, scaler_at(frame, base + i), stream,
                            out + i);
            i = stop;
        }
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        out[i] = gw_expand_element(bits->nonzero, bits->sign, i, scaler_at(frame, base + i));
}

/* Decodes as many chunks as are unpacked at a time. */
static gw_status decode_pushes(uint64_t i, uint32_t index, void *user)
{
    struct job *job = user;
    const struct gw_frame *frame = job->frame;
    struct ternary_bits *bits = job->slots[index].bits;
    const uint64_t first = i * GW_RANS_TOGETHER, left = n_chunks_of(frame) - first;
    const uint32_t n = left < GW_RANS_TOGETHER ? (uint32_t)left : GW_RANS_TOGETHER;
    struct ternary_piece pieces[GW_RANS_TOGETHER] = {{0}};
    for (uint32_t k = 0; k < n; k++)
        pieces[k] = piece_of(job, 0, first + k);
    GW_TRY(ternary_push_unpack_many(pieces, n, bits, NULL));
    for (uint32_t k = 0; k < n; k++)
        expand_chunk(frame, &bits[k], (first + k) * GW_CHUNK, chunk_elems(frame, first + k),
                     frame->count >= STREAM_ELEMENTS, job->out + (first + k) * GW_CHUNK);
    return GW_OK;
}

/* The decoded value is S * (s/N). s/N is rounded once. */
static float quantum(const struct gw_frame *frame, uint64_t i)
{
    return scaler_at(frame, i) / (float)frame->workers;
}

static gw_status decode_average(uint64_t c, uint32_t index, void *user)
{
    struct job *job = user;
    const struct gw_frame *frame = job->frame;
    const struct ternary_piece piece = piece_of(job, 0, c);
    const uint64_t base = c * GW_CHUNK;
    float *out = job->out + base;
    const bool one = !frame->bucket; /* one scaler; else the sums at first come as they are */
    GW_TRY(ternary_sum_decode(&job->sums, &piece, &job->slots[index].scratch, one ? quantum(frame, 0) : 1,
                              one && frame->count >= STREAM_ELEMENTS, out));
    for (uint64_t i = 0; !one && i < piece.n;) {
        const float q = quantum(frame, base + i);
        for (uint64_t stop = run_end(frame, base, i, piece.n); i < stop; i++)
            out[i] *= q;
    }
    return GW_OK;
}

gw_status ternary_decode(gw_context *context, const struct gw_frame *frame, float *out)
{
    struct job job;
    bool average = frame->flags & GW_FLAG_AVERAGE;
    gw_status status = job_init(&job, context, frame, 1);
    if (status == GW_OK && average)
        status = job_scratch(&job, frame->workers);
    job.out = out;
    if (status == GW_OK)
        status = average ? gw_parallel_try(job.context, n_chunks_of(frame), decode_average, &job)
                         : gw_parallel_try(job.context, gw_div_up(n_chunks_of(frame), GW_RANS_TOGETHER), decode_pushes,
                                           &job);
    job_fini(&job);
    return status;
}

gw_status ternary_symbols(gw_context *context, const struct gw_frame *frame, uint64_t *counts)
{
    struct job job;
    bool average = frame->flags & GW_FLAG_AVERAGE;
    gw_status status = job_init(&job, context, frame, 1);
    if (status == GW_OK && average)
        status = job_scratch(&job, frame->workers);
    if (status == GW_OK && average)
        status = take_values(&job, 1);
    struct slot *slot = status == GW_OK ? &job.slots[0] : NULL;
    for (uint64_t c = 0; c < n_chunks_of(frame) && status == GW_OK; c++) {
        const struct ternary_piece piece = piece_of(&job, 0, c);
        const uint32_t n = piece.n;
        if (average) {
            status = ternary_sum_decode(&job.sums, &piece, &slot->scratch, 1, false, slot->values);
            for (uint32_t i = 0; i < n && status == GW_OK; i++)
                counts[(int32_t)frame->workers + (int32_t)slot->values[i]]++;
        } else {
            status = ternary_push_unpack(&piece, slot->bits, NULL);
            if (status == GW_OK) {
                uint32_t nonzero = ternary_count(slot->bits->nonzero, n), negative = ternary_count(slot->bits->sign, n);
                counts[0] += negative;
                counts[1] += n - nonzero;
                counts[2] += nonzero - negative;
            }
        }
    }
    job_fini(&job);
    return status;
}

/* ---- the owner's sum ------------------------------------------------------------------------- */

const char *ternary_disagreement(const struct gw_frame *a, const struct gw_frame *b)
{
    return (a->flags ^ b->flags) & GW_FLAG_PRIVATE ? "one has a shared scaler, the other its own" : NULL;
}

size_t ternary_reduce_bound(const struct gw_frame *first, uint32_t workers)
{
    if (first->flags & GW_FLAG_PRIVATE)
        return GW_HEADER_BYTES + 4 * (size_t)first->count;
    struct ternary_sums sums = ternary_sums_of(workers);
    uint64_t n_chunks = n_chunks_of(first);
    size_t bytes = gw_frame_head_bytes(first->n_scalers) + ENTRY_BYTES * n_chunks;
    if (n_chunks)
        bytes += (n_chunks - 1) * ternary_packed_size(&sums, GW_CHUNK) +
                 ternary_packed_size(&sums, chunk_elems(first, n_chunks - 1));
    return bytes;
}

/* A checksum is one more pass over bytes in memory. On one thread, reduce hashes chunks in order just before it unpacks
 * them, and those of the average just after it packs them. With several threads it verifies the frames beforehand. */
static gw_status hashes_init(struct job *job)
{
    if (job->n_slots > 1) {
        for (uint32_t r = 0; r < job->n_frames; r++)
            GW_TRY(job->frame[r].unverified ? gw_frame_verify(&job->frame[r]) : GW_OK);
        return GW_OK;
    }
    job->hashes = gw_alloc(job->context, (size_t)job->n_frames + 1, sizeof *job->hashes);
    if (!job->hashes)
        return GW_ERR_MEMORY;
    for (uint32_t r = 0; r <= job->n_frames; r++)
        gw_hash_now()->begin(&job->hashes[r], GW_BODY_SEED);
    for (uint32_t r = 0; r < job->n_frames; r++) {
        const struct gw_frame *frame = &job->frame[r];
        gw_hash_now()->add(&job->hashes[r], frame->scalers,
                           (size_t)(frame->payload - frame->scalers) + job->offsets[r][0]);
    }
    return GW_OK;
}

static void hash_chunk(struct job *job, uint32_t r, uint64_t c)
{
    const size_t *at = job->offsets[r] + c;
    if (job->hashes)
        gw_hash_now()->add(&job->hashes[r], job->frame[r].payload + at[0], at[1] - at[0]);
}

static void hash_average(struct job *job, const void *bytes, size_t n_bytes)
{
    if (job->hashes)
        gw_hash_now()->add(&job->hashes[job->n_frames], bytes, n_bytes);
}

/* Compares the checksums of all frames. Every chunk must have been hashed. */
static gw_status hashes_compare(struct job *job)
{
    for (uint32_t r = 0; r < job->n_frames && job->hashes; r++)
        GW_TRY(gw_frame_compare(&job->frame[r], gw_hash_now()->end(&job->hashes[r])));
    return GW_OK;
}

/* For private scalers. The floats are added in rank order, divided by N once, and sent as float32. */
static gw_status add_private(uint64_t c, uint32_t index, void *user)
{
    struct job *job = user;
    struct slot *slot = &job->slots[index];
    uint32_t n = chunk_elems(job->frame, c);
    float *sum = slot->values, *one = slot->values + GW_CHUNK;
    for (uint32_t r = 0; r < job->n_frames; r++) {
        hash_chunk(job, r, c);
        const struct ternary_piece piece = piece_of(job, r, c);
        GW_TRY(ternary_push_unpack(&piece, slot->bits, NULL));
        expand_chunk(&job->frame[r], slot->bits, c * GW_CHUNK, n, false, r ? one : sum);
        /* Zeros are added, too. x + 0 is x, and a sum of -0 and 0 is the same 0 on every machine. */
        for (uint32_t i = 0; r && i < n; i++)
            sum[i] += one[i];
    }
    for (uint32_t i = 0; i < n; i++)
        sum[i] /= (float)job->n_frames;
    memcpy(job->to + 4 * c * GW_CHUNK, sum, 4 * (size_t)n);
    hash_average(job, sum, 4 * (size_t)n);
    return GW_OK;
}

/* A table of chunks stands before the chunks, but it is known only after them. So a frame with a table is hashed at the
 * end. */
static void seal(struct job *job, uint8_t *dst, struct gw_frame *average, bool table)
{
    if (job->hashes && !table)
        gw_frame_seal_with(dst, average, gw_hash_now()->end(&job->hashes[job->n_frames]));
    else
        gw_frame_seal(dst, average);
}

static gw_status reduce_private(struct job *job, uint8_t *payload, struct gw_frame *average)
{
    GW_TRY(take_values(job, 2));
    average->codec = GW_WIRE_NONE;
    average->bucket = 0;
    average->n_scalers = 0;
    average->payload_bytes = 4 * (size_t)average->count;
    job->to = payload;
    GW_TRY(gw_parallel_try(job->context, n_chunks_of(job->frame), add_private, job));
    seal(job, payload - GW_HEADER_BYTES, average, false);
    return GW_OK;
}

/* Pushes are read in turn, a chunk at a time. Such a run is too short for the processor's own prefetcher. So this asks
 * for the next chunk while the present one is added. */
static void ask_for_next(const struct job *job, uint32_t r, uint64_t c)
{
    if (++r == job->n_frames) {
        r = 0;
        c++;
    }
    if (c >= n_chunks_of(job->frame))
        return;
    for (size_t at = job->offsets[r][c]; at < job->offsets[r][c + 1]; at += 64)
        __builtin_prefetch(job->frame[r].payload + at, 0, 2);
}

/* Makes bit planes of the digits of 64 sums. */
static void sums_to_planes(const float *values, const struct ternary_sums *sums, uint64_t *planes)
{
    memset(planes, 0, sums->n_planes * sizeof *planes);
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t digit = (uint32_t)((int32_t)values[i] + (int32_t)sums->workers);
        for (uint32_t j = 0; j < sums->n_planes; j++)
            planes[j] |= (uint64_t)(digit >> j & 1) << i;
    }
}

/* Adds a chunk of sums, those of average r, to the digits in planes, with carries. Such averages come from the relay of
 * a machine. There are far fewer of them than pushes. */
static gw_status add_average(struct job *job, uint32_t r, uint64_t c, struct slot *slot, uint8_t *planes)
{
    const struct gw_frame *frame = &job->frame[r];
    const struct ternary_sums sums = ternary_sums_of(frame->workers);
    const struct ternary_piece piece = piece_of(job, r, c);
    const uint32_t n_words = (piece.n + 63) / 64;
    GW_TRY(ternary_sum_decode(&sums, &piece, &slot->added, 1, false, slot->values));
    for (uint32_t i = piece.n; i < 64 * n_words; i++)
        slot->values[i] = 0; /* like the padding of pushes */
    for (uint32_t w = 0; w < n_words; w++) {
        uint64_t other[16], carry = 0;
        sums_to_planes(slot->values + 64 * (size_t)w, &sums, other);
        for (uint32_t j = 0; j < job->sums.n_planes; j++) {
            uint8_t *plane = planes + 8 * ((size_t)w * job->sums.n_planes + j);
            uint64_t a = gw_get64(plane), b = j < sums.n_planes ? other[j] : 0;
            gw_put64(plane, a ^ b ^ carry);
            carry = (a & b) | (carry & (a ^ b));
        }
    }
    return GW_OK;
}

/* Takes what is needed to add averages, if there are any. */
static gw_status averages_init(struct job *job)
{
    uint32_t most = 0;
    while (job->n_pushes < job->n_frames && !(job->frame[job->n_pushes].flags & GW_FLAG_AVERAGE))
        job->n_pushes++;
    if (job->n_pushes == job->n_frames)
        return GW_OK;
    for (uint32_t r = job->n_pushes; r < job->n_frames; r++)
        most = job->frame[r].workers > most ? job->frame[r].workers : most;
    struct ternary_sums largest = ternary_sums_of(most);
    for (uint32_t i = 0; i < job->n_slots; i++)
        GW_TRY(ternary_sum_scratch_init(job->context, &largest, job->frame->count, &job->slots[i].added));
    return take_values(job, 1);
}

/* For shared scalers. Adds integers, as bit planes. */
static gw_status add_shared(uint64_t i, uint32_t index, void *user)
{
    struct job *job = user;
    struct slot *slot = &job->slots[index];
    const struct gw_kernels *kernels = gw_kernels_now();
    uint64_t c = job->first + i;
    uint32_t n = chunk_elems(job->frame, c), n_words = (n + 63) / 64;
    uint8_t *to = job->to + i * job->stride;
    /* If the code is just the planes, they are added up where they go. */
    uint8_t *planes = job->code == CODE_PACKED && n % 64 == 0 ? to : slot->scratch.planes;
    struct gw_bitmaps batch[GW_ADD_FRAMES]; /* the batch is filled a group at a time, to its end */
    _Static_assert(GW_ADD_FRAMES % GW_RANS_TOGETHER == 0, "a batch is unpacked in whole groups");
    for (uint32_t r = 0; r < job->n_pushes;) {
        const uint32_t at = r % GW_ADD_FRAMES;
        struct ternary_piece pieces[GW_RANS_TOGETHER];
        uint32_t n_pieces = 0;
        for (; n_pieces < GW_RANS_TOGETHER && r < job->n_pushes; r++) {
            ask_for_next(job, r, c);
            hash_chunk(job, r, c);
            pieces[n_pieces++] = piece_of(job, r, c);
        }
        GW_TRY(ternary_push_unpack_many(pieces, n_pieces, &slot->bits[at], &batch[at]));
        if (at + n_pieces == GW_ADD_FRAMES || r == job->n_pushes)
            kernels->add_digits(batch, at + n_pieces, n_words, r <= GW_ADD_FRAMES, planes, job->sums.n_planes);
    }
    if (job->n_pushes == 0)
        memset(planes, 0, 8 * (size_t)n_words * job->sums.n_planes);
    for (uint32_t r = job->n_pushes; r < job->n_frames; r++) {
        hash_chunk(job, r, c);
        GW_TRY(add_average(job, r, c, slot, planes));
    }
    job->entries[i] = ternary_sum_pack(&job->sums, job->code, planes, n, &slot->scratch, to);
    return GW_OK;
}

static gw_status reduce_shared(struct job *job, uint8_t *payload, struct gw_frame *average)
{
    const enum ternary_code code = job->code;
    uint64_t n_chunks = n_chunks_of(job->frame), wave = job->n_slots > 1 ? WAVE : 1;
    GW_TRY(averages_init(job));
    GW_TRY(job_scratch(job, average->workers));
    if (wave > 1) {
        job->stride = ternary_packed_size(&job->sums, GW_CHUNK);
        job->wave = gw_scratch_take(job->context, WAVE, job->stride);
        if (!job->wave)
            return GW_ERR_MEMORY;
    }
    const bool table = ternary_has_table(code, n_chunks);
    size_t at = table ? ENTRY_BYTES * n_chunks : 0;
    for (; job->first < n_chunks; job->first += wave) {
        uint64_t n = n_chunks - job->first < wave ? n_chunks - job->first : wave;
        job->to = wave > 1 ? job->wave : payload + at;
        GW_TRY(gw_parallel_try(job->context, n, add_shared, job));
        for (uint64_t i = 0; i < n; i++) {
            size_t bytes = ENTRY_SIZE(job->entries[i]);
            if (wave > 1)
                memcpy(payload + at, job->wave + i * job->stride, bytes);
            if (!table)
                hash_average(job, payload + at, bytes);
            at += bytes;
            if (table)
                ternary_put_entry(payload, job->first + i, job->entries[i], code);
        }
    }
    average->code = (uint8_t)ternary_frame_code(code, true, n_chunks, job->entries[0]);
    average->payload_bytes = at;
    seal(job, payload - gw_frame_head_bytes(average->n_scalers), average, table);
    return GW_OK;
}

gw_status ternary_reduce(gw_context *context, const struct gw_frame *frames, uint32_t n, const void *options,
                         uint8_t *dst, struct gw_frame *average)
{
    const struct gw_frame *first = &frames[0];
    bool private = first->flags & GW_FLAG_PRIVATE;
    for (uint32_t r = 1; r < n && !private; r++)
        for (uint64_t i = 0; i < first->n_scalers; i++)
            if (gw_get32(first->scalers + 4 * i) != gw_get32(frames[r].scalers + 4 * i))
                return gw_fail(GW_ERR_FRAME_MISMATCH,
                               "the frames of ranks %u and %u disagree in scaler %llu: %g and %g", first->rank,
                               frames[r].rank, (unsigned long long)i, (double)gw_get_float(first->scalers + 4 * i),
                               (double)gw_get_float(frames[r].scalers + 4 * i));
    struct job job;
    gw_status status = job_init(&job, context, frames, n);
    struct ternary_packing packing = {PUSH_AUTO, PULL_AUTO, ENTROPY_AUTO};
    if (options)
        packing = ((const struct ternary_options *)options)->packing;
    if (average->flags & GW_FLAG_FAST)
        packing = ternary_fast(packing);
    job.code = ternary_pull_code(&packing);
    uint8_t *payload = dst + (private ? GW_HEADER_BYTES : gw_frame_head_bytes(first->n_scalers));
    if (status == GW_OK)
        status = hashes_init(&job);
    if (!private && first->n_scalers) {
        memcpy(dst + GW_HEADER_BYTES, first->scalers, 4 * (size_t)first->n_scalers);
        hash_average(&job, first->scalers, 4 * (size_t)first->n_scalers);
    }
    if (status == GW_OK)
        status = private ? reduce_private(&job, payload, average) : reduce_shared(&job, payload, average);
    if (status == GW_OK)
        status = hashes_compare(&job);
    job_fini(&job);
    return status;
}
