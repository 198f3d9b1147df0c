#!/usr/bin/env python3
"""Kills or stops a random worker of a tcp run at a random time, again and again. All others must end by themselves
within the deadline, with an error that names it, and leave no process and no temporary file.

    tests/net/kill.py TOOL [--times 6] [--seed S] [--workers 4]

The times reach from before the workers have met to well into the training. The first two strikes hit rank 0: it is
killed, and then stopped, while the others wait with it for a worker that never comes. They must name rank 0, and not
that worker. Prints a line for each strike, and what went wrong."""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "cli")]
import pictures  # noqa: E402
import ports  # noqa: E402

TIMEOUT = 3  # seconds for which a worker may be silent
# Meeting and links may each take the deadline, one after the other. The rest is for the start on a busy machine.
MOST_SECONDS = 2 * TIMEOUT + 8
RUNS = [  # they take turns. Floats of a layer of this size are sent from where they stand
    ["--net", "mlp:784-64-10", "--steps", "1000000", "--codec", "ternary"],
    ["--net", "mlp:784-512-10", "--steps", "1000000", "--codec", "none"],
]


def wait_for_members(port, n, rank_0):
    """Waits until n others are connected to rank 0's port."""
    end = time.monotonic() + 60
    while rank_0.poll() is None and time.monotonic() < end:
        with open("/proc/net/tcp") as file:
            lines = [line.split() for line in file.readlines()[1:]]
        if sum(line[1].endswith(f":{port:04X}") and line[3] == "01" for line in lines) >= n:
            return
        time.sleep(0.01)


def attempt(args, chance, folder, nth):
    """Makes one attempt. Returns sentences about all that went wrong."""
    how = chance.choice([signal.SIGKILL, signal.SIGSTOP])
    victim, after = chance.randrange(args.workers), chance.choice([chance.uniform(0, 0.5), chance.uniform(0.5, 4)])
    started, timeout = args.workers, TIMEOUT
    if nth < 2:
        timeout = 3 * TIMEOUT  # half of the time is left when rank 0 falls silent
        how, victim, after, started = [signal.SIGKILL, signal.SIGSTOP][nth], 0, chance.uniform(0, 1), args.workers - 1
    print(
        f"rank {victim}{' while members meet' if nth < 2 else ''}, {how.name} after {after:.2f} s", end="", flush=True
    )
    port = next(args.ports)
    environment = {**os.environ, "WORLD_SIZE": str(args.workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    workers = [
        subprocess.Popen(
            [
                args.tool,
                "train",
                "--link",
                "tcp",
                *RUNS[nth % 2],
                "--data",
                args.data,
                "--timeout",
                str(timeout),
                *(["--out", folder] if rank == 0 else []),
            ],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(started)
    ]
    if nth < 2:
        wait_for_members(port, started - 1, workers[0])
    time.sleep(after)
    workers[victim].send_signal(how)
    struck = time.monotonic()
    wrong = []
    for rank, worker in enumerate(workers):
        if rank == victim:
            continue
        try:
            says = worker.communicate(timeout=max(0.1, struck + MOST_SECONDS - time.monotonic()))[1]
        except subprocess.TimeoutExpired:
            wrong.append(f"rank {rank} hangs")
            worker.kill()
            worker.communicate()
            continue
        last = says.strip().splitlines()[-1] if says.strip() else ""
        if worker.returncode != 1:
            wrong.append(f"rank {rank} ended with status {worker.returncode}: {last}")
        elif not re.search(rf"\brank(s [0-9, and]*)? ?{victim}\b", last):
            wrong.append(f"rank {rank} does not name it: {last}")
        elif (names := re.search(r"came from (.*) within", last)) and names[1] != f"rank {victim}":
            wrong.append(f"rank {rank} names others beside it: {last}")
    print(f", all ended {time.monotonic() - struck:.2f} s later", flush=True)
    workers[victim].send_signal(signal.SIGKILL)
    workers[victim].communicate()
    left = [name for name in os.listdir(folder) if name.endswith(".tmp")]
    return wrong + ([f"left behind: {left}"] if left else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    args.ports = ports.free_ports()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="gradwire-kill-") as args.data:
        pictures.write_mnist(args.data, 1)
        for i in range(args.times):
            with tempfile.TemporaryDirectory(prefix="gradwire-kill-") as folder:
                print(f"{i + 1}/{args.times}: ", end="")
                for sentence in attempt(args, chance, folder, i):
                    failed += 1
                    print(f"    WRONG: {sentence}", flush=True)
    print(f"{args.times} workers struck down, {failed} things wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
