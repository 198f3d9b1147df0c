/* Tests what members of a measurement tell each other: how rank 0 joins their reports, and which messages are none. One
 * thread plays all members. */
#include "link/calls.h"
#include "probe/meeting.h"

#include "checks.h"

#include <string.h>

enum { MEMBERS = 3, REPORT_BYTES = sizeof(struct gw_report) };

static gw_link links[MEMBERS];

static int make_links(void **state)
{
    (void)state;
    return gw_link_local_create(NULL, MEMBERS, links) == GW_OK ? 0 : -1;
}

static int end_links(void **state)
{
    (void)state;
    for (int r = 0; r < MEMBERS; r++)
        gw_link_destroy(&links[r]);
    return 0;
}

static void give(uint32_t from, uint32_t to, const void *bytes, size_t n_bytes)
{
    void *message = gw_message_alloc(NULL, n_bytes);
    assert_non_null(message);
    memcpy(message, bytes, n_bytes);
    assert_int_equal(gw_link_send(&links[from], to, message, n_bytes, 1000), GW_OK);
}

static void check_got(uint32_t rank, const void *bytes, size_t n_bytes)
{
    gw_message message;
    assert_int_equal(gw_link_recv(&links[rank], 1000, &message), GW_OK);
    assert_int_equal(message.n_bytes, n_bytes);
    assert_memory_equal(message.bytes, bytes, n_bytes);
    gw_message_free(message.bytes);
}

TEST_BETWEEN(reports_are_joined, make_links, end_links)
{
    const struct gw_report own = {2, 30, 0.25, 1, 20, 300, 7, 5, 0}, other = {3, 10, 0.5, 4, 50, 600, 7, 6, 0},
                           third = {1, 20, 0, 8, 80, 900, 7, 9, 0}, right = {3, 30, 0.5, 13, 150, 1800, 7, 5, 0};
    struct gw_meeting meeting = {.link = links[0], .timeout_ms = 1000};
    struct gw_report sum;
    give(2, 0, &third, sizeof third);
    give(1, 0, &other, sizeof other);
    assert_int_equal(gw_meet(&meeting, &own, &sum), GW_OK);
    assert_memory_equal(&sum, &right, sizeof right);
    check_got(1, &right, sizeof right);
    check_got(2, &right, sizeof right);
    for (uint32_t what = 0; what < 2; what++) { /* another hash; and a member that wishes to stop */
        struct gw_report odd = other;
        odd.hash += what == 0;
        odd.stop = what == 1;
        give(1, 0, &odd, sizeof odd);
        give(2, 0, &third, sizeof third);
        assert_int_equal(gw_meet(&meeting, &own, &sum), what == 0 ? GW_OK : GW_ERR_CLOSED);
        assert_true(sum.hash == (what == 0 ? 0 : 7) && meeting.stopped == (what == 1));
        check_got(1, &sum, sizeof sum);
        check_got(2, &sum, sizeof sum);
    }
}

TEST_BETWEEN(all_get_what_rank_0_tells, make_links, end_links)
{
    double told[3] = {1, 2, 3}, got[3] = {0};
    const struct gw_meeting first = {.link = links[0], .timeout_ms = 1000},
                            last = {.link = links[2], .timeout_ms = 1000};
    assert_int_equal(gw_meeting_tell(&first, told, sizeof told), GW_OK);
    check_got(1, told, sizeof told);
    give(0, 2, "", 1); /* a sign of life is no answer */
    assert_int_equal(gw_meeting_tell(&last, got, sizeof got), GW_OK);
    assert_memory_equal(got, told, sizeof told);
}

TEST(messages_that_are_no_reports)
{
    static const struct {
        uint32_t from, to;
        size_t n_bytes;
        const char *says;
    } cases[] = {{1, 0, 1, "rank 1 sent a report of 1 bytes, and must send 72: it is another version"},
                 {2, 0, REPORT_BYTES - 1, "rank 2 sent a report of 71 bytes, and must send 72"},
                 {2, 0, REPORT_BYTES + 1, "rank 2 sent a report of 73 bytes, and must send 72"},
                 {0, 1, REPORT_BYTES - 1, "rank 0 sent a report of 71 bytes, and must send 72"},
                 {0, 1, REPORT_BYTES + 1, "rank 0 sent a report of 73 bytes, and must send 72"},
                 {1, 0, REPORT_BYTES, "rank 1 reported twice: it is another version"}};
    static const char bytes[REPORT_BYTES + 1];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gw_meeting meeting = {.timeout_ms = 1000};
        const struct gw_report own = {0};
        struct gw_report sum;
        assert_int_equal(make_links(NULL), 0);
        meeting.link = links[cases[i].to];
        give(cases[i].from, cases[i].to, bytes, cases[i].n_bytes);
        give(cases[i].from, cases[i].to, bytes, cases[i].n_bytes);
        CHECK(gw_meet(&meeting, &own, &sum) == GW_ERR_PEER && strstr(gw_last_error(), cases[i].says), "%s: %s",
              cases[i].says, gw_last_error());
        end_links(NULL);
    }
}

RUN_TESTS("probe meeting", NULL, NULL)
