/* Reads IDX files, MNIST's format: big-endian magic 0x0000TTRR (type, rank), one 32-bit length a dimension, then
 * bytes. Type 8 is unsigned byte; images have rank 3, labels rank 1. */
#include "base/error.h"
#include "data/data.h"

#include <string.h>

#define MAX_FILE_BYTES ((size_t)4 << 30)
#define MAX_SIDE 4096u

static uint32_t big_endian32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Reads a file, checks magic and length, and gives the dimensions. *bytes still starts with the header then. */
static gw_status read_idx(const char *folder, const char *name, unsigned rank, char *path, size_t path_capacity,
                          uint8_t **bytes, uint32_t dims[3])
{
    size_t n_bytes, header = 4 + 4 * (size_t)rank;
    GW_TRY(gw_data_file(folder, name, MAX_FILE_BYTES,
                        "the folder must hold the data set's files under their original names, or use "
                        "--data digits, which needs no files",
                        path, path_capacity, bytes, &n_bytes));
    if (n_bytes < header)
        return gw_fail(GW_ERR_SYSTEM, "%s is cut short: %zu bytes, and the header alone takes %zu", path, n_bytes,
                       header);
    uint32_t magic = big_endian32(*bytes), right = 0x0800u | rank;
    if (magic != right)
        return gw_fail(GW_ERR_SYSTEM, "%s starts with 0x%08x, and an IDX file of %s starts with 0x%08x", path, magic,
                       rank == 3 ? "images" : "labels", right);
    uint64_t elements = 1;
    for (unsigned i = 0; i < rank; i++) {
        dims[i] = big_endian32(*bytes + 4 + 4 * i);
        if (dims[i] == 0 || (i > 0 && dims[i] > MAX_SIDE))
            return gw_fail(GW_ERR_SYSTEM, "%s claims a dimension of %u; samples must be 1 or more, and sides 1 to %u",
                           path, dims[i], MAX_SIDE);
        elements *= dims[i]; /* at most 2^32 * 2^24 */
    }
    if (n_bytes - header == elements)
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM, "%s is %s: its header claims %llu bytes of data, and %zu follow", path,
                   n_bytes - header < elements ? "cut short" : "too long", (unsigned long long)elements,
                   n_bytes - header);
}

gw_status gw_data_idx(const char *folder, const char *images, const char *labels, uint32_t classes,
                      struct gw_samples *samples, uint32_t *height, uint32_t *width)
{
    char image_path[4096], label_path[4096];
    uint32_t image_dims[3] = {0}, label_dims[3] = {0};
    *samples = (struct gw_samples){0};
    gw_status status = read_idx(folder, images, 3, image_path, sizeof image_path, &samples->pixels, image_dims);
    if (status == GW_OK)
        status = read_idx(folder, labels, 1, label_path, sizeof label_path, &samples->labels, label_dims);
    if (status == GW_OK && image_dims[0] != label_dims[0])
        status = gw_fail(GW_ERR_SYSTEM, "%s holds %u labels, and %s %u images; the two files do not belong together",
                         label_path, label_dims[0], image_path, image_dims[0]);
    for (uint32_t i = 0; status == GW_OK && i < label_dims[0]; i++) {
        uint8_t label = samples->labels[8 + i];
        if (label >= classes)
            status = gw_fail(GW_ERR_SYSTEM, "%s: label %u of sample %u is out of range; labels must be 0 to %u",
                             label_path, label, i, classes - 1);
    }
    if (status != GW_OK) {
        gw_samples_free(samples);
        return status;
    }
    samples->n = image_dims[0];
    *height = image_dims[1], *width = image_dims[2];
    memmove(samples->pixels, samples->pixels + 16, (size_t)samples->n * *height * *width);
    memmove(samples->labels, samples->labels + 8, samples->n);
    return GW_OK;
}
