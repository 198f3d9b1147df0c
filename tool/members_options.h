/* The options that say how members reach each other. All commands with members have the same ones. */
#ifndef GRADWIRE_MEMBERS_OPTIONS_H
#define GRADWIRE_MEMBERS_OPTIONS_H

#include "members/members.h"
#include "tool.h"

/* Help of --link, made from the schemes. */
struct tool_links_help {
    char names[64]; /* "local|tcp|..." */
    char text[800];
};

/* alone: also schemes whose members never meet each other. */
void tool_describe_links(bool alone, struct tool_links_help *help);

/* Lines of a command's table of options. who: struct gw_members_options *; help: struct tool_links_help *. */
#define TOOL_MEMBERS_OPTIONS(who, help)                                                                                \
    {"--link", (help)->names, (help)->text, TOOL_TEXT, &(who)->link, 0, 0},                                            \
        {"--rank", "R",          "tcp, servers: which member this is, from 0 (default: what RANK or Slurm says)",      \
         TOOL_U32, &(who)->rank, 0,                                                                                    \
         1023},                                                                                                        \
        {"--rendezvous",                                                                                               \
         "HOST:PORT",                                                                                                  \
         "tcp: where rank 0 listens and all meet (default: MASTER_ADDR:MASTER_PORT)",                                  \
         TOOL_TEXT,                                                                                                    \
         &(who)->rendezvous,                                                                                           \
         0,                                                                                                            \
         0},                                                                                                           \
        {"--advertise",                                                                                                \
         "HOST",                                                                                                       \
         "tcp: where the others reach this member (default: its address towards rank 0)",                              \
         TOOL_TEXT,                                                                                                    \
         &(who)->advertise,                                                                                            \
         0,                                                                                                            \
         0},                                                                                                           \
        {"--keys",                                                                                                     \
         "DIR",                                                                                                        \
         "tcp, servers: encrypt everything, and let in only members whose key is listed in this folder (gradwire "     \
         "keys)",                                                                                                      \
         TOOL_TEXT,                                                                                                    \
         &(who)->keys,                                                                                                 \
         0,                                                                                                            \
         0},                                                                                                           \
    {                                                                                                                  \
        "--insecure", NULL, "tcp: without keys, let in anybody from other machines", TOOL_FLAG, &(who)->insecure, 0, 0 \
    }

/* Sets the number of members if the command line says none: four threads, or as many as the launcher started. */
void tool_default_members(struct gw_members_options *who);

#endif
