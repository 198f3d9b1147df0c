/* What tests of the keeper share: a folder in which numbers are kept, one record each, and its files. */
#ifndef GW_PSERVER_KEEP_TEST_KEEPER_H
#define GW_PSERVER_KEEP_TEST_KEEPER_H

#include "base/memory.h"
#include "folders.h"
#include "log_shape.h"
#include "pserver/keep/keeper.h"
#include "wire/bytes.h"
#include "wire/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The tests keep a count of numbers: each record is the next number, and a snapshot says how many there were. */
enum { A_NUMBER = 1, A_COUNT = 2, FILLING = 3, MOST_BODY = 4000 };

struct world {
    char folder[64];
    gw_context *context;
    struct gw_ps_keeper *keeper;
    uint64_t count;
    uint32_t keep;
    char log[8192]; /* all lines */
    atomic_uint_least64_t held;
};

/* ---- records and their body ---------------------------------------------------------------------------------- */

static inline size_t body_of(uint64_t number, uint8_t *bytes)
{
    struct numbers random = numbers_from(number);
    const size_t n = numbers_below(&random, 4) ? numbers_below(&random, 60) : numbers_below(&random, MOST_BODY);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)numbers_word(&random);
    return n;
}

static inline gw_status on_record(void *user, uint8_t type, const void *head, size_t n_head, const void *body,
                                  size_t n_body)
{
    struct world *world = user;
    uint8_t expected[MOST_BODY];
    if (type == FILLING)
        return GW_OK;
    CHECK(n_head == 8, "a head of %zu bytes", n_head);
    const uint64_t number = gw_get64(head);
    CHECK((uintptr_t)body % 64 == 0, "a body at %p", body);
    if (type == A_COUNT) {
        CHECK(world->count == 0 && n_body == 0, "a snapshot after %llu records", (unsigned long long)world->count);
        world->count = number;
        return GW_OK;
    }
    CHECK(number == world->count, "number %llu came as the %lluth", (unsigned long long)number,
          (unsigned long long)world->count);
    CHECK(n_body == body_of(number, expected) && memcmp(body, expected, n_body) == 0, "another body of number %llu",
          (unsigned long long)number);
    world->count++;
    return GW_OK;
}

static inline void on_line(const char *line, void *user)
{
    struct world *world = user;
    check_log_line(line);
    size_t used = strlen(world->log);
    snprintf(world->log + used, sizeof world->log - used, "%s\n", line);
}

static inline bool told(const struct world *world, const char *word)
{
    return strstr(world->log, word) != NULL;
}

static inline gw_status append(struct world *world)
{
    uint8_t head[8], body[MOST_BODY];
    gw_put64(head, world->count);
    const size_t n = body_of(world->count, body);
    world->count++;
    return gw_ps_keeper_append(world->keeper, A_NUMBER, head, sizeof head, body, n);
}

static inline void append_many(struct world *world, int n)
{
    for (int i = 0; i < n; i++)
        CHECK(append(world) == GW_OK, "%s", gw_last_error());
}

static inline gw_status snapshot(struct world *world)
{
    uint8_t head[8];
    gw_put64(head, world->count);
    gw_status status = gw_ps_keeper_begin(world->keeper);
    if (status < 0)
        return status;
    gw_ps_keeper_add(world->keeper, A_COUNT, head, sizeof head, NULL);
    struct gw_ps_blob *blob = gw_ps_blob_new(world->context, &world->held, gw_calloc(world->context, 100, 1), 100);
    gw_ps_keeper_add(world->keeper, FILLING, NULL, 0, blob);
    gw_ps_blob_give(blob);
    return gw_ps_keeper_end(world->keeper, GW_OK);
}

static inline void snapshot_now(struct world *world)
{
    CHECK(snapshot(world) == GW_OK && gw_ps_keeper_finish(world->keeper) == GW_OK, "%s", gw_last_error());
}

static inline gw_status try_open(struct world *world)
{
    const struct gw_ps_keeper_options options = {
        .folder = world->folder, .keep = world->keep, .every_s = 1e9, .log = on_line, .log_user = world};
    world->count = 0;
    world->log[0] = 0;
    world->keeper = NULL;
    return gw_ps_keeper_open(world->context, &options, on_record, world, &world->keeper);
}

static inline void reopen(struct world *world)
{
    gw_ps_keeper_close(world->keeper);
    CHECK(try_open(world) == GW_OK, "%s", gw_last_error());
}

static inline void close_it(struct world *world)
{
    gw_ps_keeper_close(world->keeper);
    world->keeper = NULL;
}

static inline void begin(struct world *world, uint32_t keep)
{
    *world = (struct world){.keep = keep};
    snprintf(world->folder, sizeof world->folder, "/tmp/gradwire-keeper-XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    assert_int_equal(gw_context_create(NULL, &world->context), GW_OK);
    CHECK(try_open(world) == GW_OK, "%s", gw_last_error());
}

static inline void end(struct world *world)
{
    close_it(world);
    assert_int_equal(atomic_load(&world->held), 0);
    gw_context_destroy(world->context);
    remove_folder(world->folder);
}

static inline const char *path_of(const struct world *world, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", world->folder, name);
    return path;
}

struct file {
    uint8_t *bytes;
    size_t n;
};

static inline struct file read_file(const struct world *world, const char *name)
{
    struct stat st;
    struct file file;
    FILE *stream = fopen(path_of(world, name), "rb");
    assert_non_null(stream);
    assert_int_equal(fstat(fileno(stream), &st), 0);
    file.n = (size_t)st.st_size;
    file.bytes = malloc(file.n + 1);
    assert_int_equal(fread(file.bytes, 1, file.n, stream), file.n);
    fclose(stream);
    return file;
}

static inline void write_file(const struct world *world, const char *name, const void *bytes, size_t n)
{
    FILE *stream = fopen(path_of(world, name), "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, n, stream), n);
    fclose(stream);
}

static inline bool is_there(const struct world *world, const char *name)
{
    return access(path_of(world, name), F_OK) == 0;
}

/* What the sentence about damage at `last` must say. */
static inline void check_loss(size_t at, size_t last, size_t n, unsigned records)
{
    char advice[128];
    snprintf(advice, sizeof advice, "`truncate -s %zu` keeps %u records of it and loses its last %zu bytes", last,
             records, n - last);
    CHECK(strstr(gw_last_error(), advice), "bit %zu, not %s: %s", at, advice, gw_last_error());
}

static inline void remove_file(const struct world *world, const char *name)
{
    CHECK(remove(path_of(world, name)) == 0, "%s: %s", name, strerror(errno));
}

static inline void check_newest_missing(struct world *world, const char *journal)
{
    CHECK(try_open(world) == GW_ERR_SYSTEM && world->count == 0, "%s is not missed: %s", journal, world->log);
    CHECK(strstr(gw_last_error(), journal) && strstr(gw_last_error(), "`newest`") &&
              !strstr(gw_last_error(), "truncate"),
          "%s", gw_last_error());
}

#endif
