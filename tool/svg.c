/* Draws charts as SVG by plain text: shapes, escaped text, and a plot with logarithmic axes. */
#include "svg.h"
#include "base/quote.h"
#include "tool.h"

#include <math.h>
#include <stdlib.h>

static const char *const colours[] = {"#000000", "#0072b2", "#d55e00", "#009e73",
                                      "#cc79a7", "#e69f00", "#56b4e9", "#f0e442"};
enum { N_COLOURS = sizeof colours / sizeof *colours };

#define INK "#1f2328"
#define FAINT_INK "#59636e"
#define GRID "#d1d9e0"

const char *tool_svg_colour(size_t i)
{
    return colours[i == 0 ? 0 : 1 + (i - 1) % (N_COLOURS - 1)];
}

/* Writes entities for what would end a text or an attribute, or begin a tag. XML has no control characters. */
static void put_escaped(tool_svg *svg, const char *text)
{
    static const char *const entities[128] = {['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;"};
    for (size_t n; *text; text += n) {
        const unsigned char first = (unsigned char)*text;
        const size_t bytes = first < 0x80 ? 1 : gw_shown_bytes(text);
        n = bytes ? bytes : 1;
        if (bytes != 1)
            fwrite(bytes ? text : "?", 1, n, svg->file);
        else if (entities[first])
            fputs(entities[first], svg->file);
        else
            fputc(first < ' ' ? ' ' : first, svg->file);
    }
}

int tool_svg_begin(tool_svg *svg, double width, double height, const char *about)
{
    *svg = (tool_svg){0};
    svg->file = tool_text_open(&svg->text);
    if (!svg->file)
        return tool_fail("out of memory for a chart");
    fprintf(svg->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" role=\"img\" "
            "aria-label=\"",
            width, height);
    put_escaped(svg, about);
    fprintf(svg->file, "\">\n<rect width=\"%g\" height=\"%g\" rx=\"8\" fill=\"#ffffff\"/>\n", width, height);
    return 0;
}

void tool_svg_rectangle(tool_svg *svg, double x, double y, double width, double height, const char *colour)
{
    fprintf(svg->file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width,
            height, colour);
}

void tool_svg_line(tool_svg *svg, double x1, double y1, double x2, double y2, const char *colour, double width)
{
    fprintf(svg->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%g\"/>\n",
            x1, y1, x2, y2, colour, width);
}

void tool_svg_text(tool_svg *svg, double x, double y, double size, const char *colour, tool_svg_anchor anchor,
                   const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end", "middle"};
    fprintf(svg->file, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%g\" fill=\"%s\" text-anchor=\"%s\"", x, y, size,
            colour, anchors[anchor]);
    if (anchor == TOOL_SVG_UPWARDS)
        fprintf(svg->file, " transform=\"rotate(-90 %.1f %.1f)\"", x, y);
    fputc('>', svg->file);
    put_escaped(svg, text);
    fputs("</text>\n", svg->file);
}

int tool_svg_write(tool_svg *svg, const char *path)
{
    fputs("</svg>\n", svg->file);
    size_t n_bytes;
    char *bytes = tool_text_close(svg->file, &svg->text, &n_bytes);
    const int status = bytes ? tool_write_file(path, bytes, n_bytes) : tool_fail("out of memory for a chart");
    free(bytes);
    *svg = (tool_svg){0};
    return status;
}

/* ---- plots --------------------------------------------------------------------------------------------- */

enum { WIDTH = 860, HEIGHT = 480, LEFT = 84, RIGHT = 30, TOP = 76, BOTTOM = 60 };

/* A logarithmic axis from one pixel to another. */
struct axis {
    double low, high; /* values */
    double from, to;  /* pixels */
};

static double pixel(const struct axis *axis, double value)
{
    return axis->from + (axis->to - axis->from) * log(value / axis->low) / log(axis->high / axis->low);
}

static void cover(struct axis *axis, const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        axis->low = fmin(axis->low, values[i]);
        axis->high = fmax(axis->high, values[i]);
    }
}

/* Draws powers of 10. If there are few, it draws 2 and 5 times them, too. */
static void draw_y_axis(tool_svg *svg, const struct axis *axis)
{
    const bool few = axis->high / axis->low < 2000;
    char text[32];
    for (int power = (int)floor(log10(axis->low)); power <= (int)ceil(log10(axis->high)); power++)
        for (int factor = 1; factor <= 5; factor = factor == 2 ? 5 : 2 * factor) {
            const double value = factor * pow(10, power), at = pixel(axis, value);
            if (factor == 4 || (factor > 1 && !few) || value < axis->low * 0.999 || value > axis->high * 1.001)
                continue;
            tool_svg_line(svg, LEFT, at, WIDTH - RIGHT, at, GRID, 1);
            snprintf(text, sizeof text, value < 1e6 ? "%.12g" : "%g", value);
            tool_svg_text(svg, LEFT - 8, at + 4, 12, FAINT_INK, TOOL_SVG_END, text);
        }
}

/* Marks the points themselves, if there is room for their numbers. */
static void draw_x_axis(tool_svg *svg, const struct axis *axis, const tool_svg_series *series)
{
    double last = -INFINITY;
    char text[32];
    for (size_t i = 0; i < series->n; i++) {
        const double at = pixel(axis, series->x[i]);
        tool_svg_line(svg, at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 5, FAINT_INK, 1);
        if (fabs(at - last) < 44)
            continue;
        snprintf(text, sizeof text, "%.12g", series->x[i]);
        tool_svg_text(svg, at, HEIGHT - BOTTOM + 20, 12, FAINT_INK, TOOL_SVG_MIDDLE, text);
        last = at;
    }
}

static void draw_series(tool_svg *svg, const tool_svg_series *series, const struct axis *x, const struct axis *y,
                        const char *colour)
{
    double previous[2] = {0};
    for (size_t i = 0; i < series->n; i++) {
        const double at[2] = {pixel(x, series->x[i]), pixel(y, series->y[i])};
        if (i > 0)
            tool_svg_line(svg, previous[0], previous[1], at[0], at[1], colour, 2.5);
        fprintf(svg->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", at[0], at[1], colour);
        previous[0] = at[0], previous[1] = at[1];
    }
}

int tool_svg_plot_logarithmic(const tool_svg_plot *plot, const char *path)
{
    struct axis x = {INFINITY, 0, LEFT + 14, WIDTH - RIGHT - 14}, y = {INFINITY, 0, HEIGHT - BOTTOM, TOP};
    tool_svg svg;
    for (size_t s = 0; s < plot->n_series; s++) {
        cover(&x, plot->series[s].x, plot->series[s].n);
        cover(&y, plot->series[s].y, plot->series[s].n);
    }
    /* An axis with a single value has no scale, so it gets a range. Lines do not touch the frame. */
    x.low *= x.low == x.high ? 0.9 : 1, x.high *= x.low == x.high ? 1.1 : 1;
    y.low /= 1.25, y.high *= 1.25;
    TOOL_TRY(tool_svg_begin(&svg, WIDTH, HEIGHT, plot->title));
    tool_svg_text(&svg, 20, 28, 17, INK, TOOL_SVG_START, plot->title);
    tool_svg_text(&svg, 20, 50, 13, FAINT_INK, TOOL_SVG_START, plot->subtitle);
    draw_y_axis(&svg, &y);
    draw_x_axis(&svg, &x, &plot->series[0]);
    tool_svg_line(&svg, LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, FAINT_INK, 1);
    tool_svg_text(&svg, 0.5 * (LEFT + WIDTH - RIGHT), HEIGHT - 16, 13, INK, TOOL_SVG_MIDDLE, plot->x_label);
    tool_svg_text(&svg, 22, 0.5 * (TOP + HEIGHT - BOTTOM), 13, INK, TOOL_SVG_UPWARDS, plot->y_label);
    for (size_t s = 0; s < plot->n_series; s++) {
        const double row = TOP + 18 + 20 * (double)s;
        draw_series(&svg, &plot->series[s], &x, &y, tool_svg_colour(s));
        tool_svg_rectangle(&svg, LEFT + 16, row - 9, 22, 10, tool_svg_colour(s));
        tool_svg_text(&svg, LEFT + 46, row, 13, INK, TOOL_SVG_START, plot->series[s].label);
    }
    return tool_svg_write(&svg, path);
}
