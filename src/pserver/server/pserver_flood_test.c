/* Tests clients that send without end, or nothing at all: the server's memory and descriptors stay limited, and good
 * clients are served. The server is a process of its own, and the test measures its memory from outside. */
#define _GNU_SOURCE /* nftw */
#include "base/error.h"
#include "flood.h"
#include "folders.h"
#include "net/tls.h"
#include "pserver/protocol/test_talk.h"
#include "pserver/server/test_process.h"

#include <gradwire/link.h>
#include <openssl/ssl.h>

enum { KEY_BYTES = 1 << 20, MAX_BYTES = 64 << 20, MOST_MIB = 16 };

static char root[] = GW_BINARY_DIR "/pserver_flood_test.XXXXXX";
static char keys_path[sizeof root + 8], client_path[sizeof root + 8], log_path[sizeof root + 8];

/* ---- the server --------------------------------------------------------------------------------------------- */

static struct process server;
static double memory_before; /* MiB that it had at first */

static void log_line(const char *line, void *log)
{
    fprintf(log, "%s\n", line);
    fflush(log);
}

static void begin(gw_ps_server_options options, unsigned most_files)
{
    FILE *log = fopen(log_path, "we");
    assert_non_null(log);
    options.n_workers = 1;
    options.log = log_line;
    options.log_user = log;
    options.max_key_bytes = KEY_BYTES;
    options.max_bytes = MAX_BYTES;
    process_begin(&server, &options, most_files);
    fclose(log);
    memory_before = flood_memory(server.id, "VmHWM:");
}

static void end(void)
{
    process_end(&server);
}

/* The most memory that the server has had, beyond what it had then. */
static void check_growth(double most, const char *what)
{
    const double grew = flood_memory(server.id, "VmHWM:") - memory_before;
    if (getenv("GW_TEST_LOG"))
        fprintf(stderr, "%s: grew by %.1f MiB\n", what, grew);
    CHECK(!FLOOD_MEMORY_IS_TOLD || grew < most, "%s: the server grew by %.0f MiB", what, grew);
}

static bool log_has(const char *words)
{
    static char text[1 << 20];
    FILE *file = fopen(log_path, "r");
    const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[n] = 0;
    if (file)
        fclose(file);
    return strstr(text, words);
}

/* Somebody decent comes, is served, and goes. */
static void serves(const char *keys)
{
    static float values[KEY_BYTES / 4];
    gw_ps_client *client;
    gw_ps_value value;
    ok(test_client_create((gw_ps_client_options){.servers = server.address, .keys = keys, .timeout_ms = 60000},
                          &client));
    ok(test_init(client, "good", GW_PS_FLOAT32, KEY_BYTES / 4, NULL, NULL));
    ok(gw_ps_push(client, "good", values, sizeof values));
    ok(gw_ps_pull(client, "good", GW_PS_SUM, NULL, &value));
    gw_ps_value_free(&value);
    gw_ps_client_destroy(client);
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* A connection to the server, in the clear or over TLS. */
struct line {
    int fd;
    struct gw_net_tls *tls; /* NULL: in the clear */
};

static struct line dial(struct gw_net_keys *keys)
{
    struct line line = {peer_connect(server.address), NULL};
    if (keys) {
        ok(gw_net_tls_new(keys, line.fd, true, NULL, &line.tls));
        ok(gw_net_tls_handshake(line.tls));
    }
    return line;
}

static void hang_up(const struct line *line)
{
    gw_net_tls_free(line->tls);
    close(line->fd);
}

/* Sends bytes. false: the server has ended the connection. */
static bool pour(const struct line *line, const void *bytes, size_t n_bytes)
{
    if (!line->tls)
        return peer_pour(line->fd, bytes, n_bytes);
    for (size_t sent = 0, n_written; sent < n_bytes; sent += n_written) {
        if (gw_net_tls_write(line->tls, NULL, 0, bytes, n_bytes, sent, &n_written) < 0)
            return false;
        CHECK(n_written > 0, "the server reads no more");
    }
    return true;
}

static void say_hello(const struct line *line)
{
    static const struct gw_ps_request says_hello = {.operation = GW_PS_HELLO,
                                                    .hello_rank = GW_PS_READER,
                                                    .incarnation = 7};
    uint8_t hello[GW_NET_HEAD + GW_PS_HEAD_BYTES], answer[GW_NET_HEAD];
    size_t n = 0;
    assert_true(pour(line, hello, talk_head(hello, &says_hello, 0)));
    if (line->tls)
        ok(gw_net_tls_read(line->tls, answer, sizeof answer, true, &n));
    assert_true(line->tls ? n > 0 : peer_read(line->fd, answer, sizeof answer));
}

/* What is said without end. */
enum words { NOISE, SMALL_MESSAGES, HUGE_MESSAGE, LONG_HEADER, HELLOS, PULLS, VALUES };

static size_t write_words(enum words words, uint8_t *at)
{
    static const struct gw_ps_request hello = {.operation = GW_PS_HELLO, .hello_rank = GW_PS_READER, .incarnation = 8},
                                      pull = {.operation = GW_PS_PULL, .method = GW_PS_LATEST, .key = "good"},
                                      push = {.operation = GW_PS_PUSH, .nth = 1, .key = "good"};
    switch (words) {
    case NOISE:
        memset(at, 0x16, 1000);
        return 1000;
    case SMALL_MESSAGES:
        peer_head(at, GW_PS_MESSAGE, 0, 0);
        return GW_NET_HEAD;
    case HUGE_MESSAGE:
        return talk_head(at, &push, (uint64_t)1 << 60);
    case LONG_HEADER:
        peer_head(at, GW_PS_MESSAGE, GW_PS_HEAD_BYTES + 1, 0);
        return GW_NET_HEAD;
    case HELLOS:
        return talk_head(at, &hello, 0);
    case PULLS:
        return talk_head(at, &pull, 0);
    default:
        return talk_head(at, &push, KEY_BYTES) + KEY_BYTES;
    }
}

/* Somebody speaks without end: a newcomer, or a client that has said HELLO, with a key or without one. It reads
 * nothing. The server ends that connection, or drops what comes. */
TEST(bytes_without_end)
{
    enum { IN_THE_CLEAR, KEYED, KEYLESS, MANNERS, ENOUGH = 256 << 20 };
    static uint8_t bytes[KEY_BYTES + GW_NET_HEAD + GW_PS_HEAD_BYTES];
    struct gw_net_keys *keys;
    ok(gw_net_keys_load(NULL, client_path, GW_NET_CLIENT, NULL, &keys));
    for (int manner = 0; manner < MANNERS; manner++) {
        const char *good = manner == IN_THE_CLEAR ? NULL : client_path;
        begin((gw_ps_server_options){.keys = good ? keys_path : NULL}, 0);
        serves(good);
        memory_before = flood_memory(server.id, "VmHWM:");
        for (int known = 0; known < (manner == KEYLESS ? 1 : 2); known++)
            for (enum words words = NOISE; words <= VALUES; words++) {
                const struct line line = dial(manner == KEYED ? keys : NULL);
                const size_t n_words = write_words(words, bytes);
                size_t n = n_words, sent = 0;
                for (; n + n_words < sizeof bytes; n += n_words)
                    memcpy(bytes + n, bytes, n_words);
                if (known)
                    say_hello(&line);
                while (sent < ENOUGH && pour(&line, bytes, n))
                    sent += n;
                const bool ended = sent < ENOUGH, may_go_on = known && (words == HUGE_MESSAGE || words == VALUES);
                char what[64];
                snprintf(what, sizeof what, "%d %d %d: sent %zu", manner, known, (int)words, sent);
                CHECK(ended != may_go_on, "%s, and the connection %s", what, ended ? "ended" : "goes on");
                check_growth(MOST_MIB, what);
                serves(good);
                hang_up(&line);
            }
        CHECK(log_has(manner == KEYLESS ? "it does not speak as this server does" : "it does not take its answers"),
              "the log does not say so");
        end();
    }
    gw_net_keys_free(keys);
}

/* Handshakes that never end: the longest first message that TLS takes, but for its last bytes; one that is longer; and
 * one in records of a byte. */
TEST(endless_handshakes)
{
    enum { N = 60, RECORD = 16384, MOST_HELLO = 131396 };
    static uint8_t bytes[MOST_HELLO + 100];
    int fds[N], open = N;
    begin((gw_ps_server_options){.keys = keys_path}, 0);
    for (int i = 0; i < N; i++) {
        const uint32_t length = i % 3 == 1 ? 0xFFFFFF : MOST_HELLO, record = i % 3 == 2 ? 1 : RECORD;
        const uint8_t hello[4] = {1, (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length};
        size_t n = 0;
        for (size_t at = 0; at < 7 * RECORD && n + 5 + record < sizeof bytes; at += record, n += 5 + record) {
            memcpy(bytes + n, (uint8_t[]){0x16, 3, 1, (uint8_t)(record >> 8), (uint8_t)record}, 5);
            for (size_t b = 0; b < record; b++)
                bytes[n + 5 + b] = at + b < sizeof hello ? hello[at + b] : 0;
        }
        fds[i] = peer_connect(server.address);
        peer_pour(fds[i], bytes, n);
    }
    for (int i = 0; i < 600 && (open = flood_open(fds, N)) > 0; i++)
        usleep(100000);
    CHECK(open == 0, "%d of %d are open", open, N);
    check_growth(2 * MOST_MIB, "handshakes");
    for (int i = 0; i < N; i++)
        close(fds[i]);
    serves(client_path);
    end();
}

/* Somebody changes the keys of its connection again and again, which is no message. That connection is ended. */
TEST(keys_without_end)
{
    enum { N = 1000 };
    struct gw_net_keys *keys;
    ok(gw_net_keys_load(NULL, client_path, GW_NET_CLIENT, NULL, &keys));
    begin((gw_ps_server_options){.keys = keys_path}, 0);
    for (int known = 0; known < 2; known++) {
        SSL *ssl;
        char *bytes;
        struct line line = dial(keys);
        if (known)
            say_hello(&line);
        memcpy(&ssl, line.tls, sizeof ssl); /* its first field */
        SSL_set0_wbio(ssl, BIO_new(BIO_s_mem()));
        for (int i = 0; i < N; i++)
            assert_true(SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && SSL_do_handshake(ssl) == 1);
        const long n_bytes = BIO_get_mem_data(SSL_get_wbio(ssl), &bytes);
        peer_pour(line.fd, bytes, (size_t)n_bytes);
        CHECK(peer_is_out(line.fd), "the server follows %d changes", N);
        serves(client_path);
        hang_up(&line);
    }
    CHECK(log_has("it changes its keys without end"), "the log does not say so");
    end();
    gw_net_keys_free(keys);
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

/* The descriptors that a process has. */
static int n_files(pid_t process)
{
    char path[64], name[96], to[8];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
    for (int fd = 0; fd < 2000; fd++) {
        snprintf(name, sizeof name, "%s/%d", path, fd);
        n += readlink(name, to, sizeof to) >= 0;
    }
    return n;
}

/* Half of them send the start of a message, or shake hands and say no more. FEW_FILES: the process may not have as many
 * descriptors. Then files are still opened, as the snapshot at the end, because newcomers leave some for them. */
TEST(silent_connections)
{
#ifndef GW_HAVE_SQLITE
    skip();
#endif
    enum { PLAIN, FEW_FILES, KEYED, MANNERS, N = 300, FEW = 100, SPARE = 32, BESIDE = 3 + 64 };
    enum { OWN = 4 }; /* the connection that is just accepted, and files of the snapshot, may take of the spare ones */
    struct gw_net_keys *keys;
    ok(gw_net_keys_load(NULL, client_path, GW_NET_CLIENT, NULL, &keys));
    for (int manner = 0; manner < MANNERS; manner++) {
        const bool few = manner == FEW_FILES;
        const char *good = manner == KEYED ? client_path : NULL;
        char folder[sizeof root + 8];
        int fds[N], open = N;
        snprintf(folder, sizeof folder, "%s/kept", root);
        begin((gw_ps_server_options){.max_clients = few ? 1000 : 3,
                                     .snapshot = folder,
                                     .keys = good ? keys_path : NULL},
              few ? FEW : 0);
        const int before = n_files(server.id);
        for (int i = 0; i < N; i++) {
            struct gw_net_tls *tls = NULL;
            fds[i] = peer_connect(server.address);
            if (manner == KEYED && i % 2 && gw_net_tls_new(keys, fds[i], true, NULL, &tls) == GW_OK)
                gw_ignore(gw_net_tls_handshake(tls)); /* there may be no room for it */
            else if (i % 2)
                peer_pour(fds[i], "\x16\3\1\0", 4);
            gw_net_tls_free(tls);
        }
        serves(good);
        CHECK(flood_open(fds, N) > 0, "a client had to wait until silence ended all others"); /* after 10 s */
        const int most = few ? FEW - SPARE + OWN : before + BESIDE, files = n_files(server.id);
        CHECK(files <= most, "the server has %d descriptors, and may have %d", files, most);
        for (int i = 0; !few && i < 600 && (open = flood_open(fds, N)) > 0; i++)
            usleep(100000);
        CHECK(few || open == 0, "%d of %d silent connections are open for ever", open, N);
        serves(good);
        end();
        for (int i = 0; i < N; i++)
            close(fds[i]);
        CHECK(log_has("too many connections have not said who they are"), "the log says nothing");
        CHECK(log_has("keeping ") && !log_has("not-durable"), "something could not be kept");
        remove_folder(folder);
    }
    gw_net_keys_free(keys);
}

/* Clients that said HELLO and BYE are out, though they do not close their connections. */
TEST(clients_that_left_stay_connected)
{
    enum { N = 200 };
    struct line lines[N];
    begin((gw_ps_server_options){.max_clients = 3}, 0);
    const int before = n_files(server.id);
    for (int i = 0; i < N; i++) {
        lines[i] = dial(NULL);
        say_hello(&lines[i]);
        assert_true(talk_send(lines[i].fd, &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL, 0));
        assert_true(peer_is_out(lines[i].fd));
    }
    const int files = n_files(server.id);
    CHECK(files <= before, "the server has %d descriptors more", files - before);
    for (int i = 0; i < N; i++)
        hang_up(&lines[i]);
    serves(NULL);
    end();
}

int main(void)
{
    CHECK(mkdtemp(root) != NULL, "no folder");
    snprintf(keys_path, sizeof keys_path, "%s/keys", root);
    snprintf(log_path, sizeof log_path, "%s/log", root);
    snprintf(client_path, sizeof client_path, "%s/client", root);
    ok(gw_keys_new(keys_path, NULL, NULL));
    ok(gw_keys_new(client_path, keys_path, "client"));
    int failed = run_noted_tests("pserver flood", NULL, NULL);
    remove_folder(root);
    return failed;
}
