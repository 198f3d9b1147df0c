/* Finds the word of a list that somebody most likely meant by a word that is not in it. */
#include "base/nearest.h"

#include <limits.h>
#include <string.h>

unsigned gw_edit_distance(const char *a, const char *b)
{
    const size_t la = strlen(a), lb = strlen(b);
    if (la > GW_LONGEST_WORD || lb > GW_LONGEST_WORD)
        return UINT_MAX;
    /* d[i % 3][j] is how many edits turn the first i letters of a into the first j letters of b. A swap looks two rows
     * back. */
    unsigned d[3][GW_LONGEST_WORD + 1];
    for (size_t j = 0; j <= lb; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        unsigned *row = d[i % 3], *above = d[(i + 2) % 3], *two_above = d[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two_above[j - 2] + 1 < best)
                best = two_above[j - 2] + 1;
            row[j] = best;
        }
    }
    return d[la % 3][lb];
}

const char *gw_nearest(const char *word, const char *const *words, size_t n_words, const struct gw_synonym *synonyms)
{
    for (; synonyms && synonyms->said; synonyms++)
        for (size_t i = 0; i < n_words; i++)
            if (strcmp(synonyms->said, word) == 0 && strcmp(synonyms->meant, words[i]) == 0)
                return words[i];
    const char *nearest = NULL;
    unsigned least = 1 + (unsigned)(strlen(word) / 3);
    for (size_t i = 0; i < n_words; i++) {
        unsigned distance = gw_edit_distance(word, words[i]);
        if (distance <= least && (!nearest || distance < least)) {
            nearest = words[i];
            least = distance;
        }
    }
    return nearest;
}
