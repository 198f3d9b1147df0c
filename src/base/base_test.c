/* Tests the ground floor: status and sentences, memory, contexts, threads, random numbers, the choice of the
 * processor's instruction set, float modes. */
#include "base/clock.h"
#include "base/context.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/float_env.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/quote.h"
#include "base/threads.h"
#include "checks.h"
#include "forks.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- threads ----------------------------------------------------------------------------------------- */

static void *get_mask(void *mask)
{
    pthread_sigmask(SIG_BLOCK, NULL, mask);
    return NULL;
}

TEST(threads_take_no_signals_of_the_program)
{
    pthread_t thread;
    sigset_t mask;
    assert_int_equal(gw_thread_start(&thread, get_mask, &mask), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR1));
    assert_false(sigismember(&mask, SIGSEGV) || sigismember(&mask, SIGPROF));
    get_mask(&mask);
    assert_false(sigismember(&mask, SIGINT));
}

/* ---- random numbers ---------------------------------------------------------------------------------- */

/* The known answers that Random123 publishes for Philox4x32-10. */
TEST(philox_gives_the_published_answers)
{
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t words[4];
        gw_philox(known[i].counter, (uint64_t)known[i].key[1] << 32 | known[i].key[0], words);
        assert_memory_equal(words, known[i].answer, sizeof words);
    }
}

TEST(counters_tell_every_use_apart)
{
    uint32_t counter[4];
    gw_philox_counter(counter, 11, 22, GW_PURPOSE_TERNARY_TIE, 0x7FFE, 44);
    const uint32_t expected[4] = {11, 22, 2u << 24 | 0x7FFE, 44};
    assert_memory_equal(counter, expected, sizeof counter);
}

/* ---- status ------------------------------------------------------------------------------------------ */

TEST(status_numbers_and_texts_are_fixed)
{
    /* Programs that use the library rely on these numbers. */
    assert_int_equal(GW_OK, 0);
    assert_int_equal(GW_ERR_ARGUMENT, -1);
    assert_int_equal(GW_ERR_SPEC, -2);
    assert_int_equal(GW_ERR_CAPACITY, -3);
    assert_int_equal(GW_ERR_ORDER, -4);
    assert_int_equal(GW_ERR_FRAME_CUT, -20);
    assert_int_equal(GW_ERR_FRAME_MAGIC, -21);
    assert_int_equal(GW_ERR_FRAME_VERSION, -22);
    assert_int_equal(GW_ERR_FRAME_CHECKSUM, -23);
    assert_int_equal(GW_ERR_FRAME_FIELD, -24);
    assert_int_equal(GW_ERR_FRAME_PAYLOAD, -25);
    assert_int_equal(GW_ERR_FRAME_MISMATCH, -26);
    assert_int_equal(GW_ERR_MEMORY, -40);
    assert_int_equal(GW_ERR_NONFINITE, -50);
    assert_int_equal(GW_ERR_TIMEOUT, -60);
    assert_int_equal(GW_ERR_PEER, -61);
    assert_int_equal(GW_ERR_CLOSED, -62);
    assert_int_equal(GW_ERR_SYSTEM, -80);
    assert_int_equal(GW_ERR_UNSUPPORTED, -81);

    static const gw_status all[] = {
#define STATUS_NAME(name, number, text) name,
        GW_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    };
    const size_t n = sizeof all / sizeof *all;
    for (size_t i = 0; i < n; i++) {
        assert_true(strlen(gw_status_text(all[i])) > 3);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(all[i], all[j]);
            assert_string_not_equal(gw_status_text(all[i]), gw_status_text(all[j]));
        }
    }
    assert_string_equal(gw_status_text(GW_OK), "success");
    assert_string_equal(gw_status_text((gw_status)-1000), "unknown status");
    assert_string_equal(gw_status_text((gw_status)1000), "unknown status");
}

static void *read_last_error(void *out)
{
    strcpy(out, gw_last_error());
    return NULL;
}

TEST(a_sentence_belongs_to_its_thread)
{
    assert_int_equal(gw_fail(GW_ERR_ORDER, "element %d of '%s'", 7, "conv1"), GW_ERR_ORDER);
    assert_string_equal(gw_last_error(), "element 7 of 'conv1'");
    char elsewhere[512] = "not asked";
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_last_error, elsewhere), 0);
    pthread_join(thread, NULL);
    assert_string_equal(elsewhere, "");
    assert_string_equal(gw_last_error(), "element 7 of 'conv1'");
}

TEST(a_sentence_may_be_built_on_the_last_and_is_never_cut_open)
{
    gw_fail(GW_ERR_ORDER, "inner");
    gw_fail(GW_ERR_ORDER, "outer (%s)", gw_last_error());
    assert_string_equal(gw_last_error(), "outer (inner)");
    char longest[2000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    gw_fail(GW_ERR_ORDER, "%s", longest);
    assert_int_equal(strlen(gw_last_error()), 511);
    assert_memory_equal(gw_last_error(), longest, 127);
    assert_non_null(strstr(gw_last_error(), "[...]"));
    longest[1998] = 0;
    for (size_t i = 0; i < 1998; i++)
        longest[i] = "\xe4\xb8\xad"[i % 3];
    for (int shift = 0; shift < 4; shift++) { /* the reason stays, and so does every character */
        gw_fail(GW_ERR_ORDER, "%.*s%s cannot be opened: %s", shift, "xxx", longest, "no such file");
        const char *said = gw_last_error();
        const size_t n = strlen(said);
        assert_true(n > 500 && n < GW_ERROR_BYTES);
        assert_string_equal(said + n - 30, "cannot be opened: no such file");
        while (gw_shown_bytes(said))
            said += gw_shown_bytes(said);
        assert_int_equal(*said, 0);
    }
    for (size_t n = 0; n < sizeof longest; n += 19) { /* also behind bytes that are shown by four */
        memset(longest, 0xFF, n);
        longest[n] = 0;
        gw_fail(GW_ERR_ORDER, "%s cannot be opened: no such file", longest);
        const size_t length = strlen(gw_last_error());
        assert_true(length < GW_ERROR_BYTES);
        assert_string_equal(gw_last_error() + length - 30, "cannot be opened: no such file");
    }
}

/* A name in it may come from a file or another machine, and the program prints it. */
TEST(a_sentence_is_one_line_that_a_terminal_may_show)
{
    gw_fail(GW_ERR_ORDER, "no tensor '%s'", "a\x1b[31m\n\xff \xc3\xa4\\");
    assert_string_equal(gw_last_error(), "no tensor 'a\\x1b[31m\\x0a\\xff \xc3\xa4\\'");
}

static gw_status forwards(gw_status status, int *went_on)
{
    GW_TRY(status);
    (*went_on)++;
    return GW_OK;
}

TEST(errors_are_forwarded_and_success_is_not)
{
    int went_on = 0;
    assert_int_equal(forwards(GW_ERR_PEER, &went_on), GW_ERR_PEER);
    assert_int_equal(went_on, 0);
    assert_int_equal(forwards(GW_OK, &went_on), GW_OK);
    assert_int_equal(forwards((gw_status)1, &went_on), GW_OK); /* "not finished yet" is no error */
    assert_int_equal(went_on, 2);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

/* An allocator that counts. Its memory begins `skew` bytes after a multiple of 64. */
struct skewed {
    size_t skew;
    atomic_int live, calls;
    int fail_from; /* 0: it never fails; k: the k-th call and all after it give nothing */
};

static void *skewed_alloc(size_t bytes, void *user)
{
    struct skewed *skewed = user;
    int call = ++skewed->calls;
    if (skewed->fail_from && call >= skewed->fail_from)
        return NULL;
    char *memory = aligned_alloc(64, (bytes + skewed->skew + 63) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0x5A, bytes + skewed->skew);
    skewed->live++;
    return memory + skewed->skew;
}

static void skewed_free(void *memory, void *user)
{
    struct skewed *skewed = user;
    if (!memory)
        return;
    skewed->live--;
    free((char *)memory - skewed->skew);
}

static gw_context *context_with(struct skewed *skewed, uint32_t n_threads)
{
    const gw_allocator allocator = {skewed_alloc, skewed_free, skewed};
    const gw_context_options options = {.struct_bytes = sizeof options,
                                        .allocator = &allocator,
                                        .n_threads = n_threads};
    gw_context *context;
    assert_int_equal(gw_context_create(&options, &context), GW_OK);
    return context;
}

TEST(memory_is_aligned_whatever_the_allocator_gives)
{
    for (size_t skew = 0; skew < 64; skew += 16) { /* the allocator promises memory that is "aligned for any C
                                                    * object" */
        struct skewed skewed = {.skew = skew};
        gw_context *context = context_with(&skewed, 1);
        for (size_t bytes = 0; bytes < 200; bytes++) {
            unsigned char *memory = gw_alloc(context, bytes, 1);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 64, 0);
            memset(memory, 0xA5, bytes);
            gw_free(context, memory);
            memory = gw_calloc(context, bytes, 1);
            assert_int_equal((uintptr_t)memory % 64, 0);
            for (size_t i = 0; i < bytes; i++)
                assert_int_equal(memory[i], 0);
            gw_free(context, memory);
        }
        gw_free(context, NULL);
        char *copy = gw_strdup(context, "conv1.weight");
        assert_string_equal(copy, "conv1.weight");
        assert_int_equal(skewed.live, 2);
        gw_free(context, copy);
        gw_context_destroy(context);
        assert_int_equal(skewed.live, 0);
    }
    /* Without a context, gw_alloc does the same with malloc. */
    void *memory = gw_alloc(NULL, 3, 100);
    assert_int_equal((uintptr_t)memory % 64, 0);
    gw_free(NULL, memory);
}

TEST(sizes_that_overflow_are_refused_unasked)
{
    struct skewed skewed = {0};
    gw_context *context = context_with(&skewed, 1);
    int before = skewed.calls;
    assert_null(gw_alloc(context, SIZE_MAX / 2, 3));
    assert_non_null(strstr(gw_last_error(), "no memory for 9223372036854775807 items of 3 bytes"));
    assert_null(gw_alloc(context, (size_t)1 << 32, (size_t)1 << 32));
    assert_null(gw_calloc(context, SIZE_MAX - 71, 1)); /* the product fits, but not the room for the alignment */
    assert_null(gw_calloc(context, SIZE_MAX, 1));
    assert_int_equal(skewed.calls, before);
    gw_context_destroy(context);
}

TEST(an_allocator_without_memory_is_an_error)
{
    struct skewed skewed = {.fail_from = 2};
    gw_context *context = context_with(&skewed, 1);
    assert_null(gw_alloc(context, 10, 4));
    assert_string_equal(gw_last_error(), "no memory for 10 items of 4 bytes");
    assert_null(gw_calloc(context, 10, 4));
    assert_null(gw_strdup(context, "x"));
    gw_context_destroy(context);
    assert_int_equal(skewed.live, 0);
}

/* ---- contexts ---------------------------------------------------------------------------------------- */

TEST(wrong_contexts_are_refused)
{
    gw_context *context;
    assert_int_equal(gw_context_create(NULL, NULL), GW_ERR_ARGUMENT);

    gw_context_options options = {.struct_bytes = sizeof options - 1};
    context = (gw_context *)&options;
    assert_int_equal(gw_context_create(&options, &context), GW_ERR_ARGUMENT);
    assert_null(context);
    assert_non_null(strstr(gw_last_error(), "struct_bytes"));

    options = (gw_context_options){.struct_bytes = sizeof options, .n_threads = 257};
    assert_int_equal(gw_context_create(&options, &context), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "257"));
    assert_non_null(strstr(gw_last_error(), "256"));

    gw_allocator half = {skewed_alloc, NULL, NULL};
    options = (gw_context_options){.struct_bytes = sizeof options, .allocator = &half};
    assert_int_equal(gw_context_create(&options, &context), GW_ERR_ARGUMENT);
    half = (gw_allocator){NULL, skewed_free, NULL};
    assert_int_equal(gw_context_create(&options, &context), GW_ERR_ARGUMENT);

    gw_context_destroy(NULL);
}

TEST(a_context_that_runs_out_of_memory_leaves_nothing)
{
    int k = 1;
    for (;; k++) {
        struct skewed skewed = {.fail_from = k};
        const gw_allocator allocator = {skewed_alloc, skewed_free, &skewed};
        const gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator, .n_threads = 3};
        gw_context *context;
        gw_status status = gw_context_create(&options, &context);
        if (status == GW_OK) {
            gw_context_destroy(context);
            assert_int_equal(skewed.live, 0);
            break;
        }
        assert_int_equal(status, GW_ERR_MEMORY);
        assert_null(context);
        assert_int_equal(skewed.live, 0);
    }
    assert_true(k > 2);
}

TEST(the_version_is_the_headers)
{
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", GW_VERSION_MAJOR, GW_VERSION_MINOR, GW_VERSION_PATCH);
    assert_string_equal(gw_version(), expected);
}

/* ---- threads ----------------------------------------------------------------------------------------- */

#define MOST_INDICES 3000
#define MOST_SLOTS 256

struct loop {
    gw_context *context;
    uint32_t n_slots;
    atomic_int times[MOST_INDICES]; /* how often each index was run */
    atomic_bool inside[MOST_SLOTS]; /* a thread is at work in this slot */
    atomic_int bad_slots, shared_slots;
    atomic_int inner; /* indices of nested loops */
};

static void visit(uint64_t i, uint32_t slot, void *user)
{
    struct loop *loop = user;
    if (slot >= loop->n_slots) {
        loop->bad_slots++;
        return;
    }
    if (atomic_exchange(&loop->inside[slot], true))
        loop->shared_slots++;
    loop->times[i]++;
    atomic_store(&loop->inside[slot], false);
}

static struct loop *new_loop(gw_context *context)
{
    struct loop *loop = calloc(1, sizeof *loop);
    assert_non_null(loop);
    loop->context = context;
    loop->n_slots = gw_thread_count(context);
    return loop;
}

static void each_index_once(uint32_t n_threads, uint64_t n)
{
    struct skewed skewed = {0};
    gw_context *context = context_with(&skewed, n_threads);
    assert_int_equal(gw_thread_count(context), n_threads ? n_threads : 1);
    struct loop *loop = new_loop(context);
    gw_parallel_for(context, n, visit, loop);
    for (uint64_t i = 0; i < MOST_INDICES; i++)
        CHECK(loop->times[i] == (i < n), "index %llu of %llu ran %d times on %u threads", (unsigned long long)i,
              (unsigned long long)n, loop->times[i], n_threads);
    assert_int_equal(loop->bad_slots, 0);
    assert_int_equal(loop->shared_slots, 0);
    free(loop);
    gw_context_destroy(context);
    assert_int_equal(skewed.live, 0);
}

TEST(loops_cover_every_index_once)
{
    const uint32_t threads[] = {0, 1, 2, 5, 16, 256};
    const uint64_t lengths[] = {0, 1, 2, 3, 7, 64, MOST_INDICES};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            each_index_once(threads[t], lengths[l]);
    struct loop *loop = new_loop(NULL);
    gw_parallel_for(NULL, 10, visit, loop);
    assert_int_equal(loop->times[9], 1);
    free(loop);
}

static bool loop_alone(void *user)
{
    struct loop *loop = user;
    void *scratch = gw_scratch_take(loop->context, GW_SCRATCH_LEAST, 1); /* another one than the one that was given */
    gw_scratch_give(loop->context, scratch);
    gw_parallel_for(loop->context, MOST_INDICES, visit, loop);
    bool good = scratch && loop->bad_slots == 0 && loop->shared_slots == 0;
    for (uint64_t i = 0; i < MOST_INDICES; i++)
        good = good && loop->times[i] == 1;
    gw_context_destroy(loop->context);
    return good;
}

/* The threads of the context are not in the forked process, and a lock of its scratch memory may be taken there. */
TEST(a_context_works_alone_in_a_fork)
{
    struct skewed skewed = {0};
    gw_context *context = context_with(&skewed, 3);
    struct loop *loop = new_loop(context);
    gw_scratch_give(context, gw_scratch_take(context, GW_SCRATCH_LEAST, 1));
    pthread_mutex_lock(&context->scratch.lock);
    expect_in_a_fork(loop_alone, loop);
    pthread_mutex_unlock(&context->scratch.lock);
    gw_parallel_for(context, MOST_INDICES, visit, loop);
    assert_int_equal(loop->times[0], 1);
    free(loop);
    gw_context_destroy(context);
    assert_int_equal(skewed.live, 0);
}

struct failing_loop {
    uint64_t first, second; /* the indices that fail */
    atomic_uint_fast64_t ran;
};

static gw_status visit_or_fail(uint64_t i, uint32_t slot, void *user)
{
    struct failing_loop *loop = user;
    (void)slot;
    atomic_fetch_add(&loop->ran, 1);
    if (i != loop->first && i != loop->second)
        return GW_OK;
    /* the first of the two takes longer */
    for (volatile int spin = i == loop->first ? 200000 : 0; spin > 0; spin--)
        ;
    return gw_fail(i == loop->first ? GW_ERR_CAPACITY : GW_ERR_CLOSED, "%llu failed", (unsigned long long)i);
}

/* The loop reports the failure with the lowest index, in the caller's thread, whichever failed first in time. All
 * indices before that one were run. */
TEST(the_first_failure_in_a_loop_is_told)
{
    for (uint32_t n_threads = 1; n_threads <= 5; n_threads += 2) {
        struct skewed skewed = {0};
        gw_context *context = context_with(&skewed, n_threads);
        for (uint64_t first = 0; first < 60; first += 7) {
            struct failing_loop loop = {.first = first, .second = first + 1};
            char expected[40];
            snprintf(expected, sizeof expected, "%llu failed", (unsigned long long)first);
            assert_int_equal(gw_parallel_try(context, 64, visit_or_fail, &loop), GW_ERR_CAPACITY);
            assert_string_equal(gw_last_error(), expected);
            assert_true(loop.ran > first && (n_threads > 1 || loop.ran == first + 1));
        }
        struct failing_loop none = {.first = 100, .second = 100};
        assert_int_equal(gw_parallel_try(context, 64, visit_or_fail, &none), GW_OK);
        assert_int_equal(none.ran, 64);
        gw_context_destroy(context);
    }
}

TEST(many_short_loops_in_a_row)
{
    struct skewed skewed = {0};
    gw_context *context = context_with(&skewed, 4);
    struct loop *loop = new_loop(context);
    for (int round = 0; round < 2000; round++)
        gw_parallel_for(context, 3, visit, loop);
    for (int i = 0; i < 3; i++)
        assert_int_equal(loop->times[i], 2000);
    assert_int_equal(loop->shared_slots, 0);
    free(loop);
    gw_context_destroy(context);
}

struct meeting {
    uint32_t n_threads;
    atomic_uint arrived;
    atomic_bool done[4];
    unsigned modes[4]; /* of each thread, if the machine has such modes */
};

/* Goes on when every thread of the pool has an index, so that no thread gets two. */
static void meet(uint64_t i, uint32_t slot, void *user)
{
    (void)i;
    struct meeting *meeting = user;
#if defined(__x86_64__)
    meeting->modes[slot] = _mm_getcsr();
#endif
    meeting->arrived++;
    while (meeting->arrived < meeting->n_threads)
        sched_yield();
    if (slot)
        usleep(5000); /* the caller finishes first */
    meeting->done[slot] = true;
}

TEST(all_threads_work_and_are_waited_for)
{
    struct skewed skewed = {0};
    gw_context *context = context_with(&skewed, 4);
    struct meeting meeting = {.n_threads = 4};
    gw_parallel_for(context, 4, meet, &meeting);
    for (int slot = 0; slot < 4; slot++)
        assert_true(meeting.done[slot]);
    gw_context_destroy(context);
}

static void count_inner(uint64_t i, uint32_t slot, void *user)
{
    (void)i;
    struct loop *loop = user;
    loop->bad_slots += slot != 0; /* the pool is busy, so the caller does all of it */
    loop->inner++;
}

static void visit_and_nest(uint64_t i, uint32_t slot, void *user)
{
    struct loop *loop = user;
    visit(i, slot, user);
    gw_parallel_for(loop->context, 5, count_inner, loop);
}

TEST(a_loop_in_a_loop_runs_on_its_caller)
{
    struct skewed skewed = {0};
    gw_context *context = context_with(&skewed, 3);
    struct loop *loop = new_loop(context);
    gw_parallel_for(context, 200, visit_and_nest, loop);
    for (int i = 0; i < 200; i++)
        assert_int_equal(loop->times[i], 1);
    assert_int_equal(loop->inner, 1000);
    assert_int_equal(loop->bad_slots, 0);
    free(loop);
    gw_context_destroy(context);
}

/* A thread of the program, which shares the context with others. */
static void *call_often(void *user)
{
    struct loop *loop = user;
    for (int round = 0; round < 300; round++)
        gw_parallel_for(loop->context, 20, visit, loop);
    return NULL;
}

TEST(callers_share_a_context)
{
    struct skewed skewed = {0};
    gw_context *context = context_with(&skewed, 3);
    struct loop *loops[4];
    pthread_t callers[4];
    for (int c = 0; c < 4; c++) {
        loops[c] = new_loop(context);
        assert_int_equal(pthread_create(&callers[c], NULL, call_often, loops[c]), 0);
    }
    for (int c = 0; c < 4; c++) {
        pthread_join(callers[c], NULL);
        for (int i = 0; i < 20; i++)
            assert_int_equal(loops[c]->times[i], 300);
        assert_int_equal(loops[c]->bad_slots, 0);
        assert_int_equal(loops[c]->shared_slots, 0);
        free(loops[c]);
    }
    gw_context_destroy(context);
}

/* ---- the processor and its modes --------------------------------------------------------------------- */

/* Reads gw_cpu_level() in a process of its own, with GRADWIRE_CPU set to `cap`. */
static void level_under(const char *cap, char level[16])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (cap)
            setenv("GRADWIRE_CPU", cap, 1);
        else
            unsetenv("GRADWIRE_CPU");
        const char *name = gw_cpu_level();
        _exit(write(ends[1], name, strlen(name) + 1) < 0);
    }
    close(ends[1]);
    assert_true(read(ends[0], level, 16) > 0);
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* This runs before anything else asks for the level, because it is chosen once per process. */
TEST(the_instruction_set_is_capped)
{
    char best[16], level[16];
    level_under(NULL, best);
    level_under("", level);
    assert_string_equal(level, best);
    level_under("scalar", level);
    assert_string_equal(level, "scalar");
    level_under("sse9", level); /* this word is unknown */
    assert_string_equal(level, "scalar");
    level_under(best, level);
    assert_string_equal(level, best);
    if (gw_cpu_best() == GW_CPU_AVX512) {
        level_under("avx2", level);
        assert_string_equal(level, "avx2");
    }
    if (gw_cpu_best() == GW_CPU_AVX2) {
        level_under("avx512", level); /* the machine has less: it takes its best */
        assert_string_equal(level, "avx2");
    }
}

TEST(float_modes_are_set_and_put_back)
{
#if defined(__x86_64__)
    const unsigned modes[] = {0x1F80, 0x9FC0 /* flush to zero, denormals are zero */, 0x5F80 /* round up */,
                              0x1F80 | 0x20 /* a sticky flag of the host's */};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        _mm_setcsr(modes[i]);
        gw_float_env env = gw_float_enter();
        unsigned inside = _mm_getcsr();
        gw_float_leave(env);
        unsigned after = _mm_getcsr();
        _mm_setcsr(0x1F80);
        assert_int_equal(inside & 0xFFC0, 0x1F80);
        assert_int_equal(after, modes[i]);
    }
#else
    skip();
#endif
}

/* A thread starts with the modes of the thread that started it. The host may have flush-to-zero on, and that must not
 * change the pool's sums. */
TEST(codec_threads_keep_denormals)
{
#if defined(__x86_64__)
    struct skewed skewed = {0};
    _mm_setcsr(0x9FC0);
    gw_context *context = context_with(&skewed, 4);
    _mm_setcsr(0x1F80);
    struct meeting meeting = {.n_threads = 4};
    gw_parallel_for(context, 4, meet, &meeting);
    for (int slot = 0; slot < 4; slot++)
        CHECK((meeting.modes[slot] & 0xFFC0) == 0x1F80, "slot %d runs with modes 0x%04x", slot, meeting.modes[slot]);
    gw_context_destroy(context);
#else
    skip();
#endif
}

TEST(clocks_go_on)
{
    double a = gw_clock_seconds(), b = gw_clock_seconds();
    assert_true(b >= a);
    for (uint32_t ms = 0; ms < 3000; ms += 7) {
        struct timespec before = gw_clock_after(0), at = gw_clock_after(1e-3 * ms), after = gw_clock_after(0);
        assert_true(at.tv_nsec >= 0 && at.tv_nsec < 1000000000L);
        double t = (double)at.tv_sec + 1e-9 * (double)at.tv_nsec - 1e-3 * ms;
        assert_true(t >= (double)before.tv_sec + 1e-9 * (double)before.tv_nsec - 1e-6);
        assert_true(t <= (double)after.tv_sec + 1e-9 * (double)after.tv_nsec + 1e-6);
    }
}

RUN_TESTS("base", NULL, NULL)
