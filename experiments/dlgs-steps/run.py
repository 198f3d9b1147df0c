#!/usr/bin/env python3
"""Steps over parameter servers: DLGS beside what it is compared with, and plans beside each other.

    sudo experiments/dlgs-steps/run.py [--tool build/release/gradwire] [--rate 1gbit]

Four workers and one or three servers have a network namespace each, with shaped links. `gradwire bench exchange
--profile --servers` replays whole steps: forward and backward are sleeps, codec, exchange and servers are real. Servers
serve one exchange, so they are started anew for each row.

methods.txt is DLGS's table 2 and figures 11 to 13 in shape: floats, global Top-K, LAGS (layer-wise Top-K, a new
threshold in every step) and DLGS (thresholds that are reused for 100 steps, and merged layers), over one server.
plans.txt compares plans over one and over three servers. Standard library only."""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import commands
import exchange_net
import net

WORKERS = 4
# How many images one worker trains in a second, and in a step.
SPEEDS = {"resnet20": (6000, 32), "vgg16": (4000, 32), "resnet50": (104, 32)}
METHODS = {
    "none": ("none", "none"),
    "Top-K": ("topk:ratio=0.01,scope=global,refresh=1,over=0", "single"),
    "LAGS": ("topk:ratio=0.01,scope=layer,refresh=1,over=0", "none"),
    "DLGS": ("topk:ratio=0.01,scope=layer,refresh=100,over=0", "exact"),
}
PLANS = ["none", "single", "paper", "exact", "fixed:25MB"]
PLANNED = "resnet50"
PORT = 29700


@contextlib.contextmanager
def servers(args, n):
    """Starts servers anew, on the hosts after those of the workers. Yields their list."""
    places = []
    with contextlib.ExitStack() as started:
        for host in range(WORKERS, WORKERS + n):
            places.append(f"{net.address(host)}:{PORT}")
            words = [args.tool, "server", "--workers", WORKERS, "--insecure", "--listen", places[-1]]
            started.enter_context(commands.running([*net.inside(host), *words], stderr=subprocess.DEVNULL))
        time.sleep(0.3)
        yield ",".join(places)


def probe(args, folder, name):
    """Makes a profile for the link of one server. The frames of all workers pass this link together."""
    path = pathlib.Path(folder) / f"{name}.json"
    if path.exists():
        return path
    exchange_net.note(f"probe: {name}")
    images, batch = SPEEDS[name]
    codecs = [word for codec in ["none", "ternary", METHODS["DLGS"][0]] for word in ("--codec", codec)]
    words = ["probe", "--net", name, "--images-per-second", images, "--batch", batch, *codecs, "--runs", 5]
    commands.run(net.launch(args.tool, WORKERS, folder, [*words, "--timeout", 300, "-o", path]))
    profile = json.loads(path.read_text())
    # Among workers, (N - 1) / N of a gradient leaves each worker, and as much comes in. Here N whole gradients come in
    # at the server.
    profile["link"]["ms_per_byte"] *= WORKERS**2 / (2 * (WORKERS - 1))
    path.write_text(json.dumps(profile))
    return path


def replay(args, folder, name, codec, plan, n_servers):
    exchange_net.note(f"{name}: {codec}, plan {plan}, servers {n_servers}")
    with servers(args, n_servers) as places:
        words = ["bench", "exchange", "--profile", probe(args, folder, name), "--codec", codec, "--plan", plan]
        words += ["--servers", places, "--runs", args.runs, "--timeout", 300]
        return commands.tell(net.launch(args.tool, WORKERS, folder, words))["results"][0]


def write(name, lines):
    (HERE / name).write_text("\n".join(lines) + "\n")
    print("\n".join(lines), flush=True)


def head(args):
    return [
        f"experiments/dlgs-steps/run.py {' '.join(sys.argv[1:])}".rstrip(),
        exchange_net.machine(),
        f"{WORKERS} workers, {args.rate}/s links, medians of {args.runs} steps, milliseconds.",
    ]


def methods(args, folder):
    lines = [
        *head(args),
        "One server. compute: forward and backward. codec: measuring, encoding and decoding on a worker, waiting left",
        "out. communication: what a step takes besides if nothing is sent before backward ends. step: with overlap.",
        "DLGS reports 1.99 times the speed of none as its best.",
        "",
        f"{'network':10} {'method':8} {'groups':>6} {'compute':>9} {'codec':>9} {'communication':>14} {'step':>9} "
        f"{'x none':>7} {'MB up, all':>11}",
    ]
    for name in args.nets.split(","):
        none = None
        for method, (codec, plan) in METHODS.items():
            row = replay(args, folder, name, codec, plan, 1)
            none = none or row["seconds"]
            codec_s = row["codec_seconds"]
            rest = max(0.0, row["after_seconds"] - row["compute_seconds"] - codec_s)
            lines.append(
                f"{name:10} {method:8} {row['groups']:6} {1e3 * row['compute_seconds']:9.1f} {1e3 * codec_s:9.1f} "
                f"{1e3 * rest:14.1f} {1e3 * row['seconds']:9.1f} {none / row['seconds']:7.2f} "
                f"{1e-6 * row['bytes_up']:11.2f}"
            )
    write("methods.txt", lines)


def plans(args, folder):
    lines = [
        *head(args),
        f"{PLANNED}. after: nothing is sent before backward ends. hidden: of what backward could hide.",
        "",
        f"{'servers':>7} {'codec':46} {'plan':11} {'groups':>6} {'step':>9} {'after':>9} {'hidden':>7}",
    ]
    for n_servers in (1, 3):
        for codec in ["ternary", METHODS["DLGS"][0]]:
            for plan in PLANS:
                row = replay(args, folder, PLANNED, codec, plan, n_servers)
                share = row["hidden_share"]
                lines.append(
                    f"{n_servers:7} {codec:46} {plan:11} {row['groups']:6} {1e3 * row['seconds']:9.1f} "
                    f"{1e3 * row['after_seconds']:9.1f} {'' if share is None else f'{100 * share:.0f}%':>7}"
                )
    write("plans.txt", lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(ROOT / "build/release/gradwire"))
    parser.add_argument("--rate", default="1gbit", choices=net.SHAPES)
    parser.add_argument("--nets", default="resnet20,vgg16,resnet50")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    net.need_root()
    args.tool = str(pathlib.Path(args.tool).resolve())
    with tempfile.TemporaryDirectory(prefix="gradwire-dlgs-") as folder, net.network(WORKERS + 3):
        net.shape(WORKERS + 3, args.rate)
        methods(args, folder)
        plans(args, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
