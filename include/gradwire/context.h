/* The context: where memory comes from, how many threads codecs use, and which kernels run.
 *
 * Almost every object is created from a context and must be destroyed before it. */
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

/* "0.1.0". Static storage. Any thread. */
GW_API const char *gw_version(void);

/* Where the library takes memory. `alloc` returns memory aligned for any C object, or NULL
 * when there is none; `free` accepts what `alloc` returned, and NULL. Both may be called from any
 * thread at any time. */
typedef struct gw_allocator {
    void *(*alloc)(size_t bytes, void *user);
    void (*free)(void *memory, void *user);
    void *user;
} gw_allocator;

typedef struct gw_context_options {
    size_t struct_bytes;           /* sizeof(gw_context_options), set by the caller */
    const gw_allocator *allocator; /* copied; NULL: malloc and free */
    uint32_t n_threads;            /* codec threads, 0 or 1: the calling thread alone; at most 256 */
} gw_context_options;

/* Any function that takes a context takes NULL in its place: then memory comes from malloc, and codecs work on the
 * calling thread alone, as in a context of all defaults. Results are the same.
 *
 * Safe to share between threads. Calls that find the codec threads busy run on the calling thread
 * alone; results never depend on that. */
typedef struct gw_context gw_context;

/* Creates a context. options NULL: all defaults.
 * Errors: GW_ERR_ARGUMENT, GW_ERR_MEMORY, GW_ERR_SYSTEM (a thread could not be started). */
GW_API gw_status gw_context_create(const gw_context_options *options, gw_context **out);

/* Destroys a context after everything that was created from it. NULL is allowed. */
GW_API void gw_context_destroy(gw_context *context);

/* The instruction set that kernels use in this process: "scalar", "avx2", "avx512" or "neon".
 * Chosen once: the best the processor has, capped by the environment variable GRADWIRE_CPU
 * (scalar|avx2|avx512|neon). A cap above what this processor has leaves its best; any other word means
 * "scalar". Any thread. */
GW_API const char *gw_cpu_level(void);

#ifdef __cplusplus
}
#endif
#endif
