/* Tests the mpi link against what every link must do, and what it alone must do. All ranks live in one MPI process, so
 * no mpiexec is needed; their messages go through MPI all the same.
 *
 * "mpi_test funneled" tests an MPI that grants less than the link needs. That needs a process of its own. */
#include "link_conformance.h"

#include "link/mpi/hub.h"

#include <gradwire/link_mpi.h>

static gw_status open_all(gw_context *context, uint32_t size, gw_link *links)
{
    return gw_mpi_open(context, MPI_COMM_WORLD, size, GW_MPI_LARGEST_COUNT, false, links);
}

/* ---- around MPI's own life ---------------------------------------------------------------------------------- */

TEST(not_initialised)
{
    gw_link link;
    assert_int_equal(gw_link_mpi_create(NULL, MPI_COMM_WORLD, &link), GW_ERR_ORDER);
    assert_non_null(strstr(gw_last_error(), "before MPI_Init_thread"));
}

TEST(too_low_a_thread_level)
{
    gw_link link;
    assert_int_equal(gw_link_mpi_create(NULL, MPI_COMM_WORLD, &link), GW_ERR_UNSUPPORTED);
    assert_non_null(strstr(gw_last_error(), "MPI_Init_thread"));
}

/* Ends MPI while a link has messages that nobody has taken. */
TEST(finalised)
{
    gw_context *context = link_test_context();
    gw_link links[2], late;
    gw_message message;
    assert_int_equal(open_all(context, 2, links), GW_OK);
    link_test_send(context, &links[0], 1, 5u << 20, 1, 1);
    link_test_send(context, &links[0], 0, 100, 1, 1);
    MPI_Finalize();
    link_test_expect(&links[0], 0, 100, 1, 1);
    assert_int_equal(link_test_recv(&links[1], LINK_LONG_MS, &message), GW_ERR_CLOSED);
    assert_non_null(strstr(gw_last_error(), "MPI_Finalize"));
    void *bytes = gw_message_alloc(context, 8);
    assert_int_equal(links[0].ops->send(links[0].self, 1, bytes, 8, LINK_LONG_MS), GW_ERR_CLOSED);
    assert_int_equal(gw_link_mpi_create(context, MPI_COMM_WORLD, &late), GW_ERR_ORDER);
    assert_non_null(strstr(gw_last_error(), "after MPI_Finalize"));
    link_test_end(context, links, 2);
}

/* ---- creating ------------------------------------------------------------------------------------------------ */

TEST(one_rank_of_a_communicator)
{
    gw_context *context = link_test_context();
    gw_link link;
    assert_int_equal(gw_link_mpi_create(context, MPI_COMM_WORLD, &link), GW_OK);
    assert_int_equal(link.rank, 0);
    assert_int_equal(link.size, 1);
    assert_non_null(link.machine_of);
    assert_int_equal(link.machine_of[0], 0);
    link_test_send(context, &link, 0, 40, 3, 4);
    link_test_expect(&link, 0, 40, 3, 4);
    void *bytes = gw_message_alloc(context, 8);
    assert_int_equal(link.ops->send_all(link.self, bytes, 8, LINK_LONG_MS), GW_OK); /* there is nobody to send to */
    link_test_end(context, &link, 1);

    assert_int_equal(gw_link_mpi_create(context = link_test_context(), MPI_COMM_NULL, &link), GW_ERR_ARGUMENT);
    assert_int_equal(gw_link_mpi_create(context, MPI_COMM_WORLD, NULL), GW_ERR_ARGUMENT);
    gw_context_destroy(context);
}

/* ---- memory that fails ----------------------------------------------------------------------------------------- */

TEST(creation_survives_lack_of_memory)
{
    struct shortage shortage = {.for_good = true};
    gw_context *context = context_short_of(&shortage, 1);
    const int before = shortage.live;
    int n = 0;
    gw_status status = GW_ERR_MEMORY;
    gw_link links[2];
    while (status == GW_ERR_MEMORY) {
        assert_int_equal(shortage.live, before);
        fail_nth(&shortage, ++n);
        status = open_all(context, 2, links);
    }
    assert_int_equal(status, GW_OK);
    assert_true(n > 7);
    fail_nth(&shortage, 0); /* messages that come in while it leaves take memory, too */
    link_test_end(context, links, 2);
    assert_int_equal(shortage.live, 0);
}

TEST(messages_survive_lack_of_memory)
{
    struct shortage shortage = {.for_good = true};
    gw_context *context = context_short_of(&shortage, 1);
    gw_link links[2];
    gw_message message;
    assert_int_equal(open_all(context, 2, links), GW_OK);
    void *bytes = link_test_message(context, 50, 1, 2);
    fail_nth(&shortage, 1);
    assert_int_equal(links[0].ops->send(links[0].self, 1, bytes, 50, LINK_LONG_MS), GW_ERR_MEMORY);
    fail_nth(&shortage, 0);
    link_test_send(context, &links[0], 1, 50, 3, 4);
    link_test_send(context, &links[0], 1, 60, 5, 6);
    link_test_expect(&links[1], 0, 50, 3, 4); /* if MPI was quick, the second send has already taken this message in */
    for (int n = 1; n < 3; n++) {
        fail_nth(&shortage, n);
        assert_int_equal(link_test_recv(&links[1], LINK_LONG_MS, &message), GW_ERR_MEMORY);
    }
    /* These failures have lost no message. Nor does the end need memory to tell of itself. */
    fail_nth(&shortage, 0);
    link_test_expect(&links[1], 0, 60, 5, 6);
    fail_nth(&shortage, 1);
    links[0].ops->close(links[0].self);
    fail_nth(&shortage, 0);
    assert_int_equal(link_test_recv(&links[1], LINK_LONG_MS, &message), GW_ERR_PEER);
    assert_string_equal(gw_last_error(), "rank 0 left the link");
    link_test_end(context, links, 2);
    assert_int_equal(shortage.live, 0);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

/* Messages of more than 1 GiB go in blocks. The test lowers that limit, so that small messages go in blocks. */
TEST(large_messages_go_in_blocks)
{
    static const size_t sizes[] = {999, 1000, 1001, 1999, 2000, 2001, 12345, 1u << 20, 5u << 20};
    const uint32_t n = sizeof sizes / sizeof sizes[0];
    gw_context *context = link_test_context();
    gw_link links[2];
    assert_int_equal(gw_mpi_open(context, MPI_COMM_WORLD, 2, 1000, false, links), GW_OK);
    for (uint32_t i = 0; i < n; i++)
        link_test_send(context, &links[0], 1, sizes[i], i, 1);
    for (uint32_t i = 0; i < n; i++)
        link_test_expect(&links[1], 0, sizes[i], i, 1);
    link_test_end(context, links, 2);
}

TEST(one_message_to_all)
{
    gw_context *context = link_test_context();
    gw_link links[4];
    assert_int_equal(open_all(context, 4, links), GW_OK);
    const size_t sizes[] = {0, 24, 3u << 20};
    for (uint32_t i = 0; i < 3; i++) {
        const int before = link_test_memory.live;
        void *bytes = link_test_message(context, sizes[i], i, 9);
        assert_int_equal(links[2].ops->send_all(links[2].self, bytes, sizes[i], LINK_LONG_MS), GW_OK);
        /* There is memory for one message and its record. That of the last message may be freed already. */
        assert_true(link_test_memory.live <= before + 2);
        for (uint32_t r = 0; r < 4; r++)
            if (r != 2)
                link_test_expect(&links[r], 2, sizes[i], i, 9);
    }
    links[1].ops->close(links[1].self);
    void *bytes = gw_message_alloc(context, 8);
    assert_int_equal(links[2].ops->send_all(links[2].self, bytes, 8, LINK_LONG_MS), GW_ERR_PEER);
    assert_string_equal(gw_last_error(), "rank 1 left the link");
    bytes = gw_message_alloc(context, 8);
    assert_int_equal(links[1].ops->send_all(links[1].self, bytes, 8, LINK_LONG_MS), GW_ERR_CLOSED);
    link_test_end(context, links, 4);
}

/* Links of the same communicator do not hear each other, nor the program's own messages. */
TEST(links_are_apart)
{
    gw_context *context = link_test_context();
    gw_link a[2], b[2];
    gw_message message;
    int number = 5, heard = 0;
    MPI_Request request;
    assert_int_equal(open_all(context, 2, a), GW_OK);
    assert_int_equal(open_all(context, 2, b), GW_OK);
    MPI_Isend(&number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request);
    link_test_send(context, &a[0], 1, 16, 1, 1);
    assert_int_equal(link_test_recv(&b[1], 5, &message), GW_ERR_TIMEOUT);
    link_test_expect(&a[1], 0, 16, 1, 1);
    assert_int_equal(link_test_recv(&a[1], 5, &message), GW_ERR_TIMEOUT);
    MPI_Recv(&heard, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    assert_int_equal(heard, 5);
    for (uint32_t r = 0; r < 2; r++)
        gw_link_destroy(&a[r]);
    link_test_end(context, b, 2);
}

int main(int argc, char **argv)
{
    const bool funneled = argc > 1 && !strcmp(argv[1], "funneled");
    const struct CMUnitTest before[] = {cmocka_unit_test(not_initialised)};
    const struct CMUnitTest low[] = {cmocka_unit_test(too_low_a_thread_level)};
    const struct CMUnitTest own[] = {
        cmocka_unit_test(one_rank_of_a_communicator),
        cmocka_unit_test(creation_survives_lack_of_memory),
        cmocka_unit_test(messages_survive_lack_of_memory),
        cmocka_unit_test(large_messages_go_in_blocks),
        cmocka_unit_test(one_message_to_all),
        cmocka_unit_test(links_are_apart),
    };
    const struct CMUnitTest after[] = {cmocka_unit_test(finalised)};
    const struct link_factory factory = {.name = "mpi", .create = open_all};

    int failed = cmocka_run_group_tests_name("before MPI_Init_thread", before, NULL, NULL), granted = 0;
    MPI_Init_thread(&argc, &argv, funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &granted);
    if (funneled) {
        if (granted == MPI_THREAD_MULTIPLE) {
            printf("skipped: this MPI grants MPI_THREAD_MULTIPLE whatever is asked for\n");
            MPI_Finalize();
            return 77;
        }
        failed += cmocka_run_group_tests_name("MPI_THREAD_FUNNELED", low, NULL, NULL);
        MPI_Finalize();
        return failed;
    }
    failed += link_conformance(&factory);
    failed += cmocka_run_group_tests_name("mpi alone", own, NULL, NULL);
    failed += cmocka_run_group_tests_name("MPI_Finalize", after, NULL, NULL); /* this ends MPI, so it comes last */
    return failed;
}
