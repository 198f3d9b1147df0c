/* What trainings lost with each codec, against floats. experiments/choosing/run.py writes this file, from
 * the results of experiments/accuracy, experiments/torch-training and experiments/dlgs-cifar10. */
#include "codec/codec.h"

const gw_codec_loss gw_losses_none[] = {
    {0},
};

const gw_codec_loss gw_losses_bf16[] = {
    {"bf16", "LeNet", 0.00, 16.02, 16.02, 3},
    {"bf16", "perceptron", -0.02, 16.02, 16.02, 3},
    {0},
};

const gw_codec_loss gw_losses_f16[] = {
    {0},
};

const gw_codec_loss gw_losses_ternary[] = {
    {"ternary:residual=on,momentum=0.9", "ResNet-20", 0.64, 0.90, 1.56, 3},
    {"ternary:residual=on,momentum=0.9", "LeNet", 0.06, 0.47, 1.10, 3},
    {"ternary:residual=on,momentum=0.9", "perceptron", 0.01, 0.35, 0.84, 3},
    {"ternary:residual=on", "ResNet-20", 0.29, 1.08, 1.81, 3},
    {"ternary:residual=on", "LeNet", 0.03, 0.49, 1.14, 3},
    {"ternary:residual=on", "perceptron", 0.08, 0.36, 0.85, 3},
    {"ternary", "LeNet", 0.09, 0.63, 1.49, 3},
    {"ternary", "perceptron", 0.27, 0.44, 1.02, 3},
    {"ternary:residual=on,level=max,momentum=0.9", "ResNet-20", 0.56, 0.59, 1.05, 3},
    {"ternary:residual=on,level=max,momentum=0.9", "LeNet", 0.02, 0.25, 0.64, 3},
    {"ternary:residual=on,level=max,momentum=0.9", "perceptron", 0.00, 0.18, 0.45, 3},
    {"ternary:residual=on,level=max", "ResNet-20", 0.40, 0.49, 0.85, 2},
    {"ternary:residual=on,momentum=0.9", "transformer", 0.08, 0.85, 1.87, 3},
    {"ternary:residual=on", "transformer", 0.10, 1.10, 2.74, 3},
    {"ternary:residual=on,level=max,momentum=0.9", "transformer", 0.13, 0.95, 3.10, 3},
    {"ternary:residual=on,level=max", "transformer", 0.10, 0.94, 3.16, 3},
    {"ternary", "ResNet-20", 1.81, 1.16, 1.92, 1},
    {0},
};

const gw_codec_loss gw_losses_gspar[] = {
    {"gspar:density=0.1", "LeNet", 0.14, 0.74, 9.25, 3},
    {"gspar:density=0.1", "perceptron", -0.06, 1.71, 7.42, 3},
    {"gspar:density=0.1", "ResNet-20", 5.52, 0.78, 7.30, 1},
    {0},
};

const gw_codec_loss gw_losses_uniform[] = {
    {0},
};

const gw_codec_loss gw_losses_topk[] = {
    {"topk:ratio=0.01,scope=global,refresh=1,over=0.5,momentum=0.9", "ResNet-20", 0.46, 0.45, 1.03, 3},
    {"topk:ratio=0.01,scope=global,refresh=1,over=0.5,momentum=0.9", "LeNet", -0.03, 0.34, 1.18, 3},
    {"topk:ratio=0.01,scope=global,refresh=1,over=0.5,momentum=0.9", "perceptron", 0.11, 0.37, 1.21, 3},
    {"topk:ratio=0.01,scope=global,refresh=100,over=0.5,momentum=0.9", "ResNet-20", 0.45, 0.48, 1.07, 2},
    {"topk:ratio=0.01,scope=global,refresh=100,over=0.5,momentum=0.9", "LeNet", 0.05, 0.35, 1.21, 3},
    {"topk:ratio=0.01,scope=global,refresh=100,over=0.5,momentum=0.9", "perceptron", 0.05, 0.35, 1.20, 3},
    {"topk:ratio=0.1,scope=global,refresh=1,over=0.5,momentum=0.9,value=bf16", "ResNet-20", 0.35, 1.42, 7.57, 3},
    {"topk:ratio=0.1,scope=global,refresh=1,over=0.5,momentum=0.9,value=bf16", "LeNet", 0.02, 1.34, 9.04, 3},
    {"topk:ratio=0.1,scope=global,refresh=1,over=0.5,momentum=0.9,value=bf16", "perceptron", -0.09, 1.37, 7.96, 3},
    {"topk:ratio=0.01,scope=layer,refresh=100,over=0", "LeNet", 0.05, 0.40, 1.38, 3},
    {"topk:ratio=0.01,scope=layer,refresh=100,over=0", "perceptron", 0.40, 0.43, 1.33, 3},
    {"topk:ratio=0.01,scope=global,refresh=1,over=0.5", "LeNet", -0.01, 0.33, 1.16, 3},
    {"topk:ratio=0.01,scope=global,refresh=1,over=0.5", "perceptron", 0.16, 0.37, 1.18, 3},
    {"topk:ratio=0.01,scope=global,refresh=1,over=0", "LeNet", 0.13, 0.34, 1.17, 3},
    {"topk:ratio=0.01,scope=global,refresh=1,over=0", "perceptron", 0.01, 0.34, 1.15, 3},
    {"topk:ratio=0.01,scope=global,refresh=100,over=0.5", "ResNet-20", 0.27, 0.48, 1.07, 3},
    {"topk:ratio=0.01,scope=global,refresh=100,over=0.5", "LeNet", 0.02, 0.34, 1.17, 3},
    {"topk:ratio=0.01,scope=global,refresh=100,over=0.5", "perceptron", -0.01, 0.35, 1.17, 3},
    {"topk:ratio=0.01,scope=global,refresh=1,over=0.5,momentum=0.9", "transformer", -0.03, 0.42, 1.28, 3},
    {"topk:ratio=0.1,scope=global,refresh=1,over=0.5,momentum=0.9,value=bf16", "transformer", -0.08, 1.70, 10.04, 3},
    {"topk:ratio=0.01,scope=global,refresh=100,over=0.5", "transformer", 0.04, 0.44, 1.28, 3},
    {"topk:ratio=0.1,scope=layer,refresh=100,over=0", "ResNet-20", 1.11, 3.42, 8.17, 1},
    {"topk:ratio=0.01,scope=layer,refresh=100,over=0", "ResNet-20", 6.68, 0.58, 1.34, 1},
    {0},
};

const gw_codec_loss gw_losses_onebit[] = {
    {"onebit:momentum=0.9", "LeNet", 0.01, 1.14, 32.02, 3},
    {"onebit:momentum=0.9", "perceptron", 0.00, 1.14, 32.02, 3},
    {"onebit", "LeNet", -0.05, 1.14, 32.02, 3},
    {"onebit", "perceptron", 0.67, 1.17, 32.05, 3},
    {"onebit:momentum=0.9", "transformer", -0.05, 1.23, 32.10, 3},
    {"onebit", "ResNet-20", 2.78, 1.28, 32.14, 1},
    {0},
};
