/* JSON files that people write or change: read with a limit of bytes, and by a table of fields. */
#ifndef GRADWIRE_JSON_FILE_H
#define GRADWIRE_JSON_FILE_H

#include "tool.h"

/* The JSON in a file, which the caller drops. `what` is for sentences: "profile". A file of more than `most` bytes is
 * refused, and so is a name that stands twice in an object. NULL with the message printed. */
json_t *tool_read_json(const char *path, const char *what, size_t most);

/* One field of an object. It is a number if `text` is NULL. */
typedef struct tool_field {
    const char *name;
    double *number;
    const char **text;
    bool optional;
} tool_field;

/* Reads a number of at most 1e15. Returns an exit status. */
int tool_read_number(const char *where, const char *name, const json_t *value, double *out);

/* Reads all fields of an object. It refuses other fields, because a misspelt one would look as if it were missing.
 * `where` is for sentences: "PATH: layer 3". */
int tool_read_fields(const char *where, const json_t *object, const tool_field *fields, size_t n);

/* Takes a number as a whole one that is at most `most`; 0 is left to the caller. Returns the same. */
int tool_read_count(const char *where, const char *name, double value, double most, uint64_t *out);

#endif
