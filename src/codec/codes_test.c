/* Tests bare codes: there and back on every length, known bytes, and all that is refused. */
#include "checks.h"

#include <gradwire/codec.h>
#include <stdlib.h>
#include <string.h>

TEST(there_and_back)
{
    for (uint64_t n = 0; n <= 70; n++) {
        /* The blocks are exactly as long as needed, so that the sanitizers see a byte too many. */
        int8_t *values = calloc(n ? n : 1, 1), *back = malloc(n ? n : 1);
        uint8_t *codes = malloc(n ? (n + 3) / 4 : 1);
        for (uint64_t i = 0; i < n; i++)
            values[i] = (int8_t)((int)(i * i * 7 + n) % 3 - 1);
        assert_int_equal(gw_codes_pack(values, n, codes, (n + 3) / 4), GW_OK);
        assert_int_equal(gw_codes_unpack(codes, (n + 3) / 4, back, n), GW_OK);
        assert_memory_equal(values, back, n);
        if (n) {
            assert_int_equal(gw_codes_pack(values, n, codes, (n + 3) / 4 - 1), GW_ERR_CAPACITY);
            assert_int_equal(gw_codes_unpack(codes, (n + 3) / 4 + 1, back, n), GW_ERR_ARGUMENT);
        }
        free(values);
        free(back);
        free(codes);
    }
}

TEST(bytes_are_known)
{
    const int8_t values[] = {-1, 0, 1, 1, 0, -1};
    uint8_t codes[2];
    assert_int_equal(gw_codes_pack(values, 6, codes, sizeof codes), GW_OK);
    assert_int_equal(codes[0], 0xA4); /* 10 10 01 00 */
    assert_int_equal(codes[1], 0x51); /* 01 01 00 01, padded */
}

TEST(the_rest_is_refused)
{
    uint8_t codes[2] = {0};
    int8_t back[8];
    const int8_t wrong[] = {0, 2, 0, -128};
    assert_int_equal(gw_codes_pack(wrong, 4, codes, sizeof codes), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "value 1 is 2"));
    assert_int_equal(gw_codes_pack(wrong + 3, 1, codes, sizeof codes), GW_ERR_ARGUMENT);
    assert_int_equal(gw_codes_pack(NULL, 1, codes, sizeof codes), GW_ERR_ARGUMENT);
    assert_int_equal(gw_codes_unpack(NULL, 1, back, 1), GW_ERR_ARGUMENT);
    assert_int_equal(gw_codes_unpack(codes, SIZE_MAX, back, UINT64_MAX), GW_ERR_ARGUMENT);
    for (uint32_t k = 0; k < 4; k++) {
        const uint8_t bad = (uint8_t)(0x55 | 2u << 2 * k);
        assert_int_equal(gw_codes_unpack(&bad, 1, back, 4), GW_ERR_ARGUMENT);
        assert_non_null(strstr(gw_last_error(), "holds the code 11"));
        const uint8_t padded = (uint8_t)(0x55 ^ 1u << 2 * k); /* 00 in place of 01 */
        assert_int_equal(gw_codes_unpack(&padded, 1, back, k), GW_ERR_ARGUMENT);
        assert_int_equal(gw_codes_unpack(&padded, 1, back, k + 1), GW_OK);
    }
}

RUN_TESTS("codes", NULL, NULL)
