/* TensorBoard event files: TFRecord framing around a few fields of its Event message. */
#ifndef GW_TRAIN_TENSORBOARD_H
#define GW_TRAIN_TENSORBOARD_H

#include "disk/histograms.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* CRC-32C (Castagnoli), as TFRecord uses it. */
uint32_t gw_crc32c(const void *bytes, size_t n_bytes);

/* Writes the first record of a file. Write errors stay in the stream's error mark. */
void gw_tensorboard_begin(FILE *file, double wall_time);

/* Reads an event file from its start, and returns where its whole records of steps before `step` end; 0 if there are
 * none. *next: the step after the last of them. */
long gw_tensorboard_end_before(FILE *file, uint64_t step, uint64_t *next);

void gw_tensorboard_scalar(FILE *file, double wall_time, uint64_t step, const char *tag, float value);

/* Writes a histogram with the tag gradient/TENSOR/KIND. It writes nothing if the histogram is empty. */
void gw_tensorboard_histogram(FILE *file, double wall_time, uint64_t step, const char *tensor, const char *kind,
                              const struct gw_histogram *histogram);

#endif
