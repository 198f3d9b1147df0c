#!/usr/bin/env python3
"""Tests the Python client when it cannot be served: Ctrl-C while it waits, wrong keys, no server, wrong arguments,
other servers than those of the other clients.

    tests/cli/pserver_client_test.py TOOL"""
import contextlib
import math
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from pserver_common import TOOL, Server, check, numpy, refused

LONG = 300.0  # seconds; if a call waits so long, this test fails
SOON = 60.0  # seconds for an answer that comes at once, on a busy machine


@contextlib.contextmanager
def at_once(what):
    start = time.monotonic()
    yield
    check(time.monotonic() - start < SOON, f"{what}: at once, not after {time.monotonic() - start:.1f} s")


@contextlib.contextmanager
def interrupted(what):
    """Ends the block by Ctrl-C, which comes while the block waits."""
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with at_once(what):
            yield
    except KeyboardInterrupt:
        return
    finally:
        timer.join()
    check(False, f"{what}: no KeyboardInterrupt")


def ctrl_c(ps):
    server = Server("--workers", "2")
    with ps.Client(server.address, rank=0, timeout=LONG) as a, ps.Client(server.address, rank=1, timeout=LONG) as b:
        large = numpy.ones(1 << 19, numpy.float32)
        for client in (a, b):
            client.init_parameter("x", [1], "float32")
            client.init_parameter("large", large.shape, "float32")
        a.init_parameter("w", [1], "float32", optimizer="sgd")
        a.push_parameter("x", [1])
        with interrupted("a pull"):
            a.pull_parameter("x", "sum")
        with interrupted("a push"):
            a.push_parameter("x", [2])
        with interrupted("parameters that nobody puts"):
            a.pull_parameter("w", "parameters")
        with interrupted("a value that nobody puts"):
            a.get("x")
        # The client goes on where it was. The server has forgotten all requests that were given up, also a push that
        # waited there. When the server answers this one, it has forgotten them.
        a.init_parameter("x", [1], "float32")
        b.push_parameter("x", [10])
        check(a.pull_parameter("x", "sum") == 11, "the pull after a push that was interrupted")
        a.push_parameter("x", [3])
        b.push_parameter("x", [30])
        check(a.pull_parameter("x", "sum") == 33, "the push after one that was interrupted")
        # A large push is sent from the caller's memory, without a copy.
        a.push_parameter("large", large)
        for n in (2, 4):
            with interrupted("a large push"):
                a.push_parameter("large", n * large)
        a.init_parameter("large", large.shape, "float32")
        b.push_parameter("large", large)
        check((a.pull_parameter("large", "sum") == 2).all(), "the round before")
        a.push_parameter("large", 8 * large)
        b.push_parameter("large", large)
        check((a.pull_parameter("large", "sum") == 9).all(), "the large push after some that were interrupted")
        # The server does not answer at all.
        server.process.send_signal(signal.SIGSTOP)
        with interrupted("a push to a stopped server"):
            a.push_parameter("x", [3])
        with interrupted("an initialisation at a stopped server"):
            a.init_parameter("y", [1], "float32")
        with interrupted("the question whether a push was taken, at a stopped server"):
            a.push_parameter("x", [3])
        with interrupted("a client of a stopped server"):
            ps.Client(server.address, rank=ps.READER, timeout=LONG, connect_timeout=LONG)
        with at_once("closing"):
            a.close()
        server.process.send_signal(signal.SIGCONT)
    server.end()


def closed_port(ps):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # but it does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with at_once("a closed port"):
            refused(
                lambda: ps.Client(address, rank=0, timeout=LONG), f"no server is at {address}", "Connection refused"
            )
        with interrupted("waiting for a server"):
            ps.Client(address, rank=0, timeout=LONG, connect_timeout=LONG)
    # A process takes the connection and ends it.
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"127.0.0.1:{door.getsockname()[1]}"
        threading.Thread(target=turn_all_away, args=[door], daemon=True).start()
        with at_once("a port that nobody serves"):
            refused(lambda: ps.Client(address, rank=0, timeout=LONG), "ended", "before it had said who it is")
        door.shutdown(socket.SHUT_RDWR)


def turn_all_away(door):
    with contextlib.suppress(OSError):
        while True:
            door.accept()[0].close()


def a_client_before_its_server(ps):
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    came = []
    early = threading.Thread(
        target=lambda: came.append(ps.Client(f"127.0.0.1:{port}", rank=0, timeout=LONG, connect_timeout=LONG))
    )
    early.start()
    time.sleep(1)
    server = Server("--workers", "1", listen=f"127.0.0.1:{port}")
    early.join(SOON)
    check(came, "a client that was started before its server meets it")
    came[0].close()
    server.end()


def keys(ps):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("job", "stranger"):
            subprocess.run([str(TOOL), "keys", "new", str(folder / name)], check=True, stderr=subprocess.DEVNULL)
        keyed, plain = Server("--workers", "1", "--keys", str(folder / "job")), Server("--workers", "1")
        with at_once("no key where there must be one"):
            refused(
                lambda: ps.Client(keyed.address, rank=0, timeout=LONG, connect_timeout=LONG),
                "this client has no identity",
                keyed.address,
                "takes only clients that have",
            )
        with at_once("a key where there is none"):
            refused(
                lambda: ps.Client(plain.address, rank=0, timeout=LONG, connect_timeout=LONG, keys=folder / "job"),
                "this client has an identity",
                plain.address,
                "has none",
            )
        with at_once("a key of another job, which takes the server for its own"):
            refused(
                lambda: ps.Client(keyed.address, rank=0, timeout=LONG, keys=str(folder / "stranger")),
                keyed.address,
                "is not the server that",
                "stranger names",
            )
        (folder / "stranger/rendezvous.crt").write_text((folder / "job/gradwire.crt").read_text())
        with at_once("a key that is not allowed"):
            refused(
                lambda: ps.Client(keyed.address, rank=0, timeout=LONG, keys=str(folder / "stranger")),
                "refused this client",
                "allowed/",
            )
        log = keyed.end()
        check("this server has keys, and one that has none, or takes this process for another" in log, log)
        check('refused address=127.0.0.1 reason="its certificate' in log, log)
        log = plain.end()
        check("this server has no keys, and one that has some" in log, log)


def arguments(ps):
    server = Server("--workers", "1")
    with ps.Client(server.address, rank=0, timeout=20) as client:
        for shape, words in (
            ([2**64 + 5], ["dimension 0 of the shape", str(2**64 + 5)]),
            ([3, 2**63], ["dimension 1", str(2**63)]),
            (2**64 + 5, ["dimension 0", str(2**64 + 5)]),
            ([2.7], ["2.7", "float", "must be an integer"]),
            ([2.0], ["2.0", "must be an integer"]),
            (numpy.array([2.0]), ["must be an integer"]),
            (2.7, ["2.7", "must be an integer"]),
            ([True], ["True", "bool"]),
            ([numpy.bool_(True)], ["must be an integer"]),
            ([-1], ["-1"]),
            (["2"], ["'2'", "str"]),
            ("12", ["'12'"]),
            (None, ["None"]),
            ([1] * 9, ["9 dimensions", "8 are possible"]),
            ([2**62, 2], []),  # the server says which shapes it takes
            ([0], []),
        ):
            refused(lambda: client.init_parameter("x", shape, "uint8"), *words)
        for call, words in (
            (lambda: client.init_parameter(b"x", [1], "uint8"), ["key is b'x'", "must be a str"]),
            (lambda: client.init_parameter("x", [1], "uint8\0"), ["type", "NUL"]),
            (lambda: client.init_parameter("x", [1], None), ["type is None"]),
            (lambda: client.init_parameter("x", [1], "float32", optimizer="sgd\0:lr=9"), ["optimizer", "NUL"]),
            (lambda: client.init_parameter("x", [1], "float32", optimizer="sgd", value=[1e39]), ["too large"]),
            (lambda: client.pull_parameter("x", "sum\0"), ["reduce_method", "NUL"]),
            (lambda: client.pull_parameter("x", "sum", scale_key=7), ["scale_key is 7"]),
            (lambda: client.push_parameter("x", [1], rate="1"), ["rate is '1'"]),
            (lambda: client.push_parameter("x", [1], rate=math.nan), ["rate is nan"]),
            (lambda: client.push_parameter("x", [1], rate=True), ["rate is True"]),
            (lambda: client.push_parameter("x", [object()]), ["of type object"]),
            (lambda: client.put("x", [1], version=1.0), ["version is 1.0"]),
            (lambda: client.put("x", [1], version=True), ["version is True"]),
            (lambda: client.get("x", least=0.5), ["least is 0.5"]),
            (lambda: ps.Client(server.address, rank=0.0), ["rank is 0.0"]),
            (lambda: ps.Client(server.address, rank=False), ["rank is False"]),
            (lambda: ps.Client(server.address, rank="0"), ["rank is '0'"]),
            (lambda: ps.Client(7, rank=0), ["servers is 7"]),
            (lambda: ps.Client(server.address + "\0", rank=0), ["servers", "NUL"]),
            (lambda: ps.Client(server.address, rank=0, keys="keys\0"), ["keys", "NUL"]),
            (lambda: ps.Client(server.address, rank=0, timeout=math.nan), ["timeout is nan"]),
            (lambda: ps.Client(server.address, rank=0, timeout=math.inf), ["timeout is inf"]),
            (lambda: ps.Client(server.address, rank=0, timeout=10**400), ["timeout is 1000"]),
            (lambda: ps.Client(server.address, rank=0, timeout=-1), ["timeout is -1"]),
            (lambda: ps.Client(server.address, rank=0, timeout="60"), ["timeout is '60'"]),
            (lambda: ps.Client(server.address, rank=0, connect_timeout=0), ["connect_timeout is 0"]),
        ):
            refused(call, *words)
        for type, largest in (("float16", 65504), ("bfloat16", 3.3895e38), ("float32", 3.4e38)):
            client.init_parameter(type, [1], type)
            client.push_parameter(type, [largest])
            refused(lambda: client.push_parameter(type, [1.1 * largest]), type, "too large")
            client.push_parameter(type, [math.inf])
            check(client.pull_parameter(type, "max") == math.inf, "an infinity that was one before")
        for shape in ([numpy.int64(2), 3], (2, numpy.uint8(3)), numpy.array([2, 3])):
            client.init_parameter("a shape", shape, "int32")
        client.push_parameter("a shape", [[1, 2, 3], [4, 5, 6]])
        check(client.pull_parameter("a shape", "sum").shape == (2, 3), "integers of numpy are integers")
    server.end()


def parts(ps):
    """The servers never give a part of a key as the whole. This holds for a client that does not know the key, and for
    one that lists other servers. A key of more than 1 MiB lies on all servers."""
    servers = [Server("--workers", "1") for _ in range(3)]
    places = [server.address for server in servers]
    value = numpy.arange(300001, dtype=numpy.float32)
    with ps.Client(",".join(places), rank=0, timeout=LONG) as owner, ps.Client(
        ",".join(places), rank=ps.READER, timeout=LONG
    ) as reader:
        owner.init_parameter("split", value.shape, "float32")
        owner.push_parameter("split", value)
        owner.put("split", value, version=1)
        with at_once("a key that this client has not initialised"):
            refused(lambda: reader.pull_parameter("split", "sum"), '"split"', "lies in 3 parts", "init_parameter")
            refused(lambda: reader.get("split"), '"split"', "lies in 3 parts", "init_parameter")
        for other in (places[:2], places[1:], places[::-1], [places[1], places[0], places[2]]):
            with at_once("another list of servers"):
                refused(
                    lambda: ps.Client(",".join(other), rank=ps.READER, timeout=LONG),
                    "must list the same servers in the same order",
                )
        reader.init_parameter("split", value.shape, "float32")
        check((reader.pull_parameter("split", "sum") == value).all(), "the whole, once its parts are known")
        check((reader.get("split")[0] == value).all(), "the whole value that was put")
    for server in servers:
        server.end()


def snippet(ps):
    """Makes the calls of PaddlePaddle/Paddle#6599, with its shapes and values: a matrix, a scalar, and ternary
    codes."""
    from gradwire import codes

    server = Server("--workers", "2")
    with ps.Client(server.address, rank=0, timeout=LONG) as a, ps.Client(server.address, rank=1, timeout=LONG) as b:
        matrix, other = [[1, 5], [8, 2]], [[3, -5], [0, 2]]
        for client in (a, b):
            client.init_parameter(key="param", shape=[2, 2], type="float32")
            client.init_parameter(key="max_abs_grad", shape=[1], type="float32")
            client.init_parameter(key="ternary", shape=[2], type="uint8")
        a.push_parameter(key="param", value=matrix)
        b.push_parameter(key="param", value=other)
        for method, wanted in [
            ("sum", [[4, 0], [8, 4]]),
            ("mean", [[2, 0], [4, 2]]),
            ("max", [[3, 5], [8, 2]]),
            ("min", [[1, -5], [0, 2]]),
        ]:
            for client in (a, b):
                got = client.pull_parameter(key="param", reduce_method=method)
                check((got == wanted).all(), f"{method} is {got}, and must be {wanted}")
        a.push_parameter(key="max_abs_grad", value=0.5)
        b.push_parameter(key="max_abs_grad", value=[0.25])
        check(a.pull_parameter(key="max_abs_grad", reduce_method="max") == [0.5], "the largest scalar")
        a.push_parameter(key="ternary", value=codes.pack([-1, 0, 1, 1, 0, -1, 1]))
        b.push_parameter(key="ternary", value=codes.pack([-1, 1, 1, 0, 0, 1, 1]))
        got = b.pull_parameter(key="ternary", reduce_method="decode_average", scale_key="max_abs_grad")
        check((got[:7] == [-0.5, 0.25, 0.5, 0.25, 0, 0, 0.5]).all() and got[7] == 0, f"the average is {got}")
    server.end()


def bare_codes():
    import numpy
    from gradwire import codes

    for n in range(0, 40):
        values = numpy.arange(n) * 7 % 3 - 1
        packed = codes.pack(values.reshape(1, -1))
        check(packed.size == (n + 3) // 4 and (codes.unpack(packed, n) == values).all(), f"{n} codes")
    for wrong, error in [([2], ValueError), ([300], ValueError), ([0.5], TypeError)]:
        try:
            codes.pack(wrong)
            check(False, f"{wrong} was packed")
        except error:
            pass
    for wrong, n, error in [
        (numpy.uint8([0xFF]), 4, ValueError),
        (numpy.uint8([0]), 8, ValueError),
        ([1.0], 4, TypeError),
    ]:
        try:
            codes.unpack(wrong, n)
            check(False, f"{wrong} was unpacked")
        except error:
            pass


def main():
    import gradwire.pserver as ps

    bare_codes()
    snippet(ps)
    arguments(ps)
    keys(ps)
    closed_port(ps)
    a_client_before_its_server(ps)
    parts(ps)
    ctrl_c(ps)
    print("the client says at once what is wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
