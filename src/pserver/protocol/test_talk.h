/* A client of a parameter server for tests that speaks by hand: over a raw connection (net/test_peer.h), a request and
 * an answer at a time. */
#ifndef GW_PSERVER_PROTOCOL_TEST_TALK_H
#define GW_PSERVER_PROTOCOL_TEST_TALK_H

#include "net/test_peer.h"
#include "pserver/protocol/message.h"

/* Writes a request's header: of a client that knows of one server, if the request does not say otherwise. */
static inline size_t talk_write(uint8_t header[GW_PS_HEAD_BYTES], const struct gw_ps_request *request)
{
    struct gw_ps_request whole = *request;
    whole.n_servers = whole.n_servers ? whole.n_servers : 1;
    whole.n_parts = whole.n_parts ? whole.n_parts : 1;
    return gw_ps_request_write(header, &whole);
}

/* Writes the head of a message, and of the request in it, whose value has n_bytes. Returns their length. */
static inline size_t talk_head(uint8_t at[GW_NET_HEAD + GW_PS_HEAD_BYTES], const struct gw_ps_request *request,
                               uint64_t n_bytes)
{
    const size_t n = talk_write(at + GW_NET_HEAD, request);
    peer_head(at, GW_PS_MESSAGE, n, n_bytes);
    return GW_NET_HEAD + n;
}

/* Sends a request. false: the server has ended the connection. */
static inline bool talk_send(int fd, const struct gw_ps_request *request, const void *value, size_t n_bytes)
{
    uint8_t header[GW_PS_HEAD_BYTES];
    const size_t n = talk_write(header, request);
    return peer_send(fd, GW_PS_MESSAGE, header, n, value, n_bytes);
}

/* The next answer; its value is dropped. false: the server has ended the connection. */
static inline bool talk_hear(int fd, struct gw_ps_answer *answer)
{
    struct peer_message message;
    if (!peer_hear(fd, &message))
        return false;
    assert_int_equal(message.kind, GW_PS_MESSAGE);
    assert_int_equal(gw_ps_answer_read(message.header, message.n_header, answer), GW_OK);
    return true;
}

#endif
