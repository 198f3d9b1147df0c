/* Tests state files: what is written comes back, nothing damaged does, and nothing of another checkpoint, step or
 * worker. */
#include "checks.h"
#include "disk/folder.h"
#include "disk/rank_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[4096], path[4200];
static uint8_t bytes[100];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/rank_state_test.XXXXXX", GW_BINARY_DIR);
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/checkpoint-00000300.rank-2-of-4.gws", folder);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(7 * i);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails where a .partial file was left */
}

static void write_state(size_t n_bytes)
{
    struct gw_rank_state s = {
        .identity = 99, .step = 300, .rank = 2, .workers = 4, .state = bytes, .state_bytes = n_bytes};
    assert_int_equal(gw_rank_state_write(folder, &s), GW_OK);
}

TEST(what_is_written_comes_back)
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
TEST(the_head_stays_as_it_is)
{
    static const char want[] = "GWSTATE1"
                               "\x63\0\0\0\0\0\0\0"
                               "\x2c\1\0\0\0\0\0\0"
                               "\2\0\0\0\4\0\0\0"
                               "\x9\0\0\0\0\0\0\0";
    uint8_t head[40];
    write_state(9);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(head, 1, sizeof head, f), sizeof head);
    fclose(f);
    assert_memory_equal(head, want, sizeof head);
}

static void check_refused(uint64_t identity, const char *word)
{
    struct gw_rank_state s = {.identity = identity, .step = 300, .rank = 2, .workers = 4};
    assert_int_equal(gw_rank_state_read(folder, &s), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), path));
    assert_non_null(strstr(gw_last_error(), word));
    assert_null(s.file);
}

static void put_file(const uint8_t *content, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(content, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

TEST(damage_is_refused)
{
    uint8_t whole[256], bad[257];
    write_state(sizeof bytes);
    FILE *f = fopen(path, "rb");
    size_t n = fread(whole, 1, sizeof whole, f);
    fclose(f);
    assert_int_equal(n, 40 + sizeof bytes + 8);
    for (size_t i = 0; i < n; i++) {
        memcpy(bad, whole, n);
        bad[i] ^= 0x40;
        put_file(bad, n);
        check_refused(99, "");
        put_file(whole, i);
        check_refused(99, "");
    }
    memcpy(bad, whole, n);
    bad[n] = 0;
    put_file(bad, n + 1);
    check_refused(99, "damaged");
    assert_int_equal(truncate(path, (off_t)1 << 43), 0); /* no memory is taken for it */
    check_refused(99, "longer than its state");
}

TEST(others_files_are_refused)
{
    char other[4200];
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
        snprintf(other, sizeof other, "%s/" GW_STATE_FILE, folder, (unsigned long long)s.step, s.rank, s.workers);
        assert_int_equal(rename(other, path), 0);
        check_refused(99, "belongs to another run");
    }
    unlink(path);
    check_refused(99, "cannot be opened");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_comes_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_head_stays_as_it_is, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(damage_is_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(others_files_are_refused, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
