/* A store for tests whose changes are kept in a folder. A file that includes this defines _GNU_SOURCE first, for nftw.
 */
#ifndef GW_PSERVER_FOLDER_TEST_FOLDER_H
#define GW_PSERVER_FOLDER_TEST_FOLDER_H

#include "folders.h"
#include "outcome.h"
#include "pserver/folder/folder.h"
#include "wire/bytes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

struct kept {
    struct gw_ps_store *store;
    struct gw_ps_folder *folder;
    uint64_t total;
    uint64_t own; /* what its owner keeps */
    char log[4096];
};

static inline void on_woken(void *user, struct gw_ps_key *key)
{
    (void)user, (void)key;
}

static inline gw_status own_fields(void *user, struct gw_fields *f)
{
    struct kept *kept = user;
    gw_field_u64(f, &kept->own);
    assert_true(f->writes || gw_fields_end(f));
    return GW_OK;
}

static inline void on_line(void *user, const char *line)
{
    struct kept *kept = user;
    const size_t used = strlen(kept->log);
    snprintf(kept->log + used, sizeof kept->log - used, "%s\n", line);
}

/* options: those that matter; the limits may be 0. */
static inline void make_store(struct kept *kept, gw_context *context, gw_ps_server_options options)
{
    options.max_keys = options.max_keys ? options.max_keys : 100;
    options.max_key_bytes = 1 << 20;
    options.max_bytes = options.max_bytes ? options.max_bytes : 1 << 28;
    kept->folder = NULL;
    ok(gw_ps_store_create(context, &options, &kept->total, on_woken, NULL, &kept->store));
}

/* Makes the store of what is in the folder. close_kept ends it, also if that fails. */
static inline gw_status open_kept(struct kept *kept, gw_context *context, gw_ps_server_options options,
                                  const char *folder, const char *about)
{
    make_store(kept, context, options);
    kept->own = 0;
    kept->log[0] = 0;
    return gw_ps_folder_open(kept->store,
                             &(struct gw_ps_folder_options){.folder = folder,
                                                            .about = about,
                                                            .most_own = 8,
                                                            .own = own_fields,
                                                            .log = on_line,
                                                            .user = kept},
                             &kept->folder);
}

static inline void close_kept(struct kept *kept)
{
    gw_ps_folder_close(kept->folder);
    gw_ps_store_destroy(kept->store);
    kept->store = NULL;
    assert_int_equal(kept->total, 0);
}

static inline void make_folder(char path[64])
{
    snprintf(path, 64, "/tmp/gradwire-folder-XXXXXX");
    assert_non_null(mkdtemp(path));
}

#endif
