"""What the tests of the parameter server from outside share: the library that the Python client loads, servers, their
logs and pages, check and refused."""
import atexit
import contextlib
import http.client
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

try:
    import numpy  # noqa: F401
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

from harness import PORTS, TESTS, TOOL

SOURCE = pathlib.Path(TESTS).parent
os.environ.setdefault("GRADWIRE_LIBRARY", os.path.join(os.path.dirname(TOOL), "libgradwire.so"))
os.environ["PYTHONPATH"] = str(SOURCE / "python")
sys.path.insert(0, str(SOURCE / "python"))
PATIENCE = 60  # seconds within which all that must happen has happened


def check(holds, what):
    if not holds:
        raise SystemExit(f"failed: {what}")


def refused(call, *words):
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        check(all(word in str(error) for word in words), f"{words} in: {error}")
        return
    check(False, f"no error with {words}")


def until(holds, what):
    """Waits until holds() is true, and returns it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        check(time.monotonic() < deadline, f"in vain: {what}")
        time.sleep(0.05)
    return found


def tool(*words, **options):
    """Runs the tool to its end."""
    return subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True, timeout=240, **options)


def fails(words, *says, status=None):
    """The tool must refuse these words, and say why. status: None, 1 or 2."""
    done = tool(*words)
    statuses = (1, 2) if status is None else (status,)
    check(done.returncode in statuses and all(part in done.stderr for part in says), f"{words}: {done}")


def ask(page, path, method="GET", body=None, headers={}, timeout=20):
    """Asks the page at (host, port). Returns status, headers and what was said."""
    connection = http.client.HTTPConnection(*page, timeout=timeout)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


# A line of the log: when, what happened, and what there is to say about it.
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [a-z-]+( [a-z_]+=([^\s\"]+|\"([^\"\\]|\\.)*\"))*")


class Server:
    """A server. If a check fails, it ends, too."""

    def __init__(self, *options, listen=None):
        words = [TOOL, "server", "--listen", listen or f"127.0.0.1:{next(PORTS)}", *map(str, options)]
        self.file, self.heard = tempfile.TemporaryFile(), 0
        self.process = subprocess.Popen(words, stderr=self.file)
        atexit.register(self.process.kill)
        self.address = self.wait_for(r"listening address=(\S+)")[1]
        if "--metrics" in options:
            found = self.wait_for(r"showing status=http://(\S+):(\d+)/")
            self.page = found[1].strip("[]"), int(found[2])

    @property
    def log(self):
        return os.pread(self.file.fileno(), 1 << 24, 0).decode(errors="replace")

    def wait_for(self, pattern):
        """Waits for the next line of the log that has this pattern."""
        deadline = time.monotonic() + PATIENCE
        while True:
            may_come = self.process.poll() is None and time.monotonic() < deadline
            if found := re.compile(rf"{pattern}.*\n").search(self.log, self.heard):
                self.heard = found.end()
                return found
            check(may_come, f"the log does not say {pattern}:\n{self.log}")
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait(60)

    def end(self, how=signal.SIGTERM):
        """Ends the server in good order. Returns its log, whose lines must have one shape."""
        self.process.send_signal(how)
        self.process.wait(timeout=PATIENCE)
        check(self.process.returncode == 0, f"the server ends with {self.process.returncode}:\n{self.log}")
        check("\ufffd" not in self.log, f"the log is UTF-8, whatever the names are:\n{self.log}")
        for line in self.log.splitlines():
            check(LINE.fullmatch(line), f"a line of the log has another shape: {line}")
        return self.log


@contextlib.contextmanager
def serving(*options, n=1, **more):
    """Servers for the time of a block, which must end in good order after it. Gives their addresses, and them."""
    servers = [Server(*options, **more) for _ in range(n)]
    yield ",".join(server.address for server in servers), servers
    for server in servers:
        server.end()
