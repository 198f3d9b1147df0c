/* Makes folders of keys: one for a machine, and one for a client of parameter servers. If it fails, it leaves none of
 * its files behind. */
#include "base/error.h"
#include "base/files.h"
#include "net/keys.h"

#include <gradwire/link.h>

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SELF GW_NET_ALLOWED "/self" GW_NET_SUFFIX
enum { N_FILES = 4 };
/* What a folder holds. The secret key comes first. A client's has the servers' certificate, too. */
static const char *const files[N_FILES + 1] = {GW_NET_SECRET, SELF, GW_NET_RENDEZVOUS, GW_NET_CERTIFICATE,
                                               GW_NET_SERVER_FILE};

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
    GW_TRY(gw_net_keys_path(path, folder, name));
    if (snprintf(partial, sizeof partial, "%s.partial", path) >= (int)sizeof partial)
        return gw_fail(GW_ERR_SYSTEM, "the path %s is too long", path);
    const int fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, secret ? 0600 : 0644);
    if (fd < 0 && errno == EEXIST)
        return gw_fail(GW_ERR_SYSTEM, "%s is there, perhaps from an earlier try that was killed; remove it", partial);
    if (fd < 0)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot be made: %s", partial, strerror(errno));
    BIO *out = BIO_new_fd(fd, BIO_NOCLOSE);
    errno = ENOSPC; /* a short write says no more */
    bool written = out && (secret ? PEM_write_bio_PrivateKey(out, secret, NULL, NULL, 0, NULL, NULL)
                                  : PEM_write_bio_X509(out, certificate));
    written = written && fsync(fd) == 0;
    int error = errno;
    BIO_free(out);
    ERR_clear_error();
    if (close(fd) != 0 && written) {
        written = false;
        error = errno;
    }
    if (written && gw_files_publish(AT_FDCWD, partial, path, false) == 0)
        return GW_OK;
    if (written) /* and removed again */
        error = errno;
    else
        unlink(partial);
    if (error == EEXIST)
        return gw_fail(GW_ERR_ARGUMENT, "there is a key already at %s, and it is never replaced; name another folder",
                       path);
    return gw_fail(GW_ERR_SYSTEM, "%s cannot be written: %s", path, strerror(error));
}

static gw_status make_folder(const char *path)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM, "the folder %s cannot be made: %s", path, strerror(errno));
}

/* allowed/ counts for nothing beside the certificates of a CA. */
static gw_status has_no_ca(const char *folder)
{
    char path[PATH_MAX];
    GW_TRY(gw_net_keys_path(path, folder, GW_NET_CA));
    return access(path, F_OK) != 0
               ? GW_OK
               : gw_fail(GW_ERR_ARGUMENT, "%s is there, so its CA must sign the keys (docs/clusters.md says how)",
                         path);
}

/* Makes a key, its certificate, and the files of a folder that allows these alone. server: the servers' certificate for
 * the folder of a client, which is then listed in their folder; NULL: it is for a machine. */
static gw_status make(const char *folder, X509 *server, const char *server_folder, const char *listed)
{
    char allowed[PATH_MAX], path[PATH_MAX];
    const int n_files = server ? N_FILES + 1 : N_FILES;
    int n = 0;
    GW_TRY(gw_net_keys_path(allowed, folder, GW_NET_ALLOWED));
    GW_TRY(has_no_ca(folder));
    GW_TRY(make_folder(folder));
    GW_TRY(make_folder(allowed));
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    X509 *certificate = key ? sign_own(key) : NULL;
    gw_status status =
        certificate ? GW_OK : gw_fail(GW_ERR_UNSUPPORTED, "this machine's OpenSSL cannot make an Ed25519 key");
    for (; n < n_files && status == GW_OK; n += status == GW_OK)
        status = write_pem(folder, files[n], n == 0 ? key : NULL, n == N_FILES ? server : certificate);
    if (server && status == GW_OK) /* this comes last, so that a client that is listed has its keys */
        status = write_pem(server_folder, listed, NULL, certificate);
    for (int i = 0; status < 0 && i < n; i++) /* the next try would refuse a folder with only some of the files */
        if (gw_net_keys_path(path, folder, files[i]) == GW_OK)
            unlink(path);
    X509_free(certificate);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return status;
}

/* True if a file can have this name: letters, digits and .-_, and no dot at the beginning. */
static bool is_name(const char *name)
{
    const size_t n = strlen(name);
    return n > 0 && n <= 64 && name[0] != '.' &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") == n;
}

static gw_status new_client(const char *folder, const char *server_folder, const char *name)
{
    char listed[96], path[PATH_MAX];
    struct gw_net_identity server;
    X509 *certificate;
    if (!server_folder || !name)
        return gw_fail(GW_ERR_ARGUMENT, "gw_keys_new: a folder, the server's folder and the client's name are needed");
    if (!is_name(name))
        return gw_fail(GW_ERR_ARGUMENT,
                       "a client cannot be called \"%s\": a name has 1 to 64 letters, digits, dots, dashes and "
                       "underscores, and does not begin with a dot",
                       name);
    snprintf(listed, sizeof listed, GW_NET_ALLOWED "/%s" GW_NET_SUFFIX, name);
    GW_TRY(has_no_ca(server_folder));
    GW_TRY(gw_net_keys_path(path, server_folder, listed));
    if (access(path, F_OK) == 0)
        return gw_fail(GW_ERR_ARGUMENT, "%s is there already, the key of another client; give this one another name",
                       path);
    GW_TRY(gw_net_keys_read(server_folder, GW_NET_CERTIFICATE, &certificate, &server));
    const gw_status status = make(folder, certificate, server_folder, listed);
    X509_free(certificate);
    return status;
}

gw_status gw_keys_new(const char *folder, const char *server_folder, const char *client)
{
    if (!folder || !folder[0])
        return gw_fail(GW_ERR_ARGUMENT, "gw_keys_new: no folder is named");
    return server_folder || client ? new_client(folder, server_folder, client) : make(folder, NULL, NULL, NULL);
}
