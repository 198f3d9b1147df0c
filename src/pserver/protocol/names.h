/* A table of names. Each name gets a number, counted from 0 in the order in which the names came. */
#ifndef GW_PSERVER_PROTOCOL_NAMES_H
#define GW_PSERVER_PROTOCOL_NAMES_H

#include <gradwire/context.h>
#include <gradwire/status.h>

#include <stdint.h>

#define GW_PS_NO_NAME UINT64_MAX

struct gw_ps_names {
    gw_context *context;
    char **names; /* the names, by number */
    uint64_t n, capacity;
    uint64_t *slots; /* a hash table with open addressing: number + 1; 0: the slot is free */
    uint64_t n_slots;
};

/* Frees the table. A table is empty if all but `context` is zero. */
void gw_ps_names_fini(struct gw_ps_names *names);

/* The name's number, or GW_PS_NO_NAME. */
uint64_t gw_ps_names_find(const struct gw_ps_names *names, const char *name);

/* Adds a copy of a name that is not in the table. Its number is then names->n - 1. GW_ERR_MEMORY: nothing has changed.
 */
gw_status gw_ps_names_add(struct gw_ps_names *names, const char *name);

#endif
