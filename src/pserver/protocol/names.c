/* Gives each name a number, in a hash table that grows. */
#include "pserver/protocol/names.h"
#include "base/error.h"
#include "base/memory.h"
#include "wire/hash.h"

#include <string.h>

#define FIRST 16

static uint64_t slot_of(const struct gw_ps_names *names, const char *name)
{
    uint64_t slot = gw_hash_now()->whole(name, strlen(name), 0) & (names->n_slots - 1);
    while (names->slots[slot] && strcmp(names->names[names->slots[slot] - 1], name) != 0)
        slot = (slot + 1) & (names->n_slots - 1);
    return slot;
}

uint64_t gw_ps_names_find(const struct gw_ps_names *names, const char *name)
{
    /* a free slot's 0 becomes GW_PS_NO_NAME */
    return names->n_slots ? names->slots[slot_of(names, name)] - 1 : GW_PS_NO_NAME;
}

/* At most a quarter of the slots is taken. */
static gw_status grow(struct gw_ps_names *names)
{
    uint64_t capacity = names->capacity ? 2 * names->capacity : FIRST, n_slots = 4 * capacity;
    char **all = gw_alloc(names->context, capacity, sizeof *all);
    uint64_t *slots = gw_calloc(names->context, n_slots, sizeof *slots);
    if (!all || !slots) {
        gw_free(names->context, all);
        gw_free(names->context, slots);
        return GW_ERR_MEMORY;
    }
    if (names->n)
        memcpy(all, names->names, names->n * sizeof *all);
    gw_free(names->context, names->names);
    gw_free(names->context, names->slots);
    names->names = all;
    names->slots = slots;
    names->capacity = capacity;
    names->n_slots = n_slots;
    for (uint64_t i = 0; i < names->n; i++)
        slots[slot_of(names, all[i])] = i + 1;
    return GW_OK;
}

gw_status gw_ps_names_add(struct gw_ps_names *names, const char *name)
{
    if (names->n == names->capacity)
        GW_TRY(grow(names));
    char *copy = gw_strdup(names->context, name);
    if (!copy)
        return GW_ERR_MEMORY;
    uint64_t slot = slot_of(names, name);
    names->names[names->n] = copy;
    names->slots[slot] = ++names->n;
    return GW_OK;
}

void gw_ps_names_fini(struct gw_ps_names *names)
{
    for (uint64_t i = 0; i < names->n; i++)
        gw_free(names->context, names->names[i]);
    gw_free(names->context, names->names);
    gw_free(names->context, names->slots);
    *names = (struct gw_ps_names){.context = names->context};
}
