/* Writes a tensor as a sparse frame, several chunks at a time on the context's threads. The codec says by a callback
 * which elements of a chunk are sent. */
#include "codec/sparse/encode.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "wire/bytes.h"

struct slot {
    struct gw_sparse_picked picked;
    struct gw_sparse_scratch *scratch;
};

struct gw_sparse_memory {
    uint32_t n_slots; /* one for each thread */
    uint8_t *wave;    /* a chunk of each slot, if there are several slots */
    size_t stride;
    size_t *sizes; /* of a wave's chunks */
    struct slot *slots;
};

void gw_sparse_memory_destroy(gw_context *context, struct gw_sparse_memory *memory)
{
    if (!memory)
        return;
    for (uint32_t i = 0; memory->slots && i < memory->n_slots; i++) {
        gw_free(context, memory->slots[i].picked.values);
        gw_sparse_scratch_destroy(context, memory->slots[i].scratch);
    }
    gw_free(context, memory->slots);
    gw_free(context, memory->sizes);
    gw_free(context, memory->wave);
    gw_free(context, memory);
}

static gw_status create(const gw_encoder *encoder, struct gw_sparse_memory **out)
{
    gw_context *context = encoder->context;
    uint64_t n = encoder->tensor.n_elems, most = n < GW_SPARSE_CHUNK ? n : GW_SPARSE_CHUNK;
    struct gw_sparse_memory *memory = gw_calloc(context, 1, sizeof *memory);
    if (!memory)
        return GW_ERR_MEMORY;
    memory->n_slots = n > GW_SPARSE_CHUNK ? gw_thread_count(context) : 1;
    memory->stride = gw_sparse_bound(encoder->record->info.wire_id, most);
    memory->slots = gw_calloc(context, memory->n_slots, sizeof *memory->slots);
    memory->sizes = gw_alloc(context, memory->n_slots, sizeof *memory->sizes);
    gw_status status = memory->slots && memory->sizes ? GW_OK : GW_ERR_MEMORY;
    for (uint32_t i = 0; i < memory->n_slots && status == GW_OK; i++) {
        status = gw_sparse_scratch_create(context, 0, true, &memory->slots[i].scratch);
        memory->slots[i].picked.values = gw_alloc(context, most + GW_SELECT_SLACK, sizeof(float));
        if (!memory->slots[i].picked.values)
            status = GW_ERR_MEMORY;
    }
    if (memory->n_slots > 1 && status == GW_OK) {
        memory->wave = gw_alloc(context, memory->n_slots, memory->stride);
        status = memory->wave ? GW_OK : GW_ERR_MEMORY;
    }
    if (status < 0)
        gw_sparse_memory_destroy(context, memory);
    else
        *out = memory;
    return status;
}

struct encoding {
    struct gw_sparse_memory *memory;
    gw_sparse_pick *pick;
    const void *user;
    const struct gw_frame *frame;
    bool fast;
    uint64_t first; /* the chunk that a wave begins with */
    uint8_t *to;    /* where the payload of chunk first + i goes: to + i * stride */
};

static void encode_chunk(uint64_t i, uint32_t index, void *user)
{
    const struct encoding *e = user;
    struct slot *slot = &e->memory->slots[index];
    struct gw_sparse_picked *picked = &slot->picked;
    const uint64_t c = e->first + i;
    const uint32_t n = gw_sparse_chunk_elems(e->frame, c);
    size_t n_bytes = (n + 63) / 64 * sizeof *picked->kept;
    memset(picked->kept, 0, n_bytes);
    memset(picked->exact, 0, n_bytes);
    memset(picked->negative, 0, n_bytes);
    e->pick(e->user, e->frame->begin + c * GW_SPARSE_CHUNK, n, picked);
    const struct gw_sparse_source source = {picked->kept, picked->exact, picked->negative, picked->values, e->fast};
    e->memory->sizes[i] = gw_sparse_write_chunk(&source, e->frame, n, slot->scratch, e->to + i * e->memory->stride);
}

gw_status gw_sparse_encode(gw_encoder *encoder, struct gw_sparse_memory **memory, gw_sparse_pick *pick,
                           const void *user, uint8_t *dst, struct gw_frame *frame)
{
    if (!*memory)
        GW_TRY(create(encoder, memory));
    struct gw_sparse_memory *m = *memory;
    uint64_t n_chunks = gw_sparse_n_chunks(frame);
    uint8_t *payload = dst + gw_frame_head_bytes(frame->n_scalers);
    size_t at = gw_sparse_table_bytes(frame);
    struct encoding e = {
        .memory = m, .pick = pick, .user = user, .frame = frame, .fast = encoder->push_wire == GW_WIRE_FAST};
    for (; e.first < n_chunks; e.first += m->n_slots) {
        uint64_t n = n_chunks - e.first < m->n_slots ? n_chunks - e.first : m->n_slots;
        e.to = m->wave ? m->wave : payload + at;
        gw_parallel_for(encoder->context, n, encode_chunk, &e);
        for (uint64_t i = 0; i < n; i++) {
            if (m->wave)
                memcpy(payload + at, e.to + i * m->stride, m->sizes[i]);
            if (n_chunks > 1)
                gw_put32(payload + 4 * (e.first + i), (uint32_t)m->sizes[i]);
            at += m->sizes[i];
        }
    }
    frame->payload_bytes = at;
    return GW_OK;
}
