/* Tests clients that send without end, or nothing at all: the server's memory and descriptors stay limited, and good
 * clients are served. The server is a process of its own, and the test measures its memory from outside. */
#define _GNU_SOURCE /* nftw */
#include "base/clock.h"
#include "flood.h"
#include "folders.h"
#include "pserver/protocol/message.h"
#include "zmq/keys.h"

#include <fcntl.h>
#include <gradwire/link.h>
#include <gradwire/pserver.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* A client that has said HELLO may have 256 MiB on its way beyond --max-bytes. */
enum { KEY_BYTES = 1 << 20, MAX_BYTES = 64 << 20, MOST_MIB = 160, MOST_KNOWN_MIB = 64 + 256 + 64 };

static char root[] = GW_BINARY_DIR "/pserver_flood_test.XXXXXX";
static char keys_path[sizeof root + 8], client_path[sizeof root + 8], log_path[sizeof root + 8];

/* ---- the server --------------------------------------------------------------------------------------------- */

struct scene {
    pid_t process;
    int end; /* the server ends when this is closed */
    char address[64];
    double before; /* MiB */
};

static void log_line(const char *line, void *log)
{
    fprintf(log, "%s\n", line);
    fflush(log);
}

static void *run(void *server)
{
    return (void *)(intptr_t)gw_ps_server_run(server);
}

static void be_the_server(const gw_ps_server_options *chosen, unsigned most_files, int end, int address)
{
    gw_ps_server_options o = *chosen;
    gw_ps_server *server;
    pthread_t thread;
    void *status;
    char byte;
    const struct rlimit limit = {most_files, most_files};
    FILE *log = fopen(log_path, "we");
    o.struct_bytes = sizeof o;
    o.listen = "127.0.0.1:0";
    o.log = log_line;
    o.log_user = log;
    o.max_key_bytes = KEY_BYTES;
    o.max_bytes = MAX_BYTES;
    if (!log || (most_files && setrlimit(RLIMIT_NOFILE, &limit) != 0) || gw_ps_server_create(NULL, &o, &server) < 0 ||
        pthread_create(&thread, NULL, run, server) != 0)
        _exit(2);
    const char *place = gw_ps_server_address(server);
    if (write(address, place, strlen(place) + 1) < 0)
        _exit(3);
    while (read(end, &byte, 1) < 0)
        ;
    gw_ps_server_stop(server);
    pthread_join(thread, &status);
    gw_ps_server_destroy(server);
    _exit((intptr_t)status == GW_OK ? 0 : 4);
}

static void begin(struct scene *scene, const gw_ps_server_options *options, unsigned most_files)
{
    int end[2], address[2];
    CHECK(pipe2(end, O_CLOEXEC) == 0 && pipe2(address, O_CLOEXEC) == 0, "no pipes");
    fflush(NULL);
    scene->process = fork();
    CHECK(scene->process >= 0, "no process");
    if (scene->process == 0) {
        close(end[1]);
        be_the_server(options, most_files, end[0], address[1]);
    }
    close(end[0]);
    close(address[1]);
    CHECK(read(address[0], scene->address, sizeof scene->address) > 0, "no server");
    close(address[0]);
    scene->end = end[1];
    scene->before = flood_memory(scene->process, "VmHWM:");
}

static void end(struct scene *scene)
{
    int how;
    close(scene->end);
    CHECK(waitpid(scene->process, &how, 0) == scene->process && WIFEXITED(how) && WEXITSTATUS(how) == 0,
          "the server ended with %d", how);
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
static void serves(const struct scene *scene, const char *keys)
{
    const gw_ps_client_options options = {
        .struct_bytes = sizeof options, .servers = scene->address, .rank = 0, .keys = keys, .timeout_ms = 60000};
    const gw_ps_shape shape = {.n_dims = 1, .dims = {KEY_BYTES / 4}};
    static float values[KEY_BYTES / 4];
    gw_ps_client *client;
    gw_ps_value value;
    CHECK(gw_ps_client_create(NULL, &options, &client) == GW_OK, "%s", gw_last_error());
    CHECK(gw_ps_init_parameter(client, "good", GW_PS_FLOAT32, &shape) == GW_OK, "%s", gw_last_error());
    CHECK(gw_ps_push_parameter(client, "good", values, sizeof values) == GW_OK, "%s", gw_last_error());
    CHECK(gw_ps_pull_parameter(client, "good", GW_PS_SUM, NULL, &value) == GW_OK, "%s", gw_last_error());
    gw_ps_value_free(&value);
    gw_ps_client_destroy(client);
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

static void say_hello(void *socket)
{
    uint8_t head[GW_PS_HEAD_BYTES];
    struct gw_ps_reply reply;
    const struct gw_ps_request hello = {.operation = GW_PS_HELLO,
                                        .hello_rank = GW_PS_READER,
                                        .incarnation = 7,
                                        .n_servers = 1};
    zmq_send(socket, head, gw_ps_request_write(head, &hello), 0);
    int n = zmq_recv(socket, head, sizeof head, 0);
    CHECK(n > 0 && gw_ps_reply_read(head, (size_t)n, &reply) == GW_OK && reply.status == GW_OK, "no welcome");
}

static void parts_without_end(void **state)
{
    (void)state;
    static const struct {
        bool keyed, known;
        size_t part_bytes, n_parts; /* so many that memory would pass its limit; a small part takes 64 bytes */
    } cases[] = {{false, false, 1 << 20, MOST_MIB + 40},
                 {false, false, 1, 4 << 20},
                 {false, false, 0, 4 << 20},
                 {false, true, 1 << 20, MOST_KNOWN_MIB + 40},
                 {false, true, 1, 7 << 20},
                 {true, false, 1 << 20, MOST_MIB + 40},
                 {true, false, 1, 4 << 20},
                 {true, true, 1 << 20, MOST_KNOWN_MIB + 40},
                 {true, true, 1, 7 << 20}};
    struct gw_zmq_keys *keys;
    assert_int_equal(gw_zmq_keys_load(NULL, client_path, &keys), GW_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene scene;
        char endpoint[80];
        const gw_ps_server_options options = {.n_workers = 1, .keys = cases[i].keyed ? keys_path : NULL};
        begin(&scene, &options, 0);
        void *zmq = zmq_ctx_new();
        snprintf(endpoint, sizeof endpoint, "tcp://%s", scene.address);
        void *socket =
            flood_socket(zmq, endpoint, cases[i].keyed ? keys->server : NULL, keys->public_key, keys->secret_key);
        if (cases[i].known)
            say_hello(socket);
        const bool ended = flood_parts(zmq, socket, cases[i].part_bytes, cases[i].n_parts);
        const double grew = flood_memory(scene.process, "VmHWM:") - scene.before;
        zmq_close(socket);
        zmq_ctx_term(zmq);
        if (getenv("GW_TEST_LOG"))
            fprintf(stderr, "case %zu: grew by %.1f MiB\n", i, grew);
        CHECK(ended, "case %zu: the server let it go on (%.0f MiB)", i, grew);
        CHECK(!FLOOD_MEMORY_IS_TOLD || grew < (cases[i].known ? MOST_KNOWN_MIB : MOST_MIB),
              "case %zu: the server grew by %.0f MiB", i, grew);
        CHECK(log_has("closed address=127.0.0.1 reason="), "case %zu: the log does not say so", i);
        serves(&scene, options.keys ? client_path : NULL);
        end(&scene);
    }
    gw_zmq_keys_free(NULL, keys);
}

/* Before a key was looked at: a command of the handshake that is as long as a value. */
static void endless_handshakes(void **state)
{
    (void)state;
    enum { N = 60, SENT = 7 << 20 };
    static char bytes[SENT];
    struct scene scene;
    const gw_ps_server_options options = {.n_workers = 1, .keys = keys_path};
    const uint8_t greeting[64] = {0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 0, 'C', 'U', 'R', 'V', 'E'},
                  head[9] = {6, 0, 0, 0, 0, 0, 0x7F, 0, 0}; /* a long command of nearly 8 MiB */
    int fds[N];
    begin(&scene, &options, 0);
    const uint16_t port = (uint16_t)atoi(strrchr(scene.address, ':') + 1);
    for (int i = 0; i < N; i++) {
        const struct timeval patience = {.tv_sec = 5};
        fds[i] = flood_connect(port);
        CHECK(fds[i] >= 0, "no connection");
        setsockopt(fds[i], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        send(fds[i], greeting, sizeof greeting, MSG_NOSIGNAL);
        send(fds[i], head, sizeof head, MSG_NOSIGNAL);
        send(fds[i], bytes, sizeof bytes, MSG_NOSIGNAL);
    }
    const double grew = flood_memory(scene.process, "VmHWM:") - scene.before;
    int open = N;
    for (int i = 0; i < 600 && (open = flood_open(fds, N)) > 0; i++)
        usleep(100000);
    CHECK(open == 0, "%d of %d are open", open, N);
    CHECK(!FLOOD_MEMORY_IS_TOLD || grew < MOST_MIB, "the server grew by %.0f MiB", grew);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    serves(&scene, client_path);
    end(&scene);
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

/* Half of them with the start of a handshake. few: the process may not have so many descriptors; then files are still
 * opened, as the snapshot at the end, while strangers have all but the reserve. */
static void silent_connections(void **state)
{
    (void)state;
    enum { N = 300, FEW = 100, RESERVE = 32, BESIDE = 3 + 64 };
    for (int few = 0; few < 2; few++) {
        struct scene scene;
        char folder[sizeof root + 8];
        int fds[N], open = N;
        snprintf(folder, sizeof folder, "%s/kept", root);
        const gw_ps_server_options options = {.n_workers = 1, .max_clients = few ? 1000 : 3, .snapshot = folder};
        begin(&scene, &options, few ? FEW : 0);
        const int before = n_files(scene.process);
        const uint16_t port = (uint16_t)atoi(strrchr(scene.address, ':') + 1);
        const double came = gw_clock_seconds();
        for (int i = 0; i < N; i++) {
            fds[i] = flood_connect(port);
            CHECK(fds[i] >= 0, "no connection");
            if (i % 2)
                send(fds[i], "\xff\0\0\0\0\0\0\0\1\x7f\3", 11, MSG_NOSIGNAL);
        }
        serves(&scene, NULL);
        for (int i = 0; i < 600 && (open = flood_open(fds, N)) > (few ? FEW : BESIDE); i++)
            usleep(100000);
        CHECK(open <= (few ? FEW : BESIDE), "%d of %d silent connections are open", open, N);
        /* ZeroMQ needs a moment to let go of descriptors. After ten seconds, silence would close the rest as well. */
        const int most = few ? FEW - RESERVE : before + BESIDE + 4;
        int files;
        while ((files = n_files(scene.process)) > most && gw_clock_seconds() < came + 9)
            usleep(10000);
        CHECK(files <= most, "the server has %d descriptors, and may have %d", files, most);
        serves(&scene, NULL);
        for (int i = 0; !few && i < 600 && (open = flood_open(fds, N)) > 0; i++)
            usleep(100000);
        CHECK(few || open == 0, "%d of %d silent connections are open for ever", open, N);
        end(&scene);
        for (int i = 0; i < N; i++)
            close(fds[i]);
        CHECK(log_has(few ? "only a reserve of open files is left" : "has not said who it is within"),
              "the log says nothing");
        CHECK(log_has("snapshot ") && !log_has("failed") && !log_has("not-durable"), "something could not be kept");
        remove_folder(folder);
    }
}

/* Many connections of one address do not push out the one of another, though it came before them. */
static void one_address_pushes_out_its_own(void **state)
{
    (void)state;
    enum { N = 300, BESIDE = 3 + 64 };
    struct scene scene;
    int fds[N], open = N;
    const gw_ps_server_options options = {.n_workers = 1, .max_clients = 3};
    begin(&scene, &options, 0);
    const uint16_t port = (uint16_t)atoi(strrchr(scene.address, ':') + 1);
    int good = flood_connect(port);
    const double came = gw_clock_seconds();
    for (int i = 0; i < N; i++) {
        fds[i] = flood_connect_from("127.0.0.2", port);
        CHECK(fds[i] >= 0, "no connection");
    }
    while ((open = flood_open(fds, N)) > BESIDE && gw_clock_seconds() < came + 60)
        usleep(10000);
    const bool stays = flood_open(&good, 1) == 1;
    CHECK(open <= BESIDE, "%d of %d silent connections are open", open, N);
    /* A connection that is silent for ten seconds is closed, wherever it comes from. */
    CHECK(stays || gw_clock_seconds() > came + 9, "the connection of another address was closed");
    close(good);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    serves(&scene, NULL);
    end(&scene);
}

/* A client that said HELLO and left is a stranger again. */
static void clients_that_left_stay_connected(void **state)
{
    (void)state;
    enum { N = 200, BESIDE = 3 + 64 };
    struct scene scene;
    char endpoint[80];
    const gw_ps_server_options options = {.n_workers = 1, .max_clients = 3};
    void *sockets[N], *zmq = zmq_ctx_new();
    begin(&scene, &options, 0);
    const int before = n_files(scene.process);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", scene.address);
    for (int i = 0; i < N; i++) {
        uint8_t head[GW_PS_HEAD_BYTES];
        sockets[i] = flood_socket(zmq, endpoint, NULL, NULL, NULL);
        say_hello(sockets[i]);
        zmq_send(sockets[i], head, gw_ps_request_write(head, &(struct gw_ps_request){.operation = GW_PS_BYE}), 0);
        CHECK(zmq_recv(sockets[i], head, sizeof head, 0) > 0, "no answer");
    }
    int files = 0;
    for (int i = 0; i < 600 && (files = n_files(scene.process)) > before + BESIDE + 4; i++)
        usleep(100000);
    CHECK(files <= before + BESIDE + 4, "the server has %d descriptors more", files - before);
    for (int i = 0; i < N; i++)
        zmq_close(sockets[i]);
    zmq_ctx_term(zmq);
    serves(&scene, NULL);
    end(&scene);
}

int main(void)
{
    CHECK(mkdtemp(root) != NULL, "no folder");
    snprintf(keys_path, sizeof keys_path, "%s/keys", root);
    snprintf(log_path, sizeof log_path, "%s/log", root);
    snprintf(client_path, sizeof client_path, "%s/client", root);
    assert_int_equal(gw_keys_new(keys_path), GW_OK);
    assert_int_equal(gw_keys_new_client(client_path, keys_path, "client"), GW_OK);
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_without_end), cmocka_unit_test(endless_handshakes),
                                       cmocka_unit_test(silent_connections),
                                       cmocka_unit_test(one_address_pushes_out_its_own),
                                       cmocka_unit_test(clients_that_left_stay_connected)};
    int failed = cmocka_run_group_tests_name("pserver flood", tests, NULL, NULL);
    remove_folder(root);
    return failed;
}
