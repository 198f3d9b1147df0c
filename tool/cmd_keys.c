/* gradwire keys: folders of keys for the tcp link. */
#include "tool.h"

#include <string.h>

int gw_cmd_keys(int argc, char **argv)
{
    const tool_usage usage = {
        .synopsis = "keys new DIR",
        .about = "Makes the folder DIR with a fresh pair of CURVE keys, for train --keys DIR. A copy of the folder on every machine of a\n"
                 "job is enough: whoever has it is let in, nobody else, and everything that travels is encrypted. Where each machine\n"
                 "shall have a key of its own, make a folder on each, put the public key (gradwire.key) of every machine into\n"
                 "allowed/ of every folder, under any name, and rank 0's into rendezvous.key.\n"
                 "gradwire.key_secret is for this machine's user alone (mode 600), and an existing key is never replaced.",
        .example = "gradwire keys new job-keys\n  gradwire launch -n 4 -- train --net lenet --codec ternary --keys job-keys",
        .min_args = 2,
        .max_args = 2,
        .args = "the word new, and a folder",
    };
    int status = tool_parse(&usage, &argc, argv);
    if (status != TOOL_PARSED)
        return status;
    if (strcmp(argv[1], "new") != 0)
        return tool_wrong_use("'%s' is nothing to do with keys; 'gradwire keys new DIR' makes them", argv[1]);
    gw_status made = gw_keys_new(argv[2]);
    if (made < 0)
        return tool_fail_status(made, NULL);
    tool_note("keys are in %s; copy the folder to every machine of the job, and keep gradwire.key_secret secret", argv[2]);
    return TOOL_DONE;
}
