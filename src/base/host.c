/* Takes hosts and ports apart, and puts them together. */
#include "base/host.h"
#include "base/error.h"
#include "base/numbers.h"

#include <stdio.h>
#include <string.h>

bool gw_host_copy(const char *from, size_t length, char host[GW_HOST_BYTES])
{
    if (length >= 2 && from[0] == '[' && from[length - 1] == ']' && memchr(from, ':', length)) {
        from++;
        length -= 2;
    }
    if (length == 0 || length >= GW_HOST_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)from[i] <= ' ' || strchr("[]/@\"'\x7f", from[i]))
            return false;
    memcpy(host, from, length);
    host[length] = 0;
    return true;
}

bool gw_host_split(const char *text, char host[GW_HOST_BYTES], uint32_t *port)
{
    const char *colon = strrchr(text, ':');
    uint64_t number;
    if (!colon || (text[0] != '[' && memchr(text, ':', (size_t)(colon - text))) || strlen(colon + 1) > 5 ||
        !gw_parse_whole(colon + 1, UINT32_MAX, &number) || !gw_host_copy(text, (size_t)(colon - text), host))
        return false;
    *port = (uint32_t)number;
    return true;
}

gw_status gw_host_join(const char *what, const char *host, uint32_t port, char *text, size_t capacity)
{
    char name[GW_HOST_BYTES];
    if (!gw_host_copy(host, strlen(host), name))
        return gw_fail(GW_ERR_ARGUMENT, "%s is \"%.80s\", and must be the name or the address of a machine", what,
                       host);
    const int n = snprintf(text, capacity, strchr(name, ':') ? "[%s]:%u" : "%s:%u", name, port);
    return n >= 0 && (size_t)n < capacity ? GW_OK : gw_fail(GW_ERR_ARGUMENT, "%s is too long", what);
}
