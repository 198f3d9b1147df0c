/* Tests that opening waits for a descriptor, and that every other error comes at once. And how a written file gets its
 * name, also where the file system knows only the plain rename. */
#define _GNU_SOURCE /* renameat2 */
#include "base/files.h"
#include "checks.h"
#include "descriptors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static char path[64];

static int error_of_renameat2, error_of_fsync; /* 0: the call works as it should */

/* These two take the place of the C library's functions. */
int fsync(int fd)
{
    if (error_of_fsync) {
        errno = error_of_fsync;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (error_of_renameat2) {
        errno = error_of_renameat2;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

static int make_file(void **state)
{
    (void)state;
    strcpy(path, "/tmp/gradwire-files-XXXXXX");
    const int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

TEST(test_waits_for_a_descriptor)
{
    struct descriptors all;
    for (int how = 0; how < 3; how++) {
        descriptors_take(&all);
        descriptors_give_soon(&all);
        const int fd = how == 0 ? gw_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
        FILE *file = how == 1 ? gw_fopen(path, "r+be") : NULL;
        DIR *folder = how == 2 ? gw_opendir("/tmp") : NULL;
        const int error = errno;
        descriptors_end(&all);
        CHECK(fd >= 0 || file || folder, "way %d: %s", how, strerror(error));
        if (fd >= 0)
            close(fd);
        if (file)
            fclose(file);
        if (folder)
            closedir(folder);
    }
}

TEST(test_gives_up)
{
    struct descriptors all;
    descriptors_take(&all);
    const int fd = gw_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), error_of_open = errno;
    FILE *file = gw_fopen(path, "rbe");
    const int error_of_fopen = errno;
    DIR *folder = gw_opendir("/tmp");
    const int error_of_opendir = errno;
    descriptors_give_soon(&all);
    descriptors_end(&all);
    CHECK(fd < 0 && error_of_open == EMFILE, "%d", error_of_open);
    CHECK(!file && error_of_fopen == EMFILE, "%d", error_of_fopen);
    CHECK(!folder && error_of_opendir == EMFILE, "%d", error_of_opendir);
}

TEST(test_other_errors)
{
    errno = 0;
    assert_true(gw_openat(AT_FDCWD, "/nowhere/at/all", O_RDONLY, 0) < 0 && errno == ENOENT);
    errno = 0;
    assert_true(!gw_fopen("/nowhere/at/all", "r") && errno == ENOENT);
    errno = 0;
    assert_true(!gw_opendir(path) && errno == ENOTDIR);
}

/* True if FOLDER/NAME holds `text` alone. text NULL: true if it is not there. */
static bool holds(int folder, const char *name, const char *text)
{
    char found[8] = "";
    const int fd = openat(folder, name, O_RDONLY);
    if (fd < 0)
        return !text;
    const ssize_t n = read(fd, found, sizeof found - 1);
    close(fd);
    return text && n == (ssize_t)strlen(text) && strcmp(found, text) == 0;
}

static void put(int folder, const char *name, const char *text)
{
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

TEST(test_a_file_gets_its_name)
{
    char top[] = "/tmp/gradwire-files-XXXXXX", full[64], partial[64];
    assert_non_null(mkdtemp(top));
    const int folder = open(top, O_RDONLY | O_DIRECTORY);
    assert_int_equal(mkdirat(folder, "in", 0700), 0);
    put(folder, "in/a.partial", "1");
    assert_int_equal(gw_files_publish(folder, "in/a.partial", "in/a", false), 0);
    assert_true(holds(folder, "in/a", "1") && holds(folder, "in/a.partial", NULL));
    put(folder, "in/a.partial", "2");
    assert_int_equal(gw_files_publish(folder, "in/a.partial", "in/a", false), -1); /* the name is taken */
    assert_int_equal(errno, EEXIST);
    assert_true(holds(folder, "in/a", "1") && holds(folder, "in/a.partial", NULL));
    put(folder, "in/a.partial", "2");
    assert_int_equal(gw_files_publish(folder, "in/a.partial", "in/a", true), 0);
    assert_true(holds(folder, "in/a", "2"));
    assert_int_equal(gw_files_publish(folder, "absent", "in/a", true), -1);
    assert_int_equal(errno, ENOENT);
    assert_true(holds(folder, "in/a", "2"));
    put(folder, "b.partial", "3"); /* with whole paths */
    snprintf(full, sizeof full, "%s/b", top);
    snprintf(partial, sizeof partial, "%s/b.partial", top);
    assert_int_equal(gw_files_publish(AT_FDCWD, partial, full, true), 0);
    assert_true(holds(folder, "b", "3"));
    unlinkat(folder, "in/a", 0);
    unlinkat(folder, "in", AT_REMOVEDIR);
    unlinkat(folder, "b", 0);
    close(folder);
    assert_int_equal(rmdir(top), 0);
}

/* Some file systems know only the plain rename (renameat2 says EINVAL). There files get names, too, and a name that is
 * taken stays. Any other error is an error. */
TEST(test_without_renameat2)
{
    char top[] = "/tmp/gradwire-files-XXXXXX";
    assert_non_null(mkdtemp(top));
    const int folder = open(top, O_RDONLY | O_DIRECTORY);
    error_of_renameat2 = EINVAL;
    put(folder, "a.partial", "1");
    assert_int_equal(gw_files_publish(folder, "a.partial", "a", false), 0);
    assert_true(holds(folder, "a", "1") && holds(folder, "a.partial", NULL));
    put(folder, "a.partial", "2");
    assert_int_equal(gw_files_publish(folder, "a.partial", "a", false), -1);
    assert_int_equal(errno, EEXIST);
    assert_true(holds(folder, "a", "1") && holds(folder, "a.partial", NULL));
    assert_int_equal(symlinkat("nowhere", folder, "link"), 0); /* this name is taken, though no file is there */
    put(folder, "a.partial", "3");
    assert_int_equal(gw_files_publish(folder, "a.partial", "link", false), -1);
    assert_int_equal(errno, EEXIST);
    put(folder, "a.partial", "4");
    assert_int_equal(gw_files_publish(folder, "a.partial", "a", true), 0); /* this uses the plain rename in any case */
    assert_true(holds(folder, "a", "4"));
    assert_int_equal(gw_files_publish(folder, "absent", "b", false), -1);
    assert_int_equal(errno, ENOENT);
    error_of_renameat2 = EACCES;
    put(folder, "b.partial", "5");
    assert_int_equal(gw_files_publish(folder, "b.partial", "b", false), -1);
    assert_int_equal(errno, EACCES);
    assert_true(holds(folder, "b", NULL) && holds(folder, "b.partial", NULL));
    error_of_renameat2 = 0;
    unlinkat(folder, "link", 0);
    unlinkat(folder, "a", 0);
    close(folder);
    assert_int_equal(rmdir(top), 0);
}

/* A file has its name also in a folder that may be written but not read, and if the file system cannot sync folders. If
 * the folder does not come to disk, that is an error. */
TEST(test_the_folder_comes_to_disk)
{
    char top[] = "/tmp/gradwire-files-XXXXXX";
    const bool is_root = geteuid() == 0; /* root may read every folder */
    assert_non_null(mkdtemp(top));
    const int folder = open(top, O_RDONLY | O_DIRECTORY);
    put(folder, "a.partial", "1");
    assert_int_equal(chmod(top, 0300), 0);
    assert_true(!is_root || (chown(top, 65534, (gid_t)-1) == 0 && seteuid(65534) == 0));
    const int result = gw_files_publish(folder, "a.partial", "a", true);
    assert_true(!is_root || seteuid(0) == 0);
    assert_int_equal(result, 0);
    assert_int_equal(chmod(top, 0700), 0);
    error_of_fsync = EINVAL;
    put(folder, "a.partial", "2");
    assert_int_equal(gw_files_publish(folder, "a.partial", "a", true), 0);
    error_of_fsync = EIO;
    put(folder, "a.partial", "3");
    assert_int_equal(gw_files_publish(folder, "a.partial", "a", true), -1);
    assert_int_equal(errno, EIO);
    assert_true(holds(folder, "a", "3"));
    put(folder, "b.partial", "4"); /* this name was free, so it is free again */
    assert_int_equal(gw_files_publish(folder, "b.partial", "b", false), -1);
    assert_int_equal(errno, EIO);
    assert_true(holds(folder, "b", NULL) && holds(folder, "b.partial", NULL));
    error_of_fsync = 0;
    unlinkat(folder, "a", 0);
    close(folder);
    assert_int_equal(rmdir(top), 0);
}

RUN_TESTS("files", make_file, remove_file)
