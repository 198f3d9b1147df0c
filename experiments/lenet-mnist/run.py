#!/usr/bin/env python3
"""TernGrad's figure 3: LeNet on MNIST, float against ternary gradients, 1 to 64 workers.

    experiments/lenet-mnist/run.py --data DIR [--tool build/release/gradwire] [--jobs 2] [--only GLOB] [--table]

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. table.txt is made anew from results.tsv after every run.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = "run workers optimizer codec seed steps test_accuracy train_loss bytes_up bytes_down dense_bytes".split()
COLUMNS += "images_per_second replicas_identical parameter_hash".split()

BATCH, STEPS = 64, 10000
SAME = f"--net lenet --batch {BATCH} --steps {STEPS} --schedule poly:0.5 --weight-decay 0.0005 --plan single"
SAME += " --timeout 600"
OPTIMIZERS = {
    "momentum": ["--optimizer", "momentum", "--momentum", "0.9", "--lr", "0.01"],
    "sgd": ["--optimizer", "sgd", "--lr", "0.1"],
}
# The paper always evaluates a moving average. Three points of the figure show what that changes.
AVERAGED, DECAY = "momentum, averaged", 0.9999
OPTIMIZERS[AVERAGED] = [*OPTIMIZERS["momentum"], "--ema", str(DECAY)]
AVERAGED_AT = (2, 4, 16)
# How values are packed changes bytes, never parameters: docs/wire-format.md says that the hash is the same. The table
# reports bytes only for N = 4. So all other runs take the fastest packing.
FAST = "code=mask,pull=packed,entropy=off"
VARIANTS = {"no-clip": "ternary:clip=0", "unshared": "ternary:share=off", "global": "ternary:scope=global"}
PAPER_WORST = 0.22


def all_runs():
    """Returns all runs as (name, workers, optimizer, codec name, specification, seed), the most telling first."""
    runs = []
    for workers in (4, 1, 2, 8, 16, 32, 64):
        seeds = (1, 2) if workers <= 16 else (1,)
        for seed in seeds:
            for optimizer in OPTIMIZERS:
                if optimizer == AVERAGED and (workers not in AVERAGED_AT or seed > 1):
                    continue
                specs = {"float": "none", "ternary": "ternary" if workers == 4 else "ternary:" + FAST}
                if workers == 4 and optimizer != AVERAGED:
                    specs.update(VARIANTS)
                for codec, spec in specs.items():
                    name = f"n{workers}-{optimizer.replace(', ', '-')}-{codec}-s{seed}"
                    runs.append((name, workers, optimizer, codec, spec, seed))
    # The variants come after the figure's own points.
    return [r for r in runs if r[3] not in VARIANTS] + [r for r in runs if r[3] in VARIANTS]


def run_one(args, run):
    name, workers, optimizer, codec, spec, seed = run
    words = [*SAME.split(), "--data", args.data, "--workers", workers, "--codec", spec, "--seed", seed]
    s = grid.train(args, *words, *OPTIMIZERS[optimizer])
    return {
        **{k: s[k] for k in COLUMNS if k in s},
        "workers": workers,
        "optimizer": optimizer,
        "codec": codec,
        "seed": seed,
    }


def accuracy(rows, workers, optimizer, codec):
    return [
        100 * float(r["test_accuracy"])
        for r in rows
        if int(r["workers"]) == workers and r["optimizer"] == optimizer and r["codec"] == codec
    ]


def table(rows):
    lines = [
        "LeNet on MNIST: test accuracy in percent after 10,000 steps of batch 64 (TernGrad, figure 3)",
        f"{grid.machine(rows)}; experiments/lenet-mnist/run.py",
        "",
        f"{'optimizer':18} {'N':>3} {'seeds':>5} {'float':>8} {'ternary':>8} {'difference':>11}",
    ]
    differences = []
    for optimizer in OPTIMIZERS:
        for workers in (1, 2, 4, 8, 16, 32, 64):
            dense, ternary = (accuracy(rows, workers, optimizer, c) for c in ("float", "ternary"))
            if len(dense) != len(ternary) or not dense:
                continue
            mean = [sum(x) / len(x) for x in (dense, ternary)]
            if optimizer != AVERAGED:
                differences.append((mean[1] - mean[0], optimizer, workers))
            lines.append(
                f"{optimizer:18} {workers:3} {len(dense):5} {mean[0]:8.2f} {mean[1]:8.2f} {mean[1] - mean[0]:+11.3f}"
            )
    if differences:
        worst = min(differences)
        lines += [
            "",
            f"points finished: {len(differences)} of 14",
            f"mean difference, ternary minus float: {sum(d[0] for d in differences) / len(differences):+.3f} points",
            f"worst: {worst[0]:+.3f} points ({worst[1]}, N = {worst[2]}); the paper's worst is -{PAPER_WORST}",
        ]
    if accuracy(rows, AVERAGED_AT[0], AVERAGED, "float"):
        lines.append(f"averaged: a moving average of the parameters with decay {DECAY} is evaluated, as in the paper")
    variants = [(o, c) for o in ("momentum", "sgd") for c in ("float", "ternary", *VARIANTS) if accuracy(rows, 4, o, c)]
    if variants:
        lines += [
            "",
            "N = 4: what clipping, sharing and one scaler a layer are worth",
            f"{'optimizer':10} {'codec':10} {'seeds':>5} {'accuracy':>9} {'up, x smaller':>14} {'down, x smaller':>16}",
        ]
        for optimizer, codec in variants:
            found = [r for r in rows if r["workers"] == "4" and r["optimizer"] == optimizer and r["codec"] == codec]
            mean = sum(accuracy(rows, 4, optimizer, codec)) / len(found)
            up, down = (
                sum(int(r["dense_bytes"]) for r in found) / sum(int(r[k]) for r in found)
                for k in ("bytes_up", "bytes_down")
            )
            lines.append(f"{optimizer:10} {codec:10} {len(found):5} {mean:9.2f} {up:14.2f} {down:16.2f}")
    return lines


if __name__ == "__main__":
    sys.exit(grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(), run_one))
