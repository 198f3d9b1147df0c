#!/usr/bin/env python3
"""Accuracy at the bytes of each codec: what a network loses against floats, and the bits an element that it sends.

    experiments/accuracy/run.py --data DIR [--tool build/release/gradwire] [--only GLOB] [--table]

--data DIR has the folders cifar10 and mnist. TASKS says what is trained. ResNet-20 has DLGS's schedule (140 epochs,
rates drop at 80 and 120), shortened. Ten epochs of it take 11 minutes on two quiet cores, LeNet 15 seconds, a
perceptron 4, 9,000 steps of CifarNet 12 minutes.

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. Runs come in the order of TASKS and METHODS, seed by seed."""
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = ["run", "task", "method", "seed", "test_accuracy", "train_loss", "bytes_up", "bytes_down", "dense_bytes"]
COLUMNS += ["codec"]

METHODS = {  # name: codec; the most telling first
    "none": "none",
    "ternary, residual, momentum": "ternary:residual=on,momentum=0.9",
    "Top-K 1 %, momentum, over": "topk:ratio=0.01,scope=global,refresh=1,over=0.5,momentum=0.9",
    "ternary, residual": "ternary:residual=on",
    "ternary, residual, max, momentum": "ternary:residual=on,level=max,momentum=0.9",
    "Top-K 1 %, running": "topk:ratio=0.01,scope=global,refresh=100,over=0.5,momentum=0.9",
    "Top-K 10 %, bf16": "topk:ratio=0.1,scope=global,refresh=1,over=0.5,momentum=0.9,value=bf16",
    "Top-K 10 %, bf16, not over": "topk:ratio=0.1,scope=global,refresh=1,over=0,value=bf16",
    "ternary, residual, max": "ternary:residual=on,level=max",
    "ternary, residual, 5, momentum": "ternary:residual=on,level=5,momentum=0.9",
    "onebit, momentum": "onebit:momentum=0.9",
    "Top-K 1 %": "topk:ratio=0.01,scope=global,refresh=1,over=0",
    "Top-K 1 %, over 0.25": "topk:ratio=0.01,scope=global,refresh=1,over=0.25",
    "Top-K 1 %, over": "topk:ratio=0.01,scope=global,refresh=1,over=0.5",
    "Top-K 1 %, over 0.75": "topk:ratio=0.01,scope=global,refresh=1,over=0.75",
    "Top-K 1 %, over, running": "topk:ratio=0.01,scope=global,refresh=100,over=0.5",
    "Top-K 1 %, over 0.75, running": "topk:ratio=0.01,scope=global,refresh=100,over=0.75",
    "TernGrad": "ternary",
    "DLGS 1 %": "topk:ratio=0.01,scope=layer,refresh=100,over=0",
    "DLGS 10 %": "topk:ratio=0.1,scope=layer,refresh=100,over=0",
    "onebit": "onebit",
    "GSpar 10 %": "gspar:density=0.1",
    "bf16": "bf16",
    "floats, momentum in the codec": "topk:ratio=1,refresh=1,momentum=0.9",
}


def resnet20(epochs):
    return ["--recipe", "dlgs-resnet20", "--scale", epochs / 140, "--data", "cifar10"]


def on_mnist(net, rate, workers=4):
    words = ["--net", net, "--data", "mnist", "--workers", workers, "--batch", 128, "--steps", 938, "--lr", rate]
    return [*words, "--optimizer", "momentum", "--schedule", "const", "--weight-decay", 0]


def cifarnet(steps):  # with Adam, which no momentum= fits
    return ["--recipe", "terngrad-cifarnet", "--data", "cifar10", "--workers", 2, "--batch", 128, "--steps", steps]


def vgg16(epochs):  # a quarter of the maps
    return ["--recipe", "dlgs-vgg16", "--net", "vgg16:0.25", "--scale", epochs / 140, "--data", "cifar10"]


TASKS = {  # name: what is trained
    "ResNet-20, 10 epochs": resnet20(10),
    "ResNet-20, 20 epochs": resnet20(20),
    "A quarter VGG16, 10 epochs": vgg16(10),
    "LeNet": on_mnist("lenet", 0.02),
    "LeNet, 8 workers": on_mnist("lenet", 0.02, 8),
    "LeNet, 16 workers": on_mnist("lenet", 0.02, 16),
    "784-256-10": on_mnist("mlp:784-256-10", 0.1),
    "784-128-64-10": on_mnist("mlp:784-128-64-10", 0.1),
    "CifarNet": cifarnet(9000),
    "CifarNet, 1.6 x rate": [*cifarnet(9000), "--lr", 0.00032],
    "CifarNet, 3000 steps": cifarnet(3000),
    "CifarNet, 3000, 1.6 x rate": [*cifarnet(3000), "--lr", 0.00032],
    "CifarNet, 3000, 2.56 x rate": [*cifarnet(3000), "--lr", 0.000512],
}


def all_runs():
    def short(name):
        return name.lower().replace(" %", "").replace(", ", "-").replace(" ", "-")

    return [
        (f"{short(task)}-{short(method)}-s{seed}", task, method, seed)
        for task in TASKS
        for seed in (1, 2, 3)
        for method, codec in METHODS.items()
        if not task.startswith("CifarNet") or "momentum=" not in codec
    ]


def run_one(args, run):
    _, task, method, seed = run
    words = list(TASKS[task])
    at = words.index("--data") + 1
    words[at] = pathlib.Path(args.data) / words[at]
    s = grid.train(args, *words, "--codec", METHODS[method], "--seed", seed, "--timeout", 9000)
    row = {k: s[k] for k in COLUMNS if k in s}
    return {**row, "task": task, "method": method, "seed": seed, "codec": METHODS[method]}


def table(rows):
    lines = [
        "Test accuracy in percent at the end, what it lost against floats (mean over the seeds of both), and",
        "bits an element up and down. ResNet-20 on CIFAR-10: three workers, batch 32 each. LeNet and perceptrons (by",
        "their widths) on MNIST: 4 workers if none are named, 938 steps of batch 128. CifarNet on CIFAR-10: two, Adam.",
        f"{grid.machine(rows)}; experiments/accuracy/run.py",
        "",
        f"{'task':26} {'method':33} {'seeds':>5} {'accuracy':>9} {'spread':>7} {'to none':>8} {'loss':>7} "
        f"{'bits up':>8} {'down':>6}",
    ]
    by = {}
    for row in rows:
        by.setdefault((row["task"], row["method"]), []).append(row)

    def mean(found, key):
        return statistics.mean(float(row[key]) for row in found)

    for task, method in ((t, m) for t in TASKS for m in METHODS if (t, m) in by):
        found = by[task, method]
        accuracy, spread = grid.accuracy_of(found)
        floats = {row["seed"]: row for row in by.get((task, "none"), [])}
        both = [row for row in found if row["seed"] in floats]
        lost = [100 * (float(row["test_accuracy"]) - float(floats[row["seed"]]["test_accuracy"])) for row in both]
        gap = f"{statistics.mean(lost):+8.2f}" if both else f"{'':8}"
        up, down = (32 * mean(found, k) / mean(found, "dense_bytes") for k in ("bytes_up", "bytes_down"))
        lines.append(
            f"{task:26} {method:33} {len(found):5} {accuracy:9.2f} {spread} {gap} {mean(found, 'train_loss'):7.4f} "
            f"{up:8.3f} {down:6.3f}"
        )
    return lines


def main():
    return grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(), run_one)


if __name__ == "__main__":
    sys.exit(main())
