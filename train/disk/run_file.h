/* What a run's folder says of its run: RUN/run.json, the options that the run has, by name, and what data they are. So
 * --resume RUN and eval --from RUN need not be told again. */
#ifndef GW_TRAIN_RUN_FILE_H
#define GW_TRAIN_RUN_FILE_H

#include "data/data.h"

#include <jansson.h>

/* Room for gw_data_describe's text. */
#define GW_DATA_TEXT 128

/* Says which data set this is, in words that another data set does not have: counts, and a hash of the labels. Not
 * from where it was read: it may move. */
void gw_data_describe(const struct gw_data *data, char *text, size_t capacity);

/* Writes FOLDER/run.json, whole or not at all. `options` (an object, borrowed) and `data` (gw_data_describe's text)
 * stand under these names in it. */
gw_status gw_run_file_write(const char *folder, json_t *options, const char *data);

/* Reads run.json of `from`: a run's folder, or a parameter file in it. *run is an object with the object "options" in
 * it, and the caller releases it. It is NULL if there is no run.json: runs of earlier versions have none, and a
 * parameter file may stand alone. Errors: GW_ERR_SYSTEM (it cannot be read, or is no such object), GW_ERR_MEMORY. */
gw_status gw_run_file_read(const char *from, json_t **run);

#endif
