/* Passes a callee's error on to the caller. gw_fail() of status.h makes an error. */
#ifndef GW_BASE_ERROR_H
#define GW_BASE_ERROR_H

#include <gradwire/status.h>

#include <stdio.h>

/* Forwards an error of a callee. The sentence stays the callee's. */
#define GW_TRY(call)                                                                                                   \
    do {                                                                                                               \
        gw_status gw_try_status_ = (call);                                                                             \
        if (gw_try_status_ < 0)                                                                                        \
            return gw_try_status_;                                                                                     \
    } while (0)

/* Says that a call cannot fail here, or that its failure changes nothing. */
static inline void gw_ignore(gw_status status)
{
    (void)status;
}

/* the longest sentence of gw_last_error(), with a closing 0; a longer one loses its middle */
#define GW_ERROR_BYTES 512

/* Makes gw_last_error() "", for a call of a function that may fail without a sentence. */
void gw_error_clear(void);

/* The sentence of gw_last_error(), kept while calls are made that have errors of their own. Functions that destroy
 * something do so: who calls them after a failure still wants to say why. */
struct gw_kept_error {
    char sentence[GW_ERROR_BYTES];
};

static inline struct gw_kept_error gw_error_keep(void)
{
    struct gw_kept_error kept;
    snprintf(kept.sentence, sizeof kept.sentence, "%s", gw_last_error());
    return kept;
}

static inline void gw_error_put_back(const struct gw_kept_error *kept)
{
    gw_fail(GW_OK, "%s", kept->sentence);
}

#endif
