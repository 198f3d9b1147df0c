/* What the workers of one step make of drawn gradients: a push frame of each, and the average of all. Benchmarks and
 * predictions measure a codec by it. */
#ifndef GRADWIRE_PUSHES_H
#define GRADWIRE_PUSHES_H

#include <gradwire/gradwire.h>
#include <stdint.h>

struct tool_pushes {
    gw_context *context;
    const gw_codec *codec;
    uint32_t n_workers;
    uint64_t n_elems;
    /* the gradient of a worker, which stays until the next call */
    const float *(*gradient_of)(void *user, uint32_t worker);
    void *user;

    /* From here on the functions below set the fields. One encoder serves all workers: no step is committed, so that
     * each worker begins where all began. */
    gw_encoder *encoder;
    uint64_t n_shared;
    float *own, *shared; /* own: a worker's numbers; shared: the maximum over workers */
    void *push;          /* the frame that was encoded last */
    size_t push_capacity, push_bytes;
    void **frames; /* one push of each worker */
    size_t *frame_bytes;
    void *average;
    size_t average_capacity, average_bytes;
};

/* begin: makes the encoder. encode: one worker's push, as the exchange makes it. make: the shared numbers, the frames
 * of all workers, and room for their average. reduce: the average. end frees everything, also after an error. */
gw_status tool_pushes_begin(struct tool_pushes *pushes);
gw_status tool_pushes_encode(struct tool_pushes *pushes, uint32_t worker);
gw_status tool_pushes_make(struct tool_pushes *pushes);
gw_status tool_pushes_reduce(struct tool_pushes *pushes);
void tool_pushes_end(struct tool_pushes *pushes);

#endif
