/* Takes the place of the parameter server in a build without OpenSSL, and says so. */
#include "base/error.h"

#include <gradwire/pserver.h>

#ifndef GW_HAVE_TCP
static gw_status absent(void)
{
    return gw_fail(GW_ERR_UNSUPPORTED, "this build has no parameter server: OpenSSL was not found when it was made");
}

gw_status gw_ps_server_create(gw_context *context, const gw_ps_server_options *options, gw_ps_server **out)
{
    (void)context, (void)options;
    if (out)
        *out = NULL;
    return absent();
}

const char *gw_ps_server_address(const gw_ps_server *server)
{
    (void)server;
    return "";
}

gw_status gw_ps_server_run(gw_ps_server *server)
{
    (void)server;
    return absent();
}

void gw_ps_server_stop(gw_ps_server *server)
{
    (void)server;
}

void gw_ps_server_destroy(gw_ps_server *server)
{
    (void)server;
}

gw_status gw_ps_client_create(gw_context *context, const gw_ps_client_options *options, gw_ps_client **out)
{
    (void)context, (void)options;
    if (out)
        *out = NULL;
    return absent();
}

gw_status gw_ps_client_meet(gw_ps_client *client, uint32_t ms)
{
    (void)client, (void)ms;
    return absent();
}

void gw_ps_client_destroy(gw_ps_client *client)
{
    (void)client;
}

gw_status gw_ps_init_parameter(gw_ps_client *client, const char *key, gw_ps_type type, const gw_ps_shape *shape)
{
    (void)client, (void)key, (void)type, (void)shape;
    return absent();
}

gw_status gw_ps_init_optimized(gw_ps_client *client, const char *key, gw_ps_type type, const gw_ps_shape *shape,
                               const char *optimizer, const float *values)
{
    (void)client, (void)key, (void)type, (void)shape, (void)optimizer, (void)values;
    return absent();
}

gw_status gw_ps_set_rate(gw_ps_client *client, double rate)
{
    (void)client, (void)rate;
    return absent();
}

gw_ps_mode gw_ps_client_mode(const gw_ps_client *client, uint32_t *staleness)
{
    (void)client, (void)staleness;
    return GW_PS_SYNC;
}

gw_status gw_ps_push_parameter(gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes)
{
    (void)client, (void)key, (void)bytes, (void)n_bytes;
    return absent();
}

gw_status gw_ps_pull_parameter(gw_ps_client *client, const char *key, gw_ps_method method, const char *scale_key,
                               gw_ps_value *out)
{
    (void)client, (void)key, (void)method, (void)scale_key, (void)out;
    return absent();
}

void gw_ps_value_free(gw_ps_value *value)
{
    (void)value;
}

gw_status gw_ps_push_begin(gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes, uint64_t *ticket)
{
    (void)client, (void)key, (void)bytes, (void)n_bytes, (void)ticket;
    return absent();
}

gw_status gw_ps_pull_begin(gw_ps_client *client, const char *key, gw_ps_method method, const char *scale_key,
                           uint64_t *ticket)
{
    (void)client, (void)key, (void)method, (void)scale_key, (void)ticket;
    return absent();
}

gw_status gw_ps_init_begin(gw_ps_client *client, const char *key, gw_ps_type type, const gw_ps_shape *shape,
                           const char *optimizer, uint64_t *ticket)
{
    (void)client, (void)key, (void)type, (void)shape, (void)optimizer, (void)ticket;
    return absent();
}

gw_status gw_ps_first_begin(gw_ps_client *client, const char *key, const float *values, uint64_t n, uint64_t *ticket)
{
    (void)client, (void)key, (void)values, (void)n, (void)ticket;
    return absent();
}

gw_status gw_ps_deposit_begin(gw_ps_client *client, const char *key, uint64_t version, const void *bytes,
                              size_t n_bytes, uint64_t *ticket)
{
    (void)client, (void)key, (void)version, (void)bytes, (void)n_bytes, (void)ticket;
    return absent();
}

gw_status gw_ps_fetch_begin(gw_ps_client *client, const char *key, uint64_t least, uint64_t *ticket)
{
    (void)client, (void)key, (void)least, (void)ticket;
    return absent();
}

gw_status gw_ps_wait_for(gw_ps_client *client, uint64_t ticket, uint32_t ms, gw_ps_value *out)
{
    (void)client, (void)ticket, (void)ms, (void)out;
    return absent();
}

void gw_ps_cancel(gw_ps_client *client, uint64_t ticket)
{
    (void)client, (void)ticket;
}

gw_status gw_ps_wait(gw_ps_client *client, uint64_t ticket, gw_ps_value *out)
{
    (void)client, (void)ticket, (void)out;
    return absent();
}

gw_status gw_ps_deposit(gw_ps_client *client, const char *key, uint64_t version, const void *bytes, size_t n_bytes)
{
    (void)client, (void)key, (void)version, (void)bytes, (void)n_bytes;
    return absent();
}

gw_status gw_ps_fetch(gw_ps_client *client, const char *key, uint64_t least, gw_ps_value *out)
{
    (void)client, (void)key, (void)least, (void)out;
    return absent();
}

bool gw_ps_take_in_memory_notice(gw_ps_client *client)
{
    (void)client;
    return false;
}

gw_status gw_ps_join(gw_ps_client *client, uint64_t *round)
{
    (void)client, (void)round;
    return absent();
}

bool gw_ps_take_join_request(gw_ps_client *client)
{
    (void)client;
    return false;
}

uint32_t gw_ps_n_workers(const gw_ps_client *client)
{
    (void)client;
    return 0;
}

gw_status gw_ps_members(gw_ps_client *client, gw_ps_presence *presence, uint32_t capacity, uint64_t *next_round)
{
    (void)client, (void)presence, (void)capacity, (void)next_round;
    return absent();
}

gw_status gw_ps_admit(gw_ps_client *client, uint32_t rank, uint64_t round)
{
    (void)client, (void)rank, (void)round;
    return absent();
}
#endif
