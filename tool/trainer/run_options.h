/* The options that a run keeps in its folder (train/disk/run_file.h), so that --resume RUN and eval --from RUN take
 * them from there. Each option's row says what is kept of it (tool_in_run). */
#ifndef GRADWIRE_RUN_OPTIONS_H
#define GRADWIRE_RUN_OPTIONS_H

#include "tool.h"

typedef struct tool_run {
    const char *from; /* the folder, or a parameter file in it */
    json_t *json;     /* what run.json holds; texts that were taken point into it. NULL: there is none */
    char notes[4096]; /* what the command line says differently from the run */
} tool_run;

/* Reads run.json of `from`. Returns TOOL_DONE, also if there is none; or an exit status, with the message printed. */
int tool_run_open(const char *from, tool_run *run);
void tool_run_close(tool_run *run);

/* Refuses a run that keeps an option which `usage` lacks. */
int tool_run_knows(const tool_usage *usage, const tool_run *run);

/* Sets each option of `usage` that was not given on the command line to the run's value. For options that were given
 * and differ from the run's it makes notes. Needs usage->given. */
int tool_run_take(const tool_usage *usage, tool_run *run);

/* Refuses to go on if data files of the run are not where they were. Returns the same as tool_run_take. */
int tool_run_find_data(const tool_usage *usage, const tool_run *run);

void tool_run_tell(const tool_run *run);

/* The options of `usage` that a run keeps, with the values that they have, as an object that the caller releases. Paths
 * are absolute. A path that is not UTF-8 is refused, because the run could not go on without it. After an error *record
 * is NULL. */
int tool_run_record(const tool_usage *usage, json_t **record);

#endif
