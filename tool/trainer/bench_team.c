/* Starts the members of a measurement, and joins them by links. */
#include "bench_team.h"
#include "base/threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

void bench_default_codecs(tool_texts *specs)
{
    static const char *const defaults[] = {"none", "bf16", "ternary", "ternary:residual=on", "topk"};
    if (specs->n > 0)
        return;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        specs->items[specs->n++] = defaults[i];
}

gw_link bench_link(const struct bench_team *team, size_t k, uint32_t index)
{
    return team->links[k * team->members.count + index];
}

/* ---- threads ------------------------------------------------------------------------------------------- */

struct worker {
    struct bench_member member;
    gw_status (*work)(struct bench_member *);
    pthread_t thread;
    bool started;
    gw_status status;
    char why[1024];
};

static void tell_others(const struct bench_member *m, gw_status status, const char *why)
{
    for (size_t k = 0; k <= m->team->n_links; k++) {
        gw_link link = bench_link(m->team, k, m->index);
        if (link.ops) /* there is no link if parameter servers take its place */
            gw_link_fail(&link, status, why);
    }
}

static void *worker_main(void *user)
{
    struct worker *w = user;
    w->status = gw_meeting_begin(&w->member.meeting);
    if (w->status >= 0)
        w->status = w->work(&w->member);
    if (w->status >= 0)
        return NULL;
    snprintf(w->why, sizeof w->why, "%s", *gw_last_error() ? gw_last_error() : gw_status_text(w->status));
    tell_others(&w->member, w->status, w->why);
    return NULL;
}

static gw_status run_workers(struct bench_team *team, gw_status (*work)(struct bench_member *), void *user)
{
    struct worker *workers = calloc(team->members.count, sizeof *workers);
    gw_status status = workers ? GW_OK : GW_ERR_MEMORY;
    for (uint32_t i = 0; workers && i < team->members.count; i++) {
        struct worker *w = &workers[i];
        *w = (struct worker){.member = {.team = team, .user = user, .index = i, .rank = team->members.first + i},
                             .work = work};
        w->member.meeting = (struct gw_meeting){.context = team->context,
                                                .link = bench_link(team, team->n_links, i),
                                                .timeout_ms = team->timeout_ms};
        w->started = gw_thread_start(&w->thread, worker_main, w) == 0;
        if (w->started)
            continue;
        status = gw_fail(GW_ERR_SYSTEM, "the thread of rank %u could not be started", w->member.rank);
        tell_others(&w->member, status, gw_last_error());
    }
    for (uint32_t i = 0; workers && i < team->members.count; i++) {
        struct worker *w = &workers[i];
        if (w->started)
            pthread_join(w->thread, NULL);
        if (w->status < 0 && (status >= 0 || status == GW_ERR_PEER))
            status = gw_fail(w->status, "%s", w->why);
    }
    free(workers);
    return status;
}

gw_status bench_work(struct bench_team *team, uint32_t threads, gw_status (*work)(struct bench_member *), void *user)
{
    const gw_context_options options = {.struct_bytes = sizeof options, .n_threads = threads};
    const size_t n_links = team->n_links + 1;
    team->links = calloc(n_links * team->members.count, sizeof *team->links);
    gw_status status = team->links ? gw_context_create(&options, &team->context) : GW_ERR_MEMORY;
    if (status >= 0)
        status = gw_members_connect(&team->members, team->context, (uint32_t)n_links, team->links);
    if (status >= 0) {
        status = run_workers(team, work, user);
        for (size_t i = 0; i < n_links * team->members.count; i++)
            gw_link_destroy(&team->links[i]);
    }
    gw_context_destroy(team->context);
    team->context = NULL;
    free(team->links);
    team->links = NULL;
    return status;
}
