#!/usr/bin/env python3
"""Tests the Python client: what it takes for a value, a fork beside it, Ctrl-C while it waits, and what it says if it
cannot be served. Nothing is stored that is not what was given. pserver_client_test.c has keys in parts and calls that
are given up, pserver_liar_test servers that answer otherwise, and tests/python what all parts of the package take for
texts and numbers.

    tests/cli/pserver_client_test.py TOOL"""
import contextlib
import copy
import faulthandler
import math
import os
import signal
import socket
import sys
import tempfile
import threading

import harness
from pserver_common import PATIENCE, Server, check, numpy, refused, serving, tool

import gradwire.pserver as ps

LONG = 3600.0  # seconds; before a call has waited so long, this test is ended


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


def interrupted(*calls):
    """Each call waits, and Ctrl-C ends it."""
    for nth, call in enumerate(calls):
        with contextlib.suppress(KeyboardInterrupt), handled_by(lambda: signal.raise_signal(signal.SIGINT)):
            call()
            check(False, f"call {nth}: no KeyboardInterrupt")


def ctrl_c():
    server = Server("--workers", "2")
    come = lambda rank, **more: ps.Client(server.address, rank, timeout=LONG, **more)
    with come(0) as a, come(1) as b:
        large = numpy.ones(1 << 19, numpy.float32)  # it is sent from the caller's memory, without a copy
        for client in (a, b):
            client.init_parameter("x", [1], "float32")
            client.init_parameter("large", large.shape, "float32")
        a.push_parameter("x", [1])
        a.push_parameter("large", large)
        interrupted(
            lambda: a.pull_parameter("x", "sum"),
            lambda: a.push_parameter("x", [2]),
            lambda: a.push_parameter("large", 2 * large),
            lambda: a.get("x"),
        )
        with come(ps.READER) as reader:  # a signal's handler uses the client
            with handled_by(lambda: reader.init_parameter("x", [1], "float32")):
                refused(lambda: reader.get("x"), "there is no request")
            with handled_by(reader.close):
                refused(lambda: reader.get("x"), "this client is closed")
        with come(ps.READER) as reader:
            closes = threading.Timer(0.3, reader.close)
            closes.start()
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
        harness.stop(server.process.pid)
        interrupted(
            lambda: a.push_parameter("x", [3]),
            lambda: a.push_parameter("x", [3]),  # asks whether that was taken
            lambda: a.init_parameter("y", [1], "float32"),
            lambda: come(ps.READER, connect_timeout=LONG),
        )
        a.close()
        server.process.send_signal(signal.SIGCONT)
    server.end()


def turn_all_away(door):
    with contextlib.suppress(OSError):
        while True:
            door.accept()[0].close()


def no_server():
    come = lambda port, **more: ps.Client(f"127.0.0.1:{port}", rank=0, **more)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # but it does not listen
        port = taken.getsockname()[1]
        refused(lambda: come(port, timeout=LONG), f"no server is at 127.0.0.1:{port}", "Connection refused")
        interrupted(lambda: come(port, timeout=LONG, connect_timeout=LONG))
    # A process takes the connection and ends it.
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=turn_all_away, args=[door], daemon=True).start()
        refused(lambda: come(door.getsockname()[1], timeout=LONG), "ended", "before it had said who it is")
        door.shutdown(socket.SHUT_RDWR)
    # A server that was there is killed.
    server = Server("--workers", "1")
    with ps.Client(server.address, rank=0, timeout=1) as client:
        client.init_parameter("x", [1], "float32")
        client.push_parameter("x", [1])
        server.kill()
        for call in (lambda: client.push_parameter("x", [2]), lambda: client.pull_parameter("x", "sum")):
            refused(call, "does not answer", "has waited 1000 ms")


def keys():
    """The client says at once what does not fit, however long it may wait for a server."""
    with tempfile.TemporaryDirectory() as folder:
        job, stranger = os.path.join(folder, "job"), os.path.join(folder, "stranger")
        for path in (job, stranger):
            check(tool("keys", "new", path).returncode == 0, "keys are made")
        keyed, plain = Server("--workers", "1", "--keys", job), Server("--workers", "1")
        for server, key, *words in (
            (keyed, None, "this client has no identity", keyed.address, "has one"),
            (plain, job, "this client has an identity", plain.address, "has none"),
            (keyed, stranger, keyed.address, "is not the server that", "stranger names"),
        ):
            come = lambda: ps.Client(server.address, rank=0, timeout=LONG, connect_timeout=LONG, keys=key)
            refused(come, *words)
        log = keyed.end()
        check("this server has keys, and one that has none, or takes this process for another" in log, log)
        log = plain.end()
        check("this server has no keys, and one that has some" in log, log)


def arguments():
    with serving("--workers", "1") as (address, _), ps.Client(address, rank=0, timeout=20) as client:
        init, push, put, get = client.init_parameter, client.push_parameter, client.put, client.get
        come = lambda rank=0, servers=address, **more: ps.Client(servers, rank=rank, **more)
        for shape, *words in (
            ([3, 2**63], "dimension 1 of the shape", str(2**63)),
            (numpy.array([2.0]), "must be a whole number"),
            ("12", "'12'"),
            ({3, 2}, "shape is", "must be an integer"),
            ([1] * 9, "9 dimensions", "8 are possible"),
            ([0],),  # the server says which shapes it takes
        ):
            refused(lambda: init("x", shape, "uint8"), *words)
        init("state", [2, 2], "bfloat16")
        put("state", [[1, 2], [3, 4]], version=7)
        for call, *words in (
            (lambda: init("of\0uint8", [1], "uint8"), "code 0"),
            (lambda: init("x", [1], "uint8\0"), "type", "code 0"),
            (lambda: init("x", [1], numpy.float32), "type is the class float32", "right are float32, float16"),
            (lambda: init("x", [1], "float32", optimizer="sgd\0:lr=9"), "optimizer", "code 0"),
            (lambda: init("x", [1], "float32", optimizer="sgd", value=[1e39]), "too large"),
            (lambda: client.pull_parameter("x", "sum\0"), "reduce_method", "code 0"),
            (lambda: client.pull_parameter("x", "sum", scale_key=7), "scale_key is 7"),
            (lambda: push("x", [1], rate="1"), "rate is '1'"),
            (lambda: push("x", [1], rate=math.nan), "rate is nan"),
            (lambda: put("state\0", [[0, 0], [0, 0]], version=9), "code 0"),
            (lambda: put("state", [[0, 0], [0, 0]], version=1.0), "version is 1.0"),
            (lambda: get("state\0"), "code 0"),
            (lambda: get("state", least=2**64), "least is 18446744073709551616"),
            (lambda: come(2**32), "rank is 4294967296"),
            (lambda: come(servers=7), "servers is 7"),
            (lambda: come(keys=7), "keys is 7, and must be the name of a folder"),
            (lambda: come(timeout=bytearray(b"5")), "timeout is bytearray(b'5')"),
            (lambda: come(timeout=10**400), "timeout is 1000"),
            (lambda: come(connect_timeout=0), "connect_timeout is 0"),
        ):
            refused(call, *words)
        with come(numpy.int64(ps.READER), timeout=2**32 / 1000) as patient:  # milliseconds that need 33 bits
            patient.init_parameter("state", [2, 2], "bfloat16")
            value, version = patient.get("state", least=7)
            check(version == 7 and (value == [[1, 2], [3, 4]]).all(), "what was put, and by none of these")
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
    step = 2.0**-7  # bfloat16 is rounded to the nearest, and to even
    for key, wanted, *values in (
        ("w", ROWS, ROWS.T.copy().T, ROWS.astype("f8"), ROWS.astype("i8"), ROWS.tolist()),
        ("one", [7], 7, 7.0, numpy.array(7), [7], [[7]]),
        ("codes", [1, 2, 3], b"\1\2\3"),
        ("large", [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ("short", [256, -1], [256, -1 - step / 2]),
        ("short", [1 + 2 * step, 1 + step], [1 + 3 * step / 2, 1 + 0.51 * step]),
        ("short", [math.inf, -math.inf], [math.inf, -math.inf]),
    ):
        for value in values:
            check((stored(client, key, value) == wanted).all(), f"{key} is stored as it was given: {value!r}")
    check(numpy.isnan(stored(client, "short", [math.nan, 1])[0]), "what is no number stays so")


def what_is_refused(client):
    for key, value, *words in (
        ("w", ROWS.T, "[3, 2]", "must have [2, 3]"),
        ("w", numpy.ma.masked_array(ROWS, ROWS > 3), "MaskedArray", "more than numbers"),
        ("one", numpy.int64([2**24 + 1]), "int64 values would be changed"),
        ("one", numpy.int64([2**63 - 1]), "int64 values would be changed"),
        ("codes", numpy.int8([-1, 0, 0]), "int8 values would be changed"),
        ("codes", memoryview(numpy.float32([1.5, 2, 3])), "float32 values would be changed"),
        ("short", [257, 0], "int64 values would be changed"),
        ("large", [2.0**63, 0], "float64 values would be changed"),
        ("large", [math.nan, 0], "float64 values would be changed"),
        ("large", numpy.uint64([2**63, 0]), "uint64 values would be changed"),
        ("frames", numpy.float32([1]), "holds float32, and must hold uint8"),
    ):
        refused(lambda: client.push_parameter(key, value), f'"{key}"', *words)
        if key != "frames":
            refused(lambda: client.put(key, value, version=1), f'"{key}"', *words)
    begin = lambda: client.init_parameter("trained", [2, 3], "float32", optimizer="sgd", value=ROWS.T)
    refused(begin, 'the first value of "trained"', "[3, 2]")
    refused(lambda: copy.copy(client), "a Client of Gradwire cannot be copied or pickled")


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


def forks(client, address):
    """pserver_fork_test has the library's part. Here another thread makes a call at this moment, and holds the lock."""
    client.push_parameter("one", 8)
    held, goes_on = threading.Event(), threading.Event()

    def hold():
        with client._lock:
            held.set()
            goes_on.wait(PATIENCE)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(PATIENCE)
    process = os.fork()
    if process == 0:
        signal.alarm(PATIENCE)  # a hang ends by a signal
        with contextlib.suppress(BaseException):
            refused(lambda: client.init_parameter("y", [1], "float32"), "process that forked this one")
            refused(lambda: client.push_parameter("one", 1), "process that forked this one")
            refused(lambda: client.get("one"), "process that forked this one")
            client.close()
            client.__del__()
            with ps.Client(address, rank=ps.READER, timeout=PATIENCE) as own:
                check(own.pull_parameter("one", "latest") == [8], "a client of its own")
            os._exit(0)
        os._exit(1)
    status = os.waitpid(process, 0)[1]
    goes_on.set()
    holder.join(PATIENCE)
    check(status == 0, f"the forked process ended with {status}")
    check(stored(client, "one", 9) == [9], "the client goes on")


def main():
    faulthandler.dump_traceback_later(10 * PATIENCE, exit=True)
    for test in (arguments, values, keys, no_server, ctrl_c):
        test()
    print("the client stores what it is given, or refuses it, and says at once what is wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
