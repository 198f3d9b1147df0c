#!/usr/bin/env python3
"""The lessons of TernGrad's table 2, on a small AlexNet and CIFAR-10 with four workers.

    experiments/terngrad-lessons/run.py --data DIR [--tool build/release/gradwire] [--only GLOB] [--table] [--scale 1]
    /usr/bin/python3 experiments/terngrad-lessons/run.py --gradients --data DIR

The paper advises for ternary gradients: less dropout, half the weight decay, the last layer in float, and clipping at
2.5 standard deviations. Each row changes one of these. --gradients trains once more with floats, saves gradients on the
way, and says what clipping does to them (NumPy is needed): gradients.txt. --scale 148 repeats a row with the steps of
the paper's four workers, 185,000.

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. table.txt is made anew from results.tsv after every run."""
import argparse
import itertools
import math
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = ["run", "codec", "dropout", "weight_decay", "seed", "steps", "test_accuracy", "train_accuracy", "train_loss"]
COLUMNS += ["bytes_up", "dense_bytes", "zeros_of_fc6", "parameter_hash"]

WORKERS, BATCH, STEPS, DECAY, SEED = 4, 128, 1250, 0.0005, 1
SAVED = [0, 10, 50, 100, 250, 500, 1000, 1249]

ROWS = [  # name, codec, dropout, weight decay
    ("float", "none", 0.5, DECAY),
    ("ternary", "ternary", 0.5, DECAY),
    ("ternary, less dropout", "ternary", 0.2, DECAY),
    ("ternary, last in float", "ternary:skip=last", 0.5, DECAY),
    ("ternary, both of these", "ternary:skip=last", 0.2, DECAY),
    ("ternary, as advised", "ternary:skip=last", 0.2, DECAY / 2),
    ("ternary, half the decay", "ternary", 0.5, DECAY / 2),
    ("ternary, no clipping", "ternary:clip=0", 0.5, DECAY),
    ("ternary, clip 1.5", "ternary:clip=1.5", 0.5, DECAY),
    ("ternary, clip 3.5", "ternary:clip=3.5", 0.5, DECAY),
    ("ternary, one scaler", "ternary:scope=global", 0.5, DECAY),
    ("float, less dropout", "none", 0.2, DECAY),
]


def all_runs(scale):
    """Returns all runs as (run, name, codec, dropout, weight decay, steps)."""
    suffix, steps = f"-x{scale:g}" if scale else "", round((scale or 1) * STEPS)
    return [(name.replace(", ", "-").replace(" ", "-") + suffix, name, *rest, steps) for name, *rest in ROWS]


def words(args, codec, dropout, decay, steps):
    net = f"alexnet-small:{dropout}"
    words = ["--net", net, "--data", args.data, "--workers", WORKERS, "--batch", BATCH, "--steps", steps]
    words += ["--codec", codec, "--weight-decay", decay, "--optimizer", "momentum", "--lr", 0.01, "--seed", SEED]
    return [*words, "--schedule", "poly:0.5", "--timeout", 1200]


def run_one(args, run):
    _, _, codec, dropout, decay, steps = run
    s = grid.train(args, *words(args, codec, dropout, decay, steps))
    fc6 = next(t for t in s["layers"] if t["name"] == "fc6.weight")
    return {
        **{k: s[k] for k in COLUMNS if k in s},
        "codec": codec,
        "dropout": dropout,
        "weight_decay": decay,
        "seed": SEED,
        "zeros_of_fc6": 1 - fc6["nonzero_share"],
    }


def table(rows):
    lines = [
        f"A small AlexNet on CIFAR-10, {WORKERS} workers, steps of batch {BATCH}: accuracy in percent",
        f"{grid.machine(rows)}; experiments/terngrad-lessons/run.py",
        "zeros: of what is sent of the largest fully connected layer, fc6 (paper: 71.3 for AlexNet's)",
        "",
        f"{'':24} {'steps':>6} {'dropout':>7} {'decay':>8} {'test':>7} {'to float':>9} {'train':>7} {'zeros':>6} "
        f"{'up, x smaller':>14}",
    ]
    by = {(row["codec"], float(row["dropout"]), float(row["weight_decay"]), int(row["steps"])): row for row in rows}
    for steps, (name, codec, dropout, decay) in itertools.product(sorted({key[3] for key in by}), ROWS):
        row, float_row = by.get((codec, dropout, decay, steps)), by.get((*ROWS[0][1:], steps))
        if not row:
            continue
        test = 100 * float(row["test_accuracy"])
        gap = f"{test - 100 * float(float_row['test_accuracy']):+9.2f}" if float_row and row is not float_row else ""
        zeros = f"{100 * float(row['zeros_of_fc6']):6.1f}" if codec != "none" else ""
        lines.append(
            f"{name:24} {steps:6} {dropout:7} {decay:8} {test:7.2f} {gap:>9} {100 * float(row['train_accuracy']):7.2f} "
            f"{zeros:>6} {float(row['dense_bytes']) / float(row['bytes_up']):14.1f}"
        )
    return lines


# ---- what clipping does to gradients -----------------------------------------------------------------------------


def tensors(args, path, folder):
    import numpy

    files = grid.tell([args.tool, "export", "--from", path, "-o", folder])["files"]
    return {pathlib.Path(f).stem: numpy.load(f).ravel().astype(numpy.float64) for f in files}


def bound(g):
    """TernGrad's assumption bounds max|g| * |g|_1. This returns its ratio to |g|^2, which floats need."""
    return abs(g).max() * abs(g).sum() / (g @ g)


def gradients(args):
    import numpy

    lines = [
        "What clipping at 2.5 standard deviations does to the gradients of a float run (rank 0's, whole network)",
        f"{grid.machine()}; experiments/terngrad-lessons/run.py --gradients",
        "shorter: the length lost, in percent (paper: 1.0 to 1.5). turned: degrees (paper: 2 to 3).",
        "bound: max|g| * |g|_1 / |g|^2 of the whole gradient, raw, clipped, and clipped with a scaler for each tensor",
        "(mean by |g|^2).",
        "",
        f"{'step':>6} {'shorter':>8} {'turned':>7} {'bound, raw':>11} {'clipped':>9} {'per tensor':>11}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        saved = pathlib.Path(folder) / "gradient"
        grid.train(
            args,
            *words(args, "none", 0.5, DECAY, STEPS),
            "--save-gradients",
            saved,
            "--save-at",
            ",".join(map(str, SAVED)),
        )
        for step in SAVED:
            parts = tensors(args, f"{saved}.step-{step}.rank-0.gwp", pathlib.Path(folder) / f"npy-{step}")
            clipped = {name: numpy.clip(g, -2.5 * g.std(), 2.5 * g.std()) for name, g in parts.items()}
            raw, cut = (numpy.concatenate(list(p.values())) for p in (parts, clipped))
            lengths = numpy.linalg.norm(raw), numpy.linalg.norm(cut)
            turned = math.degrees(math.acos(min(1, raw @ cut / lengths[0] / lengths[1])))
            each = sum(abs(g).max() * abs(g).sum() for g in clipped.values()) / (cut @ cut)
            lines.append(
                f"{step:6} {100 * (1 - lengths[1] / lengths[0]):8.2f} {turned:7.2f} {bound(raw):11.1f} "
                f"{bound(cut):9.1f} {each:11.1f}"
            )
    (HERE / "gradients.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main():
    if "--gradients" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--gradients", action="store_true")
        parser.add_argument("--data", required=True)
        parser.add_argument("--tool", default=str(grid.ROOT / "build/release/gradwire"))
        return gradients(parser.parse_args())
    return grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(grid.take_scale()), run_one)


if __name__ == "__main__":
    sys.exit(main())
