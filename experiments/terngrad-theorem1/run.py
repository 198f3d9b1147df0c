#!/usr/bin/env python3
"""TernGrad's theorem 1, seen: with a rate that falls as 1/t, ternary gradients come ever closer to the minimum.

    experiments/terngrad-theorem1/run.py [--data DIR] [--tool build/release/gradwire]

Logistic regression with an L2 term has one minimum w*. SVRG with floats finds it. Then plain SGD runs with four workers
at the rate LR / (1 + t/T0), with floats, ternary gradients, and ternary gradients without clipping, which the theorem
is about (clipping moves the mean). table.txt has |w - w*|^2 / |w*|^2 after ever more steps, for drawn data and, with
--data, for a9a. The NPY files are read with the standard library alone."""
import argparse
import array
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

CODECS = ["none", "ternary:clip=0", "ternary"]
SEEDS = (1, 2, 3)
STEPS = [100, 300, 1000, 3000, 10000, 30000]
L2 = 0.01


def weights(args, parameters, folder):
    """The network's one tensor."""
    files = grid.tell([args.tool, "export", "--from", parameters, "-o", folder])["files"]
    data = pathlib.Path(files[0]).read_bytes()
    values = array.array("f")
    values.frombytes(data[10 + int.from_bytes(data[8:10], "little") :])
    return values


def distance(w, minimum):
    return sum((a - b) ** 2 for a, b in zip(w, minimum)) / sum(b * b for b in minimum)


def problem(args, name, data, lr, t0, batch):
    words = ["--net", "logreg", "--data", data, "--l2", L2, "--batch", batch, "--workers", 4]
    lines = [f"{name}: lambda {L2}, batch {batch}, rate {lr} / (1 + t/{t0})", ""]
    lines.append(f"{'steps':>8} " + " ".join(f"{codec:>16}" for codec in CODECS))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        exact = folder / "minimum"
        grid.train(
            args, *words, "--optimizer", "svrg", "--lr", lr, "--schedule", "const", "--epochs", 100, "--out", exact
        )
        minimum = weights(args, exact, folder / "npy")
        for steps in STEPS:
            row = []
            for codec in CODECS:
                found = []
                for seed in SEEDS:
                    out = folder / "run"
                    more = ["--optimizer", "sgd", "--lr", lr, "--schedule", f"inverse:{t0}", "--codec", codec]
                    more += ["--steps", steps, "--seed", seed, "--out", out, "--overwrite"]
                    grid.train(args, *words, *more)
                    found.append(distance(weights(args, out, folder / "npy"), minimum))
                row.append(sum(found) / len(found))
            lines.append(f"{steps:8} " + " ".join(f"{value:16.2e}" for value in row))
            print(lines[-1], flush=True)
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="folder with a9a")
    parser.add_argument("--tool", default=str(grid.ROOT / "build/release/gradwire"))
    args = parser.parse_args()
    lines = [
        "|w - w*|^2 / |w*|^2 of SGD after so many steps, means of three seeds; w*: the minimum, by SVRG with floats",
        f"{grid.machine()}; experiments/terngrad-theorem1/run.py",
        "",
    ]
    lines += problem(args, "drawn", "uneven:n=4096,d=64,c1=0.6,c2=0.25", 1, 100, 32)
    if args.data:
        lines += problem(args, "a9a", f"{args.data}/a9a", 1, 100, 32)
    (HERE / "table.txt").write_text("\n".join(lines[:-1]) + "\n")


if __name__ == "__main__":
    main()
