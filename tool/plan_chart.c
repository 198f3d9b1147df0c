/* Draws the timeline of a step: what backward, the encoder and the link do, group by group. */
#include "plan_chart.h"
#include "svg.h"
#include "tool.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 960, LEFT = 90, RIGHT = 30, TOP = 60, AXIS = 40, TEXT = 12 };
enum { N_LANES = 3, LANE = 26, GAP = 8, BETWEEN = 46 };

/* The range of the axis. Below it, the ticks could not be printed as numbers. */
#define LEAST_MS 1e-9
#define MOST_MS 1e12

#define GREY "#8c8c8c"
#define BLACK "#000000"

static const char *const lanes[N_LANES] = {"backward", "encode", "link"};

struct chart {
    tool_svg svg;
    double ms; /* how many milliseconds the axis shows */
};

static double x_of(const struct chart *c, double ms)
{
    return LEFT + ms / c->ms * (WIDTH - LEFT - RIGHT);
}

/* Neighbours get different colours. Black is kept for text. */
static const char *colour_of(uint32_t group)
{
    return tool_svg_colour(1 + group % 6);
}

static void bar(struct chart *c, double y, int lane, double begin, double end, const char *colour)
{
    if (end > begin)
        tool_svg_rectangle(&c->svg, x_of(c, begin), y + lane * (LANE + GAP), fmax(0.5, x_of(c, end) - x_of(c, begin)),
                           LANE, colour);
}

/* The bar of a group, with its number in the middle if there is room for it. */
static void group_bar(struct chart *c, double y, int lane, double begin, double end, uint32_t group)
{
    char text[16];
    bar(c, y, lane, begin, end, colour_of(group));
    if (x_of(c, end) - x_of(c, begin) < 16)
        return;
    snprintf(text, sizeof text, "%u", group);
    tool_svg_text(&c->svg, (x_of(c, begin) + x_of(c, end)) / 2, y + lane * (LANE + GAP) + LANE * 0.7, TEXT, BLACK,
                  TOOL_SVG_MIDDLE, text);
}

static void draw_step(struct chart *c, const gw_profile *p, const tool_timeline *step, double y)
{
    char text[160];
    snprintf(text, sizeof text, "%s: %.2f ms, groups: %u", step->label, step->step_ms, step->n_groups);
    tool_svg_text(&c->svg, LEFT, y - 10, TEXT + 1, BLACK, TOOL_SVG_START, text);
    for (int lane = 0; lane < N_LANES; lane++)
        tool_svg_text(&c->svg, LEFT - 8, y + lane * (LANE + GAP) + LANE * 0.7, TEXT, BLACK, TOOL_SVG_END, lanes[lane]);
    bar(c, y, 0, 0, p->forward_ms, GREY);
    double begin = p->forward_ms;
    for (uint32_t g = 0; g < step->n_groups; g++) {
        const gw_group_times *t = &step->times[g];
        double backward = 0;
        for (uint32_t l = t->first_layer; l < t->first_layer + t->n_layers; l++)
            backward += p->layers[l].backward_ms;
        /* With inline compression, backward waits for the encoder. Its bar ends when the group is ready. */
        begin = fmax(begin, t->ready - backward);
        group_bar(c, y, 0, begin, t->ready, g);
        group_bar(c, y, 1, t->encode_begin, t->encode_end, g);
        group_bar(c, y, 2, t->send_begin, t->send_end, g);
        const double x = x_of(c, t->arrived), bottom = y + N_LANES * (LANE + GAP);
        tool_svg_line(&c->svg, x, bottom - LANE - GAP, x, bottom - GAP + 5, colour_of(g), 2);
        begin = t->ready;
    }
    tool_svg_line(&c->svg, x_of(c, step->step_ms), y - 4, x_of(c, step->step_ms), y + N_LANES * (LANE + GAP), BLACK, 1);
}

/* 1, 2 or 5 times a power of ten, so that the axis has about ten ticks. */
static double tick_of(double ms)
{
    const double power = pow(10, floor(log10(ms / 8)));
    return ms / power <= 16 ? 2 * power : ms / power <= 40 ? 5 * power : 10 * power;
}

static void draw_axis(struct chart *c, double y)
{
    char text[32];
    const double tick = tick_of(c->ms);
    tool_svg_line(&c->svg, LEFT, y, WIDTH - RIGHT, y, BLACK, 1);
    for (double ms = 0; ms <= c->ms; ms += tick) {
        tool_svg_line(&c->svg, x_of(c, ms), y, x_of(c, ms), y + 5, BLACK, 1);
        snprintf(text, sizeof text, "%g", ms);
        tool_svg_text(&c->svg, x_of(c, ms), y + 18, TEXT, BLACK, TOOL_SVG_MIDDLE, text);
    }
    tool_svg_text(&c->svg, WIDTH - RIGHT, y + 34, TEXT, BLACK, TOOL_SVG_END, "milliseconds from the step's begin");
}

int tool_plan_chart(const gw_profile *profile, gw_compress compress, const char *title, const tool_timeline *steps,
                    size_t n_steps, const char *path)
{
    struct chart c = {.ms = 0};
    char about[256];
    const double one = N_LANES * (LANE + GAP) + BETWEEN;
    for (size_t i = 0; i < n_steps; i++)
        c.ms = fmax(c.ms, steps[i].step_ms);
    if (!(c.ms >= LEAST_MS && c.ms <= MOST_MS))
        return tool_fail("the longest step takes %g ms; steps of %g to %g ms can be drawn", c.ms, LEAST_MS, MOST_MS);
    const double height = TOP + (double)n_steps * one + AXIS + 10;
    snprintf(about, sizeof about, "Timeline of a training step: %s", title);
    TOOL_TRY(tool_svg_begin(&c.svg, WIDTH, height, about));
    tool_svg_text(&c.svg, LEFT, 24, TEXT + 4, BLACK, TOOL_SVG_START, title);
    tool_svg_text(&c.svg, LEFT, 42, TEXT, BLACK, TOOL_SVG_START,
                  compress == GW_COMPRESS_INLINE
                      ? "Grey is forward; numbers are groups. Backward waits while a group is measured and encoded."
                      : "Grey is forward; numbers are groups. Groups are measured and encoded beside backward.");
    for (size_t i = 0; i < n_steps; i++)
        draw_step(&c, profile, &steps[i], TOP + 24 + (double)i * one);
    draw_axis(&c, TOP + (double)n_steps * one + 4);
    return tool_svg_write(&c.svg, path);
}
