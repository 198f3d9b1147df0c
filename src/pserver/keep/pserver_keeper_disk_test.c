/* Tests the order in which files come to disk, and what happens if the disk is full. */
#define _GNU_SOURCE /* nftw */
#include "pserver/keep/test_keeper.h"

/* ---- what comes to disk first -------------------------------------------------------------------------------------
 */

/* A disk that takes its time with one file: until another has come, or some seconds have passed. */
static struct slow_disk {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ino_t slow; /* 0: none */
    bool slow_came, other_was_first;
} disk = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false, false};

int fdatasync(int fd) /* in place of the system's */
{
    struct stat st;
    struct timespec deadline;
    pthread_mutex_lock(&disk.lock);
    if (disk.slow && !disk.slow_came && fstat(fd, &st) == 0) {
        if (st.st_ino == disk.slow) {
            clock_gettime(CLOCK_REALTIME, &deadline);
            deadline.tv_sec += 3;
            while (!disk.other_was_first && pthread_cond_timedwait(&disk.changed, &disk.lock, &deadline) == 0)
                ;
            disk.slow_came = true;
        } else {
            disk.other_was_first = true;
            pthread_cond_broadcast(&disk.changed);
        }
    }
    pthread_mutex_unlock(&disk.lock);
    return (int)syscall(SYS_fdatasync, fd);
}

static ino_t watched;             /* guarded by the lock */
static bool watched_came = false; /* likewise */

int fsync(int fd) /* in place of the system's */
{
    struct stat st;
    pthread_mutex_lock(&disk.lock);
    if (fstat(fd, &st) == 0 && st.st_ino == watched)
        watched_came = true;
    pthread_mutex_unlock(&disk.lock);
    return (int)syscall(SYS_fsync, fd);
}

static void slow_down(ino_t file)
{
    pthread_mutex_lock(&disk.lock);
    disk.slow = file;
    pthread_mutex_unlock(&disk.lock);
}

/* If the name of a new folder is lost, its files are lost too. */
static void test_a_new_folder_comes_to_disk(void **state)
{
    struct world world;
    struct stat st;
    char above[64];
    (void)state;
    begin(&world, 3);
    close_it(&world);
    snprintf(above, sizeof above, "%s", world.folder);
    snprintf(world.folder + strlen(above), sizeof world.folder - strlen(above), "/new");
    assert_int_equal(stat(above, &st), 0);
    pthread_mutex_lock(&disk.lock);
    watched = st.st_ino;
    pthread_mutex_unlock(&disk.lock);
    CHECK(try_open(&world) == GW_OK, "%s", gw_last_error());
    pthread_mutex_lock(&disk.lock);
    CHECK(watched_came, "the folder that the new one is in");
    watched = 0;
    pthread_mutex_unlock(&disk.lock);
    world.folder[strlen(above)] = 0;
    end(&world);
}

/* A machine that loses its power must not have the next journal, and not the end of the one before. */
static void test_journals_come_to_disk_in_order(void **state)
{
    struct world world;
    struct stat st;
    (void)state;
    begin(&world, 3);
    append_many(&world, 5);
    assert_int_equal(stat(path_of(&world, "journal-00000000.gwj"), &st), 0);
    slow_down(st.st_ino);
    assert_int_equal(snapshot(&world), GW_OK);
    append_many(&world, 5);
    assert_int_equal(gw_ps_keeper_finish(world.keeper), GW_OK);
    slow_down(0);
    CHECK(disk.slow_came && !disk.other_was_first,
          "the journal of the snapshot came to disk before the one that it follows");
    end(&world);
}

/* The next one may be there all the same, as a name with nothing behind it. */
static void test_torn_before_an_empty_one(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 3);
    append_many(&world, 5);
    close_it(&world);
    struct file file = read_file(&world, "journal-00000000.gwj");
    write_file(&world, "journal-00000000.gwj", file.bytes, file.n - 1);
    write_file(&world, "journal-00000001.gwj", "", 0);
    CHECK(try_open(&world) == GW_OK && world.count == 4 && told(&world, "cut file=journal-00000000.gwj"), "%s",
          gw_last_error());
    CHECK(!is_there(&world, "journal-00000001.gwj"), "nothing follows");
    append_many(&world, 3);
    snapshot_now(&world);
    append_many(&world, 1);
    reopen(&world);
    CHECK(world.count == 8, "%llu", (unsigned long long)world.count);
    free(file.bytes);
    end(&world);
}

/* ---- a full disk --------------------------------------------------------------------------------------------------
 */

static void most_file_bytes(rlim_t n)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Until one is refused; how many were not. */
static uint64_t append_until_full(struct world *world)
{
    while (append(world) == GW_OK)
        ;
    CHECK(!gw_ps_keeper_info(world->keeper).durable && gw_ps_keeper_info(world->keeper).reason[0], "durable");
    return world->count - 1;
}

/* Files cannot become longer than so many bytes. To the writer this looks like a full disk. */
static void test_full(void **state)
{
    struct world world;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    for (int snapshots = 0; snapshots < 3; snapshots++) {
        begin(&world, 3);
        append_many(&world, 3);
        if (snapshots)
            snapshot_now(&world);
        most_file_bytes(20000);
        const uint64_t kept = append_until_full(&world);
        CHECK(kept > 3 && append(&world) == GW_ERR_SYSTEM && gw_ps_keeper_due(world.keeper), "%s", gw_last_error());
        for (int i = 0; i < 2 && snapshots == 2; i++) { /* not even the snapshot fits */
            most_file_bytes(i ? 10 : 100);
            CHECK(snapshot(&world) < 0 || gw_ps_keeper_finish(world.keeper) == GW_ERR_SYSTEM, "of a full disk");
            CHECK(append(&world) == GW_ERR_SYSTEM && !gw_ps_keeper_due(world.keeper) && told(&world, "snapshot-failed"),
                  "a pause");
        }
        most_file_bytes(RLIM_INFINITY);
        CHECK(append(&world) == GW_ERR_SYSTEM, "room is not enough: records are missing");
        reopen(&world);
        CHECK(world.count == kept && gw_ps_keeper_info(world.keeper).durable, "%llu of %llu: %s",
              (unsigned long long)world.count, (unsigned long long)kept, world.log);
        end(&world);
    }
}

/* Once there is room, a snapshot mends it, and all is there from then on. */
static void test_room_again(void **state)
{
    struct world world;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    begin(&world, 3);
    for (int i = 0; i < 3; i++) {
        most_file_bytes(20000);
        append_until_full(&world);
        most_file_bytes(100);
        CHECK(snapshot(&world) < 0 || gw_ps_keeper_finish(world.keeper) == GW_ERR_SYSTEM, "of a full disk");
        most_file_bytes(RLIM_INFINITY);
        CHECK(snapshot(&world) == GW_OK, "%s", gw_last_error());
        append(&world); /* may or may not be kept yet */
        CHECK(gw_ps_keeper_finish(world.keeper) == GW_OK && gw_ps_keeper_info(world.keeper).durable &&
                  told(&world, "\ndurable"),
              "%s", world.log);
        append_many(&world, 5);
        const uint64_t count = world.count;
        reopen(&world);
        CHECK(world.count == count, "%llu of %llu: %s", (unsigned long long)world.count, (unsigned long long)count,
              world.log);
    }
    end(&world);
}

/* Snapshots fail, and the journals go on: all of them since the last snapshot are counted. */
static void test_bytes_since_a_snapshot(void **state)
{
    struct world world;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    begin(&world, 3);
    for (int i = 0; i < 4; i++) {
        append_many(&world, 3 + i);
        const uint64_t before = gw_ps_keeper_info(world.keeper).journal_bytes;
        most_file_bytes(100);
        CHECK(snapshot(&world) == GW_OK && gw_ps_keeper_finish(world.keeper) == GW_ERR_SYSTEM, "of a full disk");
        most_file_bytes(RLIM_INFINITY);
        const uint64_t now = gw_ps_keeper_info(world.keeper).journal_bytes;
        CHECK(now == before + GW_PS_RECORDS_HEADER, "%llu bytes, %llu before", (unsigned long long)now,
              (unsigned long long)before);
    }
    snapshot_now(&world);
    assert_int_equal(gw_ps_keeper_info(world.keeper).journal_bytes, GW_PS_RECORDS_HEADER);
    end(&world);
}

/* The newest snapshot mended a gap, and is damaged: the older one does not pass for it. */
static void test_gap_is_not_skipped(void **state)
{
    struct world world;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    begin(&world, 3);
    most_file_bytes(20000);
    append_until_full(&world);
    most_file_bytes(RLIM_INFINITY);
    snapshot_now(&world);
    append_many(&world, 2);
    close_it(&world);
    write_file(&world, "snapshot-00000001.gws", "nothing", 7);
    CHECK(try_open(&world) == GW_ERR_SYSTEM && told(&world, "follows a gap"), "%s", world.log);
    end(&world);
}

/* It mended a gap, and is gone: what it held, and the journal after it, are not left out without a word. */
static void test_snapshot_after_a_gap_is_missing(void **state)
{
    struct world world;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    begin(&world, 3);
    most_file_bytes(20000);
    append_until_full(&world);
    most_file_bytes(RLIM_INFINITY);
    snapshot_now(&world);
    append_many(&world, 2);
    close_it(&world);
    remove_file(&world, "snapshot-00000001.gws");
    CHECK(try_open(&world) == GW_ERR_SYSTEM && strstr(gw_last_error(), "needs snapshot-00000001.gws"), "%s", world.log);
    remove_file(&world, "journal-00000001.gwj");
    check_newest_missing(&world, "journal-00000001.gwj");
    end(&world);
}

static void test_full_tmpfs(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 2);
    close_it(&world);
    if (mount("tmpfs", world.folder, "tmpfs", 0, "size=256k") != 0) {
        print_message("skipped: a small tmpfs cannot be mounted: %s\n", strerror(errno));
        end(&world);
        skip();
    }
    assert_int_equal(try_open(&world), GW_OK);
    const uint64_t kept = append_until_full(&world);
    CHECK(strstr(gw_ps_keeper_info(world.keeper).reason, strerror(ENOSPC)), "%s",
          gw_ps_keeper_info(world.keeper).reason);
    CHECK(snapshot(&world) < 0 || gw_ps_keeper_finish(world.keeper) == GW_ERR_SYSTEM, "of a full disk");
    CHECK(!is_there(&world, "snapshot-00000001.gws.partial") && !is_there(&world, "snapshot-00000001.gws"),
          "half a snapshot");
    close_it(&world);
    CHECK(try_open(&world) == GW_OK && world.count == kept, "%s", gw_last_error());
    append_until_full(&world);
    assert_int_equal(mount("tmpfs", world.folder, "tmpfs", MS_REMOUNT, "size=2m"), 0);
    snapshot_now(&world);
    append_many(&world, 10);
    const uint64_t count = world.count;
    reopen(&world);
    CHECK(world.count == count, "%s", world.log);
    close_it(&world);
    assert_int_equal(umount(world.folder), 0);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_folder_comes_to_disk),
        cmocka_unit_test(test_journals_come_to_disk_in_order),
        cmocka_unit_test(test_torn_before_an_empty_one),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_room_again),
        cmocka_unit_test(test_bytes_since_a_snapshot),
        cmocka_unit_test(test_gap_is_not_skipped),
        cmocka_unit_test(test_snapshot_after_a_gap_is_missing),
        cmocka_unit_test(test_full_tmpfs),
    };
    return cmocka_run_group_tests_name("pserver_keeper_disk", tests, NULL, NULL);
}
