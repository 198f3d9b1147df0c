/* Appends records to the journal, and brings it to disk about once a second on a thread of its own. */
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/quote.h"
#include "pserver/keep/keeper_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define LEAST_DUE (64ull << 20) /* a snapshot is due if the journals have at least so many bytes */
#define SYNC_SECONDS 1.0

void gw_ps_keeper_log(struct gw_ps_keeper *keeper, const char *format, ...)
{
    if (!keeper->options.log)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    keeper->options.log(line, keeper->options.log_user);
}

/* ---- the journal ------------------------------------------------------------------------------------------- */

gw_status gw_ps_keeper_new_journal(struct gw_ps_keeper *keeper, uint64_t generation, uint32_t flags,
                                   struct gw_ps_records *out)
{
    struct gw_ps_file_name name = gw_ps_file_name(GW_PS_JOURNAL, generation);
    int fd = gw_openat(keeper->folder.fd, name.text, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return gw_fail(GW_ERR_SYSTEM, "%s/%s cannot be written: %s", keeper->folder.path, name.text, strerror(errno));
    gw_status status = gw_ps_records_begin(out, fd, GW_PS_JOURNAL, generation, flags);
    if (status < 0) {
        status = gw_fail(status, "%s/%s: %s", keeper->folder.path, name.text, gw_last_error());
        unlinkat(keeper->folder.fd, name.text, 0);
        close(fd);
    }
    return status;
}

void gw_ps_keeper_use_journal(struct gw_ps_keeper *keeper, const struct gw_ps_records *journal, bool held)
{
    keeper->journal = *journal;
    pthread_mutex_lock(&keeper->lock);
    keeper->sync_fd = journal->fd;
    keeper->held = held;
    if (!keeper->gap)
        keeper->promised = journal->generation;
    pthread_mutex_unlock(&keeper->lock);
    atomic_store(&keeper->dirty, true);
}

void gw_ps_keeper_promise(struct gw_ps_keeper *keeper, uint64_t generation)
{
    pthread_mutex_lock(&keeper->lock);
    keeper->promised = generation;
    pthread_mutex_unlock(&keeper->lock);
    atomic_store(&keeper->dirty, true);
}

void gw_ps_keeper_lose(struct gw_ps_keeper *keeper)
{
    if (keeper->journal_ok)
        gw_ps_keeper_log(keeper, "not-durable reason=\"%s\"", gw_quote(gw_last_error()).text);
    keeper->journal_ok = false;
    snprintf(keeper->reason, sizeof keeper->reason, "%s", gw_last_error());
}

static bool durable(const struct gw_ps_keeper *keeper)
{
    return keeper->journal_ok && !keeper->gap;
}

gw_status gw_ps_keeper_append(struct gw_ps_keeper *keeper, uint8_t type, const void *head, size_t n_head,
                              const void *body, size_t n_body)
{
    if (keeper->journal_ok) {
        gw_status status = gw_ps_records_append(&keeper->journal, type, head, n_head, body, n_body);
        if (status < 0) {
            gw_fail(status, "%s/%s: %s", keeper->folder.path,
                    gw_ps_file_name(GW_PS_JOURNAL, keeper->journal.generation).text, gw_last_error());
            gw_ps_keeper_lose(keeper);
        }
        atomic_store_explicit(&keeper->dirty, true, memory_order_release);
    }
    if (keeper->since == 0)
        keeper->since = gw_clock_seconds();
    return durable(keeper) ? GW_OK : gw_fail(GW_ERR_SYSTEM, "%s", keeper->reason);
}

bool gw_ps_keeper_due(const struct gw_ps_keeper *keeper)
{
    const double now = gw_clock_seconds();
    if (keeper->taking || now < keeper->next_try)
        return false;
    if (!durable(keeper) || keeper->pause > 0)
        return true;
    const uint64_t twice = 2 * keeper->snapshot_bytes, most = twice > LEAST_DUE ? twice : LEAST_DUE;
    return keeper->since > 0 &&
           (keeper->older_bytes + keeper->journal.n_bytes > most || now - keeper->since >= keeper->options.every_s);
}

bool gw_ps_keeper_is_clean(const struct gw_ps_keeper *keeper)
{
    return durable(keeper) && keeper->since == 0 && keeper->older_bytes == 0;
}

struct gw_ps_keeper_info gw_ps_keeper_info(const struct gw_ps_keeper *keeper)
{
    return (struct gw_ps_keeper_info){.durable = durable(keeper),
                                      .reason = keeper->reason,
                                      .writing = keeper->taking != NULL,
                                      .generation = keeper->snapshot,
                                      .snapshot_bytes = keeper->snapshot_bytes,
                                      .journal_bytes = keeper->older_bytes + keeper->journal.n_bytes,
                                      .snapshot_at = keeper->snapshot_at,
                                      .n_snapshots = keeper->n_snapshots,
                                      .n_failed = keeper->n_failed};
}

/* ---- the thread that brings it to disk ----------------------------------------------------------------------- */

/* Writes the newest generation into the folder's file. If that fails, nothing is lost: it is tried again later, and the
 * log is told once. */
static void tell_newest(struct gw_ps_keeper *keeper, uint64_t generation)
{
    if (keeper->told == generation)
        return;
    const bool failed = gw_ps_folder_write_newest(&keeper->folder, generation) < 0;
    if (failed) {
        atomic_store(&keeper->dirty, true);
        pthread_mutex_lock(&keeper->lock);
        keeper->tell_failed = !keeper->not_told;
        snprintf(keeper->tell_sentence, sizeof keeper->tell_sentence, "%s", gw_last_error());
        pthread_mutex_unlock(&keeper->lock);
    } else {
        keeper->told = generation;
    }
    keeper->not_told = failed;
}

/* Meanwhile another journal may have become the current one. So the syncer has a descriptor of its own for the journal
 * that it brings to disk. */
void gw_ps_keeper_sync_now(struct gw_ps_keeper *keeper, int fd, uint64_t promised)
{
    const int error = fdatasync(fd) == 0 && fsync(keeper->folder.fd) == 0 ? 0 : errno;
    if (error)
        atomic_store(&keeper->sync_error, error);
    else
        tell_newest(keeper, promised);
    close(fd);
}

int gw_ps_keeper_sync_old(struct gw_ps_keeper *keeper, int fd)
{
    const int error = fdatasync(fd) == 0 ? 0 : errno;
    pthread_mutex_lock(&keeper->lock);
    keeper->held = false;
    pthread_mutex_unlock(&keeper->lock);
    return error;
}

static void *sync_on(void *argument)
{
    struct gw_ps_keeper *keeper = argument;
    pthread_mutex_lock(&keeper->lock);
    while (!keeper->closing) {
        struct timespec deadline = gw_clock_after(SYNC_SECONDS);
        while (!keeper->closing && pthread_cond_timedwait(&keeper->changed, &keeper->lock, &deadline) != ETIMEDOUT)
            ;
        if (keeper->held || !atomic_exchange(&keeper->dirty, false))
            continue;
        const int fd = fcntl(keeper->sync_fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) { /* there is no free descriptor now; try again later */
            atomic_store(&keeper->dirty, true);
            continue;
        }
        const uint64_t promised = keeper->promised;
        pthread_mutex_unlock(&keeper->lock);
        gw_ps_keeper_sync_now(keeper, fd, promised);
        pthread_mutex_lock(&keeper->lock);
    }
    pthread_mutex_unlock(&keeper->lock);
    return NULL;
}

gw_status gw_ps_keeper_start_syncer(struct gw_ps_keeper *keeper)
{
    if (pthread_create(&keeper->syncer, NULL, sync_on, keeper) != 0)
        return gw_fail(GW_ERR_SYSTEM, "no thread to bring the journal to disk");
    keeper->has_syncer = true;
    return GW_OK;
}

void gw_ps_keeper_stop_syncer(struct gw_ps_keeper *keeper)
{
    if (!keeper->has_syncer)
        return;
    pthread_mutex_lock(&keeper->lock);
    keeper->closing = true;
    pthread_cond_signal(&keeper->changed);
    pthread_mutex_unlock(&keeper->lock);
    pthread_join(keeper->syncer, NULL);
}
