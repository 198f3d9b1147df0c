/* Draws digits: strokes under a random affine map, with random width, wobble, stray strokes and noise. They need no
 * files. They are hard enough that a linear model stays under 90 % while a convolutional network passes 95 %. */
#include "base/memory.h"
#include "data/data.h"
#include "random.h"

#include <math.h>
#include <string.h>

enum { SEED = 1, SIDE = 28, MAX_POINTS = 13, MAX_STROKES = 3 };

/* A stroke is a polyline of n points (x, y, x, y, ...) in a box of [-1, 1] x [-1, 1]. y points downwards. */
struct stroke {
    int n;
    float xy[2 * MAX_POINTS];
};
struct glyph {
    int n;
    struct stroke strokes[MAX_STROKES];
};

/* The x and y of a point stay together. */
/* clang-format off */
static const struct glyph glyphs[10] = {
    {1, {{13, {0,-1, .32f,-.87f, .55f,-.5f, .6f,0, .55f,.5f, .32f,.87f, 0,1, -.32f,.87f, -.55f,.5f, -.6f,0,
               -.55f,-.5f, -.32f,-.87f, 0,-1}}}},
    {1, {{3, {-.35f,-.6f, .05f,-1, .05f,1}}}},
    {1, {{9, {-.55f,-.6f, -.35f,-.9f, 0,-1, .4f,-.88f, .55f,-.55f, .4f,-.1f, 0,.4f, -.6f,1, .65f,1}}}},
    {1, {{13, {-.5f,-.8f, -.15f,-1, .25f,-.95f, .5f,-.65f, .4f,-.25f, 0,-.05f, .4f,.1f, .6f,.45f, .45f,.85f,
               .1f,1, -.25f,.98f, -.5f,.85f, -.58f,.7f}}}},
    {2, {{3, {.2f,-1, -.6f,.35f, .65f,.35f}}, {2, {.3f,-.35f, .3f,1}}}},
    {1, {{11, {.5f,-1, -.4f,-1, -.5f,-.1f, -.1f,-.25f, .3f,-.15f, .58f,.2f, .55f,.6f, .3f,.92f, -.05f,1,
               -.4f,.9f, -.6f,.7f}}}},
    {1, {{13, {.4f,-1, 0,-.75f, -.35f,-.3f, -.55f,.25f, -.45f,.75f, -.1f,1, .3f,.93f, .55f,.6f, .5f,.2f,
               .2f,-.05f, -.15f,0, -.42f,.25f, -.52f,.45f}}}},
    {1, {{4, {-.6f,-1, .6f,-1, .1f,0, -.2f,1}}}},
    {2, {{10, {0,-.05f, -.38f,-.25f, -.45f,-.6f, -.25f,-.92f, 0,-1, .25f,-.92f, .45f,-.6f, .38f,-.25f, 0,-.05f,
               0,-.05f}}, {10, {0,-.05f, .45f,.2f, .58f,.55f, .35f,.92f, 0,1, -.35f,.92f, -.58f,.55f, -.45f,.2f,
               0,-.05f, 0,-.05f}}}},
    {1, {{13, {.52f,-.45f, .42f,-.25f, .15f,0, -.2f,.05f, -.5f,-.2f, -.55f,-.6f, -.3f,-.93f, .1f,-1, .45f,-.75f,
               .55f,-.25f, .35f,.3f, 0,.75f, -.4f,1}}}},
};
/* clang-format on */

/* Darkens `image` along the segment a-b. The ink is full within half the width, and fades over one pixel. */
static void draw_segment(float image[SIDE][SIDE], const float a[2], const float b[2], float half_width, float ink)
{
    float reach = half_width + 1;
    int x0 = (int)floorf(fminf(a[0], b[0]) - reach), x1 = (int)ceilf(fmaxf(a[0], b[0]) + reach);
    int y0 = (int)floorf(fminf(a[1], b[1]) - reach), y1 = (int)ceilf(fmaxf(a[1], b[1]) + reach);
    float dx = b[0] - a[0], dy = b[1] - a[1], length2 = dx * dx + dy * dy;
    for (int y = y0 < 0 ? 0 : y0; y <= y1 && y < SIDE; y++)
        for (int x = x0 < 0 ? 0 : x0; x <= x1 && x < SIDE; x++) {
            float px = (float)x - a[0], py = (float)y - a[1];
            float along = length2 > 0 ? fminf(fmaxf((px * dx + py * dy) / length2, 0), 1) : 0;
            float ex = px - along * dx, ey = py - along * dy;
            float value = ink * fminf(fmaxf(half_width + .5f - sqrtf(ex * ex + ey * ey), 0), 1);
            if (value > image[y][x])
                image[y][x] = value;
        }
}

static void draw_digit(struct gw_random *r, unsigned digit, uint8_t *out)
{
    float image[SIDE][SIDE] = {{0}};

    /* The affine map: scale, then shear, then rotation, then place. */
    float angle = gw_random_between(r, -.42f, .42f), shear = gw_random_between(r, -.35f, .35f);
    float scale_x = gw_random_between(r, 5.2f, 10.5f), scale_y = gw_random_between(r, 6.2f, 10.2f);
    float at_x = 13.5f + gw_random_between(r, -3.2f, 3.2f), at_y = 13.5f + gw_random_between(r, -2.8f, 2.8f);
    float half_width = gw_random_between(r, .45f, 1.5f), ink = gw_random_between(r, .6f, 1);
    float c = cosf(angle), s = sinf(angle);
    float bend = gw_random_between(r, -.18f, .18f);

    const struct glyph *glyph = &glyphs[digit];
    for (int k = 0; k < glyph->n; k++) {
        float previous[2] = {0, 0};
        for (int i = 0; i < glyph->strokes[k].n; i++) {
            float x = glyph->strokes[k].xy[2 * i] + gw_random_between(r, -.09f, .09f);
            float y = glyph->strokes[k].xy[2 * i + 1] + gw_random_between(r, -.09f, .09f);
            x += bend * (1 - y * y) + shear * -y;
            x *= scale_x, y *= scale_y;
            float point[2] = {at_x + c * x - s * y, at_y + s * x + c * y};
            if (i > 0)
                draw_segment(image, previous, point, half_width, ink);
            memcpy(previous, point, sizeof previous);
        }
    }

    /* Stray strokes are fainter and shorter than those of the digit. Every draw is a statement of its own. Else the
     * order of two draws would be the compiler's choice. */
    uint32_t n_stray = gw_random_below(r, 3);
    for (uint32_t i = 0; i < n_stray; i++) {
        float a[2], b[2];
        a[0] = gw_random_between(r, 0, SIDE);
        a[1] = gw_random_between(r, 0, SIDE);
        b[0] = a[0] + gw_random_between(r, -6, 6);
        b[1] = a[1] + gw_random_between(r, -6, 6);
        const float stray_ink = gw_random_between(r, .3f, .8f);
        const float stray_half_width = gw_random_between(r, .3f, .8f);
        draw_segment(image, a, b, stray_half_width, stray_ink);
    }

    float noise = gw_random_between(r, 0, .35f);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            /* The sum of the four bytes of a word is near enough to a bell curve, with sigma 0.29. */
            uint32_t w = gw_random_word(r);
            float bell = (float)((w & 255) + (w >> 8 & 255) + (w >> 16 & 255) + (w >> 24)) * (1.f / 510) - 1;
            float value = image[y][x] + noise * bell;
            out[y * SIDE + x] = (uint8_t)(255 * fminf(fmaxf(value, 0), 1) + .5f);
        }
}

gw_status gw_data_digits(uint32_t split, uint32_t n, struct gw_samples *samples)
{
    *samples = (struct gw_samples){.n = n, .pixels = gw_alloc(NULL, n, SIDE * SIDE), .labels = gw_alloc(NULL, n, 1)};
    if (!samples->pixels || !samples->labels) {
        gw_samples_free(samples);
        return GW_ERR_MEMORY;
    }
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < n && (status = gw_data_go_on()) == GW_OK; i++) {
        struct gw_random r = gw_random_open(SEED, GW_PURPOSE_DIGITS, i, split);
        samples->labels[i] = (uint8_t)gw_random_below(&r, 10);
        draw_digit(&r, samples->labels[i], samples->pixels + (size_t)i * SIDE * SIDE);
    }
    if (status != GW_OK)
        gw_samples_free(samples);
    return status;
}
