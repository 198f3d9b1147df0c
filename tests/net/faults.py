#!/usr/bin/env python3
"""Trains through parameter servers and strikes at random moments: what must come out is the accuracy of a run without
faults, the same parameters on every worker, and a log that tells what happened.

    tests/net/faults.py TOOL [--data digits] [--faults worker,server,stop,join,disk,cut] [--times 20]
                        [--codec ternary] [--servers 1]

worker  kill -9 a worker, and start it again under its rank (servers --missing continue)
server  kill -9 a server, and start it again on its folder
stop    SIGSTOP a worker for --stop-seconds, then SIGCONT (servers --missing wait, unless --stop-missing continue: then
        it is left out)
cut     take a worker's network away for --cut-seconds (network namespaces; needs root)
join    begin with two of three workers; the third comes later
disk    fill the disk under a server's snapshots for a while (a small tmpfs; needs root)

Runs of --steps steps follow each other until each fault has struck --times times. Prints a line for each run, and what
went wrong."""
import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / folder) for folder in ("bench", "tests")]
import net  # noqa: E402
import ports  # noqa: E402

WORKERS = 3
PATIENCE = 120  # seconds for anything that must happen


class Wrong(Exception):
    pass


def wait_for(what, holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise Wrong(f"{what}: not within {PATIENCE} s")
        time.sleep(0.02)


class Run:
    """Servers and workers of one training run."""

    def __init__(self, args, folder, namespaces=False, server_words=(), missing="continue", seconds_alone=0):
        self.args, self.folder, self.namespaces = args, pathlib.Path(folder), namespaces
        self.server_words, self.missing = list(server_words), missing
        # The others may go on for seconds_alone without a worker that was struck.
        self.seconds_alone, self.begin = seconds_alone, time.monotonic()
        self.servers, self.workers = [None] * args.servers, {}
        host, port = net.address(WORKERS) if namespaces else "127.0.0.1", next(args.ports)
        self.places = [f"{host}:{port + i}" for i in range(args.servers)]
        (self.folder / "log").mkdir()

    def start(self, words, host, log):
        if self.namespaces:
            words = [*net.inside(host), *words]
        with open(self.folder / "log" / log, "ab") as file:
            return subprocess.Popen(list(map(str, words)), stdout=file, stderr=file, stdin=subprocess.DEVNULL)

    def start_server(self, i):
        missing = ["--missing", self.missing, *([] if self.missing == "wait" else ["--away", 1])]
        words = [
            self.args.tool,
            "server",
            "--workers",
            WORKERS,
            "--listen",
            self.places[i],
            *missing,
            "--timeout",
            3,
            "--snapshot",
            self.snapshots(i),
            *self.server_words,
        ]
        self.servers[i] = self.start(words + (["--insecure"] if self.namespaces else []), WORKERS, f"server-{i}")

    def snapshots(self, i):
        return self.folder / f"snapshots-{i}"

    def start_worker(self, rank):
        words = [
            self.args.tool,
            "train",
            "--link",
            "servers",
            "--servers",
            ",".join(self.places),
            "--rank",
            rank,
            "--net",
            "lenet",
            "--data",
            self.args.data,
            "--codec",
            self.args.codec,
            "--steps",
            self.args.steps,
            "--timeout",
            60,
            "--out",
            self.out(rank),
            "--overwrite",
        ]
        self.workers[rank] = self.start(words, rank, f"worker-{rank}")

    def out(self, rank):
        return self.folder / f"rank-{rank}"

    def step(self, rank):
        """Returns how many steps a worker has made. Its metrics say it. 0: there are none yet."""
        try:
            with open(self.out(rank) / "metrics.jsonl.partial", "rb") as lines:
                lines.seek(max(0, lines.seek(0, os.SEEK_END) - 4096))
                whole = lines.read().split(b"\n")[:-1]
            return json.loads(whole[-1])["step"] + 1 if whole else 0
        except (OSError, ValueError, KeyError):
            return 0

    def foremost(self):
        return max(self.step(rank) for rank in self.workers)

    def has_time(self):
        """True if the run is so far from its end that a struck process can come back. The others may go on without that
        process, and faster, until they notice it again."""
        steps, alone = self.foremost(), 0
        if self.seconds_alone:
            alone = 1.5 * (self.seconds_alone + 5) * steps / (time.monotonic() - self.begin)
        return all(worker.poll() is None for worker in self.workers.values()) and steps + alone < 0.7 * self.args.steps

    def goes_on(self, rank):
        """Waits until the worker makes steps with the others."""
        begin = self.foremost()
        wait_for(
            f"rank {rank} takes part again", lambda: self.step(rank) > begin or self.workers[rank].poll() is not None
        )

    def log(self, name):
        path = self.folder / "log" / name
        return path.read_text(errors="replace") if path.exists() else ""

    def finish(self):
        """Waits for the workers, and returns the summary of each."""
        summaries = []
        for rank, worker in sorted(self.workers.items()):
            while worker.poll() is None:  # however slow the machine is, it makes steps
                n = self.step(rank)
                wait_for(f"rank {rank} ends", lambda: worker.poll() is not None or self.step(rank) > n)
            if worker.returncode:
                last = self.log(f"worker-{rank}").strip().splitlines()[-1:]
                raise Wrong(f"rank {rank} ended with status {worker.returncode}: {last}")
            summaries.append(json.loads((self.out(rank) / "summary.json").read_text()))
        if not all(s["replicas_identical"] for s in summaries) or len({s["parameter_hash"] for s in summaries}) != 1:
            raise Wrong(f"the workers' parameters differ: {[s['parameter_hash'] for s in summaries]}")
        return summaries

    def end(self):
        for process in [*self.servers, *self.workers.values()]:
            if process and process.poll() is None:
                process.kill()
            if process:
                process.wait(60)


# ---- faults: each function strikes once, and returns when all is well again ------------------------------------------


def strike_worker(run, chance):
    rank = chance.randrange(WORKERS)
    run.workers[rank].kill()
    run.workers[rank].wait(60)
    time.sleep(chance.uniform(0, 2))
    run.start_worker(rank)
    run.goes_on(rank)


def strike_server(run, chance):
    i = chance.randrange(len(run.servers))
    run.servers[i].kill()
    run.servers[i].wait(60)
    time.sleep(chance.uniform(0, 1))
    run.start_server(i)
    run.goes_on(0)


def strike_stop(run, chance):
    rank = chance.randrange(WORKERS)
    run.workers[rank].send_signal(signal.SIGSTOP)
    time.sleep(run.args.stop_seconds)
    run.workers[rank].send_signal(signal.SIGCONT)
    run.goes_on(rank)


def strike_cut(run, chance):
    rank = chance.randrange(WORKERS)
    net.sh(f"ip link set {net.PREFIX}v{rank} down")
    time.sleep(run.args.cut_seconds)
    net.sh(f"ip link set {net.PREFIX}v{rank} up")
    run.goes_on(rank)


def strike_join(run, chance):
    run.start_worker(WORKERS - 1)
    run.goes_on(WORKERS - 1)


def strike_disk(run, chance):
    """Fills the disk until the server says so, and a while longer. When there is room again, the server must keep all
    changes again. Its log would need no room if it began anew in a long file, so the file is made short first."""
    filler, log = run.snapshots(0) / "filler", "server-0"
    seen = len(run.log(log))
    with contextlib.closing(sqlite3.connect(run.snapshots(0) / "state.db", timeout=PATIENCE)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65536))
    wait_for("the server tells of a full disk", lambda: "not-durable" in run.log(log)[seen:])
    time.sleep(chance.uniform(0, 2))
    seen = len(run.log(log))
    filler.unlink()
    wait_for("the server keeps changes again", lambda: " durable" in run.log(log)[seen:])


STRIKES = {
    "worker": strike_worker,
    "server": strike_server,
    "stop": strike_stop,
    "cut": strike_cut,
    "join": strike_join,
    "disk": strike_disk,
}
# After each fault, a server's log must have one of these words.
TOLD = {
    "worker": ["lost rank="],
    "server": ["restored"],
    "stop": ["left-out", "lost rank="],
    "cut": ["left-out", "lost rank="],
    "join": ["takes-part rank=2"],
    "disk": ["not-durable"],
}


@contextlib.contextmanager
def surroundings(fault, folder):
    """Makes the networks and file systems that a fault needs."""
    with contextlib.ExitStack() as stack:
        if fault == "cut":
            stack.enter_context(net.network(WORKERS + 1))
        if fault == "disk":
            where = pathlib.Path(folder) / "snapshots-0"
            where.mkdir()
            net.sh(f"mount -t tmpfs -o size=256m tmpfs {where}")
            stack.callback(net.sh, f"umount {where}", False)
        yield


def train(args, fault, chance, most):
    """Trains once, and strikes the run up to `most` times. Returns how often it struck, and the accuracy."""
    with tempfile.TemporaryDirectory(prefix="gradwire-faults-") as folder, surroundings(fault, folder):
        run = Run(
            args,
            folder,
            fault == "cut",
            ["--min-workers", WORKERS - 1] if fault == "join" else [],
            missing=args.stop_missing if fault == "stop" else "continue",
            seconds_alone=args.cut_seconds
            if fault == "cut"
            else args.stop_seconds
            if fault == "stop" and args.stop_missing != "wait"
            else 0,
        )
        try:
            for i in range(args.servers):
                run.start_server(i)
            for rank in range(WORKERS - (fault == "join")):
                run.start_worker(rank)
            wait_for(
                "the run begins", lambda: run.foremost() > 0 or any(w.poll() is not None for w in run.workers.values())
            )
            struck = 0
            while fault and struck < most and run.has_time():
                wait_for(
                    "a random step",
                    lambda at=run.foremost() + chance.randrange(1, max(2, args.steps // 6)): run.foremost() >= at,
                )
                if not run.has_time():
                    break
                STRIKES[fault](run, chance)
                struck += 1
                if fault == "join":
                    break
            accuracy = run.finish()[0]["test_accuracy"]
            logs = "".join(run.log(f"server-{i}") for i in range(args.servers))
            if struck and not any(word in logs for word in TOLD[fault]):
                raise Wrong(f"no server's log tells of it: none of {TOLD[fault]}")
            workers = "".join(run.log(f"worker-{rank}") for rank in range(WORKERS))
            if "not-durable" in logs and "cannot write its snapshot folder" not in workers:
                raise Wrong("a server could not keep what it acknowledged, and no worker says so")
            return struck, accuracy
        except Wrong as what:
            if args.keep:
                subprocess.run(["cp", "-r", str(run.folder / "log"), args.keep], check=False)
            last = [
                f"server {i}: {line}" for i in range(args.servers) for line in run.log(f"server-{i}").splitlines()[-3:]
            ]
            raise Wrong("\n  ".join([str(what), *last])) from None
        finally:
            run.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--faults", default=",".join(STRIKES))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--codec", default="ternary")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--stop-seconds", type=float, default=30)
    parser.add_argument("--stop-missing", choices=["wait", "continue"], default="wait")
    parser.add_argument("--cut-seconds", type=float, default=10)
    parser.add_argument(
        "--most-points", type=float, default=0.3, help="that accuracy may be below that of a run without faults"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="folder that gets the logs of a run that went wrong")
    args = parser.parse_args()
    faults = args.faults.split(",")
    if {"cut", "disk"} & set(faults):
        net.need_root()
    chance = random.Random(args.seed)
    args.ports = ports.free_ports(args.servers)
    _, reference = train(args, None, chance, 0)
    print(f"without faults: accuracy {100 * reference:.2f} %", flush=True)
    wrong = 0
    for fault in faults:
        struck, worst, runs, begin = 0, 1.0, 0, time.monotonic()
        while struck < args.times:
            try:
                times, accuracy = train(args, fault, chance, args.times - struck)
                if accuracy < reference - args.most_points / 100:
                    raise Wrong(f"accuracy {100 * accuracy:.2f} % after {times} strikes")
                if not times:
                    raise Wrong("the run ended before anything could strike; more --steps")
                worst = min(worst, accuracy)
                print(f"{fault}: a run struck {times} times, accuracy {100 * accuracy:.2f} %", flush=True)
            except Wrong as what:
                wrong, times = wrong + 1, 1
                print(f"{fault}: WRONG: {what}", flush=True)
            struck, runs = struck + times, runs + 1
        print(
            f"{fault}: struck {struck} times in {runs} runs, lowest accuracy {100 * worst:.2f} %, "
            f"{time.monotonic() - begin:.0f} s",
            flush=True,
        )
    print(f"{wrong} things wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
