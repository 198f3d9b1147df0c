/* Packs and unpacks bare ternary codes, four to a byte. */
#include "base/error.h"

#include <gradwire/codec.h>
#include <inttypes.h>

static size_t bytes_of(uint64_t n_elems)
{
    return (size_t)(n_elems / 4 + (n_elems % 4 > 0));
}

gw_status gw_codes_pack(const int8_t *values, uint64_t n_elems, uint8_t *codes, size_t codes_capacity)
{
    if (n_elems && (!values || !codes))
        return gw_fail(GW_ERR_ARGUMENT, "gw_codes_pack: values or codes is NULL");
    if (codes_capacity < bytes_of(n_elems))
        return gw_fail(GW_ERR_CAPACITY, "%" PRIu64 " codes take %zu bytes, and there is room for %zu", n_elems,
                       bytes_of(n_elems), codes_capacity);
    for (uint64_t i = 0; i < n_elems; i += 4) {
        uint32_t byte = 0x55; /* four times 01 */
        for (uint32_t k = 0; k < 4 && i + k < n_elems; k++) {
            const int value = values[i + k];
            if (value < -1 || value > 1)
                return gw_fail(GW_ERR_ARGUMENT, "value %" PRIu64 " is %d; codes are for -1, 0 and 1", i + k, value);
            byte += (uint32_t)value << 2 * k; /* 01 becomes 00, 01 or 10; nothing is carried */
        }
        codes[i / 4] = (uint8_t)byte;
    }
    return GW_OK;
}

gw_status gw_codes_unpack(const uint8_t *codes, size_t codes_bytes, int8_t *values, uint64_t n_elems)
{
    if (n_elems && (!values || !codes))
        return gw_fail(GW_ERR_ARGUMENT, "gw_codes_unpack: codes or values is NULL");
    if (codes_bytes != bytes_of(n_elems))
        return gw_fail(GW_ERR_ARGUMENT, "%" PRIu64 " codes take %zu bytes, and there are %zu", n_elems,
                       bytes_of(n_elems), codes_bytes);
    for (uint64_t i = 0; i < n_elems; i += 4) {
        const uint32_t byte = codes[i / 4];
        if (byte & byte >> 1 & 0x55)
            return gw_fail(GW_ERR_ARGUMENT, "byte %" PRIu64 " is 0x%02x and holds the code 11; 00, 01 and 10 are codes",
                           i / 4, byte);
        for (uint32_t k = 0; k < 4; k++) {
            const int value = (int)(byte >> 2 * k & 3) - 1;
            if (i + k < n_elems)
                values[i + k] = (int8_t)value;
            else if (value)
                return gw_fail(GW_ERR_ARGUMENT,
                               "the last byte is 0x%02x; behind the %" PRIu64 " codes it must be padded with 01", byte,
                               n_elems);
        }
    }
    return GW_OK;
}
