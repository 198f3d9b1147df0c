/* Tests what a run goes on with: the newest whole checkpoint, and options that are those of the checkpoint. */
#define _GNU_SOURCE /* nftw */
#include "base/memory.h"
#include "checks.h"
#include "disk/folder.h"
#include "disk/resume.h"
#include "own_folder.h"

#include <gradwire/status.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char notes[1000];

TEST(other_options_are_named)
{
    static const struct {
        const char *mine, *theirs;
        gw_status status;
        const char *says;
    } cases[] = {{"lr 0.1\nseed 1\n", "lr 0.1\nseed 1\n", GW_OK, ""},
                 {"lr 0.1\nseed 1\n", "lr 0.25\nseed 1\n", GW_ERR_ARGUMENT,
                  "--lr is 0.1, and the run of RUN has 0.25;"},
                 {"seed 1\ntransform mirror\n", "seed 1\n", GW_ERR_ARGUMENT,
                  "--transform is mirror, and the run of RUN has scale;"},
                 {"seed 1\n", "seed 1\ntransform crop=3\n", GW_ERR_ARGUMENT,
                  "--transform is scale, and the run of RUN has crop=3;"},
                 {"seed 1\ntransform mirror\n", "seed 1\ntransform crop=3\n", GW_ERR_ARGUMENT,
                  "--transform is mirror, and the run of RUN has crop=3;"},
                 {"seed 1\n", "seed 1\nfuture 3\n", GW_ERR_SYSTEM, "RUN is of a version with other options: future 3"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct gw_resume r;
        snprintf(r.path, sizeof r.path, "RUN");
        snprintf(r.checkpoint.options, sizeof r.checkpoint.options, "%s", cases[i].theirs);
        const gw_status status = gw_resume_check(&r, cases[i].mine);
        CHECK(status == cases[i].status && (status == GW_OK || strstr(gw_last_error(), cases[i].says)), "case %zu: %s",
              i, gw_last_error());
    }
    char text[9];
    assert_null(gw_resume_transform("", text, sizeof text));
    assert_string_equal(gw_resume_transform("seed 1\n", text, sizeof text), "scale");
    assert_string_equal(gw_resume_transform("seed 1\ntransform pad=1,crop=3\n", text, sizeof text), "pad=1,cr");
}

static void note(const char *sentence, void *user)
{
    (void)user;
    strncat(notes, sentence, sizeof notes - strlen(notes) - 1);
}

/* A checkpoint of two workers after so many steps. n_states: how many state files there are. longer: how many bytes the
 * last one has more. */
static void put_checkpoint(uint64_t step, uint32_t n_states, size_t longer)
{
    static struct gw_checkpoint c;
    static uint8_t bytes[100];
    char name[64];
    c = (struct gw_checkpoint){.step = step, .steps = 9, .workers = 2, .n_state_files = 2, .threads = 1};
    strcpy(c.options, "seed 1\n");
    assert_int_equal(gw_network_create("mlp:5-3-2", &c.network), GW_OK);
    c.arrays[GW_PARAMS] = gw_calloc(NULL, c.network.n_storage, sizeof(float));
    for (uint32_t r = 0; r < n_states; r++) {
        const struct gw_rank_state s = {.identity = gw_checkpoint_identity(&c),
                                        .step = step,
                                        .rank = r,
                                        .workers = 2,
                                        .state = bytes,
                                        .state_bytes = 8 + r * longer};
        assert_int_equal(gw_rank_state_write(folder, &s), GW_OK);
    }
    snprintf(name, sizeof name, GW_CHECKPOINT_FILE, (unsigned long long)step);
    assert_int_equal(gw_checkpoint_write(folder, name, &c), GW_OK);
    gw_checkpoint_free(&c);
}

TEST_BETWEEN(the_newest_whole_checkpoint_is_found, make_folder, clean_up)
{
    static struct gw_resume r;
    const struct gw_train_callbacks callbacks = {.note = note};
    DIR *lock;
    assert_int_equal(gw_folder_lock(folder, &lock), GW_OK);
    assert_int_equal(gw_resume_find(folder, lock, &callbacks, &r), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), "it has no checkpoint"));
    put_checkpoint(6, 1, 0);
    assert_int_equal(gw_resume_find(folder, lock, &callbacks, &r), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), "none of its checkpoints is whole"));
    put_checkpoint(2, 2, 0);
    put_checkpoint(4, 2, 0);
    put_checkpoint(5, 2, 1);
    notes[0] = 0;
    assert_int_equal(gw_resume_find(folder, lock, &callbacks, &r), GW_OK);
    assert_true(r.checkpoint.step == 4 && r.checkpoint.steps == 9);
    assert_true(r.states[0].state_bytes == 8 && r.states[1].state_bytes == 8 && r.states[1].rank == 1);
    assert_non_null(strstr(notes, "the checkpoint after 6 steps is not whole"));
    assert_non_null(strstr(notes, "the states of workers 0 and 1 have different lengths"));
    assert_null(strstr(notes, "after 4 steps"));
    gw_resume_free(&r);
    closedir(lock);
}

RUN_TESTS("resume", NULL, NULL)
