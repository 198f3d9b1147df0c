#!/usr/bin/env python3
"""Training on MNIST over four hosts with shaped links: seconds a step of every codec, where they go, and seconds to 97
%.

    sudo bench/train_net.py --data DIR [--tool build/release/gradwire] [--rates 10gbit,1gbit,100mbit] [--nets lenet,mlp]
                            [--codecs SPEC SPEC ...] [--goals FILE] [--only-goals] [--json] [-o table.txt]

The hosts are four network namespaces on a bridge, with a worker in each. tbf limits what each sends and receives. How
many steps a codec needs to 97 % test accuracy depends on the codec, and not on the network: the parameters are the
same, bit for bit. So this is found once, on threads of this machine, at the end of each epoch. Then seconds a step are
measured over each network, and multiplied. --goals FILE keeps what was found, because it takes far longer than the
rest."""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import as_json
import commands
import exchange_net
import net

HERE = pathlib.Path(__file__).resolve().parent
HOSTS, GOAL = 4, 0.97
CODECS = ["none", "bf16", "ternary", "ternary:pull=packed,entropy=off", "gspar:density=0.01", "topk:ratio=0.01"]
NETS = {  # batch, most epochs, the same rate for all codecs
    "lenet": (["--net", "lenet", "--batch", "64", "--lr", "0.01"], 3),
    "mlp": (["--net", "mlp:784-4096-4096-10", "--batch", "512", "--lr", "0.05"], 5),
}
# How many steps are measured over each network: enough for a steady mean, few enough for 100 Mbit/s.
STEPS = {"lenet": {"10gbit": 200, "1gbit": 200, "100mbit": 100}, "mlp": {"10gbit": 16, "1gbit": 10, "100mbit": 5}}


def train_over(tool, folder, options, data, codec, steps, plan="none"):
    """Trains on the hosts of a network that is there, with a worker on each. Returns the summary."""
    words = ["train", *options, "--data", data, "--codec", codec, "--steps", steps, "--schedule", "const"]
    words += ["--plan", plan, "--timeout", 600]
    return commands.tell(net.launch(tool, HOSTS, folder, words))


def goal_in(metrics):
    """How many steps it took until the test accuracy was 97 %. None: the run has not come so far."""
    if not metrics.exists():
        return None
    for line in metrics.read_text().splitlines(keepends=True):
        if line.endswith("\n") and json.loads(line).get("test_accuracy", 0) >= GOAL:
            return json.loads(line)["step"] + 1
    return None


def steps_to_goal(args, options, epochs, codec):
    """How many steps it takes until the test accuracy is 97 % at the end of an epoch. The run is stopped then. None: it
    never comes so far."""
    with tempfile.TemporaryDirectory() as out:
        words = [args.tool, "train", *options, "--data", args.data, "--workers", HOSTS, "--codec", codec]
        words += ["--epochs", epochs, "--schedule", "const", "--plan", args.plan, "--timeout", 600]
        words += ["--out", out, "--overwrite"]
        metrics, end = pathlib.Path(out) / "metrics.jsonl", time.monotonic() + commands.MOST_SECONDS
        with commands.running(words, stdout=subprocess.DEVNULL) as run:
            while run.poll() is None and not goal_in(metrics) and time.monotonic() < end:
                time.sleep(1)
            goal = goal_in(metrics)
            if not goal and run.poll() != 0:
                raise commands.Failed("gradwire train failed, or took too long")
    return goal


def goals(args, name):
    """Returns {codec: steps to 97 %, or None} of a network."""
    path = pathlib.Path(args.goals)
    known = json.loads(path.read_text()) if path.exists() else {}
    options, epochs = NETS[name]
    found = known.setdefault(f"{name} {' '.join(options)}", {})
    for codec in args.codecs if not args.no_goals else []:
        if codec not in found:
            exchange_net.note(f"{name}: steps to 97 % with {codec}")
            found[codec] = steps_to_goal(args, options, epochs, codec)
            path.write_text(json.dumps(known, indent=1) + "\n")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tool", default=str(HERE.parent / "build/release/gradwire"))
    parser.add_argument("--nets", default="lenet,mlp")
    parser.add_argument("--rates", default="10gbit,1gbit,100mbit")
    parser.add_argument("--codecs", nargs="+", default=CODECS)
    parser.add_argument("--plan", default="none")
    parser.add_argument(
        "--goals",
        default="train_net-goals.json",
        help="keeps the steps to 97 %%; those that are there are not looked for again",
    )
    parser.add_argument("--only-goals", action="store_true", help="look for the steps to 97 %% and measure nothing")
    parser.add_argument(
        "--no-goals", action="store_true", help="do not look for the steps to 97 %%: use those that FILE has"
    )
    parser.add_argument("--congestion", default="cubic", help="TCP's congestion control")
    as_json.option(parser)
    parser.add_argument("-o", help="the table goes there too")
    args = parser.parse_args()
    args.tool, args.data = str(pathlib.Path(args.tool).resolve()), str(pathlib.Path(args.data).resolve())
    if args.only_goals:
        print(json.dumps({name: goals(args, name) for name in args.nets.split(",")}, indent=1))
        return 0
    net.need_root()
    lines = [
        f"bench/train_net.py {' '.join(sys.argv[1:])}",
        exchange_net.machine(),
        "Means a step and worker: compute, codec (the pipeline's, beside compute), waiting.",
        "x none: speed of a step beside codec none.",
        "97 %: steps until the test accuracy is reached at an epoch's end, times seconds a step.",
    ]
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(as_json.printed(args.json))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gradwire-net-"))
        stack.enter_context(net.network(HOSTS, args.congestion))
        for name in args.nets.split(","):
            options = NETS[name][0]
            goal = goals(args, name)
            for rate in args.rates.split(","):
                net.shape(HOSTS, rate)
                lines += [
                    "",
                    f"{name} ({' '.join(options)}), {HOSTS} hosts at {rate}/s",
                    f"  {'codec':34} {'ms a step':>10} {'compute':>9} {'codec':>9} {'waiting':>9} {'x none':>7} "
                    f"{'steps':>6} {'s to 97 %':>10}",
                ]
                plain = None
                for codec in args.codecs:
                    exchange_net.note(f"{name} at {rate}: {codec}")
                    steps = STEPS[name][rate]
                    s = train_over(args.tool, folder, options, args.data, codec, steps, args.plan)
                    times = {key: s[key] for key in ("step_ms", "compute_ms", "encode_ms", "wait_ms")}
                    found.append({"net": name, "rate": rate, "codec": codec, "steps": steps, **times})
                    plain = plain or s["step_ms"]
                    steps = goal.get(codec)
                    seconds = f"{steps * s['step_ms'] / 1e3:10.1f}" if steps else f"{'-':>10}"
                    lines.append(
                        f"  {codec:34} {s['step_ms']:10.2f} {s['compute_ms']:9.2f} {s['encode_ms']:9.2f} "
                        f"{s['wait_ms']:9.2f} {plain / s['step_ms']:7.2f} {steps or '-':>6} {seconds}"
                    )
                    print(lines[-1], flush=True)
                    if args.o:
                        pathlib.Path(args.o).write_text("\n".join(lines) + "\n")
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
