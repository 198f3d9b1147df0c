/* Reads folders of keys and makes new ones. It says whether a client's public key is allowed, and reads the list again
 * when the folder has changed. */
#define _GNU_SOURCE /* explicit_bzero */
#include "zmq/keys.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "net/keys.h"

#include <gradwire/link.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define PUBLIC "gradwire.key"
#define SECRET "gradwire.key_secret"
#define RENDEZVOUS "rendezvous.key"
#define SERVER "server.key"
#define ALLOWED "allowed"
#define LOOK_SECONDS 1 /* a file that was written again under the same name is noticed after this time */

static gw_status join_path(char path[PATH_MAX], const char *folder, const char *name)
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return gw_fail(GW_ERR_SYSTEM, "the path of the keys %s is too long", folder);
    return GW_OK;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static gw_status read_key(const char *folder, const char *name, bool secret, char key[GW_ZMQ_KEY_CHARS + 1])
{
    char path[PATH_MAX], text[GW_ZMQ_KEY_CHARS + 3];
    uint8_t binary[32];
    GW_TRY(join_path(path, folder, name));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return gw_fail(GW_ERR_SYSTEM, "the key %s cannot be read: %s", path, strerror(error));
    }
    if (secret && status.st_mode & 077) {
        close(fd);
        return gw_fail(GW_ERR_SYSTEM,
                       "the secret key %s can be read by others (mode %04o); it must be its owner's alone (chmod 600)",
                       path, (unsigned)status.st_mode & 07777);
    }
    ssize_t n = S_ISREG(status.st_mode) ? read(fd, text, sizeof text - 1) : 0;
    close(fd);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\r\n")] = 0;
    bool good = strlen(text) == GW_ZMQ_KEY_CHARS && zmq_z85_decode(binary, text);
    if (good)
        memcpy(key, text, GW_ZMQ_KEY_CHARS + 1);
    explicit_bzero(text, sizeof text);
    explicit_bzero(binary, sizeof binary);
    return good ? GW_OK
                : gw_fail(GW_ERR_SYSTEM, "%s is not a key: it must hold %d characters of Z85", path, GW_ZMQ_KEY_CHARS);
}

typedef char key_text[GW_ZMQ_KEY_CHARS + 1];

/* Reads every file of allowed/ that does not begin with a dot. list NULL: only counts them. all true: a file that holds
 * no key is an error; false: it is left out. */
static gw_status read_allowed(DIR *folder, const char *path, bool all, key_text *list, uint32_t *n)
{
    uint32_t capacity = *n;
    *n = 0;
    rewinddir(folder);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (!entry)
            return errno ? gw_fail(GW_ERR_SYSTEM, "the folder %s cannot be read: %s", path, strerror(errno)) : GW_OK;
        const size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || (length > 4 && strcmp(entry->d_name + length - 4, ".crt") == 0))
            continue; /* certificates are for members (net/keys.h) */
        if (list && *n == capacity)
            return GW_OK; /* this file came after the files were counted */
        gw_status status = list ? read_key(path, entry->d_name, false, list[*n]) : GW_OK;
        if (status < 0 && all)
            return status;
        *n += status == GW_OK;
    }
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void leave_out(key_text *list, uint32_t *n, const char *key)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(list[i], key) != 0)
            memmove(list[kept++], list[i], sizeof *list);
    *n = kept;
}

/* The keys of allowed/, sorted. */
static gw_status list_allowed(gw_context *context, const struct gw_zmq_keys *keys, bool all, key_text **list,
                              uint32_t *n)
{
    char path[PATH_MAX];
    GW_TRY(join_path(path, keys->folder, ALLOWED));
    DIR *folder = opendir(path);
    if (!folder)
        return gw_fail(GW_ERR_SYSTEM, "the folder %s of the keys that may connect cannot be read: %s", path,
                       strerror(errno));
    *n = 0;
    *list = NULL;
    gw_status status = read_allowed(folder, path, all, NULL, n);
    if (status == GW_OK) {
        *list = gw_calloc(context, *n, sizeof **list);
        status = *list ? read_allowed(folder, path, all, *list, n) : GW_ERR_MEMORY;
    }
    closedir(folder);
    if (status < 0) {
        gw_free(context, *list);
        *list = NULL;
        return status;
    }
    if (keys->without_own)
        leave_out(*list, n, keys->public_key);
    qsort(*list, *n, sizeof **list, compare_keys);
    return GW_OK;
}

/* When a file was last made or removed in allowed/. */
static struct timespec time_of_folder(const struct gw_zmq_keys *keys)
{
    char path[PATH_MAX];
    struct stat status;
    bool there = join_path(path, keys->folder, ALLOWED) == GW_OK && stat(path, &status) == 0;
    return there ? status.st_mtim : (struct timespec){0};
}

gw_status gw_zmq_keys_look(gw_context *context, struct gw_zmq_keys *keys, bool *changed)
{
    struct timespec time = time_of_folder(keys);
    double now = gw_clock_seconds();
    *changed = false;
    if (now - keys->looked < LOOK_SECONDS && time.tv_sec == keys->time.tv_sec && time.tv_nsec == keys->time.tv_nsec)
        return GW_OK;
    keys->looked = now;
    keys->time = time;
    key_text *list;
    uint32_t n;
    GW_TRY(list_allowed(context, keys, false, &list, &n));
    *changed = n != keys->n_allowed || memcmp(list, keys->allowed, n * sizeof *list) != 0;
    pthread_mutex_lock(&keys->lock);
    key_text *before = keys->allowed;
    keys->allowed = list;
    keys->n_allowed = n;
    keys->nth += *changed;
    pthread_mutex_unlock(&keys->lock);
    gw_free(context, before);
    return GW_OK;
}

void gw_zmq_keys_leave_own_out(struct gw_zmq_keys *keys)
{
    keys->without_own = true;
    leave_out(keys->allowed, &keys->n_allowed, keys->public_key);
}

static gw_status load(gw_context *context, const char *folder, struct gw_zmq_keys *keys)
{
    keys->folder = gw_strdup(context, folder);
    if (!keys->folder)
        return GW_ERR_MEMORY;
    GW_TRY(read_key(folder, PUBLIC, false, keys->public_key));
    GW_TRY(read_key(folder, SECRET, true, keys->secret_key));
    GW_TRY(read_key(folder, RENDEZVOUS, false, keys->rendezvous));
    char public_key[GW_ZMQ_KEY_CHARS + 1], path[PATH_MAX];
    GW_TRY(join_path(path, folder, SERVER));
    if (access(path, F_OK) == 0)
        GW_TRY(read_key(folder, SERVER, false, keys->server));
    else
        memcpy(keys->server, keys->rendezvous, sizeof keys->server);
    if (zmq_curve_public(public_key, keys->secret_key) != 0 || strcmp(public_key, keys->public_key) != 0)
        return gw_fail(GW_ERR_SYSTEM, "the keys %s/%s and %s/%s are not a pair", folder, PUBLIC, folder, SECRET);
    keys->looked = gw_clock_seconds();
    keys->time = time_of_folder(keys);
    return list_allowed(context, keys, true, &keys->allowed, &keys->n_allowed);
}

gw_status gw_zmq_keys_load(gw_context *context, const char *folder, struct gw_zmq_keys **out)
{
    if (!zmq_has("curve"))
        return gw_fail(GW_ERR_UNSUPPORTED, "this machine's ZeroMQ was built without CURVE: there is no encryption");
    struct gw_zmq_keys *keys = gw_calloc(context, 1, sizeof *keys);
    if (!keys)
        return GW_ERR_MEMORY;
    pthread_mutex_init(&keys->lock, NULL);
    gw_status status = load(context, folder, keys);
    if (status < 0) {
        gw_zmq_keys_free(context, keys);
        return status;
    }
    *out = keys;
    return GW_OK;
}

void gw_zmq_keys_free(gw_context *context, struct gw_zmq_keys *keys)
{
    if (!keys)
        return;
    explicit_bzero(keys->secret_key, sizeof keys->secret_key);
    pthread_mutex_destroy(&keys->lock);
    gw_free(context, keys->allowed);
    gw_free(context, keys->folder);
    gw_free(context, keys);
}

bool gw_zmq_keys_allow(struct gw_zmq_keys *keys, const char *public_key)
{
    bool allowed = false;
    pthread_mutex_lock(&keys->lock);
    for (uint32_t i = 0; i < keys->n_allowed && !allowed; i++)
        allowed = strcmp(public_key, keys->allowed[i]) == 0;
    pthread_mutex_unlock(&keys->lock);
    return allowed;
}

/* ---- making -------------------------------------------------------------------------------------- */

/* Writes a key file. It gets its name only when it is complete, and never replaces a file. */
static gw_status write_key(const char *folder, const char *name, mode_t mode, const char *key)
{
    char path[PATH_MAX], partial[PATH_MAX], line[GW_ZMQ_KEY_CHARS + 2];
    GW_TRY(join_path(path, folder, name));
    if (snprintf(partial, sizeof partial, "%s.partial", path) >= (int)sizeof partial)
        return gw_fail(GW_ERR_SYSTEM, "the path %s is too long", path);
    snprintf(line, sizeof line, "%s\n", key);
    int fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST)
        return gw_fail(GW_ERR_SYSTEM, "%s is there, perhaps from an earlier try that was killed; remove it", partial);
    if (fd < 0)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot be made: %s", partial, strerror(errno));
    errno = ENOSPC; /* a short write says no more */
    const bool written = write(fd, line, sizeof line - 1) == (ssize_t)sizeof line - 1;
    int error = errno;
    explicit_bzero(line, sizeof line);
    if (written && gw_files_commit(fd, AT_FDCWD, partial, path, false) == 0)
        return GW_OK;
    if (written)
        error = errno;
    else {
        close(fd);
        unlink(partial);
    }
    return gw_fail(GW_ERR_SYSTEM, "%s cannot be written: %s", path, strerror(error));
}

static gw_status make_folder(const char *path)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM, "the folder %s cannot be made: %s", path, strerror(errno));
}

gw_status gw_keys_new(const char *folder)
{
    static const struct {
        const char *name;
        mode_t mode;
    } files[] = {{SECRET, 0600}, {ALLOWED "/self.key", 0644}, {RENDEZVOUS, 0644}, {PUBLIC, 0644}};
    enum { N_FILES = sizeof files / sizeof files[0] };
    if (!folder || !folder[0])
        return gw_fail(GW_ERR_ARGUMENT, "gw_keys_new: no folder is named");
    char path[PATH_MAX], allowed[PATH_MAX], public_key[GW_ZMQ_KEY_CHARS + 1], secret_key[GW_ZMQ_KEY_CHARS + 1];
    GW_TRY(join_path(allowed, folder, ALLOWED));
    for (int i = 0; i < N_FILES + GW_NET_KEYS_FILES; i++) {
        GW_TRY(join_path(path, folder, i < N_FILES ? files[i].name : gw_net_keys_files[i - N_FILES]));
        if (access(path, F_OK) == 0)
            return gw_fail(GW_ERR_ARGUMENT,
                           "there is a key already at %s, and it is never replaced; name another folder", path);
    }
    if (zmq_curve_keypair(public_key, secret_key) != 0)
        return gw_fail(GW_ERR_UNSUPPORTED, "this machine's ZeroMQ cannot make keys: %s", zmq_strerror(zmq_errno()));
    gw_status status = make_folder(folder);
    if (status == GW_OK)
        status = make_folder(allowed);
    int n = 0; /* how many files were made */
    while (n < N_FILES && status == GW_OK) {
        status = write_key(folder, files[n].name, files[n].mode, n == 0 ? secret_key : public_key);
        n += status == GW_OK;
    }
    explicit_bzero(secret_key, sizeof secret_key);
    if (status == GW_OK)
        status = gw_net_keys_write(folder);
    if (status == GW_OK)
        return GW_OK;
    /* The next try would refuse a folder with only some of the keys, so remove those that were made. */
    for (int i = 0; i < n; i++)
        if (join_path(path, folder, files[i].name) == GW_OK)
            unlink(path);
    return status;
}

/* True if a file can have this name: letters, digits and .-_, and no dot at the beginning. */
static bool is_name(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= 64 && name[0] != '.' &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") == n;
}

gw_status gw_keys_new_client(const char *folder, const char *server_folder, const char *name)
{
    char listed[96], path[PATH_MAX], server[GW_ZMQ_KEY_CHARS + 1], own[GW_ZMQ_KEY_CHARS + 1];
    if (!folder || !folder[0] || !server_folder || !name)
        return gw_fail(GW_ERR_ARGUMENT, "gw_keys_new_client: a folder, the server's folder and a name are needed");
    if (!is_name(name))
        return gw_fail(GW_ERR_ARGUMENT,
                       "a client cannot be called \"%s\": a name has 1 to 64 letters, digits, dots, dashes and "
                       "underscores, and does not begin with a dot",
                       name);
    snprintf(listed, sizeof listed, ALLOWED "/%s.key", name);
    GW_TRY(read_key(server_folder, PUBLIC, false, server));
    GW_TRY(join_path(path, server_folder, listed));
    if (access(path, F_OK) == 0)
        return gw_fail(GW_ERR_ARGUMENT, "%s is there already, the key of another client; give this one another name",
                       path);
    GW_TRY(join_path(path, folder, SERVER));
    if (access(path, F_OK) == 0)
        return gw_fail(GW_ERR_ARGUMENT, "there is a key already at %s, and it is never replaced; name another folder",
                       path);
    GW_TRY(gw_keys_new(folder));
    gw_status status = read_key(folder, PUBLIC, false, own);
    if (status == GW_OK)
        status = write_key(folder, SERVER, 0644, server);
    if (status == GW_OK) /* this comes last, so that a client that is listed has its keys */
        status = write_key(server_folder, listed, 0644, own);
    if (status == GW_OK)
        return GW_OK;
    static const char *const made[] = {SERVER, SECRET, ALLOWED "/self.key", RENDEZVOUS, PUBLIC};
    enum { N_MADE = sizeof made / sizeof *made };
    for (int i = 0; i < N_MADE + GW_NET_KEYS_FILES; i++)
        if (join_path(path, folder, i < N_MADE ? made[i] : gw_net_keys_files[i - N_MADE]) == GW_OK)
            unlink(path);
    return status;
}
