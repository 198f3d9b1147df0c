#!/usr/bin/env python3
"""TernGrad's table 1 in shape: CifarNet on CIFAR-10 with Adam, 2 workers at a batch of 128 and 16 workers at 2048.

    experiments/cifarnet-cifar10/run.py --data DIR [--tool build/release/gradwire] [--only GLOB] [--table] [--scale 1]

The paper runs 300,000 steps of 128 and 18,750 of 2048, some 768 epochs, and loses 0.92 and 0.39 points with ternary
gradients. The recipe is terngrad-cifarnet; its length is shortened by SCALE; --scale 1 repeats a row at full length.

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. table.txt is made anew from results.tsv after every run."""
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = ["run", "workers", "batch", "codec", "seed", "scale", "steps", "test_accuracy", "train_loss", "bytes_up"]
COLUMNS += ["bytes_down", "dense_bytes", "nonzero_share", "parameter_hash"]

SCALE = 0.02
ROWS = [(2, 128, 300000, -0.92), (16, 2048, 18750, -0.39)]
CODECS = ["none", "ternary"]
SEEDS = (1, 2)


def all_runs(scale):
    runs = []
    for seed in SEEDS:
        for workers, batch, steps, _ in ROWS:
            for codec in CODECS:
                name = f"w{workers}-b{batch}-{codec}-s{seed}" + (f"-x{scale}" if scale else "")
                runs.append((name, workers, batch, codec, seed, scale or SCALE, steps))
    return runs


def run_one(args, run):
    name, workers, batch, codec, seed, scale, steps = run
    words = ["--recipe", "terngrad-cifarnet", "--data", args.data, "--workers", workers, "--batch", batch]
    words += ["--steps", round(scale * steps), "--codec", codec, "--seed", seed, "--timeout", 1200]
    s = grid.train(args, *words)
    share = s.get("nonzero_share")
    return {
        **{k: s[k] for k in COLUMNS if k in s},
        "codec": codec,
        "seed": seed,
        "scale": scale,
        "nonzero_share": "" if share is None else share,
    }


def table(rows):
    lines = [
        "CifarNet on CIFAR-10, Adam at 0.0002, moving average 0.9999: test accuracy in percent, means over seeds",
        f"{grid.machine(rows)}; experiments/cifarnet-cifar10/run.py",
        "paper: what TernGrad's table 1 loses to floats, after the whole length (300,000 and 18,750 steps). Not as in",
        "the paper: the length, and no weight decay on the hidden layers.",
        "",
        f"{'workers':>7} {'batch':>6} {'steps':>7} {'codec':8} {'seeds':>5} {'accuracy':>9} {'spread':>7} "
        f"{'to none':>8} {'paper':>6} {'up, x smaller':>14} {'down':>6}",
    ]
    by = {}
    for row in rows:
        by.setdefault((int(row["workers"]), int(row["batch"]), int(row["steps"]), row["codec"]), []).append(row)
    paper = {(workers, batch): loss for workers, batch, _, loss in ROWS}
    for key in sorted(by):
        found, none = by[key], by.get((*key[:3], "none"))
        accuracy, spread = grid.accuracy_of(found)
        gap = paper_gap = ""
        if key[3] != "none" and none:
            gap = f"{accuracy - 100 * statistics.mean(float(row['test_accuracy']) for row in none):+.2f}"
            paper_gap = f"{paper[key[:2]]:+.2f}"
        up, down = (
            statistics.mean(float(row["dense_bytes"]) / float(row[k]) for row in found)
            for k in ("bytes_up", "bytes_down")
        )
        lines.append(
            f"{key[0]:7} {key[1]:6} {key[2]:7} {key[3]:8} {len(found):5} {accuracy:9.2f} {spread} {gap:>8} "
            f"{paper_gap:>6} {up:14.1f} {down:6.1f}"
        )
    return lines


def main():
    return grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(grid.take_scale()), run_one)


if __name__ == "__main__":
    sys.exit(main())
