/* Tests exchanges between the processes that mpiexec started, over the public headers.
 *
 * exchange_mpi         the averages are those of as many threads over the local link, bit for bit, and the number of
 *                      bytes sent is the same
 * exchange_mpi fail    what the others hear if one gives up, or cannot make its link
 * exchange_mpi leave   one leaves before or long after the others, and what was sent to it has not been taken
 * exchange_mpi world   ranks in another order than MPI's, by processes that have not started MPI; ranks that do not fit
 * exchange_mpi late    a rank does not come to the meeting of those that have not started MPI
 * exchange_mpi once L  the average in one call, of MPI with thread level L (single, funneled, serialized): it takes the
 *                      place of MPI_Allreduce in programs that begin with plain MPI_Init
 */
#include "examples.h"
#include "link/mpi/world.h"

#include <gradwire/gradwire.h>
#include <gradwire/link_mpi.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 4, TENSORS = 6, MOST_RANKS = 16 };

/* A small network: two long layers with their biases, a layer of a single element, and one of none. */
static const uint64_t sizes[TENSORS] = {30000, 64, 75000, 10, 1, 0};

struct member {
    const char *spec;
    const char *fails; /* after its steps, for this reason; NULL: it does not */
    gw_link link;
    pthread_t thread;
    gw_status status;
    char sentence[512];
    uint64_t averages, bytes; /* hashes of the results */
};

static void hash(uint64_t *h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *h = (*h ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u; /* FNV-1a */
}

/* A gradient. It is bell-shaped, and each rank, step and tensor has another one. */
static void fill(float *g, uint32_t rank, uint32_t step, uint32_t tensor)
{
    uint64_t x = rank * 0x9E3779B97F4A7C15u ^ step * 0xBF58476D1CE4E5B9u ^ (tensor + 1) * 0x94D049BB133111EBu;
    for (uint64_t i = 0; i < sizes[tensor]; i++) {
        int32_t sum = 0;
        for (int k = 0; k < 4; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            sum += (int32_t)(x >> 40) - (1 << 23);
        }
        g[i] = (float)sum * 1e-9f;
    }
}

static gw_status steps(gw_context *context, struct member *m, gw_codec *codec, uint32_t n_steps)
{
    gw_tensor tensors[TENSORS];
    float *gradients[TENSORS];
    for (uint32_t t = 0; t < TENSORS; t++) {
        tensors[t] = (gw_tensor){.id = t, .n_elems = sizes[t], .last_layer = t + 1 == TENSORS};
        gradients[t] = malloc((sizes[t] + 1) * sizeof(float));
    }
    gw_exchange_options options = {.struct_bytes = sizeof options,
                                   .codec = codec,
                                   .tensors = tensors,
                                   .n_tensors = TENSORS,
                                   .link = m->link,
                                   .seed = 3};
    gw_exchange *exchange = NULL;
    gw_status status = gw_exchange_create(context, &options, &exchange);
    for (uint32_t step = 0; step < n_steps && status == GW_OK; step++) {
        gw_step_result result = {0};
        status = gw_exchange_begin(exchange, step);
        for (uint32_t t = TENSORS; t-- > 0 && status == GW_OK;) {
            fill(gradients[t], m->link.rank, step, t);
            status = gw_exchange_submit(exchange, t, gradients[t]);
        }
        if (status == GW_OK)
            status = gw_exchange_wait(exchange, &result);
        for (uint32_t t = 0; t < TENSORS; t++)
            hash(&m->averages, gradients[t], sizes[t] * sizeof(float));
        hash(&m->bytes, &result.committed, sizeof result.committed);
        hash(&m->bytes, &result.bytes_up, sizeof result.bytes_up);
        hash(&m->bytes, &result.bytes_down, sizeof result.bytes_down);
    }
    if (status < 0)
        snprintf(m->sentence, sizeof m->sentence, "%s", gw_last_error());
    if (m->fails)
        gw_link_fail(&m->link, GW_ERR_SYSTEM, m->fails);
    gw_exchange_destroy(exchange);
    for (uint32_t t = 0; t < TENSORS; t++)
        free(gradients[t]);
    return status;
}

static void *run(void *argument)
{
    struct member *m = argument;
    gw_codec *codec = NULL;
    m->averages = m->bytes = 0xCBF29CE484222325u;
    m->status = gw_codec_parse(NULL, m->spec, &codec);
    if (m->status == GW_OK)
        m->status = steps(NULL, m, codec, STEPS);
    else
        snprintf(m->sentence, sizeof m->sentence, "%s", gw_last_error());
    gw_codec_destroy(codec);
    return NULL;
}

/* Does the same between threads of this process. */
static void run_locally(const char *spec, struct member *members, uint32_t n)
{
    gw_link links[MOST_RANKS];
    if (gw_link_local_create(NULL, n, links) < 0)
        abort();
    for (uint32_t r = 0; r < n; r++) {
        members[r] = (struct member){.spec = spec, .link = links[r]};
        if (pthread_create(&members[r].thread, NULL, run, &members[r]))
            abort();
    }
    for (uint32_t r = 0; r < n; r++)
        pthread_join(members[r].thread, NULL);
    for (uint32_t r = 0; r < n; r++)
        gw_link_destroy(&links[r]);
}

/* Compares what rank r saw over MPI with what member r of the local link saw. */
static int compare(const char *spec, const struct member *r, const struct member *local, uint32_t rank)
{
    if (r->status < 0 || local->status < 0)
        printf("%s, rank %u: %s%s\n", spec, rank, r->sentence, local->sentence);
    else if (r->averages != local->averages)
        printf("%s, rank %u: averages %016llx, and over the local link %016llx\n", spec, rank,
               (unsigned long long)r->averages, (unsigned long long)local->averages);
    else if (r->bytes != local->bytes)
        printf("%s, rank %u: other numbers of bytes than over the local link\n", spec, rank);
    else
        return 0;
    return 1;
}

static int averages_are_equal(uint32_t rank, uint32_t n)
{
    uint32_t n_specs = 0;
    int failed = 0;
    while (example(n_specs))
        n_specs++;
    struct member *mine = calloc(n_specs, sizeof *mine), *all = calloc((size_t)n * n_specs, sizeof *all);
    const int bytes = (int)(n_specs * sizeof *mine);
    for (uint32_t s = 0; s < n_specs; s++) {
        mine[s].spec = example(s);
        if (gw_link_mpi_create(NULL, MPI_COMM_WORLD, &mine[s].link) < 0) {
            printf("rank %u: %s\n", rank, gw_last_error());
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        run(&mine[s]);
        gw_link_destroy(&mine[s].link);
    }
    MPI_Gather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (uint32_t s = 0; s < n_specs && rank == 0; s++) {
        struct member local[MOST_RANKS];
        run_locally(example(s), local, n);
        for (uint32_t r = 0; r < n; r++) {
            failed += compare(example(s), &all[r * n_specs + s], &local[r], r);
            failed += local[r].averages != local[0].averages;
        }
        printf("%-32s %016llx\n", example(s), (unsigned long long)local[0].averages);
    }
    free(mine);
    free(all);
    return failed;
}

static int expect(uint32_t rank, gw_status status, gw_status want, const char *sentence, const char *part)
{
    if (status == want && strstr(sentence, part))
        return 0;
    printf("rank %u: status %d (%s), and %d with '%s' expected\n", rank, status, sentence, want, part);
    return 1;
}

static void *no_memory(size_t bytes, void *user)
{
    (void)bytes, (void)user;
    return NULL;
}

static void give_back(void *memory, void *user)
{
    (void)user;
    free(memory);
}

static void *first_only(size_t bytes, void *user)
{
    int *left = user;
    return (*left)-- > 0 ? malloc(bytes) : no_memory(bytes, user);
}

/* The last rank fails in the second step of an exchange. Then it alone has no memory for a link. */
static int failures_are_heard(uint32_t rank, uint32_t n)
{
    struct member m = {.spec = "ternary", .fails = rank == n - 1 ? "the roof came down" : NULL};
    gw_codec *codec;
    int failed = 0, left = 1; /* left: the context itself is one block */
    char part[64];
    if (gw_codec_parse(NULL, m.spec, &codec) < 0 || gw_link_mpi_create(NULL, MPI_COMM_WORLD, &m.link) < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    gw_status status = steps(NULL, &m, codec, rank == n - 1 ? 1 : 2);
    snprintf(part, sizeof part, "rank %u failed: the roof came down", n - 1);
    if (rank != n - 1)
        failed += expect(rank, status, GW_ERR_PEER, m.sentence, part);
    gw_link_destroy(&m.link);
    gw_codec_destroy(codec);

    gw_context *context = NULL;
    gw_allocator allocator = {first_only, give_back, &left};
    gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator};
    if (rank == n - 1 && gw_context_create(&options, &context) < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    status = gw_link_mpi_create(context, MPI_COMM_WORLD, &m.link);
    snprintf(part, sizeof part, rank == n - 1 ? "no memory" : "rank %u could not make its end", n - 1);
    failed += expect(rank, status, rank == n - 1 ? GW_ERR_MEMORY : GW_ERR_PEER, gw_last_error(), part);
    gw_context_destroy(context);
    return failed;
}

static int live; /* blocks of counting_context() that were not given back */

static void *count_alloc(size_t bytes, void *user)
{
    (void)user;
    __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
    return malloc(bytes);
}

static void count_free(void *memory, void *user)
{
    (void)user;
    __atomic_sub_fetch(&live, memory ? 1 : 0, __ATOMIC_RELAXED);
    free(memory);
}

/* Sends a message of n_bytes bytes, all with this value. */
static int send_filled(gw_context *context, gw_link link, uint32_t to, size_t n_bytes, int value)
{
    char *bytes = gw_message_alloc(context, n_bytes);
    memset(bytes, value, n_bytes);
    return link.ops->send(link.self, to, bytes, n_bytes, 60000) < 0;
}

/* Takes a message. Ranks that have all they need are gone meanwhile. */
static gw_status take(gw_link link, gw_message *message)
{
    gw_status status;
    do
        status = link.ops->recv(link.self, 60000, message);
    while (status == GW_ERR_PEER);
    return status;
}

static int expect_filled(gw_link link, size_t n_bytes, int value)
{
    gw_message message;
    if (take(link, &message) < 0)
        return 1;
    const char *bytes = message.bytes;
    int failed = message.n_bytes != n_bytes || bytes[0] != value || bytes[n_bytes - 1] != value;
    gw_message_free(message.bytes);
    return failed;
}

/* Takes a large message and then a small one from every other rank, and answers. */
static int answer(gw_context *context, gw_link link, size_t large, size_t small)
{
    int failed = 0, heard[MOST_RANKS] = {0};
    gw_message message;
    for (uint32_t i = 0; i < 2 * (link.size - 1); i++) {
        if (take(link, &message) < 0)
            return 1;
        int nth = heard[message.from]++;
        failed += message.n_bytes != (nth ? small : large) || *(char *)message.bytes != 3 + nth;
        gw_message_free(message.bytes);
        if (nth)
            failed += send_filled(context, link, message.from, small, 9);
    }
    return failed;
}

/* Every rank sends the last one a message that MPI does not take over at once. The last rank leaves without taking it:
 * first together with the others, and then after they have given up. Then all goes well over a third link, which hears
 * nothing of the other two. */
static int leaving_does_no_harm(uint32_t rank, uint32_t n)
{
    const size_t large = 20u << 20, small = 8;
    const bool last = rank == n - 1;
    int failed = 0;
    gw_allocator allocator = {count_alloc, count_free, NULL};
    gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator};
    gw_context *context;
    if (gw_context_create(&options, &context) < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int round = 1; round <= 3; round++) {
        gw_link link;
        int before = live;
        if (gw_link_mpi_create(context, MPI_COMM_WORLD, &link) < 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        if (!last) {
            failed += send_filled(context, link, n - 1, large, round);
            failed += send_filled(context, link, n - 1, small, round + 1);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (last && round == 2) {
            struct timespec pause = {3, 0};
            nanosleep(&pause, NULL);
        }
        if (round == 3)
            failed += last ? answer(context, link, large, small) : expect_filled(link, small, 9);
        const double begin = MPI_Wtime();
        gw_link_destroy(&link);
        /* After 2 s it leaves to MPI what MPI still sends. On a busy machine the last rank may be later than that. */
        if (MPI_Wtime() - begin < 2 && live != before)
            failed += printf("rank %u, round %d: %d blocks were not given back\n", rank, round, live - before) > 0;
    }
    return failed;
}

/* The caller gives the member's number. Here it is the reverse of MPI's. */
static int ranks_are_the_callers(uint32_t rank, uint32_t n)
{
    int failed = 0;
    char address[64];
    gw_link link;
    struct member m = {.spec = "ternary"}, local[MOST_RANKS];
    failed += expect(rank, gw_link_mpi_world(NULL, rank, n + 1, &link), GW_ERR_ARGUMENT, gw_last_error(),
                     "start all of it with one mpirun or srun");
    failed += expect(rank, gw_link_mpi_world(NULL, rank == 0 ? 0 : rank - 1, n, &link), GW_ERR_ARGUMENT,
                     gw_last_error(), "two processes say the same rank");
    failed += expect(rank, gw_link_mpi_world(NULL, rank == 0 ? UINT32_MAX : rank, n, &link), GW_ERR_ARGUMENT,
                     gw_last_error(), "or one says none of the job");
    snprintf(address, sizeof address, "mpi:?rank=%u&size=%u", n - 1 - rank, n);
    if (gw_link_open(NULL, address, NULL, 1, &m.link) < 0) {
        printf("rank %u: %s\n", rank, gw_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    failed += m.link.rank != n - 1 - rank || m.link.size != n;
    run(&m);
    gw_link_destroy(&m.link);
    run_locally(m.spec, local, n);
    return failed + compare(m.spec, &m, &local[n - 1 - rank], rank);
}

/* ---- one call at every thread level ---------------------------------------------------------------------------- */

static pthread_t once_thread; /* the thread that calls gw_average_mpi */
static atomic_uint once_sends, once_elsewhere;

/* Takes the place of MPI's own function, which has another name, too. It counts the calls on other threads. */
GW_API int MPI_Isend(const void *bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                     MPI_Request *request)
{
    atomic_fetch_add(&once_sends, 1);
    atomic_fetch_add(&once_elsewhere, !pthread_equal(once_thread, pthread_self()));
    return PMPI_Isend(bytes, count, type, to, tag, comm, request);
}

/* Averages a gradient. Returns the status, or 99 if the averages are not right. */
static int average_once(uint32_t rank, uint32_t n)
{
    float values[] = {(float)rank, 3, (float)(rank * 2)}, all;
    const gw_status status = gw_average_mpi(NULL, "none", MPI_COMM_WORLD, 1, values, 3, NULL);
    if (status < 0)
        printf("rank %u: %s\n", rank, gw_last_error());
    all = (float)(n * (n - 1) / 2) / (float)n; /* small whole numbers, so nothing is rounded but the quotient */
    return status < 0 ? (int)status : values[0] == all && values[1] == 3 && values[2] == 2 * all ? 0 : 99;
}

static void *once_on_a_thread(void *ranks)
{
    const uint32_t *of = ranks;
    once_thread = pthread_self();
    return (void *)(intptr_t)average_once(of[0], of[1]);
}

static int main_once(const char *level)
{
    int rank, n, granted = MPI_THREAD_SINGLE, failed, sum = 0;
    const bool serialized = !strcmp(level, "serialized");
    if (!strcmp(level, "single"))
        MPI_Init(NULL, NULL);
    else
        MPI_Init_thread(NULL, NULL, serialized ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED, &granted);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    uint32_t ranks[] = {(uint32_t)rank, (uint32_t)n};
    once_thread = pthread_self();
    failed = average_once(ranks[0], ranks[1]) != 0;
    failed += average_once(ranks[0], ranks[1]) != 0;
    pthread_t thread;
    void *status;
    if (pthread_create(&thread, NULL, once_on_a_thread, ranks))
        MPI_Abort(MPI_COMM_WORLD, 1);
    pthread_join(thread, &status);
    failed += (intptr_t)status != (granted < MPI_THREAD_SERIALIZED ? GW_ERR_UNSUPPORTED : 0);
    failed += atomic_load(&once_sends) == 0 || atomic_load(&once_elsewhere) > 0;
    MPI_Reduce(&failed, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return sum != 0;
}

static bool hurry; /* nobody sleeps; MPI's clock goes on by a second instead */
static double hurried;

/* These two take the place of libc's and MPI's own, also in the library of the mpi link. */
GW_API int nanosleep(const struct timespec *time, struct timespec *left)
{
    hurried += hurry;
    return hurry ? 0 : clock_nanosleep(CLOCK_REALTIME, 0, time, left);
}

GW_API double MPI_Wtime(void)
{
    return PMPI_Wtime() + hurried;
}

/* Rank 0 starts MPI, and comes to the meeting only after the others have waited for it in vain. */
static int main_late(void)
{
    const char *openmpi = getenv("OMPI_COMM_WORLD_RANK"), *mpich = getenv("PMI_RANK");
    int rank = atoi(openmpi ? openmpi : mpich ? mpich : "0"), n = 1, granted, failed = 0, sum = 0;
    gw_link link;
    MPI_Request met;
    hurry = true;
    if (rank > 0) {
        const time_t begin = time(NULL); /* MPI has no clock before it begins */
        failed = expect((uint32_t)rank, gw_link_mpi_world(NULL, 0, 0, &link), GW_ERR_TIMEOUT, gw_last_error(),
                        "not all ranks of MPI came within 60 s");
        failed += hurried + difftime(time(NULL), begin) < 59;
        failed += expect((uint32_t)rank, gw_link_open(NULL, "mpi:", NULL, 1, &link), GW_ERR_TIMEOUT, gw_last_error(),
                         "not all ranks of MPI came within 60 s"); /* at once: MPI would wait for ever */
        MPI_Send(&failed, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    } else {
        MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &granted);
        MPI_Comm_size(MPI_COMM_WORLD, &n);
        for (int i = 1; i < n; i++) {
            MPI_Recv(&failed, 1, MPI_INT, i, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            sum += failed;
        }
        MPI_Ibarrier(MPI_COMM_WORLD, &met);
        MPI_Wait(&met, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* MPICH's MPI_Finalize does not end the meeting that the others have given up */
    MPI_Finalize();
    return sum != 0 || failed != 0;
}

/* Nobody has started MPI. The first call starts it, and tells the ranks. The last one ends it. */
static int main_without_mpi(void)
{
    int begun = 1, rank, n, failed, sum = 0, over = 0;
    gw_link_mpi_end(1); /* there is nothing to end */
    MPI_Initialized(&begun);
    gw_link link;
    failed = begun || gw_link_open(NULL, "mpi:", NULL, 1, &link) != GW_OK;
    if (failed)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    failed += link.rank != (uint32_t)rank || link.size != (uint32_t)n;
    gw_link_destroy(&link);
    failed += ranks_are_the_callers((uint32_t)rank, (uint32_t)n);
    MPI_Reduce(&failed, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    gw_link_mpi_end(0);
    MPI_Finalized(&over);
    return sum != 0 || !over;
}

int main(int argc, char **argv)
{
    int granted, rank, n, failed, sum = 0;
    if (argc > 1 && !strcmp(argv[1], "world"))
        return main_without_mpi();
    if (argc > 1 && !strcmp(argv[1], "late"))
        return main_late();
    if (argc > 2 && !strcmp(argv[1], "once"))
        return main_once(argv[2]);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (n > MOST_RANKS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (argc > 1 && !strcmp(argv[1], "fail"))
        failed = failures_are_heard((uint32_t)rank, (uint32_t)n);
    else if (argc > 1 && !strcmp(argv[1], "leave"))
        failed = leaving_does_no_harm((uint32_t)rank, (uint32_t)n);
    else
        failed = averages_are_equal((uint32_t)rank, (uint32_t)n);
    MPI_Reduce(&failed, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return sum != 0;
}
