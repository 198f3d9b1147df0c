#!/usr/bin/env python3
"""Does what docs/pserver-upgrading.md says: it replaces a server on its folder, and a folder's keys get more workers.

    tests/cli/pserver_upgrading_test.py TOOL"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

from pserver_common import SOURCE, TOOL, Server, check, numpy

SHAPE, OPTIMIZER = [4, 3], "momentum:lr=0.1,momentum=0.9"


def workers_of(ps, address, n):
    clients = [ps.Client(address, rank=rank, timeout=60, connect_timeout=60) for rank in range(n)]
    for client in clients:
        client.init_parameter("w", SHAPE, "float32", optimizer=OPTIMIZER, value=numpy.ones(SHAPE))
    return clients


def a_round(clients, gradient):
    for client in clients:
        client.push_parameter("w", numpy.full(SHAPE, gradient))
    return [client.pull_parameter("w", "parameters") for client in clients]


def main():
    import gradwire.pserver as ps

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        options = ["--workers", "2", "--snapshot", str(folder / "old")]
        server = Server(*options)
        clients = workers_of(ps, server.address, 2)
        before = a_round(clients, 1.0)[0]
        server.end()
        shutil.copytree(folder / "old", folder / "before")
        # A client asks while no server is there. The next server answers it.
        late = []
        asks = threading.Thread(target=lambda: late.append(clients[0].pull_parameter("w", "parameters")))
        asks.start()
        server = Server(*options, listen=server.address)
        asks.join(60)
        check(late and (late[0] == before).all(), "a new server on the same folder goes on")
        after = a_round(clients, 1.0)[0]
        check((after < before).all(), "and takes the next round")
        for client in clients:
            client.close()
        server.end()

        # The server refuses another number of workers. The script in the document carries the keys over.
        more = subprocess.run(
            [str(TOOL), "server", "--listen", "127.0.0.1:0", "--workers", "3", "--snapshot", str(folder / "old")],
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        check(
            more.returncode == 1 and "workers" in more.stderr, f"a folder of 2 workers is not one of 3: {more.stderr}"
        )
        old, new = Server(*options), Server("--workers", "3", "--snapshot", str(folder / "new"))
        page = (SOURCE / "docs/pserver-upgrading.md").read_text()
        script = re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1)
        for port, address in (("29700", old.address), ("29800", new.address)):
            check(script.count(f'"127.0.0.1:{port}"') == 1, "the page's addresses")
            script = script.replace(f"127.0.0.1:{port}", address)
        done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=60)
        check(done.returncode == 0, done.stderr)
        old.end()
        new.end()
        new = Server("--workers", "3", "--snapshot", str(folder / "new"), listen=old.address)
        clients = workers_of(ps, new.address, 3)
        check((clients[2].pull_parameter("w", "parameters") == after).all(), "the parameters are carried over")
        check(all((value < after).all() for value in a_round(clients, 1.0)), "three workers go on")
        for client in clients:
            client.close()
        new.end()

        # Go back to the old version.
        shutil.rmtree(folder / "old")
        (folder / "before").rename(folder / "old")
        server = Server(*options)
        with ps.Client(server.address, rank=ps.READER) as reader:
            check((reader.pull_parameter("w", "parameters") == before).all(), "the copy is as it was")
        server.end()
    print("a server is replaced, and its keys get more workers, as the page says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
