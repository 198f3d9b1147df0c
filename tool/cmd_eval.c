/* gradwire eval: how good saved parameters are. */
#include "tool.h"
#include "train.h"

#include <string.h>

int gw_cmd_eval(int argc, char **argv)
{
    struct gw_eval_options o = {.data = "digits", .threads = 1};
    const char *set = "test";
    bool json = false;
    const tool_option options[] = {
        {"--net", "NET", "the network; default: what the parameters are for", TOOL_TEXT, &o.net, 0, 0},
        {"--data", "SOURCE", "folder with MNIST's files; file of LIBSVM text; digits or uneven", TOOL_TEXT, &o.data, 0, 0},
        {"--test", "FILE", "test samples of a LIBSVM file; without it those of --data are looked at", TOOL_TEXT, &o.test, 0, 0},
        {"--set", "test|train", "look at the test set, or at the training set", TOOL_TEXT, &set, 0, 0},
        {"--from", "RUN", "a run's folder, or a parameter file", TOOL_TEXT, &o.from, 0, 0},
        {"--threads", "K", "computing threads", TOOL_U32, &o.threads, 1, 256},
        {"--json", NULL, "one JSON object on standard output", TOOL_FLAG, &json, 0, 0},
    };
    const tool_usage usage = {
        .synopsis = "eval [--net NET] [--data SOURCE] [--test FILE] [--set test|train] --from RUN [--json]",
        .about = "Share of the test set, or of the training set, that a run's parameters get right (their moving average where the\n"
                 "run kept one). --data and --test are those that the run was given.",
        .example = "gradwire eval --data digits --from runs/ternary\n"
                   "  gradwire eval --data a9a.xz --test a9a.t.xz --from runs/a9a",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .args = "eval takes options only",
    };
    int exit_status = tool_parse(&usage, &argc, argv);
    if (exit_status != TOOL_PARSED)
        return exit_status;
    if (!o.from)
        return tool_wrong_use("--from RUN is missing: the folder that train --out made");
    if (strcmp(set, "test") != 0 && strcmp(set, "train") != 0)
        return tool_wrong_use("--set is \"%s\", and must be test or train", set);
    o.training_set = strcmp(set, "train") == 0;
    struct gw_eval_result r;
    gw_status status = gw_train_eval(&o, &r);
    if (status == GW_ERR_ARGUMENT)
        return tool_wrong_use("%s", gw_last_error());
    if (status != GW_OK)
        return tool_fail_status(status, NULL);
    if (json)
        return tool_print_json(json_pack("{s:s, s:s, s:s?, s:s, s:I, s:I, s:f, s:f}", "net", r.net, "data", o.data, "test",
                                         o.test, "from", o.from, "step", (json_int_t)r.step, "samples", (json_int_t)r.samples,
                                         o.training_set ? "train_accuracy" : "test_accuracy", r.accuracy,
                                         o.training_set ? "train_loss" : "test_loss", r.loss));
    tool_note("%s after %llu steps: %s accuracy %.2f %% of %u samples, loss %.4f", r.net, (unsigned long long)r.step, set,
              100 * r.accuracy, r.samples, r.loss);
    return TOOL_DONE;
}
