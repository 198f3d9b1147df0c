/* What all commands of the tool share: messages, options, files, JSON.
 *
 * A command is one file, cmd_NAME.c, with one function gw_cmd_NAME(argc, argv), argv[0] being the command's name, and
 * one line in the table in main.c. It returns the exit status. The order in a command: parse options (tool_parse), read
 * inputs, open the output (tool_output_open), work, commit. */
#ifndef GRADWIRE_TOOL_H
#define GRADWIRE_TOOL_H

#include "codec/parts.h"
#include "json_values.h"
#include "predict/model.h"
#include "predict/networks.h"
#include <gradwire/gradwire.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The page that says what each codec sends, and what it costs in accuracy. */
#define TOOL_CHOOSING "docs/choosing.md"

/* Exit statuses. A function of the tool that returns int returns one of these, unless its comment says otherwise; if it
 * is not TOOL_DONE, the message is printed. TOOL_HELPED: --help was answered, and the command has nothing left to do;
 * main() makes it TOOL_DONE. */
enum { TOOL_HELPED = -1, TOOL_DONE = 0, TOOL_FAILED = 1, TOOL_WRONG_USE = 2 };

int gw_cmd_train(int argc, char **argv);
int gw_cmd_eval(int argc, char **argv);
int gw_cmd_report(int argc, char **argv);
int gw_cmd_export(int argc, char **argv);
int gw_cmd_codecs(int argc, char **argv);
int gw_cmd_encode(int argc, char **argv);
int gw_cmd_decode(int argc, char **argv);
int gw_cmd_scaler(int argc, char **argv);
int gw_cmd_reduce(int argc, char **argv);
int gw_cmd_inspect(int argc, char **argv);
int gw_cmd_bench(int argc, char **argv);
int gw_cmd_launch(int argc, char **argv);
int gw_cmd_keys(int argc, char **argv);
int gw_cmd_predict(int argc, char **argv);
int gw_cmd_server(int argc, char **argv);
int gw_cmd_probe(int argc, char **argv);
int gw_cmd_plan(int argc, char **argv);
int gw_cmd_advise(int argc, char **argv);

/* `gradwire bench codec` and `exchange`, in bench_codec.c and bench_exchange.c. */
int tool_bench_codec(int argc, char **argv);
int tool_bench_exchange(int argc, char **argv);

/* ---- messages: message.c ---- */

/* Messages begin with "gradwire NAME: " from here on; NULL: "gradwire: ". The name is not copied. */
void tool_set_command(const char *name);

/* Prints one sentence to standard error and returns TOOL_FAILED. */
int tool_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for wrong use: adds where to find help, and returns TOOL_WRONG_USE. */
int tool_wrong_use(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* After a call of the library: TOOL_DONE, or prints "WHERE: gw_last_error()" (`where` may be NULL), and returns
 * TOOL_WRONG_USE for a bad codec specification, else TOOL_FAILED. */
int tool_exit_status(gw_status status, const char *where);

/* The same after a call that has checked the command line's own words: GW_ERR_ARGUMENT is wrong use, too. */
int tool_exit_status_of_use(gw_status status);

/* Forwards an exit status that is not TOOL_DONE. Its message is printed already. */
#define TOOL_TRY(call)                                                                                                 \
    do {                                                                                                               \
        const int tool_try_status_ = (call);                                                                           \
        if (tool_try_status_ != TOOL_DONE)                                                                             \
            return tool_try_status_;                                                                                   \
    } while (0)

/* A sentence for people on standard error, without a prefix. */
void tool_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* From here on the JSON that a thread builds is whole, or the two calls that make text of it fail: jansson itself
 * leaves out what it has no memory for. main() calls this before anything else makes JSON. tool_json_is_whole is for
 * JSON that goes elsewhere: false if anything had no memory since this thread last asked, or made text. */
void tool_json_begin(void);
bool tool_json_is_whole(void);

/* Writes one JSON object and a line end to standard output and releases it. Floats are written with 17 digits, so they
 * read back as the same number. NULL (jansson had no memory) fails. */
int tool_print_json(json_t *object);

/* JSON as a text that the caller frees, with \u003c and so on for every <, > and &. In JSON these stand in strings
 * only. So it holds no markup, and is safe in any place of a page. flags: of jansson. NULL: no memory, or
 * there was none when this thread built the JSON. */
char *tool_json_without_markup(const json_t *json, size_t flags);

/* A stream whose bytes stay in memory, as open_memstream's. But if there is no memory, that is an error of the stream:
 * open_memstream leaves out what did not fit, and says nothing. */
typedef struct {
    char *bytes;
    size_t n, capacity;
} tool_text;

/* NULL: no memory. tool_text_close closes the stream, and returns its bytes, with a 0 behind them, which the caller
 * frees. NULL: there was no memory for all of them. n_bytes: how many; it may be NULL. */
FILE *tool_text_open(tool_text *text);
char *tool_text_close(FILE *stream, tool_text *text, size_t *n_bytes);

/* Flushes standard output: the last act of a command that printed text there. */
int tool_finish_output(void);

/* ---- signals: stops.c ---- */

/* SIGINT, SIGTERM, SIGHUP. */
enum { TOOL_N_STOPS = 3 };
extern const int tool_stops[TOOL_N_STOPS];

/* Blocks them in this thread. *before: the mask until now. */
void tool_block_stops(sigset_t *before);

/* Calls `handler` at these. SIGHUP comes if the terminal or the connection has gone. Under nohup it is ignored, and
 * stays so. flags: of sigaction. */
void tool_catch_stops(void (*handler)(int signal_number), int flags);

/* ---- progress: progress.c ---- */

/* --quiet: no progress and no notes are shown, only results, warnings and errors. */
extern bool tool_quiet;

/* True if progress is shown on a terminal. */
bool tool_has_terminal(void);

/* How wide the terminal behind `fd` is; `without`: what is said if there is none. */
size_t tool_columns(int fd, size_t without);

/* Rewrites the line of progress, on a terminal. What does not fit is cut. */
void tool_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the line of progress, if there is one: clear takes it away, keep leaves its last state. */
void tool_progress_clear(void);
void tool_progress_keep(void);

/* ---- options: options.c ---- */

typedef enum tool_kind {
    TOOL_FLAG, /* bool * */
    TOOL_TEXT, /* const char ** */
    /* const char **: the file to write; not "-", because nothing binary goes to standard output */
    TOOL_OUTPUT,
    TOOL_TEXTS,  /* tool_texts *: may be given again and again */
    TOOL_U32,    /* uint32_t *, within [min, max] */
    TOOL_U64,    /* uint64_t *, within [min, max]; 64Ki, 2M and the like are understood */
    TOOL_DOUBLE, /* double *: any finite number; the command checks its range */
} tool_kind;

#define TOOL_MAX_TEXTS 64

typedef struct tool_texts {
    const char *items[TOOL_MAX_TEXTS];
    size_t n;
} tool_texts;

/* What a run keeps of an option in its folder (trainer/run_options.h). */
typedef enum tool_in_run {
    TOOL_RUN_NOT, /* nothing: it belongs to one process or to one start */
    TOOL_RUN_KEEPS,
    TOOL_RUN_DECIDES, /* it decides what the run computes; the trainer refuses another value, so nothing is noted */
    TOOL_RUN_PATH,    /* kept as an absolute path */
    TOOL_RUN_SOURCE,  /* data: drawn, or a path */
    TOOL_RUN_START,   /* what starts the workers says it; a difference is noted, and the run's value is never taken */
} tool_in_run;

typedef struct tool_option {
    const char *name;  /* "--codec", "-o" */
    const char *value; /* the word for the value in help: "SPEC"; NULL for a flag */
    const char *help;  /* one line, however long: --help breaks it */
    tool_kind kind;
    void *target;      /* keeps its value, the default, if the option is not given */
    uint64_t min, max; /* integers only; max 0: no limit but the type's */
    tool_in_run run;
    const char *rival; /* an option that says the same in another way; if it is given, the run's value is not taken */
} tool_option;

typedef struct tool_usage {
    const char *synopsis; /* "encode --codec SPEC [options] IN -o OUT.gw" */
    const char *about;    /* paragraphs */
    const char *example;  /* one or more whole command lines */
    const tool_option *options;
    size_t n_options;
    bool *given; /* [n_options], false at first. Options that the command line has become true. NULL: not wanted */
    const char *unknown_hint; /* says what to do if an unknown option follows an operand; NULL: nothing special */
    bool is_long;             /* it may take long, and shows progress: there is --quiet */
    int min_args, max_args;   /* operands (words that are no options); max -1: any number */
    const char *args;         /* what they are, for messages: "one input file" */
} tool_usage;

/* Names the table of options in a tool_usage. */
#define TOOL_OPTIONS(table) .options = (table), .n_options = sizeof(table) / sizeof *(table)

/* Parses argv[1..argc-1]. --name VALUE and --name=VALUE are the same, "--" ends the options, --help prints help from
 * the table. Operands end up in argv[1..*argc-1] in their order. Not TOOL_DONE: the exit status to leave with. */
int tool_parse(const tool_usage *usage, int *argc, char **argv);

/* Stores an option's value as the command line would. */
int tool_set_option(const tool_option *option, const char *text);

/* True if the command line has this option of the table; needs usage->given. */
bool tool_given(const tool_usage *usage, const char *name);

/* A cluster by its name, or from a file with the fields of gw_cluster as one JSON object. `info` is NULL for a file.
 * All of the file's fields must be there, and no others. In cluster.c. */
int tool_read_cluster(const char *name, gw_cluster *out, const gw_cluster_info **info);

/* ---- output files: output.c ---- */

/* A file that appears under its name only when it is complete: written beside it under a temporary name, synced,
 * renamed, the folder synced. SIGINT, SIGTERM and SIGHUP remove the temporary file on their way. An existing file that
 * is not regular (/dev/null, a pipe) is written directly. Any number of outputs can be open at a time. */
typedef struct tool_output {
    int fd;
    char *path;      /* the final name, links followed */
    char *temporary; /* NULL if written directly, or if it has its name */
    bool named;      /* it has got its name, which may not be on disk yet */
} tool_output;

#define TOOL_OUTPUT_CLOSED ((tool_output){.fd = -1})

/* These return TOOL_DONE, or an exit status with the message printed and nothing left behind. */
int tool_output_open(tool_output *output, const char *path);
int tool_output_write(tool_output *output, const void *bytes, size_t n_bytes);

/* All is written and on disk, and waits for its name. The descriptor is closed. So many files can get their names
 * together, when all of them are there. */
int tool_output_finish(tool_output *output);

/* Gives the file its name. */
int tool_output_commit(tool_output *output);

/* Gives several files their names, one right after the other. If one cannot get it, those behind it are removed. */
int tool_output_commit_all(tool_output *outputs, size_t n);

/* All of it: a file of these bytes. */
int tool_write_file(const char *path, const void *bytes, size_t n_bytes);

/* Removes the temporary file. Does nothing after a commit or a failure, or to TOOL_OUTPUT_CLOSED. */
void tool_output_discard(tool_output *output);

/* Refuses to write a file, `path`, that the command line has in another role too: writing would destroy it. A role is
 * "-o", "the input". A path may be NULL. The file system tells which files are the same, whatever their spelling. */
int tool_check_apart(const char *role, const char *path, const char *other_role, const char *other);

/* ---- input files: input.c, tensor_file.c, npy.c, frame_file.c ---- */

/* 64-byte aligned memory, or NULL with the message printed. Released with free(). */
void *tool_alloc(uint64_t count, size_t size);

/* Opens a regular file and tells its length. Returns the descriptor, or -1 with the message printed. */
int tool_open_file(const char *path, uint64_t *bytes);

int tool_read_exact(int fd, const char *path, void *dst, uint64_t n_bytes);

/* A whole file in memory that the caller frees. NULL with the message printed: also if it has more than `most` bytes,
 * and `what` says what has no more. */
void *tool_read_file(const char *path, const char *what, size_t most, size_t *bytes);

/* One tensor from IN.f32 (raw little-endian float32) or IN.npy (float32). */
typedef struct tool_tensor {
    float *values; /* freed by the caller */
    uint64_t n_elems;
} tool_tensor;

/* Sizes are checked against the file's length before memory is taken. */
int tool_read_tensor(const char *path, tool_tensor *out);

/* True if `path` ends in `suffix`. */
bool tool_has_suffix(const char *path, const char *suffix);

/* One frame from a file, checked: its checksum too, and that nothing follows it. */
typedef struct tool_frame {
    void *bytes; /* freed by the caller */
    size_t n_bytes;
    gw_frame_info info;
} tool_frame;

/* Returns TOOL_DONE, or an exit status with the message printed and nothing to free. */
int tool_read_frame(const char *path, tool_frame *out);

typedef struct tool_frame_facts {
    uint64_t nonzeros;
    double entropy_bits, bits_per_element, times_smaller; /* times_smaller: than float32, in the frame's direction */
    gw_frame_parts parts;
    bool finite;
} tool_frame_facts;

int tool_frame_examine(const char *path, const tool_frame *frame, tool_frame_facts *out);
/* For tool_print_json, which notices if there was no memory for a part of it. */
json_t *tool_frame_json(const tool_frame *frame, const tool_frame_facts *facts);

#endif
