#!/usr/bin/env python3
"""Tests the parameter server from outside: Paddle#6599's own lines from two Python processes, refusals, signals, keys.

    tests/cli/pserver_test.py TOOL"""
import json
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

import harness
from pserver_common import TOOL, Server, check, numpy, refused

TRAIN = [str(TOOL), "train", "--data", harness.PICTURES]

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


def snippet():
    server = Server("--workers", "2")
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, str(rank), server.address]) for rank in range(2)]
    check([worker.wait(timeout=60) for worker in workers] == [0, 0], "both processes of the snippet end well")
    log = server.end()
    check(len(re.findall(r"joined rank=[01]", log)) == 2 and len(re.findall(r"left rank=[01]", log)) == 2, log)


OPTIMIZED = """
import sys, numpy
import gradwire.pserver as ps
rank, address = int(sys.argv[1]), sys.argv[2]
shape, f = [700, 501], numpy.float32                      # in parts, one a server
first = numpy.arange(700 * 501, dtype=f).reshape(shape) / f(1 << 20)
client = ps.Client(address, rank=rank)
momentum = "momentum:lr=0.1,momentum=0.5"
client.init_parameter(key="w", shape=shape, type="float32", optimizer=momentum, value=first if rank == 1 else None)
w, v = first, numpy.zeros(shape, f)
assert (client.pull_parameter("w", "parameters") == w).all()
for step in range(5):
    gradients = [numpy.random.default_rng([step, r]).standard_normal(shape, dtype=f) for r in range(2)]
    client.push_parameter("w", gradients[rank], rate=0.01 if step == 3 else 0)
    mean = ((gradients[0].astype(numpy.float64) + gradients[1]) / 2).astype(f)
    v = f(0.5) * v + f(0.01 if step == 3 else 0.1) * (mean + f(0) * w)
    w = w - v
    pulled = client.pull_parameter("w", "parameters")
    assert pulled.dtype == f and pulled.shape == w.shape and (pulled == w).all(), (step, numpy.abs(pulled - w).max())
client.close()
"""


def optimizers(ps):
    servers = [Server("--workers", "2") for _ in range(2)]
    address = ",".join(server.address for server in servers)
    workers = [subprocess.Popen([sys.executable, "-c", OPTIMIZED, str(rank), address]) for rank in range(2)]
    check([worker.wait(timeout=60) for worker in workers] == [0, 0], "both workers get numpy's parameters")
    with ps.Client(address, rank=ps.READER, timeout=5) as reader:
        refused(lambda: reader.init_parameter("x", [3], "float32", value=[1, 2, 3]), "no optimizer")
        refused(lambda: reader.init_parameter("x", [3], "float32", optimizer="sgd", value=[1, 2]), "must have [3]")
        refused(lambda: reader.init_parameter("x", [3], "int32", optimizer="sgd"), "an optimizer is for float32")
        refused(lambda: reader.init_parameter("x", [3], "float32", optimizer="sgd:rate=1"), "no option", "it has lr")
        reader.init_parameter("x", [3], "float32", optimizer="sgd")
        refused(lambda: reader.pull_parameter("x", "parameters"), "anybody to put the first parameters of")
        refused(lambda: reader.push_parameter("x", [1, 2, 3], rate=-1), "learning rate")
        refused(
            lambda: reader.init_parameter("x", [3], "float32", optimizer="sgd", value=[1, 2, numpy.nan]),
            "first parameters",
            "element 2",
        )
        reader.init_parameter("x", [3], "float32", optimizer="sgd", value=[1, 2, 3])
        check((reader.pull_parameter("x", "parameters") == [1, 2, 3]).all(), "a reader may put the first value")
    for server in servers:
        server.end()


def types_and_refusals(ps):
    server = Server("--workers", "1", "--max-key-bytes", "1Mi", "--max-keys", "8")
    with ps.Client(server.address, rank=0, timeout=5) as client:
        for type, value in (
            ("float32", [1.5, -2]),
            ("float16", [1.5, -2]),
            ("bfloat16", [1.5, -2]),
            ("int32", [7, -2]),
            ("int64", [7, -(2**40)]),
            ("uint8", [7, 200]),
        ):
            client.init_parameter(key=f"of {type}", shape=[2, 1], type=type)
            client.push_parameter(key=f"of {type}", value=[[x] for x in value])
            for method in ("max", "min", "mean", "latest", "sum"):
                pulled = client.pull_parameter(key=f"of {type}", reduce_method=method)
                check(pulled.shape == (2, 1) and (pulled.ravel() == value).all(), f"{type}, {method}: {pulled}")
        refused(lambda: client.init_parameter(key="of\0uint8", shape=[1], type="uint8"), "NUL")
        refused(lambda: client.push_parameter(key="of flaot32", value=[1, 2]), "of flaot32", "nearest", "of float32")
        refused(lambda: client.push_parameter(key="of uint8", value=[1.5, 2]), "uint8")
        refused(lambda: client.push_parameter(key="of int32", value=[1, 2, 3]), "shape")
        refused(lambda: client.push_parameter(key="of int32", value=[2**31, 2]), "int32")
        refused(lambda: client.push_parameter(key="of uint8", value=numpy.array([256, 2], dtype=numpy.uint16)), "uint8")
        client.push_parameter(key="of int32", value=numpy.array([[5], [-6]], dtype=numpy.int64))
        check(
            (client.pull_parameter(key="of int32", reduce_method="latest").ravel() == [5, -6]).all(),
            "a wider integer that fits",
        )
        refused(lambda: client.pull_parameter(key="of int32", reduce_method="middle"), "middle", "mean")
        refused(lambda: client.pull_parameter(key="of int32", reduce_method="decode_sum"), "int32", "latest")
        refused(lambda: client.init_parameter(key="of int32", shape=[3], type="int32"), "[2, 1]", "[3]")
        refused(lambda: client.init_parameter(key="large", shape=[1 << 20], type="float32"), "--max-key-bytes")
        client.init_parameter(key="one more", shape=[1], type="float32")
        refused(lambda: client.pull_parameter(key="one more", reduce_method="sum"), "before it has pushed")
        client.init_parameter(key="the last", shape=[1], type="float32")
        refused(lambda: client.init_parameter(key="too many", shape=[1], type="float32"), "--max-keys")
        refused(lambda: ps.Client(server.address, rank=0, timeout=10), "rank 0 is here already")
        refused(lambda: ps.Client(server.address, rank=1, timeout=10), "ranks 0 to 0")
    server.end(signal.SIGINT)


def values_of_no_round(ps):
    server = Server("--workers", "1")
    with ps.Client(server.address, rank=ps.READER) as a, ps.Client(server.address, rank=ps.READER, timeout=1) as b:
        for client in (a, b):
            client.init_parameter(key="state", shape=[2, 2], type="bfloat16")
        a.put(key="state", value=[[1, 2], [3, 4]], version=7)
        a.put(key="state", value=[[0, 0], [0, 0]], version=6)
        value, version = b.get(key="state", least=7)
        check(version == 7 and (value == [[1, 2], [3, 4]]).all(), "what was put")
        refused(lambda: b.get(key="state", least=8), "waited")
        refused(lambda: a.put(key="state\0of another", value=[[0, 0], [0, 0]], version=9), "NUL")
        refused(lambda: a.get(key="state\0of another"), "NUL")
        refused(lambda: a.put(key="state", value=[[0, 0], [0, 0]], version=-1), "version is -1")
        refused(lambda: a.get(key="state", least=2**64), "least is 18446744073709551616")
        check(b.get(key="state")[1] == 7, "none of these has changed it")
        refused(lambda: ps.Client(server.address, rank=-1, timeout=1), "rank is -1")
        refused(lambda: ps.Client(server.address, rank=2**32, timeout=1), "rank is 4294967296")
        with ps.Client(
            server.address, rank=numpy.int64(0), timeout=2**32 / 1000
        ) as patient:  # its timeout in milliseconds needs 33 bits
            patient.init_parameter(key="state", shape=[2, 2], type="bfloat16")
    server.end()


def several_servers(ps):
    servers = [Server("--workers", "2") for _ in range(3)]
    address = ",".join(server.address for server in servers)
    clients = [ps.Client(address, rank=rank, timeout=20) for rank in range(2)]
    values = [numpy.random.default_rng(rank).standard_normal(1_000_001, dtype=numpy.float32) for rank in range(2)]
    for client in clients:
        client.init_parameter(key="large", shape=[1_000_001], type="float32")
        for k in range(10):
            client.init_parameter(key=f"small {k}", shape=[2], type="int32")
    for client, value in zip(clients, values):
        client.push_parameter(key="large", value=value)
        for k in range(10):
            client.push_parameter(key=f"small {k}", value=[k, 1])
    for client in clients:
        mean = client.pull_parameter(key="large", reduce_method="mean")
        check(
            mean.shape == (1_000_001,)
            and (mean == ((values[0].astype(float) + values[1]) / 2).astype(numpy.float32)).all(),
            "a value over three servers",
        )
        for k in range(10):
            check(
                (client.pull_parameter(key=f"small {k}", reduce_method="sum") == [2 * k, 2]).all(),
                "keys on three servers",
            )
        client.close()
    logs = [server.end() for server in servers]
    check(
        all('init key="large"' in log for log in logs) and sum('init key="small' in log for log in logs) > 1,
        "keys are spread",
    )


def a_killed_worker_comes_back(ps):
    server = Server("--workers", "2")
    stay = ps.Client(server.address, rank=0, timeout=20)
    stay.init_parameter(key="x", shape=[1], type="float32")
    code = f"""
import gradwire.pserver as ps, os, signal
client = ps.Client("{server.address}", rank=1)
client.init_parameter(key="x", shape=[1], type="float32")
client.push_parameter(key="x", value=[1])
os.kill(os.getpid(), signal.SIGKILL)
"""
    for step in range(3):
        subprocess.run([sys.executable, "-c", code])
        stay.push_parameter(key="x", value=[10])
        check(stay.pull_parameter(key="x", reduce_method="sum") == 11, "the push of one who died counts")
    stay.close()
    check(server.end().count("lost rank=1") == 3, "the log tells of those who died")


def a_push_whose_answer_is_late(ps):
    """The server may have taken the push or not. It does not mistake the next value for it."""
    server = Server("--workers", "1")
    with ps.Client(server.address, rank=0, timeout=1) as client:
        client.init_parameter(key="x", shape=[1], type="int32")
        client.init_parameter(key="w", shape=[1], type="float32", optimizer="sgd:lr=1", value=[100])
        client.push_parameter(key="x", value=[1])
        server.process.send_signal(signal.SIGSTOP)
        refused(lambda: client.push_parameter(key="x", value=[2]), "does not answer")
        refused(lambda: client.push_parameter(key="w", value=[2]), "does not answer")
        server.process.send_signal(signal.SIGCONT)
        client.push_parameter(key="w", value=[3])
        check(
            client.pull_parameter(key="w", reduce_method="parameters") in (97, 95),
            "a gradient pushed after one that timed out",
        )
        client.push_parameter(key="x", value=[3])
        check(client.pull_parameter(key="x", reduce_method="max") == 3, "the value pushed after one that timed out")
    server.end()


def new_keys(*words):
    done = subprocess.run([str(TOOL), "keys", "new", *map(str, words)], stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


def keys(ps):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("job", "stranger"):
            check(new_keys(f"{folder}/{name}")[0] == 0, "keys are made")
        check(new_keys(f"{folder}/anna", "--client", "anna", "--of", f"{folder}/job")[0] == 0, "a client's are, too")
        # The stranger knows the server's public key, but is not in the server's list.
        (pathlib.Path(folder) / "stranger/rendezvous.crt").write_text(
            (pathlib.Path(folder) / "job/gradwire.crt").read_text()
        )
        server = Server("--workers", "1", "--keys", f"{folder}/job")
        # Not even the server's own key lets a client in, though it is in the list. A client with this key could pass
        # for the server.
        no_key = "is not in the folder allowed/"
        refused(lambda: ps.Client(server.address, rank=0, keys=f"{folder}/job"), "its certificate", no_key)
        refused(lambda: ps.Client(server.address, rank=0), "has no identity", "takes only clients that have one")
        refused(lambda: ps.Client(server.address, rank=0, keys=f"{folder}/stranger"), "its certificate", no_key)
        with ps.Client(server.address, rank=0, timeout=10, keys=f"{folder}/anna") as client:
            client.init_parameter(key="x", shape=[1], type="float32")
            client.push_parameter(key="x", value=[1])
            check(client.pull_parameter(key="x", reduce_method="max") == 1, "a keyed client is served")
        log = server.end()
        check("is not in" in log and "its certificate is this server's own" in log, "the log names the refused keys")
        before = sorted(pathlib.Path(folder).rglob("*"))
        for words, says in (
            (["--client", "bert"], "--of is missing"),
            (["--of", f"{folder}/job"], "--client is missing"),
            (["--client", "anna", "--of", f"{folder}/job"], "is there already"),
            (["--client", "../bert", "--of", f"{folder}/job"], "cannot be called"),
            (["--client", "bert", "--of", f"{folder}/none"], "none/gradwire.crt cannot be read"),
        ):
            status, said = new_keys(f"{folder}/bert", *words)
            check(status != 0 and says in said, f"{words}: {said}")
        status, said = new_keys(f"{folder}/anna", "--client", "bert", "--of", f"{folder}/job")
        check(status == 1 and "there is a key already" in said, said)
        check(sorted(pathlib.Path(folder).rglob("*")) == before, "nothing is left behind by what was refused")


def keys_come_and_go(ps):
    """A file in allowed/ lets a client in, and the server need not start anew. When the file is gone, the client is
    out."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("job", "guest"):
            subprocess.run([str(TOOL), "keys", "new", str(folder / name)], check=True, stderr=subprocess.DEVNULL)
        (folder / "guest/rendezvous.crt").write_text((folder / "job/gradwire.crt").read_text())
        listed = folder / "job/allowed/guest.crt"
        server = Server("--workers", "1", "--keys", str(folder / "job"))
        come = lambda: ps.Client(server.address, rank=0, timeout=3, keys=str(folder / "guest"))
        for _ in range(3):
            refused(come, "is not in the folder allowed/")
            (folder / "job/allowed/half.crt").write_text("no key")
            listed.write_text((folder / "guest/gradwire.crt").read_text())
            client = come()
            client.init_parameter(key="x", shape=[1], type="float32")
            client.push_parameter(key="x", value=[1])
            listed.unlink()
            server.wait_for("dropped rank=0")
            refused(lambda: client.push_parameter(key="x", value=[1]), "")
            client.close()
            refused(come, "is not in the folder allowed/")
        log = server.end()
        check(log.count("certificates=1") == 3 and log.count("certificates=0") == 3, log)
        check(log.count("is not allowed any more") == 3, log)


def more_clients_than_files_at_first(ps):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, before[1]))
    server = Server("--workers", "1")
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    clients = [ps.Client(server.address, rank=ps.READER, timeout=20) for _ in range(40)]
    for client in clients:
        client.close()
    server.end()


def hash_of(*words):
    done = subprocess.run(
        [*TRAIN, "--steps", "12", "--workers", "3", "--json", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    check(done.returncode == 0, f"{words}: {done.stderr}")
    summary = json.loads(done.stdout)
    check(summary["replicas_identical"], f"{words}: replicas differ")
    return summary["parameter_hash"]


def training():
    """Threads and processes get the same parameters, with one server and with three."""
    for codec in ("ternary", "none", "gspar:eps=0.5", "topk:ratio=0.05,refresh=3"):
        alone = hash_of("--net", "lenet", "--codec", codec)
        for n in (1, 3):
            servers = [Server("--workers", "3") for _ in range(n)]
            address = ",".join(server.address for server in servers)
            check(
                hash_of("--net", "lenet", "--codec", codec, "--servers", address) == alone,
                f"{codec}: the parameters over {n} servers are those of threads",
            )
            for server in servers:
                server.end()
    server = Server("--workers", "2")
    done = subprocess.run(
        [
            *TRAIN,
            "--workers",
            "3",
            "--servers",
            server.address,
            "--timeout",
            "5",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    check(done.returncode == 1 and "ranks 0 to 1" in done.stderr, done.stderr)
    server.end()


def parameters_on_servers():
    """In mode sync the servers' parameters are the workers' own, bit for bit. In the other modes all workers end with
    the servers' last parameters."""
    small = ["--net", "mlp:784-16-10"]
    for net, optimizer, codec, n in (
        (["--net", "lenet"], "momentum", "ternary", 1),
        (small, "sgd", "ternary", 3),
        (small, "momentum", "topk:ratio=0.05", 3),
        (small, "sgd", "topk:ratio=0.05", 1),
        (small, "momentum", "none", 3),
        (small, "sgd", "none", 1),
        (small, "adam", "bf16", 2),
    ):
        words = [*net, "--optimizer", optimizer, "--codec", codec]
        servers = [Server("--workers", "3") for _ in range(n)]
        address = ",".join(server.address for server in servers)
        check(
            hash_of(*words, "--servers", address, "--parameters", "servers") == hash_of(*words),
            f"{words}: the parameters on {n} servers are the workers' own",
        )
        for server in servers:
            server.end()
    for mode in ("async", "stale:0", "stale:2"):
        servers = [Server("--workers", "3", "--mode", mode) for _ in range(2)]
        address = ",".join(server.address for server in servers)
        for codec in ("ternary", "topk:ratio=0.05"):
            # This checks that replicas are identical.
            hash_of(*small, "--codec", codec, "--servers", address, "--parameters", "servers")
        hash_of(
            *small, "--lr", "1e30", "--servers", address, "--parameters", "servers"
        )  # each worker drops nearly all steps
        done = subprocess.run(
            [
                *TRAIN,
                *small,
                "--workers",
                "3",
                "--steps",
                "9",
                "--servers",
                address,
            ],
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        check(done.returncode == 2 and "--mode is not sync" in done.stderr, done.stderr)
        for server in servers:
            server.end()


def await_first_step(process):
    """Notes about the machine may come first."""
    check(any(line.startswith("step 1/") for line in process.stderr), "the first step is done")


def stopped_without_rounds():
    """A run on servers that wait for nobody stops when the user asks for it, wherever its workers are."""
    for mode in ("async", "stale:2"):
        server = Server("--workers", "3", "--mode", mode)
        process = subprocess.Popen(
            [
                *TRAIN,
                "--net",
                "mlp:784-16-10",
                "--workers",
                "3",
                "--steps",
                "1000000",
                "--servers",
                server.address,
                "--parameters",
                "servers",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        await_first_step(process)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        check(process.returncode == 1 and "of 1000000 steps, as asked" in said, said)
        server.end()


def convex_without_meeting():
    """Workers that meet at the server alone each evaluate all samples, and end with the same parameters."""
    server = Server("--workers", "2")
    words = ["--net", "logreg", "--data", "uneven", "--steps", "40", "--codec", "none", "--timeout", "30", "--json"]
    words = ["train", "--link", "servers", "--servers", server.address, *words]
    workers = [
        subprocess.Popen([str(TOOL), *words, "--rank", str(r)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for r in range(2)
    ]
    said = [worker.communicate(timeout=60) for worker in workers]
    check([worker.returncode for worker in workers] == [0, 0], said)
    found = [json.loads(out) for out, _ in said]
    for name in ("parameter_hash", "train_loss", "train_accuracy"):
        check(found[0][name] == found[1][name], f"{name}: {found[0][name]}, {found[1][name]}")
    server.end()


def backup_workers():
    """Rounds do not wait for the slowest worker. Replicas are identical. A codec with shared numbers is refused."""
    server = Server("--workers", "3", "--backup", "1")
    small = ["--net", "mlp:784-16-10", "--servers", server.address]
    for codec in ("none", "topk:ratio=0.05", "ternary:share=off"):
        hash_of(*small, "--codec", codec)
        hash_of(*small, "--codec", codec, "--parameters", "servers")
    done = subprocess.run(
        [
            *TRAIN,
            *small,
            "--workers",
            "3",
            "--steps",
            "9",
            "--codec",
            "ternary",
        ],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    check(done.returncode != 0 and "--backup" in done.stderr, done.stderr)
    server.end()


def comes_again(servers, *words):
    return subprocess.Popen(
        [
            str(TOOL),
            "train",
            "--link",
            "servers",
            "--rank",
            "0",
            "--data",
            harness.PICTURES,
            "--net",
            "mlp:784-16-10",
            "--steps",
            "1000000",
            "--servers",
            ",".join(server.address for server in servers),
            *words,
        ],
        stderr=subprocess.PIPE,
        text=True,
    )


def a_server_that_has_lost_its_part():
    """The parameters of a run are on two servers. If one is started anew, it must not go on with first parameters."""
    servers = [Server("--workers", "1") for _ in range(2)]
    worker = comes_again(servers, "--parameters", "servers")
    await_first_step(worker)
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    address = servers[1].address
    servers[1].end()
    servers[1] = Server("--workers", "1", "--listen", address)
    worker = comes_again(servers, "--parameters", "servers", "--timeout", "1")
    said = worker.communicate(timeout=60)[1]
    check(worker.returncode == 1 and "has lost this run's parameters" in said, said)
    for server in servers:
        server.end()


def another_optimizer():
    """A worker that comes to a run with another optimizer gets an error that says so."""
    server = Server("--workers", "2", "--missing", "continue", "--min-workers", "1")
    first = comes_again([server])
    await_first_step(first)
    second = comes_again([server], "--rank", "1", "--optimizer", "adam")
    said = second.communicate(timeout=60)[1]
    check(second.returncode == 2 and "rank 1 was not started with the --net, --optimizer" in said, said)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    server.end()


def nobody_reads_the_log(ps):
    """The server goes on if the reader of its log has gone."""
    server = Server("--workers", "1")
    server.process.stderr.close()
    for _ in range(2):  # each client is a line of the log
        with ps.Client(server.address, 0) as client:
            client.init_parameter("x", [1], "float32")
            client.push_parameter("x", numpy.ones(1, "float32"))
            check(client.pull_parameter("x", "sum")[0] == 1, "it answers")
    server.process.terminate()
    check(server.process.wait(timeout=20) == 0, "it ends as asked")


def one_is_gone_and_all_stop():
    """--missing stop: after a kill the others end at once, and name it. The next run on the server is a new one."""
    server = Server("--workers", "3", "--missing", "stop", "--away", "1")
    workers = [comes_again([server], "--rank", str(r), "--timeout", "60") for r in range(3)]
    for worker in workers:
        await_first_step(worker)
    workers[2].kill()
    workers[2].communicate()
    killed = time.monotonic()
    for worker in workers[:2]:
        said = worker.communicate(timeout=60)[1]
        check(worker.returncode == 1 and "rank 2 is gone, and this server runs with --missing stop" in said, said)
    check(time.monotonic() - killed < 30, "the others wait for no deadline of 60 seconds")
    workers = [comes_again([server], "--rank", "0", "--timeout", "60")]
    time.sleep(2)  # longer than --away
    workers += [comes_again([server], "--rank", str(r), "--timeout", "60") for r in (1, 2)]
    for worker in workers:
        await_first_step(worker)
        worker.send_signal(signal.SIGINT)
    for worker in workers:
        worker.communicate(timeout=60)
    server.end()


def replays():
    """Steps of a profile over servers give the same averages as among the members."""
    layers = [{"name": f"l{i}", "elements": 5000 + i, "backward_ms": 0.5} for i in range(4)]
    link = {"alpha_ms": 0.1, "ms_per_byte": 1e-6, "members": 3}
    costs = {"compress_ms_fixed": 0, "compress_ms_per_element": 0, "decompress_ms_per_element": 0}
    codecs = [{"spec": "ternary", "bytes_per_element": 0.5, **costs}]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "profile.json"
        path.write_text(json.dumps({"forward_ms": 1, "layers": layers, "link": link, "codecs": codecs}))
        words = [str(TOOL), "bench", "exchange", "--profile", str(path), "--workers", "3", "--runs", "2", "--json"]
        rows = []
        for n in (0, 1, 2):
            servers = [Server("--workers", "3") for _ in range(n)]
            more = ["--servers", ",".join(s.address for s in servers)] if n else []
            report = json.loads(subprocess.run([*words, *more], check=True, stdout=subprocess.PIPE).stdout)
            check(report["servers"] == (n > 0), "the report says who averages")
            rows.append(report["results"][0])
            for server in servers:
                server.end()
        check(all(row["averages_identical"] for row in rows), "all members have the same averages")
        check(len({row["average_hash"] for row in rows}) == 1, f"the averages are the same: {rows}")
        check([row["predicted_seconds"] is None for row in rows] == [False, True, True], "predictions are for members")
        words += ["--plan", "exact", "--plan", "none", "--servers", "127.0.0.1:9"]
        done = subprocess.run(words, stderr=subprocess.PIPE, text=True)
        check(done.returncode == 2 and "serve one exchange" in done.stderr, done.stderr)


def wrong_use():
    for words, said in (
        (["server"], "--workers"),
        (["server", "--workers", "2", "--mode", "stale:x"], "stale:4"),
        (["train", "--parameters", "servers"], "no --servers are named"),
        (["train", "--parameters", "cloud"], "local or servers"),
        (["train", "--servers", "h:1", "--parameters", "servers", "--ema", "0.9"], "--ema needs --parameters local"),
        (
            ["train", "--servers", "h:1", "--parameters", "servers", "--out", "x", "--checkpoint-every", "1"],
            "--checkpoint-every needs",
        ),
        (
            [
                "train",
                "--servers",
                "h:1",
                "--parameters",
                "servers",
                "--net",
                "logreg",
                "--data",
                "uneven",
                "--optimizer",
                "svrg",
            ],
            "svrg needs",
        ),
        (["server", "--workers", "2", "--away", "1"], "--away is for --missing continue"),
        (["server", "--workers", "2", "--missing", "stop", "--away", "-1"], "0.001 to"),
        (["server", "--workers", "2", "--listen", "0.0.0.0:0"], "loopback"),
        (["server", "--workers", "2", "--listen", "nowhere"], "HOST:PORT"),
    ):
        if words[0] == "train" and not harness.HAS_TRAINER:
            continue
        done = subprocess.run([str(TOOL), *words], stderr=subprocess.PIPE, text=True, timeout=20)
        check(done.returncode in (1, 2) and said in done.stderr, f"{words}: {done.returncode} {done.stderr}")


def main():
    import gradwire.pserver as ps

    snippet()
    types_and_refusals(ps)
    optimizers(ps)
    values_of_no_round(ps)
    several_servers(ps)
    a_killed_worker_comes_back(ps)
    a_push_whose_answer_is_late(ps)
    more_clients_than_files_at_first(ps)
    keys(ps)
    keys_come_and_go(ps)
    nobody_reads_the_log(ps)
    wrong_use()
    if not harness.HAS_TRAINER:
        print("left out: trainings, as the tool is built without the trainer")
        return 0
    training()
    parameters_on_servers()
    stopped_without_rounds()
    convex_without_meeting()
    backup_workers()
    a_server_that_has_lost_its_part()
    another_optimizer()
    one_is_gone_and_all_stop()
    replays()
    print("the parameter server answers as it must")
    return 0


if __name__ == "__main__":
    sys.exit(main())
