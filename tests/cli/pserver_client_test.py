#!/usr/bin/env python3
"""Tests the Python client: what it takes for a value, a fork beside it, and when it cannot be served: Ctrl-C while it
waits, wrong keys, no server, wrong arguments. Nothing is stored that is not what was given. pserver_client_test.c has
keys in parts, and other servers than those of the other clients.

    tests/cli/pserver_client_test.py TOOL"""
import contextlib
import copy
import math
import os
import pathlib
import pickle
import signal
import socket
import sys
import tempfile
import threading
import time

import harness
from pserver_common import PATIENCE, Server, check, numpy, refused, serving, tool

import gradwire.pserver as ps

try:
    import torch
except ImportError:
    torch = None

LONG = 300.0  # seconds; if a call waits so long, this test fails


@contextlib.contextmanager
def at_once(what):
    start = time.monotonic()
    yield
    check(time.monotonic() - start < PATIENCE, f"{what}: at once, not after {time.monotonic() - start:.1f} s")


@contextlib.contextmanager
def interrupted(what):
    """Ends the block by Ctrl-C, which comes while the block waits."""
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with at_once(what):
            yield
    except KeyboardInterrupt:
        return
    finally:
        timer.join()
    check(False, f"{what}: no KeyboardInterrupt")


@contextlib.contextmanager
def handled_by(call):
    """A signal that comes while the block waits makes this call. On a busy machine the first may come too early."""
    before = signal.signal(signal.SIGALRM, lambda *_: call())
    signal.setitimer(signal.ITIMER_REAL, 0.3, 2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ctrl_c():
    """pserver_client_test.c and pserver_lend_test have more calls that are given up."""
    server = Server("--workers", "2")
    with ps.Client(server.address, rank=0, timeout=LONG) as a, ps.Client(server.address, rank=1, timeout=LONG) as b:
        large = numpy.ones(1 << 19, numpy.float32)  # it is sent from the caller's memory, without a copy
        for client in (a, b):
            client.init_parameter("x", [1], "float32")
            client.init_parameter("large", large.shape, "float32")
        a.init_parameter("w", [1], "float32", optimizer="sgd")
        a.push_parameter("x", [1])
        a.push_parameter("large", large)
        for what, call in (
            ("a pull", lambda: a.pull_parameter("x", "sum")),
            ("a push", lambda: a.push_parameter("x", [2])),
            ("a large push", lambda: a.push_parameter("large", 2 * large)),
            ("parameters that nobody puts", lambda: a.pull_parameter("w", "parameters")),
            ("a value that nobody puts", lambda: a.get("x")),
        ):
            with interrupted(what):
                call()
        # A signal's handler uses the client.
        with ps.Client(server.address, ps.READER, timeout=LONG) as reader:
            for call, words in (
                (lambda: reader.init_parameter("x", [1], "float32"), "there is no request"),
                (reader.close, "this client is closed"),
            ):
                with handled_by(call), at_once("a signal's handler"):
                    refused(lambda: reader.get("x"), words)
        with ps.Client(server.address, ps.READER, timeout=LONG) as reader:
            closes = threading.Timer(0.3, reader.close)
            closes.start()
            with at_once("another thread closes"):
                refused(lambda: reader.get("x"), "this client is closed")
            closes.join(PATIENCE)
        # The client goes on where it was. The server has forgotten all requests that were given up, also pushes that
        # waited there. When the server answers this one, it has forgotten them.
        a.init_parameter("x", [1], "float32")
        for key, ones in (("x", [1]), ("large", large)):
            b.push_parameter(key, numpy.multiply(ones, 10))
            check((a.pull_parameter(key, "sum") == 11).all(), "the pull after a push that was interrupted")
            a.push_parameter(key, numpy.multiply(ones, 3))
            b.push_parameter(key, numpy.multiply(ones, 30))
            check((a.pull_parameter(key, "sum") == 33).all(), "the push after one that was interrupted")
        # The server does not answer at all.
        harness.stop(server.process.pid)
        for what, call in (
            ("a push", lambda: a.push_parameter("x", [3])),
            ("an initialisation", lambda: a.init_parameter("y", [1], "float32")),
            ("the question whether a push was taken", lambda: a.push_parameter("x", [3])),
            ("a client", lambda: ps.Client(server.address, ps.READER, timeout=LONG, connect_timeout=LONG)),
        ):
            with interrupted(f"{what}, at a stopped server"):
                call()
        with at_once("closing"):
            a.close()
        server.process.send_signal(signal.SIGCONT)
    server.end()


def server_is_gone():
    """Nobody is there to say for whom a call waits. So the client does not give it time for that."""
    server = Server("--workers", "1")
    with ps.Client(server.address, rank=0, timeout=1) as client:
        client.init_parameter("x", [1], "float32")
        client.push_parameter("x", [1])
        server.process.kill()
        server.process.wait(60)
        for call in (lambda: client.push_parameter("x", [2]), lambda: client.pull_parameter("x", "sum")):
            seconds = []
            while len(seconds) < 5 and min(seconds, default=3) >= 3:  # one good run is enough: the machine may be busy
                start = time.monotonic()
                refused(call, "does not answer", "has waited 1000 ms")
                seconds.append(time.monotonic() - start)
            check(min(seconds) < 3, f"a call to a server that is gone ends after 1 s, not after {seconds} s")


def turn_all_away(door):
    with contextlib.suppress(OSError):
        while True:
            door.accept()[0].close()


def no_server():
    """pserver_liar_test has servers that answer otherwise."""
    come = lambda port, **more: ps.Client(f"127.0.0.1:{port}", rank=0, timeout=LONG, **more)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))  # but it does not listen
        port = taken.getsockname()[1]
        with at_once("a closed port"):
            refused(lambda: come(port), f"no server is at 127.0.0.1:{port}", "Connection refused")
        with interrupted("waiting for a server"):
            come(port, connect_timeout=LONG)
    # A client that is started before its server meets it.
    came = []
    early = threading.Thread(target=lambda: came.append(come(port, connect_timeout=LONG)))
    early.start()
    with serving("--workers", "1", listen=f"127.0.0.1:{port}"):
        early.join(PATIENCE)
        check(came, "a client that was started before its server meets it")
        came[0].close()
    # A process takes the connection and ends it.
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=turn_all_away, args=[door], daemon=True).start()
        with at_once("a port that nobody serves"):
            refused(lambda: come(door.getsockname()[1]), "ended", "before it had said who it is")
        door.shutdown(socket.SHUT_RDWR)


def keys():
    with tempfile.TemporaryDirectory() as folder:
        job, stranger = pathlib.Path(folder) / "job", pathlib.Path(folder) / "stranger"
        for path in (job, stranger):
            check(tool("keys", "new", path).returncode == 0, "keys are made")
        keyed, plain = Server("--workers", "1", "--keys", job), Server("--workers", "1")
        for server, key, *words in (
            (keyed, None, "this client has no identity", keyed.address, "takes only clients that have"),
            (plain, job, "this client has an identity", plain.address, "has none"),
            (keyed, stranger, keyed.address, "is not the server that", "stranger names"),
        ):
            more = {} if server is keyed and key else {"connect_timeout": LONG}
            with at_once(f"{words}"):
                refused(lambda: ps.Client(server.address, rank=0, timeout=LONG, keys=key, **more), *words)
        log = keyed.end()
        check("this server has keys, and one that has none, or takes this process for another" in log, log)
        log = plain.end()
        check("this server has no keys, and one that has some" in log, log)


def arguments():
    with serving("--workers", "1") as (address, _), ps.Client(address, rank=0, timeout=20) as client:
        init, push = client.init_parameter, client.push_parameter
        come = lambda rank=0, servers=address, **more: ps.Client(servers, rank=rank, **more)
        for shape, *words in (
            ([2**64 + 5], "dimension 0 of the shape", str(2**64 + 5)),
            ([3, 2**63], "dimension 1", str(2**63)),
            ([2.7], "2.7", "must be a whole number"),
            (numpy.array([2.0]), "must be a whole number"),
            ([True], "True", "must be a whole number"),
            ([-1], "-1"),
            ("12", "'12'"),
            (None, "None"),
            ({3, 2}, "shape is", "must be an integer"),
            (iter([2, 3]), "shape is", "must be an integer"),
            ([1] * 9, "9 dimensions", "8 are possible"),
            ([2**62, 2],),  # the server says which shapes it takes
            ([0],),
        ):
            refused(lambda: init("x", shape, "uint8"), *words)
        init("state", [2, 2], "bfloat16")
        client.put("state", [[1, 2], [3, 4]], version=7)
        for call, *words in (
            (lambda: init("\udc80", [1], "uint8"), "a character that UTF-8 has not"),
            (lambda: init(b"x", [1], "uint8"), "key is b'x'", "must be a str"),
            (lambda: init("of\0uint8", [1], "uint8"), "code 0"),
            (lambda: init("x", [1], "uint8\0"), "type", "code 0"),
            (lambda: init("x", [1], None), "type is None"),
            (lambda: init("x", [1], numpy.float32), "type is the class float32", "right are float32, float16"),
            (lambda: init("x", [1], "float32", optimizer="sgd\0:lr=9"), "optimizer", "code 0"),
            (lambda: init("x", [1], "float32", optimizer="sgd", value=[1e39]), "too large"),
            (lambda: client.pull_parameter("x", "sum\0"), "reduce_method", "code 0"),
            (lambda: client.pull_parameter("x", "sum", scale_key=7), "scale_key is 7"),
            (lambda: push("x", [1], rate="1"), "rate is '1'"),
            (lambda: push("x", [1], rate=math.nan), "rate is nan"),
            (lambda: push("x", [object()]), "of type object"),
            (lambda: client.put("state\0", [[0, 0], [0, 0]], version=9), "code 0"),
            (lambda: client.put("state", [[0, 0], [0, 0]], version=1.0), "version is 1.0"),
            (lambda: client.put("state", [[0, 0], [0, 0]], version=-1), "version is -1"),
            (lambda: client.get("state\0"), "code 0"),
            (lambda: client.get("state", least=0.5), "least is 0.5"),
            (lambda: client.get("state", least=2**64), "least is 18446744073709551616"),
            (lambda: come(0.0), "rank is 0.0"),
            (lambda: come(-1), "rank is -1"),
            (lambda: come(2**32), "rank is 4294967296"),
            (lambda: come(servers=7), "servers is 7"),
            (lambda: come(servers=address + "\0"), "servers", "code 0"),
            (lambda: come(keys="keys\0"), "keys", "code 0"),
            (lambda: come(keys=b"no/keys\xff"), "no/keys"),
            (lambda: come(keys=7), "keys is 7, and must be the name of a folder"),
            (lambda: come(timeout=numpy.array([5, 6])), "timeout is array([5, 6])"),
            (lambda: come(timeout=bytearray(b"5")), "timeout is bytearray(b'5')"),
            (lambda: come(timeout=math.nan), "timeout is nan"),
            (lambda: come(timeout=10**400), "timeout is 1000"),
            (lambda: come(timeout=-1), "timeout is -1"),
            (lambda: come(connect_timeout=0), "connect_timeout is 0"),
        ):
            refused(call, *words)
        with come(numpy.int64(ps.READER), timeout=2**32 / 1000) as patient:  # milliseconds that need 33 bits
            patient.init_parameter("state", [2, 2], "bfloat16")
            value, version = patient.get("state", least=7)
            check(version == 7 and (value == [[1, 2], [3, 4]]).all(), "what was put, and by none of these")
        with come(ps.READER, timeout=1) as hasty:
            hasty.init_parameter("state", [2, 2], "bfloat16")
            refused(lambda: hasty.get("state", least=8), "waited")
        for type, largest in (("float16", 65504), ("bfloat16", 3.3895e38), ("float32", 3.4e38)):
            init(type, [1], type)
            push(type, [largest])
            refused(lambda: push(type, [1.1 * largest]), type, "too large")
            push(type, [math.inf])
            check(client.pull_parameter(type, "max") == math.inf, "an infinity that was one before")
        for shape in ([numpy.int64(2), 3], (2, numpy.uint8(3)), numpy.array([2, 3])):
            init("a shape", shape, "int32")
        push("a shape", [[1, 2, 3], [4, 5, 6]])
        value, n = client.pull_parameter("a shape", "sum", counted=True)
        check(value.shape == (2, 3) and n == 1, "integers of numpy are integers; one push made this value")


# ---- values -------------------------------------------------------------------------------------------------------

ROWS = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
KEYS = [("w", [2, 3], "float32"), ("one", [1], "float32"), ("codes", [3], "uint8"), ("short", [2], "bfloat16")]
KEYS += [("large", [2], "int64"), ("frames", [6], "frame"), *((key, [1], "float32") for key in "abc")]


def stored(client, key, value):
    client.push_parameter(key, value)
    return client.pull_parameter(key, "latest")


def what_is_stored(client):
    same = [ROWS.T.copy().T, ROWS.astype(">f4"), ROWS.astype("f8"), ROWS.astype("i8"), ROWS.tolist(), memoryview(ROWS)]
    if torch:
        rows = torch.from_numpy(ROWS)
        same += [rows, rows.t().contiguous().t(), torch.nn.Parameter(rows), rows.bfloat16(), [rows[0], rows[1]]]
    for key, wanted, values in (
        ("w", ROWS, same),
        ("one", [7], (7, 7.0, numpy.float32(7), numpy.array(7), [7], [[7]])),
        ("codes", [1, 2, 3], [b"\1\2\3"]),
        ("large", [2**63 - 1, -(2**63)], [[2**63 - 1, -(2**63)]]),
    ):
        for value in values:
            check((stored(client, key, value) == wanted).all(), f"{key} is stored as it was given: {value!r}")
    # bfloat16 is rounded to the nearest, and to even.
    step = 2.0**-7
    for given, nearest in (
        (256, 256),
        (1 + step / 2, 1),
        (1 + 3 * step / 2, 1 + 2 * step),
        (1 + 0.51 * step, 1 + step),
    ):
        check(stored(client, "short", [given, -given]).tolist() == [nearest, -nearest], f"{given} in bfloat16")
    found = stored(client, "short", [float("nan"), float("inf")])
    check(numpy.isnan(found[0]) and found[1] == float("inf"), f"what is no number stays so: {found}")


def what_is_refused(client):
    """tests/python/arrays_test.py has more that is no array of numbers."""
    masked = numpy.ma.masked_array(ROWS, ROWS > 3)
    wrong = [
        ("w", ROWS.T, "[3, 2]", "must have [2, 3]"),
        ("w", ROWS.ravel(), "[6]", "must have [2, 3]"),
        ("w", 1.0, "shape []"),
        ("w", masked, "MaskedArray", "more than numbers"),
        ("w", [[1, 2, 3], [4, 5]], "differ in shape"),
        ("one", numpy.int64([2**24 + 1]), "int64 values would be changed"),
        ("one", numpy.int64([2**63 - 1]), "int64 values would be changed"),
        ("codes", "abc", "of type str"),
        ("codes", numpy.int8([-1, 0, 0]), "int8 values would be changed"),
        ("codes", [256, 0, 0], "would be changed"),
        ("codes", memoryview(numpy.float32([1.5, 2, 3])), "float32 values would be changed"),
        ("short", [257, 0], "int64 values would be changed"),
        ("large", [2.0**63, 0], "float64 values would be changed"),
        ("large", [float("nan"), 0], "float64 values would be changed"),
        ("large", numpy.uint64([2**63, 0]), "uint64 values would be changed"),
        ("frames", numpy.float32([1]), "holds float32, and must hold uint8"),
        ("frames", [1, 2], "must hold uint8"),
    ]
    if torch:
        rows = torch.from_numpy(ROWS)
        wrong += [("w", rows.t(), "[3, 2]"), ("frames", rows, "must hold uint8")]
    for key, value, *words in wrong:
        refused(lambda: client.push_parameter(key, value), f'"{key}"', *words)
        if key != "frames":
            refused(lambda: client.put(key, value, version=1), f'"{key}"', *words)
    for value, words in ((ROWS.T, "[3, 2]"), (masked, "MaskedArray")):
        begin = lambda: client.init_parameter("trained", [2, 3], "float32", optimizer="sgd", value=value)
        refused(begin, 'the first value of "trained"', words)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        refused(lambda: copied(client), "a Client of Gradwire cannot be copied or pickled")
    for call in (lambda: client.push_parameter("w", ROWS.T), lambda: client.init_parameter("w", [3, 2], "float32")):
        try:
            call()
        except ValueError as error:
            check(str(error), "a sentence")
        else:
            check(False, "no error")


def values():
    with serving("--workers", "1") as (address, _), ps.Client(address, rank=0, timeout=PATIENCE) as client:
        for key, shape, type in KEYS:
            client.init_parameter(key, shape, type)
        what_is_stored(client)
        what_is_refused(client)
        forks(client, address)
        # Calls of several threads wait for each other. A client that was closed says so.
        done = []
        work = lambda key: done.extend(n for n in range(20) if stored(client, key, n) == [n])
        threads = [threading.Thread(target=work, args=(key,)) for key in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        check(sorted(done) == sorted([*range(20)] * 3), f"three threads share a client: {done}")
        for _ in range(2):
            client.close()
        refused(lambda: client.push_parameter("a", 1), "this client is closed")
        refused(lambda: client.pull_parameter("a", "sum"), "this client is closed")


def in_a_fork(what, run=None):
    """Runs run() in a forked process, or ends it as any program of Python ends: objects are deleted, and exit handlers
    run. A hang ends by a signal, after a time that only a hang takes."""
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        signal.alarm(60)
        if not run:
            sys.exit(0)
        status = 1
        try:
            run()
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(process, 0)[1]
    check(status == 0, f"{what}: the forked process ended with {status}")


def forks(client, address):
    """pserver_fork_test has the library's part."""

    def refuses_all():
        for call in (
            lambda: client.init_parameter("y", [1], "float32"),
            lambda: client.push_parameter("one", 1),
            lambda: client.pull_parameter("one", "sum"),
            lambda: client.put("one", 1, version=1),
            lambda: client.get("one"),
        ):
            refused(call, "process that forked this one")
        client.close()
        with client:
            pass
        client.__del__()
        with ps.Client(address, rank=ps.READER, timeout=PATIENCE) as own:
            check(own.pull_parameter("one", "latest") == [8], "a client of its own")

    client.push_parameter("one", 8)
    in_a_fork("calls", refuses_all)
    with client._lock:  # as if another thread made a call at this moment
        in_a_fork("calls, while the lock is taken", refuses_all)
    in_a_fork("nothing")
    check(stored(client, "one", 9) == [9], "the client goes on")


def main():
    for test in (arguments, values, keys, no_server, server_is_gone, ctrl_c):
        test()
    print("the client stores what it is given, or refuses it, and says at once what is wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
