#!/usr/bin/env python3
"""GSpar on a CNN: LeNet on MNIST with four workers, optimal against uniform sparsification: accuracy against bits sent.

    experiments/gspar-lenet/run.py --data DIR [--tool build/release/gradwire] [--jobs 2] [--only GLOB] [--table]

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. After every run table.txt is made anew from results.tsv and, if gnuplot is
installed, accuracy.svg, too."""
import math
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = "run method setting seed steps test_accuracy train_loss bytes_up bytes_down dense_bytes nonzero_share".split()
COLUMNS += "skipped_steps parameter_hash".split()

WORKERS, BATCH, STEPS, SEEDS = 4, 64, 5000, (1, 2)
EPS, DENSITIES = (0.25, 1, 4, 16), (0.003, 0.01, 0.03, 0.1)
RATE, SLOW = 0.05, 0.005


def all_runs():
    runs = []
    for seed in SEEDS:
        runs.append((f"float-s{seed}", "float", "", seed, "none", RATE))
        runs += [(f"gspar-eps{e}-s{seed}", "gspar eps", e, seed, f"gspar:eps={e}", RATE) for e in EPS]
        runs += [(f"gspar-shared-eps{e}-s{seed}", "shared eps", e, seed, f"gspar:eps={e},share=on", RATE) for e in EPS]
        for codec in ("gspar", "uniform"):
            method = {"gspar": "gspar density", "uniform": "uniform"}[codec]
            runs += [(f"{codec}-{d}-s{seed}", method, d, seed, f"{codec}:density={d}", RATE) for d in DENSITIES]
            few = [d for d in DENSITIES if d <= 0.01]
            runs += [(f"slow-{codec}-{d}-s{seed}", f"slow {codec}", d, seed, f"{codec}:density={d}", SLOW) for d in few]
    return runs


def run_one(args, run):
    name, method, setting, seed, spec, rate = run
    words = ["--net", "lenet", "--data", args.data, "--workers", WORKERS, "--codec", spec, "--batch", BATCH]
    words += ["--steps", STEPS, "--optimizer", "sgd", "--lr", rate, "--schedule", "poly:0.5", "--weight-decay", 0.0005]
    words += ["--seed", seed, "--plan", "single", "--timeout", 600]
    s = grid.train(args, *words)
    weights = [(t["elements"], t["nonzero_share"]) for t in s["layers"]]
    share = sum(n * p for n, p in weights) / sum(n for n, _ in weights)
    return {
        **{k: s[k] for k in COLUMNS if k in s},
        "method": method,
        "setting": setting,
        "seed": seed,
        "nonzero_share": share,
    }


def means(rows):
    """Returns the mean figures of each method. Runs before 2026-11-23 do not say how many steps they dropped, which
    gives nan."""
    by = {}
    for row in rows:
        by.setdefault((row["method"], row["setting"]), []).append(row)
    return {
        key: {
            k: sum(float(r[k] or "nan") for r in found) / len(found)
            for k in ("test_accuracy", "bytes_up", "bytes_down", "dense_bytes", "nonzero_share", "skipped_steps")
        }
        | {"seeds": len(found)}
        for key, found in by.items()
    }


def table(rows):
    lines = [
        "LeNet on MNIST, 4 workers, sgd: test accuracy in percent after 5,000 steps of batch 64 (GSpar)",
        f"{grid.machine(rows)}; experiments/gspar-lenet/run.py",
        f"The rate is {RATE}; {SLOW} for the slow ones.",
        "Why some end at 9.8 %: what is kept is divided by its probability, so uniform at 0.01 has 100 times the",
        "variance of the gradient. That is too much for this rate. The loss grows without bound within 300 steps.",
        "Every later gradient holds a NaN, so its step is dropped, and the network gives one answer for all images.",
        "",
        f"{'method':14} {'setting':>8} {'seeds':>5} {'accuracy':>9} {'density':>8} {'up, x smaller':>14} "
        f"{'down, x smaller':>16} {'bits up an element':>19} {'steps dropped':>14}",
    ]
    found = means(rows)
    order = ["float", "gspar eps", "shared eps", "gspar density", "slow gspar", "uniform", "slow uniform"]
    for key in sorted(found, key=lambda k: (order.index(k[0]), float(k[1] or 0))):
        m = found[key]
        dropped = "-" if math.isnan(m["skipped_steps"]) else f"{m['skipped_steps']:.0f}"
        lines.append(
            f"{key[0]:14} {key[1]:>8} {m['seeds']:5} {100 * m['test_accuracy']:9.2f} {m['nonzero_share']:8.4f} "
            f"{m['dense_bytes'] / m['bytes_up']:14.1f} {m['dense_bytes'] / m['bytes_down']:16.1f} "
            f"{32 * m['bytes_up'] / m['dense_bytes']:19.3f} {dropped:>14}"
        )
    draw(found, order)
    return lines


def draw(found, order):
    """Draws accuracy against the bits that are sent for an element in a step. Each method is a line."""
    if not shutil.which("gnuplot"):
        return
    lines = {
        method: sorted(
            (32 * m["bytes_up"] / m["dense_bytes"], 100 * m["test_accuracy"])
            for k, m in found.items()
            if k[0] == method
        )
        for method in order
    }
    lines = {method: points for method, points in lines.items() if points}
    script = [
        "set terminal svg size 720,480",
        f"set output '{HERE / 'accuracy.svg'}'",
        "set logscale x",
        "set key bottom right",
        "set grid",
        "set xlabel 'bits sent an element and step (worker to owner)'",
        "set ylabel 'test accuracy, %'",
        "plot " + ", ".join(f"'-' with linespoints title '{method}'" for method in lines),
    ]
    for points in lines.values():
        script += [f"{x} {y}" for x, y in points] + ["e"]
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=False, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(), run_one))
