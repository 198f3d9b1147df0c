/* A table of things that have names. Each gets a number, counted from 0 in the order in which they came. */
#ifndef GW_PSERVER_PROTOCOL_NAMES_H
#define GW_PSERVER_PROTOCOL_NAMES_H

#include <gradwire/context.h>
#include <gradwire/status.h>

#include <stdint.h>

/* The things are the caller's. Each begins with a pointer to its name, a `char *`. */
struct gw_ps_names {
    gw_context *context;
    void **all; /* by number */
    uint64_t n, capacity;
    void **slots; /* behind `all`: a hash table with open addressing, of 4 * capacity slots; NULL: the slot is free */
};

/* Frees the table. A table is empty if all but `context` is zero. */
void gw_ps_names_fini(struct gw_ps_names *names);

/* What has that name; NULL: nothing has. */
void *gw_ps_names_find(const struct gw_ps_names *names, const char *name);

/* Adds a thing whose name is not in the table. Its number is then names->n - 1. GW_ERR_MEMORY: nothing has changed. */
gw_status gw_ps_names_add(struct gw_ps_names *names, void *thing);

/* To be called when `all` has lost some of its things, and is packed again. */
void gw_ps_names_refresh(struct gw_ps_names *names);

#endif
