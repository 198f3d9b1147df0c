/* Finds the word of a list that somebody most likely meant by a word that is not in it. */
#include "base/nearest.h"

#include <string.h>

#define MAX_WORD 64

/* Edits (insert, delete, replace, swap of neighbours) that turn a into b. Words longer than MAX_WORD are never near. */
static unsigned edit_distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    if (la > MAX_WORD || lb > MAX_WORD)
        return MAX_WORD;
    unsigned d[MAX_WORD + 1][MAX_WORD + 1];
    for (size_t i = 0; i <= la; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= lb; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        for (size_t j = 1; j <= lb; j++) {
            unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[la][lb];
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
        unsigned distance = edit_distance(word, words[i]);
        if (distance <= least && (!nearest || distance < least)) {
            nearest = words[i];
            least = distance;
        }
    }
    return nearest;
}
