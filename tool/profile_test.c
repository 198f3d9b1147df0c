/* Tests profiles and clusters that are read from files: what is wrong there is named. */
#define _GNU_SOURCE /* nftw */
#include "profile.h"
#include "checks.h"
#include "said.h"

#include <string.h>

static const char profile[] =
    "{\"forward_ms\": 4, \"compress\": \"beside\", \"about\": {\"date\": \"a day\"},"
    " \"layers\": [{\"name\": \"conv\", \"elements\": 1000, \"backward_ms\": 3},"
    " {\"name\": \"fc\", \"elements\": 8000, \"backward_ms\": 1}],"
    " \"link\": {\"alpha_ms\": 1, \"ms_per_byte\": 0.25, \"members\": 4},"
    " \"codecs\": [{\"spec\": \"none\", \"compress_ms_fixed\": 0, \"compress_ms_per_element\": 0,"
    " \"decompress_ms_per_element\": 0, \"bytes_per_element\": 6}]}";
static const char cluster[] = "{\"gpus_per_machine\": 4, \"gpu_bandwidth\": 12e9, \"cpu_bandwidth\": 6e9,"
                              " \"network_latency_s\": 0.0005, \"network_bandwidth\": 125e6}";

struct change {
    const char *from, *to, *says; /* from NULL: `to` is the whole file */
};

/* Writes the file with a change of it. */
static void put_changed(const char *whole, const struct change *c)
{
    char changed[2000];
    const char *at = c->from ? strstr(whole, c->from) : NULL;
    assert_true(at || !c->from);
    if (at)
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - whole), whole, c->to, at + strlen(c->from));
    put_text("a.json", at ? changed : c->to);
}

/* A word that a terminal would obey. */
#define EVIL "\\u001b[31m\\n"

TEST_BETWEEN(bad_profiles, make_folder, clean_up)
{
    static const struct change changes[] = {
        {NULL, "", "is no profile"},
        {"}]}", "}]}x", "is no profile"},
        {"\"forward_ms\": 4", "\"forward_ms\": NaN", "is no profile"},
        {"\"forward_ms\": 4", "\"forward_ms\": 1e999", "is no profile"},
        {NULL, "[]", "has no \"layers\"; a profile is made by gradwire probe"},
        {NULL, "{\"layers\": []}", "0 layers"},
        {NULL, "{\"layers\": 7}", "must be a list"},
        {NULL, "{\"forward_ms\": 1, \"layers\": [5]}", "layer 0 must be an object { ... } with the fields name, "},
        {"\"forward_ms\": 4", "\"forward_ms\": \"4\"", "\"forward_ms\" must be a number"},
        {"beside", EVIL, "is '\\x1b[31m\\x0a', and must be inline or beside"},
        {"\"beside\"", "3", "\"compress\" must be \"inline\" or \"beside\""},
        {"8000", "1.5", "layer 1: \"elements\" is 1.5, and must be a whole number"},
        {"\"fc\"", "3", "must be a text"},
        {"\"backward_ms\": 1", "\"backward\": 1", "is \"backward_ms\" meant?"},
        {"\"alpha_ms\": 1, ", "", "\"link\" has no \"alpha_ms\""},
        {"\"link\"", "\"links\"", "has no \"link\""},
        {"\"members\": 4", "\"members\": 4, \"latency_ms\": -1e16", "\"latency_ms\" is -1e+16; it is 1e+15 at most"},
        {"element\": 6", "element\": 1e308", "\"bytes_per_element\" is 1e+308; it is"},
        {"element\": 6", "element\": 6, \"off_by\": -0.5", "\"off_by\" is -0.5"},
        {"\"fc\"", "\"conv\"", "two layers have the name \"conv\""}};
    tool_profile p;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        put_changed(profile, &changes[i]);
        const int before = said_begin(), status = tool_profile_read(in("a.json"), NULL, &p);
        const char *said = said_end(before);
        CHECK(status == TOOL_FAILED && !p.root, "case %zu: %d", i, status);
        CHECK(strstr(said, changes[i].says) && (strstr(said, "a.json") || i == 9), "case %zu: %s", i, said);
    }
    put_text("a.json", profile);
    for (int given = 0; given < 2; given++) {
        assert_int_equal(tool_profile_read(in("a.json"), given ? "inline" : NULL, &p), TOOL_DONE);
        assert_int_equal(p.compress, given ? GW_COMPRESS_INLINE : GW_COMPRESS_BESIDE);
        assert_true(p.profile.forward_ms == 4 && p.profile.n_layers == 2 && p.profile.n_codecs == 1);
        assert_true(p.layers[1].n_elems == 8000 && p.layers[1].backward_ms == 1 && p.codecs[0].bytes_per_element == 6);
        assert_true(p.profile.link.ms_per_byte == 0.25 && p.profile.link.members == 4);
        tool_profile_free(&p);
    }
}

TEST_BETWEEN(bad_clusters, make_folder, clean_up)
{
    static const struct change changes[] = {{"6e9", "6e9, \"gpu_bandwidth\": 1", "duplicate"},
                                            {NULL, "[1]", "must be an object"},
                                            {"6e9", "6e9, \"colour\": 1",
                                             "a field \"colour\", which is unknown; the fields are gpus_per_machine, "},
                                            {"125e6", "-1", "network_bandwidth is -1, and must be a number above 0"},
                                            {": 4", ": 2.5", "whole number from 1 to 1024"}};
    static char blanks[70001];
    gw_cluster c;
    const gw_cluster_info *info;
    memset(blanks, ' ', sizeof blanks - 1);
    for (size_t i = 0; i <= sizeof changes / sizeof *changes; i++) {
        const bool long_one = i == sizeof changes / sizeof *changes;
        if (long_one)
            put_text("a.json", blanks);
        else
            put_changed(cluster, &changes[i]);
        const int before = said_begin(), status = tool_read_cluster(in("a.json"), &c, &info);
        const char *said = said_end(before);
        CHECK(status == TOOL_FAILED && strstr(said, long_one ? "65536 at most" : changes[i].says), "case %zu: %s", i,
              said);
        CHECK(strstr(said, "a.json"), "case %zu: %s", i, said);
    }
    put_text("a.json", cluster);
    assert_int_equal(tool_read_cluster(in("a.json"), &c, &info), TOOL_DONE);
    assert_true(!info && c.gpus_per_machine == 4 && c.network_bandwidth == 125e6);
}

RUN_TESTS("profile", NULL, NULL)
