/* The settings of the papers' experiments, each a line of a table. */
#include "recipes.h"
#include "base/append.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_OPTIONS 16

static const struct recipe {
    const char *name, *about, *left_out;
    const char *options; /* as on a command line; each has a value */
} recipes[] = {
    {"terngrad-lenet", "TernGrad's LeNet on MNIST", "nothing that the paper tells",
     "--net lenet --workers 4 --batch 64 --steps 10000 --optimizer momentum --momentum 0.9 --lr 0.01 "
     "--schedule poly:0.5 --weight-decay 0.0005 --codec ternary"},
    {"terngrad-cifarnet", "TernGrad's CifarNet on CIFAR-10 with Adam, the first row of its table 1",
     "TensorFlow's weight decay of 0.004 on the two hidden layers (a decay here is of all parameters)",
     "--net cifarnet --workers 2 --batch 128 --steps 300000 --optimizer adam --lr 0.0002 --schedule const "
     "--weight-decay 0 --ema 0.9999 --codec ternary"},
    {"dlgs-resnet20", "DLGS's ResNet-20 on CIFAR-10",
     "the warm-up of the first epochs, if there was one: the paper does not tell it",
     "--net resnet20 --workers 3 --batch-per-worker 32 --epochs 140 --optimizer momentum --momentum 0.9 --lr 0.1 "
     "--schedule step:80,120 --weight-decay 0.0001 --codec topk:ratio=0.1,scope=layer,refresh=100,over=0"},
    {"dlgs-vgg16", "DLGS's VGG16 on CIFAR-10",
     "the warm-up of the first epochs, if there was one: the paper does not tell it",
     "--net vgg16 --workers 3 --batch-per-worker 32 --epochs 140 --optimizer momentum --momentum 0.9 --lr 0.1 "
     "--schedule step:80,120 --weight-decay 0.0005 --codec topk:ratio=0.1,scope=layer,refresh=100,over=0"},
};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* Pairs of options: the first is not taken from a recipe if the second is given. Either it says the same in another
 * way, or what started the workers says it. */
static const char *const rivals[][2] = {
    {"--steps", "--epochs"},    {"--epochs", "--steps"},       {"--batch", "--batch-per-worker"},
    {"--workers", "--link"},    {"--workers", "--rank"},       {"--batch-per-worker", "--batch"},
    {"--weight-decay", "--l2"}, {"--momentum", "--optimizer"},
};

bool tool_recipe_list(size_t n, const char **name, const char **about)
{
    if (n >= N_RECIPES)
        return false;
    *name = recipes[n].name;
    *about = recipes[n].about;
    return true;
}

static bool is_said(const tool_usage *usage, const char *option)
{
    bool said = tool_given(usage, option);
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++)
        said |= strcmp(rivals[i][0], option) == 0 && tool_given(usage, rivals[i][1]);
    return said;
}

/* The value for a shorter run. It has at least one step, and at least one epoch between two drops. */
static void shorten(const char *option, const char *value, double scale, char *text, size_t capacity)
{
    snprintf(text, capacity, "%s", value);
    if (strcmp(option, "--steps") == 0 || strcmp(option, "--epochs") == 0)
        snprintf(text, capacity, "%.0f", fmax(1, round(scale * atof(value))));
    if (strcmp(option, "--schedule") != 0 || strncmp(value, "step:", 5) != 0)
        return;
    snprintf(text, capacity, "step:");
    double before = 0;
    for (const char *at = value + 5; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const double epoch = fmax(before + 1, round(scale * atof(at)));
        gw_append(text, capacity, "%s%.0f", before > 0 ? "," : "", epoch);
        before = epoch;
    }
}

/* The next option of a recipe, and its value for a run of this scale. False: there is none. */
static bool next_option(const char **at, double scale, char option[32], char value[64])
{
    char whole[64];
    int n;
    if (sscanf(*at, "%31s %63s%n", option, whole, &n) != 2)
        return false;
    shorten(option, whole, scale, value, 64);
    *at += n;
    return true;
}

static int take_options(const tool_usage *usage, const char *at, double scale)
{
    static char values[MOST_OPTIONS][64]; /* static, because options point into these texts later */
    char option[32];
    for (int n = 0; n < MOST_OPTIONS && next_option(&at, scale, option, values[n]); n++)
        for (size_t i = 0; i < usage->n_options; i++)
            if (strcmp(usage->options[i].name, option) == 0 && !is_said(usage, option))
                TOOL_TRY(tool_set_option(&usage->options[i], values[n]));
    return TOOL_DONE;
}

/* True if the rate of a shortened schedule drops only at the end of the run. That can happen in a very short run. */
static bool drops_at_the_end(const char *at, double scale)
{
    double epochs = 0, drop = 0;
    char option[32], value[64];
    while (next_option(&at, scale, option, value)) {
        if (strcmp(option, "--epochs") == 0)
            epochs = atof(value);
        if (strcmp(option, "--schedule") == 0 && strncmp(value, "step:", 5) == 0)
            drop = atof(strrchr(value, ',') ? strrchr(value, ',') + 1 : value + 5);
    }
    return epochs > 0 && drop >= epochs;
}

int tool_recipe_take(const tool_usage *usage, const char *name, double scale)
{
    char names[256] = "";
    if (!(scale > 0 && scale <= 1))
        return tool_wrong_use("--scale is %g, and must be above 0 and at most 1", scale);
    for (int i = 0; i < N_RECIPES; i++) {
        const struct recipe *r = &recipes[i];
        if (strcmp(r->name, name) != 0)
            continue;
        if (!tool_given(usage, "--data"))
            return tool_wrong_use("%s needs --data DIR, the folder of its data; --data digits and others are possible "
                                  "too, and then it is not the paper's experiment",
                                  r->about);
        if (drops_at_the_end(r->options, scale))
            return tool_wrong_use(
                "--scale %g leaves no epoch for the last drop of the learning rate; give a larger one", scale);
        TOOL_TRY(take_options(usage, r->options, scale));
        tool_note("%s (%s). Left out of the paper's setting: %s%s", r->name, r->about, r->left_out,
                  scale < 1 ? "; and a part of its length" : "");
        return TOOL_DONE;
    }
    for (int i = 0; i < N_RECIPES; i++)
        gw_append(names, sizeof names, "%s%s", i ? ", " : "", recipes[i].name);
    return tool_wrong_use("the recipe \"%s\" is unknown; right are %s", name, names);
}
