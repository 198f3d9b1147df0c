/* Structs of options that a program may have compiled with an earlier or later header. Their first field is
 * struct_bytes. */
#ifndef GW_BASE_OPTIONS_H
#define GW_BASE_OPTIONS_H

#include <gradwire/status.h>
#include <stddef.h>

/* The bytes of each struct in its first version. They never change: later versions add fields behind. */
enum {
    GW_FIRST_gw_context_options = 24,
    GW_FIRST_gw_reduce_options = 16,
    GW_FIRST_gw_exchange_options = 136,
    GW_FIRST_gw_link_options = 40,
    GW_FIRST_gw_probe_options = 120,
    GW_FIRST_gw_profile = 88,
    GW_FIRST_gw_ps_key_options = 104,
    GW_FIRST_gw_ps_call = 80,
    GW_FIRST_gw_ps_client_options = 48,
    GW_FIRST_gw_ps_server_options = 120
};

/* Copies `given`, which is not NULL, to the struct *own of the type that is named. What an earlier version does not
 * have is zero, which stands for the default. What a later version has besides must be zero. Errors: GW_ERR_ARGUMENT.
 */
#define GW_TAKE_OPTIONS(type, given, own) gw_take_options(#type, GW_FIRST_##type, given, own, sizeof(type))
gw_status gw_take_options(const char *type, size_t first_bytes, const void *given, void *own, size_t own_bytes);

#endif
