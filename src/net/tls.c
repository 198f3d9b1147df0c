/* TLS 1.3 by OpenSSL. Whom to trust is our own question: a certificate is good if allowed/ has it and its time has not
 * passed; or, if there is a CA, if the CA has signed it. */
#include "net/tls.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

/* the most bytes of one TLS record, and with what TLS puts around them */
#define RECORD_BYTES 16384
#define SEALED_BYTES (RECORD_BYTES + 256)
/* One call of the kernel moves so many bytes, which are several records. */
#define AT_ONCE (4 * SEALED_BYTES)
/* Who changes its keys more often between two reads is an attacker: a change costs 30 us. BoringSSL has the same limit
 */
#define MOST_CHANGES 32

/* RFC 8446, 5.5: one key of AES-GCM may seal 2^24.5 full records. */
uint32_t gw_net_tls_records_a_key = 1u << 23;

/* ---- the socket ------------------------------------------------------------------------------------------ */

/* OpenSSL's own way to write to a socket raises SIGPIPE if the other side has gone. */
static int bio_write(BIO *bio, const char *bytes, int n_bytes)
{
    struct gw_net_tls *tls = BIO_get_data(bio);
    int n = n_bytes;
    BIO_clear_retry_flags(bio);
    if (!tls->gathers && tls->out_at == tls->out_end)
        n = (int)send(tls->fd, bytes, (size_t)n_bytes, MSG_NOSIGNAL);
    else if ((size_t)n_bytes > AT_ONCE - tls->out_end)
        n = -1, errno = EAGAIN;
    else
        memcpy(tls->out + tls->out_end, bytes, (size_t)n_bytes), tls->out_end += (size_t)n_bytes;
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_write(bio);
    return n;
}

static int bio_read(BIO *bio, char *to, int n_bytes)
{
    struct gw_net_tls *tls = BIO_get_data(bio);
    ssize_t n = (ssize_t)(tls->in_end - tls->in_at);
    BIO_clear_retry_flags(bio);
    if (n == 0 && tls->stays)
        n = -1, errno = EAGAIN;
    else if (n == 0 && !tls->in)
        n = recv(tls->fd, to, (size_t)n_bytes, 0);
    else if (n == 0 && (n = recv(tls->fd, tls->in, AT_ONCE, 0)) > 0)
        tls->in_at = 0, tls->in_end = (size_t)n;
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    if (n <= 0 || !tls->in)
        return (int)n;
    n = n < n_bytes ? n : n_bytes;
    memcpy(to, tls->in + tls->in_at, (size_t)n);
    tls->in_at += (size_t)n;
    return (int)n;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;
static pthread_once_t begun_once = PTHREAD_ONCE_INIT;

/* OpenSSL shows each message here. If it answered a question for new keys, a read would have to wait until it can
 * write. So a change of keys is each side's own: no question is taken. */
static void on_message(int written, int version, int kind, const void *bytes, size_t n_bytes, SSL *ssl, void *unused)
{
    (void)version, (void)unused;
    const uint8_t *at = bytes;
    struct gw_net_tls *tls = SSL_get_app_data(ssl);
    if (!written && kind == SSL3_RT_HANDSHAKE && n_bytes > SSL3_HM_HEADER_LENGTH && at[0] == SSL3_MT_KEY_UPDATE)
        tls->asked |= at[SSL3_HM_HEADER_LENGTH] == SSL_KEY_UPDATE_REQUESTED;
}

static void begin_once(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (bio_method && (!BIO_meth_set_write(bio_method, bio_write) || !BIO_meth_set_read(bio_method, bio_read) ||
                       !BIO_meth_set_ctrl(bio_method, bio_control))) {
        BIO_meth_free(bio_method);
        bio_method = NULL;
    }
}

/* ---- sessions -------------------------------------------------------------------------------------------- */

/* Follows the chain up to the CA. */
static int is_signed(X509_STORE_CTX *store, const struct gw_net_tls *tls, X509 *certificate)
{
    const struct gw_net_keys *keys = tls->keys;
    if (X509_verify_cert(store) != 1)
        return 0;
    int error = X509_V_OK;
    if (tls->host && X509_check_host(certificate, tls->host, 0, 0, NULL) != 1 &&
        X509_check_ip_asc(certificate, tls->host, 0) != 1)
        error = X509_V_ERR_HOSTNAME_MISMATCH;
    if ((keys->role == GW_NET_SERVER && gw_net_same_identity(&tls->peer, &keys->own)) ||
        (keys->role == GW_NET_CLIENT && keys->knows_place && !gw_net_same_identity(&tls->peer, &keys->rendezvous)))
        error = X509_V_ERR_CERT_REJECTED;
    X509_STORE_CTX_set_error(store, error);
    return error == X509_V_OK;
}

/* OpenSSL asks this in place of following chains of certificates. */
static int is_good(X509_STORE_CTX *store, void *unused)
{
    (void)unused;
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct gw_net_tls *tls = SSL_get_app_data(ssl);
    X509 *certificate = X509_STORE_CTX_get0_cert(store);
    unsigned n = sizeof tls->peer.bytes;
    if (!certificate || X509_digest(certificate, EVP_sha256(), tls->peer.bytes, &n) != 1)
        return 0;
    if (tls->keys->ca)
        return is_signed(store, tls, certificate);
    int error = X509_V_OK;
    bool good = tls->dialled && gw_net_same_identity(&tls->peer, &tls->keys->rendezvous);
    if (!good && tls->keys->role != GW_NET_CLIENT) {
        gw_ignore(gw_net_keys_look(tls->keys)); /* if the folder cannot be read, the last list counts */
        good = gw_net_keys_allow(tls->keys, &tls->peer);
    }
    if (!good)
        error = X509_V_ERR_CERT_REJECTED;
    else if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
        error = X509_V_ERR_CERT_NOT_YET_VALID;
    else if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
        error = X509_V_ERR_CERT_HAS_EXPIRED;
    X509_STORE_CTX_set_error(store, error);
    return error == X509_V_OK;
}

static SSL_CTX *make_settings(const struct gw_net_keys *keys)
{
    char path[PATH_MAX];
    SSL_CTX *settings = SSL_CTX_new(TLS_method());
    if (settings)
        SSL_CTX_set_default_passwd_cb_userdata(settings, ""); /* else OpenSSL asks for one at the terminal, and waits */
    if (!settings || SSL_CTX_use_certificate(settings, keys->certificate) != 1 ||
        SSL_CTX_use_PrivateKey(settings, keys->secret) != 1 ||
        (keys->ca && (gw_net_keys_path(path, keys->folder, GW_NET_CERTIFICATE) < 0 ||
                      SSL_CTX_use_certificate_chain_file(settings, path) != 1 ||
                      SSL_CTX_set1_verify_cert_store(settings, keys->ca) != 1))) {
        SSL_CTX_free(settings);
        return NULL;
    }
    SSL_CTX_set_min_proto_version(settings, TLS1_3_VERSION);
    /* OpenSSL would begin with AES-256, which is slower. If this call fails, it does */
    SSL_CTX_set_ciphersuites(settings, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
    SSL_CTX_set_options(settings, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_num_tickets(settings, 0); /* each connection proves its key anew */
    SSL_CTX_set_session_cache_mode(settings, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(settings, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_clear_mode(settings, SSL_MODE_AUTO_RETRY); /* else endless changes of keys would keep a reading thread */
    SSL_CTX_set_verify(settings, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_cert_verify_callback(settings, is_good, NULL);
    SSL_CTX_set_msg_callback(settings, on_message);
    return settings;
}

gw_status gw_net_tls_new(struct gw_net_keys *keys, int fd, bool dialled, const char *host, struct gw_net_tls **out)
{
    pthread_once(&begun_once, begin_once);
    struct gw_net_tls *tls = gw_calloc(keys->context, 1, sizeof *tls);
    *out = NULL;
    if (!tls)
        return GW_ERR_MEMORY;
    tls->keys = keys;
    tls->fd = fd;
    tls->dialled = dialled;
    tls->host = keys->knows_place ? NULL : host;
    tls->wants_write = dialled; /* who has dialled speaks first */
    pthread_mutex_lock(&keys->lock);
    if (!keys->ssl)
        keys->ssl = make_settings(keys);
    tls->ssl = keys->ssl ? SSL_new(keys->ssl) : NULL;
    pthread_mutex_unlock(&keys->lock);
    BIO *bio = bio_method ? BIO_new(bio_method) : NULL;
    if (!tls->ssl || !bio || SSL_set_app_data(tls->ssl, tls) != 1) {
        BIO_free(bio);
        gw_net_tls_free(tls);
        return gw_fail(GW_ERR_MEMORY, "no memory for TLS");
    }
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    if (dialled)
        SSL_set_connect_state(tls->ssl);
    else
        SSL_set_accept_state(tls->ssl);
    *out = tls;
    return GW_OK;
}

void gw_net_tls_free(struct gw_net_tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    gw_free(tls->keys->context, tls->in);
    gw_free(tls->keys->context, tls->out);
    gw_free(tls->keys->context, tls);
}

/* What the last call of OpenSSL came to. It must be called right after that, because errno belongs to it. */
static gw_status outcome(struct gw_net_tls *tls, int result)
{
    const int error = errno, kind = SSL_get_error(tls->ssl, result);
    tls->wants_write = kind == SSL_ERROR_WANT_WRITE;
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)
        return GW_NOT_YET;
    const unsigned long why = ERR_peek_error();
    const int reason = ERR_GET_REASON(why);
    const long verdict = SSL_get_verify_result(tls->ssl);
    ERR_clear_error();
    const bool has_ended = kind == SSL_ERROR_ZERO_RETURN || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    if (has_ended || kind == SSL_ERROR_SYSCALL) {
        tls->error = has_ended ? 0 : error;
        return gw_fail(GW_ERR_PEER, "%s", tls->error ? strerror(error) : "the connection has ended");
    }
    tls->error = EPROTO;
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        tls->refusal = GW_NET_NOT_LISTED;
        const struct gw_net_identity_text shown = gw_net_identity_write(&tls->peer);
        if (verdict == X509_V_ERR_CERT_REJECTED && tls->keys->role == GW_NET_CLIENT)
            return gw_fail(GW_ERR_PEER, "its certificate is %s", shown.text);
        if (tls->keys->role == GW_NET_SERVER && gw_net_same_identity(&tls->peer, &tls->keys->own))
            return gw_fail(GW_ERR_PEER, "its certificate is this server's own; each client needs one of its own");
        if (verdict == X509_V_ERR_HOSTNAME_MISMATCH)
            return gw_fail(GW_ERR_PEER, "its certificate %s is not for the name %s", shown.text, tls->host);
        if (tls->keys->ca)
            return gw_fail(GW_ERR_PEER, "its certificate %s is not good for %s/" GW_NET_CA ": %s", shown.text,
                           tls->keys->folder, X509_verify_cert_error_string(verdict));
        if (verdict == X509_V_ERR_CERT_REJECTED)
            return gw_fail(GW_ERR_PEER, "its certificate %s is not in %s/allowed", shown.text, tls->keys->folder);
        return gw_fail(GW_ERR_PEER, "its certificate %s %s", shown.text,
                       verdict == X509_V_ERR_CERT_HAS_EXPIRED
                           ? "has expired by this machine's clock"
                           : "is not valid yet by this machine's clock, or is damaged");
    }
    if (ERR_GET_LIB(why) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET &&
        reason != SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE) { /* that one comes from a listener without keys */
        tls->refusal = GW_NET_TURNED_AWAY;
        return gw_fail(GW_ERR_PEER, "it refused this machine: the certificate %s is not among the allowed ones there",
                       gw_net_identity_write(&tls->keys->own).text);
    }
    tls->refusal = GW_NET_WITHOUT_TLS;
    return gw_fail(GW_ERR_PEER, "it does not speak TLS, so it has no keys");
}

gw_status gw_net_tls_handshake(struct gw_net_tls *tls)
{
    ERR_clear_error();
    errno = 0;
    const int result = SSL_do_handshake(tls->ssl);
    if (result != 1)
        return outcome(tls, result);
    tls->wants_write = false;
    tls->in = gw_alloc(tls->keys->context, AT_ONCE, 1);
    tls->out = gw_alloc(tls->keys->context, AT_ONCE, 1);
    if (tls->in && tls->out)
        return GW_OK;
    tls->error = ENOMEM;
    return gw_fail(GW_ERR_PEER, "no memory for TLS");
}

gw_status gw_net_tls_read(struct gw_net_tls *tls, void *to, size_t n_bytes, bool from_socket, size_t *n_read)
{
    *n_read = 0;
    tls->stays = !from_socket;
    gw_status status;
    int n_changes = -1;
    do { /* OpenSSL returns after a change of keys. Go on with what was received behind it: epoll does not know of it */
        if (++n_changes > MOST_CHANGES) {
            tls->error = EPROTO;
            return gw_fail(GW_ERR_PEER, "it changes its keys without end");
        }
        ERR_clear_error();
        errno = 0;
        const int result = SSL_read_ex(tls->ssl, to, n_bytes, n_read);
        status = result == 1 ? GW_OK : outcome(tls, result);
        tls->stays = true;
        if (tls->asked) {
            tls->error = EPROTO;
            return gw_fail(GW_ERR_PEER, "it asks for new keys, which no Gradwire does");
        }
    } while (status == GW_NOT_YET && tls->in_at < tls->in_end);
    return status == GW_NOT_YET ? GW_OK : status;
}

bool gw_net_tls_has_more(const struct gw_net_tls *tls)
{
    return tls->in_at < tls->in_end || SSL_has_pending(tls->ssl) == 1;
}

/* Sends what is in `out`. GW_NOT_YET: not all of it. */
static gw_status send_out(struct gw_net_tls *tls)
{
    while (tls->out_at < tls->out_end) {
        const ssize_t n = send(tls->fd, tls->out + tls->out_at, tls->out_end - tls->out_at, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN ? GW_NOT_YET : GW_ERR_PEER;
        tls->out_at += (size_t)n;
    }
    tls->out_at = tls->out_end = 0;
    return GW_OK;
}

/* Makes one record of what stands from n_sent on: the head goes out in one record with the bytes behind it. */
static int write_record(struct gw_net_tls *tls, const uint8_t *head, size_t n_head, const void *bytes, size_t n_bytes,
                        size_t n_sent, size_t *n_written)
{
    uint8_t first[RECORD_BYTES];
    if (n_sent >= n_head) {
        const size_t left = n_head + n_bytes - n_sent;
        return SSL_write_ex(tls->ssl, (const uint8_t *)bytes + (n_sent - n_head),
                            left < RECORD_BYTES ? left : RECORD_BYTES, n_written);
    }
    const size_t n = n_head - n_sent, more = n_bytes < sizeof first - n ? n_bytes : sizeof first - n;
    memcpy(first, head + n_sent, n);
    if (more)
        memcpy(first + n, bytes, more);
    return SSL_write_ex(tls->ssl, first, n + more, n_written);
}

gw_status gw_net_tls_write(struct gw_net_tls *tls, const uint8_t *head, size_t n_head, const void *bytes,
                           size_t n_bytes, size_t n_sent, size_t *n_written)
{
    const size_t n_all = n_head + n_bytes;
    *n_written = 0;
    gw_status status = tls->n_sealed ? GW_OK : send_out(tls); /* an alert may be there */
    if (status == GW_OK && tls->n_sealed == 0) {
        if (tls->n_records >= gw_net_tls_records_a_key && SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
            tls->n_records = 0;
        size_t n = 0;
        int result;
        tls->gathers = true;
        do {
            result = write_record(tls, head, n_head, bytes, n_bytes, n_sent + tls->n_sealed, &n);
            if (result != 1)
                break;
            tls->n_records++;
            tls->n_sealed += n;
        } while (n_sent + tls->n_sealed < n_all && AT_ONCE - tls->out_end >= SEALED_BYTES);
        tls->gathers = false;
        /* A change of keys that comes in pieces stands in the way. Then the next reading ends the connection. */
        tls->asked |= result != 1 && SSL_get_error(tls->ssl, result) == SSL_ERROR_WANT_READ;
        ERR_clear_error();
        if (tls->n_sealed == 0)
            return GW_ERR_PEER;
    }
    if (status == GW_OK)
        status = send_out(tls);
    if (status != GW_OK)
        return status == GW_NOT_YET ? GW_OK : status;
    *n_written = tls->n_sealed;
    tls->n_sealed = 0;
    return GW_OK;
}
