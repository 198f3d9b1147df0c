/* Writes output files that are whole or absent. */
#include "base/clock.h"
#include "base/files.h"
#include "tool.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The temporary files that the signal handler removes; NULL: none. The program writes this only while the signals are
 * blocked. */
enum { MAX_OPEN = 8192 }; /* export has several for each tensor of a network */
static const char *doomed[MAX_OPEN];
static int n_doomed;

enum { PIPE_SECONDS = 5 };

static struct sigaction saved_actions[TOOL_N_STOPS];

/* Because of SA_RESETHAND the signal that it raises ends the process as if there were no handler. */
static void remove_and_end(int number)
{
    for (int i = 0; i < MAX_OPEN; i++)
        if (doomed[i])
            unlink(doomed[i]);
    raise(number);
}

/* `temporary` must stay where it is until unwatch_signals. */
static void watch_signals(const char *temporary)
{
    int free_place = 0;
    while (doomed[free_place])
        free_place++;
    doomed[free_place] = temporary;
    if (n_doomed++ > 0)
        return;
    for (int i = 0; i < TOOL_N_STOPS; i++) {
        sigaction(tool_stops[i], NULL, &saved_actions[i]);
        if (saved_actions[i].sa_handler == SIG_IGN)
            continue; /* under nohup the signal stays ignored */
        struct sigaction action = {.sa_handler = remove_and_end, .sa_flags = (int)SA_RESETHAND};
        sigemptyset(&action.sa_mask);
        sigaction(tool_stops[i], &action, NULL);
    }
}

static void unwatch_signals(const char *temporary)
{
    for (int i = 0; i < MAX_OPEN; i++)
        if (doomed[i] == temporary) {
            doomed[i] = NULL;
            n_doomed--;
        }
    if (n_doomed > 0)
        return;
    for (int i = 0; i < TOOL_N_STOPS; i++)
        sigaction(tool_stops[i], &saved_actions[i], NULL);
}

static void release(tool_output *output)
{
    free(output->path);
    free(output->temporary);
    *output = TOOL_OUTPUT_CLOSED;
}

/* Makes FOLDER/.NAME.PID.tmp of FOLDER/NAME. NULL: it does not fit, or there is no memory. */
static char *temporary_name(const char *path)
{
    char name[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path + 1) : 0;
    int n = snprintf(name, sizeof name, "%.*s.%s.%ld.tmp", folder, path, path + folder, (long)getpid());
    return n < (int)sizeof name ? strdup(name) : NULL;
}

/* True if an output is open that has this temporary name: two names of one file, by a link. */
static bool is_open(const char *temporary)
{
    for (int i = 0; i < MAX_OPEN; i++)
        if (doomed[i] && strcmp(doomed[i], temporary) == 0)
            return true;
    return false;
}

/* Opens what is no file. A pipe has no reader yet if both were started at once, so its reader gets some seconds. */
static int open_special(const char *path, bool pipe)
{
    const double deadline = gw_clock_seconds() + (pipe ? PIPE_SECONDS : 0);
    int fd;
    while ((fd = gw_openat(AT_FDCWD, path, O_WRONLY | O_NONBLOCK | O_CLOEXEC, 0)) < 0 && errno == ENXIO &&
           gw_clock_seconds() < deadline)
        gw_clock_sleep_until(gw_clock_seconds() + 0.02);
    if (fd >= 0)
        fcntl(fd, F_SETFL, O_WRONLY);
    return fd;
}

int tool_output_open(tool_output *output, const char *path)
{
    *output = TOOL_OUTPUT_CLOSED;
    struct stat about;
    bool exists = stat(path, &about) == 0;
    if (exists && S_ISDIR(about.st_mode))
        return tool_fail("cannot write %s: it is a folder; name a file in it", path);
    if (exists && !S_ISREG(about.st_mode)) {
        output->fd = open_special(path, S_ISFIFO(about.st_mode));
        output->path = strdup(path);
        if (output->fd >= 0 && output->path)
            return TOOL_DONE;
        tool_fail("cannot write %s: %s", path,
                  errno == ENXIO && S_ISFIFO(about.st_mode) ? "nobody reads this pipe" : strerror(errno));
        tool_output_discard(output);
        return TOOL_FAILED;
    }
    /* If the name is a symbolic link, the file behind it is replaced, and not the link. */
    output->path = exists ? realpath(path, NULL) : strdup(path);
    output->temporary = output->path ? temporary_name(output->path) : NULL;
    if (!output->temporary) {
        release(output);
        return tool_fail("cannot write %s: its name is too long", path);
    }
    if (is_open(output->temporary)) {
        release(output);
        return tool_fail("cannot write %s: it is one file with another output", path);
    }
    sigset_t before;
    tool_block_stops(&before);
    errno = EMFILE;
    if (n_doomed < MAX_OPEN)
        output->fd =
            gw_openat(AT_FDCWD, output->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    int error = errno;
    if (output->fd >= 0)
        watch_signals(output->temporary);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (output->fd >= 0)
        return TOOL_DONE;
    release(output);
    return tool_fail("cannot write %s: %s", path, strerror(error));
}

int tool_output_write(tool_output *output, const void *bytes, size_t n_bytes)
{
    const char *from = bytes;
    while (n_bytes > 0) {
        /* Linux writes at most 2 GiB at a time. */
        ssize_t written = write(output->fd, from, n_bytes < (1u << 30) ? n_bytes : (1u << 30));
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            tool_fail("cannot write %s: %s; nothing is left of it", output->path, strerror(errno));
            tool_output_discard(output);
            return TOOL_FAILED;
        }
        from += written;
        n_bytes -= (size_t)written;
    }
    return 0;
}

int tool_output_finish(tool_output *output)
{
    /* /dev/null and pipes cannot be synced. write() has already told their errors. */
    bool failed = output->temporary && fsync(output->fd) != 0;
    if (!failed) {
        failed = close(output->fd) != 0;
        output->fd = -1;
    }
    if (!failed)
        return TOOL_DONE;
    tool_fail("cannot write %s: %s", output->path, strerror(errno));
    tool_output_discard(output);
    return TOOL_FAILED;
}

/* Gives a finished file its name. Signals are blocked. */
static bool give_name(tool_output *output)
{
    if (!output->temporary)
        return true;
    if (rename(output->temporary, output->path) != 0)
        return false;
    unwatch_signals(output->temporary);
    free(output->temporary);
    output->temporary = NULL;
    output->named = true;
    return true;
}

int tool_output_commit_all(tool_output *outputs, size_t n)
{
    int status = TOOL_DONE, error = 0;
    size_t n_named = 0;
    sigset_t before;
    for (size_t i = 0; i < n && status == TOOL_DONE; i++)
        if (outputs[i].fd >= 0)
            status = tool_output_finish(&outputs[i]);
    tool_block_stops(&before); /* between two names nobody should end the program */
    while (status == TOOL_DONE && n_named < n && give_name(&outputs[n_named]))
        n_named++;
    error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == TOOL_DONE && n_named < n)
        status = tool_fail("cannot write %s: %s", outputs[n_named].path, strerror(error));
    if (status != TOOL_DONE && n_named > 0)
        tool_fail("only %zu of the %zu files are there under their names", n_named, n);
    for (size_t i = 0; i < n; i++) {
        if (status == TOOL_DONE && outputs[i].named && gw_files_sync_folder(AT_FDCWD, outputs[i].path) != 0)
            status = tool_fail("cannot write %s: %s", outputs[i].path, strerror(errno));
        tool_output_discard(&outputs[i]);
    }
    return status;
}

int tool_output_commit(tool_output *output)
{
    return tool_output_commit_all(output, 1);
}

int tool_write_file(const char *path, const void *bytes, size_t n_bytes)
{
    tool_output output;
    TOOL_TRY(tool_output_open(&output, path));
    TOOL_TRY(tool_output_write(&output, bytes, n_bytes));
    return tool_output_commit(&output);
}

void tool_output_discard(tool_output *output)
{
    if (output->fd >= 0)
        close(output->fd);
    if (output->temporary) {
        sigset_t before;
        tool_block_stops(&before);
        unlink(output->temporary);
        unwatch_signals(output->temporary);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    release(output);
}

/* ---- files that must not be one ------------------------------------------------------------- */

/* True if both names are one regular file. If neither exists yet, true if both are one name in one folder. */
static bool same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    bool a_exists = stat(a, &of_a) == 0, b_exists = stat(b, &of_b) == 0;
    if (a_exists != b_exists || (a_exists && !S_ISREG(of_a.st_mode)))
        return false;
    if (!a_exists) {
        char copy_a[PATH_MAX], copy_b[PATH_MAX];
        snprintf(copy_a, sizeof copy_a, "%s", a);
        snprintf(copy_b, sizeof copy_b, "%s", b);
        const char *name_a = strrchr(a, '/'), *name_b = strrchr(b, '/');
        if (strcmp(name_a ? name_a + 1 : a, name_b ? name_b + 1 : b) != 0 || stat(dirname(copy_a), &of_a) != 0 ||
            stat(dirname(copy_b), &of_b) != 0)
            return false;
    }
    return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

int tool_check_apart(const char *role, const char *path, const char *other_role, const char *other)
{
    if (!path || !other || !same_file(path, other))
        return TOOL_DONE;
    return tool_wrong_use(
        "%s and %s are one file, %s: what is written there would replace the other; name another file", role,
        other_role, path);
}
