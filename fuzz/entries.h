/* What the fuzzers run, also called on the kept corpus in normal builds. `data` is a mode byte (see entries.c) and frames.
 * Each returns 0 and aborts where the library breaks a promise. */
#ifndef GW_FUZZ_ENTRIES_H
#define GW_FUZZ_ENTRIES_H

#include <stddef.h>
#include <stdint.h>

int gw_fuzz_decode(const uint8_t *data, size_t size);  /* mode, frame */
int gw_fuzz_inspect(const uint8_t *data, size_t size); /* mode, frame */
int gw_fuzz_join(const uint8_t *data, size_t size);    /* mode, a message of the tcp link's meeting */
int gw_fuzz_pserver(const uint8_t *data, size_t size); /* mode, a head of the parameter server: a request, or where mode is even an answer */
int gw_fuzz_records(const uint8_t *data, size_t size); /* mode, a journal of the parameter server, or where mode is even a snapshot */
int gw_fuzz_reduce(const uint8_t *data, size_t size);  /* mode, then frames, each after its length in two bytes */

#endif
