/* A folder that a test has for itself, and files in it. A file that includes this defines _GNU_SOURCE first, for nftw.
 */
#ifndef GW_TESTS_OWN_FOLDER_H
#define GW_TESTS_OWN_FOLDER_H

#include "folders.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[4000];

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/test.XXXXXX", GW_BINARY_DIR);
    return mkdtemp(folder) ? 0 : -1;
}

/* The folder with all that is in it. */
static inline int clean_up(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

/* The path of a name. It stays until so many others were asked for. */
static inline const char *in(const char *name)
{
    static char paths[8][4200];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* Removes the folder, which must hold these files and no others. */
static inline int remove_folder_of(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        CHECK(unlink(in(names[i])) == 0, "%s is not there", names[i]);
    return rmdir(folder);
}

static inline int remove_empty_folder(void **state)
{
    (void)state;
    return remove_folder_of(NULL, 0);
}

/* Makes the folders on the way, too. */
static inline void put(const char *name, const void *bytes, size_t n)
{
    char part[200];
    for (const char *slash = name; (slash = strchr(slash, '/')); slash++) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - name), name);
        mkdir(in(part), 0700);
    }
    FILE *file = fopen(in(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Returns the length, which must be below `capacity`. */
static inline size_t get(const char *name, void *bytes, size_t capacity)
{
    FILE *file = fopen(in(name), "rb");
    assert_non_null(file);
    const size_t n = fread(bytes, 1, capacity, file);
    fclose(file);
    assert_true(n < capacity);
    return n;
}

static inline void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

#endif
