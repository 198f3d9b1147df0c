#!/usr/bin/env python3
"""Makes the table of docs/choosing.md: what each codec sends, loses and costs, from the results of other experiments.

    experiments/choosing/run.py [--measure] [--check] [--tool build/release/gradwire]

--measure times the codecs anew with `gradwire bench codec`, and writes times.tsv. --check writes nothing; it fails if
docs/choosing.md has another table than this script makes. README.md and that page must also say how many times fewer
bytes ternary sends, up and down, as the results do."""
import argparse
import csv
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

PAGE, README, TIMES = grid.ROOT / "docs/choosing.md", grid.ROOT / "README.md", HERE / "times.tsv"
BEGIN, END = "<!-- experiments/choosing/run.py makes this table -->\n", "<!-- the end of the table -->\n"

# Where a figure comes from: the folder, what its rows have in common, the columns that name a row, the name
# of floats, and the columns in which a row and its floats must agree.
RESNET = ("dlgs-cifar10", {"net": ["resnet20"], "scale": ["0.07"]}, "method", "none", ())
LENET_TERNARY = ("lenet-mnist", {"workers": ["4"], "optimizer": ["momentum"]}, "codec", "float", ())
LENET_GSPAR = ("gspar-lenet", {}, "method+setting", "float+", ())
LENET_TOPK = ("topk-lenet", {}, "method+ratio+refresh", "float+0+0", ())
LENET_ONEBIT = ("onebit-mnist", {"net": ["lenet"]}, "codec", "none", ())
PERCEPTRON = ("onebit-mnist", {"net": ["784-256-10", "784-128-64-10"]}, "codec", "none", ("net", "lr"))

# codec: (what the experiment calls it, for ResNet-20, LeNet and the perceptrons; who should take it)
CODECS = {
    "none": (None, None, None, "the network is not what your training waits for"),
    "bf16": (None, None, "bf16", "half the bytes are enough, and nothing may be lost"),
    "f16": (None, None, None, "the same, and no gradient is above 65,504"),
    "ternary": ("ternary", (LENET_TERNARY, "ternary"), "ternary", "the network is slow: try this one first"),
    "topk:ratio=0.1,scope=global,refresh=1": (
        "Top-K 0.1",
        (LENET_TOPK, "global Top-K+0.1+1"),
        None,
        "accuracy matters most",
    ),
    "topk:ratio=0.1": (
        "DLGS 0.1",
        (LENET_TOPK, "DLGS+0.1+100"),
        "topk:ratio=0.1,scope=layer,refresh=100,over=0",
        "the same, but it begins during backward",
    ),
    "topk": (
        "DLGS 0.01",
        (LENET_TOPK, "DLGS+0.01+100"),
        "topk:ratio=0.01,scope=layer,refresh=100,over=0",
        "the network is very slow, and training is long",
    ),
    "topk:scope=global,refresh=1": (
        None,
        (LENET_TOPK, "global Top-K+0.01+1"),
        "topk:ratio=0.01,scope=global,refresh=1,over=0",
        "the same, and may wait for the end of backward",
    ),
    "gspar": (
        None,
        (LENET_GSPAR, "gspar eps+1"),
        "gspar",
        "the problem is convex, or a proof needs unbiased gradients",
    ),
    "gspar:density=0.1": ("gspar 0.1", (LENET_GSPAR, "gspar density+0.1"), "gspar:density=0.1", "the same"),
    "onebit": (
        "onebit",
        (LENET_ONEBIT, "onebit:bucket=512"),
        "onebit:bucket=512",
        "only pushes are slow: averages come back as float32",
    ),
    "uniform:density=0.1": (None, (LENET_GSPAR, "uniform+0.1"), None, "you compare methods; it is a baseline"),
}


def rows_of(folder, common):
    with (HERE.parent / folder / "results.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [row for row in rows if all(row[key] in values for key, values in common.items())]


def beside_floats(source, name):
    """Returns (points to floats, bits up, bits down). If the experiment has several settings, the points are the worst
    of them."""
    folder, common, key, floats, settings = source
    groups = {}
    for row in rows_of(folder, common):
        called = "+".join(row[column] for column in key.split("+"))
        if called in (name, floats):
            groups.setdefault(tuple(row[s] for s in settings), {}).setdefault(called, []).append(row)
    found = [(both[name], both[floats]) for both in groups.values() if len(both) == 2]
    if not found:
        sys.exit(f"experiments/{folder} has no results of {name} beside {floats}")

    def accuracy(rows):
        return grid.accuracy_of(rows)[0]

    def bits(column):
        return statistics.mean(32 * float(row[column]) / float(row["dense_bytes"]) for rows, _ in found for row in rows)

    return (
        min(accuracy(mine) - accuracy(base) for mine, base in found),
        bits("bytes_up"),
        bits("bytes_down"),
    )


def times():
    with TIMES.open(newline="") as file:
        return {row["codec"]: row for row in csv.DictReader(file, delimiter="\t")}


def measure(tool):
    words = [tool, "bench", "codec", "--json", "--elements", "16Mi", "--runs", "15"]
    for codec in CODECS:
        words += ["--codec", codec]
    told = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    with TIMES.open("w") as out:
        out.write("codec\tencode_memcpys\tdecode_memcpys\tdate\tmachine\n")
        for codec in CODECS:
            found = {row["operation"]: row["memcpy_ratio"] for row in told["results"] if row["codec"] == codec}
            out.write(f"{codec}\t{found['encode']:.2f}\t{found['decode_average']:.2f}\t")
            out.write(f"{datetime.date.today().isoformat()}\t{grid.this_machine()}\n")


def between(values):
    low, high = (f"{end(values):.1f}" for end in (min, max))
    return low if low == high else f"{low}-{high}"


def table():
    costs = times()
    lines = ["| codec | bits up | bits down | ResNet-20 | LeNet | perceptron | memcpys | take it if |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for codec, (resnet, lenet, perceptron, advice) in CODECS.items():
        found = [
            beside_floats(RESNET, resnet) if resnet else None,
            beside_floats(*lenet) if lenet else None,
            beside_floats(PERCEPTRON, perceptron) if perceptron else None,
        ]
        known = [figures for figures in found if figures]
        plain = "16.0" if codec == "f16" else "32.0"
        up, down = (between([f[i] for f in known]) if known else plain for i in (1, 2))
        points = ["0" if codec == "none" else f"{f[0]:+.2f}" if f else "" for f in found]
        cost = costs[codec]
        spent = float(cost["encode_memcpys"]) + float(cost["decode_memcpys"])
        lines.append(f"| `{codec}` | {up} | {down} | {' | '.join(points)} | {spent:.1f} | {advice} |")
    return "\n".join(lines) + "\n"


def times_fewer():
    """Returns words: how many times fewer bytes than float32 ternary sends, from the least to the most of all trainings
    on replicas. (Servers that hold the parameters send these, not averages.)"""
    up, down = [], []
    for file in sorted(HERE.parent.glob("*/results.tsv")):
        rows = rows_of(file.parent.name, {}) if file.parent.name != "lenet-servers" else []
        for row in rows:
            if row.get("codec") in ("ternary", "ternary:skip=last") and int(row.get("bytes_down") or 0):
                up.append(float(row["dense_bytes"]) / float(row["bytes_up"]))
                down.append(float(row["dense_bytes"]) / float(row["bytes_down"]))
            elif row.get("codec") in ("ternary", "ternary:skip=last") and "times_smaller_down" in row:
                up.append(float(row["times_smaller_up"]))
                down.append(float(row["times_smaller_down"]))
    return (
        f"{min(up):.0f} to {max(up):.0f} times fewer bytes than float32, and {min(down):.0f} to {max(down):.0f} times "
        "fewer come back"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="time the codecs anew")
    parser.add_argument("--check", action="store_true", help="fail if the page has another table")
    parser.add_argument("--tool", default=str(grid.ROOT / "build/release/gradwire"))
    args = parser.parse_args()
    if args.measure:
        measure(args.tool)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    if not after:
        sys.exit(f"{PAGE} has no place for the table: a line {BEGIN.strip()} and a line {END.strip()}")
    new = table()
    if args.check and old != new:
        sys.exit(f"{PAGE} has another table than experiments/choosing/run.py makes of the results:\n{new}")
    for page in (README, PAGE):
        if times_fewer() not in " ".join(page.read_text().split()):
            sys.exit(f"{page} does not say of ternary what the results say: {times_fewer()}")
    if not args.check:
        PAGE.write_text(before + BEGIN + new + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
