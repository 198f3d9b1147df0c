#!/usr/bin/env python3
"""DLGS figures 5 to 10 in shape: ResNet-20, and VGG16 at a quarter of its width, on CIFAR-10 with three workers.

    experiments/dlgs-cifar10/run.py --data DIR [--tool build/release/gradwire] [--only GLOB] [--table] [--scale 1]

Methods: floats, global Top-K, LAGS (layer-wise Top-K, a new threshold in every step), DLGS (thresholds that serve 100
steps), ternary, onebit and gspar. The schedule is the paper's (recipes dlgs-resnet20 and dlgs-vgg16), shortened by
SCALE; --scale 1 repeats a row at full length: --only 'resnet20-dlgs-0.1-s1' --scale 1.

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. table.txt is made anew from results.tsv after every run."""
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = ["run", "net", "method", "seed", "scale", "epochs", "test_accuracy", "train_loss", "bytes_up", "bytes_down"]
COLUMNS += ["dense_bytes", "parameter_hash"]

SCALE = {"resnet20": 0.07, "vgg16:0.25": 0.1}
EPOCHS = 140  # as in the paper
RECIPES = {"resnet20": "dlgs-resnet20", "vgg16:0.25": "dlgs-vgg16"}
METHODS = {  # name: codec, seeds
    "none": ("none", (1, 2, 3)),
    "DLGS 0.1": ("topk:ratio=0.1,scope=layer,refresh=100,over=0", (1, 2, 3)),
    "Top-K 0.1": ("topk:ratio=0.1,scope=global,refresh=1,over=0", (1,)),
    "LAGS 0.1": ("topk:ratio=0.1,scope=layer,refresh=1,over=0", (1,)),
    "DLGS 0.01": ("topk:ratio=0.01,scope=layer,refresh=100,over=0", (1,)),
    "ternary": ("ternary", (1,)),
    "onebit": ("onebit", (1,)),
    "gspar 0.1": ("gspar:density=0.1", (1,)),
    "DLGS 0.1, server": ("topk:ratio=0.1,scope=layer,refresh=100,over=0", (1,)),
}
PORT = 29650


def all_runs(scale):
    runs = []
    for seed in (1, 2, 3):
        for net in ("vgg16:0.25", "resnet20"):
            for method, (codec, seeds) in METHODS.items():
                if seed in seeds and (net == "resnet20" or not method.endswith("server") and method != "onebit"):
                    name = f"{net.split(':')[0]}-{method.lower().replace(', ', '-').replace(' ', '-')}-s{seed}"
                    name += f"-x{scale}" if scale else ""
                    runs.append((name, net, method, codec, seed, scale or SCALE[net]))
    return runs


def over_a_server(args, words):
    """Trains in DLGS's own architecture: the server has the parameters, and workers push while backward runs."""
    tool = str(pathlib.Path(args.tool).resolve())
    place = f"127.0.0.1:{PORT}"
    with grid.running([tool, "server", "--workers", 3, "--listen", place], stderr=subprocess.DEVNULL):
        return grid.train(args, *words, "--servers", place, "--parameters", "servers")


def run_one(args, run):
    name, net, method, codec, seed, scale = run
    words = ["--recipe", RECIPES[net], "--scale", scale, "--net", net, "--data", args.data, "--codec", codec]
    words += ["--seed", seed, "--timeout", 1200]
    s = over_a_server(args, words) if method.endswith("server") else grid.train(args, *words)
    return {
        **{k: s[k] for k in COLUMNS if k in s},
        "net": net,
        "method": method,
        "seed": seed,
        "scale": scale,
        "epochs": round(scale * EPOCHS),
    }


def table(rows):
    lines = [
        "CIFAR-10, three workers, batch 32 each: test accuracy in percent at the end, mean and spread over seeds",
        f"{grid.machine(rows)}; experiments/dlgs-cifar10/run.py",
        "DLGS's schedule (140 epochs, rates drop at 80 and 120) shortened to the epochs that are shown. VGG16 has a",
        "quarter of its maps. How long steps take is in experiments/dlgs-steps.",
        "",
        f"{'network':12} {'method':17} {'epochs':>6} {'seeds':>5} {'accuracy':>9} {'spread':>7} {'to none':>8} "
        f"{'up, x smaller':>14} {'down':>7}",
    ]
    by = {}
    for row in rows:
        by.setdefault((row["net"], float(row["scale"]), row["method"]), []).append(row)

    def mean(found, key):
        return statistics.mean(float(row[key]) for row in found)

    order = list(METHODS)
    for key in sorted(by, key=lambda k: (k[0], k[1], order.index(k[2]))):
        found, none = by[key], by.get((key[0], key[1], "none"))
        accuracy, spread = grid.accuracy_of(found)
        gap = f"{accuracy - 100 * mean(none, 'test_accuracy'):+8.2f}" if none else f"{'':8}"
        up, down = (mean(found, "dense_bytes") / mean(found, k) for k in ("bytes_up", "bytes_down"))
        lines.append(
            f"{key[0]:12} {key[2]:17} {found[0]['epochs']:>6} {len(found):5} {accuracy:9.2f} {spread} {gap} {up:14.1f} "
            f"{down:7.1f}"
        )
    return lines


def main():
    return grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(grid.take_scale()), run_one)


if __name__ == "__main__":
    sys.exit(main())
