/* Reads folders of keys. It says whether a certificate is allowed, and reads the list again when the folder has
 * changed. keys_new.c makes folders. */
#include "net/keys.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/quote.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_SECONDS 1
#define MOST_FILE_BYTES (64 << 10)
#define NO_PASSWORD "" /* else OpenSSL asks for one at the terminal, and waits */

struct gw_net_identity_text gw_net_identity_write(const struct gw_net_identity *identity)
{
    struct gw_net_identity_text out;
    for (int i = 0; i < 32; i++)
        snprintf(out.text + 2 * i, 3, "%02X", identity->bytes[i]);
    return out;
}

gw_status gw_net_keys_path(char path[PATH_MAX], const char *folder, const char *name)
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return gw_fail(GW_ERR_SYSTEM, "the path of the keys %s is too long", folder);
    return GW_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

/* Opens a file of a folder, which must be a regular one; secret: which only its owner may read. path: gets its path. */
static gw_status open_file(const char *folder, const char *name, bool secret, char path[PATH_MAX], FILE **out)
{
    GW_TRY(gw_net_keys_path(path, folder, name));
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return gw_fail(GW_ERR_SYSTEM, "the key %s cannot be read: %s", path, strerror(error));
    }
    *out = S_ISREG(status.st_mode) && status.st_size <= MOST_FILE_BYTES ? fdopen(fd, "r") : NULL;
    if (!*out) {
        close(fd);
        return gw_fail(GW_ERR_SYSTEM, "%s is not a file of keys", path);
    }
    if (secret && status.st_mode & 077) {
        fclose(*out);
        return gw_fail(GW_ERR_SYSTEM,
                       "the secret key %s can be read by others (mode %04o); it must be its owner's alone (chmod 600)",
                       path, (unsigned)status.st_mode & 07777);
    }
    return GW_OK;
}

gw_status gw_net_keys_read(const char *folder, const char *name, X509 **certificate, struct gw_net_identity *identity)
{
    char path[PATH_MAX];
    FILE *file;
    unsigned n = sizeof identity->bytes;
    GW_TRY(open_file(folder, name, false, path, &file));
    X509 *found = PEM_read_X509(file, NULL, NULL, NO_PASSWORD);
    fclose(file);
    const bool good = found && X509_digest(found, EVP_sha256(), identity->bytes, &n) == 1;
    ERR_clear_error();
    if (good && certificate)
        *certificate = found;
    else
        X509_free(found);
    return good ? GW_OK : gw_fail(GW_ERR_SYSTEM, "%s is not a certificate (PEM); gradwire keys new makes one", path);
}

static int is_certificate(const struct dirent *entry)
{
    const char *name = entry->d_name;
    const size_t n = strlen(name);
    return name[0] != '.' && n > strlen(GW_NET_SUFFIX) && strcmp(name + n - strlen(GW_NET_SUFFIX), GW_NET_SUFFIX) == 0;
}

/* Reads allowed/. A file that holds no certificate is left out; tells: the log says so. */
static gw_status read_allowed(struct gw_net_keys *keys, bool tells, struct gw_net_identity **list, uint32_t *n)
{
    char path[PATH_MAX];
    struct dirent **files;
    GW_TRY(gw_net_keys_path(path, keys->folder, GW_NET_ALLOWED));
    const int n_files = scandir(path, &files, is_certificate, alphasort);
    if (n_files < 0)
        return gw_fail(GW_ERR_SYSTEM, "the folder %s of the keys that may connect cannot be read: %s", path,
                       strerror(errno));
    *list = gw_alloc(keys->context, (size_t)n_files, sizeof **list);
    *n = 0;
    for (int i = 0; i < n_files; i++) {
        struct gw_net_identity identity;
        const gw_status status = *list ? gw_net_keys_read(path, files[i]->d_name, NULL, &identity) : GW_ERR_MEMORY;
        free(files[i]);
        if (status == GW_ERR_SYSTEM && tells && keys->log)
            gw_net_log(keys->log, "left-out reason=\"%s\"", gw_quote(gw_last_error()).text);
        /* a client with the server's secret key could pass itself off as the server */
        if (status == GW_OK && (keys->role != GW_NET_SERVER || !gw_net_same_identity(&identity, &keys->own)))
            (*list)[(*n)++] = identity;
    }
    free(files);
    return *list ? GW_OK : GW_ERR_MEMORY;
}

static struct timespec folder_time(const struct gw_net_keys *keys)
{
    char path[PATH_MAX];
    struct stat status;
    const bool there = gw_net_keys_path(path, keys->folder, GW_NET_ALLOWED) == GW_OK && stat(path, &status) == 0;
    return there ? status.st_mtim : (struct timespec){0, 0};
}

/* The lock is held. */
static gw_status look(struct gw_net_keys *keys)
{
    struct gw_net_identity *list = NULL;
    uint32_t n = 0;
    const struct timespec time = folder_time(keys);
    const bool changed = time.tv_sec != keys->time.tv_sec || time.tv_nsec != keys->time.tv_nsec;
    const double now = gw_clock_seconds();
    /* A file gets its text after its name, and the folder's time stands still for some milliseconds. So the first
     * look at a change may have seen half of it. */
    if (!changed && now < keys->looked + LOOK_SECONDS && now >= keys->change_seen + LOOK_SECONDS)
        return GW_OK;
    if (changed)
        keys->change_seen = now;
    const gw_status status = read_allowed(keys, changed, &list, &n);
    if (status < 0) {
        if (keys->log && !keys->unreadable)
            gw_net_log(keys->log, "allowed-stays reason=\"%s\"", gw_quote(gw_last_error()).text);
        keys->unreadable = true;
        return status;
    }
    const bool is_another = n != keys->n_allowed || (n > 0 && memcmp(keys->allowed, list, n * sizeof *list) != 0);
    if (is_another && keys->looked != 0 && keys->log)
        gw_net_log(keys->log, "allowed-changed folder=\"%s/%s\" certificates=%u", gw_quote(keys->folder).text,
                   GW_NET_ALLOWED, n);
    gw_free(keys->context, keys->allowed);
    keys->n_changes += is_another;
    keys->allowed = list;
    keys->n_allowed = n;
    keys->looked = now;
    keys->time = time;
    keys->unreadable = false;
    return GW_OK;
}

gw_status gw_net_keys_look(struct gw_net_keys *keys)
{
    if (keys->ca)
        return GW_OK;
    pthread_mutex_lock(&keys->lock);
    const gw_status status = look(keys);
    pthread_mutex_unlock(&keys->lock);
    return status;
}

bool gw_net_keys_allow(struct gw_net_keys *keys, const struct gw_net_identity *identity)
{
    bool found = keys->ca; /* the handshake has asked the CA */
    pthread_mutex_lock(&keys->lock);
    for (uint32_t i = 0; i < keys->n_allowed && !found; i++)
        found = gw_net_same_identity(&keys->allowed[i], identity);
    pthread_mutex_unlock(&keys->lock);
    return found;
}

/* Reads the certificate and the secret key, which must belong together. */
static gw_status read_own(struct gw_net_keys *keys)
{
    char path[PATH_MAX];
    FILE *file;
    GW_TRY(gw_net_keys_read(keys->folder, GW_NET_CERTIFICATE, &keys->certificate, &keys->own));
    GW_TRY(open_file(keys->folder, GW_NET_SECRET, true, path, &file));
    keys->secret = PEM_read_PrivateKey(file, NULL, NULL, NO_PASSWORD);
    fclose(file);
    const bool good = keys->secret && X509_check_private_key(keys->certificate, keys->secret) == 1;
    ERR_clear_error();
    return good ? GW_OK
                : gw_fail(GW_ERR_SYSTEM, "%s is not the secret key of %s/" GW_NET_CERTIFICATE ", or has a password",
                          path, keys->folder);
}

static bool has(const struct gw_net_keys *keys, const char *name)
{
    char path[PATH_MAX];
    struct stat status; /* a link that leads nowhere is there, and reading it fails */
    return gw_net_keys_path(path, keys->folder, name) == GW_OK && lstat(path, &status) == 0;
}

/* Whom this side dials. */
static gw_status read_dialled(struct gw_net_keys *keys)
{
    const bool of_server = keys->role == GW_NET_CLIENT && has(keys, GW_NET_SERVER_FILE);
    const char *name = of_server ? GW_NET_SERVER_FILE : GW_NET_RENDEZVOUS;
    keys->knows_place = !keys->ca || has(keys, name);
    return keys->knows_place ? gw_net_keys_read(keys->folder, name, NULL, &keys->rendezvous) : GW_OK;
}

/* Reads all certificates of a file. A list of revoked ones (CRL) makes it a bad file: nobody would ask that list. */
static bool read_all(X509_STORE *store, const char *path)
{
    bool good = store && X509_STORE_load_file(store, path) == 1;
    const STACK_OF(X509_OBJECT) *found = good ? X509_STORE_get0_objects(store) : NULL;
    for (int i = 0; good && i < sk_X509_OBJECT_num(found); i++)
        good = X509_OBJECT_get_type(sk_X509_OBJECT_value(found, i)) == X509_LU_X509;
    ERR_clear_error();
    return good;
}

/* The certificates of a CA, if there are any. The chain up to it is read here to see that it is whole. */
static gw_status read_ca(struct gw_net_keys *keys)
{
    char path[PATH_MAX];
    FILE *file;
    if (!has(keys, GW_NET_CA))
        return GW_OK;
    GW_TRY(open_file(keys->folder, GW_NET_CA, false, path, &file));
    fclose(file);
    keys->ca = X509_STORE_new();
    /* A CA that another has signed is believed, too, if it is in the file. */
    if (!keys->ca || X509_STORE_set_flags(keys->ca, X509_V_FLAG_PARTIAL_CHAIN) != 1 || !read_all(keys->ca, path))
        return gw_fail(GW_ERR_SYSTEM, "%s holds no certificates of a CA (PEM), or a list of revoked ones (CRL)", path);
    GW_TRY(gw_net_keys_path(path, keys->folder, GW_NET_CERTIFICATE));
    X509_STORE *chain = X509_STORE_new();
    const bool good = read_all(chain, path);
    X509_STORE_free(chain);
    return good ? GW_OK : gw_fail(GW_ERR_SYSTEM, "a certificate of the chain in %s is damaged", path);
}

static gw_status read_folder(struct gw_net_keys *keys, const char *folder)
{
    if (!(keys->folder = gw_strdup(keys->context, folder)))
        return GW_ERR_MEMORY;
    GW_TRY(read_own(keys));
    GW_TRY(read_ca(keys));
    if (keys->role != GW_NET_SERVER)
        GW_TRY(read_dialled(keys));
    return keys->role != GW_NET_CLIENT ? gw_net_keys_look(keys) : GW_OK;
}

gw_status gw_net_keys_load(gw_context *context, const char *folder, enum gw_net_role role, struct gw_net_log *log,
                           struct gw_net_keys **out)
{
    *out = NULL;
    if (!folder[0]) /* else the root folder would be looked at */
        return gw_fail(GW_ERR_ARGUMENT, "the folder of keys is \"\"; name one, or give none (NULL)");
    struct gw_net_keys *keys = gw_calloc(context, 1, sizeof *keys);
    if (!keys)
        return GW_ERR_MEMORY;
    keys->context = context;
    keys->role = role;
    keys->log = log;
    pthread_mutex_init(&keys->lock, NULL); /* with default attributes it cannot fail here */
    const gw_status status = read_folder(keys, folder);
    if (status == GW_OK)
        *out = keys;
    else
        gw_net_keys_free(keys);
    return status;
}

void gw_net_keys_free(struct gw_net_keys *keys)
{
    if (!keys)
        return;
    SSL_CTX_free(keys->ssl);
    X509_STORE_free(keys->ca);
    X509_free(keys->certificate);
    EVP_PKEY_free(keys->secret);
    pthread_mutex_destroy(&keys->lock);
    gw_free(keys->context, keys->allowed);
    gw_free(keys->context, keys->folder);
    gw_free(keys->context, keys);
}
