/* Draws charts as SVG: shapes, text, and a plot with logarithmic axes. */
#ifndef GRADWIRE_SVG_H
#define GRADWIRE_SVG_H

#include "tool.h"

#include <stddef.h>
#include <stdio.h>

/* A drawing in memory. Lengths are in pixels, and y grows downwards. Text is escaped. */
typedef struct tool_svg {
    FILE *file;
    tool_text text; /* what the file writes to */
} tool_svg;

/* Colours that colour-blind people can tell apart too: Okabe and Ito, Color Universal Design, 2008. The first is black.
 * Past the last one they begin again after black. Static storage. */
const char *tool_svg_colour(size_t i);

/* Begins a drawing on a white sheet, for light and dark pages. `about` describes it for people who cannot see it. */
int tool_svg_begin(tool_svg *svg, double width, double height, const char *about);

void tool_svg_rectangle(tool_svg *svg, double x, double y, double width, double height, const char *colour);
void tool_svg_line(tool_svg *svg, double x1, double y1, double x2, double y2, const char *colour, double width);

/* Where a text stands by its point. UPWARDS: its middle, and it is turned to be read upwards. */
typedef enum tool_svg_anchor { TOOL_SVG_START, TOOL_SVG_MIDDLE, TOOL_SVG_END, TOOL_SVG_UPWARDS } tool_svg_anchor;
void tool_svg_text(tool_svg *svg, double x, double y, double size, const char *colour, tool_svg_anchor anchor,
                   const char *text);

/* Ends the drawing and writes it to `path`. Releases the drawing in any case. */
int tool_svg_write(tool_svg *svg, const char *path);

/* ---- plots ---- */

/* One line of a plot: n points, all of them above 0. */
typedef struct tool_svg_series {
    const char *label;
    const double *x, *y;
    size_t n;
} tool_svg_series;

/* A plot of lines over logarithmic axes. The labels of the axes name the units. */
typedef struct tool_svg_plot {
    const char *title, *subtitle, *x_label, *y_label;
    const tool_svg_series *series;
    size_t n_series;
} tool_svg_plot;

int tool_svg_plot_logarithmic(const tool_svg_plot *plot, const char *path);

#endif
