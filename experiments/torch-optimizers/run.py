#!/usr/bin/env python3
"""Optimizers other than SGD, clipped and dropped gradients: what they make of compressed gradients, at equal steps.

    /usr/bin/python3 experiments/torch-optimizers/run.py --mnist DIR [--only GLOB] [--table]

Two processes of PyTorch train a perceptron (784-256-10) on MNIST, 500 steps of 64 pictures each. LBFGS makes 40 steps
of 1,024 pictures each, with up to four backwards a step. Call it with a Python that has PyTorch.

results.tsv has a line for every finished run. A run whose line is there is not repeated."""
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "tests")]

import grid
import ports

COLUMNS = ["run", "optimizer", "codec", "seed", "steps", "test_accuracy", "loss"]
SGD = ("SGD", {"lr": 0.05, "momentum": 0.9})
# the optimizer, its words, and what else the program does to gradients
TRAININGS = {
    "SGD": (*SGD, {}),
    "SGD, clip 0.5": (*SGD, {"norm": 0.5}),
    "SGD, clip 0.7": (*SGD, {"norm": 0.7}),
    "SGD, clip 0.95": (*SGD, {"norm": 0.95}),
    "SGD, values 0.01": (*SGD, {"value": 0.01}),
    "SGD, dropped": (*SGD, {"drops": "averaged"}),
    "SGD, no_sync": (*SGD, {"drops": "under no_sync"}),
    "ASGD": ("ASGD", {"lr": 0.1}, {}),
    "Adam": ("Adam", {"lr": 1e-4}, {}),
    "Lion": ("Lion", {"lr": 5e-5}, {}),
    "LARS": ("LARS", {"lr": 0.002}, {}),
    "Muon": ("Muon", {"lr": 0.003}, {}),
    "Rprop": ("Rprop", {"lr": 1e-3}, {}),
    "LBFGS": ("LBFGS", {"lr": 0.3, "max_iter": 4, "history_size": 10}, {}),
}
CODECS = {
    "ddp": "ddp",
    "bf16": "bf16",
    "ternary": "ternary:residual=on",
    "topk": "topk",
    "topk-10": "topk:ratio=0.1,refresh=1,over=0,value=bf16",
}
SEEDS = (1, 2, 3)
PORTS = ports.free_ports()


def all_runs():
    return [
        (f"{name.lower().replace(', ', '-').replace(' ', '-')}-{short}-s{seed}", name, codec, seed)
        for seed in SEEDS
        for name in TRAININGS
        for short, codec in CODECS.items()
    ]


def run_one(args, run):
    _, name, codec, seed = run
    command = [sys.executable, str(HERE / "rank.py"), args.mnist, codec, str(seed), *map(json.dumps, TRAININGS[name])]
    mine, other = map(json.loads, grid.train_torch(command, 2, next(PORTS), args.timeout))
    if mine.pop("hash") != other["hash"]:
        raise grid.Failed("replicas differ")
    return {"optimizer": name, "codec": codec, "seed": seed, **mine}


def table(rows):
    lines = [
        "A perceptron (784-256-10) on MNIST, two processes of PyTorch, 500 steps of 64 pictures each (LBFGS: 40 steps",
        "of 1,024): test accuracy in percent and training loss over the last 100 steps, means over the seeds. Columns",
        "are codecs; ddp is DistributedDataParallel's own all-reduce. clip, values: the largest norm, or element, of a",
        "gradient. dropped: before each step a backward of the loss times -1 was averaged, and thrown away; no_sync:",
        "the same under no_sync.",
        f"{grid.machine(rows)}; experiments/torch-optimizers/run.py",
        "",
        " ".join([f"{'accuracy (loss)':16} {'seeds':>5}", *(f"{short:>16}" for short in CODECS)]),
    ]
    for name in TRAININGS:
        cells, n = [], 0
        for codec in CODECS.values():
            found = [row for row in rows if (row["optimizer"], row["codec"]) == (name, codec)]
            n = max(n, len(found))
            loss = statistics.mean(float(row["loss"]) for row in found) if found else 0
            cells.append(f"{grid.accuracy_of(found)[0]:.2f} ({loss:.4g})" if found else "")
        lines.append(" ".join([f"{name:16} {n:>5}", *(f"{cell:>16}" for cell in cells)]))
    return lines


def main():
    options = [
        ("--mnist", {"required": True, "help": "folder with MNIST's files"}),
        ("--timeout", {"type": int, "default": 600, "help": "seconds for a run (default 600)"}),
    ]
    return grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(), run_one, options=options)


if __name__ == "__main__":
    sys.exit(main())
