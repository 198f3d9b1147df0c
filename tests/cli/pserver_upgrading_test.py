#!/usr/bin/env python3
"""Does what docs/pserver-upgrading.md says: it replaces a server on its folder, and a folder's keys get more workers.

    tests/cli/pserver_upgrading_test.py TOOL"""
import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

from pserver_common import PATIENCE, SOURCE, Server, check, fails, numpy

import gradwire.pserver as ps

SHAPE, OPTIMIZER = [4, 3], "momentum:lr=0.1,momentum=0.9"


@contextlib.contextmanager
def workers_of(address, n):
    clients = [ps.Client(address, rank=rank, timeout=PATIENCE, connect_timeout=PATIENCE) for rank in range(n)]
    for client in clients:
        client.init_parameter("w", SHAPE, "float32", optimizer=OPTIMIZER, value=numpy.ones(SHAPE))
    yield clients
    for client in clients:
        client.close()


def a_round(clients, gradient):
    for client in clients:
        client.push_parameter("w", numpy.full(SHAPE, gradient))
    return [client.pull_parameter("w", "parameters") for client in clients]


def main():
    with tempfile.TemporaryDirectory() as folder:
        old, new, copy = (pathlib.Path(folder) / name for name in ("old", "new", "copy"))
        options = ["--workers", "2", "--snapshot", old]
        server = Server(*options)
        with workers_of(server.address, 2) as clients:
            before = a_round(clients, 1.0)[0]
            server.end()
            shutil.copytree(old, copy)
            # A client asks while no server is there. The next server answers it.
            late = []
            asks = threading.Thread(target=lambda: late.append(clients[0].pull_parameter("w", "parameters")))
            asks.start()
            server = Server(*options, listen=server.address)
            asks.join(PATIENCE)
            check(late and (late[0] == before).all(), "a new server on the same folder goes on")
            after = a_round(clients, 1.0)[0]
            check((after < before).all(), "and takes the next round")
        server.end()

        # The server refuses another number of workers. The script in the document carries the keys over.
        fails(["server", "--listen", "127.0.0.1:0", "--workers", "3", "--snapshot", old], "workers")
        two, three = Server(*options), Server("--workers", "3", "--snapshot", new)
        page = (SOURCE / "docs/pserver-upgrading.md").read_text()
        script = re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1)
        for port, address in (("29700", two.address), ("29800", three.address)):
            check(script.count(f'"127.0.0.1:{port}"') == 1, "the page's addresses")
            script = script.replace(f"127.0.0.1:{port}", address)
        done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        check(done.returncode == 0, done.stderr)
        two.end()
        three.end()
        three = Server("--workers", "3", "--snapshot", new, listen=two.address)
        with workers_of(three.address, 3) as clients:
            check((clients[2].pull_parameter("w", "parameters") == after).all(), "the parameters are carried over")
            check(all((value < after).all() for value in a_round(clients, 1.0)), "three workers go on")
        three.end()

        # Go back to the old version.
        shutil.rmtree(old)
        copy.rename(old)
        server = Server(*options)
        with ps.Client(server.address, rank=ps.READER) as reader:
            check((reader.pull_parameter("w", "parameters") == before).all(), "the copy is as it was")
        server.end()
    print("a server is replaced, and its keys get more workers, as the page says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
