#!/usr/bin/env python3
"""Averaging one step's gradients among four hosts with shaped links: Gradwire's codecs beside Gloo's and OpenMPI's
ring.

    sudo bench/exchange_net.py [--tool build/release/gradwire] [--nets vgg16,alexnet] [--rates 10gbit,1gbit,100mbit]
                               [--runs 3] [--codecs SPEC SPEC ...] [--wire auto] [--gradients NAME] [--json] [-o FILE]

The hosts are four network namespaces on a bridge. tbf limits what each sends and receives. Every figure is a median of
the runs. A run's time is that of its slowest member, from a barrier until all have the averages in their gradients.
`wire` is what the interfaces counted over what Gradwire reports. The rest is TCP's, IP's and Ethernet's headers,
acknowledgements and the meeting. With --wire small,fast,auto each codec that has a choice is measured with all of
these, by turns. `x best` is its time over that of the better of small and fast. Gloo is measured through PyTorch, if
that is installed, and OpenMPI's ring if mpicc and mpirun are installed."""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import as_json
import commands
import net
import openmpi

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"
HOSTS = 4
CODECS = ["none", "bf16", "ternary", "ternary:pull=packed,entropy=off", "gspar:density=0.01", "topk:ratio=0.01"]
ELEMENTS = {"alexnet": 60_969_000, "vgg16": 14_719_818}


def note(text):
    print(text, file=sys.stderr, flush=True)


def gradwire(args, folder, shape, codec, runs, wire="auto"):
    words = ["bench", "exchange", *shape, "--runs", runs, "--timeout", 600, "--codec", codec, "--wire", wire]
    keys = pathlib.Path(folder) / "keys" if args.keys else None
    if keys and not keys.exists():
        commands.run([args.tool, "keys", "new", keys])
    before = net.sent_bytes(HOSTS)
    row = commands.tell(net.launch(args.tool, HOSTS, folder, words, keys))["results"][0]
    sent = net.sent_bytes(HOSTS) - before
    row["wire_ratio"] = sent / ((row["bytes_up"] + row["bytes_down"]) * (runs + 2)) if row["warm_up"] == 2 else None
    return row


def by_turns(args, folder, shape, codec):
    """A row for each wire choice, the median of its turns. If the codec has no choice, there is one row."""
    wires = args.wire.split(",")
    first = gradwire(args, folder, shape, codec, args.runs, wires[0])
    if len(wires) == 1 or not first["wire_has_choice"]:
        return {"": first}
    turns = {wire: [] for wire in wires}
    turns[wires[0]].append(first)
    for turn in range(args.turns):
        for wire in wires if turn else wires[1:]:
            turns[wire].append(gradwire(args, folder, shape, codec, args.runs, wire))
    rows = {}
    for wire, found in turns.items():
        found.sort(key=lambda row: row["seconds"])
        rows[wire] = found[(len(found) - 1) // 2]
    best = min((row["seconds"] for wire, row in rows.items() if wire != "auto"), default=None)
    for row in rows.values():
        row["x best"] = row["seconds"] / best if best else None
    return rows


def has_torch():
    return not subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode


def gloo(elements, runs):
    """The median seconds of Gloo's all-reduce. None: PyTorch is not installed."""
    if not has_torch():
        return None
    words = ["env", "GLOO_SOCKET_IFNAME=e0", PYTHON, HERE / "allreduce_gloo.py"]
    more = [HOSTS, f"{net.address(0)}:29600", elements, runs]
    ranks = [[*net.inside(host), *words, host, *more] for host in range(HOSTS)]
    said = commands.run_all(ranks, commands.RANKS_SECONDS)
    return statistics.median(json.loads(said[0]))


def openmpi_ring(folder, elements, runs):
    """The median seconds of OpenMPI's all-reduce. None: OpenMPI is not installed."""
    compiler, program = shutil.which("mpicc.openmpi"), pathlib.Path(folder) / "allreduce_mpi"
    if not compiler:
        return None
    subprocess.run([compiler, "-O2", "-o", str(program), str(HERE / "allreduce_mpi.c")], check=True)
    words = ["--host", ",".join(net.address(host) for host in range(HOSTS)), "-n", HOSTS]
    words += ["--mca", "plm_rsh_agent", net.shell_script(folder), *openmpi.OVER_TCP, *openmpi.OVER_E0]
    words += "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4".split()
    took = openmpi.run(net.inside(0), [*words, program, elements, runs])
    return took and statistics.median(took)


def measure(args, folder, name, shape, elements, rate):
    """Returns the rows of one network at one rate, and the lines of the table for them."""
    net.shape(HOSTS, rate)
    note(f"{name} at {rate}: Gloo and OpenMPI")
    rings = {"Gloo, ring": gloo(elements, args.runs), "OpenMPI, ring": openmpi_ring(folder, elements, args.runs)}
    better = min((seconds for seconds in rings.values() if seconds), default=None)
    of = {"net": name, "rate": rate}
    found = [{**of, "method": ring, "seconds": seconds} for ring, seconds in rings.items() if seconds]
    lines = [f"{name}, {elements / 1e6:.1f} M floats, {HOSTS} hosts at {rate}/s"]
    lines.append(
        f"  {'':34} {'ms':>10} {'least':>10} {'x ring':>8} {'codec ms':>9} {'up, MB':>9} {'down, MB':>9} {'wire':>6} "
        "x best"
    )
    for ring, seconds in rings.items():
        lines.append(f"  {ring:34} {1e3 * seconds:10.1f}" if seconds else f"  {ring:34} {'absent':>10}")
    for codec in args.codecs:
        note(f"{name} at {rate}: {codec}")
        for wire, row in by_turns(args, folder, shape, codec).items():
            found.append({**of, "method": codec, "wire": wire, **row})
            times = f"{better / row['seconds']:8.2f}" if better else f"{'':8}"
            stands = f" ({row['wire_stands']})" if wire == "auto" else ""
            ratio = f"{row['wire_ratio']:6.3f}" if row["wire_ratio"] else f"{'':6}"
            best = f" {row['x best']:6.3f}" if row.get("x best") else ""
            lines.append(
                f"  {f'{codec} {wire}{stands}'.strip():34} {1e3 * row['seconds']:10.1f} "
                f"{1e3 * row['seconds_min']:10.1f} {times} {1e3 * row['codec_seconds']:9.1f} "
                f"{row['bytes_up'] / 1e6:9.2f} {row['bytes_down'] / 1e6:9.2f} {ratio}{best}"
            )
    return found, lines


def machine():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores; {datetime.date.today().isoformat()}"
    return datetime.date.today().isoformat()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(HERE.parent / "build/release/gradwire"))
    parser.add_argument("--nets", default="vgg16,alexnet")
    parser.add_argument("--rates", default="10gbit,1gbit,100mbit")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--codecs", nargs="+", default=CODECS)
    parser.add_argument("--wire", default="auto", help="small, fast, auto, or several of them")
    parser.add_argument("--turns", type=int, default=3, help="how often each of several is measured")
    parser.add_argument(
        "--gradients", help="instead of drawn gradients those that train --save-gradients wrote: NAME.rank-R.gwp"
    )
    parser.add_argument("--congestion", default="cubic", help="TCP's congestion control")
    parser.add_argument("--keys", action="store_true", help="Gradwire's members encrypt what they send")
    as_json.option(parser)
    parser.add_argument("-o", help="the table goes there too")
    args = parser.parse_args()
    net.need_root()
    args.tool = str(pathlib.Path(args.tool).resolve())
    lines = [
        f"bench/exchange_net.py {' '.join(sys.argv[1:])}",
        machine(),
        "ms: median of the slowest member's times. x ring: the better ring's time over this one's.",
        "up, down: MB between all members.",
        "wire: bytes the interfaces counted over those that Gradwire reports",
    ]
    shown = 0
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(as_json.printed(args.json))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gradwire-net-"))
        stack.enter_context(net.network(HOSTS, args.congestion))
        for rate in args.rates.split(","):
            if args.gradients:
                name = pathlib.Path(args.gradients).resolve()
                probe = gradwire(args, folder, ["--gradients", name], "none", 1)
                elements = probe["dense_bytes"] // 4 // (HOSTS - 1)
                cases = [(name.name, ["--gradients", name], elements)]
            else:
                cases = [(name, ["--net", name], ELEMENTS[name]) for name in args.nets.split(",")]
            for name, shape, elements in cases:
                more, table = measure(args, folder, name, shape, elements, rate)
                found += more
                lines += ["", *table]
            print("\n".join(lines[shown:]), flush=True)
            shown = len(lines)
            if args.o:
                pathlib.Path(args.o).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
