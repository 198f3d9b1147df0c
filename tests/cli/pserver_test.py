#!/usr/bin/env python3
"""Tests the parameter server from outside: Paddle#6599's own lines from two Python processes, limits, keys, and
trainings. The C tests of src/pserver have what the server answers; servers_test has what an exchange over servers
computes.

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
import time

import harness
from pserver_common import PATIENCE, TOOL, Server, check, fails, numpy, refused, serving, tool

import gradwire.pserver as ps

TRAIN = ["train", *harness.SMALL]

WORKER = """
import sys, numpy
import gradwire.pserver as ps
rank, address = int(sys.argv[1]), sys.argv[2]
client = ps.Client(address, rank=rank)
client.init_parameter(key="max_abs_grad", shape=[1], type="float32")
client.init_parameter(key="quantized_grad", shape=[2], type="uint8")
for step in range(50):
    random = [numpy.random.default_rng([step, r]) for r in range(2)]
    largest = [r.random(1, dtype=numpy.float32) for r in random]
    values = [r.integers(-1, 2, 8) for r in random]
    codes = (values[rank] + 1).reshape(2, 4) << [0, 2, 4, 6]
    client.push_parameter(key="max_abs_grad", value=largest[rank])
    client.push_parameter(key="quantized_grad", value=codes.sum(axis=1))
    scale = client.pull_parameter(key="max_abs_grad", reduce_method="max")
    assert scale.dtype == numpy.float32 and scale.shape == (1,) and scale == max(largest)
    average = client.pull_parameter(key="quantized_grad", reduce_method="decode_average")
    mean = numpy.float32(values[0] + values[1]) / 2
    assert average.dtype == numpy.float32 and (average == mean).all(), (average, values)
    scaled = client.pull_parameter(key="quantized_grad", reduce_method="decode_average", scale_key="max_abs_grad")
    assert (scaled == average * scale).all()
client.close()
"""


def two_processes():
    with serving("--workers", "2") as (address, servers):
        workers = [subprocess.Popen([sys.executable, "-c", WORKER, str(rank), address]) for rank in range(2)]
        check([one.wait(timeout=PATIENCE) for one in workers] == [0, 0], "both processes end well")
        for _ in workers:
            servers[0].wait_for(r"left rank=[01]")


def limits():
    """The sentences of the server reach the one who called. pserver_client_test has what the client itself refuses."""
    server = Server("--workers", "1", "--max-key-bytes", "1Mi", "--max-keys", "3")
    come = lambda rank, timeout: ps.Client(server.address, rank=rank, timeout=timeout)
    with come(0, 20) as client, come(ps.READER, 5) as reader:
        init, push, pull = client.init_parameter, client.push_parameter, client.pull_parameter
        init("of int32", [2, 1], "int32")
        init("one more", [1], "float32")
        push("of int32", [[5], [-6]])
        for call, *words in (
            (lambda: push("of itn32", [1, 2]), "of itn32", "nearest", "of int32"),
            (lambda: push("one more", [1], rate=0.1), "no optimizer"),
            (lambda: pull("of int32", "middle"), "middle", "mean"),
            (lambda: pull("of int32", "decode_sum"), "int32", "latest"),
            (lambda: pull("one more", "sum"), "before it has pushed"),
            (lambda: init("of int32", [3], "int32"), "[2, 1]", "[3]"),
            (lambda: init("large", [1 << 20], "float32"), "--max-key-bytes"),
            (lambda: init("x", [3], "float32", optimizer="sgd", value=[1, 2]), "must have [3]"),
            (lambda: init("x", [3], "float32", value=[1, 2, 3]), "no optimizer"),
            (lambda: init("x", [3], "float32", optimizer="sgd:rate=1"), "no option", "it has lr"),
            (lambda: come(0, 10), "rank 0 is here already"),
        ):
            refused(call, *words)
        reader.init_parameter("x", [3], "float32", optimizer="sgd:lr=1")
        refused(lambda: reader.pull_parameter("x", "parameters"), "anybody to put the first parameters of")
        reader.init_parameter("x", [3], "float32", optimizer="sgd:lr=1", value=[1, 2, 3])
        check((reader.pull_parameter("x", "parameters") == [1, 2, 3]).all(), "a reader may put the first value")
        init("x", [3], "float32", optimizer="sgd:lr=1")
        push("x", [2, 2, 2], rate=0.5)
        check((pull("x", "parameters") == [0, 1, 2]).all(), "a rate comes with a push")
        refused(lambda: init("too many", [1], "float32"), "--max-keys")
    server.end(signal.SIGINT)


# OpenSSL asks for a password at the terminal before it reads this.
ASKS = f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{'00' * 16}\n\nAAAA\n".join(
    f"-----{word} CERTIFICATE-----\n" for word in ("BEGIN", "END")
)


def keys():
    """A file in allowed/ lets a client in, and the server need not start anew. When the file is gone, the client is
    out. net_keys_test has what keys new refuses, and pserver_client_test the words of clients that do not fit."""
    with tempfile.TemporaryDirectory() as folder:
        job, guest, anna = (pathlib.Path(folder) / name for name in ("job", "guest", "anna"))
        for words in ([job], [guest], [anna, "--client", "anna", "--of", job]):
            check(tool("keys", "new", *words).returncode == 0, "keys are made")
        (guest / "rendezvous.crt").write_text((job / "gradwire.crt").read_text())
        listed = job / "allowed/guest.crt"
        server = Server("--workers", "1", "--keys", job)
        come = lambda keys=guest: ps.Client(server.address, rank=0, timeout=3, keys=str(keys))
        # Not even the server's own key lets a client in, though it is in the list. A client with this key could pass
        # for the server.
        refused(lambda: come(job), "its certificate", "is not allowed there")
        for _ in range(2):
            refused(come, "is not allowed there")
            (job / "allowed/half.crt").write_text(ASKS)
            listed.write_text((guest / "gradwire.crt").read_text())
            client = come()
            client.init_parameter(key="x", shape=[1], type="float32")
            client.push_parameter(key="x", value=[1])
            listed.unlink()
            server.wait_for("dropped rank=0")
            refused(lambda: client.push_parameter(key="x", value=[1]), "")
            client.close()
        with come(anna) as client:
            client.init_parameter(key="x", shape=[1], type="float32")
            client.push_parameter(key="x", value=[2])
            check(client.pull_parameter(key="x", reduce_method="max") == 2, "a key that the server made is served")
        log = server.end()
        check("its certificate is this server's own" in log, log)
        check(log.count("certificates=2") == 2 and log.count("is not allowed any more") == 2, log)
        before = sorted(pathlib.Path(folder).rglob("*"))
        fails(["keys", "new", f"{folder}/bert", "--client", "bert"], "--of is missing")
        fails(["keys", "new", f"{folder}/bert", "--of", job], "--client is missing")
        check(sorted(pathlib.Path(folder).rglob("*")) == before, "nothing is left behind by what was refused")


def nobody_reads_the_log():
    """The server goes on if the reader of its log has gone, or does not read; then the log says how much it lacks."""
    for stuck in (False, True):
        ours, its = os.pipe()
        os.set_blocking(its, False)
        with contextlib.suppress(BlockingIOError):
            while stuck:
                os.write(its, bytes(1 << 12))
        os.set_blocking(its, True)
        address = f"127.0.0.1:{next(harness.PORTS)}"
        server = subprocess.Popen([str(TOOL), "server", "--listen", address, "--workers", "1"], stderr=its)
        os.close(its)
        if not stuck:
            os.close(ours)
        try:
            for _ in range(2):  # each client is a line of the log
                with ps.Client(address, 0, timeout=PATIENCE, connect_timeout=PATIENCE) as client:
                    client.init_parameter("x", [1], "float32")
                    client.push_parameter("x", numpy.ones(1, "float32"))
                    check(client.pull_parameter("x", "sum")[0] == 1, "it answers")
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
    words = [str(word) for word in (TOOL, *TRAIN, "--steps", "1000000", *words)]
    run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
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
    """Threads and processes get the same parameters over servers, and in mode sync the servers' parameters are the
    workers' own, bit for bit."""
    for n, words in ((1, "--net lenet --codec ternary"), (3, "--optimizer adam --codec topk:ratio=0.05")):
        words = words.split()
        alone = hash_of(*words)
        for more in ([], ["--parameters", "servers"]):
            with serving("--workers", "3", n=n) as (address, _):
                check(hash_of(*words, "--servers", address, *more) == alone, f"{n} servers, {words}, {more}")
    with serving("--workers", "2") as (address, _):
        fails([*TRAIN, "--workers", "3", "--servers", address, "--timeout", "5"], "ranks 0 to 1")


def without_rounds():
    """In modes that wait for nobody all workers end with the servers' last parameters, and a run stops when the user
    asks for it, wherever its workers are."""
    for mode, codec in (("async", "ternary"), ("stale:2", "topk:ratio=0.05")):
        with serving("--workers", "3", "--mode", mode, n=2) as (address, _):
            on_servers = ["--servers", address, "--parameters", "servers"]
            hash_of("--codec", codec, *on_servers)
            hash_of("--lr", "1e30", *on_servers)  # each worker drops nearly all steps
            fails([*TRAIN, "--workers", "3", "--servers", address], "--mode is not sync")
            stopped(trains(endless("--workers", "3", *on_servers)))


def convex_without_meeting():
    """Workers that meet at the server alone each evaluate all samples, and end with the same parameters."""
    with serving("--workers", "2") as (address, _):
        words = "train --net logreg --data uneven --steps 40 --codec none --timeout 30 --json --link servers".split()
        words += ["--servers", address, "--rank"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        workers = [subprocess.Popen([str(TOOL), *words, str(r)], **pipes) for r in range(2)]
        said = [one.communicate(timeout=PATIENCE) for one in workers]
        check([one.returncode for one in workers] == [0, 0], said)
        found = [json.loads(out) for out, _ in said]
        for name in ("parameter_hash", "train_loss", "train_accuracy"):
            check(found[0][name] == found[1][name], f"{name}: {found[0][name]}, {found[1][name]}")


def workers_that_differ():
    """Learning rates depend on the length of a run, so workers with another one do not train together. Nor do those
    with another optimizer."""
    with serving("--workers", "2", "--missing", "continue", "--min-workers", "1") as (_, servers):
        first = trains(comes(servers))
        for words, says in (
            (["--steps", "7000000"], "rank 1 has steps = 7000000, and rank 0 began"),
            (["--optimizer", "adam"], "rank 1 was not started with the --net, --optimizer"),
        ):
            ended(comes(servers, "--rank", "1", *words), 2, says)
        stopped(first)


def backup_workers():
    """Rounds do not wait for the slowest worker. Replicas are identical. A codec with shared numbers is refused."""
    with serving("--workers", "3", "--backup", "1") as (address, _):
        hash_of("--servers", address, "--codec", "topk:ratio=0.05")
        hash_of("--servers", address, "--codec", "ternary:share=off", "--parameters", "servers")
        fails([*TRAIN, "--servers", address, "--workers", "3", "--codec", "ternary"], "--backup")


def a_server_that_has_lost_its_part():
    """The parameters of a run are on two servers. If one is started anew, it must not go on with first parameters."""
    servers = [Server("--workers", "1") for _ in range(2)]
    stopped(trains(comes(servers, "--parameters", "servers")))
    servers[1].end()
    servers[1] = Server("--workers", "1", listen=servers[1].address)
    ended(comes(servers, "--parameters", "servers", "--timeout", "1"), 1, "has lost this run's parameters")
    for server in servers:
        server.end()


def a_server_that_has_lost_its_keys():
    """A server that kept nothing is started anew in the midst of a run. That is no wrong use of the command."""
    server = Server("--workers", "1")
    run = trains(comes([server]))
    server.kill()
    server = Server("--workers", "1", listen=server.address)
    said = ended(run, 1, "was started anew while its workers trained")
    check("Try" not in said, said)
    server.end()


def one_is_gone_and_all_stop():
    """--missing stop: after a kill the others end at once, and name it. pserver_members_test has the next run."""
    with serving("--workers", "3", "--missing", "stop", "--away", "1") as (_, servers):
        workers = [trains(one) for one in [comes(servers, "--rank", str(r), "--timeout", "60") for r in range(3)]]
        workers[2].kill()
        workers[2].communicate()
        killed = time.monotonic()
        for one in workers[:2]:
            ended(one, 1, "rank 2 is gone, and this server runs with --missing stop")
        check(time.monotonic() - killed < 30, "the others wait for no deadline of 60 seconds")


def replays():
    """Steps of a profile over servers give the same averages as among the members."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, serving("--workers", "3", n=2) as (address, _):
        json.dump(harness.profile(lambda p: p["codecs"].pop(0)), file)
        file.flush()
        words = ["bench", "exchange", "--profile", file.name, "--workers", "3", "--runs", "2", "--json"]
        alone, over = [json.loads(tool(*words, *more).stdout) for more in ([], ["--servers", address])]
        check([alone["servers"], over["servers"]] == [0, 1], "the report says who averages")
        rows = [alone["results"][0], over["results"][0]]
        check(all(row["averages_identical"] for row in rows), "all members have the same averages")
        check(len({row["average_hash"] for row in rows}) == 1, f"the averages are the same: {rows}")
        check([row["predicted_seconds"] is None for row in rows] == [False, True], "predictions are for members")
        fails([*words, *"--plan exact --plan none --servers 127.0.0.1:9".split()], "serve one exchange")


def wrong_use():
    """The status is 2. The service file takes it for what stays wrong, and does not start the server again."""
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
        ("server --workers 2 --missing stop --away -1", "0.001 to"),
        ("server --workers 2 --missing stop --listen 127.0.0.1:0 --away 0", "0.001 to"),
        ("server --workers 2 --listen 0.0.0.0:0", "loopback"),
        ("server --workers 2 --listen nowhere", "HOST:PORT"),
        ("server --workers 2 --min-workers 1", "the first round is to have 1 of 2 workers"),
        ("server --workers 2 --max-bytes 18446744073709551615", "from 1 to 1125899906842624"),
        ("server --workers 2 --backup 2", "2 of 2 workers as backup"),
        ("server --workers 2 --listen 127.0.0.1:0 --metrics nowhere", "status page"),
    ):
        if words.startswith("server") or harness.HAS_TRAINER:
            fails(words.split(), said, status=2)


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


def main():
    for test in (how_a_server_ends, two_processes, wrong_use, limits, keys, nobody_reads_the_log):
        test()
    if not harness.HAS_TRAINER:
        print("left out: trainings, as the tool is built without the trainer")
        return 0
    tests = [trainings, without_rounds, convex_without_meeting, workers_that_differ, backup_workers, replays]
    tests += [a_server_that_has_lost_its_part, a_server_that_has_lost_its_keys, one_is_gone_and_all_stop]
    for test in tests:
        test()
    print("the parameter server answers as it must")
    return 0


if __name__ == "__main__":
    sys.exit(main())
