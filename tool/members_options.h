/* The options that say how members reach each other. All commands with members have the same ones. */
#ifndef GRADWIRE_MEMBERS_OPTIONS_H
#define GRADWIRE_MEMBERS_OPTIONS_H

#include "members/members.h"
#include "tool.h"

/* Help of these options, made from the schemes. */
struct tool_links_help {
    char names[64]; /* "local|tcp|..." */
    char text[800]; /* of --link */
    /* "tcp, servers: which member ..." */
    char rank[200], rendezvous[200], advertise[200], keys[200], insecure[200], spin[200];
};

/* alone: also schemes whose members never meet each other. */
void tool_describe_links(bool alone, struct tool_links_help *help);

/* Lines of a command's table of options. who: struct gw_members_options *; help: struct tool_links_help *. */
#define TOOL_MEMBERS_OPTIONS(who, help)                                                                                \
    {"--link", (help)->names, (help)->text, TOOL_TEXT, &(who)->link, .run = TOOL_RUN_START},                           \
        {"--rank", "R", (help)->rank, TOOL_U32, &(who)->rank, 0, 1023},                                                \
        {"--rendezvous", "HOST:PORT", (help)->rendezvous, TOOL_TEXT, &(who)->request.rendezvous},                      \
        {"--advertise", "HOST", (help)->advertise, TOOL_TEXT, &(who)->request.advertise},                              \
        {"--keys", "DIR", (help)->keys, TOOL_TEXT, &(who)->request.keys, .run = TOOL_RUN_PATH},                        \
        {"--spin-us", "N", (help)->spin, TOOL_U32, &(who)->request.spin_us, 0, 1000000, .run = TOOL_RUN_KEEPS},        \
    {                                                                                                                  \
        "--insecure", NULL, (help)->insecure, TOOL_FLAG, &(who)->request.insecure, .run = TOOL_RUN_KEEPS               \
    }

/* Chooses a link if none is given, and on a link of threads four members if their number is not given. */
int tool_choose_members(struct gw_members_options *who);

/* For gw_link_request.log: notes a line. */
void tool_show_log(const char *line, void *user);

#endif
