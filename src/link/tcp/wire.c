/* Writes and reads the messages of the meeting. Every field that came from outside is checked here before anything
 * else sees it. */
#include "link/tcp/wire.h"
#include "wire/bytes.h"

#include <gradwire/codec.h>

#include <string.h>

#define MAGIC_JOIN 0x4A545747u   /* "GWTJ" */
#define MAGIC_WAIT 0x57545747u   /* "GWTW" */
#define MAGIC_TABLE 0x54545747u  /* "GWTT" */
#define MAGIC_REFUSE 0x52545747u /* "GWTR" */
#define MAGIC_HELLO 0x48545747u  /* "GWTH" */

#define FLAG_KEYED 1u

static uint8_t *write_head(uint8_t *at, uint32_t magic, bool keyed)
{
    gw_put32(at, magic);
    gw_put16(at + 4, GW_TCP_VERSION);
    gw_put16(at + 6, keyed ? FLAG_KEYED : 0);
    return at + GW_TCP_HEAD_BYTES;
}

/* True if the bytes are of that kind and of this version, and are enough for the head and `more` bytes of fields. */
static bool head_is(const uint8_t *at, size_t n_bytes, uint32_t magic, size_t more)
{
    return n_bytes >= GW_TCP_HEAD_BYTES + more && gw_get32(at) == magic && gw_get16(at + 4) == GW_TCP_VERSION &&
           gw_get16(at + 6) <= FLAG_KEYED;
}

enum gw_tcp_kind gw_tcp_kind_of(const void *bytes, size_t n_bytes, uint16_t *version)
{
    const uint8_t *at = bytes;
    *version = 0;
    if (n_bytes < GW_TCP_HEAD_BYTES)
        return GW_TCP_STRANGE;
    *version = gw_get16(at + 4);
    switch (gw_get32(at)) {
    case MAGIC_JOIN:
        return GW_TCP_JOIN;
    case MAGIC_WAIT:
        return GW_TCP_WAIT;
    case MAGIC_TABLE:
        return GW_TCP_TABLE;
    case MAGIC_REFUSE:
        return GW_TCP_REFUSE;
    }
    return GW_TCP_STRANGE;
}

size_t gw_tcp_contact_bound(uint32_t n_links, bool keyed)
{
    /* the byte with the length takes the place of the closing 0 */
    return (keyed ? GW_ZMQ_KEY_CHARS : 0) + (size_t)n_links * GW_ZMQ_ENDPOINT_BYTES;
}

/* The characters of Z85 are some of these. libzmq refuses the others when it decodes the key. */
static bool is_graphic(uint8_t c)
{
    return c > ' ' && c <= '~';
}

bool gw_tcp_read_key(struct gw_tcp_reader *reader, char key[GW_ZMQ_KEY_CHARS + 1])
{
    if (reader->end - reader->at < GW_ZMQ_KEY_CHARS)
        return false;
    for (int i = 0; i < GW_ZMQ_KEY_CHARS; i++)
        if (!is_graphic(reader->at[i]))
            return false;
    memcpy(key, reader->at, GW_ZMQ_KEY_CHARS);
    key[GW_ZMQ_KEY_CHARS] = 0;
    reader->at += GW_ZMQ_KEY_CHARS;
    return true;
}

/* An address that came from outside must be in numbers, so that it is never looked up as a name. */
static bool is_numeric_endpoint(const uint8_t *at, size_t length)
{
    static const char scheme[] = "tcp://";
    size_t n = sizeof scheme - 1;
    if (length <= n || memcmp(at, scheme, n) != 0)
        return false;
    bool v6 = at[n] == '[';
    for (size_t i = n; i < length; i++) {
        uint8_t c = at[i];
        bool digit = (c >= '0' && c <= '9') || c == '.' || c == ':';
        bool of_v6 = is_graphic(c) && c != ';' && c != '/' && c != '*';
        if (!(digit || (v6 && of_v6)))
            return false;
    }
    return true;
}

bool gw_tcp_read_endpoint(struct gw_tcp_reader *reader, char endpoint[GW_ZMQ_ENDPOINT_BYTES])
{
    if (reader->at == reader->end)
        return false;
    size_t length = reader->at[0];
    if (length >= GW_ZMQ_ENDPOINT_BYTES || length > (size_t)(reader->end - reader->at) - 1 ||
        !is_numeric_endpoint(reader->at + 1, length))
        return false;
    memcpy(endpoint, reader->at + 1, length);
    endpoint[length] = 0;
    reader->at += 1 + length;
    return true;
}

uint8_t *gw_tcp_write_key(uint8_t *at, const char *key)
{
    memcpy(at, key, GW_ZMQ_KEY_CHARS);
    return at + GW_ZMQ_KEY_CHARS;
}

uint8_t *gw_tcp_write_endpoint(uint8_t *at, const char *endpoint)
{
    size_t length = strlen(endpoint);
    at[0] = (uint8_t)length;
    memcpy(at + 1, endpoint, length);
    return at + 1 + length;
}

/* True if the reader's bytes are exactly n contacts. */
static bool contacts_are_good(struct gw_tcp_reader reader, uint32_t n, uint32_t n_links, bool keyed)
{
    char key[GW_ZMQ_KEY_CHARS + 1], endpoint[GW_ZMQ_ENDPOINT_BYTES];
    for (uint32_t i = 0; i < n; i++) {
        if (keyed && !gw_tcp_read_key(&reader, key))
            return false;
        for (uint32_t l = 0; l < n_links; l++)
            if (!gw_tcp_read_endpoint(&reader, endpoint))
                return false;
    }
    return reader.at == reader.end;
}

uint8_t *gw_tcp_join_write(uint8_t *at, const struct gw_tcp_join *join)
{
    at = write_head(at, MAGIC_JOIN, join->keyed);
    gw_put32(at, join->rank);
    gw_put32(at + 4, join->size);
    gw_put32(at + 8, join->n_links);
    return at + 12;
}

bool gw_tcp_join_read(const void *bytes, size_t n_bytes, struct gw_tcp_join *join)
{
    const uint8_t *at = bytes;
    if (!head_is(at, n_bytes, MAGIC_JOIN, 12))
        return false;
    *join = (struct gw_tcp_join){.keyed = gw_get16(at + 6) & FLAG_KEYED,
                                 .rank = gw_get32(at + 8),
                                 .size = gw_get32(at + 12),
                                 .n_links = gw_get32(at + 16),
                                 .contact = {at + GW_TCP_JOIN_HEAD, at + n_bytes}};
    return join->n_links <= GW_TCP_MAX_LINKS && contacts_are_good(join->contact, 1, join->n_links, join->keyed);
}

uint8_t *gw_tcp_table_write(uint8_t *at, const struct gw_tcp_table *table)
{
    at = write_head(at, MAGIC_TABLE, table->keyed);
    gw_put64(at, table->session);
    gw_put32(at + 8, table->size);
    gw_put32(at + 12, table->n_links);
    return at + 16;
}

bool gw_tcp_table_read(const void *bytes, size_t n_bytes, struct gw_tcp_table *table)
{
    const uint8_t *at = bytes;
    if (!head_is(at, n_bytes, MAGIC_TABLE, 16))
        return false;
    *table = (struct gw_tcp_table){.keyed = gw_get16(at + 6) & FLAG_KEYED,
                                   .session = gw_get64(at + 8),
                                   .size = gw_get32(at + 16),
                                   .n_links = gw_get32(at + 20),
                                   .contacts = {at + GW_TCP_TABLE_HEAD, at + n_bytes}};
    return table->size <= GW_MAX_WORKERS && table->n_links > 0 && table->n_links <= GW_TCP_MAX_LINKS &&
           contacts_are_good(table->contacts, table->size, table->n_links, table->keyed);
}

static size_t write_text(uint8_t *out, uint8_t *at, const char *text)
{
    size_t length = strnlen(text, GW_TCP_TEXT_BYTES - 1);
    memcpy(at, text, length);
    return (size_t)(at - out) + length;
}

size_t gw_tcp_wait_write(uint8_t *out, const char *text)
{
    return write_text(out, write_head(out, MAGIC_WAIT, false), text);
}

size_t gw_tcp_refuse_write(uint8_t *out, gw_status status, const char *text)
{
    uint8_t *at = write_head(out, MAGIC_REFUSE, false);
    gw_put32(at, (uint32_t) - (int)status);
    return write_text(out, at + 4, text);
}

void gw_tcp_text_read(const void *bytes, size_t n_bytes, char text[GW_TCP_TEXT_BYTES])
{
    const uint8_t *at = bytes;
    size_t i = 0;
    for (; i < n_bytes && i < GW_TCP_TEXT_BYTES - 1 && at[i]; i++)
        text[i] = at[i] >= ' ' && at[i] != 0x7F ? (char)at[i] : '?';
    text[i] = 0;
}

bool gw_tcp_wait_read(const void *bytes, size_t n_bytes, char text[GW_TCP_TEXT_BYTES])
{
    const uint8_t *at = bytes;
    if (!head_is(at, n_bytes, MAGIC_WAIT, 0))
        return false;
    gw_tcp_text_read(at + GW_TCP_HEAD_BYTES, n_bytes - GW_TCP_HEAD_BYTES, text);
    return true;
}

/* Reads a REFUSE of any version: with it, different versions tell each other that they do not fit. */
bool gw_tcp_refuse_read(const void *bytes, size_t n_bytes, gw_status *status, char text[GW_TCP_TEXT_BYTES])
{
    const uint8_t *at = bytes;
    if (n_bytes < GW_TCP_HEAD_BYTES + 4 || gw_get32(at) != MAGIC_REFUSE)
        return false;
    *status = gw_get32(at + 8) == -(int)GW_ERR_TIMEOUT ? GW_ERR_TIMEOUT : GW_ERR_PEER;
    gw_tcp_text_read(at + GW_TCP_HEAD_BYTES + 4, n_bytes - GW_TCP_HEAD_BYTES - 4, text);
    return true;
}

void gw_tcp_hello_write(uint8_t out[GW_TCP_HELLO_BYTES], uint64_t session, uint32_t nth_link)
{
    uint8_t *at = write_head(out, MAGIC_HELLO, false);
    gw_put64(at, session);
    gw_put32(at + 8, nth_link);
}

bool gw_tcp_hello_read(const void *bytes, size_t n_bytes, uint64_t *session, uint32_t *nth_link)
{
    const uint8_t *at = bytes;
    if (n_bytes != GW_TCP_HELLO_BYTES || !head_is(at, n_bytes, MAGIC_HELLO, 12))
        return false;
    *session = gw_get64(at + 8);
    *nth_link = gw_get32(at + 16);
    return true;
}
