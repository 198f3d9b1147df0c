#!/usr/bin/env python3
"""Accuracy at the bytes of each codec: what a network loses against floats, and the bits an element that it sends.

    experiments/accuracy/run.py --data DIR [--tool build/release/gradwire] [--only GLOB] [--table]

--data DIR has CIFAR-10. Every run is ResNet-20 on three workers with 32 pictures each, and DLGS's schedule (140 epochs,
rates drop at 80 and 120) shortened to 10 or 20 epochs. A run of 10 epochs takes 11 minutes on two quiet cores.

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. Runs come in the order of METHODS, seed by seed."""
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = ["run", "method", "seed", "epochs", "test_accuracy", "train_loss", "bytes_up", "bytes_down", "dense_bytes"]
COLUMNS += ["codec"]

METHODS = {  # name: codec; the most telling first
    "ternary, residual, momentum": "ternary:residual=on,momentum=0.9",
    "Top-K 1 %, momentum, over": "topk:ratio=0.01,scope=global,refresh=1,over=0.5,momentum=0.9",
    "ternary, residual": "ternary:residual=on",
    "ternary, residual, max, momentum": "ternary:residual=on,level=max,momentum=0.9",
    "Top-K 1 %, running": "topk:ratio=0.01,scope=global,refresh=100,over=0.5,momentum=0.9",
    "Top-K 10 %, bf16": "topk:ratio=0.1,scope=global,refresh=1,over=0.5,momentum=0.9,value=bf16",
    "none": "none",
    "ternary, residual, max": "ternary:residual=on,level=max",
    "onebit, momentum": "onebit:momentum=0.9",
    "Top-K 1 %": "topk:ratio=0.01,scope=global,refresh=1,over=0",
    "Top-K 1 %, over": "topk:ratio=0.01,scope=global,refresh=1,over=0.5",
    "TernGrad": "ternary",
    "DLGS 1 %": "topk:ratio=0.01,scope=layer,refresh=100,over=0",
    "onebit": "onebit",
    "GSpar 10 %": "gspar:density=0.1",
    "floats, momentum in the codec": "topk:ratio=1,refresh=1,momentum=0.9",
}
EPOCHS = 140  # of the recipe


def name_of(method):
    return method.lower().replace(" %", "").replace(", ", "-").replace(" ", "-")


def all_runs():
    return [
        (f"resnet20-e{epochs}-{name_of(method)}-s{seed}", method, codec, seed, epochs)
        for epochs in (10, 20)
        for seed in (1, 2, 3)
        for method, codec in METHODS.items()
    ]


def run_one(args, run):
    _, method, codec, seed, epochs = run
    s = grid.train(
        args,
        "--recipe",
        "dlgs-resnet20",
        "--scale",
        epochs / EPOCHS,
        "--data",
        args.data,
        "--codec",
        codec,
        "--seed",
        seed,
    )
    row = {k: s[k] for k in COLUMNS if k in s}
    return {**row, "method": method, "seed": seed, "epochs": epochs, "codec": codec}


def table(rows):
    lines = [
        "ResNet-20 on CIFAR-10, three workers, batch 32 each: test accuracy in percent at the end, what it lost",
        "against floats (mean over the seeds that both have), and bits an element up and down",
        f"{grid.machine(rows)}; experiments/accuracy/run.py",
        "",
        f"{'method':33} {'epochs':>6} {'seeds':>5} {'accuracy':>9} {'spread':>7} {'to none':>8} {'loss':>7} "
        f"{'bits up':>8} {'down':>6}",
    ]
    by = {}
    for row in rows:
        by.setdefault((int(row["epochs"]), row["method"]), []).append(row)

    def mean(found, key):
        return statistics.mean(float(row[key]) for row in found)

    order = list(METHODS)
    for epochs, method in sorted(by, key=lambda k: (k[0], order.index(k[1]))):
        found = by[epochs, method]
        accuracy, spread = grid.accuracy_of(found)
        floats = {row["seed"]: row for row in by.get((epochs, "none"), [])}
        both = [row for row in found if row["seed"] in floats]
        lost = [100 * (float(row["test_accuracy"]) - float(floats[row["seed"]]["test_accuracy"])) for row in both]
        gap = f"{statistics.mean(lost):+8.2f}" if both else f"{'':8}"
        up, down = (32 * mean(found, k) / mean(found, "dense_bytes") for k in ("bytes_up", "bytes_down"))
        lines.append(
            f"{method:33} {epochs:>6} {len(found):5} {accuracy:9.2f} {spread} {gap} {mean(found, 'train_loss'):7.4f} "
            f"{up:8.3f} {down:6.3f}"
        )
    return lines


def main():
    return grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(), run_one)


if __name__ == "__main__":
    sys.exit(main())
