/* The context: where memory comes from, how many threads codecs use, and which kernels run.
 *
 * Almost every object is created from a context and must be destroyed before it.
 *
 * Kernels use the best instruction set that the processor has. The environment variable GRADWIRE_CPU
 * (scalar|avx2|avx512|neon) may name a lower one; any other word means scalar. Results are the same.
 *
 * After a fork, links, exchanges, parameter servers and their clients work only in the process that made them. In
 * another process their calls fail with GW_ERR_ORDER, and what closes or destroys them does nothing. That process makes
 * its own. A context, codecs and encoders may be used there; codecs then work on the calling thread alone. */
#ifndef GRADWIRE_CONTEXT_H
#define GRADWIRE_CONTEXT_H

#include <gradwire/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GW_VERSION_MAJOR 0
#define GW_VERSION_MINOR 1
#define GW_VERSION_PATCH 0

/* The version of the library, for example "0.1.0". Static storage. Any thread may call it. */
GW_API const char *gw_version(void);

/* Where the library takes memory. `alloc` returns memory that is aligned for any C object, or NULL if there is none.
 * `free` accepts what `alloc` returned, and NULL. The library may call both from any thread at any time. */
typedef struct gw_allocator {
    void *(*alloc)(size_t bytes, void *user);
    void (*free)(void *memory, void *user);
    void *user;
} gw_allocator;

typedef struct gw_context_options {
    size_t struct_bytes;           /* sizeof(gw_context_options), set by the caller */
    const gw_allocator *allocator; /* copied; NULL: malloc and free */
    uint32_t n_threads;            /* codec threads, at most 256; 0 or 1: the calling thread alone */
} gw_context_options;

/* The context of an object or a call. Any function that takes a context also takes NULL. NULL means a context of all
 * defaults: memory comes from malloc, and codecs work on the calling thread alone. Results are the same.
 *
 * Threads may share a context. If a call finds the codec threads busy, it runs on the calling thread alone. Results
 * never depend on that. */
typedef struct gw_context gw_context;

/* Creates a context. options: NULL means all defaults. The caller destroys the context. Any thread may call it. Errors:
 * GW_ERR_ARGUMENT, GW_ERR_MEMORY, GW_ERR_SYSTEM (a thread could not be started). */
GW_API GW_MUST_CHECK gw_status gw_context_create(const gw_context_options *options, gw_context **out);

/* Destroys a context. Everything that was created from it must have been destroyed before. NULL is allowed. */
GW_API void gw_context_destroy(gw_context *context);

#ifdef __cplusplus
}
#endif
#endif
