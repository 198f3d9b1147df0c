/* Declares the only functions that take memory. They check sizes for overflow. */
#ifndef GW_BASE_MEMORY_H
#define GW_BASE_MEMORY_H

#include <gradwire/context.h>

/* count * size bytes, aligned to 64, not cleared (gw_alloc) or zero (gw_calloc). NULL if there is none or the
 * product overflows; the sentence for gw_last_error() is set then. 0 bytes give a valid pointer. context NULL: malloc
 * and free. */
void *gw_alloc(gw_context *context, size_t count, size_t size);
void *gw_calloc(gw_context *context, size_t count, size_t size);
void gw_free(gw_context *context, void *memory);
/* How many bytes of memory this machine has, as far as that is known. */
uint64_t gw_machine_bytes(void);

char *gw_strdup(gw_context *context, const char *text);

#endif
