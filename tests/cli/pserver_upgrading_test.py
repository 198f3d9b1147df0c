#!/usr/bin/env python3
"""Does what docs/pserver-upgrading.md says: a folder's keys get more workers. pserver_snapshot_test has servers that
are replaced on their folder, and clients that wait meanwhile.

    tests/cli/pserver_upgrading_test.py TOOL"""
import pathlib
import re
import subprocess
import sys
import tempfile

from pserver_common import PATIENCE, SOURCE, Server, check, fails, numpy

import gradwire.pserver as ps

SHAPE, OPTIMIZER = [4, 3], "momentum:lr=0.1,momentum=0.9"


def a_round(server, n, before):
    """A round of n workers must find the parameters `before`. Returns those after it."""
    clients = [ps.Client(server.address, rank=rank, timeout=PATIENCE) for rank in range(n)]
    for client in clients:
        client.init_parameter("w", SHAPE, "float32", optimizer=OPTIMIZER, value=numpy.ones(SHAPE))
    check((clients[-1].pull_parameter("w", "parameters") == before).all(), f"{n} workers go on")
    for client in clients:
        client.push_parameter("w", numpy.ones(SHAPE))
    after = [client.pull_parameter("w", "parameters") for client in clients]
    check(all((value < before).all() for value in after), f"{n} workers make a round")
    for client in clients:
        client.close()
    return after[0]


def main():
    with tempfile.TemporaryDirectory() as folder:
        old, new = (pathlib.Path(folder) / name for name in ("old", "new"))
        two, three = Server("--workers", "2", "--snapshot", old), Server("--workers", "3", "--snapshot", new)
        after = a_round(two, 2, 1)
        page = (SOURCE / "docs/pserver-upgrading.md").read_text()
        script = re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1)
        for port, address in (("29700", two.address), ("29800", three.address)):
            check(script.count(f'"127.0.0.1:{port}"') == 1, "the page's addresses")
            script = script.replace(f"127.0.0.1:{port}", address)
        done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        check(done.returncode == 0, done.stderr)
        two.end()
        three.end()
        fails(["server", "--listen", "127.0.0.1:0", "--workers", "3", "--snapshot", old], "workers=2 mode=sync")
        three = Server("--workers", "3", "--snapshot", new, listen=two.address)
        a_round(three, 3, after)
        three.end()


main()
