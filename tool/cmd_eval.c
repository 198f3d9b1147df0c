/* gradwire eval: how good saved parameters are. */
#include "tool.h"
#include "train.h"

int gw_cmd_eval(int argc, char **argv)
{
    const char *net = NULL, *data = "digits", *from = NULL;
    uint32_t threads = 1;
    bool json = false;
    const tool_option options[] = {
        {"--net", "NET", "the network; default: what the parameters are for", TOOL_TEXT, &net, 0, 0},
        {"--data", "SOURCE", "folder with MNIST's files; file of LIBSVM text; digits or uneven", TOOL_TEXT, &data, 0, 0},
        {"--from", "RUN", "a run's folder, or a parameter file", TOOL_TEXT, &from, 0, 0},
        {"--threads", "K", "computing threads", TOOL_U32, &threads, 1, 256},
        {"--json", NULL, "one JSON object on standard output", TOOL_FLAG, &json, 0, 0},
    };
    const tool_usage usage = {
        .synopsis = "eval [--net NET] --data SOURCE --from RUN [--json]",
        .about = "Share of the test set that a run's parameters get right (of their moving average where the run kept one).",
        .example = "gradwire eval --net lenet --data digits --from runs/ternary",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .args = "eval takes options only",
    };
    int exit_status = tool_parse(&usage, &argc, argv);
    if (exit_status != TOOL_PARSED)
        return exit_status;
    if (!from)
        return tool_wrong_use("--from RUN is missing: the folder that train --out made");
    struct gw_eval_result r;
    gw_status status = gw_train_eval(net, data, from, threads, &r);
    if (status == GW_ERR_ARGUMENT)
        return tool_wrong_use("%s", gw_last_error());
    if (status != GW_OK)
        return tool_fail_status(status, NULL);
    if (json)
        return tool_print_json(json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f}", "net", r.net, "data", data, "from", from,
                                         "step", (json_int_t)r.step, "samples", (json_int_t)r.samples, "test_accuracy",
                                         r.test_accuracy, "test_loss", r.test_loss));
    tool_note("%s after %llu steps: test accuracy %.2f %% of %u samples, loss %.4f", r.net, (unsigned long long)r.step,
              100 * r.test_accuracy, r.samples, r.test_loss);
    return TOOL_DONE;
}
