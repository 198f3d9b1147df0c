/* gradwire advise: says which codec and plan make the shortest step on the machine and link of a profile, floats
 * included, among codecs that are known to lose little accuracy. */
#include "codec/state.h"
#include "plan/advise.h"
#include "plan/profile.h"
#include "base/quote.h"
#include "base/spec.h"
#include "profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The codec's specification. Codecs are numbered as in gw_advise. */
static const char *spec_of(const tool_profile *p, uint32_t codec)
{
    return codec < p->profile.n_codecs ? p->codecs[codec].spec : "none";
}

/* Infinite: no time at all, or less than can be told. */
static double bits_per_second(double ms_per_byte)
{
    return ms_per_byte > 0 ? 8000 / ms_per_byte : INFINITY;
}

/* A bandwidth in the unit that suits it. */
static const char *bandwidth_text(double bits, int digits, char text[32])
{
    if (isinf(bits))
        snprintf(text, 32, "any bandwidth");
    else
        snprintf(text, 32, "%.*g %cbit/s", digits, bits / (bits >= 1e9 ? 1e9 : 1e6), bits >= 1e9 ? 'G' : 'M');
    return text;
}

/* "pays below": the fastest link on which the codec still pays. */
static void print_break_even(const gw_codec_advice *one)
{
    char text[32];
    printf("%16s", isinf(one->pays_from_ms_per_byte)
                       ? "never"
                       : bandwidth_text(bits_per_second(one->pays_from_ms_per_byte), 3, text));
}

/* By how much the profile's model was off what the probe measured, as a share. NAN: the profile does not say. */
static double off_by(const tool_profile *p, uint32_t codec)
{
    return codec < p->profile.n_codecs ? p->off_by[codec] : NAN;
}

/* Finds what each codec cost in trainings, by its number: points of accuracy. Floats cost none. NAN: nobody knows. */
static gw_status find_lost(const tool_profile *p, const gw_advice *advice, double *lost)
{
    for (uint32_t c = 0; c < p->profile.n_codecs; c++) {
        gw_codec *codec;
        lost[c] = NAN;
        gw_status status = gw_codec_parse(NULL, p->codecs[c].spec, &codec);
        if (status == GW_OK)
            status = gw_codec_lost(codec, &lost[c]);
        gw_codec_destroy(codec);
        if (status == GW_ERR_MEMORY)
            return status;
    }
    lost[advice->floats.codec] = 0;
    return GW_OK;
}

/* The shortest step of a codec that pays and that is known to lose at most so much; else that of floats. */
static const gw_codec_advice *take(const gw_advice *advice, const double *lost, double most_lost)
{
    for (uint32_t i = 0; i < advice->n_codecs; i++)
        if (advice->codecs[i].pays && (isinf(most_lost) || lost[advice->codecs[i].codec] <= most_lost))
            return &advice->codecs[i];
    return &advice->floats;
}

/* Says what to take, and what would be faster. */
static void print_choice(const tool_profile *p, const gw_advice *advice, const double *lost, double most_lost)
{
    const gw_codec_advice *taken = take(advice, lost, most_lost), *fastest = &advice->codecs[0];
    const double points = lost[fastest->codec];
    if (taken->pays)
        printf("\nTake %s with --plan exact: a step takes %.3f ms in place of %.3f.\n",
               gw_quote(spec_of(p, taken->codec)).text, taken->step_ms, advice->floats.step_ms);
    else if (!fastest->pays)
        printf("\nTake none: no codec makes the step shorter by more than a thousandth.\n");
    else
        printf("\nTake none: no codec that makes the step shorter is known to lose at most %g points of "
               "accuracy.\n",
               most_lost);
    const double off = fmax(off_by(p, taken->codec), off_by(p, advice->floats.codec));
    if (taken->pays && taken->step_ms > (1 - off) * advice->floats.step_ms)
        printf("That gain is less than what the model was off by when the profile was measured (%.1f %%). Replay it "
               "first: gradwire bench exchange --profile.\n",
               100 * off);
    if (!fastest->pays || taken == fastest)
        return;
    printf("%s would take %.3f ms, ", gw_quote(spec_of(p, fastest->codec)).text, fastest->step_ms);
    if (isnan(points))
        printf("but nobody has measured what it costs in accuracy. --lost any takes it too.\n");
    else
        printf("but lost %.2f points of accuracy in a training. --lost %.2f takes it too.\n", points, points);
}

static int print_text(const tool_profile *p, const gw_advice *advice, const double *lost, double most_lost)
{
    const gw_profile_link *link = &p->profile.link;
    printf("%-36s %9s %7s %7s %12s %9s %16s %6s\n", "codec, with its exact plan", "step, ms", "off by", "groups",
           "bytes", "speed-up", "pays below", "lost");
    for (uint32_t i = 0; i < advice->n_codecs; i++) {
        const gw_codec_advice *one = &advice->codecs[i];
        char off[16] = "-", points[16] = "?";
        if (!isnan(off_by(p, one->codec)))
            snprintf(off, sizeof off, "%.1f%%", 100 * off_by(p, one->codec));
        if (!isnan(lost[one->codec]))
            snprintf(points, sizeof points, "%.2f", lost[one->codec]);
        printf("%-36s %9.3f %7s %7u %12.0f %8.2fx ", gw_quote(spec_of(p, one->codec)).text, one->step_ms, off,
               one->n_groups, one->bytes, one->speedup);
        if (one->codec == advice->floats.codec)
            printf("%16s", "-");
        else
            print_break_even(one);
        printf(" %6s\n", points);
    }
    print_choice(p, advice, lost, most_lost);
    char bandwidth[32];
    printf(
        "\n\"lost\": points of test accuracy, the most of the trainings that gradwire codecs lists; ?: not measured. "
        "They had SGD. Other optimizers can lose more with all but bf16 and f16: docs/accuracy.md.\n");
    printf("Assumed: %u members; compression runs %s, all else equal.\n"
           "A group takes %.4g ms on the link, and %.4g ms for a million bytes, up plus down (as if at %s).\n"
           "The bandwidth in \"pays below\" is meant likewise. Bytes are of a step, up plus down.\n"
           "\"off by\": the median by which the model was off the exchanges that the probe measured.\n",
           link->members, p->compress == GW_COMPRESS_INLINE ? "inline" : "beside backward", link->alpha_ms,
           1e6 * link->ms_per_byte, bandwidth_text(bits_per_second(link->ms_per_byte), 4, bandwidth));
    if (advice->assumed_floats)
        printf("The profile has no codec none: floats are taken to cost the link's time alone.\n");
    return tool_finish_output();
}

static int print_json(const tool_profile *p, const gw_advice *advice, const double *lost, double most_lost)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < advice->n_codecs; i++) {
        const gw_codec_advice *one = &advice->codecs[i];
        const bool floats = one->codec == advice->floats.codec;
        json_t *row = json_pack("{s:s, s:f, s:i, s:f, s:f}", "codec", spec_of(p, one->codec), "step_ms", one->step_ms,
                                "groups", (int)one->n_groups, "bytes", one->bytes, "speedup", one->speedup);
        json_object_set_new(row, "pays", json_boolean(one->pays));
        json_object_set_new(row, "points_lost", gw_json_real(lost[one->codec]));
        const double from = floats ? INFINITY : one->pays_from_ms_per_byte;
        json_object_set_new(row, "pays_from_ms_per_byte", gw_json_real(from));
        json_object_set_new(row, "pays_below_bits_per_second",
                            gw_json_real(isinf(from) ? INFINITY : bits_per_second(from)));
        json_object_set_new(row, "off_by", gw_json_real(off_by(p, one->codec)));
        json_array_append_new(rows, row);
    }
    const gw_codec_advice *taken = take(advice, lost, most_lost);
    return tool_print_json(json_pack("{s:s, s:s, s:f, s:f, s:f, s:b, s:o, s:{s:s, s:i, s:f, s:f, s:b, s:o}}", "codec",
                                     spec_of(p, taken->codec), "plan", "exact", "step_ms", taken->step_ms,
                                     "step_ms_floats", advice->floats.step_ms, "speedup", taken->speedup, "pays",
                                     taken->pays, "codecs", rows, "assumed", "compress", gw_compress_name(p->compress),
                                     "members", (int)p->profile.link.members, "alpha_ms", p->profile.link.alpha_ms,
                                     "ms_per_byte", p->profile.link.ms_per_byte, "floats", advice->assumed_floats,
                                     "most_points_lost", gw_json_real(most_lost)));
}

static int parse_lost(const char *text, double *out)
{
    *out = INFINITY;
    if (strcmp(text, "any") == 0 || gw_spec_number(text, 0, 100, out))
        return 0;
    return tool_wrong_use("--lost %s: it takes points of accuracy from 0 to 100, or any", text);
}

int gw_cmd_advise(int argc, char **argv)
{
    const char *path = NULL, *compress = NULL, *lost_text = "0.3";
    double most_lost;
    bool json = false;
    const tool_option options[] = {
        {"--profile", "FILE", "what was measured: a PROFILE.json of gradwire probe", TOOL_TEXT, &path},
        {"--compress", "HOW", TOOL_COMPRESS_HELP, TOOL_TEXT, &compress},
        {"--lost", "POINTS",
         "take only codecs that lost at most so many points of accuracy in trainings (default 0.3); any: judge time "
         "only",
         TOOL_TEXT, &lost_text},
        {"--json", NULL,
         "one JSON object on standard output; pays_below_bits_per_second null: it never pays, or on any "
         "link (pays_from_ms_per_byte is 0 then)",
         TOOL_FLAG, &json},
    };
    const tool_usage usage = {
        .synopsis = "advise --profile PROFILE.json [--json]",
        .about = "Compares all codecs of a profile, each with its best plan, and says which to take. The answer may be "
                 "\"none\": don't compress. Says also below which bandwidth each codec begins to pay, and by how much "
                 "the model was off when the profile was measured, and what each codec lost in trainings, in points of "
                 "accuracy (" TOOL_CHOOSING ").",
        .example = "gradwire advise --profile PROFILE.json",
        TOOL_OPTIONS(options),
        .args = "advise takes no files but --profile",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!path)
        return tool_wrong_use("--profile is missing; gradwire probe measures one");
    tool_profile profile;
    TOOL_TRY(parse_lost(lost_text, &most_lost));
    TOOL_TRY(tool_profile_read(path, compress, &profile));
    static gw_advice advice;
    double lost[GW_PLAN_MAX_CODECS + 1]; /* floats may not be in the profile */
    int status = tool_exit_status(gw_advise(NULL, &profile.profile, profile.compress, &advice), path);
    if (status == TOOL_DONE)
        status = tool_exit_status(find_lost(&profile, &advice, lost), path);
    if (status == TOOL_DONE)
        status = (json ? print_json : print_text)(&profile, &advice, lost, most_lost);
    tool_profile_free(&profile);
    return status;
}
