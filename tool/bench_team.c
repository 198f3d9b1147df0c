/* Starts the members of a measurement, joins them by links, and lets them wait for each other. */
#include "bench_team.h"
#include "base/clock.h"
#include "bench_gradient.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

gw_link bench_link(const struct bench_team *team, size_t k, uint32_t index)
{
    return team->links[k * team->members.count + index];
}

static gw_status send_report(const struct bench_team *team, gw_link link, uint32_t to,
                             const struct bench_report *report)
{
    void *bytes = gw_message_alloc(team->context, sizeof *report);
    if (!bytes)
        return GW_ERR_MEMORY;
    memcpy(bytes, report, sizeof *report);
    return link.ops->send(link.self, to, bytes, sizeof *report, team->timeout_ms);
}

static gw_status take_report(const struct bench_team *team, gw_link link, struct bench_report *report)
{
    gw_message message;
    gw_status status = link.ops->recv(link.self, team->timeout_ms, &message);
    if (status < 0)
        return status;
    if (message.n_bytes == sizeof *report)
        memcpy(report, message.bytes, sizeof *report);
    else
        status = gw_fail(GW_ERR_PEER, "rank %u sent a report of %zu bytes, and must send %zu: it is another version",
                         message.from, message.n_bytes, sizeof *report);
    gw_message_free(message.bytes);
    return status;
}

static void add_report(struct bench_report *sum, const struct bench_report *other)
{
    sum->seconds = other->seconds > sum->seconds ? other->seconds : sum->seconds;
    sum->encode_seconds = other->encode_seconds > sum->encode_seconds ? other->encode_seconds : sum->encode_seconds;
    sum->bytes_up += other->bytes_up;
    sum->bytes_down += other->bytes_down;
    sum->messages += other->messages;
    sum->hash = other->hash == sum->hash ? sum->hash : 0;
}

gw_status bench_meet(const struct bench_member *m, const struct bench_report *own, struct bench_report *sum)
{
    const struct bench_team *team = m->team;
    gw_link link = bench_link(team, team->n_links, m->index);
    gw_status status = GW_OK;
    struct bench_report other;
    *sum = *own;
    if (m->rank > 0)
        status = send_report(team, link, 0, own);
    for (uint32_t r = 1; m->rank == 0 && r < link.size && status >= 0; r++)
        if ((status = take_report(team, link, &other)) >= 0)
            add_report(sum, &other);
    for (uint32_t r = 1; m->rank == 0 && r < link.size && status >= 0; r++)
        status = send_report(team, link, r, sum);
    if (m->rank > 0 && status >= 0)
        status = take_report(team, link, sum);
    const double begin = gw_clock_seconds(); /* too short for a sleep */
    while (m->rank == 0 && link.size > 1 && gw_clock_seconds() < begin + team->one_way_s)
        ;
    return status;
}

uint64_t bench_settings(uint64_t settings, const char *text)
{
    return XXH3_64bits_withSeed(text, strlen(text) + 1, settings);
}

gw_status bench_agree(const struct bench_member *m, uint64_t settings)
{
    const struct bench_report own = {.hash = settings | 1}; /* 0 is for those that differ */
    struct bench_report sum;
    gw_status status = bench_meet(m, &own, &sum);
    if (status >= 0 && sum.hash == 0)
        return gw_fail(GW_ERR_ARGUMENT, "the members were not all started with the same options and files; give every "
                                        "rank the same command line");
    return status;
}

/* Half of what it takes to rank 1 and back. */
static gw_status time_one_way(struct bench_team *team, const struct bench_member *m)
{
    enum { PINGS = 15 };
    double times[PINGS];
    struct bench_report report = {0};
    gw_link link = bench_link(team, team->n_links, m->index);
    gw_status status = GW_OK;
    for (int i = 0; i < PINGS && m->rank < 2 && link.size > 1 && status >= 0; i++) {
        const double begin = gw_clock_seconds();
        status = m->rank == 0 ? send_report(team, link, 1, &report) : take_report(team, link, &report);
        if (status >= 0)
            status = m->rank == 0 ? take_report(team, link, &report) : send_report(team, link, 0, &report);
        times[i] = (gw_clock_seconds() - begin) / 2;
    }
    if (status >= 0 && m->rank == 0 && link.size > 1)
        team->one_way_s = bench_median(times, PINGS);
    return status < 0 ? status : bench_meet(m, &report, &report);
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
        link.ops->fail(link.self, status, why);
    }
}

static void *worker_main(void *user)
{
    struct worker *w = user;
    w->status = time_one_way(w->member.team, &w->member);
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
        *w = (struct worker){.member = {team, user, i, team->members.first + i}, .work = work};
        w->started = pthread_create(&w->thread, NULL, worker_main, w) == 0;
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
        char why[1024];
        snprintf(why, sizeof why, "%s", gw_last_error());
        for (size_t i = 0; i < n_links * team->members.count; i++)
            team->links[i].ops->destroy(team->links[i].self);
        if (status < 0)
            gw_fail(status, "%s", why);
    }
    gw_context_destroy(team->context);
    team->context = NULL;
    free(team->links);
    team->links = NULL;
    return status;
}
