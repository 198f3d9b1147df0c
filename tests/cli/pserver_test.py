#!/usr/bin/env python3
"""Tests the parameter server from outside: how it ends, wrong use, keys, its log, and trainings over it. The C tests of
src/pserver have what the server answers, servers_test what an exchange over servers computes, and blocks_test runs the
lines of Paddle#6599.

    tests/cli/pserver_test.py TOOL"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

import harness
from pserver_common import PATIENCE, PORTS, TOOL, Server, check, fails, refused, serving, tool

import gradwire.pserver as ps

TRAIN = ["train", *harness.SMALL]


def how_a_server_ends():
    """Each signal that asks a server to end is named by its log. Under nohup, SIGHUP does not ask."""
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        log = Server("--workers", "1").end(how)
        check(f" ended signal={how.name}\n" in log, f"{how.name}: {log}")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server = Server("--workers", "1")
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    server.process.send_signal(signal.SIGHUP)
    check(" ended signal=SIGTERM\n" in server.end(), "a server under nohup outlives SIGHUP")


def wrong_use():
    """The status is 2. The service file takes it for what stays wrong, and does not start the server again.
    pserver_test.c has more options that do not fit."""
    svrg = "train --servers h:1 --parameters servers --net logreg --data uneven --optimizer svrg"
    for words, said in (
        ("server", "--workers"),
        ("server --workers 2 --mode stale:x", "stale:4"),
        ("train --parameters servers", "no --servers are named"),
        ("train --parameters cloud", "local or servers"),
        ("train --servers h:1 --parameters servers --ema 0.9", "--ema needs --parameters local"),
        ("train --servers h:1 --parameters servers --out x --checkpoint-every 1", "--checkpoint-every needs"),
        (svrg, "svrg needs"),
        ("server --workers 2 --away 1", "--away is for --missing continue"),
        ("server --workers 2 --missing stop --listen 127.0.0.1:0 --away 0", "0.001 to"),
        ("server --workers 2 --listen 0.0.0.0:0", "loopback"),
        ("server --workers 2 --max-bytes 18446744073709551615", "from 1 to 1125899906842624"),
        ("server --workers 2 --backup 2", "2 of 2 workers as backup"),
        ("server --workers 2 --listen 127.0.0.1:0 --metrics nowhere", "status page"),
    ):
        if words.startswith("server") or harness.HAS_TRAINER:
            fails(words.split(), said, status=2)


def limits():
    """The options of the tool reach the server, and its sentences reach the one who called."""
    server = Server("--workers", "1", "--max-key-bytes", "1Mi", "--max-keys", "2")
    with ps.Client(server.address, rank=0) as client:
        client.init_parameter("x", [3], "float32", optimizer="sgd:lr=1", value=[1, 2, 3])
        client.push_parameter("x", [2, 2, 2], rate=0.5)
        check((client.pull_parameter("x", "parameters") == [0, 1, 2]).all(), "a rate comes with a push")
        client.init_parameter("y", [1], "float32")
        for call, *words in (
            (lambda: client.push_parameter("z", [1]), "nearest", "x"),
            (lambda: client.push_parameter("y", [1], rate=0.1), "no optimizer"),
            (lambda: client.init_parameter("large", [1 << 20], "float32"), "--max-key-bytes"),
            (lambda: client.init_parameter("v", [1], "float32", optimizer="sgd", value=[1, 2]), "must have [1]"),
            (lambda: client.init_parameter("v", [1], "float32", value=[1]), "no optimizer"),
            (lambda: client.init_parameter("too many", [1], "float32"), "--max-keys"),
        ):
            refused(call, *words)
    server.wait_for("left rank=0")
    server.end()


# OpenSSL asks for a password at the terminal before it reads this.
ASKS = f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{'00' * 16}\n\nAAAA\n".join(
    f"-----{word} CERTIFICATE-----\n" for word in ("BEGIN", "END")
)


def keys():
    """A file in allowed/ lets a client in, and the server need not start anew. When the file is gone, the client is
    out. net_keys_test has the list and what keys new refuses, and pserver_client_test clients that do not fit."""
    with tempfile.TemporaryDirectory() as folder:
        job, guest, anna = (pathlib.Path(folder) / name for name in ("job", "guest", "anna"))
        for words in ([job], [guest], [anna, "--client", "anna", "--of", job]):
            check(tool("keys", "new", *words).returncode == 0, "keys are made")
        (guest / "rendezvous.crt").write_text((job / "gradwire.crt").read_text())
        listed = job / "allowed/guest.crt"
        server = Server("--workers", "1", "--keys", job)
        come = lambda keys: ps.Client(server.address, rank=0, timeout=3, keys=keys)
        # Nor does the server's own key let a client in: who has it could pass for the server.
        for stranger in (job, guest):
            refused(lambda: come(stranger), "is not allowed there")
        (job / "allowed/half.crt").write_text(ASKS)
        listed.write_text((guest / "gradwire.crt").read_text())
        with come(guest) as client:
            client.init_parameter("x", [1], "float32")
            listed.unlink()
            server.wait_for("dropped rank=0 .* is not allowed any more")
            refused(lambda: client.push_parameter("x", [1]), "")
        with come(anna) as client:
            client.init_parameter("x", [1], "float32")
        log = server.end()
        check("its certificate is this server's own" in log and "certificates=2" in log, log)
        fails(["keys", "new", f"{folder}/bert", "--client", "bert"], "--of is missing")
        fails(["keys", "new", f"{folder}/bert", "--of", job], "--client is missing")


def nobody_reads_the_log():
    """The server goes on if the reader of its log has gone, or does not read; then the log says how much it lacks."""
    for stuck in (False, True):
        ours, its = os.pipe()
        os.set_blocking(its, False)
        with contextlib.suppress(BlockingIOError):
            while stuck:
                os.write(its, bytes(1 << 12))
        os.set_blocking(its, True)
        address = f"127.0.0.1:{next(PORTS)}"
        server = subprocess.Popen([TOOL, "server", "--listen", address, "--workers", "1"], stderr=its)
        os.close(its)
        if not stuck:
            os.close(ours)
        try:
            for _ in range(2):  # each client is a line of the log
                with ps.Client(address, 0, timeout=PATIENCE, connect_timeout=PATIENCE) as client:
                    client.init_parameter("x", [1], "float32")
            said = os.read(ours, 1 << 20) if stuck else b""
            server.terminate()
            check(server.wait(timeout=PATIENCE) == 0, "it ends as asked")
            check(not stuck or b" untold lines=" in os.read(ours, 1 << 20), f"the log lacks lines: {said[-200:]}")
        finally:
            server.kill()


# ---- trainings ----------------------------------------------------------------------------------------------------


def hash_of(*words):
    done = tool(*TRAIN, "--steps", "12", "--workers", "3", "--json", *words)
    check(done.returncode == 0, f"{words}: {done.stderr}")
    summary = json.loads(done.stdout)
    check(summary["replicas_identical"], f"{words}: replicas differ")
    return summary["parameter_hash"]


def endless(*words):
    """Starts a run that somebody must end. If nobody does, it is killed."""
    run = subprocess.Popen([TOOL, *TRAIN, "--steps", "1000000", *words], stderr=subprocess.PIPE, text=True)
    watchdog = threading.Timer(3 * PATIENCE, run.kill)
    watchdog.daemon = True
    watchdog.start()
    return run


def comes(servers, *words):
    """Starts a worker, rank 0 if the words do not say another."""
    addresses = ",".join(server.address for server in servers)
    return endless("--link", "servers", "--rank", "0", "--servers", addresses, *words)


def trains(run):
    """Waits for the run's first step. Notes about the machine may come first."""
    check(any(line.startswith("step 1/") for line in run.stderr), "the first step is done")
    return run


def ended(run, status, says):
    """Waits for the end of a run. Returns what it said."""
    said = run.communicate(timeout=PATIENCE)[1]
    check(run.returncode == status and says in said, said)
    return said


def stopped(run):
    """Ends a run as a user does."""
    run.send_signal(signal.SIGINT)
    said = ended(run, 1, "of 1000000 steps, as asked")
    check("--checkpoint-every" not in said, f"such a run makes no checkpoints: {said}")


def trainings():
    """In mode sync averages over servers, and the servers' parameters, are those of members, bit for bit. In the other
    modes all workers end with the same parameters, also if each drops nearly all steps; and a run stops when the user
    asks for it, wherever its workers are."""
    on_servers = ["--parameters", "servers"]
    for words in ("--net lenet --codec ternary", "--optimizer adam --codec topk:ratio=0.05"):
        alone = hash_of(*words.split())
        with serving("--workers", "3", n=3) as (address, _):
            for more in ([], on_servers):
                check(hash_of(*words.split(), "--servers", address, *more) == alone, f"{words}, {more}")
    for options, codec, says, *runs in (
        ("--mode async", "ternary", "--mode is not sync", on_servers),
        ("--mode stale:2", "topk:ratio=0.05", "--mode is not sync", on_servers, [*on_servers, "--lr", "1e30"]),
        ("--backup 1", "ternary:share=off", "--backup", on_servers, []),
    ):
        with serving("--workers", "3", *options.split(), n=2) as (address, _):
            for words in runs:
                hash_of("--codec", codec, "--servers", address, *words)
            fails([*TRAIN, "--servers", address, "--workers", "3", "--codec", "ternary"], says)
            stopped(trains(endless("--workers", "3", "--servers", address, *on_servers)))


def convex_without_meeting():
    """Workers that meet at the server alone each evaluate all samples, and end with the same parameters."""
    with serving("--workers", "2") as (address, _):
        words = "train --net logreg --data uneven --steps 40 --codec none --timeout 30 --json --link servers".split()
        words = [TOOL, *words, "--servers", address, "--rank"]
        workers = [subprocess.Popen([*words, rank], stdout=subprocess.PIPE) for rank in "01"]
        a, b = [json.loads(worker.communicate(timeout=PATIENCE)[0]) for worker in workers]
        for name in ("parameter_hash", "train_loss", "train_accuracy"):
            check(a[name] == b[name], f"{name}: {a[name]}, {b[name]}")


def workers_that_differ():
    """servers_test has other exchanges. Learning rates depend on the length of a run, so workers with another one do
    not train together."""
    with serving("--workers", "2", "--missing", "continue", "--min-workers", "1") as (_, servers):
        first = trains(comes(servers))
        for words, says in (
            (["--steps", "7000000"], "rank 1 has steps = 7000000, and rank 0 began"),
            (["--optimizer", "adam"], "rank 1 was not started with the --net, --optimizer"),
        ):
            ended(comes(servers, "--rank", "1", *words), 2, says)
        stopped(first)


def a_server_that_has_lost_its_part():
    """The parameters of a run are on two servers. If one is started anew, it must not go on with first parameters."""
    servers = [Server("--workers", "1") for _ in range(2)]
    stopped(trains(comes(servers, "--parameters", "servers")))
    servers[1].end()
    servers[1] = Server("--workers", "1", listen=servers[1].address)
    ended(comes(servers, "--parameters", "servers", "--timeout", "1"), 1, "has lost this run's parameters")


def who_is_killed():
    """A server that kept nothing is started anew in the midst of a run: that is no wrong use of the command. With
    --missing stop the others end at once if a worker is killed, and name it. pserver_members_test has the next run."""
    server = Server("--workers", "1")
    run = trains(comes([server]))
    server.kill()
    server = Server("--workers", "1", listen=server.address)
    said = ended(run, 1, "was started anew while its workers trained")
    check("Try" not in said, said)
    with serving("--workers", "2", "--missing", "stop", "--away", "1") as (_, servers):
        workers = [trains(one) for one in [comes(servers, "--rank", rank, "--timeout", "600") for rank in "01"]]
        workers[1].kill()
        ended(workers[0], 1, "rank 1 is gone, and this server runs with --missing stop")


def replays():
    """Steps of a profile over servers give the same averages as among the members."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, serving("--workers", "3", n=2) as (address, _):
        json.dump(harness.profile(lambda p: p["codecs"].pop(0)), file)
        file.flush()
        words = ["bench", "exchange", "--profile", file.name, "--workers", "3", "--runs", "2", "--json"]
        reports = [json.loads(tool(*words, *more).stdout) for more in ([], ["--servers", address])]
        rows = [report["results"][0] for report in reports]
        check([report["servers"] for report in reports] == [0, 1], "the report says who averages")
        check(all(row["averages_identical"] for row in rows), "all members have the same averages")
        check(rows[0]["average_hash"] == rows[1]["average_hash"], f"the averages are the same: {rows}")
        check([row["predicted_seconds"] is None for row in rows] == [False, True], "predictions are for members")
        fails([*words, *"--plan exact --plan none --servers 127.0.0.1:9".split()], "serve one exchange")


def main():
    for test in (how_a_server_ends, wrong_use, limits, keys, nobody_reads_the_log):
        test()
    if not harness.HAS_TRAINER:
        print("left out: trainings, as the tool is built without the trainer")
        return 0
    tests = [trainings, convex_without_meeting, workers_that_differ, replays]
    for test in [*tests, a_server_that_has_lost_its_part, who_is_killed]:
        test()
    print("the parameter server answers as it must")
    return 0


if __name__ == "__main__":
    sys.exit(main())
