/* The keys that a client has initialised: what they are, on which servers they live, and how often it has pushed. */
#ifndef GW_PSERVER_CLIENT_KEYS_H
#define GW_PSERVER_CLIENT_KEYS_H

#include "pserver/client/state.h"

/* Finds a key. *number: its number in the table, or GW_PS_NO_NAME. *place: what is known of it; a key that this client
 * has not initialised has the type 0. */
void gw_ps_key_find(const struct gw_ps_client *client, const char *name, uint64_t *number, struct place *place);

/* Takes the name of a key that is to be made into the table, if it is not there. */
gw_status gw_ps_key_add(struct gw_ps_client *client, const char *name, uint64_t *number);

/* Says where a key of that type and shape will live. */
gw_status gw_ps_key_place(const struct gw_ps_client *client, const char *name, gw_ps_type type,
                          const gw_ps_shape *shape, struct place *place);

/* The servers have made the key: this notes what it is, and how often this client has pushed to it. */
gw_status gw_ps_key_made(struct gw_ps_client *client, const struct ticket *ticket);

/* How many elements of a key are before its part p. */
uint64_t gw_ps_part_begin(const struct place *place, uint32_t p);

/* The shape of a part. If a key has several parts, each is a row. */
gw_ps_shape gw_ps_part_shape(const struct place *place, uint32_t p);

void gw_ps_keys_free(struct gw_ps_client *client);

#endif
