/* Takes a snapshot: collects the records on the caller's thread, writes them on another, and removes files that are no
 * longer needed. */
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
#include <sys/statvfs.h>
#include <unistd.h>

#define PARTIAL ".partial"
#define FIRST_PAUSE 1.0 /* seconds to wait after a snapshot that failed; each further failure doubles it */
#define MOST_PAUSE 60.0

static void free_taking(struct gw_ps_keeper *keeper, struct gw_ps_keeper_taking *taking)
{
    while (taking->first) {
        struct gw_ps_keeper_record *record = taking->first;
        taking->first = record->next;
        gw_ps_blob_give(record->blob);
        gw_free(keeper->context, record);
    }
    if (taking->old_journal >= 0)
        close(taking->old_journal);
    gw_free(keeper->context, taking);
}

static void try_later(struct gw_ps_keeper *keeper)
{
    keeper->pause = keeper->pause == 0 ? FIRST_PAUSE : 2 * keeper->pause < MOST_PAUSE ? 2 * keeper->pause : MOST_PAUSE;
    keeper->next_try = gw_clock_seconds() + keeper->pause;
}

/* ---- collected by the caller's thread ------------------------------------------------------------------------- */

/* Makes a new journal for all that follows. If the current journal begins after a gap and got no snapshot, it is of no
 * use, and the new one takes its place. */
static gw_status switch_journal(struct gw_ps_keeper *keeper, struct gw_ps_keeper_taking *taking)
{
    const bool gap = !keeper->journal_ok || keeper->gap;
    struct gw_ps_records journal;
    taking->generation = keeper->journal.generation + !keeper->gap;
    GW_TRY(gw_ps_keeper_new_journal(keeper, taking->generation, gap ? GW_PS_RECORDS_GAP : 0, &journal));
    taking->old_journal = keeper->journal.fd;
    keeper->older_bytes = (keeper->gap ? 0 : keeper->journal.n_bytes) + keeper->older_bytes;
    keeper->gap = gap;
    keeper->journal_ok = true;
    keeper->since = 0;
    gw_ps_keeper_use_journal(keeper, &journal, true);
    return GW_OK;
}

gw_status gw_ps_keeper_begin(struct gw_ps_keeper *keeper)
{
    if (keeper->taking)
        return gw_fail(GW_ERR_ORDER, "a snapshot is being written already");
    gw_ps_keeper_look(keeper);
    struct gw_ps_keeper_taking *taking = gw_calloc(keeper->context, 1, sizeof *taking);
    gw_status status = taking ? GW_OK : GW_ERR_MEMORY;
    if (taking) {
        taking->last = &taking->first;
        taking->old_journal = -1;
        status = switch_journal(keeper, taking);
    }
    if (status < 0) {
        gw_ps_keeper_log(keeper, "snapshot-failed reason=\"%s\"", gw_quote(gw_last_error()).text);
        keeper->n_failed++;
        gw_free(keeper->context, taking);
        try_later(keeper);
        return status;
    }
    keeper->taking = taking;
    return GW_OK;
}

void gw_ps_keeper_add(struct gw_ps_keeper *keeper, uint8_t type, const void *head, size_t n_head,
                      struct gw_ps_blob *blob)
{
    struct gw_ps_keeper_taking *taking = keeper->taking;
    struct gw_ps_keeper_record *record =
        taking->failed < 0 ? NULL : gw_alloc(keeper->context, 1, sizeof *record + n_head);
    if (!record) {
        taking->failed = GW_ERR_MEMORY;
        return;
    }
    *record = (struct gw_ps_keeper_record){.blob = blob ? gw_ps_blob_hold(blob) : NULL,
                                           .n_head = (uint32_t)n_head,
                                           .type = type};
    if (n_head)
        memcpy(record->head, head, n_head);
    *taking->last = record;
    taking->last = &record->next;
    taking->n_bytes += GW_PS_RECORD_AROUND + n_head + (blob ? blob->n_bytes : 0);
}

/* ---- written by a thread of its own --------------------------------------------------------------------------- */

/* Checks that the disk has room for the snapshot. A snapshot that fills the disk would leave no room for the journal.
 */
static gw_status check_room(const struct gw_ps_keeper *keeper, uint64_t n_bytes)
{
    struct statvfs disk;
    if (fstatvfs(keeper->folder.fd, &disk) == 0 && (uint64_t)disk.f_bavail * disk.f_frsize < n_bytes)
        return gw_fail(GW_ERR_SYSTEM, "it takes %" PRIu64 " bytes, and the disk has %" PRIu64, n_bytes,
                       (uint64_t)disk.f_bavail * disk.f_frsize);
    return GW_OK;
}

static gw_status write_records(struct gw_ps_keeper_taking *taking, int fd)
{
    struct gw_ps_records records;
    GW_TRY(gw_ps_records_begin(&records, fd, GW_PS_SNAPSHOT, taking->generation, 0));
    for (const struct gw_ps_keeper_record *r = taking->first; r; r = r->next)
        GW_TRY(gw_ps_records_append(&records, r->type, r->head, r->n_head, r->blob ? r->blob->bytes : NULL,
                                    r->blob ? r->blob->n_bytes : 0));
    GW_TRY(gw_ps_records_end(&records));
    taking->n_bytes = records.n_bytes;
    return fsync(fd) == 0 ? GW_OK : gw_fail(GW_ERR_SYSTEM, "it cannot be brought to disk: %s", strerror(errno));
}

/* Writes the file. It has another name until it is whole and on disk. */
static gw_status write_file(const struct gw_ps_keeper *keeper, struct gw_ps_keeper_taking *taking)
{
    struct gw_ps_file_name name = gw_ps_file_name(GW_PS_SNAPSHOT, taking->generation);
    char partial[GW_PS_FILE_NAME + sizeof PARTIAL];
    snprintf(partial, sizeof partial, "%s" PARTIAL, name.text);
    GW_TRY(check_room(keeper, taking->n_bytes + 2 * GW_PS_RECORD_AROUND));
    int fd = gw_openat(keeper->folder.fd, partial, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot be written: %s", partial, strerror(errno));
    gw_status status = write_records(taking, fd);
    if (close(fd) != 0 && status == GW_OK)
        status = gw_fail(GW_ERR_SYSTEM, "it cannot be written: %s", strerror(errno));
    if (status < 0)
        unlinkat(keeper->folder.fd, partial, 0);
    if (status == GW_OK && gw_files_publish(keeper->folder.fd, partial, name.text, true) != 0) {
        status = gw_fail(GW_ERR_SYSTEM, "it cannot get its name on disk: %s", strerror(errno));
        /* the journal that follows does not need this snapshot, because that journal may begin after a gap */
        unlinkat(keeper->folder.fd, name.text, 0);
    }
    return status;
}

/* Removes old files. The store can be restored from each snapshot. It can also be restored from the beginning, as long
 * as the first journal is there. Of all these points as many stay as the options say. If a file cannot be removed now,
 * it is removed the next time. */
static void remove_old(const struct gw_ps_keeper *keeper)
{
    struct gw_ps_generations snapshots, journals;
    if (gw_ps_folder_list(keeper->context, &keeper->folder, &snapshots, &journals) < 0)
        return;
    if (snapshots.n >= keeper->options.keep) {
        const uint64_t oldest = snapshots.at[snapshots.n - keeper->options.keep];
        for (size_t i = 0; i < snapshots.n && snapshots.at[i] < oldest; i++)
            unlinkat(keeper->folder.fd, gw_ps_file_name(GW_PS_SNAPSHOT, snapshots.at[i]).text, 0);
        for (size_t i = 0; i < journals.n && journals.at[i] < oldest; i++)
            unlinkat(keeper->folder.fd, gw_ps_file_name(GW_PS_JOURNAL, journals.at[i]).text, 0);
    }
    gw_free(keeper->context, snapshots.at);
    gw_free(keeper->context, journals.at);
}

static void *write_snapshot(void *argument)
{
    struct gw_ps_keeper *keeper = argument;
    struct gw_ps_keeper_taking *taking = keeper->taking;
    const double begin = gw_clock_seconds();
    const int error = gw_ps_keeper_sync_old(keeper, taking->old_journal);
    taking->status = write_file(keeper, taking);
    if (taking->status < 0)
        snprintf(taking->sentence, sizeof taking->sentence, "%s", gw_last_error());
    else
        remove_old(keeper);
    if (taking->status < 0 && error) /* else nobody needs the sentence */
        atomic_store(&keeper->sync_error, error);
    taking->seconds = gw_clock_seconds() - begin;
    atomic_store_explicit(&taking->done, true, memory_order_release);
    return NULL;
}

/* ---- and finished --------------------------------------------------------------------------------------------- */

static void succeeded(struct gw_ps_keeper *keeper, const struct gw_ps_keeper_taking *taking)
{
    gw_ps_keeper_log(keeper, "snapshot generation=%" PRIu64 " bytes=%" PRIu64 " seconds=%.3f", taking->generation,
                     taking->n_bytes, taking->seconds);
    if (keeper->gap && keeper->journal_ok)
        gw_ps_keeper_log(keeper, "durable");
    keeper->gap = false;
    gw_ps_keeper_promise(keeper, taking->generation);
    keeper->snapshot = taking->generation;
    keeper->snapshot_bytes = taking->n_bytes;
    keeper->snapshot_at = gw_clock_seconds();
    keeper->older_bytes = 0;
    keeper->n_snapshots++;
    keeper->last_status = GW_OK;
    keeper->pause = keeper->next_try = 0;
}

static void failed(struct gw_ps_keeper *keeper, gw_status status, const char *sentence)
{
    keeper->n_failed++;
    keeper->last_status = status;
    snprintf(keeper->last_sentence, sizeof keeper->last_sentence, "%s", sentence);
    if (keeper->gap)
        keeper->journal_ok = false; /* the journal is of no use without its snapshot */
    try_later(keeper);
    gw_ps_keeper_log(keeper, "snapshot-failed reason=\"%s\" again_in_s=%.0f", gw_quote(keeper->last_sentence).text,
                     keeper->pause);
}

static void finish(struct gw_ps_keeper *keeper)
{
    struct gw_ps_keeper_taking *taking = keeper->taking;
    pthread_join(taking->thread, NULL);
    keeper->taking = NULL;
    if (taking->status < 0)
        failed(keeper, taking->status, taking->sentence);
    else
        succeeded(keeper, taking);
    free_taking(keeper, taking);
}

gw_status gw_ps_keeper_end(struct gw_ps_keeper *keeper, gw_status collected)
{
    struct gw_ps_keeper_taking *taking = keeper->taking;
    gw_status status = collected < 0 ? collected : taking->failed;
    atomic_init(&taking->done, false);
    if (status == GW_OK && pthread_create(&taking->thread, NULL, write_snapshot, keeper) != 0)
        status = gw_fail(GW_ERR_SYSTEM, "no thread for the snapshot");
    if (status < 0) {
        keeper->taking = NULL;
        const int error = gw_ps_keeper_sync_old(keeper, taking->old_journal);
        if (error)
            atomic_store(&keeper->sync_error, error);
        failed(keeper, status, gw_last_error());
        free_taking(keeper, taking);
    }
    return status;
}

void gw_ps_keeper_look(struct gw_ps_keeper *keeper)
{
    if (keeper->taking && atomic_load_explicit(&keeper->taking->done, memory_order_acquire))
        finish(keeper);
    const int error = atomic_exchange(&keeper->sync_error, 0);
    if (error) {
        gw_fail(GW_ERR_SYSTEM, "the journal in %s cannot be brought to disk: %s", keeper->folder.path, strerror(error));
        gw_ps_keeper_lose(keeper);
    }
    char sentence[GW_PS_KEEPER_SENTENCE] = "";
    pthread_mutex_lock(&keeper->lock);
    if (keeper->tell_failed)
        memcpy(sentence, keeper->tell_sentence, sizeof sentence);
    keeper->tell_failed = false;
    pthread_mutex_unlock(&keeper->lock);
    if (sentence[0])
        gw_ps_keeper_log(keeper, "newest-not-told reason=\"%s\"", gw_quote(sentence).text);
}

gw_status gw_ps_keeper_finish(struct gw_ps_keeper *keeper)
{
    if (keeper->taking)
        finish(keeper);
    return keeper->last_status < 0 ? gw_fail(keeper->last_status, "%s", keeper->last_sentence) : GW_OK;
}
