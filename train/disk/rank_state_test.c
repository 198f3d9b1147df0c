/* Tests state files: what is written comes back, nothing damaged does, and nothing of another checkpoint, step or
 * worker. */
#define _GNU_SOURCE /* nftw */
#include "checks.h"
#include "disk/folder.h"
#include "disk/rank_state.h"
#include "own_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "checkpoint-00000300.rank-2-of-4.gws"

static uint8_t bytes[100];

static int begin(void **state)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(7 * i);
    return make_folder(state);
}

/* Fails if a .partial file was left. */
static int end(void **state)
{
    unlink(in(NAME));
    return remove_empty_folder(state);
}

static void write_state(size_t n_bytes)
{
    struct gw_rank_state s = {
        .identity = 99, .step = 300, .rank = 2, .workers = 4, .state = bytes, .state_bytes = n_bytes};
    assert_int_equal(gw_rank_state_write(folder, &s), GW_OK);
}

TEST_BETWEEN(what_is_written_comes_back, begin, end)
{
    static const size_t sizes[] = {0, 1, sizeof bytes};
    for (int i = 0; i < 3; i++) {
        struct gw_rank_state s = {.identity = 99, .step = 300, .rank = 2, .workers = 4};
        write_state(sizes[i]);
        assert_int_equal(gw_rank_state_read(folder, &s), GW_OK);
        assert_int_equal(s.state_bytes, sizes[i]);
        assert_memory_equal(s.state, bytes, sizes[i]);
        gw_rank_state_free(&s);
    }
}

/* The numbers of the head have places of their own, which later versions must find again. */
TEST_BETWEEN(the_head_stays_as_it_is, begin, end)
{
    static const char want[] = "GWSTATE1"
                               "\x63\0\0\0\0\0\0\0"
                               "\x2c\1\0\0\0\0\0\0"
                               "\2\0\0\0\4\0\0\0"
                               "\x9\0\0\0\0\0\0\0";
    uint8_t whole[256];
    write_state(9);
    assert_true(get(NAME, whole, sizeof whole) > sizeof want - 1);
    assert_memory_equal(whole, want, sizeof want - 1);
}

static void check_refused(uint64_t identity, const char *word)
{
    struct gw_rank_state s = {.identity = identity, .step = 300, .rank = 2, .workers = 4};
    assert_int_equal(gw_rank_state_read(folder, &s), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), in(NAME)));
    assert_non_null(strstr(gw_last_error(), word));
    assert_null(s.file);
}

TEST_BETWEEN(damage_is_refused, begin, end)
{
    uint8_t whole[256], bad[257];
    write_state(sizeof bytes);
    const size_t n = get(NAME, whole, sizeof whole);
    assert_int_equal(n, 40 + sizeof bytes + 8);
    for (size_t i = 0; i < n; i++) {
        memcpy(bad, whole, n);
        bad[i] ^= 0x40;
        put(NAME, bad, n);
        check_refused(99, "");
        put(NAME, whole, i);
        check_refused(99, "");
    }
    memcpy(bad, whole, n);
    bad[n] = 0;
    put(NAME, bad, n + 1);
    check_refused(99, "damaged");
    assert_int_equal(truncate(in(NAME), (off_t)1 << 43), 0); /* no memory is taken for it */
    check_refused(99, "longer than its state");
}

TEST_BETWEEN(others_files_are_refused, begin, end)
{
    char other[96];
    write_state(sizeof bytes);
    check_refused(98, "belongs to another run");
    static const struct gw_rank_state others[] = {
        {.identity = 99, .step = 300, .rank = 1, .workers = 4},
        {.identity = 99, .step = 301, .rank = 2, .workers = 4},
        {.identity = 99, .step = 300, .rank = 2, .workers = 5},
    };
    for (int i = 0; i < 3; i++) {
        struct gw_rank_state s = others[i];
        s.state = bytes, s.state_bytes = 9;
        assert_int_equal(gw_rank_state_write(folder, &s), GW_OK);
        snprintf(other, sizeof other, GW_STATE_FILE, (unsigned long long)s.step, s.rank, s.workers);
        assert_int_equal(rename(in(other), in(NAME)), 0);
        check_refused(99, "belongs to another run");
    }
    unlink(in(NAME));
    check_refused(99, "cannot be opened");
}

RUN_TESTS("rank state", NULL, NULL)
