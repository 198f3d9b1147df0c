/* Decides which snapshot and which journals are taken. It replays them only after it has found that all of them are
 * whole. */
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/quote.h"
#include "pserver/keep/keeper_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A chain: one snapshot, and all journals after it. */
struct chain {
    uint64_t snapshot;               /* 0: from the beginning */
    uint64_t last;                   /* the last journal; those from `snapshot` to `last` are replayed */
    bool lost_more;                  /* there are later journals, which are of no use */
    struct gw_ps_records_found tail; /* what was found at the end of the last journal */
    uint64_t n_records, n_bytes, snapshot_bytes;
};

struct replaying {
    struct gw_ps_keeper *keeper;
    struct gw_ps_generations snapshots, journals;
    uint64_t last;   /* the last generation of which there is a file */
    uint64_t newest; /* the generation that is named in the folder's file */
    bool has_newest; /* there is such a file */
};

static gw_status read_file(struct gw_ps_keeper *keeper, enum gw_ps_records_kind kind, uint64_t generation,
                           gw_ps_replay *replay, void *user, struct gw_ps_records_found *found)
{
    return gw_ps_folder_read(keeper->context, &keeper->folder, kind, generation, replay, user, found);
}

/* True if the folder's file says that files of this generation must be there. They were all on disk when it was
 * written. */
static bool is_promised(const struct replaying *replaying, uint64_t generation)
{
    return replaying->has_newest && generation <= replaying->newest;
}

/* ---- which ---------------------------------------------------------------------------------------------------- */

/* Finds out whether a journal begins after a gap and its snapshot was never finished. Then it is of no use. No client
 * was told that its records are kept. */
static gw_status is_of_no_use(const struct replaying *replaying, uint64_t generation, bool *out)
{
    struct gw_ps_records_found found;
    *out = false;
    if (is_promised(replaying, generation) || gw_ps_generations_have(&replaying->snapshots, generation) ||
        !gw_ps_generations_have(&replaying->journals, generation))
        return GW_OK;
    GW_TRY(read_file(replaying->keeper, GW_PS_JOURNAL, generation, NULL, NULL, &found));
    *out = found.n_bytes > 0 && found.flags & GW_PS_RECORDS_GAP;
    return GW_OK;
}

/* Finds out whether only the name of the last journal has come to disk. That happens if the machine fails while the
 * journal before it is brought to disk. */
static gw_status never_came(const struct replaying *replaying, uint64_t generation, bool *out)
{
    struct gw_ps_records_found found;
    *out = false;
    if (is_promised(replaying, generation) || generation != replaying->last ||
        gw_ps_generations_have(&replaying->snapshots, generation))
        return GW_OK;
    GW_TRY(read_file(replaying->keeper, GW_PS_JOURNAL, generation, NULL, NULL, &found));
    *out = found.state == GW_PS_RECORDS_TORN && found.n_bytes == 0;
    return GW_OK;
}

/* Says that a journal is missing. */
static gw_status tell_missing(const struct replaying *replaying, uint64_t generation)
{
    struct gw_ps_file_name name = gw_ps_file_name(GW_PS_JOURNAL, generation);
    if (generation < replaying->last)
        return gw_fail(GW_ERR_SYSTEM, "%s is missing; bring it back", name.text);
    return gw_fail(GW_ERR_SYSTEM,
                   "%s is missing; bring it back, or `touch` it to do without all that came after snapshot %" PRIu64,
                   name.text, generation);
}

/* Says that bytes of a journal were altered. The sentence says what would be kept and what would be lost if one cut the
 * file there. */
static gw_status tell_damaged(const struct replaying *replaying, uint64_t generation,
                              const struct gw_ps_records_found *found)
{
    const char *after =
        generation < replaying->last ? " and the journals after it: remove those, and `newest`, then" : "";
    return gw_fail(GW_ERR_SYSTEM,
                   "%s: %s. Bring back a good copy; or `truncate -s %" PRIu64 "` keeps %" PRIu64
                   " records of it and loses its last %" PRIu64 " bytes%s",
                   gw_ps_file_name(GW_PS_JOURNAL, generation).text, found->why, found->n_bytes, found->n,
                   found->length - found->n_bytes, after);
}

/* Looks at one journal of a chain, the last one so far. *more: the chain goes on with the next one. GW_ERR_SYSTEM: the
 * journal is not whole; the sentence says why. */
static gw_status look_at_journal(const struct replaying *replaying, struct chain *chain, uint64_t generation,
                                 bool *more)
{
    struct gw_ps_keeper *keeper = replaying->keeper;
    struct gw_ps_file_name name = gw_ps_file_name(GW_PS_JOURNAL, generation);
    struct gw_ps_records_found found;
    bool of_no_use = false;
    if (!gw_ps_generations_have(&replaying->journals, generation))
        return tell_missing(replaying, generation);
    GW_TRY(read_file(keeper, GW_PS_JOURNAL, generation, NULL, NULL, &found));
    if (found.state == GW_PS_RECORDS_NOT_READ) /* its bytes may be good, so the sentence does not advise a cut */
        return gw_fail(GW_ERR_SYSTEM, "%s: %s", name.text, found.why);
    if (found.flags & GW_PS_RECORDS_GAP && generation > chain->snapshot)
        return gw_fail(GW_ERR_SYSTEM, "%s follows a gap, and needs %s; bring that back", name.text,
                       gw_ps_file_name(GW_PS_SNAPSHOT, generation).text);
    if (generation < replaying->last)
        GW_TRY(is_of_no_use(replaying, generation + 1, &of_no_use));
    if (generation < replaying->last && !of_no_use && found.state == GW_PS_RECORDS_TORN)
        GW_TRY(never_came(replaying, generation + 1, &of_no_use));
    *more = generation < replaying->last && !of_no_use;
    if (found.state == GW_PS_RECORDS_DAMAGED || (found.state == GW_PS_RECORDS_TORN && *more))
        return tell_damaged(replaying, generation, &found);
    chain->tail = found;
    chain->last = generation;
    chain->lost_more = of_no_use;
    chain->n_records += found.n;
    chain->n_bytes += found.n_bytes;
    return GW_OK;
}

/* Looks at the chain that begins with one snapshot. GW_ERR_SYSTEM: it is not whole; the sentence says why. */
static gw_status look_from(const struct replaying *replaying, uint64_t snapshot, struct chain *chain)
{
    *chain = (struct chain){.snapshot = snapshot};
    if (snapshot > 0) {
        struct gw_ps_records_found found;
        GW_TRY(read_file(replaying->keeper, GW_PS_SNAPSHOT, snapshot, NULL, NULL, &found));
        if (found.state != GW_PS_RECORDS_WHOLE)
            return gw_fail(GW_ERR_SYSTEM, "%s: %s", gw_ps_file_name(GW_PS_SNAPSHOT, snapshot).text, found.why);
        chain->n_records = found.n;
        chain->snapshot_bytes = found.n_bytes;
    }
    bool more = true;
    for (uint64_t j = snapshot; more; j++)
        GW_TRY(look_at_journal(replaying, chain, j, &more));
    return GW_OK;
}

/* Chooses the newest chain that is whole. If there is none, the sentence of the error also tells about the newest one.
 */
static gw_status choose(const struct replaying *replaying, struct chain *chain)
{
    struct gw_ps_keeper *keeper = replaying->keeper;
    char first[GW_PS_KEEPER_SENTENCE] = "";
    for (size_t left = replaying->snapshots.n + 1; left > 0; left--) {
        const uint64_t snapshot = left > 1 ? replaying->snapshots.at[left - 2] : 0;
        if (snapshot == 0 && !gw_ps_generations_have(&replaying->journals, 0) && first[0])
            break;
        gw_status status = look_from(replaying, snapshot, chain);
        if (status != GW_ERR_SYSTEM)
            return status;
        gw_ps_keeper_log(keeper, "not-whole snapshot=%" PRIu64 " reason=\"%s\"", snapshot,
                         gw_quote(gw_last_error()).text);
        if (!first[0])
            snprintf(first, sizeof first, "%s", gw_last_error());
    }
    return gw_fail(
        GW_ERR_SYSTEM,
        "what is kept in %s cannot be restored: %s. Nothing was changed; to begin with nothing, give another folder",
        keeper->folder.path, first);
}

/* ---- replayed ------------------------------------------------------------------------------------------------- */

static gw_status replay_file(struct gw_ps_keeper *keeper, enum gw_ps_records_kind kind, uint64_t generation,
                             gw_ps_replay *replay, void *user, const struct gw_ps_records_found *looked)
{
    struct gw_ps_records_found found;
    GW_TRY(read_file(keeper, kind, generation, replay, user, &found));
    if (looked ? found.n_bytes != looked->n_bytes : found.state != GW_PS_RECORDS_WHOLE)
        return gw_fail(GW_ERR_SYSTEM, "%s/%s was whole a moment ago, and is not: %s", keeper->folder.path,
                       gw_ps_file_name(kind, generation).text, found.why);
    return GW_OK;
}

/* Opens the last journal, to append behind its last whole record. */
static gw_status open_last(struct gw_ps_keeper *keeper, const struct chain *chain)
{
    struct gw_ps_file_name name = gw_ps_file_name(GW_PS_JOURNAL, chain->last);
    struct gw_ps_records journal = {.kind = GW_PS_JOURNAL,
                                    .generation = chain->last,
                                    .n = chain->tail.n,
                                    .n_bytes = chain->tail.n_bytes};
    if (chain->tail.state != GW_PS_RECORDS_WHOLE)
        gw_ps_keeper_log(keeper, "cut file=%s bytes=%" PRIu64 " reason=\"%s\"", name.text, chain->tail.n_bytes,
                         chain->tail.why);
    if (chain->tail.n_bytes == 0) {
        GW_TRY(gw_ps_keeper_new_journal(keeper, chain->last, 0, &journal));
    } else {
        journal.fd = gw_openat(keeper->folder.fd, name.text, O_RDWR | O_CLOEXEC, 0);
        if (journal.fd < 0 || ftruncate(journal.fd, (off_t)journal.n_bytes) != 0) {
            gw_status status =
                gw_fail(GW_ERR_SYSTEM, "%s/%s cannot be written: %s", keeper->folder.path, name.text, strerror(errno));
            if (journal.fd >= 0)
                close(journal.fd);
            return status;
        }
    }
    gw_ps_keeper_use_journal(keeper, &journal, false);
    return GW_OK;
}

static gw_status replay_all(struct replaying *replaying, const struct chain *chain, gw_ps_replay *replay, void *user)
{
    struct gw_ps_keeper *keeper = replaying->keeper;
    const double begin = gw_clock_seconds();
    if (chain->snapshot > 0)
        GW_TRY(replay_file(keeper, GW_PS_SNAPSHOT, chain->snapshot, replay, user, NULL));
    for (uint64_t j = chain->snapshot; j <= chain->last; j++)
        GW_TRY(replay_file(keeper, GW_PS_JOURNAL, j, replay, user, j == chain->last ? &chain->tail : NULL));
    for (uint64_t j = chain->last + 1; chain->lost_more && j <= replaying->last; j++) {
        gw_ps_keeper_log(keeper, "removed file=%s reason=\"it followed a gap\"",
                         gw_ps_file_name(GW_PS_JOURNAL, j).text);
        unlinkat(keeper->folder.fd, gw_ps_file_name(GW_PS_JOURNAL, j).text, 0);
    }
    GW_TRY(open_last(keeper, chain));
    keeper->snapshot = chain->snapshot;
    keeper->snapshot_bytes = chain->snapshot_bytes;
    keeper->snapshot_at = begin;
    keeper->older_bytes = chain->n_bytes - chain->tail.n_bytes;
    keeper->since = chain->n_bytes > (chain->last - chain->snapshot + 1) * GW_PS_RECORDS_HEADER ? begin : 0;
    gw_ps_keeper_log(keeper,
                     "restored folder=\"%s\" snapshot=%" PRIu64 " journals=%" PRIu64 " records=%" PRIu64
                     " bytes=%" PRIu64 " seconds=%.3f",
                     gw_quote(keeper->folder.path).text, chain->snapshot, chain->last - chain->snapshot + 1,
                     chain->n_records, chain->snapshot_bytes + chain->n_bytes, gw_clock_seconds() - begin);
    return GW_OK;
}

/* Renames snapshots that were not whole, so that people can look at them later. A snapshot that could not be read keeps
 * its name: it may be good. */
static gw_status set_aside(const struct replaying *replaying, const struct chain *chain)
{
    struct gw_ps_records_found found;
    for (size_t i = 0; i < replaying->snapshots.n; i++) {
        const uint64_t generation = replaying->snapshots.at[i];
        struct gw_ps_file_name name = gw_ps_file_name(GW_PS_SNAPSHOT, generation);
        char aside[GW_PS_FILE_NAME + 16];
        if (generation <= chain->snapshot)
            continue;
        GW_TRY(read_file(replaying->keeper, GW_PS_SNAPSHOT, generation, NULL, NULL, &found));
        if (found.state == GW_PS_RECORDS_NOT_READ)
            continue;
        snprintf(aside, sizeof aside, "%s.damaged", name.text);
        renameat(replaying->keeper->folder.fd, name.text, replaying->keeper->folder.fd, aside);
    }
    return GW_OK;
}

/* Checks that files of the promised generation are there. If all of them were gone, the rest would look whole. */
static gw_status check_newest(struct replaying *replaying, bool any)
{
    const struct gw_ps_folder *folder = &replaying->keeper->folder;
    GW_TRY(gw_ps_folder_read_newest(replaying->keeper->context, folder, &replaying->has_newest, &replaying->newest));
    replaying->keeper->told = replaying->has_newest ? replaying->newest : UINT64_MAX;
    if (!replaying->has_newest || (any && replaying->newest <= replaying->last))
        return GW_OK;
    struct gw_ps_file_name snapshot = gw_ps_file_name(GW_PS_SNAPSHOT, replaying->newest),
                           journal = gw_ps_file_name(GW_PS_JOURNAL, replaying->newest);
    return gw_fail(GW_ERR_SYSTEM,
                   "what is kept in %s cannot be restored: by its file `newest` there was generation %" PRIu64
                   ", and neither %s nor %s is there. Bring them back; or remove `newest`, and all that came after the "
                   "files that are there is lost. Nothing was changed",
                   folder->path, replaying->newest, snapshot.text, journal.text);
}

static gw_status replay_from(struct replaying *replaying, gw_ps_replay *replay, void *user)
{
    const struct gw_ps_generations *snapshots = &replaying->snapshots, *journals = &replaying->journals;
    struct chain chain = {.snapshot = 0};
    const bool any = snapshots->n + journals->n > 0;
    replaying->last = snapshots->n ? snapshots->at[snapshots->n - 1] : 0;
    if (journals->n && journals->at[journals->n - 1] > replaying->last)
        replaying->last = journals->at[journals->n - 1];
    GW_TRY(check_newest(replaying, any));
    if (!any) {
        gw_ps_keeper_log(replaying->keeper, "keeping folder=\"%s\"", gw_quote(replaying->keeper->folder.path).text);
        return open_last(replaying->keeper, &chain);
    }
    gw_ps_keeper_log(replaying->keeper, "restoring folder=\"%s\"", gw_quote(replaying->keeper->folder.path).text);
    GW_TRY(choose(replaying, &chain));
    GW_TRY(replay_all(replaying, &chain, replay, user));
    return set_aside(replaying, &chain);
}

gw_status gw_ps_keeper_replay(struct gw_ps_keeper *keeper, gw_ps_replay *replay, void *user)
{
    struct replaying replaying = {.keeper = keeper};
    GW_TRY(gw_ps_folder_list(keeper->context, &keeper->folder, &replaying.snapshots, &replaying.journals));
    gw_status status = replay_from(&replaying, replay, user);
    gw_free(keeper->context, replaying.snapshots.at);
    gw_free(keeper->context, replaying.journals.at);
    return status;
}
