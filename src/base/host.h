/* Hosts and ports as people write them: node7, 10.0.0.1:80, [::1]:80. Everything that reads or writes HOST or HOST:PORT
 * calls these. */
#ifndef GW_BASE_HOST_H
#define GW_BASE_HOST_H

#include <gradwire/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_HOST_BYTES 256 /* names end at 253 characters */

/* Copies a host of `length` characters. An IPv6 address may be in brackets, and loses them. False: it is empty or too
 * long, or it has brackets that are not those of an IPv6 address, blanks or other signs that no host has. */
bool gw_host_copy(const char *from, size_t length, char host[GW_HOST_BYTES]);

/* Splits "HOST:PORT". An IPv6 address must be in brackets, because it has colons of its own. False: it is not of this
 * form. The port has at most five digits, and may still be too large. */
bool gw_host_split(const char *text, char host[GW_HOST_BYTES], uint32_t *port);

/* Writes "HOST:PORT"; `host` may have brackets, and gets them if it is an IPv6 address. GW_ERR_ARGUMENT: it is no host;
 * `what` names it in the sentence ("MASTER_ADDR"). */
gw_status gw_host_join(const char *what, const char *host, uint32_t port, char *text, size_t capacity);

#endif
