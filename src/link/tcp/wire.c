/* Writes and reads the bodies of the tcp link's messages. */
#include "link/tcp/wire.h"
#include "wire/bytes.h"

#include <stdio.h>
#include <string.h>

void gw_tcp_join_write(uint8_t out[GW_TCP_JOIN_BYTES], const struct gw_tcp_join *join)
{
    gw_put16(out, join->version);
    out[2] = join->keyed;
    out[3] = 0;
    gw_put32(out + 4, join->rank);
    gw_put32(out + 8, join->size);
    gw_put32(out + 12, join->n_links);
    gw_net_address_write(&join->address, out + 16);
}

bool gw_tcp_join_read(const void *bytes, size_t n_bytes, struct gw_tcp_join *join)
{
    const uint8_t *at = bytes;
    *join = (struct gw_tcp_join){0};
    if (n_bytes < 2)
        return false;
    join->version = gw_get16(at);
    if (join->version != GW_TCP_VERSION)
        return true;
    if (n_bytes != GW_TCP_JOIN_BYTES || at[2] > 1 || at[3] != 0)
        return false;
    join->keyed = at[2];
    join->rank = gw_get32(at + 4);
    join->size = gw_get32(at + 8);
    join->n_links = gw_get32(at + 12);
    return gw_net_address_read(at + 16, &join->address);
}

void gw_tcp_table_write(uint8_t *out, uint64_t session, uint32_t size, uint32_t n_links,
                        const struct gw_tcp_member *members)
{
    gw_put64(out, session);
    gw_put32(out + 8, size);
    gw_put32(out + 12, n_links);
    for (uint32_t r = 0; r < size; r++) {
        uint8_t *at = out + GW_TCP_TABLE_HEAD + (size_t)r * GW_TCP_CONTACT_BYTES;
        gw_net_address_write(&members[r].address, at);
        memcpy(at + GW_NET_ADDRESS_BYTES, members[r].identity.bytes, sizeof members[r].identity.bytes);
    }
}

bool gw_tcp_table_read(const void *bytes, size_t n_bytes, uint32_t size, uint32_t n_links, uint64_t *session,
                       struct gw_tcp_member *members)
{
    const uint8_t *at = bytes;
    if (n_bytes != GW_TCP_TABLE_HEAD + (size_t)size * GW_TCP_CONTACT_BYTES || gw_get32(at + 8) != size ||
        gw_get32(at + 12) != n_links || gw_get64(at) == 0)
        return false;
    *session = gw_get64(at);
    at += GW_TCP_TABLE_HEAD;
    for (uint32_t r = 0; r < size; r++, at += GW_TCP_CONTACT_BYTES) {
        if (!gw_net_address_read(at, &members[r].address))
            return false;
        memcpy(members[r].identity.bytes, at + GW_NET_ADDRESS_BYTES, sizeof members[r].identity.bytes);
    }
    return true;
}

void gw_tcp_hello_write(uint8_t out[GW_TCP_HELLO_BYTES], const struct gw_tcp_hello *hello)
{
    gw_put64(out, hello->session);
    gw_put32(out + 8, hello->rank);
    gw_put32(out + 12, hello->link);
}

bool gw_tcp_hello_read(const void *bytes, size_t n_bytes, struct gw_tcp_hello *hello)
{
    const uint8_t *at = bytes;
    if (n_bytes != GW_TCP_HELLO_BYTES)
        return false;
    *hello = (struct gw_tcp_hello){gw_get64(at), gw_get32(at + 8), gw_get32(at + 12)};
    return true;
}

size_t gw_tcp_text_write(uint8_t out[GW_TCP_TEXT_BYTES], const char *text)
{
    return (size_t)snprintf((char *)out, GW_TCP_TEXT_BYTES, "%.*s", GW_TCP_TEXT_BYTES - 1, text);
}

bool gw_tcp_text_read(const void *bytes, size_t n_bytes, char text[GW_TCP_TEXT_BYTES])
{
    const uint8_t *at = bytes;
    size_t n = 0;
    if (n_bytes > GW_TCP_TEXT_BYTES)
        return false;
    for (; n < n_bytes && n < GW_TCP_TEXT_BYTES - 1 && at[n]; n++)
        text[n] = at[n] < 32 || at[n] == 127 ? '?' : (char)at[n];
    text[n] = 0;
    return true;
}

size_t gw_tcp_refuse_write(uint8_t out[GW_TCP_REFUSE_BYTES], gw_status status, const char *text)
{
    gw_put32(out, (uint32_t)-status);
    return 4 + gw_tcp_text_write(out + 4, text);
}

bool gw_tcp_refuse_read(const void *bytes, size_t n_bytes, gw_status *status, char text[GW_TCP_TEXT_BYTES])
{
    if (n_bytes < 4 || !gw_tcp_text_read((const uint8_t *)bytes + 4, n_bytes - 4, text))
        return false;
    *status = gw_get32(bytes) == (uint32_t)-GW_ERR_TIMEOUT ? GW_ERR_TIMEOUT : GW_ERR_PEER;
    return true;
}
