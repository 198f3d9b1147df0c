/* The caller's side of the exchange: create, begin, submit, wait, destroy. The pipeline does the work
 * (exchange/pipeline.c). The two share data under one lock. A WAKE message tells the pipeline to look there. There is
 * only one such message, and it is used again and again. */
#include "codec/state.h"
#include "codec/wire_choice.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/threads.h"
#include "codec/codec.h"
#include "exchange/pipeline.h"

#include <float.h>
#include <string.h>

/* ---- create and destroy ------------------------------------------------------------------------------ */

static gw_status check_options(const gw_exchange_options *o)
{
    if (!o->codec)
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_options.codec is NULL; parse \"none\" for plain float32");
    if (!o->tensors || o->n_tensors == 0)
        return gw_fail(GW_ERR_ARGUMENT, "an exchange needs at least one tensor");
    for (uint32_t t = 0; t < o->n_tensors; t++)
        if (o->tensors[t].id != t)
            return gw_fail(GW_ERR_ARGUMENT,
                           "tensor %u of the exchange has id %u; ids are 0, 1, 2, ... in the declared order", t,
                           o->tensors[t].id);
    if (o->servers && o->link.ops)
        return gw_fail(GW_ERR_ARGUMENT,
                       "gw_exchange_options has a link and servers: either the members of the link own the slices, or "
                       "the servers do");
    if (o->server_optimizer && !o->servers)
        return gw_fail(GW_ERR_ARGUMENT,
                       "gw_exchange_options.server_optimizer is for parameter servers, and options.servers is NULL");
    const gw_codec_traits traits = gw_codec_traits_of(o->codec);
    if (o->server_optimizer && traits.momentum > 0 &&
        (!traits.velocity || strcspn(o->server_optimizer, ":") != 3 || strncmp(o->server_optimizer, "sgd", 3) != 0))
        return gw_fail(GW_ERR_SPEC,
                       "%s has momentum=, and the servers' optimizer takes the averages as they are: write "
                       "output=velocity, and let the servers' optimizer be sgd (now it is \"%.60s\")",
                       traits.name, o->server_optimizer);
    if (o->server_optimizer && (!o->server_optimizer[0] || strlen(o->server_optimizer) > GW_PS_MOST_NAME))
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_options.server_optimizer must be a specification of 1 to %d bytes",
                       GW_PS_MOST_NAME);
    if (o->first_owner > 0 && (o->servers || o->first_owner >= o->link.size))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "gw_exchange_options.first_owner is %u, and must be below the number of members; with servers it must be 0",
            o->first_owner);
    if (!gw_wire_name(o->wire))
        return gw_fail(GW_ERR_ARGUMENT,
                       "gw_exchange_options.wire is %d, and must be GW_WIRE_AUTO, GW_WIRE_SMALL or GW_WIRE_FAST",
                       (int)o->wire);
    return GW_OK;
}

/* Frees what create has taken. Lock and thread must be gone already, or never have been made. */
static void release(struct gw_exchange *ex)
{
    ex->owners->fini(ex);
    gw_buffers_clear(&ex->buffers);
    gw_message_free(ex->wake);
    gw_layout_fini(ex);
    for (uint32_t t = 0; ex->tensors && t < ex->n_tensors; t++)
        gw_encoder_destroy(ex->tensors[t].encoder);
    gw_free(ex->context, ex->members);
    gw_free(ex->context, ex->hello);
    gw_free(ex->context, ex->optimizer);
    gw_free(ex->context, ex->traffic);
    gw_free(ex->context, ex->to_encode.numbers);
    gw_free(ex->context, ex->to_measure.numbers);
    gw_free(ex->context, ex->encoders);
    gw_free(ex->context, ex->tensors);
    gw_free(ex->context, ex);
}

static gw_status fill(struct gw_exchange *ex, const gw_exchange_options *o)
{
    GW_TRY(ex->owners->init(ex, o));
    ex->tensors = gw_calloc(ex->context, o->n_tensors, sizeof *ex->tensors);
    ex->to_measure.numbers = gw_alloc(ex->context, o->n_tensors, sizeof *ex->to_measure.numbers);
    ex->to_encode.numbers = gw_alloc(ex->context, o->n_tensors, sizeof *ex->to_encode.numbers);
    ex->encoders = gw_alloc(ex->context, o->n_tensors, sizeof *ex->encoders);
    ex->traffic = gw_calloc(ex->context, o->n_tensors, sizeof *ex->traffic);
    ex->wake = gw_message_alloc(ex->context, MESSAGE_HEADER);
    if (!ex->tensors || !ex->to_measure.numbers || !ex->to_encode.numbers || !ex->encoders || !ex->traffic || !ex->wake)
        return GW_ERR_MEMORY;
    if (o->server_optimizer && !(ex->optimizer = gw_strdup(ex->context, o->server_optimizer)))
        return GW_ERR_MEMORY;
    message_header_write(ex->wake, &(struct message_header){.type = MESSAGE_WAKE});
    for (uint32_t t = 0; t < o->n_tensors; t++) {
        struct tensor *tensor = &ex->tensors[t];
        GW_TRY(gw_encoder_create(ex->context, o->codec, &o->tensors[t], &tensor->encoder));
        ex->encoders[t] = tensor->encoder;
        tensor->n_elems = o->tensors[t].n_elems;
        tensor->n_shared = gw_encoder_traits_of(tensor->encoder).n_shared;
        tensor->summed = gw_encoder_adds_on_the_way(tensor->encoder);
        tensor->state_at = ex->state_bytes;
        tensor->state_bytes = gw_encoder_traits_of(tensor->encoder).state_bytes;
        ex->state_bytes += tensor->state_bytes;
        tensor->has_wire_choice = gw_encoder_has_wire_choice(tensor->encoder);
        ex->has_wire_choice = ex->has_wire_choice || (tensor->has_wire_choice && ex->size > 1);
    }
    const uint32_t *machine_of = o->machine_of ? o->machine_of : gw_layout_machines(&o->link);
    /* servers take the frames of each worker separately */
    GW_TRY(gw_layout_init(ex, o->group_of, o->servers ? NULL : machine_of));
    return gw_hello_init(ex, o);
}

/* Makes the lock, the condition and, last, the thread if there is to be one. */
static gw_status start(struct gw_exchange *ex)
{
    pthread_mutex_init(&ex->lock, NULL); /* with default attributes neither can fail here */
    pthread_cond_init(&ex->changed, NULL);
    if (!ex->in_caller && gw_thread_start(&ex->thread, gw_pipeline_main, ex)) {
        pthread_cond_destroy(&ex->changed);
        pthread_mutex_destroy(&ex->lock);
        return gw_fail(GW_ERR_SYSTEM, "the exchange's thread could not be started");
    }
    return GW_OK;
}

gw_status gw_exchange_create_as(gw_context *context, const gw_exchange_options *options, uint64_t slice_max,
                                bool in_caller, gw_exchange **out)
{
    if (out)
        *out = NULL;
    if (!out || !options)
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_create: options or out is NULL");
    gw_exchange_options own;
    GW_TRY(GW_TAKE_OPTIONS(gw_exchange_options, options, &own));
    options = &own;
    GW_TRY(check_options(options));
    gw_status status = GW_ERR_MEMORY;
    struct gw_exchange *ex = gw_calloc(context, 1, sizeof *ex);
    if (ex) {
        ex->context = context;
        ex->made_in = gw_process_now();
        ex->codec = options->codec;
        ex->owners = options->servers ? &gw_owners_servers : &gw_owners_peers;
        ex->seed = options->seed;
        ex->timeout_ms = options->timeout_ms ? options->timeout_ms : 60000;
        ex->slice_max = slice_max;
        ex->in_caller = in_caller;
        ex->one_group = gw_codec_traits_of(options->codec).one_group;
        ex->skip_zero_gradients = options->skip_zero_gradients;
        ex->turn = options->first_owner;
        ex->n_tensors = options->n_tensors;
        ex->buffers = (struct gw_buffers){.context = context};
        ex->wire = options->wire;
        ex->told = GW_WIRE_SMALL;
        gw_chooser_init(&ex->chooser);
        status = fill(ex, options);
        if (status == GW_OK)
            status = start(ex);
        if (status < 0)
            release(ex);
    }
    if (status < 0) {
        /* The caller may try again with other arguments, so the other members are not told of that error. If memory is
         * short, they would wait for this member in vain. */
        if (status != GW_ERR_ARGUMENT && options->link.ops)
            gw_link_fail(&options->link, status, gw_last_error());
        return status;
    }
    *out = ex;
    return GW_OK;
}

gw_status gw_exchange_create(gw_context *context, const gw_exchange_options *options, gw_exchange **out)
{
    return gw_exchange_create_as(context, options, GW_SLICE_MAX, false, out);
}

/* Wakes the pipeline. `wake` was taken out of ex->wake; NULL: a wake is already on its way, or the pipeline
 * needs none. */
static gw_status call(struct gw_exchange *ex, void *wake)
{
    return wake ? ex->owners->call(ex, wake) : GW_OK;
}

static void *take_wake(struct gw_exchange *ex)
{
    if (ex->in_caller) /* the pipeline looks by itself when it begins */
        return NULL;
    void *wake = ex->wake;
    ex->wake = NULL;
    return wake;
}

void gw_exchange_destroy(gw_exchange *ex)
{
    if (!ex || !gw_process_is(ex->made_in))
        return;
    const struct gw_kept_error kept = gw_error_keep();
    pthread_mutex_lock(&ex->lock);
    bool abandoned = ex->open && !ex->done && ex->status >= 0;
    bool ended = ex->status < 0;
    ex->stop = true;
    ex->leaves = ex->leaves || (!ex->left && !abandoned);
    void *wake = ended ? NULL : take_wake(ex);
    pthread_mutex_unlock(&ex->lock);

    if (abandoned && ex->owners->fail)
        ex->owners->fail(ex, GW_ERR_CLOSED, "it gave up in the middle of a step");
    if (call(ex, wake) < 0)
        ex->owners->close(ex); /* `call` failed, so this ends the pipeline */
    if (!ex->in_caller)
        pthread_join(ex->thread, NULL);
    else if (!ended && ex->leaves && ex->owners->leave)
        ex->owners->leave(ex);
    pthread_cond_destroy(&ex->changed);
    pthread_mutex_destroy(&ex->lock);
    release(ex);
    gw_error_put_back(&kept);
}

/* Stores the pipeline's error for this thread and returns it. GW_OK if the pipeline runs. The lock must be held. */
static gw_status pipeline_status(const struct gw_exchange *ex)
{
    return ex->status < 0 ? gw_fail(ex->status, "%s", ex->error.sentence) : GW_OK;
}

static gw_status check(const struct gw_exchange *ex, const char *call)
{
    if (!ex)
        return gw_fail(GW_ERR_ARGUMENT, "%s: the exchange is NULL", call);
    return gw_process_check(ex->made_in, "this exchange");
}

static gw_status check_between_steps(const struct gw_exchange *ex, const char *call)
{
    GW_TRY(check(ex, call));
    return ex->open ? gw_fail(GW_ERR_ORDER, "%s in the middle of a step", call) : GW_OK;
}

gw_status gw_exchange_leave(gw_exchange *ex)
{
    GW_TRY(check(ex, "gw_exchange_leave"));
    void *wake = NULL;
    pthread_mutex_lock(&ex->lock);
    gw_status status = pipeline_status(ex);
    if (status == GW_OK)
        status = check_between_steps(ex, "gw_exchange_leave");
    if (status == GW_OK && !ex->left) {
        ex->left = ex->leaves = true;
        wake = take_wake(ex);
    }
    pthread_mutex_unlock(&ex->lock);
    return status == GW_OK ? call(ex, wake) : status;
}

/* ---- the wire choice ------------------------------------------------------------------------------------ */

/* True if this member compares step times. With GW_WIRE_AUTO rank 0 does. If servers keep parameters, every member
 * does: no averages come back that could tell the others what rank 0 chose. */
static bool compares(const struct gw_exchange *ex)
{
    return ex->wire == GW_WIRE_AUTO && ex->has_wire_choice && (ex->rank == 0 || ex->optimizer);
}

/* Chooses how the frames of the next step are written. The lock must be held. */
static void choose_wire(const struct gw_exchange *ex, struct beginning *b)
{
    gw_wire own = ex->wire;
    if (compares(ex))
        own = gw_chooser_next(&ex->chooser) ? GW_WIRE_FAST : GW_WIRE_SMALL;
    const bool follows = own == GW_WIRE_AUTO;
    b->push = !ex->has_wire_choice ? GW_WIRE_SMALL : follows ? ex->told : own;
    b->pull = !ex->has_wire_choice || follows ? GW_WIRE_SMALL : own;
}

static gw_status set_rate(struct gw_exchange *ex, double rate)
{
    if (!ex->optimizer)
        return gw_fail(GW_ERR_ARGUMENT, "GW_EXCHANGE_RATE: this exchange has no server_optimizer");
    if (!(rate >= 0 && rate <= (double)FLT_MAX))
        return gw_fail(GW_ERR_ARGUMENT,
                       "GW_EXCHANGE_RATE: the learning rate is %g, and must be a finite number from 0 up", rate);
    ex->rate_next = rate;
    return GW_OK;
}

static gw_status rescale(struct gw_exchange *ex, double factor)
{
    if (!(factor <= (double)FLT_MAX && (float)factor > 0))
        return gw_fail(GW_ERR_ARGUMENT, "GW_EXCHANGE_RESCALE: the factor is %g, and must be a finite float32 above 0",
                       factor);
    for (uint32_t t = 0; t < ex->n_tensors; t++)
        GW_TRY(gw_encoder_scale(ex->tensors[t].encoder, (float)factor));
    return GW_OK;
}

gw_status gw_exchange_set(gw_exchange *ex, gw_exchange_setting setting, double value)
{
    GW_TRY(check_between_steps(ex, "gw_exchange_set"));
    if (setting == GW_EXCHANGE_RATE)
        return set_rate(ex, value);
    if (setting == GW_EXCHANGE_RESCALE)
        return rescale(ex, value);
    if (setting == GW_EXCHANGE_ACCOUNT && (value == 0 || value == 1)) {
        ex->account_next = value == 1;
        return GW_OK;
    }
    for (gw_wire wire = GW_WIRE_AUTO; wire <= GW_WIRE_FAST && setting == GW_EXCHANGE_WIRE; wire++)
        if (value == wire) {
            ex->wire = wire;
            gw_chooser_init(&ex->chooser);
            return GW_OK;
        }
    return gw_fail(GW_ERR_ARGUMENT,
                   "gw_exchange_set: there is no setting %d, or %g is no value of it; "
                   "GW_EXCHANGE_WIRE is a gw_wire, and GW_EXCHANGE_ACCOUNT 0 or 1",
                   (int)setting, value);
}

/* ---- a step --------------------------------------------------------------------------------------------- */

/* Begins a step or another operation. The lock must be held. */
static void begin(struct gw_exchange *ex, const struct beginning *beginning)
{
    ex->begun = true;
    ex->beginning = *beginning;
    ex->done = false;
    ex->open = true;
    ex->n_handed_over = 0;
}

gw_status gw_exchange_begin(gw_exchange *ex, uint32_t step)
{
    GW_TRY(check(ex, "gw_exchange_begin"));
    ex->began = gw_clock_seconds();
    pthread_mutex_lock(&ex->lock);
    gw_status status = pipeline_status(ex);
    if (status == GW_OK && ex->open)
        status = gw_fail(GW_ERR_ORDER, "step %u begins before the step before it was waited for", step);
    if (status == GW_OK && ex->left)
        status = gw_fail(GW_ERR_ORDER, "step %u begins after gw_exchange_leave", step);
    if (status == GW_OK) {
        /* The pipeline need not wake for this. It cannot do anything before the first tensor comes, and early messages
         * can wait. */
        struct beginning beginning = {.step = step, .account = ex->account_next, .rate = ex->rate_next};
        choose_wire(ex, &beginning);
        begin(ex, &beginning);
        for (uint32_t t = 0; t < ex->n_tensors; t++)
            ex->tensors[t].handed_over = 0;
    }
    pthread_mutex_unlock(&ex->lock);
    return status;
}

/* Checks tensor t and marks it as handed over. Tensors before it in the same call have their marks already. */
static gw_status check_submit(struct gw_exchange *ex, uint32_t t, const float *gradient, double now)
{
    if (t >= ex->n_tensors)
        return gw_fail(GW_ERR_ARGUMENT, "tensor %u was submitted; tensors are 0 to %u", t, ex->n_tensors - 1);
    if (!gradient && ex->tensors[t].n_elems > 0)
        return gw_fail(GW_ERR_ARGUMENT, "tensor %u was submitted without a gradient (NULL)", t);
    if (!ex->open)
        return gw_fail(GW_ERR_ORDER, "tensor %u was submitted before gw_exchange_begin", t);
    if (ex->tensors[t].handed_over > 0)
        return gw_fail(GW_ERR_ORDER, "tensor %u was submitted twice in one step", t);
    ex->tensors[t].handed_over = now;
    return GW_OK;
}

gw_status gw_exchange_submit_many(gw_exchange *ex, uint32_t n, const uint32_t *tensors, float *const *gradients)
{
    GW_TRY(check(ex, "gw_exchange_submit"));
    if (n && (!tensors || !gradients))
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_submit: tensors or gradients are NULL");
    gw_status status = GW_OK;
    uint32_t n_marked = 0;
    const double now = gw_clock_seconds();
    while (n_marked < n && (status = check_submit(ex, tensors[n_marked], gradients[n_marked], now)) == GW_OK)
        n_marked++;
    void *wake = NULL;
    if (status == GW_OK && n > 0) {
        if (ex->n_handed_over == 0)
            ex->first_submit = now;
        pthread_mutex_lock(&ex->lock);
        status = pipeline_status(ex);
        if (status == GW_OK) {
            for (uint32_t i = 0; i < n; i++) {
                ex->tensors[tensors[i]].gradient = gradients[i];
                ex->to_measure.numbers[ex->n_handed_over++] = tensors[i];
            }
            wake = take_wake(ex);
        }
        pthread_mutex_unlock(&ex->lock);
    }
    if (status < 0) {
        for (uint32_t i = 0; i < n_marked; i++)
            ex->tensors[tensors[i]].handed_over = 0;
        return status;
    }
    return call(ex, wake);
}

gw_status gw_exchange_submit(gw_exchange *ex, uint32_t t, float *gradient)
{
    return gw_exchange_submit_many(ex, 1, &t, &gradient);
}

gw_status gw_exchange_wait(gw_exchange *ex, gw_step_result *result)
{
    GW_TRY(check(ex, "gw_exchange_wait"));
    double start = gw_clock_seconds();
    pthread_mutex_lock(&ex->lock);
    const char *const order = !ex->open     ? "before gw_exchange_begin"
                              : ex->waiting ? "while another thread waits for this step"
                                            : NULL;
    if (order) {
        pthread_mutex_unlock(&ex->lock);
        return gw_fail(GW_ERR_ORDER, "gw_exchange_wait %s", order);
    }
    ex->waiting = true;
    gw_status status = pipeline_status(ex);
    const bool is_step = ex->beginning.operation == OPERATION_STEP;
    if (status == GW_OK && is_step && ex->n_handed_over < ex->n_tensors)
        status = gw_fail(GW_ERR_ORDER, "gw_exchange_wait after %u of %u tensors were submitted", ex->n_handed_over,
                         ex->n_tensors);
    if (status == GW_OK && ex->in_caller) {
        pthread_mutex_unlock(&ex->lock);
        gw_pipeline_run_step(ex);
        pthread_mutex_lock(&ex->lock);
    }
    if (status == GW_OK) {
        while (!ex->done && ex->status >= 0)
            pthread_cond_wait(&ex->changed, &ex->lock); /* no deadline is needed here: the pipeline has them */
        status = ex->done ? GW_OK : pipeline_status(ex);
    }
    if (status == GW_OK) {
        const double now = gw_clock_seconds();
        ex->open = false;
        if (compares(ex) && is_step && ex->tally.committed)
            gw_chooser_note(&ex->chooser, now - ex->first_submit);
        if (result) {
            *result = ex->tally;
            result->wait_seconds = now - start;
        }
        if (is_step && !ex->tally.committed)
            status = gw_fail(GW_ERR_NONFINITE,
                             "the gradient of '%s' on rank %u holds a NaN or an infinity, so this step has no averages",
                             ex->tensors[ex->tally.bad_tensor].encoder->shown, ex->tally.bad_rank);
    }
    ex->waiting = false;
    pthread_mutex_unlock(&ex->lock);
    return status;
}

/* ---- accounts ---------------------------------------------------------------------------------------- */

static double since(double began, double moment)
{
    return moment > 0 ? moment - began : 0;
}

static gw_group_moments moments_of(const struct gw_exchange *ex, const struct group *group)
{
    return (gw_group_moments){.ready = since(ex->began, group->moments.ready),
                              .measured = since(ex->began, group->moments.measured),
                              .encoding = since(ex->began, group->moments.encoding),
                              .pushed = since(ex->began, group->moments.pushed),
                              .arrived = since(ex->began, group->moments.arrived)};
}

static gw_wire_report wire_of(const struct gw_exchange *ex)
{
    const bool fast = compares(ex) ? ex->chooser.fast : ex->beginning.push == GW_WIRE_FAST;
    return (gw_wire_report){.asked = ex->wire,
                            .has_choice = ex->has_wire_choice,
                            .compares = compares(ex),
                            .stands = fast ? GW_WIRE_FAST : GW_WIRE_SMALL,
                            .n_comparisons = ex->chooser.n_probes,
                            .n_changes = ex->chooser.n_changes,
                            .small_seconds = ex->chooser.compared[false],
                            .fast_seconds = ex->chooser.compared[true]};
}

gw_status gw_exchange_stats(const gw_exchange *ex, const gw_stats *wanted)
{
    GW_TRY(check_between_steps(ex, "gw_exchange_stats"));
    if (!wanted)
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_stats: wanted is NULL");
    if ((wanted->traffic || wanted->condition) && wanted->tensor >= ex->n_tensors)
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_stats: there is no tensor %u", wanted->tensor);
    if (wanted->moments && wanted->group >= ex->n_groups)
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_stats: there is no group %u", wanted->group);
    if (wanted->traffic)
        *wanted->traffic = ex->traffic[wanted->tensor];
    if (wanted->condition)
        gw_encoder_describe(ex->tensors[wanted->tensor].encoder, wanted->condition);
    if (wanted->moments)
        *wanted->moments = moments_of(ex, &ex->groups[wanted->group]);
    if (wanted->wire)
        *wanted->wire = wire_of(ex);
    return GW_OK;
}

/* ---- parameters on servers --------------------------------------------------------------------------- */

static gw_status move_parameters(struct gw_exchange *ex, float *const *values, enum operation operation,
                                 const char *function)
{
    GW_TRY(check_between_steps(ex, function));
    if (!ex->optimizer)
        return gw_fail(GW_ERR_ARGUMENT, "%s: this exchange has no server_optimizer", function);
    for (uint32_t t = 0; t < ex->n_tensors; t++)
        if (!values || (!values[t] && ex->tensors[t].n_elems > 0))
            return gw_fail(GW_ERR_ARGUMENT, "%s: the values of tensor %u are NULL", function, t);
    pthread_mutex_lock(&ex->lock);
    gw_status status = pipeline_status(ex);
    void *wake = NULL;
    if (status == GW_OK) {
        for (uint32_t t = 0; t < ex->n_tensors; t++)
            ex->tensors[t].gradient = values[t];
        struct beginning beginning = ex->beginning; /* what it says of the wire stays */
        beginning.step = 0;
        beginning.account = false;
        beginning.operation = operation;
        begin(ex, &beginning);
        wake = take_wake(ex);
    }
    pthread_mutex_unlock(&ex->lock);
    GW_TRY(status);
    GW_TRY(call(ex, wake));
    return gw_exchange_wait(ex, NULL);
}

gw_status gw_exchange_init_parameters(gw_exchange *ex, float *const *values)
{
    return move_parameters(ex, values, OPERATION_INIT, "gw_exchange_init_parameters");
}

gw_status gw_exchange_pull_parameters(gw_exchange *ex, float *const *values)
{
    return move_parameters(ex, values, OPERATION_PULL, "gw_exchange_pull_parameters");
}

/* ---- state of codecs --------------------------------------------------------------------------------- */

gw_status gw_exchange_save(const gw_exchange *ex, void *dst, size_t dst_capacity, size_t *state_bytes)
{
    if (state_bytes)
        *state_bytes = 0;
    GW_TRY(check_between_steps(ex, "gw_exchange_save"));
    if (!state_bytes)
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_save: state_bytes is NULL");
    *state_bytes = ex->state_bytes;
    if (!dst)
        return GW_OK;
    if (dst_capacity < *state_bytes)
        return gw_fail(GW_ERR_CAPACITY, "the exchange's state takes %zu bytes; the buffer has %zu", *state_bytes,
                       dst_capacity);
    for (const struct tensor *t = ex->tensors; t < ex->tensors + ex->n_tensors; t++)
        GW_TRY(gw_encoder_save(t->encoder, (char *)dst + t->state_at, t->state_bytes));
    return GW_OK;
}

/* Loads what gw_exchange_save writes. */
static gw_status load_all(struct gw_exchange *ex, const char *state)
{
    for (const struct tensor *t = ex->tensors; t < ex->tensors + ex->n_tensors; t++)
        GW_TRY(gw_encoder_load(t->encoder, state + t->state_at, t->state_bytes));
    return GW_OK;
}

/* parts: room for n_states pointers. */
static gw_status merge_all(const struct gw_exchange *ex, const void *const *states, uint32_t n_states,
                           const void **parts, char *merged)
{
    for (const struct tensor *t = ex->tensors; t < ex->tensors + ex->n_tensors; t++) {
        for (uint32_t i = 0; i < n_states; i++)
            parts[i] = (const char *)states[i] + t->state_at;
        if (t->state_bytes)
            GW_TRY(gw_states_merge(parts, n_states, t->state_bytes, merged + t->state_at));
    }
    return GW_OK;
}

gw_status gw_exchange_load(gw_exchange *ex, const void *const *states, uint32_t n_states, size_t state_bytes)
{
    GW_TRY(check_between_steps(ex, "gw_exchange_load"));
    if (!states || n_states == 0 || n_states > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_ARGUMENT, "gw_exchange_load: %u states are given; 1 to %u are possible",
                       states ? n_states : 0, GW_MAX_WORKERS);
    if (state_bytes != ex->state_bytes)
        return gw_fail(GW_ERR_ARGUMENT, "the saved state has %zu bytes; that of codec %s for these tensors takes %zu",
                       state_bytes, gw_codec_traits_of(ex->codec).name, ex->state_bytes);
    const void **parts = gw_alloc(ex->context, n_states, sizeof *parts);
    char *merged = n_states > 1 ? gw_alloc(ex->context, state_bytes, 1) : NULL;
    char *before = gw_alloc(ex->context, state_bytes, 1);
    size_t n_bytes;
    gw_status status = GW_ERR_MEMORY;
    if (parts && (merged || n_states == 1) && before)
        status = gw_exchange_save(ex, before, state_bytes, &n_bytes);
    if (status == GW_OK && merged)
        status = merge_all(ex, states, n_states, parts, merged);
    if (status == GW_OK) {
        status = load_all(ex, merged ? merged : states[0]);
        if (status < 0)
            gw_ignore(load_all(ex, before)); /* this exchange made it, so it is not refused */
    }
    gw_free(ex->context, before);
    gw_free(ex->context, merged);
    gw_free(ex->context, parts);
    return status;
}
