/* A run's folder: the names of the files that a run writes, the files of an earlier run, and a lock that keeps other
 * runs out. */
#ifndef GW_TRAIN_FOLDER_H
#define GW_TRAIN_FOLDER_H

#include <dirent.h>
#include <gradwire/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Each file of a run has one of these names. Until it is whole, the name ends in GW_PARTIAL (file.h). */
#define GW_RUN_FILE "run.json" /* the options of the run */
#define GW_METRICS_FILE "metrics.jsonl"
#define GW_HISTOGRAMS_FILE "histograms.jsonl"
#define GW_REPORT_FILE "report.html"
#define GW_EVENTS_FILE "events.out.tfevents.0.gradwire"
#define GW_SUMMARY_FILE "summary.json" /* written last: a folder that has it is complete */
#define GW_PARAMETER_FILE "parameters.gwp"
#define GW_CHECKPOINT_FILE "checkpoint-%08llu.gwp"          /* the number: how many steps were done */
#define GW_STATE_FILE "checkpoint-%08llu.rank-%u-of-%u.gws" /* rank counts from 0 */

/* Makes the folder if it is missing (its parent must exist). */
gw_status gw_folder_create(const char *folder);

/* Locks a folder against other runs, until closedir(*lock) or the end of the process. */
gw_status gw_folder_lock(const char *folder, DIR **lock);

/* Finds the checkpoint with the most steps below `below`. It looks only at names. False: there is none. */
bool gw_folder_newest_checkpoint(DIR *folder, uint64_t below, uint64_t *steps_done);

bool gw_folder_is_complete(DIR *folder);

/* True if `path` names this folder. */
bool gw_folder_is(DIR *folder, const char *path);

/* True if `path` is a file of the run in `folder`, whole or partial, but not the report. */
bool gw_folder_owns(const char *folder, const char *path);

/* Refuses a locked folder with files of an earlier run, whole or partial. */
gw_status gw_folder_check(const char *folder, DIR *lock);

/* Removes the files of an earlier run from a locked folder. Files with other names stay. keep_whole: for a run that is
 * resumed. It keeps its whole files, except summary, parameters and report, which are out of date; and partial metrics,
 * histograms and events, which grow during a run. */
gw_status gw_folder_clear(const char *folder, DIR *lock, bool keep_whole);

#endif
