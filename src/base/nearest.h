/* The nearest of a few words, for sentences that end in "did you mean ...?". */
#ifndef GW_BASE_NEAREST_H
#define GW_BASE_NEAREST_H

#include <stddef.h>

#define GW_LONGEST_WORD 255

/* Edits (insert, delete or replace a letter, swap two neighbours) that turn a into b. UINT_MAX if one of them is longer
 * than GW_LONGEST_WORD: such words are near to none. */
unsigned gw_edit_distance(const char *a, const char *b);

/* A word that people say, and the one that they mean by it. */
struct gw_synonym {
    const char *said, *meant;
};

/* The word of the list that a synonym means, if it is in the list; else the one that the fewest edits turn `word` into,
 * if these are few for its length; NULL: none is near. `synonyms` ends with {NULL, NULL}; NULL: there are none. */
const char *gw_nearest(const char *word, const char *const *words, size_t n_words, const struct gw_synonym *synonyms);

#endif
