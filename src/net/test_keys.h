/* What tests of keys share: a folder for them that is removed at the end, and files in it. */
#ifndef GW_NET_TEST_KEYS_H
#define GW_NET_TEST_KEYS_H

#include "folders.h"
#include "net/keys.h"
#include "outcome.h"

#include <gradwire/link.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char test_keys_root[] = GW_BINARY_DIR "/keys_test.XXXXXX";

/* The path of a name. It stays. */
static inline const char *at(const char *name)
{
    static char paths[64][200];
    char path[200];
    int i = 0;
    snprintf(path, sizeof path, "%s/%s", test_keys_root, name);
    while (paths[i][0] && strcmp(paths[i], path) != 0)
        assert_true(++i < 64);
    return strcpy(paths[i], path);
}

static inline void write_file(const char *path, const char *text, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static inline void read_file(const char *path, char text[1000])
{
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, 999);
    assert_true(n >= 0);
    text[n] = 0;
    close(fd);
}

static inline void copy_file(const char *from, const char *to)
{
    char text[1000];
    read_file(from, text);
    write_file(to, text, 0644);
}

static inline int begin(void **state)
{
    (void)state;
    return mkdtemp(test_keys_root) && gw_keys_new(at("job"), NULL, NULL) == GW_OK &&
                   gw_keys_new(at("other"), NULL, NULL) == GW_OK
               ? 0
               : 1;
}

static inline int end(void **state)
{
    (void)state;
    remove_folder(test_keys_root);
    return 0;
}

#endif
