/* Tests that opening waits for a descriptor, and that every other error comes at once. */
#include "base/files.h"
#include "descriptors.h"

#include <stdlib.h>
#include <string.h>

static char path[64];

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

static void test_waits_for_a_descriptor(void **state)
{
    (void)state;
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

static void test_gives_up(void **state)
{
    (void)state;
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

static void test_other_errors(void **state)
{
    (void)state;
    errno = 0;
    assert_true(gw_openat(AT_FDCWD, "/nowhere/at/all", O_RDONLY, 0) < 0 && errno == ENOENT);
    errno = 0;
    assert_true(!gw_fopen("/nowhere/at/all", "r") && errno == ENOENT);
    errno = 0;
    assert_true(!gw_opendir(path) && errno == ENOTDIR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_for_a_descriptor),
        cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_other_errors),
    };
    return cmocka_run_group_tests_name("files", tests, make_file, remove_file);
}
