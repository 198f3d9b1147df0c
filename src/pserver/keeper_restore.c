/* Which snapshot and journals are taken, once all of them have been found whole; then they are replayed. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/keeper_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Everything from one snapshot on. */
struct chain {
    uint64_t snapshot;        /* 0: from the beginning */
    uint64_t last;            /* journal; those from `snapshot` to it are replayed */
    bool lost_more;           /* later journals are of no use */
    struct gw_ps_records_found tail; /* of the last journal */
    uint64_t n_records, n_bytes, snapshot_bytes;
};

struct restore {
    struct gw_ps_keeper *keeper;
    struct gw_ps_generations snapshots, journals;
    uint64_t last; /* generation there is any file of */
};

static gw_status read_file(struct gw_ps_keeper *keeper, enum gw_ps_records_kind kind, uint64_t generation, gw_ps_replay *replay, void *user,
                           struct gw_ps_records_found *found)
{
    struct gw_ps_file_name name = gw_ps_file_name(kind, generation);
    struct stat st;
    int fd = openat(keeper->folder.fd, name.text, O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "rb") : NULL;
    if (!file) {
        *found = (struct gw_ps_records_found){.state = GW_PS_RECORDS_DAMAGED};
        snprintf(found->why, sizeof found->why, "it cannot be opened: %s", fd >= 0 && !S_ISREG(st.st_mode) ? "it is no file" : strerror(errno));
        if (fd >= 0)
            close(fd);
        return GW_OK;
    }
    gw_status status = gw_ps_records_read(keeper->context, file, (uint64_t)st.st_size, kind, generation, replay, user, found);
    fclose(file);
    return status;
}

/* ---- which ---------------------------------------------------------------------------------------------------- */

/* Of a journal after a gap whose snapshot was never finished: nobody was told that what is in it is kept. */
static gw_status is_of_no_use(const struct restore *restore, uint64_t generation, bool *out)
{
    struct gw_ps_records_found found;
    *out = false;
    if (gw_ps_generations_have(&restore->snapshots, generation) || !gw_ps_generations_have(&restore->journals, generation))
        return GW_OK;
    GW_TRY(read_file(restore->keeper, GW_PS_JOURNAL, generation, NULL, NULL, &found));
    *out = found.n_bytes > 0 && found.flags & GW_PS_RECORDS_GAP;
    return GW_OK;
}

/* Whether of the last journal only the name has come to disk: the machine ended while the one before it was being brought there. */
static gw_status never_came(const struct restore *restore, uint64_t generation, bool *out)
{
    struct gw_ps_records_found found;
    *out = false;
    if (generation != restore->last || gw_ps_generations_have(&restore->snapshots, generation))
        return GW_OK;
    GW_TRY(read_file(restore->keeper, GW_PS_JOURNAL, generation, NULL, NULL, &found));
    *out = found.state == GW_PS_RECORDS_TORN && found.n_bytes == 0;
    return GW_OK;
}

/* One journal of a chain, the last so far. *more: the next one follows. GW_ERR_SYSTEM: it cannot be had whole, and why. */
static gw_status look_at_journal(const struct restore *restore, struct chain *chain, uint64_t generation, bool *more)
{
    struct gw_ps_keeper *keeper = restore->keeper;
    struct gw_ps_file_name name = gw_ps_file_name(GW_PS_JOURNAL, generation);
    struct gw_ps_records_found found;
    bool of_no_use = false;
    if (!gw_ps_generations_have(&restore->journals, generation))
        return gw_fail(GW_ERR_SYSTEM, "%s is missing%s", name.text, generation == restore->last ? "; `touch` it to do without what came after" : "");
    GW_TRY(read_file(keeper, GW_PS_JOURNAL, generation, NULL, NULL, &found));
    if (found.flags & GW_PS_RECORDS_GAP && generation > chain->snapshot)
        return gw_fail(GW_ERR_SYSTEM, "%s follows a gap, and needs %s", name.text, gw_ps_file_name(GW_PS_SNAPSHOT, generation).text);
    if (generation < restore->last)
        GW_TRY(is_of_no_use(restore, generation + 1, &of_no_use));
    if (generation < restore->last && !of_no_use && found.state == GW_PS_RECORDS_TORN)
        GW_TRY(never_came(restore, generation + 1, &of_no_use));
    *more = generation < restore->last && !of_no_use;
    if (found.state == GW_PS_RECORDS_DAMAGED || (found.state == GW_PS_RECORDS_TORN && *more))
        return gw_fail(GW_ERR_SYSTEM, "%s: %s (`truncate -s %" PRIu64 "` keeps what is whole of it; remove the journals after it then)", name.text,
                       found.why, found.n_bytes);
    chain->tail = found;
    chain->last = generation;
    chain->lost_more = of_no_use;
    chain->n_records += found.n;
    chain->n_bytes += found.n_bytes;
    return GW_OK;
}

/* What is there from one snapshot on. GW_ERR_SYSTEM: not whole, and why. */
static gw_status look_from(const struct restore *restore, uint64_t snapshot, struct chain *chain)
{
    *chain = (struct chain){.snapshot = snapshot};
    if (snapshot > 0) {
        struct gw_ps_records_found found;
        GW_TRY(read_file(restore->keeper, GW_PS_SNAPSHOT, snapshot, NULL, NULL, &found));
        if (found.state != GW_PS_RECORDS_WHOLE)
            return gw_fail(GW_ERR_SYSTEM, "%s: %s", gw_ps_file_name(GW_PS_SNAPSHOT, snapshot).text, found.why);
        chain->n_records = found.n;
        chain->snapshot_bytes = found.n_bytes;
    }
    bool more = true;
    for (uint64_t j = snapshot; more; j++)
        GW_TRY(look_at_journal(restore, chain, j, &more));
    return GW_OK;
}

/* The newest of them; the sentence of an error tells of the newest too. */
static gw_status choose(const struct restore *restore, struct chain *chain)
{
    struct gw_ps_keeper *keeper = restore->keeper;
    char first[GW_PS_KEEPER_SENTENCE] = "";
    for (size_t left = restore->snapshots.n + 1; left > 0; left--) {
        const uint64_t snapshot = left > 1 ? restore->snapshots.at[left - 2] : 0;
        if (snapshot == 0 && !gw_ps_generations_have(&restore->journals, 0) && first[0])
            break;
        gw_status status = look_from(restore, snapshot, chain);
        if (status != GW_ERR_SYSTEM)
            return status;
        gw_ps_keeper_log(keeper, "not-whole snapshot=%" PRIu64 " reason=\"%s\"", snapshot, gw_last_error());
        if (!first[0])
            snprintf(first, sizeof first, "%s", gw_last_error());
    }
    return gw_fail(GW_ERR_SYSTEM, "what is kept in %s cannot be restored: %s. Bring the file back, or give another folder to begin with nothing",
                   keeper->folder.path, first);
}

/* ---- replayed ------------------------------------------------------------------------------------------------- */

static gw_status replay_file(struct gw_ps_keeper *keeper, enum gw_ps_records_kind kind, uint64_t generation, gw_ps_replay *replay, void *user,
                             const struct gw_ps_records_found *looked)
{
    struct gw_ps_records_found found;
    GW_TRY(read_file(keeper, kind, generation, replay, user, &found));
    if (looked ? found.n_bytes != looked->n_bytes : found.state != GW_PS_RECORDS_WHOLE)
        return gw_fail(GW_ERR_SYSTEM, "%s/%s was whole a moment ago, and is not: %s", keeper->folder.path, gw_ps_file_name(kind, generation).text,
                       found.why);
    return GW_OK;
}

/* Goes on in the last journal, behind what is whole of it. */
static gw_status open_last(struct gw_ps_keeper *keeper, const struct chain *chain)
{
    struct gw_ps_file_name name = gw_ps_file_name(GW_PS_JOURNAL, chain->last);
    struct gw_ps_records journal = {.kind = GW_PS_JOURNAL, .generation = chain->last, .n = chain->tail.n, .n_bytes = chain->tail.n_bytes};
    if (chain->tail.state != GW_PS_RECORDS_WHOLE)
        gw_ps_keeper_log(keeper, "cut file=%s bytes=%" PRIu64 " reason=\"%s\"", name.text, chain->tail.n_bytes, chain->tail.why);
    if (chain->tail.n_bytes == 0) {
        GW_TRY(gw_ps_keeper_new_journal(keeper, chain->last, 0, &journal));
    } else {
        journal.fd = openat(keeper->folder.fd, name.text, O_RDWR | O_CLOEXEC);
        if (journal.fd < 0 || ftruncate(journal.fd, (off_t)journal.n_bytes) != 0) {
            gw_status status = gw_fail(GW_ERR_SYSTEM, "%s/%s cannot be written: %s", keeper->folder.path, name.text, strerror(errno));
            if (journal.fd >= 0)
                close(journal.fd);
            return status;
        }
    }
    gw_ps_keeper_use_journal(keeper, &journal, false);
    return GW_OK;
}

static gw_status replay_all(struct restore *restore, const struct chain *chain, gw_ps_replay *replay, void *user)
{
    struct gw_ps_keeper *keeper = restore->keeper;
    const double begin = gw_clock_seconds();
    if (chain->snapshot > 0)
        GW_TRY(replay_file(keeper, GW_PS_SNAPSHOT, chain->snapshot, replay, user, NULL));
    for (uint64_t j = chain->snapshot; j <= chain->last; j++)
        GW_TRY(replay_file(keeper, GW_PS_JOURNAL, j, replay, user, j == chain->last ? &chain->tail : NULL));
    for (uint64_t j = chain->last + 1; chain->lost_more && j <= restore->last; j++) {
        gw_ps_keeper_log(keeper, "removed file=%s reason=\"it followed a gap\"", gw_ps_file_name(GW_PS_JOURNAL, j).text);
        unlinkat(keeper->folder.fd, gw_ps_file_name(GW_PS_JOURNAL, j).text, 0);
    }
    GW_TRY(open_last(keeper, chain));
    keeper->snapshot = chain->snapshot;
    keeper->snapshot_bytes = chain->snapshot_bytes;
    keeper->snapshot_at = begin;
    keeper->older_bytes = chain->n_bytes - chain->tail.n_bytes;
    keeper->since = chain->n_bytes > (chain->last - chain->snapshot + 1) * GW_PS_RECORDS_HEADER ? begin : 0;
    gw_ps_keeper_log(keeper, "restored folder=%s snapshot=%" PRIu64 " journals=%" PRIu64 " records=%" PRIu64 " bytes=%" PRIu64 " seconds=%.3f",
                     keeper->folder.path, chain->snapshot, chain->last - chain->snapshot + 1, chain->n_records,
                     chain->snapshot_bytes + chain->n_bytes, gw_clock_seconds() - begin);
    return GW_OK;
}

/* Snapshots that were not whole are kept for people to look at, out of the way. */
static void set_aside(const struct restore *restore, const struct chain *chain)
{
    for (size_t i = 0; i < restore->snapshots.n; i++)
        if (restore->snapshots.at[i] > chain->snapshot) {
            struct gw_ps_file_name name = gw_ps_file_name(GW_PS_SNAPSHOT, restore->snapshots.at[i]);
            char aside[GW_PS_FILE_NAME + 16];
            snprintf(aside, sizeof aside, "%s.damaged", name.text);
            renameat(restore->keeper->folder.fd, name.text, restore->keeper->folder.fd, aside);
        }
}

static gw_status restore_from(struct restore *restore, gw_ps_replay *replay, void *user)
{
    const struct gw_ps_generations *snapshots = &restore->snapshots, *journals = &restore->journals;
    struct chain chain = {.snapshot = 0};
    if (snapshots->n + journals->n == 0) {
        gw_ps_keeper_log(restore->keeper, "keeping folder=%s", restore->keeper->folder.path);
        return open_last(restore->keeper, &chain);
    }
    restore->last = snapshots->n ? snapshots->at[snapshots->n - 1] : 0;
    if (journals->n && journals->at[journals->n - 1] > restore->last)
        restore->last = journals->at[journals->n - 1];
    GW_TRY(choose(restore, &chain));
    GW_TRY(replay_all(restore, &chain, replay, user));
    set_aside(restore, &chain);
    return GW_OK;
}

gw_status gw_ps_keeper_restore(struct gw_ps_keeper *keeper, gw_ps_replay *replay, void *user)
{
    struct restore restore = {.keeper = keeper};
    GW_TRY(gw_ps_folder_list(keeper->context, &keeper->folder, &restore.snapshots, &restore.journals));
    gw_status status = restore_from(&restore, replay, user);
    gw_free(keeper->context, restore.snapshots.at);
    gw_free(keeper->context, restore.journals.at);
    return status;
}
