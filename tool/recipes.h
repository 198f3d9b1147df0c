/* The papers' settings for gradwire train, by name. */
#ifndef GW_TOOL_RECIPES_H
#define GW_TOOL_RECIPES_H

#include "tool.h"

/* Writes all recipes with a sentence about each, one in a line, for a help text. */
void tool_recipe_list(char *text, size_t capacity);

/* Sets options that the command line did not give to the values of the recipe. Its length and its rate drops are
 * multiplied by `scale`, which is above 0 and at most 1. Tells the user which settings of the paper are left out.
 * Returns TOOL_DONE, or TOOL_WRONG_USE with the message printed. */
int tool_recipe_take(const tool_usage *usage, const char *name, double scale);

#endif
