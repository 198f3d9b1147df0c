/* Averages a gradient over four threads, TernGrad's way: every value travels as -1, 0 or +1 times a scaler that all
 * share.
 *
 *     cc threads.c $(pkg-config --cflags --libs gradwire) && ./a.out
 *
 * Each thread is a member of the exchange with a link of its own. Ternary values are drawn at random and right on
 * average, so the mean over many steps comes close to the true average. */
#include <gradwire/gradwire.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum { WORKERS = 4, ELEMENTS = 100000, STEPS = 50 };

struct worker {
    gw_context *context;
    gw_codec *codec;
    gw_link link;
    float gradient[ELEMENTS];
    double sum[ELEMENTS]; /* the sum of the averages of all steps */
    unsigned long long bytes_up, dense_bytes;
    gw_status status;
};

/* The gradient that a worker finds in its share of the batch. It is the same in every step, so that the program can
 * compare the averages with the mean. */
static float value(unsigned rank, unsigned i)
{
    return sinf(0.001f * (float)i) + 0.1f * (float)rank;
}

static void *work(void *argument)
{
    struct worker *w = argument;
    gw_tensor tensor = {.name = "weights", .id = 0, .n_elems = ELEMENTS};
    gw_exchange_options options = {.struct_bytes = sizeof options,
                                   .codec = w->codec,
                                   .tensors = &tensor,
                                   .n_tensors = 1,
                                   .link = w->link,
                                   .seed = 1};
    gw_exchange *exchange;
    w->status = gw_exchange_create(w->context, &options, &exchange);
    for (unsigned step = 0; step < STEPS && w->status == GW_OK; step++) {
        gw_step_result result = {0};
        for (unsigned i = 0; i < ELEMENTS; i++) /* backward would do this */
            w->gradient[i] = value(w->link.rank, i);
        w->status = gw_exchange_begin(exchange, step);
        if (w->status == GW_OK)
            w->status = gw_exchange_submit(exchange, 0, w->gradient);
        if (w->status == GW_OK)
            w->status = gw_exchange_wait(exchange, &result);
        for (unsigned i = 0; i < ELEMENTS && w->status == GW_OK; i++) /* an optimizer would do this */
            w->sum[i] += w->gradient[i];
        w->bytes_up += result.bytes_up;
        w->dense_bytes += result.dense_bytes;
    }
    if (w->status < 0) /* each thread has a sentence of its own */
        fprintf(stderr, "rank %u: %s\n", w->link.rank, gw_last_error());
    gw_exchange_destroy(exchange);
    return NULL;
}

int main(void)
{
    static struct worker workers[WORKERS];
    gw_context *context;
    gw_codec *codec;
    gw_link links[WORKERS];
    pthread_t threads[WORKERS];
    if (gw_context_create(NULL, &context) < 0 || gw_codec_parse(context, "ternary", &codec) < 0 ||
        gw_link_local_create(context, WORKERS, links) < 0) {
        fprintf(stderr, "%s\n", gw_last_error());
        return 1;
    }
    for (int r = 0; r < WORKERS; r++) {
        workers[r].context = context;
        workers[r].codec = codec;
        workers[r].link = links[r];
        if (pthread_create(&threads[r], NULL, work, &workers[r]))
            return 1;
    }
    bool failed = false, same = true;
    double worst = 0;
    for (int r = 0; r < WORKERS; r++) {
        pthread_join(threads[r], NULL);
        failed = failed || workers[r].status < 0;
    }
    for (unsigned i = 0; i < ELEMENTS; i++) {
        double average = 0;
        for (unsigned r = 0; r < WORKERS; r++) {
            average += value(r, i) / WORKERS;
            same = same && workers[r].sum[i] == workers[0].sum[i];
        }
        worst = fmax(worst, fabs(workers[0].sum[i] / STEPS - average));
    }
    printf("%d steps of %d elements: %.1f times fewer bytes up than float32, all members equal: %s, largest error of "
           "the mean %.2f\n",
           STEPS, ELEMENTS, (double)workers[0].dense_bytes / (double)workers[0].bytes_up, same ? "yes" : "no", worst);
    for (int r = 0; r < WORKERS; r++)
        gw_link_destroy(&links[r]);
    gw_codec_destroy(codec);
    gw_context_destroy(context);
    return failed || !same || worst > 0.5;
}
