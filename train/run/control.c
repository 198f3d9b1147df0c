/* Sends and receives what workers tell each other besides gradients. Messages that come early are kept. */
#include "run/control.h"
#include "base/error.h"
#include "base/lines.h"
#include "base/memory.h"
#include "wire/bytes.h"

#include <stdio.h>
#include <string.h>

enum message_type { JOIN = 1, START, STEP, RECORD, STATE, END, MEET };
#define HEAD 16 /* bytes of a head: type, and the step that the message is about */

/* ---- words ---------------------------------------------------------------------------------- */

/* Reads a record from words, or writes it there. There is one list of fields for both. */
struct words {
    uint8_t *at;
    bool writes;
};

static void word(struct words *w, uint64_t *value)
{
    if (w->writes)
        gw_put64(w->at, *value);
    else
        *value = gw_get64(w->at);
    w->at += 8;
}

static void real(struct words *w, double *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    word(w, &bits);
    memcpy(value, &bits, sizeof bits);
}

static void half(struct words *w, uint32_t *value)
{
    uint64_t wide = *value;
    word(w, &wide);
    *value = (uint32_t)wide;
}

static void flag(struct words *w, bool *value)
{
    uint64_t wide = *value;
    word(w, &wide);
    *value = wide != 0;
}

#define RECORD_BYTES (HEAD + 8 * 29)

static void record_words(struct words *w, struct gw_step_record *r, bool *stop_wished)
{
    real(w, &r->loss), half(w, &r->correct), word(w, &r->gradients);
    real(w, &r->step_seconds), real(w, &r->compute_seconds), real(w, &r->lr);
    flag(w, &r->accounted), flag(w, &r->evaluated), half(w, &r->test_correct);
    real(w, &r->report.variance_factor), real(w, &r->report.gradient_norm);
    real(w, &r->report.residual_norm), real(w, &r->report.threshold_age);
    real(w, &r->full_loss), half(w, &r->full_correct), real(w, &r->l2_term);
    gw_step_result *s = &r->result;
    flag(w, &s->committed), half(w, &s->bad_tensor), half(w, &s->bad_rank);
    word(w, &s->bytes_up), word(w, &s->bytes_down), word(w, &s->dense_bytes), word(w, &s->nonzeros),
        word(w, &s->elements), word(w, &s->messages);
    real(w, &s->encode_seconds), real(w, &s->wait_seconds), real(w, &s->bound_gap);
    flag(w, stop_wished);
}

/* ---- messages ------------------------------------------------------------------------------- */

static void *message_new(struct gw_control *c, enum message_type type, uint64_t step, size_t n_bytes)
{
    uint8_t *bytes = gw_message_alloc(c->context, n_bytes);
    if (bytes) {
        gw_put64(bytes, type);
        gw_put64(bytes + 8, step);
    }
    return bytes;
}

/* A message with one number. */
static void *number_new(struct gw_control *c, enum message_type type, uint64_t number)
{
    uint8_t *bytes = message_new(c, type, 0, HEAD + 8);
    if (bytes)
        gw_put64(bytes + HEAD, number);
    return bytes;
}

/* What was received before, and ended this worker's part. It comes once, so it is kept. */
static gw_status kept_failure(const struct gw_control *c)
{
    return gw_fail(c->failure, "%s", c->sentence);
}

static gw_status send(struct gw_control *c, uint32_t to, void *bytes, size_t n_bytes)
{
    if (!bytes)
        return GW_ERR_MEMORY;
    gw_status status = c->link.ops->send(c->link.self, to, bytes, n_bytes, c->timeout_ms);
    if (status == GW_OK && c->link.ops->flush) /* this member may not receive for a long time */
        status = c->link.ops->flush(c->link.self, c->timeout_ms);
    if (status < 0 && c->failure < 0) /* then `to` is gone because of it */
        return kept_failure(c);
    if (status == GW_ERR_PEER)
        return gw_link_why(&c->link, NULL, NULL);
    if (status == GW_ERR_TIMEOUT)
        return gw_fail(status, "rank %u has not taken %zu bytes within %u ms", to, n_bytes, c->timeout_ms);
    return status;
}

static gw_status send_number(struct gw_control *c, uint32_t to, enum message_type type, uint64_t number)
{
    return send(c, to, number_new(c, type, number), HEAD + 8);
}

static gw_status refuse(const gw_message *message)
{
    return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent an invalid message of %zu bytes to the trainer", message->from,
                   message->n_bytes);
}

/* Puts a message where it is looked for later. If it keeps message->bytes, it sets the pointer to NULL. */
static gw_status file(struct gw_control *c, gw_message *message)
{
    bool leads = c->link.rank == 0;
    if (message->n_bytes < HEAD || message->from >= c->link.size || leads == (message->from == 0))
        return refuse(message);
    uint8_t *bytes = message->bytes;
    uint64_t type = gw_get64(bytes), step = gw_get64(bytes + 8), slot = step % c->ring,
             place = slot * c->link.size + message->from;
    struct words w = {.at = bytes + HEAD};
    if (!leads && type == START && !c->start.bytes) {
        c->start = *message;
        message->bytes = NULL;
    } else if (!leads && type == STEP && message->n_bytes == HEAD + 16) {
        c->steps[slot].step = step;
        real(&w, &c->steps[slot].lr);
        word(&w, &c->stop_at);
        c->n_steps++;
    } else if (leads && type == JOIN && message->n_bytes == HEAD + 8 && !c->joined[message->from]) {
        c->machines[message->from] = gw_get64(bytes + HEAD);
        c->joined[message->from] = true;
    } else if (leads && type == RECORD && message->n_bytes == RECORD_BYTES && !c->reported[place]) {
        bool stop_wished = false;
        record_words(&w, &c->records[place], &stop_wished);
        c->stop_wished |= stop_wished;
        c->reported[place] = true;
    } else if (leads && type == MEET && message->n_bytes == HEAD + 8 && !c->met[message->from]) {
        c->met[message->from] = true;
    } else if (!leads && type == MEET && message->n_bytes == HEAD + 8) {
        flag(&w, &c->all_met);
    } else if (leads && type == STATE && !c->states[place].bytes) {
        c->states[place] = *message;
        message->bytes = NULL;
    } else if (leads && type == END && message->n_bytes == HEAD + 8 && !c->ended[message->from]) {
        c->hashes[message->from] = gw_get64(bytes + HEAD);
        c->ended[message->from] = true;
    } else {
        return refuse(message);
    }
    return GW_OK;
}

/* Receives and files a message. The others wait for rank 0 alone, and need not know who else is gone; rank 0 does not
 * need those that have sent their END. */
static gw_status receive(struct gw_control *c, uint32_t timeout_ms)
{
    gw_message message;
    gw_status status;
    if (c->failure < 0)
        return kept_failure(c);
    do
        status = gw_link_recv(&c->link, timeout_ms, &message);
    while (status == GW_ERR_PEER && message.from < c->link.size &&
           (c->link.rank > 0 ? message.from > 0 : c->ended[message.from]));
    if (status == GW_OK) {
        status = file(c, &message);
        gw_message_free(message.bytes);
    }
    if (status < 0 && status != GW_ERR_TIMEOUT) {
        c->failure = status;
        snprintf(c->sentence, sizeof c->sentence, "%s", gw_last_error());
    }
    return status;
}

/* Rank 0 waits long. The others may wait for it: at the beginning, or because they are as far ahead as they may be. If
 * one is gone, receive says so, and says first what that one has sent. */
static void give_sign_of_life(struct gw_control *c)
{
    for (uint32_t r = 1; c->link.rank == 0 && r < c->link.size; r++) {
        void *bytes = c->ended[r] ? NULL : number_new(c, MEET, false);
        if (bytes)
            gw_ignore(c->link.ops->send(c->link.self, r, bytes, HEAD + 8, c->timeout_ms));
    }
}

/* Waits for the next message and files it. `what` and `rank` are for sentences: they say what it waits for. */
static gw_status take(struct gw_control *c, const char *what, uint64_t step, uint32_t rank)
{
    const uint32_t quarter = c->timeout_ms / 4 + 1;
    gw_status status;
    uint32_t left = c->timeout_ms;
    do {
        const uint32_t part = left < quarter ? left : quarter;
        status = receive(c, part);
        left -= part;
        if (status == GW_ERR_TIMEOUT && left > 0)
            give_sign_of_life(c);
    } while (status == GW_ERR_TIMEOUT && left > 0);
    if (status == GW_ERR_TIMEOUT)
        return gw_fail(status, "no %s came from rank %u within %u ms (step %llu)", what, rank, c->timeout_ms,
                       (unsigned long long)step);
    return status;
}

/* The lowest rank after `from` that is missing from `have`. If none is missing: the link's size. */
static uint32_t missing(const struct gw_control *c, const bool *have, uint32_t from)
{
    while (from < c->link.size && have[from])
        from++;
    return from;
}

gw_status gw_control_cause(struct gw_control *c, gw_status status)
{
    const struct gw_kept_error kept = gw_error_keep();
    while (receive(c, 0) == GW_OK)
        ;
    if (c->failure < 0)
        return kept_failure(c);
    gw_error_put_back(&kept);
    return status;
}

gw_status gw_control_init(struct gw_control *c, gw_context *context, gw_link link, uint32_t timeout_ms, uint32_t ahead)
{
    *c = (struct gw_control){.context = context,
                             .link = link,
                             .timeout_ms = timeout_ms,
                             .ahead = ahead,
                             .ring = GW_CONTROL_RING + 2 * ahead,
                             .stop_at = UINT64_MAX};
    if (link.rank > 0) {
        c->steps = gw_calloc(context, c->ring, sizeof *c->steps);
        return c->steps ? GW_OK : GW_ERR_MEMORY;
    }
    c->records = gw_calloc(context, (size_t)c->ring * link.size, sizeof *c->records);
    c->reported = gw_calloc(context, (size_t)c->ring * link.size, sizeof *c->reported);
    c->states = gw_calloc(context, (size_t)c->ring * link.size, sizeof *c->states);
    c->ended = gw_calloc(context, link.size, sizeof *c->ended);
    c->hashes = gw_calloc(context, link.size, sizeof *c->hashes);
    c->joined = gw_calloc(context, link.size, sizeof *c->joined);
    c->machines = gw_calloc(context, link.size, sizeof *c->machines);
    c->met = gw_calloc(context, link.size, sizeof *c->met);
    return c->records && c->reported && c->states && c->ended && c->hashes && c->joined && c->machines && c->met
               ? GW_OK
               : GW_ERR_MEMORY;
}

void gw_control_fini(struct gw_control *c)
{
    for (size_t i = 0; c->states && i < (size_t)c->ring * c->link.size; i++)
        gw_message_free(c->states[i].bytes);
    gw_message_free(c->start.bytes);
    void *const arrays[] = {c->records, c->reported, c->states, c->ended, c->hashes,
                            c->joined,  c->machines, c->met,    c->steps};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        gw_free(c->context, arrays[i]);
    *c = (struct gw_control){.link.rank = 0};
}

/* ---- start ---------------------------------------------------------------------------------- */

/* The numbers at the begin of START. Options, machines, floats and states follow them. */
struct start {
    uint64_t n_options, steps, threads, checkpoint_every, stop_at_nonfinite;
    uint64_t n_floats, step, arrays; /* of a resumed run; bit k: it has array k */
    uint64_t n_states, state_bytes;
};
#define START_BYTES (HEAD + 8 * 10)

static void start_words(struct words *w, struct start *s)
{
    word(w, &s->n_options), word(w, &s->steps), word(w, &s->threads), word(w, &s->checkpoint_every),
        word(w, &s->stop_at_nonfinite);
    word(w, &s->n_floats), word(w, &s->step), word(w, &s->arrays);
    word(w, &s->n_states), word(w, &s->state_bytes);
}

/* The states that START has for a rank: only its own, if the resumed run had as many workers. Else a rank needs all of
 * them, and begins with their mean. */
static uint32_t states_for(const struct gw_control *c, uint64_t n_states, uint32_t rank, uint32_t *first)
{
    const bool same = n_states == c->link.size;
    *first = same ? rank : 0;
    return same ? 1 : (uint32_t)n_states;
}

static uint64_t start_size(const struct gw_control *c, const struct start *s)
{
    uint32_t first;
    return START_BYTES + s->n_options + sizeof(uint32_t) * c->link.size +
           sizeof(float) * s->n_floats * (uint64_t)__builtin_popcountll(s->arrays) +
           states_for(c, s->n_states, 0, &first) * s->state_bytes;
}

static uint8_t *append(uint8_t *at, const void *bytes, size_t n)
{
    if (n)
        memcpy(at, bytes, n);
    return at + n;
}

/* Waits for every process's JOIN, and numbers the machines in the order of the ranks. */
static gw_status number_machines(struct gw_control *c, uint32_t first, struct gw_start *start)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < first; r++)
        c->machines[r] = start->machine, c->joined[r] = true;
    for (uint32_t r = first; (r = missing(c, c->joined, r)) < c->link.size;)
        GW_TRY(take(c, "word that it joins", 0, r));
    for (uint32_t r = 0; r < c->link.size; r++) {
        uint32_t same = 0;
        while (c->machines[same] != c->machines[r])
            same++;
        start->machine_of[r] = same < r ? start->machine_of[same] : n++;
    }
    return GW_OK;
}

gw_status gw_control_send_start(struct gw_control *c, uint32_t first, const struct gw_resume *resume,
                                struct gw_start *start)
{
    const struct gw_checkpoint *from = &resume->checkpoint;
    struct start s = {.n_options = strlen(start->options),
                      .steps = start->steps,
                      .threads = start->threads,
                      .checkpoint_every = start->checkpoint_every,
                      .stop_at_nonfinite = start->stop_at_nonfinite,
                      .n_floats = start->n_floats,
                      .step = from->step,
                      .n_states = resume->states ? from->n_state_files : 0,
                      .state_bytes = resume->states ? resume->states[0].state_bytes : 0};
    for (int k = 0; k < GW_ARRAYS; k++)
        s.arrays |= (uint64_t)(from->arrays[k] != NULL) << k;
    size_t n_bytes = start_size(c, &s);
    GW_TRY(number_machines(c, first, start));
    for (uint32_t r = first; r < c->link.size; r++) {
        uint8_t *bytes = message_new(c, START, from->step, n_bytes);
        if (!bytes)
            return GW_ERR_MEMORY;
        struct words w = {.at = bytes + HEAD, .writes = true};
        start_words(&w, &s);
        uint8_t *at = append(w.at, start->options, s.n_options);
        at = append(at, start->machine_of, sizeof(uint32_t) * c->link.size);
        for (int k = 0; k < GW_ARRAYS; k++)
            at = append(at, from->arrays[k], from->arrays[k] ? sizeof(float) * s.n_floats : 0);
        uint32_t i, n = states_for(c, s.n_states, r, &i);
        for (; n > 0; n--, i++)
            at = append(at, resume->states[i].state, s.state_bytes);
        give_sign_of_life(c); /* sending may take long, and the others wait meanwhile */
        GW_TRY(send(c, r, bytes, n_bytes));
    }
    return GW_OK;
}

/* Refuses options that are not rank 0's; both are lines "name value". */
static gw_status compare_options(const char *mine, const char *theirs, size_t n_theirs)
{
    struct gw_lines_difference d;
    if (!gw_lines_differ(mine, strlen(mine), theirs, n_theirs, &d))
        return GW_OK;
    const size_t name = gw_lines_name(&d);
    if (name == 0)
        return gw_fail(GW_ERR_ARGUMENT, "rank 0 is of a version with other options: %s, and here %s", d.second,
                       d.first);
    return gw_fail(GW_ERR_ARGUMENT, "--%.*s is %s, and rank 0 has %s: all workers must have the same", (int)name,
                   d.first, d.first + name + 1, d.second + name + 1);
}

static gw_status copy_floats(const uint8_t **at, size_t n_floats, float **floats)
{
    *floats = gw_alloc(NULL, n_floats, sizeof **floats);
    if (!*floats)
        return GW_ERR_MEMORY;
    memcpy(*floats, *at, n_floats * sizeof **floats);
    *at += n_floats * sizeof **floats;
    return GW_OK;
}

/* Checks the numbers at the begin of START, each before it is multiplied, and compares the options. */
static gw_status check_start(struct gw_control *c, const struct gw_start *start, struct start *s)
{
    uint64_t most = c->start.n_bytes;
    struct words w = {.at = (uint8_t *)c->start.bytes + HEAD};
    *s = (struct start){0};
    if (most < START_BYTES)
        return refuse(&c->start);
    start_words(&w, s);
    if (s->n_options > most - START_BYTES || s->n_states > GW_MAX_WORKERS || s->state_bytes > most ||
        s->arrays >> GW_ARRAYS || s->threads > GW_MAX_TRAIN_THREADS)
        return refuse(&c->start);
    GW_TRY(compare_options(start->options, (const char *)w.at, s->n_options));
    if (s->steps != start->steps)
        return gw_fail(GW_ERR_ARGUMENT,
                       "this worker is to make %llu steps, and rank 0 %llu: all workers must have the same --steps or "
                       "--epochs",
                       (unsigned long long)start->steps, (unsigned long long)s->steps);
    return s->n_floats == start->n_floats && start_size(c, s) == most ? GW_OK : refuse(&c->start);
}

gw_status gw_control_await_start(struct gw_control *c, struct gw_resume *resume, struct gw_start *start)
{
    struct start s;
    GW_TRY(send_number(c, 0, JOIN, start->machine));
    while (!c->start.bytes)
        GW_TRY(take(c, "beginning", 0, 0));
    GW_TRY(check_start(c, start, &s));
    const uint8_t *at = (uint8_t *)c->start.bytes + START_BYTES + s.n_options;
    start->threads = (uint32_t)s.threads;
    start->checkpoint_every = s.checkpoint_every;
    start->stop_at_nonfinite = s.stop_at_nonfinite != 0;
    memcpy(start->machine_of, at, sizeof(uint32_t) * c->link.size);
    at += sizeof(uint32_t) * c->link.size;
    struct gw_checkpoint *to = &resume->checkpoint;
    to->step = s.step;
    for (int k = 0; k < GW_ARRAYS; k++)
        if (s.arrays >> k & 1)
            GW_TRY(copy_floats(&at, s.n_floats, &to->arrays[k]));
    if (s.n_states > 0 && !(resume->states = gw_calloc(NULL, s.n_states, sizeof *resume->states)))
        return GW_ERR_MEMORY;
    to->n_state_files = (uint32_t)s.n_states;
    uint32_t i, n = states_for(c, s.n_states, c->link.rank, &i);
    for (; n > 0; n--, i++) {
        struct gw_rank_state *state = &resume->states[i];
        if (!(state->file = gw_alloc(NULL, s.state_bytes, 1)))
            return GW_ERR_MEMORY;
        memcpy(state->file, at, s.state_bytes);
        state->state = state->file, state->state_bytes = s.state_bytes;
        at += s.state_bytes;
    }
    gw_message_free(c->start.bytes);
    c->start.bytes = NULL;
    return GW_OK;
}

/* ---- steps ---------------------------------------------------------------------------------- */

gw_status gw_control_lead(struct gw_control *c, uint64_t step, double lr, uint64_t stop_at)
{
    for (uint32_t r = 1; r < c->link.size; r++) {
        uint8_t *bytes = message_new(c, STEP, step, HEAD + 16);
        if (bytes) {
            struct words w = {.at = bytes + HEAD, .writes = true};
            real(&w, &lr);
            word(&w, &stop_at);
        }
        GW_TRY(send(c, r, bytes, HEAD + 16));
    }
    return GW_OK;
}

gw_status gw_control_follow(struct gw_control *c, uint64_t step, double *lr, uint64_t *stop_at)
{
    while (c->ahead && receive(c, 0) == GW_OK)
        ;
    const uint64_t due = step - c->ahead, slot = due % c->ring;
    while (step >= c->ahead && (c->n_steps == 0 || c->steps[slot].step != due))
        GW_TRY(take(c, "learning rate", due, 0));
    if (c->ahead == 0)
        *lr = c->steps[slot].lr;
    *stop_at = c->stop_at;
    return GW_OK;
}

gw_status gw_control_report(struct gw_control *c, uint64_t step, const struct gw_step_record *record, bool stop_wished)
{
    if (c->link.rank == 0) {
        uint64_t slot = step % c->ring;
        c->records[slot * c->link.size] = *record;
        c->reported[slot * c->link.size] = true;
        return GW_OK;
    }
    uint8_t *bytes = message_new(c, RECORD, step, RECORD_BYTES);
    if (bytes) {
        struct gw_step_record copy = *record;
        struct words w = {.at = bytes + HEAD, .writes = true};
        record_words(&w, &copy, &stop_wished);
    }
    return send(c, 0, bytes, RECORD_BYTES);
}

bool gw_control_has(struct gw_control *c, uint64_t step)
{
    const bool *reported = c->reported + step % c->ring * c->link.size;
    while (missing(c, reported, 0) < c->link.size)
        if (receive(c, 0) != GW_OK)
            return c->failure < 0; /* collect returns it */
    return true;
}

gw_status gw_control_collect(struct gw_control *c, uint64_t step, const struct gw_step_record **records)
{
    uint64_t slot = step % c->ring;
    bool *reported = c->reported + slot * c->link.size;
    for (uint32_t r = 0; (r = missing(c, reported, r)) < c->link.size;)
        GW_TRY(take(c, "report", step, r));
    memset(reported, 0, c->link.size * sizeof *reported);
    *records = c->records + slot * c->link.size;
    return GW_OK;
}

/* ---- states --------------------------------------------------------------------------------- */

static gw_message *state_of(struct gw_control *c, uint64_t step, uint32_t rank)
{
    return &c->states[step % c->ring * c->link.size + rank];
}

void *gw_control_state_new(struct gw_control *c, size_t state_bytes)
{
    uint8_t *bytes = message_new(c, STATE, 0, HEAD + state_bytes);
    return bytes ? bytes + HEAD : NULL;
}

void gw_control_state_drop(void *state)
{
    gw_message_free((uint8_t *)state - HEAD);
}

gw_status gw_control_send_state(struct gw_control *c, uint64_t step, void *state, size_t state_bytes)
{
    uint8_t *bytes = (uint8_t *)state - HEAD;
    gw_put64(bytes + 8, step);
    if (c->link.rank > 0)
        return send(c, 0, bytes, HEAD + state_bytes);
    *state_of(c, step, 0) = (gw_message){.bytes = bytes, .n_bytes = HEAD + state_bytes};
    return GW_OK;
}

gw_status gw_control_await_state(struct gw_control *c, uint64_t step, uint32_t rank, const void **state,
                                 size_t *state_bytes)
{
    const gw_message *message = state_of(c, step, rank);
    while (!message->bytes)
        GW_TRY(take(c, "codec state", step, rank));
    if (gw_get64((uint8_t *)message->bytes + 8) != step)
        return refuse(message);
    *state = (uint8_t *)message->bytes + HEAD;
    *state_bytes = message->n_bytes - HEAD;
    return GW_OK;
}

void gw_control_free_state(struct gw_control *c, uint64_t step, uint32_t rank)
{
    gw_message *message = state_of(c, step, rank);
    gw_message_free(message->bytes);
    message->bytes = NULL;
}

/* ---- meeting -------------------------------------------------------------------------------- */

gw_status gw_control_meet(struct gw_control *c)
{
    if (c->link.rank > 0) {
        GW_TRY(send_number(c, 0, MEET, true));
        while (!c->all_met)
            GW_TRY(take(c, "word that all are there", 0, 0));
        c->all_met = false; /* for the next meeting */
        return GW_OK;
    }
    for (uint32_t r = 1; (r = missing(c, c->met, r)) < c->link.size;) {
        GW_TRY(take(c, "word that it is there", 0, r));
        give_sign_of_life(c); /* the last worker may be far behind */
    }
    memset(c->met, 0, c->link.size * sizeof *c->met);
    for (uint32_t r = 1; r < c->link.size; r++)
        GW_TRY(send_number(c, r, MEET, true));
    return GW_OK;
}

/* ---- end ------------------------------------------------------------------------------------ */

gw_status gw_control_end(struct gw_control *c, uint64_t hash, bool *identical)
{
    *identical = true;
    if (c->link.rank > 0)
        return send_number(c, 0, END, hash);
    for (uint32_t r = 1; (r = missing(c, c->ended, r)) < c->link.size;)
        GW_TRY(take(c, "word of its end", 0, r));
    for (uint32_t r = 1; r < c->link.size; r++)
        *identical &= c->hashes[r] == hash;
    return GW_OK;
}
