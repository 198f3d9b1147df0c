/* Functions of the client that an exchange through servers needs, besides those of gradwire/pserver.h. */
#ifndef GW_PSERVER_CLIENT_CLIENT_H
#define GW_PSERVER_CLIENT_CLIENT_H

#include <gradwire/pserver.h>

/* Takes in the answers that have come. If there are none, it waits for one until `deadline` (gw_clock_seconds), or
 * until `fd` can be read. */
gw_status gw_ps_client_pump(gw_ps_client *client, int fd, double deadline);

/* True if gw_ps_wait for that ticket would return at once. */
bool gw_ps_client_has(const gw_ps_client *client, uint64_t ticket);

/* Gives up a ticket that was not waited for. Then its bytes may be freed. If there is no such ticket, it does nothing.
 */
void gw_ps_client_drop(gw_ps_client *client, uint64_t ticket);

uint32_t gw_ps_client_rank(const gw_ps_client *client);
uint32_t gw_ps_client_servers(const gw_ps_client *client);

/* The address HOST:PORT of server number `server`, from 0. */
const char *gw_ps_client_place(const gw_ps_client *client, uint32_t server);

/* How many backup workers the servers have: a round does not wait for that many. If servers differ, the largest number.
 */
uint32_t gw_ps_client_backup(const gw_ps_client *client);

/* Tells a server what must be the same on all workers, as lines "name = value". Errors: GW_ERR_ARGUMENT (another worker
 * said otherwise: both values are in the sentence), GW_ERR_TIMEOUT (the server does not know in time whether the run
 * before is over), and as gw_ps_init_parameter. */
gw_status gw_ps_agree_on(gw_ps_client *client, uint32_t server, const char *lines);

/* As gw_ps_init_parameter, but the key lives on one server (0 .. servers-1), whatever its name and size. Pushes and
 * pulls go there. codec: a specification; averages of frames follow its options. optimizer: as in gw_ps_init_optimized;
 * "": none. */
gw_status gw_ps_init_on(gw_ps_client *client, uint32_t server, const char *key, gw_ps_type type,
                        const gw_ps_shape *shape, const char *codec, const char *optimizer);

/* Pulls the parameters of a key with an optimizer as they are now, whatever this worker has pushed or refused. */
gw_status gw_ps_pull_now_begin(gw_ps_client *client, const char *key, uint64_t *ticket);

/* Begins the next push to an exchange's key with an optimizer. It counts only when gw_ps_judge_begin says so. */
gw_status gw_ps_push_pending_begin(gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes,
                                   uint64_t *ticket);

/* Gives the verdict on pending pushes. It is about all keys of the exchange on the server of `key`, and about the
 * pushes with the same number as the last push to `key`. The worker must have pushed or refused as often to each of
 * these keys. refusal GW_PS_NO_REFUSAL: the pushes count. Else they are refused with that number. */
#define GW_PS_NO_REFUSAL UINT64_MAX
gw_status gw_ps_judge_begin(gw_ps_client *client, const char *key, uint64_t refusal, uint64_t *ticket);

/* Takes the place of the key's next push: this worker has no value that can be used. `number` says why. A pull over
 * this round fails with GW_ERR_NONFINITE. Then gw_ps_refusal is the least such number of all workers. */
gw_status gw_ps_refuse_begin(gw_ps_client *client, const char *key, uint64_t number, uint64_t *ticket);
uint64_t gw_ps_refusal(const gw_ps_client *client);

#endif
