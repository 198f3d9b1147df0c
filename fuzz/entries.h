/* What the fuzzers run; normal builds run it on the kept corpus too. `data` is a mode byte (see entries.c) and frames.
 * Each function returns 0, and aborts if the library breaks a promise. */
#ifndef GW_FUZZ_ENTRIES_H
#define GW_FUZZ_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int gw_fuzz_client(const uint8_t *data, size_t size);  /* mode, calls of a client and what servers answer to them */
int gw_fuzz_decode(const uint8_t *data, size_t size);  /* mode, frame */
int gw_fuzz_inspect(const uint8_t *data, size_t size); /* mode, frame */
int gw_fuzz_join(const uint8_t *data, size_t size);    /* mode, what a stranger sends to the tcp link */
/* mode, then a head of the parameter server: a request, or an answer if mode is even */
int gw_fuzz_pserver(const uint8_t *data, size_t size);
/* True if that is a valid head. Some heads of the corpus must be valid; this shows that the corpus follows the
 * protocol. */
bool gw_fuzz_pserver_is_good(const uint8_t *data, size_t size);
int gw_fuzz_reduce(const uint8_t *data, size_t size); /* mode, then frames, each after its length in two bytes */

#endif
