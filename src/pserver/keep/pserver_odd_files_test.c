/* Tests a folder of snapshots in which something that is no file has a file's name: it is refused at once. */
#include "base/error.h"
#include "checks.h"
#include "pserver/keep/keeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gw_status on_record(void *user, uint8_t type, const void *head, size_t n_head, const void *body, size_t n_body)
{
    (void)user, (void)type, (void)head, (void)n_head, (void)body, (void)n_body;
    return GW_OK;
}

static void in_place_of_a_file(void **state)
{
    (void)state;
    static const char *const names[] = {"journal-00000000.gwj", "snapshot-00000001.gws"};
    for (int n = 0; n < 2; n++)
        for (int is_folder = 0; is_folder < 2; is_folder++) {
            char folder[] = "/tmp/gradwire-odd.XXXXXX", path[100], lock[100];
            struct gw_ps_keeper *keeper = NULL;
            CHECK(mkdtemp(folder) != NULL, "no folder");
            snprintf(path, sizeof path, "%s/%s", folder, names[n]);
            snprintf(lock, sizeof lock, "%s/lock", folder);
            CHECK((is_folder ? mkdir(path, 0700) : mkfifo(path, 0600)) == 0, "cannot make %s", path);
            const struct gw_ps_keeper_options options = {.folder = folder, .keep = 3, .every_s = 1e9};
            alarm(60); /* a FIFO that is waited for ends the test */
            gw_status status = gw_ps_keeper_open(NULL, &options, on_record, NULL, &keeper);
            alarm(0);
            CHECK(status == GW_ERR_SYSTEM && strstr(gw_last_error(), names[n]) && strstr(gw_last_error(), "no file"),
                  "%d: %s", status, gw_last_error());
            struct stat st;
            CHECK(stat(path, &st) == 0 && (is_folder ? S_ISDIR(st.st_mode) : S_ISFIFO(st.st_mode)), "it was touched");
            remove(path);
            unlink(lock);
            CHECK(rmdir(folder) == 0, "something was left in %s", folder);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_place_of_a_file)};
    return cmocka_run_group_tests_name("odd files", tests, NULL, NULL);
}
