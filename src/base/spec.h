/* Reads the options of a specification: key=value,key=value. Codecs, optimizers, drawn data and transforms of pictures
 * share this grammar. Each of them decides itself which values are legal. */
#ifndef GW_BASE_SPEC_H
#define GW_BASE_SPEC_H

#include <gradwire/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gw_spec {
    const char *what;        /* whose options these are, for sentences: "ternary", "the optimizer adam" */
    const char *const *keys; /* n_keys of them, 64 at most */
    size_t n_keys;
    bool has_words; /* a key may stand alone, without a value */
    char between;   /* what separates options; 0: a comma */
    /* Takes the value of keys[key]; NULL if the key stands alone. It fails with a sentence of its own if the value is
     * not legal. Numbers have a decimal point while it runs, whatever the host's locale writes. */
    gw_status (*take)(void *user, size_t key, const char *value);
    void *user;
};

/* Reads `text` (NULL or "": no options). GW_ERR_SPEC: an option is empty, too long, unknown or given twice, or has no
 * value; or what `take` returned. */
gw_status gw_spec_parse(const struct gw_spec *spec, const char *text);

/* All of `text` as a decimal number from min to max. False: it is none; *out is unchanged then. */
bool gw_spec_number(const char *text, double min, double max, double *out);

/* The same for whole numbers in decimal digits. */
bool gw_spec_count(const char *text, double min, double max, uint64_t *out);

/* From enter to leave, this thread reads and writes numbers with a decimal point. `before`: gw_plain_enter's. */
struct gw_plain {
    void *plain, *host;
};
struct gw_plain gw_plain_enter(void);
void gw_plain_leave(struct gw_plain before);

#endif
