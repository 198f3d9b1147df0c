/* Averages one array over the members of a link in one call. */
#include "base/error.h"
#include "codec/codec.h"
#include "exchange/state.h"

static gw_status average(gw_context *context, const char *spec, const gw_link *link, uint64_t seed, float *values,
                         uint64_t n_elems, gw_step_result *result)
{
    gw_codec *codec;
    gw_exchange *exchange;
    if (!values && n_elems > 0)
        return gw_fail(GW_ERR_ARGUMENT, "gw_average_once: values is NULL");
    GW_TRY(gw_codec_parse(context, spec, &codec));
    if (gw_record_keeps_state(codec->record, codec->options)) {
        gw_codec_destroy(codec);
        return gw_fail(GW_ERR_SPEC,
                       "%s keeps what it does not send for later steps, and one call has none: make an "
                       "exchange, or take ternary, or none",
                       spec);
    }
    const gw_tensor tensor = {.name = "values", .n_elems = n_elems};
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .codec = codec,
                                         .tensors = &tensor,
                                         .n_tensors = 1,
                                         .link = *link,
                                         .seed = seed};
    gw_status status = gw_exchange_create_as(context, &options, GW_SLICE_MAX, true, &exchange);
    if (status == GW_OK) {
        status = gw_exchange_begin(exchange, 0);
        if (status == GW_OK)
            status = gw_exchange_submit(exchange, 0, values);
        if (status == GW_OK)
            status = gw_exchange_wait(exchange, result);
        gw_exchange_destroy(exchange);
    }
    gw_codec_destroy(codec);
    return status;
}

gw_status gw_average_once(gw_context *context, const char *spec, const gw_link *link, uint64_t seed, float *values,
                          uint64_t n_elems, gw_step_result *result)
{
    GW_TRY(gw_peers_check_link(link)); /* else the others could not be told */
    const gw_status status = average(context, spec, link, seed, values, n_elems, result);
    if (status < 0 && status != GW_ERR_NONFINITE) /* tell the others, which wait for this member */
        gw_link_fail(link, status, gw_last_error());
    return status;
}
