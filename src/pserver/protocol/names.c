/* Finds things by their names, in a hash table that grows. */
#include "pserver/protocol/names.h"
#include "base/error.h"
#include "base/memory.h"
#include "wire/hash.h"

#include <string.h>

#define FIRST 16
#define SLOTS_EACH 4 /* so at most a quarter of the slots is taken */

static const char *name_of(const void *thing)
{
    return *(const char *const *)thing;
}

static void **slot_of(const struct gw_ps_names *names, const char *name)
{
    const uint64_t last = SLOTS_EACH * names->capacity - 1;
    uint64_t slot = gw_hash_now()->whole(name, strlen(name), 0) & last;
    while (names->slots[slot] && strcmp(name_of(names->slots[slot]), name) != 0)
        slot = (slot + 1) & last;
    return &names->slots[slot];
}

void *gw_ps_names_find(const struct gw_ps_names *names, const char *name)
{
    return names->capacity ? *slot_of(names, name) : NULL;
}

void gw_ps_names_refresh(struct gw_ps_names *names)
{
    if (names->capacity)
        memset(names->slots, 0, SLOTS_EACH * names->capacity * sizeof *names->slots);
    for (uint64_t i = 0; i < names->n; i++)
        *slot_of(names, name_of(names->all[i])) = names->all[i];
}

static gw_status grow(struct gw_ps_names *names)
{
    const uint64_t capacity = names->capacity ? 2 * names->capacity : FIRST;
    void **all = gw_alloc(names->context, (1 + SLOTS_EACH) * capacity, sizeof *all);
    if (!all)
        return GW_ERR_MEMORY;
    if (names->n)
        memcpy(all, names->all, names->n * sizeof *all);
    gw_ps_names_fini(names);
    *names = (struct gw_ps_names){names->context, all, names->n, capacity, all + capacity};
    gw_ps_names_refresh(names);
    return GW_OK;
}

gw_status gw_ps_names_add(struct gw_ps_names *names, void *thing)
{
    if (names->n == names->capacity)
        GW_TRY(grow(names));
    *slot_of(names, name_of(thing)) = names->all[names->n++] = thing;
    return GW_OK;
}

void gw_ps_names_fini(struct gw_ps_names *names)
{
    gw_free(names->context, names->all);
}
