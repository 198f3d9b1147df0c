/* Tests what a rank learns of its launcher: from torchrun, mpirun, srun and Kubernetes, and what contradicts itself. */
#include "checks.h"
#include "members/launcher.h"

#include <gradwire/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All variables that the library reads. The test clears them, so that those of its caller do not matter. */
static const char *const names[] = {"RANK",
                                    "WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_RUN_ID",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "MV2_COMM_WORLD_SIZE",
                                    "MV2_COMM_WORLD_RANK",
                                    "PMI_SIZE",
                                    "PMI_RANK",
                                    "PMIX_RANK",
                                    "MPI_LOCALNRANKS",
                                    "MPI_LOCALRANKID",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_ID",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_NTASKS",
                                    "SLURM_NODEID",
                                    "SLURM_PROCID",
                                    "JOB_COMPLETION_INDEX"};

/* Sets the environment to "NAME=VALUE NAME=VALUE" and nothing else. */
static void say(const char *assignments)
{
    char text[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    snprintf(text, sizeof text, "%s", assignments);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        *value++ = 0;
        setenv(word, value, 1);
    }
}

#define SRUN "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=n[1-2] SLURM_NODEID=1 "

TEST(ranks_are_found)
{
    static const struct {
        const char *said;
        uint32_t size, rank; /* what the options say */
        uint32_t found_size, found_rank;
    } cases[] = {
        {"", 0, GW_LAUNCHER_NO_RANK, 0, GW_LAUNCHER_NO_RANK},
        {"", 4, 3, 4, 3},
        {"RANK=1 WORLD_SIZE=4", 0, GW_LAUNCHER_NO_RANK, 4, 1},
        {"RANK=1 WORLD_SIZE=4", 3, 2, 3, 2}, /* options come first */
        {SRUN "SLURM_PROCID=3", 0, GW_LAUNCHER_NO_RANK, 4, 3},
        {SRUN "SLURM_PROCID=3", 4, GW_LAUNCHER_NO_RANK, 4, 3},
        {SRUN "SLURM_PROCID=3 WORLD_SIZE=4", 0, GW_LAUNCHER_NO_RANK, 4, 3},
        {SRUN "SLURM_PROCID=1 RANK=6 WORLD_SIZE=8", 0, GW_LAUNCHER_NO_RANK, 8,
         6}, /* two torchruns of four under srun */
        {SRUN "SLURM_PROCID=1 RANK=2 WORLD_SIZE=4 TORCHELASTIC_RUN_ID=x", 0, GW_LAUNCHER_NO_RANK, 4, 2},
        /* mpirun in a Slurm job: its ranks also have the numbers of a daemon's step */
        {SRUN "SLURM_PROCID=1 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=5", 0, GW_LAUNCHER_NO_RANK, 8, 5},
        {SRUN "SLURM_PROCID=1 PMI_SIZE=8 PMI_RANK=5", 0, GW_LAUNCHER_NO_RANK, 8, 5},
        {"JOB_COMPLETION_INDEX=2 WORLD_SIZE=4", 0, GW_LAUNCHER_NO_RANK, 4, 2},
        {"JOB_COMPLETION_INDEX=2", 0, GW_LAUNCHER_NO_RANK, 0, GW_LAUNCHER_NO_RANK},
        /* A script that sbatch runs is no rank. */
        {"SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0", 0, GW_LAUNCHER_NO_RANK, 0, GW_LAUNCHER_NO_RANK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t size = cases[i].size, rank = cases[i].rank;
        say(cases[i].said);
        assert_int_equal(gw_launcher_place(&size, &rank), GW_OK);
        assert_int_equal(size, cases[i].found_size);
        assert_int_equal(rank, cases[i].found_rank);
    }
}

TEST(contradictions_are_refused)
{
    static const struct {
        const char *said;
        uint32_t size;
        const char *sentence;
    } cases[] = {
        {SRUN "SLURM_PROCID=3", 3, "srun started 4 ranks, and --workers is 3"},
        {SRUN "SLURM_PROCID=3 WORLD_SIZE=2", 0, "srun started 4 ranks, and WORLD_SIZE is 2"},
        {"RANK=1 WORLD_SIZE=4", 3, "WORLD_SIZE is 4, and --workers is 3"},
        {SRUN "SLURM_PROCID=3 RANK=0 WORLD_SIZE=4", 0, "RANK is 0, and srun says that this is rank 3 (SLURM_PROCID)"},
        {"RANK=1x WORLD_SIZE=4", 0, "RANK is \"1x\", and must be a whole number"},
        {"RANK=1 WORLD_SIZE=-4", 0, "WORLD_SIZE is \"-4\", and must be a whole number"},
        {SRUN "SLURM_PROCID=99999999999999999999", 0, "and must be a whole number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t size = cases[i].size, rank = GW_LAUNCHER_NO_RANK;
        say(cases[i].said);
        assert_int_equal(gw_launcher_place(&size, &rank), GW_ERR_ARGUMENT);
        assert_non_null(strstr(gw_last_error(), cases[i].sentence));
    }
}

TEST(the_meeting_place_follows)
{
    static const struct {
        const char *said, *place;
    } cases[] = {
        {"", ""},
        {"MASTER_ADDR=node07", ""},
        {"MASTER_ADDR=node07 MASTER_PORT=29500", "node07:29500"},
        {"MASTER_ADDR=::1 MASTER_PORT=29500", "[::1]:29500"},
        {"MASTER_ADDR=[::1] MASTER_PORT=29500", "[::1]:29500"},
        {SRUN, "n1:20007"},
        {SRUN "MASTER_PORT=29500", "n1:29500"},
        {SRUN "MASTER_ADDR=n2", "n2:20007"},
        {"SLURM_JOB_ID=10007 SLURM_STEP_ID=2 SLURM_STEP_NODELIST=a-1,a-2", "a-1:22025"},
        {"SLURM_JOB_ID=7 SLURM_STEP_ID=4294967290 SLURM_STEP_NODELIST=node[07-12,15]", "node07:25617"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char place[300];
        say(cases[i].said);
        assert_int_equal(gw_launcher_meeting(1, place, sizeof place), GW_OK);
        assert_string_equal(place, cases[i].place);
    }
    char place[300];
    say(SRUN); /* this rank is on the second machine */
    assert_int_equal(gw_launcher_meeting(0, place, sizeof place), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "rank 0 is not on the first machine of this step (n[1-2])"));
}

/* No two steps of a job meet at one port. Nor do two jobs whose numbers are near each other. */
TEST(steps_do_not_meet)
{
    enum { JOBS = 40, STEPS = 20 };
    static char places[JOBS * STEPS][32];
    for (unsigned n = 0; n < JOBS * STEPS; n++) {
        char said[128];
        snprintf(said, sizeof said, "SLURM_STEP_NODELIST=n1 SLURM_JOB_ID=%u SLURM_STEP_ID=%u", 9980 + n % JOBS,
                 n / JOBS);
        say(said);
        assert_int_equal(gw_launcher_meeting(0, places[n], sizeof places[n]), GW_OK);
        for (unsigned k = 0; k < n; k++)
            assert_string_not_equal(places[n], places[k]);
    }
}

TEST(a_batch_script_is_known)
{
    say("SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0");
    assert_true(gw_launcher_is_batch_script());
    say(SRUN);
    assert_false(gw_launcher_is_batch_script());
    say("");
    assert_false(gw_launcher_is_batch_script());
}

TEST(the_link_follows)
{
    say("JOB_COMPLETION_INDEX=2 WORLD_SIZE=4 MASTER_ADDR=job-0.workers");
    struct gw_launcher by = gw_launcher_find();
    assert_string_equal(by.name, "Kubernetes");
    assert_int_equal(by.size, 4);
    assert_int_equal(by.rank, 2);
    assert_true(by.tcp && !by.mpi);
    say(SRUN "SLURM_PROCID=3 PMIX_RANK=3");
    by = gw_launcher_find();
    assert_true(by.mpi && !by.tcp);
}

RUN_TESTS("launcher", NULL, NULL)
