"""What the tests of the parameter server from outside share: the tool, the library that the Python client loads, a
server, check and refused."""
import atexit
import os
import pathlib
import re
import signal
import subprocess
import sys

try:
    import numpy
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

TOOL = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ.setdefault("GRADWIRE_LIBRARY", str(TOOL.parent / "libgradwire.so"))
os.environ["PYTHONPATH"] = str(SOURCE / "python")
sys.path.insert(0, str(SOURCE / "python"))


def check(holds, what):
    if not holds:
        raise SystemExit(f"failed: {what}")


# A line of the log: when, what happened, and what there is to say about it.
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [a-z-]+( [a-z_]+=([^\s\"]+|\"([^\"\\]|\\.)*\"))*")


def check_lines(log):
    """All lines of a server's log have one shape."""
    for line in log.splitlines():
        check(LINE.fullmatch(line), f"a line of the log has another shape: {line}")


class Server:
    def __init__(self, *options, listen="127.0.0.1:0"):
        self.process = subprocess.Popen(
            [str(TOOL), "server", "--listen", listen, *options], stderr=subprocess.PIPE, text=True
        )
        atexit.register(self.process.kill)  # if a check fails, the server ends, too
        self.read, found = "", None
        while not found:  # lines about the snapshot folder may come first
            line = self.process.stderr.readline()
            self.read += line
            check(line, f"the log says where the server listens: {self.read}")
            found = re.search(r"listening address=(\S+)", line)
        self.address = found.group(1)

    def wait_for(self, words):
        """Returns the next line of the log that has these words."""
        for line in self.process.stderr:
            self.read += line
            if words in line:
                return
        check(False, f"the server ended without {words}:\n{self.read}")

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        log = self.read + self.process.communicate(timeout=20)[1]
        check(self.process.returncode == 0, f"the server ends with {self.process.returncode}:\n{log}")
        check_lines(log)
        return log


def refused(call, *words):
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        check(all(word in str(error) for word in words), f"{words} in: {error}")
        return
    check(False, f"no error with {words}")
