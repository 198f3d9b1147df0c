/* Takes the place of the parameter server in a build without OpenSSL, and says so. */
#include <gradwire/pserver.h>

/* none of these looks at what it is asked */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#ifndef GW_HAVE_TCP
static gw_status absent(void)
{
    return gw_fail(GW_ERR_UNSUPPORTED, "this build has no parameter server: OpenSSL was not found when it was made");
}

#define CREATE(function, type)                                                                                         \
    gw_status function(gw_context *context, const type##_options *options, type **out)                                 \
    {                                                                                                                  \
        if (out)                                                                                                       \
            *out = NULL;                                                                                               \
        return absent();                                                                                               \
    }
CREATE(gw_ps_server_create, gw_ps_server)
CREATE(gw_ps_client_create, gw_ps_client)

/* A call of a server or a client, of which there is none. */
#define CALL(type, function, answer, ...)                                                                              \
    type function(__VA_ARGS__)                                                                                         \
    {                                                                                                                  \
        answer;                                                                                                        \
    }
#define ABSENT(function, ...) CALL(gw_status, function, return absent(), __VA_ARGS__)
ABSENT(gw_ps_server_run, gw_ps_server *server)
ABSENT(gw_ps_client_meet, gw_ps_client *client, uint32_t ms)
ABSENT(gw_ps_init, gw_ps_client *client, const char *key, const gw_ps_key_options *options)
ABSENT(gw_ps_push, gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes)
ABSENT(gw_ps_pull, gw_ps_client *client, const char *key, gw_ps_method method, const char *scale_key, gw_ps_value *out)
ABSENT(gw_ps_put, gw_ps_client *client, const char *key, uint64_t version, const void *bytes, size_t n_bytes)
ABSENT(gw_ps_get, gw_ps_client *client, const char *key, uint64_t least, gw_ps_value *out)
ABSENT(gw_ps_begin, gw_ps_client *client, const gw_ps_call *call, uint64_t *request)
ABSENT(gw_ps_wait, gw_ps_client *client, uint64_t request, uint32_t ms, gw_ps_value *out)
ABSENT(gw_ps_join, gw_ps_client *client, uint64_t *round)
ABSENT(gw_ps_members, gw_ps_client *client, gw_ps_presence *presence, uint32_t capacity, uint64_t *next_round)
ABSENT(gw_ps_admit, gw_ps_client *client, uint32_t rank, uint64_t round)

CALL(const char *, gw_ps_server_address, return "", const gw_ps_server *server)
CALL(void, gw_ps_server_stop, return, gw_ps_server *server)
CALL(void, gw_ps_server_destroy, return, gw_ps_server *server)
CALL(void, gw_ps_client_destroy, return, gw_ps_client *client)
CALL(gw_ps_info, gw_ps_client_info, return (gw_ps_info){.n_workers = 0}, const gw_ps_client *client)
CALL(bool, gw_ps_take_notice, return false, gw_ps_client *client, gw_ps_notice notice)
CALL(void, gw_ps_value_free, return, gw_ps_value *value)
CALL(void, gw_ps_cancel, return, gw_ps_client *client, uint64_t request)
#endif
