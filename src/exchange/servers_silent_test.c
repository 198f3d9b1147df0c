/* Tests every wait of an exchange through parameter servers: if a server falls silent, the wait ends at its deadline,
 * with a sentence that names the server and what it was sent. And refusals that no good server sends. */
#include "base/append.h"
#include "pserver/client/test_calls.h"
#include "pserver/client/test_liar.h"

#include <gradwire/exchange.h>

#include <math.h>
#include <time.h>

enum { SERVERS = 2, TENSORS = 2, ELEMENTS = 4, SOON_MS = 500 };

/* What the worker does when the server is silent. */
enum act { INIT_PARAMETERS, PULL_PARAMETERS, STEP, STEP_WITH_NAN, EARLY_SUBMIT };

struct silence {
    const char *spec, *optimizer;
    enum act act;
    uint32_t to;                /* the operations that are not answered, as a mask of 1 << operation */
    bool by_all;                /* no server answers them. Else only the second one does not */
    const char *words[SERVERS]; /* what the sentence says that each server did not answer; NULL: nothing of it */
    const char *blames;         /* what the first server answers to pulls: a worker is missing. NULL: it has values */
    uint64_t refusal;           /* what all servers answer to pulls: this is not finite. 0: they do not */
};

#define NOT(operation) (1u << GW_PS_##operation)

static const struct silence silences[] = {
    /* The members' agreement and the keys come before all else. */
    {"none", NULL, STEP, NOT(AGREE), .words = {NULL, "does not answer: AGREE has waited 500 ms"}},
    {"none", NULL, STEP, NOT(INIT), .words = {NULL, "does not answer: init of \"exchange/group 1/run 0\" has waited"}},
    {"none", "sgd", INIT_PARAMETERS, NOT(PUT) | NOT(PULL),
     .words = {NULL, "did not answer the first parameters of group 1"}},
    {"none", "sgd", INIT_PARAMETERS, NOT(PULL), .words = {NULL, "did not answer the pull of parameters of group 1"}},
    {"none", "sgd", PULL_PARAMETERS, NOT(PULL), .words = {NULL, "did not answer the pull of parameters of group 1"}},
    {"none", "sgd", STEP, NOT(PUSH) | NOT(PULL), .words = {NULL, "did not answer the push of gradients of group 1"}},
    {"none", "sgd", STEP, NOT(VERDICT) | NOT(PULL), .words = {NULL, "did not answer the verdict on the step"}},
    {"none", "sgd", STEP, NOT(PULL), .words = {NULL, "did not answer the pull of parameters of group 1"}},
    {"none", "sgd", STEP_WITH_NAN, NOT(PUSH) | NOT(PULL), .words = {NULL, "did not answer the refusal of group 1"}},
    {"none", "sgd", STEP_WITH_NAN, NOT(VERDICT) | NOT(PULL), .words = {NULL, "did not answer the verdict on the step"}},
    {"none", NULL, STEP, NOT(PUSH) | NOT(PULL), true,
     .words = {"did not answer the push of gradients of group 0", "did not answer the push of gradients of group 1"}},
    {"none", NULL, STEP, NOT(PULL), true,
     .words = {"did not answer the pull of averages of group 0", "did not answer the pull of averages of group 1"}},
    {"ternary", NULL, STEP, NOT(PUSH) | NOT(PULL), true,
     .words = {"did not answer the push of statistics of group 0", "did not answer the push of statistics of group 1"}},
    {"ternary", NULL, STEP, NOT(PULL), true,
     .words = {"did not answer the pull of shared numbers of group 0",
               "did not answer the pull of shared numbers of group 1"}},
    /* The worker has no tensor to wait for, so only the client's own deadline ends it. */
    {"none", "sgd", EARLY_SUBMIT, NOT(PUSH),
     .words = {NULL, "does not answer: push of \"exchange/group 1/run 0\" has waited"}},
    /* One server names a worker. The other server may be what that worker waits for. */
    {"none", NULL, STEP, NOT(PULL) | NOT(MEMBERS), .blames = "waited for rank 1",
     .words = {NULL, "did not answer the question who takes part within 1500 ms"}},
    {"none", NULL, STEP, NOT(PULL) | NOT(MEMBERS) | LIAR_GOES, .blames = "waited for rank 1",
     .words = {NULL, "did not answer the question who takes part within 1500 ms"}},
};

/* The other server answers, so the worker is to blame. */
static const struct silence a_worker = {"none", NULL, STEP, NOT(PULL), .blames = "waited for rank 1"};

#define N_SILENCES (sizeof silences / sizeof *silences)

/* A worker whose second server is silent, in a thread of its own: all wait at the same time. */
struct scene {
    const struct silence *silence;
    struct lie lies[SERVERS];
    struct liar servers[SERVERS];
    gw_codec *codec;
    gw_ps_client *client;
    pthread_t thread;
    gw_status status;
    char sentence[512];
};

/* The calls of the worker until one of them fails. */
static gw_status work(const struct scene *scene, gw_exchange *ex)
{
    float a[ELEMENTS] = {0}, b[ELEMENTS] = {1, 2, 3, 4}, *const values[TENSORS] = {a, b};
    const enum act act = scene->silence->act;
    gw_status status;
    if (act == INIT_PARAMETERS)
        return gw_exchange_init_parameters(ex, values);
    if (act == PULL_PARAMETERS)
        return gw_exchange_pull_parameters(ex, values);
    if (act == STEP_WITH_NAN)
        b[0] = NAN;
    if ((status = gw_exchange_begin(ex, 0)) < 0 || (status = gw_exchange_submit(ex, 1, b)) < 0)
        return status;
    /* In the middle of a step this call is refused, until the exchange has ended. */
    while (act == EARLY_SUBMIT && (status = gw_exchange_leave(ex)) == GW_ERR_ORDER)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    if (status < 0 || (status = gw_exchange_submit(ex, 0, a)) < 0)
        return status;
    return gw_exchange_wait(ex, NULL);
}

static void *run(void *user)
{
    struct scene *scene = user;
    gw_exchange *ex;
    gw_tensor tensors[TENSORS];
    for (uint32_t t = 0; t < TENSORS; t++)
        tensors[t] = (gw_tensor){.id = t, .n_elems = ELEMENTS};
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .codec = scene->codec,
                                         .tensors = tensors,
                                         .n_tensors = TENSORS,
                                         .servers = scene->client,
                                         .timeout_ms = SOON_MS,
                                         .server_optimizer = scene->silence->optimizer};
    scene->status = gw_exchange_create(NULL, &options, &ex);
    if (scene->status == GW_OK) {
        scene->status = work(scene, ex);
        gw_exchange_destroy(ex);
    }
    snprintf(scene->sentence, sizeof scene->sentence, "%s", gw_last_error());
    return NULL;
}

static void begin(struct scene *scene, const struct silence *silence)
{
    char places[SERVERS * sizeof scene->servers[0].place] = "";
    *scene = (struct scene){.silence = silence};
    assert_int_equal(gw_codec_parse(NULL, silence->spec, &scene->codec), GW_OK);
    for (uint32_t s = 0; s < SERVERS; s++) {
        /* A server that answers has zeros to pull. */
        scene->lies[s] = (struct lie){
            .to = GW_PS_PULL,
            .answer = {.code = GW_PS_FLOAT32, .number = 1, .shape = {.n_dims = 1, .dims = {ELEMENTS}}, .n_pushes = 2},
            .n_bytes = ELEMENTS * sizeof(float)};
        if (s == 0 && silence->blames) {
            scene->lies[s] = (struct lie){.to = GW_PS_PULL, .answer = {.status = GW_ERR_TIMEOUT}};
            snprintf(scene->lies[s].answer.sentence, sizeof scene->lies[s].answer.sentence, "%s", silence->blames);
        }
        if (silence->refusal)
            scene->lies[s] =
                (struct lie){.to = GW_PS_PULL, .answer = {.status = GW_ERR_NONFINITE, .refusal = silence->refusal}};
        liar_begin_silent(&scene->servers[s], &scene->lies[s], s > 0 || silence->by_all ? silence->to : 0);
        gw_append(places, sizeof places, "%s%s", s ? "," : "", scene->servers[s].place);
    }
    scene->client =
        test_client(places, 0, false,
                    silence->act == EARLY_SUBMIT || silence->to & (NOT(AGREE) | NOT(INIT) | LIAR_GOES) ? SOON_MS
                                                                                                       : LONG_MS);
    assert_int_equal(pthread_create(&scene->thread, NULL, run, scene), 0);
}

static void end(struct scene *scene)
{
    gw_ps_client_destroy(scene->client);
    for (uint32_t s = 0; s < SERVERS; s++)
        liar_end(&scene->servers[s]);
    gw_codec_destroy(scene->codec);
}

/* The sentence tells of each silent server what it did not answer, and does not name the others. */
static void check(const struct scene *scene)
{
    for (uint32_t s = 0; s < SERVERS; s++) {
        char about[512];
        const char *words = scene->silence->words[s], *place = strstr(scene->sentence, scene->servers[s].place);
        snprintf(about, sizeof about, "%s %s", scene->servers[s].place, words ? words : "");
        if (scene->status != GW_ERR_TIMEOUT || (words ? !strstr(scene->sentence, about) : place != NULL))
            fail_msg("case %zu, server %u: %d \"%s\", and not \"%s\"", (size_t)(scene->silence - silences), s,
                     scene->status, scene->sentence, words ? about : "nothing of it");
    }
}

TEST(a_silent_server_is_named)
{
    struct scene *scenes = calloc(N_SILENCES, sizeof *scenes);
    assert_non_null(scenes);
    for (size_t i = 0; i < N_SILENCES; i++)
        begin(&scenes[i], &silences[i]);
    for (size_t i = 0; i < N_SILENCES; i++)
        pthread_join(scenes[i].thread, NULL);
    for (size_t i = 0; i < N_SILENCES; i++) {
        check(&scenes[i]);
        end(&scenes[i]);
    }
    free(scenes);
}

/* One good run of several is enough: on a slow machine a server may answer too late. */
TEST(a_missing_worker_is_named)
{
    static struct scene scene;
    bool named = false;
    for (int i = 0; i < 5 && !named; i++) {
        begin(&scene, &a_worker);
        pthread_join(scene.thread, NULL);
        named = strcmp(scene.sentence, a_worker.blames) == 0;
        end(&scene);
    }
    CHECK(named, "\"%s\"", scene.sentence);
}

/* A refusal names a tensor and a rank. A worker may have pushed one that names none, or the server made it up. */
TEST(a_refusal_that_names_nothing)
{
    static const uint64_t refusals[] = {(uint64_t)TENSORS << 32, 2, UINT64_MAX - 1, (uint64_t)UINT32_MAX << 32};
    static const char *const specs[] = {"none", "ternary"};
    static struct scene scene;
    for (size_t i = 0; i < 8; i++) {
        const struct silence lie = {specs[i % 2], NULL, STEP, 0, .refusal = refusals[i / 2]};
        begin(&scene, &lie);
        pthread_join(scene.thread, NULL);
        CHECK(scene.status == GW_ERR_FRAME_FIELD && strstr(scene.sentence, "there are 2 tensors and 2 ranks"),
              "case %zu: %d, \"%s\"", i, scene.status, scene.sentence);
        end(&scene);
    }
}

/* Parameters that are pulled as they are have no refusals. If a server answers so all the same, they have not come. */
TEST(a_refusal_in_place_of_parameters)
{
    static const struct silence lies[] = {{"none", "sgd", INIT_PARAMETERS, 0, .refusal = 1},
                                          {"none", "sgd", PULL_PARAMETERS, 0, .refusal = 1}};
    static struct scene scene;
    for (size_t i = 0; i < 2; i++) {
        begin(&scene, &lies[i]);
        pthread_join(scene.thread, NULL);
        CHECK(scene.status < 0, "case %zu", i);
        end(&scene);
    }
}

RUN_TESTS("servers silent", NULL, NULL)
