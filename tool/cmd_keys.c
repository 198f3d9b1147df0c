/* gradwire keys: makes folders of keys, for the tcp link, parameter servers and their clients. */
#include "tool.h"

#include <string.h>

int gw_cmd_keys(int argc, char **argv)
{
    const char *client = NULL, *server = NULL;
    const tool_option options[] = {
        {"--client", "NAME", "DIR is for a client of parameter servers, listed there under this name", TOOL_TEXT,
         &client},
        {"--of", "SERVERDIR", "the servers' folder of keys, which keys new has made before", TOOL_TEXT, &server},
    };
    const tool_usage usage = {
        .synopsis = "keys new DIR [--client NAME --of SERVERDIR]",
        .about =
            "Makes the folder DIR with fresh keys. Everything that travels is encrypted then (TLS 1.3), and "
            "DIR/allowed\n"
            "says who may connect. For train --keys DIR a copy of the folder on every machine of a job is enough:\n"
            "whoever has it is let in, nobody else. If each machine shall have a key of its own, make a folder on "
            "each, put\n"
            "the certificate (gradwire.crt) of every machine into allowed/ of every folder, as NAME.crt, and rank 0's\n"
            "into rendezvous.crt.\n"
            "For gradwire server --keys DIR each client has a key of its own, made with --client. To shut a client\n"
            "out, remove SERVERDIR/allowed/NAME.crt: within two seconds its connection ends, and it does not come in\n"
            "again. The server's own key lets nobody in.\n"
            "If you have a CA of your own, its certificates in DIR/ca.crt take the place of DIR/allowed\n"
            "(docs/clusters.md).\n"
            "gradwire.pem is the secret key, for this machine's user alone (mode 600). An existing key is never\n"
            "replaced.",
        .example =
            "gradwire keys new job-keys\n  gradwire launch -n 4 -- train --net lenet --codec ternary --keys job-keys\n"
            "  gradwire keys new server-keys\n"
            "  gradwire keys new client-keys --client anna --of server-keys",
        TOOL_OPTIONS(options),
        .min_args = 2,
        .max_args = 2,
        .args = "the word new, and a folder",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (strcmp(argv[1], "new") != 0)
        return tool_wrong_use("'%s' is nothing to do with keys; 'gradwire keys new DIR' makes them", argv[1]);
    if (!client != !server)
        return tool_wrong_use("--client NAME and --of SERVERDIR go together, and %s is missing",
                              client ? "--of" : "--client");
    TOOL_TRY(tool_exit_status(gw_keys_new(argv[2], server, client), NULL));
    if (client)
        tool_note("keys are in %s, for %s alone: take the folder there by a safe way, and keep gradwire.pem "
                  "secret; %s/allowed/%s.crt lets it in",
                  argv[2], client, server, client);
    else
        tool_note("keys are in %s; for a job, copy the folder to every machine of it; for a server, keep it there, and "
                  "make keys for its clients (--client NAME --of %s); keep gradwire.pem secret",
                  argv[2], argv[2]);
    return TOOL_DONE;
}
