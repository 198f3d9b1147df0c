#!/usr/bin/env python3
"""Tests a parameter server with --snapshot. It is killed again and again while workers push. Nothing that was
acknowledged is lost, nothing is counted twice, and clients go on by themselves. Then come a copied folder, one that is
away, and an orderly end. pserver_folder_test has damaged folders and those of other servers, pserver_restart_test a
full disk and files that are away.

    tests/cli/pserver_snapshot_test.py TOOL"""
import atexit
import contextlib
import pathlib
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings

from pserver_common import PATIENCE, SOURCE, TOOL, Server, ask, check, fails, numpy, until

import gradwire.pserver as ps

KILLS = 30

# Each step pushes numbers that depend on the step, and checks all results. Rank 0 says when to stop. All workers hear
# it in the same step.
WORKER = """
import os, sys, numpy
import gradwire.pserver as ps
rank, address, stop = int(sys.argv[1]), sys.argv[2], sys.argv[3]
client = ps.Client(address, rank=rank, timeout=120)
client.init_parameter("large", [50000], "float32")
client.init_parameter("go", [1], "uint8")
client.init_parameter("counted", [3], "float32", optimizer="sgd:lr=1", value=numpy.zeros(3))
step, go = 0, 1
while go:
    step += 1
    client.push_parameter("large", numpy.full(50000, step * (rank + 1)))
    client.push_parameter("counted", [-1, -1, -2])
    client.push_parameter("go", [rank == 0 and not os.path.exists(stop)])
    assert (client.pull_parameter("large", "sum") == 3 * step).all(), step
    counted = client.pull_parameter("counted", "parameters")
    assert list(counted) == [step, step, 2 * step], (step, counted)
    go = client.pull_parameter("go", "max")[0]
    print(step, flush=True)
"""


def keeping(folder, *options, **more):
    return Server("--snapshot", folder, *options, **more)


def killed(folder):
    options, stop = ["--workers", "2"], folder / "stop"
    server = keeping(folder / "kept", *options)
    fails(["server", "--listen", "127.0.0.1:0", "--snapshot", folder / "kept", *options], "another server")
    words = [[sys.executable, "-c", WORKER, str(rank), server.address, stop] for rank in range(2)]
    workers = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in words]
    for worker in workers:
        atexit.register(worker.kill)
    for _ in range(KILLS):
        for _ in range(random.randrange(1, 5)):  # so that the workers make some steps in between
            check(workers[0].stdout.readline(), "the workers go on")
        time.sleep(random.random() * 0.05)  # so that the kill comes at any moment of a step
        server.kill()
        server = keeping(folder / "kept", *options, listen=server.address)
        check("restored folder=" in server.log, server.log)
    stop.touch()
    steps = [int(worker.communicate(timeout=PATIENCE)[0].split()[-1]) for worker in workers]
    check([worker.returncode for worker in workers] == [0, 0] and steps[0] == steps[1] > KILLS, f"{steps} steps")
    server.end()
    server = keeping(folder / "kept", *options)
    with ps.Client(server.address, rank=ps.READER) as client:
        counted = list(client.pull_parameter("counted", "parameters"))
        check(counted == [steps[0], steps[0], 2 * steps[0]], "after an orderly end")
    server.end()
    print(f"{KILLS} kills, {steps[0]} steps of 6 acknowledged pushes: all are there")


def copied(folder):
    """docs/pserver.md says how to copy the folder while the server runs. Signals end a server that still reads such a
    folder, at once and as in good order. The folder stays."""
    kept, copy = folder / "kept", folder / "copy"
    copy.mkdir()
    server = keeping(kept, "--workers", "1")
    with ps.Client(server.address, rank=0, timeout=PATIENCE) as client:
        client.init_parameter("x", [32 << 20], "float32")
        client.push_parameter("x", numpy.ones(32 << 20, "float32"))  # 128 MiB to read
        command = re.search(r'"(VACUUM INTO .*)"', (SOURCE / "docs/pserver.md").read_text()).group(1)
        with contextlib.closing(sqlite3.connect(kept / "state.db")) as database:
            database.execute(command.replace("/backup", str(copy)))
        client.push_parameter("x", numpy.zeros(32 << 20, "float32"))
        server.kill()
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        words = [TOOL, "server", "--listen", "127.0.0.1:0", "--snapshot", copy, "--workers", "1"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        atexit.register(process.kill)
        first = process.stderr.readline()
        check(" restoring folder=" in first, f"the log says that the folder is read: {first}")
        process.send_signal(how)
        log = process.communicate(timeout=PATIENCE)[1]
        check(process.returncode == 0, f"{how} while it reads: {process.returncode}\n{log}")
    server = keeping(copy, "--workers", "1")
    with ps.Client(server.address, rank=ps.READER, timeout=PATIENCE) as client:
        check((client.pull_parameter("x", "sum") == 1).all(), "what was there when it was copied")
    server.end()


def away(folder):
    """A server whose folder is away serves on. It says so to its log, its page and its clients, and if it ends then, it
    says what is lost. If the folder is back, it keeps the changes."""
    kept, elsewhere = folder / "kept", folder / "elsewhere"
    server = keeping(kept, "--workers", "1", "--metrics", "0")
    durable = lambda n: f"gradwire_pserver_durable {n}".encode() in ask(server.page, "/metrics")[2]
    health = lambda n: ask(server.page, "/health")[::2] if durable(n) else (0, b"")
    with ps.Client(server.address, rank=0) as client, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        client.init_parameter("x", [1], "float32")
        until(lambda: health(1) == (200, b"ok\n"), "durable")
        kept.rename(elsewhere)
        client.push_parameter("x", [3])
        check(client.pull_parameter("x", "sum") == 3, "it goes on serving")
        told = [(w.category, w.filename, "cannot write its snapshot folder" in str(w.message)) for w in said]
        check(told == [(RuntimeWarning, __file__, True)], f"said with what was changed, where the call stands: {told}")
        until(lambda: health(0)[0] == 503 and b"in memory only" in health(0)[1], "a bad health")
        server.wait_for("not-durable reason=.*removed or renamed")
        elsewhere.rename(kept)
        until(lambda: health(1)[0] == 200, "a health that is good again")
        server.wait_for("Z durable")
    server.kill()
    server = keeping(kept, "--workers", "1")
    with ps.Client(server.address, rank=0) as client:
        check(client.pull_parameter("x", "latest") == [3], "what was pushed while it was away")
    kept.rename(elsewhere)
    server.wait_for("not-durable reason=.*removed or renamed")  # also if nothing changes
    server.process.terminate()
    server.wait_for("the last changes are lost: .*removed or renamed")
    check(server.process.wait(PATIENCE) == 1, "the status tells of the loss")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for part in (killed, copied, away):
            (folder / part.__name__).mkdir()
            part(folder / part.__name__)


main()
