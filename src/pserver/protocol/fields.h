/* Goes through the fields of a head one after the other, little-endian. The same call writes a field or reads it, so
 * there is one list of fields for both. */
#ifndef GW_PSERVER_PROTOCOL_FIELDS_H
#define GW_PSERVER_PROTOCOL_FIELDS_H

#include "wire/bytes.h"

#include <gradwire/pserver.h>

/* It moves forward through the bytes. If a reader comes to the end too early, `good` becomes false, and all fields are
 * zero from then on. Whoever makes a writer knows that there is room enough. */
struct gw_fields {
    uint8_t *at, *end; /* end: a reader's; it does not change the bytes */
    bool writes, good;
};

static inline struct gw_fields gw_fields_to(uint8_t *bytes)
{
    return (struct gw_fields){.at = bytes, .writes = true, .good = true};
}

static inline struct gw_fields gw_fields_from(const void *bytes, size_t n_bytes)
{
    uint8_t *at = (uint8_t *)(uintptr_t)bytes;
    return (struct gw_fields){.at = at, .end = at + n_bytes, .good = true};
}

/* True if all has been read. */
static inline bool gw_fields_end(const struct gw_fields *f)
{
    return f->good && f->at == f->end;
}

static inline void gw_field_bytes(struct gw_fields *f, void *x, size_t n)
{
    if (f->writes)
        memcpy(f->at, x, n);
    f->good = f->good && (f->writes || (size_t)(f->end - f->at) >= n);
    if (!f->writes && f->good)
        memcpy(x, f->at, n);
    else if (!f->writes)
        memset(x, 0, n);
    f->at += f->writes || f->good ? n : 0;
}

/* Numbers: a machine is little-endian, as wire/bytes.h demands. */
#define NUMBER(name, type)                                                                                             \
    static inline void name(struct gw_fields *f, type *x)                                                              \
    {                                                                                                                  \
        gw_field_bytes(f, x, sizeof *x);                                                                               \
    }
NUMBER(gw_field_u8, uint8_t)
NUMBER(gw_field_u32, uint32_t)
NUMBER(gw_field_u64, uint64_t)
NUMBER(gw_field_double, double)
#undef NUMBER

/* A byte that is 0 or not. */
static inline void gw_field_flag(struct gw_fields *f, bool *x)
{
    uint8_t byte = f->writes && *x; /* what is read may be anything before */
    gw_field_u8(f, &byte);
    *x = byte;
}

/* A name of at most GW_PS_MOST_NAME bytes: its length in one byte, then its bytes. A reader needs room for all of them
 * and the closing 0. */
static inline void gw_field_name(struct gw_fields *f, char *name)
{
    uint8_t length = f->writes ? (uint8_t)strlen(name) : 0;
    gw_field_u8(f, &length);
    gw_field_bytes(f, name, length);
    if (f->writes)
        return;
    f->good = f->good && !memchr(name, 0, length);
    name[f->good ? length : 0] = 0;
}

static inline void gw_field_shape(struct gw_fields *f, gw_ps_shape *shape)
{
    uint8_t n_dims = f->writes ? (uint8_t)shape->n_dims : 0;
    gw_field_u8(f, &n_dims);
    f->good = f->good && n_dims <= GW_PS_MOST_DIMS;
    if (!f->writes)
        shape->n_dims = n_dims;
    for (uint32_t d = 0; f->good && d < n_dims; d++)
        gw_field_u64(f, &shape->dims[d]);
}

#endif
