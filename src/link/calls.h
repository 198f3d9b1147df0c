/* Calls a link's functions. A program's own link may answer with what no link should: a status above 0, an error
 * without a sentence, a message at NULL. What comes back from here is what the library's own functions give. */
#ifndef GW_LINK_CALLS_H
#define GW_LINK_CALLS_H

#include <gradwire/link.h>

/* The functions of gw_link_ops. flush does nothing if the link has none. `take` is recv. Errors: those of the link, and
 * GW_ERR_ARGUMENT (the answer is none that a link may give). */
gw_status gw_link_send(const gw_link *link, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms);
gw_status gw_link_send_all(const gw_link *link, void *bytes, size_t n_bytes, uint32_t timeout_ms);
gw_status gw_link_flush(const gw_link *link, uint32_t timeout_ms);
gw_status gw_link_take(const gw_link *link, uint32_t timeout_ms, gw_message *message);

#endif
