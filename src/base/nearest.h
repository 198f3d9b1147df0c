/* Finds the nearest of a few words, for sentences that end in "did you mean ...?". */
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

/* If `word` is a synonym of a word in the list, returns that. Else returns the word of the list to which the fewest
 * edits lead, if they are few for its length. NULL: no word is near. `synonyms` ends with {NULL, NULL}; NULL: there are
 * none. */
const char *gw_nearest(const char *word, const char *const *words, size_t n_words, const struct gw_synonym *synonyms);

#endif
