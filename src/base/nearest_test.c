/* Tests which word of a list is the one that somebody most likely meant. */
#include "base/nearest.h"
#include "checks.h"

#include <limits.h>
#include <string.h>

TEST(the_fewest_edits_win)
{
    static const char *const words[] = {"topk", "on", "ternary", "uniform", "a"};
    static const struct {
        const char *said, *meant; /* NULL: none is near */
    } cases[] = {
        {"topk", "topk"},
        {"tpok", "topk"},
        {"tok", "topk"},
        {"topkk", "topk"},
        {"tXpk", "topk"},
        {"no", "on"},
        {"ternray", "ternary"},
        {"tenrray", "ternary"},
        {"etrnary", "ternary"},
        {"unifrom", "uniform"},
        {"uniforms", "uniform"},
        /* A word of two letters may have one edit. A swap counts as two. */
        {"nx", NULL},
        {"xo", NULL},
        {"xy", NULL},
        {"nno", "on"},
        /* A word of three letters may have two edits, and one of six may have three. */
        {"nnn", "on"},
        {"xxxk", NULL},
        {"xyzpqr", NULL},
        {"", "a"},
        {"b", "a"},
        {"bc", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = gw_nearest(cases[i].said, words, sizeof words / sizeof *words, NULL);
        CHECK(cases[i].meant ? found && strcmp(found, cases[i].meant) == 0 : !found, "\"%s\" is taken for %s",
              cases[i].said, found ? found : "none");
    }
}

TEST(the_first_of_equals_and_the_lengths)
{
    static const char *const equals[] = {"cat", "bat", "hat"};
    char longest[GW_LONGEST_WORD + 2], one_less[GW_LONGEST_WORD + 2];
    assert_string_equal(gw_nearest("rat", equals, 3, NULL), "cat");
    assert_null(gw_nearest("rat", equals, 0, NULL));
    /* A word that is longer than GW_LONGEST_WORD is never near. */
    memset(longest, 'x', sizeof longest);
    longest[GW_LONGEST_WORD] = 0;
    strcpy(one_less, longest + 1);
    const char *const list[] = {longest};
    assert_ptr_equal(gw_nearest(one_less, list, 1, NULL), longest);
    memset(longest, 'x', sizeof longest);
    longest[GW_LONGEST_WORD + 1] = 0;
    assert_null(gw_nearest(longest + 1, list, 1, NULL));
    assert_null(gw_nearest(longest, list, 1, NULL));
    assert_int_equal(gw_edit_distance(longest, longest), UINT_MAX);
    assert_int_equal(gw_edit_distance(longest + 1, longest + 3), 2);
    assert_int_equal(gw_edit_distance("", longest + 1), GW_LONGEST_WORD);
}

TEST(synonyms_go_before)
{
    static const char *const words[] = {"none", "topk"};
    static const struct gw_synonym synonyms[] = {{"off", "none"}, {"top", "absent"}, {"nonee", "topk"}, {NULL, NULL}};
    assert_string_equal(gw_nearest("off", words, 2, synonyms), "none");
    assert_null(gw_nearest("off", words, 2, NULL));
    assert_string_equal(gw_nearest("nonee", words, 2, synonyms), "topk");
    assert_string_equal(gw_nearest("top", words, 2, synonyms), "topk"); /* the synonym's meaning is not in the list */
}

RUN_TESTS("nearest", NULL, NULL)
