/* gradwire eval: tells how good saved parameters are. */
#include "data/data.h"
#include "run_options.h"
#include "tool.h"
#include "run/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Takes the run's data if the user names none. */
static int take_data(const tool_usage *usage, tool_run *of, struct gw_eval_options *o)
{
    TOOL_TRY(tool_run_take(usage, of));
    bool others = tool_given(usage, "--data"), other_test = tool_given(usage, "--test");
    if (others && !other_test)
        o->test = NULL; /* the run's test set belongs to the run's data */
    if (!o->data && !gw_data_is_there(o->from))
        return tool_fail("%s is not there; --from names the folder that train --out made", o->from);
    if (!o->data)
        return tool_fail(
            "%s does not say what data its run had: a run's folder has a run.json that does, but a parameter file by "
            "itself has not; name them with --data DIR (or FILE, digits, uneven)",
            o->from);
    o->data_are = others || other_test ? NULL : json_string_value(json_object_get(of->json, "data"));
    tool_run_tell(of);
    return tool_run_find_data(usage, of);
}

static int evaluate(const struct gw_eval_options *o, const char *set, bool json)
{
    struct gw_eval_result r;
    TOOL_TRY(tool_exit_status_of_use(gw_train_eval(o, &r)));
    if (json)
        return tool_print_json(
            json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:f, s:o}", "net", r.net, "data", gw_json_text(o->data), "test",
                      gw_json_text(o->test), "from", gw_json_text(o->from), "step", (json_int_t)r.step, "samples",
                      (json_int_t)r.samples, o->training_set ? "train_accuracy" : "test_accuracy", r.accuracy,
                      o->training_set ? "train_loss" : "test_loss", gw_json_real(r.loss)));
    char loss[80] = "but the loss is no finite number: parameters are too large, or NaN";
    if (isfinite(r.loss))
        snprintf(loss, sizeof loss, r.loss < 1e9 ? "loss %.4f" : "loss %.4g", r.loss);
    tool_note("%s after %llu steps: %s accuracy %.2f %% of %u samples, %s", r.net, (unsigned long long)r.step, set,
              100 * r.accuracy, r.samples, loss);
    return TOOL_DONE;
}

int gw_cmd_eval(int argc, char **argv)
{
    struct gw_eval_options o = {.threads = 1};
    const char *set = "test";
    bool json = false;
    const tool_option options[] = {
        {"--net", "NET", "the network (default: the one that the parameters are for)", TOOL_TEXT, &o.net},
        {"--data", "SOURCE", "folder with MNIST's files; file of LIBSVM text; digits or uneven (default: the run's)",
         TOOL_TEXT, &o.data, .run = TOOL_RUN_SOURCE},
        {"--test", "FILE",
         "test samples, a LIBSVM file; with --data and without --test, the samples of --data are used", TOOL_TEXT,
         &o.test, .run = TOOL_RUN_SOURCE},
        {"--transform", "SPEC", "what is done to pictures, as for train (default: the run's)", TOOL_TEXT, &o.transform,
         .run = TOOL_RUN_DECIDES},
        {"--set", "test|train", "evaluate on the test set, or on the training set", TOOL_TEXT, &set},
        {"--from", "RUN", "a run's folder, or a parameter file", TOOL_TEXT, &o.from},
        {"--threads", "K", "computing threads", TOOL_U32, &o.threads, 1, 256},
        {"--json", NULL, "one JSON object on standard output; test_loss null: it is no finite number", TOOL_FLAG,
         &json},
    };
    bool given[sizeof options / sizeof *options] = {false};
    const tool_usage usage = {
        .synopsis =
            "eval [--net NET] [--data SOURCE] [--test FILE] [--transform SPEC] [--set test|train] --from RUN [--json]",
        .about = "Tells which share of the test set, or of the training set, a run's parameters get right. If the run "
                 "kept a moving average of the parameters, eval uses it. The run knows its data; --data and --test "
                 "name others, or say where they are now.",
        .example = "gradwire eval --from runs/ternary\n"
                   "  gradwire eval --data a9a.xz --test a9a.t.xz --from runs/a9a",
        TOOL_OPTIONS(options),
        .given = given,
        .args = "eval takes options only",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!o.from)
        return tool_wrong_use("--from RUN is missing: the folder that train --out made");
    if (strcmp(set, "test") != 0 && strcmp(set, "train") != 0)
        return tool_wrong_use("--set is \"%s\", and must be test or train", set);
    o.training_set = strcmp(set, "train") == 0;
    tool_run of;
    int exit_status = tool_run_open(o.from, &of);
    if (exit_status == TOOL_DONE)
        exit_status = take_data(&usage, &of, &o);
    if (exit_status == TOOL_DONE)
        exit_status = evaluate(&o, set, json);
    tool_run_close(&of);
    return exit_status;
}
