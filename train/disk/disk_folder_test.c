/* Tests a run's folder and its files: which names a run owns, what is found and removed of an earlier one, and that
 * nobody else may write meanwhile; that a file has its name only once it is whole; and run.json. */
#define _GNU_SOURCE /* nftw */
#include "base/memory.h"
#include "checks.h"
#include "disk/file.h"
#include "disk/folder.h"
#include "disk/run_file.h"
#include "own_folder.h"

#include <fcntl.h>
#include <gradwire/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file holds `text`; NULL: there is none. */
static void check_file(const char *name, const char *text)
{
    uint8_t *bytes;
    size_t n;
    uint64_t all;
    const gw_status status = gw_file_read(in(name), SIZE_MAX, &bytes, &n, &all);
    CHECK((status == GW_OK) == (text != NULL), "%s: %d", name, status);
    if (text) {
        CHECK(n == strlen(text) && memcmp(bytes, text, n) == 0, "%s: %.*s", name, (int)n, bytes);
        gw_free(NULL, bytes);
    }
}

/* ---- a file ---------------------------------------------------------------------------------------------- */

TEST_BETWEEN(a_file_has_its_name_once_it_is_whole, make_folder, remove_empty_folder)
{
    struct gw_file file;
    put_text("a", "before");
    assert_int_equal(gw_file_open(folder, "a", false, &file), GW_OK);
    fputs("after", file.stream);
    assert_int_equal(gw_file_check(&file), GW_OK);
    assert_int_equal(gw_file_sync(&file), GW_OK);
    check_file("a", "before");
    check_file("a.partial", "after");
    assert_int_equal(gw_file_commit(&file), GW_OK);
    check_file("a", "after");
    check_file("a.partial", NULL);
    gw_file_discard(&file, false); /* nothing is left to do */
    check_file("a", "after");
    assert_int_equal(gw_file_check(&file), GW_OK);
    assert_int_equal(gw_file_commit(&file), GW_ERR_ORDER);
    for (int keep = 0; keep < 2; keep++) {
        assert_int_equal(gw_file_open(folder, "a", false, &file), GW_OK);
        fputs("never", file.stream);
        gw_file_discard(&file, keep);
        check_file("a", "after");
        check_file("a.partial", keep ? "never" : NULL);
    }
    /* What was interrupted is gone on with; else what is whole is; else nothing. */
    static const struct {
        const char *partial, *whole, *left; /* left: of what is whole, while the other is open */
        long at;
        const char *result;
    } cases[] = {{"never", "after", "after", 3, "nevX"},
                 {NULL, "after", NULL, 2, "afX"},
                 {"never", NULL, NULL, 0, "X"},
                 {NULL, NULL, NULL, 0, "X"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unlink(in("a")), unlink(in("a.partial"));
        if (cases[i].whole)
            put_text("a", cases[i].whole);
        if (cases[i].partial)
            put_text("a.partial", cases[i].partial);
        assert_int_equal(gw_file_open(folder, "a", true, &file), GW_OK);
        check_file("a", cases[i].left);
        assert_int_equal(gw_file_cut(&file, cases[i].at), GW_OK);
        fputs("X", file.stream);
        assert_int_equal(gw_file_commit(&file), GW_OK);
        check_file("a", cases[i].result);
        check_file("a.partial", NULL);
    }
    unlink(in("a"));
}

TEST_BETWEEN(what_cannot_be_written_or_read, make_folder, remove_empty_folder)
{
    struct gw_file file;
    uint8_t *bytes;
    size_t n;
    uint64_t all;
    assert_int_equal(gw_file_open("/nowhere/at/all", "a", false, &file), GW_ERR_SYSTEM);
    assert_int_equal(gw_file_open("/nowhere/at/all", "a", true, &file), GW_ERR_SYSTEM);
    static char longest[sizeof file.path - 1]; /* with "/a" it is one byte too long */
    memset(longest, 'x', sizeof longest - 1);
    assert_int_equal(gw_file_open(longest, "a", false, &file), GW_ERR_ARGUMENT);
    longest[sizeof longest - 2] = 0;
    assert_int_equal(gw_file_open(longest, "a", false, &file), GW_ERR_SYSTEM);
    assert_int_equal(gw_file_read(in("absent"), SIZE_MAX, &bytes, &n, &all), GW_ERR_SYSTEM);
    assert_int_equal(gw_file_read(folder, SIZE_MAX, &bytes, &n, &all), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), "is no regular file"));
    assert_int_equal(mkfifo(in("pipe"), 0600), 0);
    assert_int_equal(mkfifo(in("a" GW_PARTIAL), 0600), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(gw_file_open(folder, "a", again, &file), GW_ERR_SYSTEM);
        assert_non_null(strstr(gw_last_error(), "is no regular file"));
    }
    unlink(in("a" GW_PARTIAL));
    assert_int_equal(gw_file_read(in("pipe"), SIZE_MAX, &bytes, &n, &all), GW_ERR_SYSTEM);
    unlink(in("pipe"));
    /* A write that failed is told by whichever call looks first, and the file does not get its name. */
    for (int how = 0; how < 3; how++) {
        assert_int_equal(gw_file_open(folder, "a", false, &file), GW_OK);
        file.stream = freopen("/dev/full", "we", file.stream);
        assert_non_null(file.stream);
        setvbuf(file.stream, NULL, _IONBF, 0);
        assert_true(fputs("x", file.stream) < 0);
        assert_int_equal(how == 0   ? gw_file_check(&file)
                         : how == 1 ? gw_file_sync(&file)
                                    : gw_file_commit(&file),
                         GW_ERR_SYSTEM);
        assert_non_null(strstr(gw_last_error(), "a.partial failed: "));
        gw_file_discard(&file, false);
        check_file("a", NULL);
        check_file("a.partial", NULL);
    }
}

/* ---- a folder -------------------------------------------------------------------------------------------- */

/* Names that a run writes, and such that look like it. */
static const struct {
    const char *name;
    bool owned, grows, at_end,
        is_whole; /* grows: stays for a run that is resumed while it is partial; at_end: says how the run ended */
} names[] = {
    {"run.json", true, false, false, true},
    {"metrics.jsonl", true, false, false, true},
    {"metrics.jsonl.partial", true, true, false, false},
    {"histograms.jsonl", true, false, false, true},
    {"histograms.jsonl.partial", true, true, false, false},
    {"events.out.tfevents.0.gradwire", true, false, false, true},
    {"events.out.tfevents.0.gradwire.partial", true, true, false, false},
    {"report.html", true, false, true, true},
    {"report.html.partial", true, false, false, false},
    {"summary.json", true, false, true, true},
    {"parameters.gwp", true, false, true, true},
    {"parameters.gwp.partial", true, false, false, false},
    {"checkpoint-00000007.gwp", true, false, false, true},
    {"checkpoint-00000123.gwp.partial", true, false, false, false},
    {"checkpoint-123456789.gwp", true, false, false, true},
    {"checkpoint-00000007.rank-1-of-4.gws", true, false, false, true},
    {"checkpoint-00000007.rank-1-of-4.gws.partial", true, false, false, false},
    {".partial", false, false, false, false},
    {"run.jso", false, false, false, false},
    {"run.json2", false, false, false, false},
    {"run.json.partial.partial", false, false, false, false},
    {"checkpoint-7.gwp", false, false, false, false},
    {"checkpoint-000000007.gwp", false, false, false, false},
    {"checkpoint-00000009.gwp2", false, false, false, false},
    {"checkpoint-00000007.rank-01-of-4.gws", false, false, false, false},
    {"checkpoint-00000007.rank-1-of-4.gw", false, false, false, false},
    {"mine.txt", false, false, false, false},
};
enum { N_NAMES = sizeof names / sizeof *names };

static void put_all(void)
{
    for (int i = 0; i < N_NAMES; i++)
        put_text(names[i].name, "x");
}

TEST_BETWEEN(names_of_a_run, make_folder, remove_empty_folder)
{
    put_all();
    for (int i = 0; i < N_NAMES; i++) {
        char elsewhere[300];
        snprintf(elsewhere, sizeof elsewhere, "/tmp/%s", names[i].name);
        const bool report = strcmp(names[i].name, "report.html") == 0;
        CHECK(gw_folder_owns(folder, in(names[i].name)) == (names[i].owned && !report), "%s", names[i].name);
        CHECK(!gw_folder_owns(folder, elsewhere) && !gw_folder_owns(folder, names[i].name), "%s", names[i].name);
    }
    assert_false(gw_folder_owns(in("absent"), in("run.json")));
    for (int i = 0; i < N_NAMES; i++)
        unlink(in(names[i].name));
}

TEST_BETWEEN(the_newest_checkpoint, make_folder, remove_empty_folder)
{
    DIR *lock;
    uint64_t step = 99;
    assert_int_equal(gw_folder_lock(folder, &lock), GW_OK);
    assert_false(gw_folder_newest_checkpoint(lock, UINT64_MAX, &step));
    static const char *const files[] = {"checkpoint-00000030.gwp", "checkpoint-00000007.gwp", "checkpoint-00000100.gwp",
                                        "checkpoint-00000200.gwp.partial", "checkpoint-00000200.rank-0-of-1.gws"};
    for (int i = 0; i < 5; i++)
        put_text(files[i], "x");
    assert_true(gw_folder_newest_checkpoint(lock, UINT64_MAX, &step) && step == 100);
    assert_true(gw_folder_newest_checkpoint(lock, 101, &step) && step == 100);
    assert_true(gw_folder_newest_checkpoint(lock, 100, &step) && step == 30);
    assert_true(gw_folder_newest_checkpoint(lock, 8, &step) && step == 7);
    assert_false(gw_folder_newest_checkpoint(lock, 7, &step));
    for (int i = 0; i < 5; i++)
        unlink(in(files[i]));
    closedir(lock);
}

TEST_BETWEEN(an_earlier_run_is_cleared, make_folder, remove_empty_folder)
{
    for (int keep_whole = 0; keep_whole < 2; keep_whole++) {
        DIR *lock;
        assert_int_equal(gw_folder_lock(folder, &lock), GW_OK);
        assert_int_equal(gw_folder_check(folder, lock), GW_OK);
        assert_false(gw_folder_is_complete(lock));
        put_all();
        assert_true(gw_folder_is_complete(lock));
        assert_int_equal(gw_folder_check(folder, lock), GW_ERR_SYSTEM);
        assert_non_null(strstr(gw_last_error(), "(checkpoint-00000007.gwp and 16 other files)"));
        assert_int_equal(gw_folder_clear(folder, lock, keep_whole), GW_OK);
        for (int i = 0; i < N_NAMES; i++) {
            const bool stays =
                !names[i].owned || (keep_whole && (names[i].grows || (names[i].is_whole && !names[i].at_end)));
            CHECK((access(in(names[i].name), F_OK) == 0) == stays, "%s, keep_whole %d", names[i].name, keep_whole);
            unlink(in(names[i].name));
        }
        put_text("mine.txt", "x");
        assert_int_equal(gw_folder_check(folder, lock), GW_OK);
        put_text("run.json", "x");
        assert_int_equal(gw_folder_check(folder, lock), GW_ERR_SYSTEM);
        assert_non_null(strstr(gw_last_error(), "(run.json)"));
        put_text("metrics.jsonl.partial", "x");
        assert_int_equal(gw_folder_check(folder, lock), GW_ERR_SYSTEM);
        assert_non_null(strstr(gw_last_error(), "(metrics.jsonl.partial and 1 other file)"));
        unlink(in("mine.txt"));
        unlink(in("run.json"));
        unlink(in("metrics.jsonl.partial"));
        closedir(lock);
    }
}

TEST_BETWEEN(one_at_a_time, make_folder, remove_empty_folder)
{
    DIR *lock, *other;
    assert_int_equal(gw_folder_create(folder), GW_OK); /* it is there */
    assert_int_equal(gw_folder_create(in("new")), GW_OK);
    assert_int_equal(gw_folder_lock(in("new"), &lock), GW_OK);
    assert_true(gw_folder_is(lock, in("new")));
    assert_false(gw_folder_is(lock, folder));
    assert_false(gw_folder_is(lock, in("absent")));
    assert_int_equal(gw_folder_lock(in("new"), &other), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), "another run is writing"));
    closedir(lock);
    assert_int_equal(gw_folder_lock(in("new"), &lock), GW_OK);
    closedir(lock);
    assert_int_equal(gw_folder_lock(in("absent"), &lock), GW_ERR_SYSTEM);
    put_text("file", "x");
    assert_int_equal(gw_folder_create(in("file")), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), "Not a directory"));
    assert_int_equal(gw_folder_create(in("no/parent")), GW_ERR_SYSTEM);
    unlink(in("file"));
    rmdir(in("new"));
}

/* ---- run.json -------------------------------------------------------------------------------------------- */

/* It is found from the folder and from a file in it. */
TEST_BETWEEN(options_come_back, make_folder, remove_empty_folder)
{
    json_t *options = json_pack("{s:i}", "seed", 7), *run;
    assert_int_equal(gw_run_file_read(folder, &run), GW_OK);
    assert_null(run); /* there is none yet */
    assert_int_equal(gw_run_file_write(folder, options, "4+2 samples"), GW_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gw_run_file_read(i ? in("parameters.gwp") : folder, &run), GW_OK);
        assert_true(json_equal(json_object_get(run, "options"), options));
        assert_string_equal(json_string_value(json_object_get(run, "data")), "4+2 samples");
        json_decref(run);
    }
    assert_int_equal(gw_run_file_write("/nowhere/at/all", options, "4+2 samples"), GW_ERR_SYSTEM);
    json_decref(options);
    static const char *const bad[] = {"{\"options\": {}", "{\"options\": 3}", "[]", ""};
    for (int i = 0; i < 4; i++) {
        put_text("run.json", bad[i]);
        CHECK(gw_run_file_read(folder, &run) == GW_ERR_SYSTEM && !run, "%s", bad[i]);
    }
    unlink(in("run.json"));
}

RUN_TESTS("disk folder", NULL, NULL)
