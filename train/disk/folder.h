/* A run's folder: the names that a run writes, what an earlier run left under them, and who may write there. */
#ifndef GW_TRAIN_FOLDER_H
#define GW_TRAIN_FOLDER_H

#include <dirent.h>
#include <gradwire/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Every file of a run has one of these names, with GW_PARTIAL (file.h) behind it until it is whole. */
#define GW_RUN_FILE "run.json" /* the options that the run has */
#define GW_METRICS_FILE "metrics.jsonl"
#define GW_HISTOGRAMS_FILE "histograms.jsonl"
#define GW_REPORT_FILE "report.html"
#define GW_EVENTS_FILE "events.out.tfevents.0.gradwire"
#define GW_SUMMARY_FILE "summary.json" /* written last: a folder that has it is complete */
#define GW_PARAMETER_FILE "parameters.gwp"
#define GW_CHECKPOINT_FILE "checkpoint-%08llu.gwp"          /* steps done */
#define GW_STATE_FILE "checkpoint-%08llu.rank-%u-of-%u.gws" /* rank counts from 0 */

/* Makes the folder if it is missing (its parent must exist). */
gw_status gw_folder_create(const char *folder);

/* Keeps other runs out of a folder until closedir(*lock), or the process's end however it comes. */
gw_status gw_folder_lock(const char *folder, DIR **lock);

/* The checkpoint with the most steps below `below`, by names alone; false if there is none. */
bool gw_folder_newest_checkpoint(DIR *folder, uint64_t below, uint64_t *steps_done);

/* True if the folder holds a run that came to its end. */
bool gw_folder_is_complete(DIR *folder);

/* True if `path` names this folder. */
bool gw_folder_is(DIR *folder, const char *path);

/* True if `path` names a file that the run in `folder` has of its own, whole or partial, other than the report. */
bool gw_folder_owns(const char *folder, const char *path);

/* Refuses a locked folder with files of an earlier run, whole or partial. */
gw_status gw_folder_check(const char *folder, DIR *lock);

/* Removes the files of an earlier run from a locked folder; all other names are left alone, and so are the files that
 * grow all through a run, metrics, histograms and events, while they are partial: they are the new run's already.
 * keep_whole: a run that is gone on with keeps what is whole but the summary, the parameters and the report, which are
 * not its last ones any more. */
gw_status gw_folder_clear(const char *folder, DIR *lock, bool keep_whole);

#endif
