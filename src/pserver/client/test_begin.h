/* Calls of a client in one line, for tests: they fill in the options of a key, and the size of a call. */
#ifndef GW_PSERVER_CLIENT_TEST_BEGIN_H
#define GW_PSERVER_CLIENT_TEST_BEGIN_H

#include <gradwire/pserver.h>

/* A key of n elements in a row. 0: a scalar. */
static inline gw_status test_init(gw_ps_client *client, const char *key, gw_ps_type type, uint64_t n,
                                  const char *optimizer, const float *values)
{
    return gw_ps_init(client, key,
                      &(gw_ps_key_options){.struct_bytes = sizeof(gw_ps_key_options),
                                           .type = type,
                                           .shape = {.n_dims = n > 0, .dims = {n}},
                                           .optimizer = optimizer,
                                           .values = values});
}

static inline gw_status test_begin(gw_ps_client *client, gw_ps_call call, uint64_t *request)
{
    call.struct_bytes = sizeof call;
    return gw_ps_begin(client, &call, request);
}

/* A push with a learning rate, to a key with an optimizer. */
static inline gw_status test_push_at(gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes,
                                     double rate)
{
    uint64_t request;
    const gw_status status =
        test_begin(client,
                   (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = key, .bytes = bytes, .n_bytes = n_bytes, .rate = rate},
                   &request);
    return status < 0 ? status : gw_ps_wait(client, request, GW_PS_NO_LIMIT, NULL);
}

#endif
