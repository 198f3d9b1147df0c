/* Applies an optimizer to the pushes of a key, and checks gradients and first parameters before it does. */
#include "pserver/store/parameters.h"
#include "base/error.h"
#include "base/float_env.h"
#include "base/memory.h"
#include "wire/bytes.h"
#include "wire/float16.h"

#include <string.h>

/* ---- beginning and end -------------------------------------------------------------------------------------- */

static gw_status parse(const char *name, const char *optimizer, struct gw_optimizer *out)
{
    gw_status status = gw_optimizer_parse(optimizer, out);
    if (status < 0)
        return gw_fail(status, "the key \"%s\": %s", name, gw_last_error());
    if (out->rule == GW_RULE_SVRG)
        return gw_fail(GW_ERR_SPEC,
                       "the key \"%s\": the optimizer svrg needs a snapshot, which only workers have; right are sgd, "
                       "momentum and adam",
                       name);
    return GW_OK;
}

gw_status gw_ps_parameters_init(struct gw_ps_store *store, struct gw_ps_key *key, const char *optimizer)
{
    struct gw_optimizer parsed;
    GW_TRY(parse(key->name, optimizer, &parsed));
    if (!gw_ps_is_float(key->type) && key->type != GW_PS_FRAME)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the key \"%s\" is %s; an optimizer is for float32, float16, bfloat16 and frame", key->name,
                       gw_ps_type_name(key->type));
    uint32_t n_moments = gw_optimizer_moments(&parsed);
    const uint64_t needed = (1 + n_moments) * key->n_elems * sizeof(float);
    if (!gw_ps_store_has_room(store, needed))
        return gw_ps_no_room(store, "the parameters and moments of", key->name, needed);
    struct gw_ps_parameters *p = key->parameters = gw_calloc(store->context, 1, sizeof *p);
    if (!p)
        return GW_ERR_MEMORY;
    p->optimizer = parsed;
    gw_optimizer_text(&parsed, p->text);
    p->rates = gw_calloc(store->context, store->options.n_workers, sizeof *p->rates);
    if (!p->rates)
        return GW_ERR_MEMORY;
    for (uint32_t m = 0; m < n_moments; m++) {
        float *zeros = gw_calloc(store->context, (size_t)key->n_elems, sizeof *zeros);
        p->moments[m] = gw_ps_blob_new(store->context, store->total, zeros, key->n_elems * sizeof *zeros);
        if (!p->moments[m])
            return GW_ERR_MEMORY;
        gw_ps_key_count(store, key, p->moments[m]->n_bytes, 0);
    }
    return GW_OK;
}

void gw_ps_parameters_free(struct gw_ps_store *store, struct gw_ps_key *key)
{
    struct gw_ps_parameters *p = key->parameters;
    if (!p)
        return;
    gw_ps_value_drop(store, key, &p->values);
    for (uint32_t m = 0; m < GW_OPTIMIZER_MOMENTS; m++)
        gw_ps_value_drop(store, key, &p->moments[m]);
    gw_free(store->context, p->rates);
    gw_free(store->context, p);
    key->parameters = NULL;
}

uint64_t gw_ps_parameters_own_bytes(const struct gw_ps_store *store, const struct gw_ps_key *key)
{
    return key->parameters ? sizeof *key->parameters + store->options.n_workers * sizeof(double) : 0;
}

gw_status gw_ps_parameters_compare(const struct gw_ps_key *key, const char *optimizer)
{
    struct gw_optimizer parsed;
    char text[GW_OPTIMIZER_TEXT] = "none";
    if (optimizer[0]) {
        GW_TRY(parse(key->name, optimizer, &parsed));
        gw_optimizer_text(&parsed, text);
    }
    const char *own = key->parameters ? key->parameters->text : "none";
    return strcmp(own, text) == 0
               ? GW_OK
               : gw_fail(GW_ERR_ARGUMENT,
                         "the key \"%s\" is there with the optimizer \"%s\"; it cannot be initialised with \"%s\"",
                         key->name, own, text);
}

/* ---- gradients ---------------------------------------------------------------------------------------------- */

static float plain_element(gw_ps_type type, const uint8_t *bytes, uint64_t i)
{
    return type == GW_PS_FLOAT32   ? gw_get_float(bytes + 4 * i)
           : type == GW_PS_FLOAT16 ? gw_from_f16(gw_get16(bytes + 2 * i))
                                   : gw_from_bf16(gw_get16(bytes + 2 * i));
}

/* The place of the first element that is not finite; n if there is none. */
static uint64_t first_nonfinite(gw_ps_type type, const uint8_t *bytes, uint64_t n)
{
    uint64_t i = 0;
    while (i < n && (gw_float_bits(plain_element(type, bytes, i)) & 0x7F800000u) != 0x7F800000u)
        i++;
    return i;
}

gw_status gw_ps_parameters_admit(const struct gw_ps_key *key, uint32_t rank, const struct gw_ps_blob *value)
{
    if (!key->parameters || key->type == GW_PS_FRAME)
        return GW_OK;
    const uint64_t i = first_nonfinite(key->type, value->bytes, key->n_elems);
    return i == key->n_elems ? GW_OK
                             : gw_fail(GW_ERR_NONFINITE,
                                       "rank %u's push to \"%s\" holds a NaN or an infinity at element %" PRIu64
                                       "; its parameters would be lost",
                                       rank, key->name, i);
}

/* Turns a value of the key's type into float32. */
static gw_status decode(struct gw_ps_store *store, const struct gw_ps_key *key, const void *bytes, size_t n_bytes,
                        float *out)
{
    if (key->type == GW_PS_FRAME)
        return gw_ps_decode_frames(store->context, bytes, n_bytes, out);
    for (uint64_t i = 0; i < key->n_elems; i++)
        out[i] = plain_element(key->type, bytes, i);
    return GW_OK;
}

/* The average of the open round, decoded. */
static gw_status average(struct gw_ps_store *store, const struct gw_ps_key *key, float *out)
{
    struct gw_ps_result result;
    uint32_t n;
    GW_TRY(gw_ps_round_reduce(store, key, &key->open, key->type == GW_PS_FRAME ? GW_PS_DECODE_AVERAGE : GW_PS_MEAN,
                              NULL, &result, &n));
    const gw_status status = decode(store, key, result.bytes, result.n_bytes, out);
    gw_free(store->context, result.bytes);
    return status;
}

/* ---- updates ------------------------------------------------------------------------------------------------ */

/* Makes sure that nobody else holds these values or moments. If they are on their way to a client,
 * it makes a copy, so that those stay as they are. */
static gw_status own(struct gw_ps_store *store, struct gw_ps_blob **blob)
{
    if ((*blob)->holds == 1)
        return GW_OK;
    struct gw_ps_blob *copy = gw_ps_blob_copy(store->context, store->total, (*blob)->bytes, (*blob)->n_bytes);
    if (!copy)
        return GW_ERR_MEMORY;
    gw_ps_blob_give(*blob);
    *blob = copy;
    return GW_OK;
}

/* Makes one update. The rate is divided by `divisor`. */
static gw_status update(struct gw_ps_store *store, struct gw_ps_key *key, const float *gradient, double rate,
                        uint32_t divisor)
{
    struct gw_ps_parameters *p = key->parameters;
    float *moments[GW_OPTIMIZER_MOMENTS] = {NULL};
    GW_TRY(own(store, &p->values));
    for (uint32_t m = 0; m < gw_optimizer_moments(&p->optimizer); m++) {
        GW_TRY(own(store, &p->moments[m]));
        moments[m] = p->moments[m]->bytes;
        p->moments[m]->committed_by = 0;
    }
    p->values->committed_by = 0;
    const double chosen = rate > 0 ? rate : (double)p->optimizer.lr;
    const gw_float_env env = gw_float_enter();
    gw_optimizer_update(&p->optimizer, (size_t)key->n_elems, p->values->bytes, moments, gradient,
                        (float)(chosen / divisor), key->open.number);
    gw_float_leave(env);
    return GW_OK;
}

/* Makes one update with a push; or, if it is NULL, with the average of the open round. */
static gw_status move(struct gw_ps_store *store, struct gw_ps_key *key, const struct gw_ps_blob *push, double rate,
                      uint32_t divisor)
{
    float *gradient = gw_alloc(store->context, (size_t)key->n_elems, sizeof *gradient);
    gw_status status = !gradient ? GW_ERR_MEMORY
                       : push    ? decode(store, key, push->bytes, push->n_bytes, gradient)
                                 : average(store, key, gradient);
    if (status == GW_OK)
        status = update(store, key, gradient, rate, divisor);
    gw_free(store->context, gradient);
    return status;
}

gw_status gw_ps_parameters_push(struct gw_ps_store *store, struct gw_ps_key *key, const struct gw_ps_blob *value,
                                double rate)
{
    return move(store, key, value, rate, store->info.n_present);
}

gw_status gw_ps_parameters_finish(struct gw_ps_store *store, struct gw_ps_key *key)
{
    uint32_t least = UINT32_MAX; /* the least rank of those that have pushed */
    for (uint32_t r = store->options.n_workers; r-- > 0;) {
        if (key->open.refusals[r] != GW_PS_NOT_REFUSED)
            return GW_OK;
        least = key->open.pushes[r] ? r : least;
    }
    const gw_status status = move(store, key, NULL, key->parameters->rates[least], 1);
    if (status == GW_OK || status == GW_ERR_MEMORY)
        return status;
    key->parameters->unusable = key->open.number;
    return GW_OK;
}

gw_status gw_ps_store_put_first(struct gw_ps_store *store, struct gw_ps_key *key, const struct gw_ps_blob *value)
{
    struct gw_ps_parameters *p = key->parameters;
    if (!p)
        return gw_fail(GW_ERR_ARGUMENT, "\"%s\" has no optimizer, and so no parameters to begin with", key->name);
    if (value->n_bytes != key->n_elems * sizeof(float))
        return gw_fail(GW_ERR_ARGUMENT, "parameters of \"%s\" have %zu bytes; float32 of shape %s takes %" PRIu64,
                       key->name, value->n_bytes, gw_ps_shape_text(&key->shape).text, key->n_elems * sizeof(float));
    if (p->values)
        return GW_OK;
    const uint64_t i = first_nonfinite(GW_PS_FLOAT32, value->bytes, key->n_elems);
    if (i < key->n_elems)
        return gw_fail(GW_ERR_NONFINITE,
                       "the first parameters of \"%s\" hold a NaN or an infinity at element %" PRIu64
                       "; no gradient could move it",
                       key->name, i);
    if (!gw_ps_store_has_room(store, 0)) /* the value's bytes count already; a copy takes their place */
        return gw_ps_no_room(store, "the parameters of", key->name, value->n_bytes);
    /* a copy is aligned, and nobody else holds it */
    p->values = gw_ps_blob_copy(store->context, store->total, value->bytes, value->n_bytes);
    if (!p->values)
        return GW_ERR_MEMORY;
    gw_ps_key_count(store, key, value->n_bytes, 0);
    store->woken(store->user, key);
    gw_ps_key_change(store, key);
    return GW_OK;
}
