#!/usr/bin/env python3
"""Tests a parameter server with --snapshot. It is killed again and again while workers push. Nothing that was
acknowledged is lost, nothing is counted twice, and clients go on by themselves. Then come a full disk, and an orderly
end.

    tests/cli/pserver_snapshot_test.py TOOL"""
import atexit
import contextlib
import http.client
import pathlib
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

from pserver_common import SOURCE, TOOL, check, check_lines, numpy

import gradwire.pserver as ps

KILLS = 100
PATIENCE = 60  # seconds within which all that must happen has happened

# Each step pushes numbers that depend on the step, and checks all results. Rank 0 says when to stop. All workers hear
# it in the same step.
WORKER = """
import os, sys, numpy
import gradwire.pserver as ps
rank, address, stop = int(sys.argv[1]), sys.argv[2], sys.argv[3]
client = ps.Client(address, rank=rank, timeout=120)
client.init_parameter(key="numbered", shape=[2], type="int64")
client.init_parameter(key="large", shape=[50000], type="float32")
client.init_parameter(key="go", shape=[1], type="uint8")
client.init_parameter(key="counted", shape=[3], type="float32", optimizer="sgd:lr=1", value=numpy.zeros(3, "float32"))
step, go = 0, 1
while go:
    step += 1
    client.push_parameter(key="numbered", value=[step, 10 * step + rank])
    client.push_parameter(key="large", value=numpy.full(50000, step * (rank + 1), "float32"))
    client.push_parameter(key="counted", value=[-1, -1, -2])
    client.push_parameter(key="go", value=[1 if rank == 0 and not os.path.exists(stop) else 0])
    total = client.pull_parameter(key="numbered", reduce_method="sum")
    assert list(total) == [2 * step, 20 * step + 1], (step, total)
    large = client.pull_parameter(key="large", reduce_method="sum")
    assert (large == 3 * step).all(), (step, large)
    counted = client.pull_parameter(key="counted", reduce_method="parameters")
    assert list(counted) == [step, step, 2 * step], (step, counted)
    go = client.pull_parameter(key="go", reduce_method="max")[0]
    print(step, flush=True)
client.close()
"""


class Server:
    """A server. Each start uses the same address, so that clients find it again."""

    def __init__(self, folder, *options, listen="127.0.0.1:0"):
        self.log_path = pathlib.Path(folder).parent / f"server-{time.monotonic_ns()}.log"
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                [str(TOOL), "server", "--listen", listen, "--snapshot", str(folder), *options], stderr=log
            )
        atexit.register(self.process.kill)  # if a check fails, the server ends, too
        self.address = self.wait_for(r"listening address=(\S+)").group(1)

    def log(self):
        return self.log_path.read_text()

    def wait_for(self, pattern):
        deadline = time.monotonic() + PATIENCE
        while True:
            found = re.search(pattern, self.log())
            if found:
                return found
            check(self.process.poll() is None, f"the server ended with {self.process.returncode}:\n{self.log()}")
            check(time.monotonic() < deadline, f"the log never says {pattern}:\n{self.log()}")
            time.sleep(0.01)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=PATIENCE)
        check(self.process.returncode == 0, f"the server ends with {self.process.returncode}:\n{self.log()}")
        check_lines(self.log())
        return self.log()


def killed(folder):
    options = ["--workers", "2"]
    stop = folder / "stop"
    server = Server(folder / "kept", *options)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), server.address, str(stop)], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for worker in workers:
        atexit.register(worker.kill)
    for kill in range(KILLS):
        for _ in range(random.randrange(1, 5)):  # so that the workers make some steps in between
            check(workers[0].stdout.readline(), "the workers go on")
        time.sleep(random.random() * 0.05)  # so that the kill comes at any moment of a step
        server.kill()
        server = Server(folder / "kept", *options, listen=server.address)
        check("restored folder=" in server.log(), server.log())
    stop.touch()
    steps = [int(worker.communicate(timeout=PATIENCE)[0].split()[-1]) for worker in workers]
    check([worker.returncode for worker in workers] == [0, 0] and steps[0] == steps[1] > KILLS, f"{steps} steps")
    server.end()
    server = Server(folder / "kept", *options, listen=server.address)
    with ps.Client(server.address, rank=ps.READER) as client:
        check(
            list(client.pull_parameter(key="counted", reduce_method="parameters"))
            == [steps[0], steps[0], 2 * steps[0]],
            "after an orderly end",
        )
    server.end()
    print(f"{KILLS} kills, {steps[0]} steps of 8 acknowledged pushes: all are there")


def refused(folder):
    """A server is refused if its folder is in use, if it is another server's, and if it was altered."""

    def fails(word, *options):
        done = subprocess.run(
            [str(TOOL), "server", "--listen", "127.0.0.1:0", "--snapshot", str(folder / "kept"), *options],
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
        check(done.returncode != 0 and word in done.stderr, f"{word} in:\n{done.stderr}")

    server = Server(folder / "kept", "--workers", "2")
    fails("another server", "--workers", "2")
    with ps.Client(server.address, rank=0) as client:
        client.init_parameter(key="x", shape=[100], type="float32")
        client.init_parameter(key="y", shape=[100], type="float32")
    server.kill()
    fails("workers=2 mode=sync", "--workers", "3")
    state = folder / "kept" / "state.db"
    good = state.read_bytes()
    state.write_bytes(good[:50] + b"?" * 16384 + good[50 + 16384 :])
    log = folder / "kept" / "state.db-wal"
    kept = log.read_bytes()
    log.write_bytes(kept[:9000] + b"?" + kept[9001:])
    fails("state.db", "--workers", "2")
    state.write_bytes(good)
    log.write_bytes(kept)
    Server(folder / "kept", "--workers", "2").end()


def copied(folder):
    """docs/pserver.md says how to copy the folder while the server runs."""
    server = Server(folder / "kept", "--workers", "1")
    with ps.Client(server.address, rank=0) as client:
        client.init_parameter(key="x", shape=[20000], type="float32")
        client.push_parameter(key="x", value=numpy.full(20000, 7, "float32"))
        (folder / "copy").mkdir()
        command = re.search(r'"(VACUUM INTO .*)"', (SOURCE / "docs/pserver.md").read_text()).group(1)
        with contextlib.closing(sqlite3.connect(folder / "kept/state.db")) as database:
            database.execute(command.replace("/backup", str(folder / "copy")))
        client.push_parameter(key="x", value=numpy.full(20000, 8, "float32"))
    server.end()
    server = Server(folder / "copy", "--workers", "1")
    with ps.Client(server.address, rank=ps.READER) as client:
        client.init_parameter(key="x", shape=[20000], type="float32")
        check((client.pull_parameter(key="x", reduce_method="sum") == 7).all(), "what was there when it was copied")
    server.end()


def stopped_while_it_reads(folder):
    """SIGTERM and SIGINT end a server that still reads its folder, at once and as in good order. The folder stays."""
    options = ["--workers", "1", "--mode", "async"]
    server = Server(folder / "kept", *options)
    with ps.Client(server.address, rank=0, timeout=PATIENCE) as client:
        client.init_parameter(key="x", shape=[16 << 20], type="float32")
        for i in range(4):  # 256 MiB to read
            client.push_parameter(key="x", value=numpy.full(16 << 20, i, "float32"))
        server.kill()
    for how in (signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen(
            [str(TOOL), "server", "--listen", "127.0.0.1:0", "--snapshot", str(folder / "kept"), *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        first = process.stderr.readline()
        check(" restoring folder=" in first, f"the log says that the folder is read: {first}")
        process.send_signal(how)
        log = process.communicate(timeout=PATIENCE)[1]
        check(process.returncode == 0, f"{how} while it reads: {process.returncode}\n{log}")
    server = Server(folder / "kept", *options)
    with ps.Client(server.address, rank=ps.READER, timeout=PATIENCE) as client:
        check((client.pull_parameter(key="x", reduce_method="latest") == 3).all(), "all is there")
    server.end()


def ask(page, path):
    connection = http.client.HTTPConnection(page, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def until(holds, what):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        check(time.monotonic() < deadline, f"in vain: {what}")
        time.sleep(0.05)


def full(folder):
    """The server has a disk of its own, which fills up. The server serves on, and says so. When there is room again, it
    keeps all changes again."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        print("skipped: a small tmpfs cannot be mounted:", mounted.stderr.strip())
        return
    try:
        options = ["--workers", "1", "--metrics", "0"]
        server = Server(disk / "kept", *options)
        page = server.wait_for(r"showing status=http://([^/]+)/").group(1)
        with ps.Client(server.address, rank=0) as client:
            client.init_parameter(key="x", shape=[20000], type="float32")
            until(
                lambda: "gradwire_pserver_durable 1" in ask(page, "/metrics")[1]
                and ask(page, "/health") == (200, "ok\n"),
                "durable",
            )
            for i in range(100):  # 80,000 bytes each
                client.push_parameter(key="x", value=numpy.full(20000, i, "float32"))
                check(i > 0 or not client.take_notice(), "the first one fits")
            check(client.take_notice() and not client.take_notice(), "100 do not fit; said once")
            until(lambda: ask(page, "/health")[0] == 503, "a health that is bad")
            status, reason = ask(page, "/health")
            check("in memory only" in reason and "full" in reason, reason)
            check(
                "gradwire_pserver_durable 0" in ask(page, "/metrics")[1] and "not-durable reason=" in server.log(),
                server.log(),
            )
            check((client.pull_parameter(key="x", reduce_method="sum") == 99).all(), "it goes on serving")
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            until(lambda: ask(page, "/health")[0] == 200, "a health that is good again")
            check("gradwire_pserver_durable 1" in ask(page, "/metrics")[1] and " durable" in server.log(), server.log())
            client.push_parameter(key="x", value=numpy.full(20000, 7, "float32"))
            check(not client.take_notice(), "kept again")
            server.kill()
            server = Server(disk / "kept", *options, listen=server.address)
            client.push_parameter(key="x", value=numpy.full(20000, 8, "float32"))
            check((client.pull_parameter(key="x", reduce_method="sum") == 8).all(), "after the restart")
        server.end()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for part in (killed, refused, copied, stopped_while_it_reads, full):
            (folder / part.__name__).mkdir()
            part(folder / part.__name__)


main()
