/* Tests runs of three processes in which one link breaks between two of them. All end and name the same
 * cause, so none has waited until its timeout. Here a process is a thread with a team of its own. */
#include "checks.h"
#include "members/members.h"
#include "run/train.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { N = 3, MOST_LINKS = 4, SENDS = 6 };

static gw_link made[MOST_LINKS][N];
static uint32_t broken; /* this link breaks between ranks 0 and 1, after SENDS messages of rank 1 to rank 0 */
static atomic_uint n_sent, n_used; /* n_used: kinds of links */
static atomic_bool reported;       /* rank 0 has heard of it */

static gw_status breaking_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    gw_link *link = self;
    if (to + link->rank != 1 || (to == 0 ? atomic_fetch_add(&n_sent, 1) < SENDS : atomic_load(&n_sent) <= SENDS))
        return link->ops->send(link->self, to, bytes, n_bytes, timeout_ms);
    gw_message_free(bytes);
    return gw_fail(GW_ERR_PEER, "rank %u lost its connection to rank %u", to, link->rank);
}

static gw_status breaking_recv(void *self, uint32_t timeout_ms, gw_message *message)
{
    gw_link *link = self;
    for (;;) {
        const uint32_t once = link->rank == 0 && timeout_ms > 10 ? 10 : timeout_ms;
        const gw_status status = link->ops->recv(link->self, once, message);
        const bool quiet = status == GW_ERR_TIMEOUT || (status == GW_ERR_PEER && message->from == 1);
        if (quiet && link->rank == 0 && atomic_load(&n_sent) > SENDS && !atomic_exchange(&reported, true)) {
            message->from = 1;
            return gw_fail(GW_ERR_PEER, "rank 1 lost its connection to rank 0");
        }
        if (status != GW_ERR_TIMEOUT || once == timeout_ms)
            return status;
        timeout_ms -= once;
    }
}

static void breaking_close(void *self)
{
    gw_link *link = self;
    link->ops->close(link->self);
}

static void breaking_destroy(void *self)
{
    gw_link *link = self;
    gw_link_destroy(link);
}

static gw_status open_links(gw_context *context, const struct gw_link_request *request, uint32_t n_links,
                            gw_link *links)
{
    static const gw_link_ops breaking = {.name = "breaking",
                                         .send = breaking_send,
                                         .recv = breaking_recv,
                                         .close = breaking_close,
                                         .destroy = breaking_destroy};
    (void)context;
    atomic_store(&n_used, n_links);
    for (uint32_t k = 0; k < n_links; k++) {
        links[k] = made[k][request->rank];
        if (k == broken && request->rank < 2)
            links[k].ops = &breaking, links[k].self = &made[k][request->rank];
    }
    return GW_OK;
}

struct process {
    pthread_t thread;
    uint32_t rank;
    gw_status status;
    char sentence[400];
};

static void *train(void *argument)
{
    static const struct gw_link_scheme scheme = {.name = "breaking", .ranks = GW_LINK_RANKS_TOLD, .open = open_links};
    struct process *p = argument;
    struct gw_members members = {
        .scheme = &scheme, .size = N, .first = p->rank, .count = 1, .request = {.rank = p->rank}};
    struct gw_train_options o = GW_TRAIN_DEFAULTS;
    struct gw_train_summary summary;
    o.net = "mlp:784-32-10", o.steps = 60, o.batch = 50, o.members = &members;
    p->status = gw_train_run(&o, NULL, &summary);
    snprintf(p->sentence, sizeof p->sentence, "%s", gw_last_error());
    return NULL;
}

TEST(all_hear_of_a_link_that_breaks)
{
    for (broken = 0; broken < 2; broken++) { /* the gradients' link, and the control link */
        struct process processes[N];
        atomic_store(&n_sent, 0);
        atomic_store(&reported, false);
        for (uint32_t k = 0; k < MOST_LINKS; k++)
            assert_int_equal(gw_link_local_create(NULL, N, made[k]), GW_OK);
        for (uint32_t r = 0; r < N; r++) {
            processes[r] = (struct process){.rank = r};
            assert_int_equal(pthread_create(&processes[r].thread, NULL, train, &processes[r]), 0);
        }
        for (uint32_t r = 0; r < N; r++)
            pthread_join(processes[r].thread, NULL);
        for (uint32_t r = 0; r < N; r++)
            CHECK(processes[r].status == GW_ERR_PEER &&
                      (!strcmp(processes[r].sentence, "rank 0 lost its connection to rank 1") ||
                       !strcmp(processes[r].sentence, "rank 1 lost its connection to rank 0")),
                  "link %u, rank %u: %d, \"%s\"", broken, r, processes[r].status, processes[r].sentence);
        for (uint32_t k = atomic_load(&n_used); k < MOST_LINKS; k++)
            for (uint32_t r = 0; r < N; r++)
                gw_link_destroy(&made[k][r]);
    }
}

RUN_TESTS("broken link", NULL, NULL)
