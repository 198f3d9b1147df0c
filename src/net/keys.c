/* Reads folders of keys and writes new ones. It says whether a certificate is allowed, and reads the list again when
 * the folder has changed. */
#include "net/keys.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "net/keys_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CERTIFICATE "gradwire.crt"
#define SECRET "gradwire.pem"
#define RENDEZVOUS "rendezvous.crt"
#define ALLOWED "allowed"
#define SUFFIX ".crt"
#define LOOK_SECONDS 1
#define MOST_FILE_BYTES (64 << 10)

struct gw_net_identity_text gw_net_identity_write(const struct gw_net_identity *identity)
{
    struct gw_net_identity_text out;
    for (int i = 0; i < 32; i++)
        snprintf(out.text + 2 * i, 3, "%02X", identity->bytes[i]);
    return out;
}

static gw_status join_path(char path[PATH_MAX], const char *folder, const char *name)
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return gw_fail(GW_ERR_SYSTEM, "the path of the keys %s is too long", folder);
    return GW_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

/* Opens a file that must be a regular one; secret: which only its owner may read. */
static gw_status open_file(const char *path, bool secret, FILE **out)
{
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

static gw_status read_certificate(const char *folder, const char *name, X509 **certificate,
                                  struct gw_net_identity *identity)
{
    char path[PATH_MAX];
    FILE *file;
    unsigned n = sizeof identity->bytes;
    GW_TRY(join_path(path, folder, name));
    GW_TRY(open_file(path, false, &file));
    X509 *found = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    const bool good = found && X509_digest(found, EVP_sha256(), identity->bytes, &n) == 1;
    ERR_clear_error();
    if (good && certificate)
        *certificate = found;
    else
        X509_free(found);
    return good ? GW_OK : gw_fail(GW_ERR_SYSTEM, "%s is not a certificate (PEM); gradwire keys new makes one", path);
}

static bool is_certificate_name(const char *name)
{
    const size_t n = strlen(name);
    return name[0] != '.' && n > strlen(SUFFIX) && strcmp(name + n - strlen(SUFFIX), SUFFIX) == 0;
}

/* Reads allowed/. all: a file that holds no certificate is an error; else it is left out. */
static gw_status read_allowed(struct gw_net_keys *keys, bool all, struct gw_net_identity **list, uint32_t *n)
{
    char path[PATH_MAX];
    uint32_t room = 0;
    GW_TRY(join_path(path, keys->folder, ALLOWED));
    DIR *folder = opendir(path);
    if (!folder)
        return gw_fail(GW_ERR_SYSTEM, "the folder %s of the keys that may connect cannot be read: %s", path,
                       strerror(errno));
    *list = NULL;
    *n = 0;
    gw_status status = GW_OK;
    const struct dirent *entry;
    while (status == GW_OK && (errno = 0, entry = readdir(folder))) {
        struct gw_net_identity identity;
        if (!is_certificate_name(entry->d_name))
            continue;
        status = read_certificate(path, entry->d_name, NULL, &identity);
        if (status < 0 && !all) {
            status = GW_OK;
            continue;
        }
        if (status == GW_OK && *n == room) {
            room = room ? 2 * room : 8;
            struct gw_net_identity *more = gw_alloc(keys->context, room, sizeof *more);
            if (more && *n)
                memcpy(more, *list, *n * sizeof *more);
            if (more) {
                gw_free(keys->context, *list);
                *list = more;
            } else {
                status = GW_ERR_MEMORY;
            }
        }
        if (status == GW_OK)
            (*list)[(*n)++] = identity;
    }
    if (status == GW_OK && errno)
        status = gw_fail(GW_ERR_SYSTEM, "the folder %s cannot be read: %s", path, strerror(errno));
    closedir(folder);
    if (status == GW_OK)
        return GW_OK;
    gw_free(keys->context, *list);
    return status;
}

static struct timespec folder_time(const struct gw_net_keys *keys)
{
    char path[PATH_MAX];
    struct stat status;
    const bool there = join_path(path, keys->folder, ALLOWED) == GW_OK && stat(path, &status) == 0;
    return there ? status.st_mtim : (struct timespec){0, 0};
}

static gw_status look(struct gw_net_keys *keys, bool all)
{
    struct gw_net_identity *list;
    uint32_t n;
    const struct timespec time = folder_time(keys);
    GW_TRY(read_allowed(keys, all, &list, &n));
    pthread_mutex_lock(&keys->lock);
    struct gw_net_identity *old = keys->allowed;
    keys->allowed = list;
    keys->n_allowed = n;
    keys->looked = gw_clock_seconds();
    keys->time = time;
    pthread_mutex_unlock(&keys->lock);
    gw_free(keys->context, old);
    return GW_OK;
}

gw_status gw_net_keys_look(struct gw_net_keys *keys)
{
    const struct timespec time = folder_time(keys);
    pthread_mutex_lock(&keys->lock);
    const bool fresh = time.tv_sec == keys->time.tv_sec && time.tv_nsec == keys->time.tv_nsec &&
                       gw_clock_seconds() < keys->looked + LOOK_SECONDS;
    pthread_mutex_unlock(&keys->lock);
    return fresh ? GW_OK : look(keys, false);
}

bool gw_net_keys_allow(struct gw_net_keys *keys, const struct gw_net_identity *identity)
{
    bool found = false;
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
    GW_TRY(join_path(path, keys->folder, SECRET));
    GW_TRY(read_certificate(keys->folder, CERTIFICATE, &keys->certificate, &keys->own));
    GW_TRY(open_file(path, true, &file));
    keys->secret = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    fclose(file);
    const bool good = keys->secret && X509_check_private_key(keys->certificate, keys->secret) == 1;
    ERR_clear_error();
    return good ? GW_OK : gw_fail(GW_ERR_SYSTEM, "%s is not the secret key of %s/" CERTIFICATE, path, keys->folder);
}

gw_status gw_net_keys_load(gw_context *context, const char *folder, struct gw_net_keys **out)
{
    struct gw_net_keys *keys = gw_calloc(context, 1, sizeof *keys);
    *out = NULL;
    if (!keys)
        return GW_ERR_MEMORY;
    keys->context = context;
    if (pthread_mutex_init(&keys->lock, NULL)) {
        gw_free(context, keys);
        return gw_fail(GW_ERR_SYSTEM, "no lock for the keys");
    }
    keys->folder = gw_strdup(context, folder);
    gw_status status = keys->folder ? GW_OK : GW_ERR_MEMORY;
    if (status == GW_OK)
        status = read_own(keys);
    if (status == GW_OK)
        status = read_certificate(folder, RENDEZVOUS, NULL, &keys->rendezvous);
    if (status == GW_OK)
        status = look(keys, true);
    if (status < 0) {
        gw_net_keys_free(keys);
        return status;
    }
    *out = keys;
    return GW_OK;
}

void gw_net_keys_free(struct gw_net_keys *keys)
{
    if (!keys)
        return;
    SSL_CTX_free(keys->ssl);
    X509_free(keys->certificate);
    EVP_PKEY_free(keys->secret);
    pthread_mutex_destroy(&keys->lock);
    gw_free(keys->context, keys->allowed);
    gw_free(keys->context, keys->folder);
    gw_free(keys->context, keys);
}

const char *gw_net_keys_folder(const struct gw_net_keys *keys)
{
    return keys->folder;
}

const struct gw_net_identity *gw_net_keys_own(const struct gw_net_keys *keys)
{
    return &keys->own;
}

const struct gw_net_identity *gw_net_keys_rendezvous(const struct gw_net_keys *keys)
{
    return &keys->rendezvous;
}

/* ---- writing --------------------------------------------------------------------------------------------- */

/* Makes a certificate that nobody has signed but its own key. It says no name, because names are not looked at: the
 * list in allowed/ has the certificate itself. It does not end (RFC 5280, 4.1.2.5), so no clock can be wrong for it. */
static X509 *sign_own(EVP_PKEY *key)
{
    X509 *certificate = X509_new();
    ASN1_INTEGER *serial = certificate ? X509_get_serialNumber(certificate) : NULL;
    X509_NAME *name = certificate ? X509_get_subject_name(certificate) : NULL;
    if (name && X509_set_version(certificate, 2) && ASN1_INTEGER_set(serial, 1) &&
        ASN1_TIME_set_string_X509(X509_getm_notBefore(certificate), "20000101000000Z") &&
        ASN1_TIME_set_string_X509(X509_getm_notAfter(certificate), "99991231235959Z") &&
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"gradwire", -1, -1, 0) &&
        X509_set_issuer_name(certificate, name) && X509_set_pubkey(certificate, key) &&
        X509_sign(certificate, key, NULL) > 0)
        return certificate;
    X509_free(certificate);
    return NULL;
}

/* Writes one PEM: the secret key, or else the certificate. */
static gw_status write_pem(const char *folder, const char *name, EVP_PKEY *secret, X509 *certificate)
{
    char path[PATH_MAX], partial[PATH_MAX];
    GW_TRY(join_path(path, folder, name));
    if (snprintf(partial, sizeof partial, "%s.partial", path) >= (int)sizeof partial)
        return gw_fail(GW_ERR_SYSTEM, "the path %s is too long", path);
    const int fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, secret ? 0600 : 0644);
    if (fd < 0 && errno == EEXIST)
        return gw_fail(GW_ERR_SYSTEM, "%s is there, perhaps from an earlier try that was killed; remove it", partial);
    if (fd < 0)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot be made: %s", partial, strerror(errno));
    BIO *out = BIO_new_fd(fd, BIO_NOCLOSE);
    errno = ENOSPC; /* a short write says no more */
    const bool written = out && (secret ? PEM_write_bio_PrivateKey(out, secret, NULL, NULL, 0, NULL, NULL)
                                        : PEM_write_bio_X509(out, certificate));
    int error = errno;
    BIO_free(out);
    ERR_clear_error();
    if (written && gw_files_commit(fd, AT_FDCWD, partial, path, false) == 0)
        return GW_OK;
    if (written) {
        error = errno;
    } else {
        close(fd);
        unlink(partial);
    }
    return gw_fail(GW_ERR_SYSTEM, "%s cannot be written: %s", path, strerror(error));
}

const char *const gw_net_keys_files[GW_NET_KEYS_FILES] = {SECRET, ALLOWED "/self" SUFFIX, RENDEZVOUS, CERTIFICATE};

gw_status gw_net_keys_write(const char *folder)
{
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    X509 *certificate = key ? sign_own(key) : NULL;
    gw_status status =
        certificate ? GW_OK : gw_fail(GW_ERR_UNSUPPORTED, "this machine's OpenSSL cannot make an Ed25519 key");
    int n = 0;
    while (n < GW_NET_KEYS_FILES && status == GW_OK) {
        status = write_pem(folder, gw_net_keys_files[n], n == 0 ? key : NULL, certificate);
        n += status == GW_OK;
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    ERR_clear_error();
    char path[PATH_MAX];
    for (int i = 0; status < 0 && i < n; i++)
        if (join_path(path, folder, gw_net_keys_files[i]) == GW_OK)
            unlink(path);
    return status;
}
