/* gradwire advise: says which codec and plan make the shortest step on the machine and link of a profile, floats
 * included. It judges time only. */
#include "base/quote.h"
#include "profile.h"

#include <math.h>
#include <stdio.h>

/* The codec's specification. Codecs are numbered as in gw_advise. */
static const char *spec_of(const tool_profile *p, uint32_t codec)
{
    return codec < p->profile.n_codecs ? p->codecs[codec].spec : "none";
}

static double bits_per_second(double ms_per_byte)
{
    return ms_per_byte > 0 ? 8000 / ms_per_byte : INFINITY;
}

/* "pays below": the fastest link on which the codec still pays. */
static void print_break_even(const gw_codec_advice *one)
{
    const double bits = bits_per_second(one->pays_from_ms_per_byte);
    if (isinf(one->pays_from_ms_per_byte))
        printf("%16s", "never");
    else if (isinf(bits))
        printf("%16s", "any bandwidth");
    else if (bits >= 1e9)
        printf("%9.3g Gbit/s", bits / 1e9);
    else
        printf("%9.3g Mbit/s", bits / 1e6);
}

/* By how much the profile's model was off what the probe measured, as a share. NAN: the profile does not say. */
static double off_by(const tool_profile *p, uint32_t codec)
{
    return codec < p->profile.n_codecs ? p->off_by[codec] : NAN;
}

static const char *advised(const tool_profile *p, const gw_advice *advice)
{
    return spec_of(p, advice->pays ? advice->codecs[0].codec : advice->floats.codec);
}

static int print_text(const tool_profile *p, gw_compress compress, const gw_advice *advice)
{
    const gw_profile_link *link = &p->profile.link;
    printf("%-36s %9s %7s %7s %12s %9s %16s\n", "codec, with its exact plan", "step, ms", "off by", "groups", "bytes",
           "speed-up", "pays below");
    for (uint32_t i = 0; i < advice->n_codecs; i++) {
        const gw_codec_advice *one = &advice->codecs[i];
        char off[16] = "-";
        if (!isnan(off_by(p, one->codec)))
            snprintf(off, sizeof off, "%.1f%%", 100 * off_by(p, one->codec));
        printf("%-36s %9.3f %7s %7u %12.0f %8.2fx ", gw_quote(spec_of(p, one->codec)).text, one->step_ms, off,
               one->n_groups, one->bytes, one->speedup);
        if (one->codec == advice->floats.codec)
            printf("%16s", "-");
        else
            print_break_even(one);
        putchar('\n');
    }
    if (advice->pays)
        printf("\nTake %s with --plan exact: a step takes %.3f ms in place of %.3f.\n",
               gw_quote(advised(p, advice)).text, advice->codecs[0].step_ms, advice->floats.step_ms);
    else
        printf("\nTake none: no codec makes the step shorter by more than a thousandth.\n");
    const double off = fmax(off_by(p, advice->codecs[0].codec), off_by(p, advice->floats.codec));
    if (advice->pays && advice->codecs[0].step_ms > (1 - off) * advice->floats.step_ms)
        printf("That gain is less than what the model was off by when the profile was measured (%.1f %%). Replay it "
               "first: "
               "gradwire bench exchange --profile.\n",
               100 * off);
    printf("This judges time only. What a codec costs in accuracy: " TOOL_CHOOSING ".\n");
    printf("\nAssumed: %u members; compression runs %s, all else equal.\n"
           "A group takes %.4g ms on the link, and %.4g ms for a million bytes, up plus down (as if at %.4g Mbit/s).\n"
           "The bandwidth in \"pays below\" is meant likewise. Bytes are of a step, up plus down.\n"
           "\"off by\": the median by which the model was off the exchanges that the probe measured.\n",
           link->members, compress == GW_COMPRESS_INLINE ? "inline" : "beside backward", link->alpha_ms,
           1e6 * link->ms_per_byte, bits_per_second(link->ms_per_byte) / 1e6);
    if (advice->assumed_floats)
        printf("The profile has no codec none: floats are taken to cost the link's time alone.\n");
    return tool_finish_output();
}

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static int print_json(const tool_profile *p, gw_compress compress, const gw_advice *advice)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < advice->n_codecs; i++) {
        const gw_codec_advice *one = &advice->codecs[i];
        const bool floats = one->codec == advice->floats.codec;
        json_t *row = json_pack("{s:s, s:f, s:i, s:f, s:f}", "codec", spec_of(p, one->codec), "step_ms", one->step_ms,
                                "groups", (int)one->n_groups, "bytes", one->bytes, "speedup", one->speedup);
        json_object_set_new(row, "pays", json_boolean(!floats && one->step_ms < advice->floats.step_ms));
        json_object_set_new(row, "pays_from_ms_per_byte",
                            floats ? json_null() : number_or_null(one->pays_from_ms_per_byte));
        json_object_set_new(row, "pays_below_bits_per_second",
                            floats || isinf(one->pays_from_ms_per_byte)
                                ? json_null()
                                : number_or_null(bits_per_second(one->pays_from_ms_per_byte)));
        json_object_set_new(row, "off_by", number_or_null(off_by(p, one->codec)));
        json_array_append_new(rows, row);
    }
    const double step_ms = advice->pays ? advice->codecs[0].step_ms : advice->floats.step_ms;
    return tool_print_json(json_pack("{s:s, s:s, s:f, s:f, s:f, s:b, s:o, s:{s:s, s:i, s:f, s:f, s:b}}", "codec",
                                     advised(p, advice), "plan", "exact", "step_ms", step_ms, "step_ms_floats",
                                     advice->floats.step_ms, "speedup",
                                     step_ms > 0 ? advice->floats.step_ms / step_ms : 1.0, "pays", advice->pays,
                                     "codecs", rows, "assumed", "compress", gw_compress_name(compress), "members",
                                     (int)p->profile.link.members, "alpha_ms", p->profile.link.alpha_ms, "ms_per_byte",
                                     p->profile.link.ms_per_byte, "floats", advice->assumed_floats));
}

int gw_cmd_advise(int argc, char **argv)
{
    const char *path = NULL, *compress_text = NULL;
    bool json = false;
    const tool_option options[] = {
        {"--profile", "FILE", "what was measured: a PROFILE.json of gradwire probe", TOOL_TEXT, &path, 0, 0},
        {"--compress", "HOW", TOOL_COMPRESS_HELP, TOOL_TEXT, &compress_text, 0, 0},
        {"--json", NULL,
         "one JSON object on standard output; pays_below_bits_per_second null: it never pays, or on any "
         "link (pays_from_ms_per_byte is 0 then)",
         TOOL_FLAG, &json, 0, 0},
    };
    const tool_usage usage = {
        .synopsis = "advise --profile PROFILE.json [--json]",
        .about = "Compares all codecs of a profile, each with its best plan, and says which to take. The answer may be "
                 "\"none\": don't compress. Says also below which bandwidth each codec begins to pay, and by how much "
                 "the model was off when the profile was measured. It judges time only: what a codec costs in accuracy "
                 "is in " TOOL_CHOOSING ".",
        .example = "gradwire advise --profile PROFILE.json",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .args = "advise takes no files but --profile",
    };
    int status = tool_parse(&usage, &argc, argv);
    if (status != TOOL_PARSED)
        return status;
    if (!path)
        return tool_wrong_use("--profile is missing; gradwire probe measures one");
    gw_compress compress = 0;
    if (compress_text && (status = tool_parse_compress(compress_text, &compress)) != 0)
        return status;
    tool_profile profile;
    if (tool_profile_read(path, &profile) != 0)
        return TOOL_FAILED;
    if (!compress_text)
        compress = profile.compress;
    static gw_advice advice;
    gw_status made = gw_advise(NULL, &profile.profile, compress, &advice);
    status = made < 0 ? tool_fail_status(made, path)
             : json   ? print_json(&profile, compress, &advice)
                      : print_text(&profile, compress, &advice);
    tool_profile_free(&profile);
    return status;
}
