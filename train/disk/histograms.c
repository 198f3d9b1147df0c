/* Counts, writes and finds histograms of gradients. */
#include "disk/histograms.h"
#include "disk/file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const gw_histogram_names[GW_HISTOGRAM_KINDS] = {"raw", "clipped", "sent", "averaged"};

void gw_histogram_count(struct gw_histogram *h, const float *values, uint64_t n)
{
    double least = INFINITY, largest = -INFINITY, sum = 0, squares = 0;
    *h = (struct gw_histogram){0};
    for (uint64_t i = 0; i < n; i++) {
        const double value = (double)values[i];
        least = value < least ? value : least;
        largest = value > largest ? value : largest;
        sum += value;
        squares += value * value;
    }
    if (n == 0 || !isfinite(squares)) /* a NaN or an infinity among the values makes this sum no finite number */
        return;
    h->n = n, h->least = least, h->largest = largest, h->sum = sum, h->squares = squares;
    h->max = fmax(fabs(least), fabs(largest));
    const double scale = h->max > 0 ? GW_HISTOGRAM_BINS / 2 / h->max : 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t bin = (uint32_t)(GW_HISTOGRAM_BINS / 2 + scale * (double)values[i]);
        h->counts[bin < GW_HISTOGRAM_BINS ? bin : GW_HISTOGRAM_BINS - 1]++; /* max itself is in the last bin */
    }
}

bool gw_is_spread(uint64_t i, uint64_t n, uint64_t some)
{
    if (i == 0 || i >= n || some >= n || some < 2)
        return i < n && some > 0 && (i == 0 || some >= n);
    return i * (some - 1) / (n - 1) != (i - 1) * (some - 1) / (n - 1);
}

double gw_histogram_limit(const struct gw_histogram *h, uint32_t bin)
{
    return (h->max > 0 ? h->max : 1) * ((bin + 1.0) / (GW_HISTOGRAM_BINS / 2) - 1);
}

static void write_kind(FILE *file, const char *name, const struct gw_histogram *h)
{
    if (h->n == 0)
        return;
    fprintf(file, ", \"%s\": {\"max\": %.9g, \"counts\": [", name, h->max);
    for (uint32_t bin = 0; bin < GW_HISTOGRAM_BINS; bin++)
        fprintf(file, "%s%llu", bin ? ", " : "", (unsigned long long)h->counts[bin]);
    fputs("]}", file);
}

void gw_histograms_write(FILE *file, const struct gw_histograms *histograms)
{
    for (uint32_t i = 0; i < histograms->n; i++) {
        const struct gw_histogram_row *row = &histograms->rows[i];
        fprintf(file, "{\"step\": %llu, \"tensor\": \"%s\", \"elements\": %llu", (unsigned long long)histograms->step,
                row->tensor, (unsigned long long)row->elements);
        for (int k = 0; k < GW_HISTOGRAM_KINDS; k++)
            write_kind(file, gw_histogram_names[k], &row->kinds[k]);
        fputs("}\n", file);
    }
}

/* The step of a line. False: it has none. */
static bool read_step(const char *text, uint64_t *step)
{
    json_t *line = json_loads(text, 0, NULL);
    const json_t *of = json_object_get(line, "step");
    const bool good = json_is_integer(of) && json_integer_value(of) >= 0;
    *step = good ? (uint64_t)json_integer_value(of) : 0;
    json_decref(line);
    return good;
}

long gw_histograms_end_before(FILE *file, uint64_t step, bool *damaged)
{
    char text[GW_FILE_LINE];
    uint64_t of;
    for (long end = 0;; end += (long)strlen(text)) {
        const bool whole = gw_file_line(file, text), good = whole && read_step(text, &of);
        *damaged = whole ? !good : !feof(file);
        if (!good || of >= step)
            return end;
    }
}
