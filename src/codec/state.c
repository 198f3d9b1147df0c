/* The public side of what codecs keep between steps. A saved state holds "GWST", a version, the codec's name in 16
 * bytes, the number of elements, the codec's own bytes, and the XXH3-64 of all that. */
#include "codec/state.h"
#include "base/error.h"
#include "base/float_env.h"
#include "codec/codec.h"
#include "wire/bytes.h"
#include "wire/hash.h"

#include <math.h>

#define VERSION 2
#define NAME_BYTES 16
#define HEAD_BYTES (8 + NAME_BYTES + 8)
#define TAIL_BYTES 8

gw_status gw_encoder_commit(gw_encoder *encoder, bool committed)
{
    if (!encoder)
        return gw_fail(GW_ERR_ARGUMENT, "gw_encoder_commit: encoder is NULL");
    committed = committed && encoder->measured && encoder->info.finite;
    if (gw_encoder_keeps_state(encoder)) {
        const bool taken = encoder->record->commit ? encoder->record->commit(encoder, committed) : committed;
        if (taken && !encoder->rests)
            gw_residual_commit(&encoder->residual);
    }
    if (encoder->momentum)
        gw_momentum_commit(encoder->momentum, committed);
    encoder->measured = encoder->rests = false;
    return GW_OK;
}

bool gw_encoder_rest(gw_encoder *encoder)
{
    /* A velocity goes on without a gradient. */
    if (!gw_encoder_keeps_state(encoder) || (encoder->momentum && !gw_momentum_is_zero(encoder->momentum)) ||
        !encoder->record->rest(encoder))
        return false;
    if (encoder->momentum)
        encoder->coded = gw_momentum_rest(encoder->momentum);
    encoder->info = (gw_measure){.finite = true};
    encoder->measured = encoder->rests = true;
    return true;
}

gw_status gw_encoder_scale(gw_encoder *encoder, float factor)
{
    if (!encoder || !(factor > 0) || !isfinite(factor))
        return gw_fail(GW_ERR_ARGUMENT, "gw_encoder_scale: %s",
                       encoder ? "the factor must be above 0 and finite" : "encoder is NULL");
    gw_float_env env = gw_float_enter();
    if (gw_encoder_keeps_state(encoder)) {
        encoder->record->settle(encoder);
        gw_residual_scale(&encoder->residual, factor);
        if (encoder->record->scale)
            encoder->record->scale(encoder, factor);
    }
    if (encoder->momentum)
        gw_momentum_scale(encoder->momentum, factor);
    gw_float_leave(env);
    encoder->measured = encoder->rests = false;
    return GW_OK;
}

/* The bytes of the codec's own state. The velocity follows it. */
static size_t record_bytes(const gw_encoder *encoder)
{
    return gw_encoder_keeps_state(encoder) ? encoder->record->head_bytes + gw_residual_bytes(encoder->tensor.n_elems)
                                           : 0;
}

size_t gw_encoder_state_bytes(const gw_encoder *encoder)
{
    return encoder && (gw_encoder_keeps_state(encoder) || encoder->momentum)
               ? HEAD_BYTES + record_bytes(encoder) + gw_momentum_bytes(encoder->momentum) + TAIL_BYTES
               : 0;
}

static void put_head(uint8_t *dst, const char *name, uint64_t n_elems)
{
    memset(dst, 0, HEAD_BYTES);
    memcpy(dst, "GWST", 4);
    gw_put32(dst + 4, VERSION);
    memcpy(dst + 8, name, strlen(name) < NAME_BYTES ? strlen(name) : NAME_BYTES);
    gw_put64(dst + 8 + NAME_BYTES, n_elems);
}

static void seal(uint8_t *state, size_t n_bytes)
{
    gw_put64(state + n_bytes - TAIL_BYTES, gw_hash_now()->whole(state, n_bytes - TAIL_BYTES, 0));
}

static gw_status check(const uint8_t *state, size_t n_bytes)
{
    if (!state || n_bytes < HEAD_BYTES + TAIL_BYTES || memcmp(state, "GWST", 4) != 0)
        return gw_fail(GW_ERR_ARGUMENT, "not a saved codec state");
    if (gw_get32(state + 4) != VERSION)
        return gw_fail(GW_ERR_ARGUMENT, "the saved codec state is of version %u; this library reads version %d",
                       gw_get32(state + 4), VERSION);
    if (gw_get64(state + n_bytes - TAIL_BYTES) != gw_hash_now()->whole(state, n_bytes - TAIL_BYTES, 0))
        return gw_fail(GW_ERR_ARGUMENT, "the saved codec state was altered: its checksum does not match its %zu bytes",
                       n_bytes);
    return GW_OK;
}

gw_status gw_encoder_save(const gw_encoder *encoder, void *dst, size_t dst_capacity)
{
    size_t n_bytes = gw_encoder_state_bytes(encoder);
    if (!encoder || (!dst && n_bytes))
        return gw_fail(GW_ERR_ARGUMENT, "gw_encoder_save: encoder or dst is NULL");
    if (dst_capacity < n_bytes)
        return gw_fail(GW_ERR_CAPACITY, "the state of tensor '%s' takes %zu bytes; the buffer has %zu", encoder->shown,
                       n_bytes, dst_capacity);
    if (n_bytes == 0)
        return GW_OK;
    put_head(dst, encoder->record->info.name, encoder->tensor.n_elems);
    gw_float_env env = gw_float_enter();
    if (gw_encoder_keeps_state(encoder)) {
        if (encoder->record->save)
            encoder->record->save(encoder, (uint8_t *)dst + HEAD_BYTES);
        encoder->record->settle(encoder);
        gw_residual_save(&encoder->residual, (uint8_t *)dst + HEAD_BYTES + encoder->record->head_bytes);
    }
    if (encoder->momentum)
        gw_momentum_save(encoder->momentum, (uint8_t *)dst + HEAD_BYTES + record_bytes(encoder));
    gw_float_leave(env);
    seal(dst, n_bytes);
    return GW_OK;
}

gw_status gw_encoder_load(gw_encoder *encoder, const void *src, size_t src_bytes)
{
    size_t n_bytes = gw_encoder_state_bytes(encoder);
    if (!encoder || (!src && src_bytes))
        return gw_fail(GW_ERR_ARGUMENT, "gw_encoder_load: encoder or src is NULL");
    if (n_bytes == 0)
        return src_bytes == 0 ? GW_OK : gw_fail(GW_ERR_ARGUMENT, "tensor '%s' has no codec state", encoder->shown);
    GW_TRY(check(src, src_bytes));
    uint8_t head[HEAD_BYTES];
    put_head(head, encoder->record->info.name, encoder->tensor.n_elems);
    if (memcmp(head, src, HEAD_BYTES) != 0)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the saved state is of codec %.*s and %llu elements; tensor '%s' has codec %s and %llu elements",
                       NAME_BYTES, (const char *)src + 8,
                       (unsigned long long)gw_get64((const uint8_t *)src + 8 + NAME_BYTES), encoder->shown,
                       encoder->record->info.name, (unsigned long long)encoder->tensor.n_elems);
    if (src_bytes != n_bytes)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the saved state of tensor '%s' has %zu bytes, and must have %zu; momentum= and output= must be "
                       "as they were at the save",
                       encoder->shown, src_bytes, n_bytes);
    const uint8_t *own = (const uint8_t *)src + HEAD_BYTES, *residual = own + encoder->record->head_bytes;
    const uint8_t *velocity = own + record_bytes(encoder);
    if (encoder->momentum)
        GW_TRY(gw_momentum_check(encoder->momentum, velocity, encoder->shown));
    if (gw_encoder_keeps_state(encoder)) {
        GW_TRY(gw_residual_check(residual, encoder->residual.n, "residual", encoder->shown));
        if (encoder->record->load)
            GW_TRY(encoder->record->load(encoder, own));
        encoder->record->settle(encoder);
        gw_residual_load(&encoder->residual, residual);
    }
    if (encoder->momentum)
        gw_momentum_load(encoder->momentum, velocity);
    encoder->measured = encoder->rests = false;
    return GW_OK;
}

gw_status gw_states_merge(const void *const *states, uint32_t n_states, size_t state_bytes, void *dst)
{
    const struct gw_codec_record *record = NULL;
    if (!states || !n_states || n_states > GW_MAX_WORKERS || !dst)
        return gw_fail(GW_ERR_ARGUMENT, "gw_states_merge: 1 to %u states and an output are needed", GW_MAX_WORKERS);
    for (uint32_t i = 0; i < n_states; i++) {
        GW_TRY(check(states[i], state_bytes));
        if (memcmp(states[i], states[0], HEAD_BYTES) != 0)
            return gw_fail(GW_ERR_ARGUMENT, "states 0 and %u are not of one codec and tensor", i);
    }
    const uint64_t n_elems = gw_get64((const uint8_t *)states[0] + 8 + NAME_BYTES);
    for (size_t i = 0; gw_codec_records[i]; i++)
        if (strncmp(gw_codec_records[i]->info.name, (const char *)states[0] + 8, NAME_BYTES) == 0)
            record = gw_codec_records[i];
    if (!record)
        return gw_fail(GW_ERR_ARGUMENT, "codec %.*s keeps no state", NAME_BYTES, (const char *)states[0] + 8);
    const size_t bytes = state_bytes - HEAD_BYTES - TAIL_BYTES, velocity = gw_residual_bytes(n_elems);
    size_t own = 0;
    if (n_elems <= GW_MAX_ELEMENTS && record->settle && bytes >= record->head_bytes + velocity)
        own = record->head_bytes + velocity;
    if (n_elems > GW_MAX_ELEMENTS || (bytes != own && bytes != own + velocity && bytes != own + 2 * velocity))
        return gw_fail(GW_ERR_ARGUMENT, "a saved state of codec %s has %zu bytes, which its elements do not take",
                       record->info.name, state_bytes);
    memcpy(dst, states[0], HEAD_BYTES);
    gw_float_env env = gw_float_enter();
    const size_t head = own ? record->head_bytes : 0, at = HEAD_BYTES + head;
    if (head)
        record->merge((const uint8_t *)states[0] + HEAD_BYTES, (uint8_t *)dst + HEAD_BYTES);
    gw_residual_merge(states, n_states, at, (bytes - head) / sizeof(float), (uint8_t *)dst + at);
    gw_float_leave(env);
    seal(dst, state_bytes);
    return GW_OK;
}

void gw_encoder_describe(const gw_encoder *encoder, gw_encoder_condition *condition)
{
    *condition = (gw_encoder_condition){0};
    if (!encoder || !gw_encoder_keeps_state(encoder))
        return;
    gw_float_env env = gw_float_enter();
    encoder->record->settle(encoder);
    condition->residual_norm = gw_residual_norm(&encoder->residual);
    if (encoder->record->describe)
        encoder->record->describe(encoder, condition);
    gw_float_leave(env);
}
