#!/usr/bin/env python3
"""Latency of a step of small models, beside Gloo's and OpenMPI's all-reduce of the same floats.

    bench/latency.py [--program build/release/latency] [--sizes 2,4,8] [--models 1:1,200:1,200:200] [--steps 300]
                     [--rounds 3] [--namespaces 4] [--json]

Every member is a process. Steps follow each other without a pause. The time is rank 0's. The rows of a table run by
turns, --rounds times, and the table has p50 and p99 of all their steps, in microseconds. If members talk over TCP, so
does OpenMPI (`--mca btl tcp,self`). The mpi link is compared with OpenMPI as it comes (shared memory). With
--namespaces 0 nothing needs root. Needs a build with the trainer's options, `mpirun.openmpi`, and PyTorch for
/usr/bin/python3. Rows for which something is missing are left out.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

import as_json
import commands
import net
import openmpi
from exchange_net import PYTHON, has_torch, machine

HERE = pathlib.Path(__file__).resolve().parent
ELEMENTS = 64
SPIN_US = 200  # of the rows that look for messages before they sleep


def gloo_member(rank, size, place, tensors, elements, steps):
    """Runs one member of Gloo's all-reduce. Rank 0 prints the seconds of each step."""
    import datetime
    import time

    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"tcp://{place}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=60)
    )
    gradients = [torch.ones(elements) for _ in range(tensors)]
    took = []
    for step in range(steps + 20):
        begin = time.perf_counter()
        for work in [dist.all_reduce(gradient, async_op=True) for gradient in gradients]:
            work.wait()
        for gradient in gradients:
            gradient /= size
        if step >= 20:
            took.append(time.perf_counter() - begin)
    if rank == 0:
        print(json.dumps(took))


def in_host(args, rank, words):
    """The command line, which runs in the rank's namespace if there are namespaces."""
    return [*(net.inside(rank) if args.in_namespaces else []), *words]


def members(args, size, words_of):
    """Runs a process for each rank, and returns what rank 0 printed."""
    interface = "e0" if args.in_namespaces else "lo"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": interface, "OMP_NUM_THREADS": "1"}
    ranks = [in_host(args, rank, words_of(rank)) for rank in range(size)]
    said = commands.run_all(ranks, commands.RANKS_SECONDS, env=environment)
    return json.loads(said[0])


def place(args, port):
    return f"{net.address(0) if args.in_namespaces else '127.0.0.1'}:{port}"


def tcp(args, size, codec, tensors, groups, spin=0):
    args.port += 1
    words = ["env", f"SPIN_US={spin}", args.program, "tcp", place(args, args.port)]
    return members(args, size, lambda r: [*words, r, size, codec, tensors, groups, ELEMENTS, args.steps])


def gloo(args, size, tensors, groups):
    if not has_torch():
        return None
    args.port += 1
    # A group is one flat tensor, as DistributedDataParallel has it.
    shape = [groups, ELEMENTS * tensors // groups]
    words = [PYTHON, HERE / "latency.py", "--gloo-member"]
    return members(args, size, lambda r: [*words, r, size, place(args, args.port), *shape, args.steps])


def mpi(args, size, options, words):
    where = []
    if args.in_namespaces:
        where = ["--host", ",".join(net.address(host) for host in range(size)), "--mca", "plm_rsh_agent", args.shell]
        where += openmpi.OVER_E0
    return openmpi.run(in_host(args, 0, []), ["-n", size, *where, *options, args.program, *words])


def rows(args, size, tensors, groups):
    """Returns name, function, and whether it is a peer, for every row of one table."""
    peer = [groups, ELEMENTS * tensors // groups, args.steps]
    yield "Gloo", lambda: gloo(args, size, tensors, groups), "tcp"
    yield "OpenMPI, tcp", lambda: mpi(args, size, openmpi.OVER_TCP, ["allreduce", *peer]), "tcp"
    for codec in args.codecs:
        yield f"tcp link, {codec}", lambda c=codec: tcp(args, size, c, tensors, groups), None
        yield f"tcp link, {codec}, spins", lambda c=codec: tcp(args, size, c, tensors, groups, SPIN_US), None
    if args.in_namespaces:
        return
    yield "OpenMPI, shared memory", lambda: mpi(args, size, [], ["allreduce", *peer]), "mpi"
    for codec in args.codecs:
        words = ["mpi", codec, tensors, groups, ELEMENTS, args.steps]
        yield f"mpi link, {codec}", lambda w=words: mpi(args, size, [], w), None


def percentile(took, share):
    return 1e6 * sorted(took)[min(len(took) - 1, int(share * len(took)))]


def table(args, size, found):
    """Measures one table, prints it, and adds its rows to those that were found."""
    where = "namespaces" if args.in_namespaces else "loopback"
    for tensors, groups in (map(int, model.split(":")) for model in args.models.split(",")):
        print(f"\n{size} members, {where}, {tensors} tensors of {ELEMENTS} floats, {groups} groups", flush=True)
        print(f"  {'':24} {'p50, us':>9} {'p99, us':>9} {'x peer':>7}")
        all_rows = list(rows(args, size, tensors, groups))
        took = {name: [] for name, _, _ in all_rows}
        for _ in range(args.rounds):
            for name, measure, _ in all_rows:
                took[name] += measure() or []
        best = {}
        for name, _, peer in all_rows:
            if not took[name]:
                print(f"  {name:24} {'absent':>9}")
                continue
            p50, p99 = (percentile(took[name], share) for share in (0.5, 0.99))
            of = {"where": where, "members": size, "tensors": tensors, "groups": groups, "method": name}
            found.append({**of, "p50_us": p50, "p99_us": p99})
            if peer:
                best[peer] = min(p50, best.get(peer, p50))
            ratio = "" if peer else f"{p50 / best[name[:3]]:7.2f}" if name[:3] in best else ""
            print(f"  {name:24} {p50:9.0f} {p99:9.0f} {ratio:>7}", flush=True)


def main():
    if sys.argv[1:2] == ["--gloo-member"]:
        rank, size, where, tensors, elements, steps = sys.argv[2:]
        return gloo_member(int(rank), int(size), where, int(tensors), int(elements), int(steps))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(HERE.parent / "build/release/latency"))
    parser.add_argument("--sizes", default="2,4,8")
    parser.add_argument("--models", default="1:1,200:1,200:200", help="tensors and groups of them")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--codecs", nargs="+", default=["none", "ternary"])
    parser.add_argument("--namespaces", type=int, default=4, help="hosts of the last tables; 0: none")
    as_json.option(parser)
    args = parser.parse_args()
    args.program = str(pathlib.Path(args.program).resolve())
    args.port = 29800
    with as_json.printed(args.json) as found:
        print(f"bench/latency.py {' '.join(sys.argv[1:])}\n{machine()}\nx peer: p50 over the better peer's")
        args.in_namespaces = False
        for size in args.sizes.split(","):
            table(args, int(size), found)
        if args.namespaces:
            net.need_root()
            args.in_namespaces = True
            with tempfile.TemporaryDirectory(prefix="gradwire-net-") as folder, net.network(args.namespaces):
                args.shell = str(net.shell_script(folder))
                table(args, args.namespaces, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
