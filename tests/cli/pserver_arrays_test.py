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

from pserver_common import PATIENCE, check, numpy, refused, serving

try:
    import torch
except ImportError:
    torch = None

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
    masked = numpy.ma.masked_array(ROWS, ROWS > 3)
    wrong = [
        ("w", ROWS.T, "[3, 2]", "must have [2, 3]"),
        ("w", ROWS.ravel(), "[6]", "must have [2, 3]"),
        ("w", numpy.matrix(ROWS).T, "[3, 2]"),
        ("w", 1.0, "shape []"),
        ("w", masked, "MaskedArray", "more than numbers"),
        ("w", [numpy.ma.masked_array(ROWS[0], [0, 0, 1]), ROWS[1]], "element 0", "MaskedArray"),
        ("w", numpy.zeros((2, 3), [("a", "f4")]), "'a'"),
        ("w", ROWS.astype(complex), "complex128"),
        ("w", ROWS.astype("m8[s]"), "timedelta64[s]"),
        ("w", ROWS.astype(str), "<U"),
        ("w", {"a": 1}, "of type dict"),
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
        wrong += [
            ("w", rows.t(), "[3, 2]"),
            ("w", rows.to_sparse(), "sparse_coo", "to_dense()"),
            ("w", rows.to("meta"), "meta device"),
            ("frames", rows, "must hold uint8"),
        ]
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


def threads_and_the_end(client):
    """Calls of several threads wait for each other. A client that was closed says so."""
    wrong = []

    def work(key):
        for n in range(20):
            if stored(client, key, n) != [n]:
                wrong.append((key, n))

    threads = [threading.Thread(target=work, args=(key,)) for key in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    check(not wrong and not any(thread.is_alive() for thread in threads), f"three threads share a client: {wrong}")
    client.close()
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


def forks(client, ps, address):
    calls = (
        lambda: client.init_parameter("y", [1], "float32"),
        lambda: client.push_parameter("one", 1),
        lambda: client.pull_parameter("one", "sum"),
        lambda: client.put("one", 1, version=1),
        lambda: client.get("one"),
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
        with ps.Client(address, rank=ps.READER, timeout=PATIENCE) as own:
            check(own.pull_parameter("one", "latest") == [8], "a client of its own")

    client.push_parameter("one", 8)
    in_a_fork("calls", refuses_all)
    with client._lock:  # as if another thread made a call at this moment
        in_a_fork("calls, while the lock is taken", refuses_all)
    in_a_fork("nothing")
    check(stored(client, "one", 9) == [9], "the client goes on")


def main():
    import gradwire.pserver as ps

    warnings.simplefilter("ignore")  # of numpy.matrix
    with serving("--workers", "1") as (address, _), ps.Client(address, rank=0, timeout=PATIENCE) as client:
        for key, shape, type in KEYS:
            client.init_parameter(key, shape, type)
        what_is_stored(client)
        what_is_refused(client)
        forks(client, ps, address)
        threads_and_the_end(client)
    print("the client stores what it is given, or refuses it; forks do no harm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
