/* The papers' settings for gradwire train, by name. */
#ifndef GW_TOOL_RECIPES_H
#define GW_TOOL_RECIPES_H

#include "tool.h"

/* All recipes with a sentence each, a line for each: for a help text. */
void tool_recipe_list(char *text, size_t capacity);

/* Gives options that the command line left out the values of the recipe; its length and its rate drops are multiplied
 * by `scale`, above 0 and at most 1. Tells what of the paper's setting is left out. Returns TOOL_DONE, or
 * TOOL_WRONG_USE with the message printed. */
int tool_recipe_take(const tool_usage *usage, const char *name, double scale);

#endif
