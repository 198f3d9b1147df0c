#!/usr/bin/env python3
"""Makes the table of docs/choosing.md (what each codec sends, loses and costs), src/codec/losses.c and accuracy.svg,
from the results of other experiments.

    experiments/choosing/run.py [--measure] [--check] [--tool build/release/gradwire]

--measure times the codecs anew with `gradwire bench codec`, and writes times.tsv. --check writes nothing; it fails if
one of them is not what this script makes. That page must also say how many times fewer bytes ternary
sends, up and down, as the results do."""
import argparse
import csv
import datetime
import math
import pathlib
import statistics
import sys
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

PAGE, TIMES = grid.ROOT / "docs/choosing.md", HERE / "times.tsv"
C_FILE, CHART = grid.ROOT / "src/codec/losses.c", HERE / "accuracy.svg"
BEGIN, END = "<!-- experiments/choosing/run.py makes this table -->", "<!-- the end of the table -->"

# codec: who should take it
CODECS = {
    "none": "the network is fast enough",
    "bf16": "half the bytes are enough",
    "f16": "gradients lie between 0.00006 and 65,504",
    "ternary:residual=on": "you use SGD: try this first",
    "ternary:residual=on,momentum=0.9": "you compare: loses more",
    "topk:ratio=0.01,scope=global,refresh=100,over=0.5": "the network is slower still",
    "topk:ratio=0.01,scope=global,refresh=1,over=0.5,momentum=0.9": "you compare: no better than topk",
    "topk:ratio=0.1,scope=global,refresh=1,over=0.5,momentum=0.9,value=bf16": "you compare",
    "topk:ratio=0.01,scope=layer,refresh=100,over=0": "you compare: DLGS",
    "ternary": "no state may be kept: TernGrad",
    "gspar:density=0.1": "the problem is convex",
    "onebit:momentum=0.9": "only pushes are slow",
}
# Options of topk that need not be written.
DEFAULTS = ("ratio=0.01", "scope=global", "refresh=100", "over=0.5")
# What C has (gw_codec_loss): a name, and the tasks of experiments/accuracy. All have SGD. With Adam (CifarNet) all
# codecs that change gradients train more slowly, so it says nothing of which to take (docs/accuracy.md).
NETWORKS = {
    "ResNet-20": ("ResNet-20, 10 epochs", "ResNet-20, 20 epochs"),
    "LeNet": ("LeNet",),
    "perceptron": ("784-256-10", "784-128-64-10"),
}
TRANSFORMER = "transformer"  # of experiments/torch-training
# The columns of the page's table: the worst of these networks.
COLUMNS = {"ResNet-20": ("ResNet-20",), "MNIST": ("LeNet", "perceptron"), TRANSFORMER: (TRANSFORMER,)}
# Rows of ResNet-20 that experiments/dlgs-cifar10 has, with a schedule that is 2 % shorter.
SHORTER = {
    "ternary": "ternary",
    "onebit": "onebit",
    "gspar:density=0.1": "gspar 0.1",
    "topk:ratio=0.1,scope=layer,refresh=100,over=0": "DLGS 0.1",
    "topk:ratio=0.01,scope=layer,refresh=100,over=0": "DLGS 0.01",
}
# Codecs of which an experiment wanted to know one thing: nobody should take them.
STUDIES = ("over=0.25", "over=0.75", "topk:ratio=1,", "level=5")


def short(codec):
    name, _, options = codec.partition(":")
    options = [option for option in options.split(",") if not (name == "topk" and option in DEFAULTS)]
    return ":".join(filter(None, (name, ",".join(options))))


class Loss(typing.NamedTuple):
    """What a codec lost in a task against floats, in points of test accuracy. n: seeds."""

    lost: float
    up: float
    down: float
    n: int


def results(folder):
    with (HERE.parent / folder / "results.tsv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def beside_floats(mine, floats):
    """Compares the seeds that both have. None: there are none."""
    floats = {row["seed"]: float(row["test_accuracy"]) for row in floats}
    mine = [row for row in mine if row["seed"] in floats]
    if not mine:
        return None
    # Without the 0 there would be a -0.
    lost = round(100 * statistics.mean(floats[row["seed"]] - float(row["test_accuracy"]) for row in mine), 2) + 0
    up, down = (
        statistics.mean(32 * float(row[column]) / float(row["dense_bytes"]) for row in mine)
        for column in ("bytes_up", "bytes_down")
    )
    return Loss(lost, up, down, len(mine))


def in_bytes(row):
    """Returns a row of experiments/torch-training as experiments/accuracy has it. Nobody counts the bytes of hooks."""
    up, down = (1 / float(row[f"times_smaller_{way}"]) if row[f"times_smaller_{way}"] else 0 for way in ("up", "down"))
    return {**row, "test_accuracy": row["accuracy"], "bytes_up": up, "bytes_down": down, "dense_bytes": 1}


def losses():
    """Returns {(codec, network): Loss}. If a network has several tasks, it is the worst of them."""
    rows = [row for row in results("accuracy") if not any(study in row["codec"] for study in STUDIES)]
    found = {}
    for codec in dict.fromkeys([row["codec"] for row in rows] + list(SHORTER)):
        for network, tasks in NETWORKS.items():
            each = [
                beside_floats(
                    [row for row in rows if (row["task"], row["codec"]) == (task, codec)],
                    [row for row in rows if (row["task"], row["codec"]) == (task, "none")],
                )
                for task in tasks
            ]
            each = [one for one in each if one]
            if each and codec != "none":
                found[codec, network] = max(each)
    trained = [in_bytes(row) for row in results("torch-training") if row["model"] == TRANSFORMER]
    for codec in dict.fromkeys(codec for codec, _ in found):  # one easy task alone says nothing of a codec
        mine, floats = ([row for row in trained if row["codec"] == name] for name in (codec, "ddp"))
        if mine:
            found[codec, TRANSFORMER] = beside_floats(mine, floats)
    older = [row for row in results("dlgs-cifar10") if (row["net"], row["scale"]) == ("resnet20", "0.07")]
    for codec, method in SHORTER.items():
        if (codec, "ResNet-20") not in found:
            mine, floats = ([row for row in older if row["method"] == name] for name in (method, "none"))
            found[codec, "ResNet-20"] = beside_floats(mine, floats)
    return found


def c_file():
    """Returns the text of src/codec/losses.c."""
    names = ("none", "bf16", "f16", "ternary", "gspar", "uniform", "topk", "onebit")
    lines = [
        "/* What trainings lost with each codec, against floats. experiments/choosing/run.py writes this file, from",
        " * the results of experiments/accuracy, experiments/torch-training and experiments/dlgs-cifar10. */",
        '#include "codec/codec.h"',
    ]
    for name in names:
        lines += ["", f"const gw_codec_loss gw_losses_{name}[] = {{"]
        for (codec, network), loss in losses().items():
            if codec.partition(":")[0] == name:
                figures = f"{loss.lost:.2f}, {loss.up:.2f}, {loss.down:.2f}, {loss.n}"
                lines.append(f'    {{"{codec}", "{network}", {figures}}},')
        lines += ["    {0},", "};"]
    return "\n".join(lines) + "\n"


def times():
    with TIMES.open(newline="") as file:
        return {row["codec"]: row for row in csv.DictReader(file, delimiter="\t")}


def measure(tool):
    words = [tool, "bench", "codec", "--elements", "16Mi", "--runs", "15"]
    for codec in CODECS:
        words += ["--codec", codec]
    told = grid.tell(words)
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
    costs, lost = times(), losses()
    lines = [
        f"| codec | bits up | bits down | {' | '.join(COLUMNS)} | memcpys | take it if |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for codec, advice in CODECS.items():
        each = [[lost[codec, n] for n in networks if (codec, n) in lost] for networks in COLUMNS.values()]
        known = [loss for losses in each for loss in losses]
        plain = "16.0" if codec == "f16" else "32.0"
        up, down = (between([getattr(f, way) for f in known]) if known else plain for way in ("up", "down"))
        points = ["0" if codec == "none" else f"{0 - max(e).lost:+.2f}" if e else "" for e in each]
        cost = costs[codec]
        spent = float(cost["encode_memcpys"]) + float(cost["decode_memcpys"])
        lines.append(f"| `{short(codec)}` | {up} | {down} | {' | '.join(points)} | {spent:.1f} | {advice} |")
    return "\n".join(lines) + "\n"


def chart():
    """Returns an SVG. For each codec: bits of an element up and down, and what ResNet-20 lost."""
    rows = sorted((loss, codec) for (codec, network), loss in losses().items() if network == "ResNet-20")
    rows = [(Loss(0, 32, 32, 0), "none"), *rows]
    left, wide, bar, top, high = 360, 260, 650, 96, 26
    width, height = 800, top + high * len(rows) + 44
    most = max(1.0, rows[-1][0].lost)

    def at(bits):  # a scale of logarithms, from 1/4 to 32 bits
        return left + wide * (math.log2(bits) + 2) / 7

    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-label="What ResNet-20 lost with each codec, and the bits it sent">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        '<text x="20" y="30" font-size="17" font-weight="bold" fill="#1f2328">Accuracy at these bytes: ResNet-20 on '
        "CIFAR-10, the worse of 10 and 20 epochs</text>",
        f'<text x="{left}" y="58" fill="#1f2328">bits of an element</text>',
        f'<text x="{bar}" y="58" fill="#1f2328">points lost</text>',
    ]
    for bits, text in ((0.25, "1/4"), (1, "1"), (4, "4"), (32, "32")):
        svg.append(f'<text x="{at(bits):.0f}" y="80" text-anchor="middle" fill="#59636e">{text}</text>')
        svg.append(f'<path d="M{at(bits):.0f} 86V{height - 40}" stroke="#d0d7de"/>')
    for i, (loss, codec) in enumerate(rows):
        y = top + high * i + high // 2
        up, down, long = at(loss.up), at(loss.down), 90 * max(0.0, loss.lost) / most
        svg += [
            f'<text x="20" y="{y + 4}" fill="#1f2328">{short(codec)}</text>',
            f'<path d="M{up:.1f} {y}H{down:.1f}" stroke="#0969da" stroke-width="2"/>',
            f'<circle cx="{down:.1f}" cy="{y}" r="4.5" fill="#ffffff" stroke="#0969da" stroke-width="2"/>',
            f'<circle cx="{up:.1f}" cy="{y}" r="4.5" fill="#0969da"/>',
            f'<rect x="{bar}" y="{y - 7}" width="{long:.1f}" height="14" rx="2" fill="#d4a72c"/>',
            f'<text x="{bar + long + 6:.0f}" y="{y + 4}" fill="#1f2328">{loss.lost:.2f}</text>',
        ]
    svg.append(
        f'<text x="20" y="{height - 14}" font-size="12" fill="#59636e">Full: up, gradients. Hollow: down, averages. '
        f"One seed, if docs/choosing.md says nothing else. Below 0: better than floats.</text>"
    )
    return "\n".join([*svg, "</svg>"]) + "\n"


def times_fewer():
    """Returns words: how many times fewer bytes than float32 ternary sends, from the least to the most of all trainings
    on replicas. (Servers that hold the parameters send these, not averages.)"""
    up, down = [], []
    for file in sorted(HERE.parent.glob("*/results.tsv")):
        for row in results(file.parent.name) if file.parent.name != "lenet-servers" else []:
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
    page = grid.put_between(PAGE.read_text(), BEGIN, END, table())
    for file, text in ((PAGE, page), (C_FILE, c_file()), (CHART, chart())):
        if not args.check:
            file.write_text(text)
        elif file.read_text() != text:
            sys.exit(f"{file} says something else than the results: run experiments/choosing/run.py")
    if times_fewer() not in " ".join(PAGE.read_text().split()):
        sys.exit(f"{PAGE} does not say of ternary what the results say: {times_fewer()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
