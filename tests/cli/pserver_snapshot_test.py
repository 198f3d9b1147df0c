#!/usr/bin/env python3
"""Tests a parameter server with --snapshot. It is killed again and again while workers push. Nothing that was
acknowledged is lost, nothing is counted twice, and clients go on by themselves. Then come a folder that is away, and an
orderly end. pserver_folder_test has damaged folders, pserver_restart_test a full disk.

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


def keeping(folder, *options, **more):
    return Server("--snapshot", folder, *options, **more)


def killed(folder):
    options = ["--workers", "2"]
    stop = folder / "stop"
    server = keeping(folder / "kept", *options)
    words = [[sys.executable, "-c", WORKER, str(rank), server.address, str(stop)] for rank in range(2)]
    workers = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in words]
    for worker in workers:
        atexit.register(worker.kill)
    for kill in range(KILLS):
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
        counted = list(client.pull_parameter(key="counted", reduce_method="parameters"))
        check(counted == [steps[0], steps[0], 2 * steps[0]], "after an orderly end")
    server.end()
    print(f"{KILLS} kills, {steps[0]} steps of 8 acknowledged pushes: all are there")


def refused(folder):
    """A server is refused if its folder is in use, and if it is another server's."""
    kept = folder / "kept"
    words = ["server", "--listen", "127.0.0.1:0", "--snapshot", kept, "--workers"]
    server = keeping(kept, "--workers", "2")
    fails([*words, 2], "another server")
    server.kill()
    fails([*words, 3], "workers=2 mode=sync")
    keeping(kept, "--workers", "2").end()


def copied(folder):
    """docs/pserver.md says how to copy the folder while the server runs."""
    server = keeping(folder / "kept", "--workers", "1")
    with ps.Client(server.address, rank=0) as client:
        client.init_parameter(key="x", shape=[20000], type="float32")
        client.push_parameter(key="x", value=numpy.full(20000, 7, "float32"))
        (folder / "copy").mkdir()
        command = re.search(r'"(VACUUM INTO .*)"', (SOURCE / "docs/pserver.md").read_text()).group(1)
        with contextlib.closing(sqlite3.connect(folder / "kept/state.db")) as database:
            database.execute(command.replace("/backup", str(folder / "copy")))
        client.push_parameter(key="x", value=numpy.full(20000, 8, "float32"))
    server.end()
    server = keeping(folder / "copy", "--workers", "1")
    with ps.Client(server.address, rank=ps.READER) as client:
        client.init_parameter(key="x", shape=[20000], type="float32")
        check((client.pull_parameter(key="x", reduce_method="sum") == 7).all(), "what was there when it was copied")
    server.end()


def stopped_while_it_reads(folder):
    """SIGTERM, SIGINT and SIGHUP end a server that still reads its folder, at once and as in good order. The folder
    stays."""
    options = ["--snapshot", folder / "kept", "--workers", "1", "--mode", "async"]
    server = Server(*options)
    with ps.Client(server.address, rank=0, timeout=PATIENCE) as client:
        client.init_parameter(key="x", shape=[16 << 20], type="float32")
        for i in range(2):  # 128 MiB to read
            client.push_parameter(key="x", value=numpy.full(16 << 20, i, "float32"))
        server.kill()
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        words = map(str, [TOOL, "server", "--listen", "127.0.0.1:0", *options])
        process = subprocess.Popen([*words], stderr=subprocess.PIPE, text=True)
        atexit.register(process.kill)
        first = process.stderr.readline()
        check(" restoring folder=" in first, f"the log says that the folder is read: {first}")
        process.send_signal(how)
        log = process.communicate(timeout=PATIENCE)[1]
        check(process.returncode == 0, f"{how} while it reads: {process.returncode}\n{log}")
    server = Server(*options)
    with ps.Client(server.address, rank=ps.READER, timeout=PATIENCE) as client:
        check((client.pull_parameter(key="x", reduce_method="latest") == 1).all(), "all is there")
    server.end()


def away(folder):
    """A server whose folder is away serves on. It says so to its log, its page and its clients, also if nothing
    changes. If it ends then, it says what is lost. If the folder is back, it keeps the changes."""
    for is_back, pushes in ((False, False), (True, True)):
        kept, elsewhere = folder / f"kept-{is_back}", folder / f"elsewhere-{is_back}"
        server = keeping(kept, "--workers", "1", "--metrics", "0")
        health = lambda: ask(server.page, "/health")[::2]
        durable = lambda n: f"gradwire_pserver_durable {n}".encode() in ask(server.page, "/metrics")[2]
        with ps.Client(server.address, rank=0) as client, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            client.init_parameter(key="x", shape=[1], type="float32")
            until(lambda: durable(1) and health() == (200, b"ok\n"), "durable")
            kept.rename(elsewhere)
            if not pushes:
                server.wait_for("not-durable reason=.*removed or renamed")
                server.process.terminate()
                check(server.process.wait(PATIENCE) == 1, "the status tells of the loss")
                server.wait_for("the last changes are lost: .*removed or renamed")
                continue
            client.push_parameter(key="x", value=[3])
            check((client.pull_parameter(key="x", reduce_method="sum") == 3).all(), "it goes on serving")
            told = [(w.category, w.filename) for w in said]
            check(told == [(RuntimeWarning, __file__)], f"said with what was changed, where the call stands: {told}")
            check("cannot write its snapshot folder" in str(said[0].message), said[0].message)
            until(lambda: health()[0] == 503 and b"in memory only" in health()[1] and durable(0), "a bad health")
            server.wait_for("not-durable reason=.*removed or renamed")
            elsewhere.rename(kept)
            until(lambda: health()[0] == 200 and durable(1), "a health that is good again")
            server.wait_for("Z durable")
        server.kill()
    server = keeping(kept, "--workers", "1")
    with ps.Client(server.address, rank=0) as client:
        check(client.pull_parameter(key="x", reduce_method="latest") == [3], "what was pushed while it was away")
    server.end()


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for part in (killed, refused, copied, stopped_while_it_reads, away):
            (folder / part.__name__).mkdir()
            part(folder / part.__name__)


main()
