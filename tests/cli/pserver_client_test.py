#!/usr/bin/env python3
"""Tests the Python client when it cannot be served: Ctrl-C while it waits, wrong keys, no server, wrong arguments,
other servers than those of the other clients.

    tests/cli/pserver_client_test.py TOOL"""
import contextlib
import math
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import time

import harness
from pserver_common import PATIENCE, Server, check, numpy, refused, serving, tool

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


def ctrl_c(ps):
    server = Server("--workers", "2")
    with ps.Client(server.address, rank=0, timeout=LONG) as a, ps.Client(server.address, rank=1, timeout=LONG) as b:
        large = numpy.ones(1 << 19, numpy.float32)
        for client in (a, b):
            client.init_parameter("x", [1], "float32")
            client.init_parameter("large", large.shape, "float32")
        a.init_parameter("w", [1], "float32", optimizer="sgd")
        a.push_parameter("x", [1])
        for what, call in (
            ("a pull", lambda: a.pull_parameter("x", "sum")),
            ("a push", lambda: a.push_parameter("x", [2])),
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


def turn_all_away(door):
    with contextlib.suppress(OSError):
        while True:
            door.accept()[0].close()


def no_server(ps):
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
    time.sleep(0.5)
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


def keys(ps):
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


def arguments(ps):
    with serving("--workers", "1") as (address, _), ps.Client(address, rank=0, timeout=20) as client:
        init, push = client.init_parameter, client.push_parameter
        come = lambda rank=0, servers=address, **more: ps.Client(servers, rank=rank, **more)
        for shape, *words in (
            ([2**64 + 5], "dimension 0 of the shape", str(2**64 + 5)),
            ([3, 2**63], "dimension 1", str(2**63)),
            ([2.7], "2.7", "float", "must be an integer"),
            (numpy.array([2.0]), "must be an integer"),
            ([True], "True", "bool"),
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
        for call, *words in (
            (lambda: init("\udc80", [1], "uint8"), "surrogates not allowed"),
            (lambda: init(b"x", [1], "uint8"), "key is b'x'", "must be a str"),
            (lambda: init("x", [1], "uint8\0"), "type", "code 0"),
            (lambda: init("x", [1], None), "type is None"),
            (lambda: init("x", [1], "float32", optimizer="sgd\0:lr=9"), "optimizer", "code 0"),
            (lambda: init("x", [1], "float32", optimizer="sgd", value=[1e39]), "too large"),
            (lambda: client.pull_parameter("x", "sum\0"), "reduce_method", "code 0"),
            (lambda: client.pull_parameter("x", "sum", scale_key=7), "scale_key is 7"),
            (lambda: push("x", [1], rate="1"), "rate is '1'"),
            (lambda: push("x", [1], rate=math.nan), "rate is nan"),
            (lambda: push("x", [object()]), "of type object"),
            (lambda: client.put("x", [1], version=1.0), "version is 1.0"),
            (lambda: client.get("x", least=0.5), "least is 0.5"),
            (lambda: come(0.0), "rank is 0.0"),
            (lambda: come(servers=7), "servers is 7"),
            (lambda: come(servers=address + "\0"), "servers", "code 0"),
            (lambda: come(keys="keys\0"), "keys", "code 0"),
            (lambda: come(keys=b"no/keys\xff"), "no/keys"),
            (lambda: come(timeout=math.nan), "timeout is nan"),
            (lambda: come(timeout=10**400), "timeout is 1000"),
            (lambda: come(timeout=-1), "timeout is -1"),
            (lambda: come(connect_timeout=0), "connect_timeout is 0"),
        ):
            refused(call, *words)
        for type, largest in (("float16", 65504), ("bfloat16", 3.3895e38), ("float32", 3.4e38)):
            init(type, [1], type)
            push(type, [largest])
            refused(lambda: push(type, [1.1 * largest]), type, "too large")
            push(type, [math.inf])
            check(client.pull_parameter(type, "max") == math.inf, "an infinity that was one before")
        for shape in ([numpy.int64(2), 3], (2, numpy.uint8(3)), numpy.array([2, 3])):
            init("a shape", shape, "int32")
        push("a shape", [[1, 2, 3], [4, 5, 6]])
        check(client.pull_parameter("a shape", "sum").shape == (2, 3), "integers of numpy are integers")


def parts(ps):
    """The servers never give a part of a key as the whole. This holds for a client that does not know the key, and for
    one that lists other servers. A key of more than 1 MiB lies on all servers."""
    value = numpy.arange(300001, dtype=numpy.float32)
    with serving("--workers", "1", n=3) as (address, servers):
        places = [server.address for server in servers]
        with ps.Client(address, 0, timeout=LONG) as owner, ps.Client(address, ps.READER, timeout=LONG) as reader:
            owner.init_parameter("split", value.shape, "float32")
            owner.push_parameter("split", value)
            owner.put("split", value, version=1)
            with at_once("a key that this client has not initialised"):
                for call in (lambda: reader.pull_parameter("split", "sum"), lambda: reader.get("split")):
                    refused(call, '"split"', "lies in 3 parts", "init_parameter")
            for other in (places[:2], places[1:], places[::-1], [places[1], places[0], places[2]]):
                with at_once("another list of servers"):
                    come = lambda: ps.Client(",".join(other), rank=ps.READER, timeout=LONG)
                    refused(come, "must list the same servers in the same order")
            reader.init_parameter("split", value.shape, "float32")
            check((reader.pull_parameter("split", "sum") == value).all(), "the whole, once its parts are known")
            check((reader.get("split")[0] == value).all(), "the whole value that was put")


def counted(ps):
    """A value that fewer pushes made than there are workers can be told from others."""
    with serving("--workers", "3", "--backup", "1") as (address, _), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ps.Client(address, rank, timeout=LONG)) for rank in range(3)]
        for client in clients:
            client.init_parameter("x", [1], "float32")
        for rank in (0, 2):
            clients[rank].push_parameter("x", [rank + 1])
        check(clients[0].pull_parameter("x", "sum", counted=True) == ([4], 2), "two of three")
        check(clients[0].pull_parameter("x", "mean") == [2], "the value alone")


def bare_codes():
    from gradwire import codes

    for n in range(0, 40):
        values = numpy.arange(n) * 7 % 3 - 1
        packed = codes.pack(values.reshape(1, -1))
        check(packed.size == (n + 3) // 4 and (codes.unpack(packed, n) == values).all(), f"{n} codes")
    for call, words, error in [
        (codes.pack, [[2]], ValueError),
        (codes.pack, [[300]], ValueError),
        (codes.pack, [[0.5]], TypeError),
        (codes.unpack, [numpy.uint8([0xFF]), 4], ValueError),
        (codes.unpack, [numpy.uint8([0]), 8], ValueError),
        (codes.unpack, [[1.0], 4], TypeError),
    ]:
        try:
            call(*words)
        except error:
            continue
        check(False, f"{words} was taken")


def main():
    import gradwire.pserver as ps

    bare_codes()
    for test in (arguments, counted, keys, no_server, parts, ctrl_c):
        test(ps)
    print("the client says at once what is wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
