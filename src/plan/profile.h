/* The check of a profile, which every plan begins with, and the names of what plans can be asked for. */
#ifndef GW_PLAN_PROFILE_H
#define GW_PLAN_PROFILE_H

#include <gradwire/plan.h>

/* Checks a profile. All plans begin with this. Errors: GW_ERR_ARGUMENT (a NULL, a time that is negative or not finite,
 * no layers or too many, or a name that is missing or stands there twice; the sentence says which). */
GW_MUST_CHECK gw_status gw_profile_check(const gw_profile *profile);

/* The name of a way to compress: "inline" or "beside". NULL for a number that is neither. Static storage. */
const char *gw_compress_name(gw_compress compress);

/* The name of a way to merge: "exact", "paper", "none", "single" or "fixed". NULL past the last one. Static storage. */
const char *gw_merge_name(gw_merge method);

#endif
