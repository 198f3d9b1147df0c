/* The file RUN/run.json in a run's folder. It holds the run's options by name, and says which data the run has. So the
 * user need not repeat them with --resume RUN and eval --from RUN. */
#ifndef GW_TRAIN_RUN_FILE_H
#define GW_TRAIN_RUN_FILE_H

#include "data/data.h"

#include <jansson.h>

/* Room for gw_data_describe's text. */
#define GW_DATA_TEXT 128

/* Describes a data set so that another one has another text: counts, and a hash of the samples. The text does not
 * hold its path, because files may move. */
void gw_data_describe(const struct gw_data *data, char *text, size_t capacity);

/* Writes FOLDER/run.json, whole or not at all. `options` (an object, borrowed) and `data` (gw_data_describe's text)
 * have these names in it. */
gw_status gw_run_file_write(const char *folder, json_t *options, const char *data);

/* Reads run.json. `from` is a run's folder, or a parameter file in it. *run is an object that holds the object
 * "options". The caller releases it. *run is NULL if there is no run.json: a parameter file may lie in any folder.
 * Errors: GW_ERR_SYSTEM (it cannot be read, or is no such object), GW_ERR_MEMORY. */
gw_status gw_run_file_read(const char *from, json_t **run);

#endif
