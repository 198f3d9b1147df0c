/* The papers' settings for gradwire train, by name. */
#ifndef GW_TOOL_RECIPES_H
#define GW_TOOL_RECIPES_H

#include "tool.h"

/* The nth recipe: its name, and a sentence about it. False behind the last one. */
bool tool_recipe_list(size_t n, const char **name, const char **about);

/* Sets options that the command line did not give to the values of the recipe. Its length and its rate drops are
 * multiplied by `scale`, which is above 0 and at most 1. Tells the user which settings of the paper are left out. */
int tool_recipe_take(const tool_usage *usage, const char *name, double scale);

#endif
