#!/usr/bin/env python3
"""Steps of known networks over shaped links, replayed: backward is sleeps, codec and exchange are real. Compares plans
with each other, and with what the profile predicts.

    sudo experiments/plan-replay/run.py [--nets resnet50,vgg16,resnet20] [--rates 10gbit,1gbit,100mbit] [--runs 5]

Four workers have a network namespace each. For every network and rate, `gradwire probe` measures a profile over that
link. `gradwire bench exchange --profile` then measures all plans of the codecs by turns. "advice" is what `gradwire
advise` takes from the profile: a codec with its exact plan. table.txt has the result. Standard library only."""
import argparse
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import commands
import exchange_net
import net

HOSTS = 4
# How many images one worker trains in a second, and in a step. The worker has one GPU; multiply-adds give its speed.
SPEEDS = {"resnet50": (300, 32), "vgg16": (4000, 32), "resnet20": (6000, 32)}
CODECS = ["none", "ternary", "topk:ratio=0.01,scope=layer,refresh=100,over=0"]
PLANS = ["none", "single", "paper", "exact", "fixed:25MB"]
FLOAT_PLANS, FLOAT_RUNS = ["exact"], 3  # floats take long, and only the advice needs them


def replay(args, folder, profile, codecs, plans, runs):
    """Measures these codecs with these plans, by turns. Returns the rows."""
    words = ["bench", "exchange", "--profile", profile, "--runs", runs, "--timeout", 300]
    words += [word for codec in codecs for word in ("--codec", codec)]
    words += [word for plan in plans for word in ("--plan", plan)]
    return commands.tell(net.launch(args.tool, HOSTS, folder, words))["results"]


def measure(args, folder, name, rate):
    """Measures one network at one rate. Returns the rows and the advice."""
    profile = pathlib.Path(args.profiles or folder) / f"{name}-{rate}.json"
    images, batch = SPEEDS[name]
    codecs = [word for codec in CODECS for word in ("--codec", codec)]
    if not profile.exists():
        exchange_net.note(f"{name} at {rate}: probe")
        words = ["probe", "--net", name, "--images-per-second", images, "--batch", batch, *codecs, "--timeout", 300]
        commands.run(net.launch(args.tool, HOSTS, folder, [*words, "-o", profile]))
    exchange_net.note(f"{name} at {rate}: replay")
    rows = replay(args, folder, profile, CODECS[:1], FLOAT_PLANS, min(FLOAT_RUNS, args.runs))
    rows += replay(args, folder, profile, CODECS[1:], PLANS, args.runs)
    return rows, commands.tell([args.tool, "advise", "--profile", profile])


def summary(cells):
    """Says how good plans and predictions were over all cells of the table."""
    off = [row["predicted_seconds"] / row["seconds"] - 1 for rows, _ in cells for row in rows]
    errors = [100 * abs(error) for error in off]
    lines = [f"predicted: median error {statistics.median(errors):.1f} %, worst {max(errors):.1f} %"]
    groups = [[row for row in rows if row["codec"] == codec] for rows, _ in cells for codec in CODECS]
    behind = [
        next(row["seconds"] for row in group if row["plan"] == "exact") / min(row["seconds"] for row in group) - 1
        for group in groups
    ]
    lines.append(f"exact behind the fastest plan: {100 * max(behind):.1f} % at worst in {len(behind)} cells")
    hidden = [
        row["hidden_share"]
        for group in groups
        for row in group
        if row["plan"] == "exact" and row["hidden_share"] is not None
    ]
    if hidden:
        lines.append(
            f"hidden with exact: {100 * min(hidden):.0f} % at least, median {100 * statistics.median(hidden):.0f} %"
        )
    wrong = 0
    for rows, advice in cells:
        taken = next(row["seconds"] for row in rows if (row["codec"], row["plan"]) == (advice["codec"], "exact"))
        wrong += taken > 1.05 * min(row["seconds"] for row in rows)
    lines.append(f"advice within 5 % of the fastest codec and plan: {len(cells) - wrong} of {len(cells)}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(ROOT / "build/release/gradwire"))
    parser.add_argument("--nets", default="resnet50,vgg16,resnet20")
    parser.add_argument("--rates", default="10gbit,1gbit,100mbit")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--profiles", help="folder that keeps the profiles; those that are there are not measured again"
    )
    parser.add_argument("-o", default=str(HERE / "table.txt"), help="where the table goes")
    args = parser.parse_args()
    net.need_root()
    args.tool = str(pathlib.Path(args.tool).resolve())
    lines = [
        f"experiments/plan-replay/run.py {' '.join(sys.argv[1:])}".rstrip(),
        exchange_net.machine(),
        "ms: median step of the slowest of 4 members, forward and backward included. after: nothing is sent before",
        "backward ends. hidden: of what backward could hide of the exchange (docs/plan.md).",
    ]
    cells, shown = [], 0
    with tempfile.TemporaryDirectory(prefix="gradwire-net-") as folder, net.network(HOSTS):
        for rate in args.rates.split(","):
            net.shape(HOSTS, rate)
            for name in args.nets.split(","):
                rows, advice = measure(args, folder, name, rate)
                cells.append((rows, advice))
                lines += [
                    "",
                    f"{name} at {rate}/s, {1e3 * rows[0]['compute_seconds']:.1f} ms of forward and backward; advice: "
                    f"{advice['codec']}, {advice['step_ms']:.1f} ms",
                    f"  {'codec':18} {'plan':12} {'groups':>6} {'ms':>9} {'predicted':>10} {'off':>7} {'after':>9} "
                    f"{'hidden':>7}",
                ]
                for row in rows:
                    predicted, share = row["predicted_seconds"], row["hidden_share"]
                    lines.append(
                        f"  {row['codec']:18} {row['plan']:12} {row['groups']:6} {1e3 * row['seconds']:9.2f} "
                        f"{1e3 * predicted:10.2f} {100 * (predicted / row['seconds'] - 1):+6.1f}% "
                        f"{1e3 * row['after_seconds']:9.2f} {'' if share is None else f'{100 * share:.0f}%':>7}"
                    )
                print("\n".join(lines[shown:]), flush=True)
                shown = len(lines)
    lines += ["", *summary(cells)]
    print("\n".join(lines[shown:]), flush=True)
    pathlib.Path(args.o).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
