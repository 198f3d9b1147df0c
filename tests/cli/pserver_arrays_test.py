#!/usr/bin/env python3
"""Tests what the Python client takes for a value, and a fork beside it. Nothing is stored that is not what was given. A
forked process neither hangs nor harms the client.

    tests/cli/pserver_arrays_test.py TOOL"""
import copy
import os
import pickle
import signal
import sys
import threading
import warnings

from pserver_common import Server, check, numpy, refused

try:
    import torch
except ImportError:
    torch = None

TIMEOUT = 60.0
ROWS = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)


def stored(client, key, value):
    client.push_parameter(key, value)
    return client.pull_parameter(key, "latest")


def what_is_stored(client):
    client.init_parameter("w", [2, 3], "float32")
    same = [ROWS.T.copy().T, ROWS.astype(">f4"), ROWS.astype("f8"), ROWS.astype("i8"), ROWS.tolist(), memoryview(ROWS)]
    if torch:
        rows = torch.from_numpy(ROWS)
        same += [rows, rows.t().contiguous().t(), torch.nn.Parameter(rows), rows.bfloat16(), [rows[0], rows[1]]]
    for value in same:
        check((stored(client, "w", value) == ROWS).all(), f"stored as it was given: {value!r}")
    client.init_parameter("one", [1], "float32")
    for value in (7, 7.0, numpy.float32(7), numpy.array(7), [7], [[7]]):
        check(stored(client, "one", value) == [7], f"one element: {value!r}")
    client.init_parameter("codes", [3], "uint8")
    check(stored(client, "codes", b"\1\2\3").tolist() == [1, 2, 3], "bytes are uint8")
    client.init_parameter("short", [2], "bfloat16")
    check(stored(client, "short", [1.0, 256]).tolist() == [1, 256], "bfloat16")
    client.init_parameter("large", [2], "int64")
    check(
        stored(client, "large", [2**63 - 1, -(2**63)]).tolist() == [2**63 - 1, -(2**63)], "int64 at its limits"
    )


def what_is_refused(client, ps):
    """The keys are those of what_is_stored."""
    fields = numpy.zeros((2, 3), [("a", "f4")])
    wrong = [
        ("w", ROWS.T, ["[3, 2]", "must have [2, 3]"]),
        ("w", ROWS.ravel(), ["[6]", "must have [2, 3]"]),
        ("w", numpy.matrix(ROWS).T, ["[3, 2]"]),
        ("w", 1.0, ["shape []"]),
        ("w", numpy.ma.masked_array(ROWS, ROWS > 3), ["MaskedArray", "more than numbers"]),
        ("w", [numpy.ma.masked_array(ROWS[0], [0, 0, 1]), ROWS[1]], ["element 0", "MaskedArray"]),
        ("w", fields, ["'a'"]),
        ("w", ROWS.astype(complex), ["complex128"]),
        ("w", ROWS.astype("m8[s]"), ["timedelta64[s]"]),
        ("w", ROWS.astype(str), ["<U"]),
        ("w", {"a": 1}, ["of type dict"]),
        ("w", [[1, 2, 3], [4, 5]], ["differ in shape"]),
        ("one", numpy.int64([2**24 + 1]), ["int64 values would be changed"]),
        ("one", numpy.int64([2**63 - 1]), ["int64 values would be changed"]),
        ("codes", "abc", ["of type str"]),
        ("codes", numpy.int8([-1, 0, 0]), ["int8 values would be changed"]),
        ("codes", [256, 0, 0], ["would be changed"]),
        ("codes", memoryview(numpy.float32([1.5, 2, 3])), ["float32 values would be changed"]),
        ("short", [257, 0], ["int64 values would be changed"]),
        ("large", [2.0**63, 0], ["float64 values would be changed"]),
        ("large", [float("nan"), 0], ["float64 values would be changed"]),
        ("large", numpy.uint64([2**63, 0]), ["uint64 values would be changed"]),
        ("frames", numpy.float32([1]), ["holds float32, and must hold uint8"]),
        ("frames", [1, 2], ["must hold uint8"]),
    ]
    if torch:
        rows = torch.from_numpy(ROWS)
        wrong += [
            ("w", rows.t(), ["[3, 2]"]),
            ("w", rows.to_sparse(), ["sparse_coo", "to_dense()"]),
            ("w", rows.to("meta"), ["meta device"]),
            ("frames", rows, ["must hold uint8"]),
        ]
    client.init_parameter("frames", [6], "frame")
    for key, value, words in wrong:
        refused(lambda: client.push_parameter(key, value), f'"{key}"', *words)
        if key != "frames":
            refused(lambda: client.put(key, value, version=1), f'"{key}"', *words)
    for value, words in ((ROWS.T, ["[3, 2]"]), (numpy.ma.masked_array(ROWS, ROWS > 3), ["MaskedArray"])):
        refused(
            lambda: client.init_parameter("trained", [2, 3], "float32", optimizer="sgd", value=value),
            'the first value of "trained"',
            *words,
        )
    for shape in ({3, 2}, {3: 2}, iter([2, 3]), "23"):
        refused(lambda: client.init_parameter("shape", shape, "float32"), "shape is", "must be an integer")
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        refused(lambda: copied(client), "a Client of Gradwire cannot be copied or pickled")
    for call in (lambda: client.push_parameter("w", ROWS.T), lambda: client.init_parameter("w", [3, 2], "float32")):
        try:
            call()
            check(False, "no error")
        except ValueError as error:
            check(str(error), "a sentence")


def bfloat16_is_rounded_to_nearest_even(client):
    """The keys are those of what_is_stored."""
    step = 2.0**-7
    for given, nearest in ((1 + step / 2, 1), (1 + 3 * step / 2, 1 + 2 * step), (1 + 0.51 * step, 1 + step)):
        check(stored(client, "short", [given, -given]).tolist() == [nearest, -nearest], f"{given} in bfloat16")
    found = stored(client, "short", [float("nan"), float("inf")])
    check(numpy.isnan(found[0]) and found[1] == float("inf"), f"what is no number stays so: {found}")


def threads_and_the_end(client, ps):
    """Calls of several threads wait for each other. A client that was closed says so."""
    wrong = []

    def work(key):
        for n in range(20):
            client.push_parameter(key, n)
            if client.pull_parameter(key, "latest") != [n]:
                wrong.append((key, n))

    for key in ("a", "b", "c"):
        client.init_parameter(key, [1], "float32")
    threads = [threading.Thread(target=work, args=(key,)) for key in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    check(not wrong and not any(thread.is_alive() for thread in threads), f"three threads share a client: {wrong}")
    client.close()
    client.close()
    refused(lambda: client.push_parameter("a", 1), "this client is closed")
    refused(lambda: client.pull_parameter("a", "sum"), "this client is closed")


def in_a_fork(what, run):
    """Runs run() in a forked process. A hang ends by a signal, after a time that only a hang takes."""
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        signal.alarm(60)
        status = 1
        try:
            run()
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(process, 0)[1]
    check(status == 0, f"{what}: the forked process ended with {status}")


def forks(client, ps, address):
    calls = (
        lambda: client.init_parameter("y", [1], "float32"),
        lambda: client.push_parameter("one", 1),
        lambda: client.pull_parameter("one", "sum"),
        lambda: client.put("one", 1, version=1),
        lambda: client.get("one"),
        client.take_notice,
    )

    def refuses_all():
        for call in calls:
            try:
                call()
            except ps.Error as error:
                check(error.status == ps.Status.ORDER and "process that forked this one" in str(error), str(error))
            else:
                check(False, "a call in a forked process")
        client.close()
        with client:
            pass
        client.__del__()
        with ps.Client(address, rank=ps.READER, timeout=TIMEOUT) as own:
            check(own.pull_parameter("one", "latest") == [8], "a client of its own")

    client.push_parameter("one", 8)
    in_a_fork("calls", refuses_all)
    with client._lock:  # as if another thread made a call at this moment
        in_a_fork("calls, while the lock is taken", refuses_all)
    # The process ends as any program of Python does: objects are deleted, and exit handlers run.
    process = os.fork()
    if process == 0:
        signal.alarm(60)
        sys.exit(0)
    check(os.waitpid(process, 0)[1] == 0, "a forked process that only ends")
    client.push_parameter("one", 9)
    check(client.pull_parameter("one", "latest") == [9], "the client goes on")


def main():
    import gradwire.pserver as ps

    warnings.simplefilter("ignore")  # of numpy.matrix
    server = Server("--workers", "1")
    with ps.Client(server.address, rank=0, timeout=TIMEOUT) as client:
        what_is_stored(client)
        what_is_refused(client, ps)
        bfloat16_is_rounded_to_nearest_even(client)
        forks(client, ps, server.address)
        threads_and_the_end(client, ps)
    server.end()
    print("the client stores what it is given, or refuses it; forks do no harm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
