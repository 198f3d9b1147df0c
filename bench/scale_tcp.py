#!/usr/bin/env python3
"""How the tcp link grows with the number of members, all on this machine's loopback: memory of a member, messages of a
step, time.

    bench/scale_tcp.py [--tool build/release/gradwire] [--sizes 2,4,8,16,32,64] [--steps 100] [-o table.txt]

Trains mlp:784-32-10 (4 tensors) on drawn digits, with a process for each worker, once with a group for each layer and
once with one group. Memory is the most that a process had, with data and network. A single worker without a link stands
first."""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import commands
import exchange_net

HERE = pathlib.Path(__file__).resolve().parent
RUN = ["train", "--net", "mlp:784-32-10", "--data", "digits", "--batch", "64", "--codec", "ternary", "--timeout", "120"]


def run(args, size, plan, port):
    """Returns the most memory of a member in MB (the largest, the mean), messages a step, ms a step, seconds in all."""
    with tempfile.TemporaryDirectory() as out:
        begin = time.monotonic()
        place = ["env", f"WORLD_SIZE={size}", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}"]
        words = [args.tool, *RUN, "--steps", str(args.steps), "--plan", plan]
        link = ["--link", "tcp"] if size > 1 else []
        members = [
            [*place, f"RANK={rank}", *words, *link, *(["--out", out, "--json"] if rank == 0 else [])]
            for rank in range(size)
        ]
        most = [megabytes for _, megabytes in commands.run_measured(members, commands.RANKS_SECONDS)]
        seconds = time.monotonic() - begin
        steps = [json.loads(line) for line in (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()]
    return (
        max(most),
        sum(most) / size,
        steps[-1]["messages"],
        sum(step["step_ms"] for step in steps) / len(steps),
        seconds,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(HERE.parent / "build/release/gradwire"))
    parser.add_argument("--sizes", default="2,4,8,16,32,64")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("-o", help="the table goes there too")
    args = parser.parse_args()
    args.tool = str(pathlib.Path(args.tool).resolve())
    lines = [
        f"bench/scale_tcp.py {' '.join(sys.argv[1:])}",
        exchange_net.machine(),
        f"{'members':>7} {'groups':>7} {'MB, most':>9} {'MB, mean':>9} {'messages':>9} {'a member':>9} "
        f"{'ms a step':>10} {'seconds':>8}",
    ]
    port = 23000 + os.getpid() % 5000
    for size in [1, *map(int, args.sizes.split(","))]:
        for plan, groups in (("none", 2), ("single", 1)):
            port += 1
            most, mean, messages, ms, seconds = run(args, size, plan, port)
            lines.append(
                f"{size:7} {groups:7} {most:9.1f} {mean:9.1f} {messages:9} {messages / size:9.1f} "
                f"{ms:10.2f} {seconds:8.1f}"
            )
            print(lines[-1], flush=True)
    if args.o:
        pathlib.Path(args.o).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
