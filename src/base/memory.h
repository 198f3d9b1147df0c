/* The only place that takes memory. Sizes are checked for overflow here. */
#ifndef GW_BASE_MEMORY_H
#define GW_BASE_MEMORY_H

#include <gradwire/context.h>

/* count * size bytes, aligned to 64, not cleared (gw_alloc) or zero (gw_calloc). NULL where there is none or the product
 * overflows; the sentence for gw_last_error() is set then. 0 bytes give a valid pointer. context NULL: malloc and free. */
void *gw_alloc(gw_context *context, size_t count, size_t size);
void *gw_calloc(gw_context *context, size_t count, size_t size);
void gw_free(gw_context *context, void *memory);
char *gw_strdup(gw_context *context, const char *text);

#endif
