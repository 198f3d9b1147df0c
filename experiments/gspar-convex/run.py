#!/usr/bin/env python3
"""GSpar on convex problems: objective against passes over the data and against bits sent, optimal beside uniform
sparsification.

    experiments/gspar-convex/run.py --data DIR [--tool build/release/gradwire] [--jobs 2] [--only GLOB] [--table]

DIR holds a9a, w8a and mushrooms (LIBSVM, plain or compressed). Drawn data of uneven magnitude (section 5.1 of the
paper) need no files. A run trains at each rate of a grid, and keeps the best. results.tsv has a line for every finished
run. A run whose line is there is not repeated. At the end of a call table.txt is made anew and, if gnuplot is
installed, the charts of four problems."""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = "run net data lambda optimizer codec lr density bits_a_step steps_an_epoch elements objectives".split()

WORKERS, BATCH = 4, 32  # as in the paper: M = 4, mini-batches of 8
RATES = [4.0**k for k in range(-6, 4)]
DENSITIES, EPS = (0.05, 0.2), (1, 4)
# How many epochs a run has, and a long run that looks for the minimum. Drawn data have few samples, so an epoch has few
# steps.


def epochs_of(data, long=False):
    return (40, 400)[long] if ":" in data else (10, 60)[long]


SAMPLES = {"a9a": 32561, "w8a": 49749, "mushrooms": 8124}


def uneven(c1, c2):
    return f"uneven:n=1024,d=2048,c1={c1},c2={c2}"


CHARTS = ["a9a-1e-3", "w8a-1e-5", "uneven-0.6-0.25-1e-3", "svm-a9a-1e-3"]  # problems
# (short name, net, data, lambda)
PROBLEMS = [(f"{name}-1e-{e}", "logreg", name, 10.0**-e) for name in SAMPLES for e in (3, 5)]
PROBLEMS += [
    (f"uneven-{c1}-{c2}-{text}", "logreg", uneven(c1, c2), value)
    for c1, c2 in ((0.6, 0.25), (0.6, 0.0625), (0.9, 0.25), (0.1, 0.25))
    for text, value in (("1e-4", 1e-4), ("1e-3", 1e-3))
]
PROBLEMS += [("svm-a9a-1e-3", "svm", "a9a", 1e-3), ("svm-uneven-0.6-0.25-1e-3", "svm", uneven(0.6, 0.25), 1e-3)]
METHODS = ["none"] + [f"{name}:density={d}" for d in DENSITIES for name in ("gspar", "uniform")]
BOUNDED = [f"gspar:eps={eps}" for eps in EPS]  # these bound the variance, and the density follows (problem (2))


def all_runs():
    runs = []
    for name, net, data, l2 in PROBLEMS:
        runs.append((f"{name}-svrg-long", net, data, l2, "svrg", "none", True))
        for optimizer in ("sgd", "svrg"):
            for codec in METHODS + BOUNDED:
                runs.append((f"{name}-{optimizer}-{codec}", net, data, l2, optimizer, codec, False))
    return runs


def run_one(args, run):
    _, net, data, l2, optimizer, codec, long = run
    row = {"net": net, "data": data, "lambda": l2, "optimizer": "long" if long else optimizer, "codec": codec}
    curves = [curve for rate in RATES if (curve := train_at(args, run, rate))]
    if not curves:
        raise grid.Failed("it diverged at each rate")
    # The best rate is that of the last objectives. Of a run that looks for the minimum, only the minimum is kept.
    best = min(curves, key=lambda curve: min(curve["objectives"][0 if long else -2 :]))
    kept = [min(best["objectives"])] if long else best["objectives"]
    return {**row, **best, "objectives": ",".join(f"{x:.10g}" for x in kept)}


def train_at(args, run, rate):
    """Trains at one rate. Returns the columns that follow from it, or None if it diverged."""
    _, net, data, l2, optimizer, codec, long = run
    per_epoch = SAMPLES.get(data, 1024) // BATCH
    words = ["--net", net, "--data", data if ":" in data else pathlib.Path(args.data) / data, "--workers", WORKERS]
    words += ["--codec", codec, "--batch", BATCH, "--epochs", epochs_of(data, long), "--optimizer", optimizer]
    words += ["--lr", rate, "--schedule", "const" if optimizer == "svrg" else f"inverse:{2 * per_epoch}", "--l2", l2]
    with tempfile.TemporaryDirectory() as out:
        try:
            s = grid.train(args, *words, "--out", out)
        except grid.Failed as why:
            if "NaN" in str(why) or "infinit" in str(why):
                return None  # the rate is too large
            raise
        steps = [json.loads(line) for line in (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()]
    weight = s["layers"][0]
    return {
        "lr": rate,
        "density": weight["nonzero_share"],
        "bits_a_step": weight["push_payload_bits"] * weight["elements"],
        "steps_an_epoch": per_epoch,
        "elements": weight["elements"],
        "objectives": [step["objective"] for step in steps if step.get("objective") is not None],
    }


def start_of(net):
    """The objective at zero weights."""
    return math.log(2) if net == "logreg" else 1.0


class Curve:
    """The objective after every epoch, and the bits a worker has sent until then."""

    def __init__(self, row):
        self.objectives = [start_of(row["net"])] + [float(x) for x in row["objectives"].split(",") if x]
        per_epoch = float(row["bits_a_step"]) * int(row["steps_an_epoch"])
        if row["optimizer"] != "sgd":
            per_epoch += 32 * float(row["elements"])  # the full gradient, as float32
        self.bits = [e * per_epoch for e in range(len(self.objectives))]
        self.passes = [e * (1 if row["optimizer"] == "sgd" else 3) for e in range(len(self.objectives))]
        self.row = row
        self.last = min(self.objectives[-2:])

    def bits_to(self, level, least):
        """Returns the bits that are sent until the gap to `least` is `level`. Within an epoch the gap falls
        geometrically."""
        gaps = [max(x - least, 1e-300) for x in self.objectives]
        for e in range(1, len(gaps)):
            if gaps[e] <= level:
                part = math.log(gaps[e - 1] / level) / math.log(gaps[e - 1] / gaps[e]) if gaps[e - 1] > level else 0
                return self.bits[e - 1] + part * (self.bits[e] - self.bits[e - 1])
        return math.inf


def best_curves(rows):
    """Returns, for every problem whose runs are all done, the least objective known, and for every optimizer and codec
    the curve of the best rate."""
    found = {}
    for name, net, data, l2 in PROBLEMS:
        mine = [r for r in rows if (r["net"], r["data"], float(r["lambda"])) == (net, data, l2)]
        if len(mine) < 1 + 2 * len(METHODS + BOUNDED):
            continue  # not all of its runs are done
        least = min(min(float(x) for x in r["objectives"].split(",")) for r in mine)
        found[name] = (least, {(r["optimizer"], r["codec"]): Curve(r) for r in mine if r["optimizer"] != "long"})
    return found


def table(rows):
    lines = [
        "GSpar on convex problems: the bits that a worker sends (payload; svrg's full gradients included)",
        "until the objective is as close to its minimum as the worse of gspar and uniform gets in 10 epochs",
        "(drawn data: 40). Each runs at its best rate of a grid. 4 workers, mini-batches of 8",
        f"{grid.machine(rows)}; experiments/gspar-convex/run.py",
        "",
        f"{'problem':24} {'':4} {'density':>7} {'gap':>9} {'gap gspar':>10} {'gap uniform':>11} {'kbit gspar':>10} "
        f"{'kbit uniform':>12} {'uniform/gspar':>13} {'none/gspar':>10}",
    ]
    ratios = []
    for name, (least, best) in best_curves(rows).items():
        for optimizer in ("sgd", "svrg"):
            for density in DENSITIES:
                pair = [best.get((optimizer, f"{codec}:density={density}")) for codec in ("gspar", "uniform")]
                dense = best.get((optimizer, "none"))
                if None in pair or not dense:
                    continue
                gaps = [max(curve.last - least, 1e-15) for curve in pair]
                level = max(gaps)
                bits = [curve.bits_to(level * (1 + 1e-9), least) for curve in (*pair, dense)]
                ratios.append(bits[1] / bits[0])
                lines.append(
                    f"{name:24} {optimizer:4} {density:7} {level:9.2e} {gaps[0]:10.2e} {gaps[1]:11.2e} "
                    f"{bits[0] / 1e3:10.1f} {bits[1] / 1e3:12.1f} {bits[1] / bits[0]:13.2f} {bits[2] / bits[0]:10.2f}"
                )
    if ratios:
        ratios.sort()
        lines += [
            "",
            f"uniform needs {ratios[0]:.2f} to {ratios[-1]:.2f} times the bits of gspar, in the median "
            f"{ratios[len(ratios) // 2]:.2f}; more in {sum(r > 1 for r in ratios)} of {len(ratios)} cases",
        ]
    return lines + table_of_bounded(rows)


def table_of_bounded(rows):
    """The table of gspar:eps=E, whose density follows from the gradient, beside floats and the given density of 0.2."""
    lines = [
        "",
        "",
        "gspar:eps=E: the mean of |Q(g)|^2 is at most (1 + E) |g|^2, and the density follows from the gradient.",
        "The bits until the gap is that which the worst of none, eps and density=0.2 ends with. density: the mean over",
        "the run of the best rate. Runs before 2026-11-22 (results.tsv: all but those of eps) were packed by an",
        "earlier coder.",
        "",
        f"{'problem':24} {'':4} {'eps':>3} {'density':>8} {'gap':>9} {'gap none':>9} {'gap eps':>9} {'gap 0.2':>9} "
        f"{'kbit eps':>9} {'none/eps':>9} {'0.2/eps':>8}",
    ]
    none_ratios, density_ratios = [], []
    for name, (least, best) in best_curves(rows).items():
        for optimizer in ("sgd", "svrg"):
            for eps in EPS:
                keys = ("none", f"gspar:eps={eps}", "gspar:density=0.2")
                trio = [best.get((optimizer, codec)) for codec in keys]
                if None in trio:
                    continue
                gaps = [max(curve.last - least, 1e-15) for curve in trio]
                none, bounded, fixed = (curve.bits_to(max(gaps) * (1 + 1e-9), least) for curve in trio)
                none_ratios.append(none / bounded)
                density_ratios.append(fixed / bounded)
                lines.append(
                    f"{name:24} {optimizer:4} {eps:3} {float(trio[1].row['density']):8.4f} {max(gaps):9.2e} "
                    f"{gaps[0]:9.2e} {gaps[1]:9.2e} {gaps[2]:9.2e} {bounded / 1e3:9.1f} {none / bounded:9.2f} "
                    f"{fixed / bounded:8.2f}"
                )
    if not none_ratios:
        return []
    lines.append("")
    for ratios, what in ((none_ratios, "none"), (density_ratios, "density=0.2")):
        ratios.sort()
        lines.append(
            f"{what} needs {ratios[0]:.2f} to {ratios[-1]:.2f} times the bits of eps, in the median "
            f"{ratios[len(ratios) // 2]:.2f}"
        )
    return lines


def draw(rows):
    """Draws the gap against passes and against bits, for both optimizers."""
    if not shutil.which("gnuplot"):
        return
    found = best_curves(rows)
    for name in filter(found.__contains__, CHARTS):
        least, best = found[name]
        script = [
            "set terminal svg size 1000,760 font ',11'",
            f"set output '{HERE / (name + '.svg')}'",
            "set multiplot layout 2,2",
            "set logscale y",
            "set mytics 1",
            "set mxtics 1",
            "set format y '%.0e'",
            "set grid",
        ]
        for optimizer in ("sgd", "svrg"):
            curves = [(codec, best[optimizer, codec]) for codec in METHODS + BOUNDED if (optimizer, codec) in best]
            for axis in ("passes", "bits"):
                script += [
                    f"set title '{name}, {optimizer}'",
                    f"set xlabel '{'passes over the data' if axis == 'passes' else 'bits a worker has sent'}'",
                    "set ylabel 'objective - minimum'",
                    *(
                        ["unset logscale x", "set key top right"]
                        if axis == "passes"
                        else ["set logscale x", "set key bottom left"]
                    ),
                ]
                if not curves:
                    continue
                script.append("plot " + ", ".join(f"'-' with lines linewidth 2 title '{codec}'" for codec, _ in curves))
                for _, curve in curves:
                    script += [
                        f"{x} {max(y - least, 1e-15)}" for x, y in list(zip(getattr(curve, axis), curve.objectives))[1:]
                    ] + ["e"]
        script.append("unset multiplot")
        subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=False, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    the_grid = grid.Grid(HERE, COLUMNS, table)
    status = the_grid.main(__doc__, all_runs(), run_one)
    the_grid.write_table()
    draw(the_grid.rows())
    sys.exit(status)
