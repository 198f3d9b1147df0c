/* Opens and closes a keeper. */
#include "base/error.h"
#include "base/memory.h"
#include "pserver/keep/keeper_state.h"

static gw_status set_up(struct gw_ps_keeper *keeper, gw_ps_replay *replay, void *user)
{
    GW_TRY(gw_ps_folder_open(&keeper->folder, keeper->options.folder));
    keeper->journal_ok = true;
    GW_TRY(gw_ps_keeper_replay(keeper, replay, user));
    return gw_ps_keeper_start_syncer(keeper);
}

gw_status gw_ps_keeper_open(gw_context *context, const struct gw_ps_keeper_options *options, gw_ps_replay *replay,
                            void *user, struct gw_ps_keeper **out)
{
    struct gw_ps_keeper *keeper = gw_calloc(context, 1, sizeof *keeper);
    if (!keeper)
        return GW_ERR_MEMORY;
    keeper->context = context;
    keeper->options = *options;
    keeper->options.keep = options->keep ? options->keep : 1;
    keeper->folder = (struct gw_ps_folder){.fd = -1, .lock = -1};
    keeper->journal.fd = keeper->sync_fd = -1;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&keeper->lock, NULL);
    pthread_cond_init(&keeper->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    gw_status status = set_up(keeper, replay, user);
    if (status < 0)
        gw_ps_keeper_close(keeper);
    else
        *out = keeper;
    return status;
}

void gw_ps_keeper_close(struct gw_ps_keeper *keeper)
{
    if (!keeper)
        return;
    gw_ps_keeper_finish(keeper);
    gw_ps_keeper_stop_syncer(keeper);
    if (keeper->journal.fd >= 0)
        gw_ps_keeper_sync_now(keeper, keeper->journal.fd, keeper->promised);
    pthread_cond_destroy(&keeper->changed);
    pthread_mutex_destroy(&keeper->lock);
    gw_ps_folder_close(&keeper->folder);
    gw_free(keeper->context, keeper);
}
