/* Tests that a text grows piece by piece, and that none is written past the end of its array. */
#include "base/append.h"
#include "checks.h"

#include <string.h>

TEST(pieces_follow_each_other)
{
    char text[32] = "";
    for (int i = 0; i < 3; i++)
        gw_append(text, sizeof text, "%s%d", i ? ", " : "", i);
    assert_string_equal(text, "0, 1, 2");
}

/* The array may have any size. The bytes behind it stay as they are. */
TEST(nothing_is_written_past_the_end)
{
    for (size_t capacity = 0; capacity <= 12; capacity++) {
        char room[16];
        memset(room, '#', sizeof room);
        room[0] = capacity ? 0 : '#';
        for (int i = 0; i < 5; i++)
            gw_append(room, capacity, "%s", "abc");
        for (size_t i = capacity; i < sizeof room; i++)
            assert_int_equal(room[i], '#');
        if (capacity)
            assert_int_equal(strnlen(room, capacity), capacity - 1);
        if (capacity > 3)
            assert_string_equal(room + capacity - 4, "...");
    }
}

/* It fits to the last byte, so nothing is cut. */
TEST(a_text_that_fits_is_whole)
{
    char text[7] = "";
    gw_append(text, sizeof text, "abc");
    gw_append(text, sizeof text, "def");
    assert_string_equal(text, "abcdef");
    gw_append(text, sizeof text, "%s", "");
    assert_string_equal(text, "abcdef");
}

static bool is_at_least(const void *least, uint32_t rank)
{
    return rank >= *(const uint32_t *)least;
}

TEST(ranks_are_named)
{
    static const char *const texts[] = {"", "rank 0", "ranks 0 and 1", "ranks 0, 1 and 2"};
    for (uint32_t n = 0; n < 4; n++)
        assert_string_equal(gw_missing_ranks(9, is_at_least, &n).text, texts[n]);
    assert_string_equal(gw_missing_ranks(8, is_at_least, &(uint32_t){8}).text, "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
    assert_string_equal(gw_missing_ranks(40, is_at_least, &(uint32_t){9}).text,
                        "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 1 more");
}

RUN_TESTS("append", NULL, NULL)
