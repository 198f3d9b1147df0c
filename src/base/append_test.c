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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_follow_each_other),
        cmocka_unit_test(nothing_is_written_past_the_end),
        cmocka_unit_test(a_text_that_fits_is_whole),
    };
    return cmocka_run_group_tests_name("append", tests, NULL, NULL);
}
