/* Writes what Prometheus' clients tell of every process: memory, processor time, descriptors, and when it began. */
#include "status/status.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void one(FILE *out, const char *name, const char *type, double value, const char *help)
{
    fprintf(out, "# HELP process_%s %s\n# TYPE process_%s %s\nprocess_%s %.17g\n", name, help, name, type, name, value);
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads the words of a small file of /proc. What stands in brackets counts as one word, with all before it. */
static bool read_words(const char *path, char *text, size_t n_bytes, const char **words)
{
    FILE *file = fopen(path, "re");
    const size_t n = file ? fread(text, 1, n_bytes - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = 0;
    const char *bracket = strrchr(text, ')'); /* a program's name may hold anything */
    *words = bracket ? bracket + 1 : text;
    return n > 0;
}

static void memory(FILE *out)
{
    char text[512];
    const char *words;
    uint64_t all, resident;
    if (!read_words("/proc/self/statm", text, sizeof text, &words) ||
        sscanf(words, "%" SCNu64 " %" SCNu64, &all, &resident) != 2)
        return;
    const double page = (double)sysconf(_SC_PAGESIZE);
    one(out, "virtual_memory_bytes", "gauge", (double)all * page, "Bytes of addresses.");
    one(out, "resident_memory_bytes", "gauge", (double)resident * page, "Bytes of memory.");
}

static void start(FILE *out)
{
    char text[1024];
    const char *words;
    uint64_t ticks; /* from the machine's start to the process's */
    if (!read_words("/proc/self/stat", text, sizeof text, &words) ||
        sscanf(words, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64, &ticks) !=
            1)
        return;
    const double age = seconds_of(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    one(out, "start_time_seconds", "gauge", seconds_of(CLOCK_REALTIME) - age,
        "When it began, in seconds of Unix time.");
}

static void descriptors(FILE *out)
{
    struct rlimit limit;
    DIR *folder = opendir("/proc/self/fd");
    if (folder) {
        long n = -1; /* the folder's own */
        for (const struct dirent *entry; (entry = readdir(folder));)
            n += entry->d_name[0] != '.';
        closedir(folder);
        one(out, "open_fds", "gauge", (double)n, "Descriptors that are open.");
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        one(out, "max_fds", "gauge", (double)limit.rlim_cur, "The most descriptors that may be open.");
}

void tool_status_process(FILE *out)
{
    one(out, "cpu_seconds_total", "counter", seconds_of(CLOCK_PROCESS_CPUTIME_ID), "Processor time, of all threads.");
    memory(out);
    descriptors(out);
    start(out);
}
