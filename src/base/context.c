/* Creates and destroys contexts, and tells the library's version. */
#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

const char *gw_version(void)
{
#define GW_TEXT(x) #x
#define GW_DOTTED(a, b, c) GW_TEXT(a) "." GW_TEXT(b) "." GW_TEXT(c)
    return GW_DOTTED(GW_VERSION_MAJOR, GW_VERSION_MINOR, GW_VERSION_PATCH);
}

gw_status gw_context_create(const gw_context_options *options, gw_context **out)
{
    if (!out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_context_create: out is NULL");
    *out = NULL;
    gw_context_options o = {.n_threads = 0};
    if (options)
        GW_TRY(GW_TAKE_OPTIONS(gw_context_options, options, &o));
    uint32_t n_threads = o.n_threads ? o.n_threads : 1;
    if (n_threads > 256)
        return gw_fail(GW_ERR_ARGUMENT, "%u codec threads asked for; at most 256", n_threads);
    gw_context boot = {.allocator = {NULL, NULL, NULL}};
    if (o.allocator) {
        if (!o.allocator->alloc || !o.allocator->free)
            return gw_fail(GW_ERR_ARGUMENT, "an allocator needs both alloc and free");
        boot.allocator = *o.allocator;
    }
    gw_context *context = gw_alloc(&boot, 1, sizeof *context);
    if (!context)
        return GW_ERR_MEMORY;
    *context = boot;
    context->made_in = gw_process_now();
    pthread_mutex_init(&context->scratch.lock, NULL);
    if (n_threads > 1) {
        gw_status status = gw_pool_create(context, n_threads, &context->pool);
        if (status < 0) {
            gw_context_destroy(context);
            return status;
        }
    }
    *out = context;
    return GW_OK;
}

void gw_context_destroy(gw_context *context)
{
    if (!context || !gw_process_is(context->made_in))
        return;
    gw_pool_destroy(context, context->pool);
    gw_scratch_clear(context);
    pthread_mutex_destroy(&context->scratch.lock);
    gw_context last = *context; /* the allocator must outlive the memory in which it stands */
    gw_free(&last, context);
}
