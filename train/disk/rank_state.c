/* Writes and reads the state file (.gws) of one worker. A file of another checkpoint, step or worker is refused. */
#include "disk/rank_state.h"
#include "base/error.h"
#include "base/memory.h"
#include "disk/file.h"
#include "disk/folder.h"
#include "wire/bytes.h"

#include <xxhash.h>

enum { HEAD = 40, TAIL = 8 };
static const char magic[8] = {'G', 'W', 'S', 'T', 'A', 'T', 'E', '1'};

static void put_head(const struct gw_rank_state *s, uint8_t *head)
{
    memcpy(head, magic, 8);
    gw_put64(head + 8, s->identity);
    gw_put64(head + 16, s->step);
    gw_put32(head + 24, s->rank);
    gw_put32(head + 28, s->workers);
    gw_put64(head + 32, s->state_bytes);
}

static void file_name(const struct gw_rank_state *s, char *name, size_t capacity)
{
    snprintf(name, capacity, GW_STATE_FILE, (unsigned long long)s->step, s->rank, s->workers);
}

gw_status gw_rank_state_write(const char *folder, const struct gw_rank_state *s)
{
    char name[96];
    uint8_t head[HEAD], tail[TAIL];
    struct gw_file file;
    file_name(s, name, sizeof name);
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return gw_fail(GW_ERR_MEMORY, "out of memory while writing %s/%s", folder, name);
    put_head(s, head);
    XXH3_64bits_reset(hash);
    XXH3_64bits_update(hash, head, HEAD);
    XXH3_64bits_update(hash, s->state, s->state_bytes);
    gw_put64(tail, XXH3_64bits_digest(hash));
    XXH3_freeState(hash);
    GW_TRY(gw_file_open(folder, name, false, &file));
    fwrite(head, 1, HEAD, file.stream);
    fwrite(s->state, 1, s->state_bytes, file.stream);
    fwrite(tail, 1, TAIL, file.stream);
    return gw_file_commit(&file);
}

static gw_status check(const char *path, const struct gw_rank_state *s, size_t n_bytes)
{
    if (n_bytes < HEAD + TAIL || memcmp(s->file, magic, 8) != 0)
        return gw_fail(GW_ERR_SYSTEM, "%s is no state file of Gradwire (it must start with %.8s)", path, magic);
    if (gw_get64(s->file + n_bytes - TAIL) != XXH3_64bits(s->file, n_bytes - TAIL))
        return gw_fail(GW_ERR_SYSTEM, "%s is damaged or cut short: its checksum does not match its bytes", path);
    uint8_t head[HEAD];
    put_head(s, head);
    if (memcmp(s->file + 8, head + 8, HEAD - 8) != 0)
        return gw_fail(GW_ERR_SYSTEM, "%s belongs to another run than the checkpoint beside it", path);
    return GW_OK;
}

gw_status gw_rank_state_read(const char *folder, struct gw_rank_state *s)
{
    char name[96], path[4096 + 96];
    size_t n_bytes;
    uint64_t file_bytes;
    file_name(s, name, sizeof name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    GW_TRY(gw_file_read(path, HEAD, &s->file, &n_bytes, &file_bytes));
    const bool longer = n_bytes == HEAD && file_bytes > HEAD + TAIL + gw_get64(s->file + HEAD - 8);
    gw_rank_state_free(s);
    if (longer) /* so that no memory is taken for it */
        return gw_fail(GW_ERR_SYSTEM, "%s is damaged: it is longer than its state", path);
    GW_TRY(gw_file_read(path, SIZE_MAX, &s->file, &n_bytes, &file_bytes));
    s->state = s->file + HEAD;
    s->state_bytes = n_bytes < HEAD + TAIL ? 0 : n_bytes - HEAD - TAIL;
    gw_status status = check(path, s, n_bytes);
    if (status != GW_OK)
        gw_rank_state_free(s);
    return status;
}

void gw_rank_state_free(struct gw_rank_state *s)
{
    gw_free(NULL, s->file);
    s->file = NULL;
    s->state = NULL;
}
