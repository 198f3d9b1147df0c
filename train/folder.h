/* A run's folder: the names a run writes, what an earlier run left under them, and who may write there. */
#ifndef GW_TRAIN_FOLDER_H
#define GW_TRAIN_FOLDER_H

#include <dirent.h>
#include <gradwire/status.h>

/* Every file of a run has one of these names, with GW_PARTIAL (file.h) behind it until it is whole. */
#define GW_METRICS_FILE "metrics.jsonl"
#define GW_EVENTS_FILE "events.out.tfevents.0.gradwire"
#define GW_SUMMARY_FILE "summary.json" /* written last: a folder that has it is complete */
#define GW_PARAMETER_FILE "parameters.gwp"
#define GW_CHECKPOINT_FILE "checkpoint-%08llu.gwp" /* steps done */

/* Makes the folder where it is missing (its parent must exist). */
gw_status gw_folder_create(const char *folder);

/* Keeps other runs out of a folder until closedir(*lock), or the process's end however it comes. */
gw_status gw_folder_lock(const char *folder, DIR **lock);

/* Refuses a locked folder with files of an earlier run, whole or partial. */
gw_status gw_folder_check(const char *folder, DIR *lock);

/* Removes the files of an earlier run from a locked folder; all other names are left alone, and so are the files that grow
 * all through a run, metrics and events, while they are partial: they are the new run's already. */
gw_status gw_folder_clear(const char *folder, DIR *lock);

#endif
