/* Writes and reads the fields of a head one after the other, little-endian. */
#ifndef GW_PSERVER_PROTOCOL_FIELDS_H
#define GW_PSERVER_PROTOCOL_FIELDS_H

#include "wire/bytes.h"

#include <gradwire/pserver.h>

/* A writer and a reader move forward through the bytes. If a reader comes to the end too early, `good` becomes false,
 * and it gives zeros from then on. */
struct gw_ps_writer {
    uint8_t *at;
};

struct gw_ps_reader {
    const uint8_t *at, *end;
    bool good;
};

static inline void gw_ps_put8(struct gw_ps_writer *w, uint8_t x)
{
    *w->at++ = x;
}

static inline void gw_ps_put32(struct gw_ps_writer *w, uint32_t x)
{
    gw_put32(w->at, x);
    w->at += 4;
}

static inline void gw_ps_put64(struct gw_ps_writer *w, uint64_t x)
{
    gw_put64(w->at, x);
    w->at += 8;
}

static inline void gw_ps_put_double(struct gw_ps_writer *w, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    gw_ps_put64(w, bits);
}

/* Writes a name of at most GW_PS_MOST_NAME bytes: its length in one byte, then its bytes. */
static inline void gw_ps_put_name(struct gw_ps_writer *w, const char *name)
{
    size_t length = strlen(name);
    gw_ps_put8(w, (uint8_t)length);
    memcpy(w->at, name, length);
    w->at += length;
}

static inline void gw_ps_put_shape(struct gw_ps_writer *w, const gw_ps_shape *shape)
{
    gw_ps_put8(w, (uint8_t)shape->n_dims);
    for (uint32_t d = 0; d < shape->n_dims; d++)
        gw_ps_put64(w, shape->dims[d]);
}

static inline const uint8_t *gw_ps_take(struct gw_ps_reader *r, size_t n)
{
    static const uint8_t nothing[8];
    r->good = r->good && (size_t)(r->end - r->at) >= n;
    if (!r->good)
        return nothing;
    r->at += n;
    return r->at - n;
}

static inline uint8_t gw_ps_get8(struct gw_ps_reader *r)
{
    return *gw_ps_take(r, 1);
}

static inline uint32_t gw_ps_get32(struct gw_ps_reader *r)
{
    return gw_get32(gw_ps_take(r, 4));
}

static inline uint64_t gw_ps_get64(struct gw_ps_reader *r)
{
    return gw_get64(gw_ps_take(r, 8));
}

static inline double gw_ps_get_double(struct gw_ps_reader *r)
{
    const uint64_t bits = gw_ps_get64(r);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void gw_ps_get_name(struct gw_ps_reader *r, char name[GW_PS_MOST_NAME + 1])
{
    size_t length = gw_ps_get8(r);
    const uint8_t *bytes = gw_ps_take(r, length);
    r->good = r->good && !memchr(bytes, 0, length);
    if (r->good)
        memcpy(name, bytes, length);
    name[r->good ? length : 0] = 0;
}

static inline void gw_ps_get_shape(struct gw_ps_reader *r, gw_ps_shape *shape)
{
    shape->n_dims = gw_ps_get8(r);
    r->good = r->good && shape->n_dims <= GW_PS_MOST_DIMS;
    for (uint32_t d = 0; r->good && d < shape->n_dims; d++)
        shape->dims[d] = gw_ps_get64(r);
}

#endif
