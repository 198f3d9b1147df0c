/* What an exchange through servers needs of the client beyond gradwire/pserver.h. */
#ifndef GW_PSERVER_CLIENT_CLIENT_H
#define GW_PSERVER_CLIENT_CLIENT_H

#include <gradwire/pserver.h>

/* Takes in what has come, and if nothing has, waits for something until `deadline` (gw_clock_seconds), or until `fd`
 * can be read. */
gw_status gw_ps_client_pump(gw_ps_client *client, int fd, double deadline);

/* Whether gw_ps_wait would not wait for that ticket. */
bool gw_ps_client_has(const gw_ps_client *client, uint64_t ticket);

/* Gives a ticket up that was not waited for: its bytes may be freed then. One that is not there: nothing. */
void gw_ps_client_drop(gw_ps_client *client, uint64_t ticket);

uint32_t gw_ps_client_rank(const gw_ps_client *client);
uint32_t gw_ps_client_servers(const gw_ps_client *client);

/* Where the nth of them is, HOST:PORT. */
const char *gw_ps_client_place(const gw_ps_client *client, uint32_t server);

/* How many workers a round does not wait for, the most of any server. */
uint32_t gw_ps_client_backup(const gw_ps_client *client);

/* Tells a server what must be the same on all workers, as lines "name = value". Errors: GW_ERR_ARGUMENT (another worker
 * said otherwise: both values are in the sentence), GW_ERR_TIMEOUT (the server does not know in time whether the run
 * before is over), and as gw_ps_init_parameter. */
gw_status gw_ps_agree_on(gw_ps_client *client, uint32_t server, const char *lines);

/* As gw_ps_init_parameter, of a key that lives on one server (0 .. servers-1) whatever its name and size; averages of
 * frames get the options of the codec specification; optimizer: as gw_ps_init_optimized, "": none. Pushes and pulls
 * then go there. */
gw_status gw_ps_init_on(gw_ps_client *client, uint32_t server, const char *key, gw_ps_type type,
                        const gw_ps_shape *shape, const char *codec, const char *optimizer);

/* Pulls the parameters of a key with an optimizer as they are now, whatever this worker has pushed or refused. */
gw_status gw_ps_pull_now_begin(gw_ps_client *client, const char *key, uint64_t *ticket);

/* The key's next push, of an exchange's key with an optimizer. It counts only once gw_ps_judge_begin says so. */
gw_status gw_ps_push_pending_begin(gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes,
                                   uint64_t *ticket);

/* The verdict on such pushes to the server of that key: on all whose number is that of the last push to it. Every key
 * of the exchange there must have been pushed to as often, or refused. refusal GW_PS_NO_REFUSAL: they count; else they
 * are refused with that number. */
#define GW_PS_NO_REFUSAL UINT64_MAX
gw_status gw_ps_judge_begin(gw_ps_client *client, const char *key, uint64_t refusal, uint64_t *ticket);

/* In place of the key's next push: this worker has no value that can be used, and why, as a number. A pull over such a
 * round fails with GW_ERR_NONFINITE; gw_ps_refusal() is then the least such number of all workers. */
gw_status gw_ps_refuse_begin(gw_ps_client *client, const char *key, uint64_t number, uint64_t *ticket);
uint64_t gw_ps_refusal(const gw_ps_client *client);

#endif
