#!/usr/bin/env python3
"""How many elements should share the two means of onebit: two perceptrons on MNIST, beside the other codecs, and LeNet.

    experiments/onebit-mnist/run.py --data DIR [--tool build/release/gradwire] [--only GLOB] [--table]

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. table.txt is made anew from results.tsv after every run."""
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = ["run", "net", "lr", "codec", "seed", "steps", "test_accuracy", "train_loss", "bytes_up", "bytes_down"]
COLUMNS += ["dense_bytes", "parameter_hash"]

ALL = "none bf16 ternary gspar gspar:density=0.1 topk:ratio=0.01,scope=layer,refresh=100,over=0".split()
ALL += "topk:ratio=0.1,scope=layer,refresh=100,over=0 topk:ratio=0.01,scope=global,refresh=1,over=0".split()
ALL += [f"onebit:bucket={bucket}" for bucket in (0, 4096, 1024, 784, 512, 256, 128, 64)]
SETTINGS = {  # network, rate: codecs, seeds
    ("784-256-10", 0.05): (ALL, (1, 2, 3)),
    ("784-256-10", 0.1): (ALL, (1, 2, 3)),
    ("784-128-64-10", 0.1): (ALL, (1, 2, 3)),
    ("lenet", 0.02): (["none", "onebit:bucket=0", "onebit:bucket=512"], (1, 2)),
}


def all_runs():
    return [
        (f"{net}-{lr}-{codec}-s{seed}", net, lr, codec, seed)
        for (net, lr), (codecs, seeds) in SETTINGS.items()
        for seed in seeds
        for codec in codecs
    ]


def run_one(args, run):
    _, net, lr, codec, seed = run
    words = ["--net", net if net == "lenet" else f"mlp:{net}", "--data", args.data, "--workers", 4, "--batch", 128]
    words += ["--steps", 938, "--optimizer", "momentum", "--lr", lr, "--schedule", "const", "--weight-decay", 0]
    s = grid.train(args, *words, "--codec", codec, "--seed", seed)
    return {**{k: s[k] for k in COLUMNS if k in s}, "net": net, "lr": lr, "codec": codec, "seed": seed}


def table(rows):
    lines = [
        "Perceptrons (by their widths) and LeNet on MNIST, 4 workers, 938 steps of batch 128, momentum 0.9, constant",
        "rate: test accuracy in percent, means over seeds. Bits: of an element and step, up from the workers and down.",
        f"{grid.machine(rows)}; experiments/onebit-mnist/run.py",
        "",
        f"{'network':14} {'rate':>5} {'codec':48} {'seeds':>5} {'accuracy':>9} {'spread':>7} {'to none':>8} "
        f"{'bits up':>8} {'down':>6}",
    ]
    by = {}
    for row in rows:
        by.setdefault((row["net"], float(row["lr"]), row["codec"]), []).append(row)
    for (net, lr), (codecs, _) in SETTINGS.items():
        for codec in codecs:
            found, none = by.get((net, lr, codec)), by.get((net, lr, "none"))
            if not found or not none:
                continue
            accuracy, spread = grid.accuracy_of(found)
            gap = accuracy - grid.accuracy_of(none)[0]
            up, down = (
                statistics.mean(32 * float(row[k]) / float(row["dense_bytes"]) for row in found)
                for k in ("bytes_up", "bytes_down")
            )
            lines.append(
                f"{net:14} {lr:5} {codec:48} {len(found):5} {accuracy:9.2f} {spread} {gap:+8.2f} {up:8.2f} {down:6.2f}"
            )
    return lines


if __name__ == "__main__":
    sys.exit(grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(), run_one))
