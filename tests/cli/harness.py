"""Runs the tool from outside: what it prints, writes and returns. Only the standard library is needed."""

import atexit
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path += [TESTS, os.path.join(os.path.dirname(TESTS), "bench")]
import openmpi  # noqa: E402
import pictures  # noqa: E402
import ports  # noqa: E402

TOOL = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
PORTS = ports.free_ports()
# A job in the background of a shell ignores Ctrl-C, one under nohup ignores hangups, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# OpenMPI keeps memory of its own, which looks like a leak.
MPI = {**openmpi.ENVIRONMENT, "ASAN_OPTIONS": "detect_leaks=0"}
# Data of tests that train, and that do not ask what is learnt.
PICTURES = tempfile.mkdtemp(prefix="gradwire-cli-")
atexit.register(shutil.rmtree, PICTURES, ignore_errors=True)
pictures.write_mnist(PICTURES, 1)
# A small network that trains on them.
SMALL = ["--net", "mlp:784-16-10", "--data", PICTURES]
# One of each kind of frame; tests/python/frames_test.py has every packing.
CODECS = ["none", "bf16", "ternary", "ternary:bucket=4096", "topk:ratio=0.1", "onebit"]


def _said(*words):
    return subprocess.run([TOOL, *words], capture_output=True, text=True, check=False).stdout if TOOL else ""


HAS_TRAINER = "\n  train " in _said("help")
needs_trainer = unittest.skipUnless(HAS_TRAINER, "the tool is built without the trainer")


def needs_quick_convolutions(test):
    """Skips a test if oneDNN may use SSE 4.1 only on this machine (docs/pytorch.md, "Which PyTorch")."""
    slow = "oneDNN    3." in _said("--version") and not os.path.exists("/sys/devices/system/cpu/cpu0/cache")
    return unittest.skipIf(slow, "oneDNN 3 is slow if the machine does not say how large its caches are")(test)


class Case(unittest.TestCase):
    """A test with a folder of its own, which must hold no temporary file at the end."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gradwire-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def tearDown(self):
        left = [name for name in os.listdir(self.folder) if name.endswith(".tmp")]
        self.assertEqual(left, [], "temporary files are left")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    # ---- runs of the tool ----

    def run_program(self, *words, env=None, **options):
        """Runs any program. `env` is added to the environment."""
        env = {**os.environ, **(env or {})}
        words = [str(word) for word in words]
        return subprocess.run(words, capture_output=True, text=True, timeout=240, env=env, **options)

    def run_tool(self, *words, **options):
        return self.run_program(TOOL, *words, **options)

    def done(self, *words, status=0, says=(), **options):
        """Runs the tool, which must return `status` and say these words on standard error."""
        done = self.run_tool(*words, **options)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, done.stderr, f"{words}")
        return done

    def said(self, *words, **options):
        """The same. Returns all that it said on standard error."""
        return self.done(*words, **options).stderr

    def ok(self, *words, **options):
        """Runs the tool, which must succeed. Returns what it printed on standard output."""
        return self.done(*words, **options).stdout

    def ok_json(self, *words, **options):
        """Runs a command with --json. Returns the one JSON object that it prints."""
        value = json.loads(self.ok(*words, "--json", **options))
        self.assertIsInstance(value, dict)
        return value

    def refused(self, status, *words, says=()):
        """Runs the tool. It must return `status`, say these words on standard error, and say nothing elsewhere."""
        done = self.done(*words, status=status, says=says)
        self.assertEqual(done.stdout, "", f"{words}")
        return done.stderr

    def each_refused(self, status, *begin_and_rows):
        """The last argument has rows of words and of what the tool says of them. Words that are one text are parted at
        their spaces. The other arguments stand before those of each row."""
        *begin, rows = begin_and_rows
        for words, says in rows:
            with self.subTest(words=words):
                self.refused(status, *begin, *(words.split() if isinstance(words, str) else words), says=says)

    def start(self, *words, program=(TOOL,), **options):
        """Starts the tool. It is killed at the test's end if it still runs."""
        words = [str(word) for word in (*program, *words)]
        run = subprocess.Popen(words, text=True, **{"stderr": subprocess.PIPE, **options})

        def end():
            run.kill()
            run.communicate()

        self.addCleanup(end)
        return run

    def wait_until(self, run, holds, what):
        deadline = time.monotonic() + 120
        while not holds():
            if run.poll() is not None or time.monotonic() > deadline:
                run.kill()
                self.fail(f"{what}: {run.communicate()[1]}")
            time.sleep(0.01)

    def wait_for_steps(self, run, out):
        """Waits until the run has written lines of metrics. Then its workers have met, and train."""
        lines = os.path.join(out, "metrics.jsonl.partial")
        self.wait_until(run, lambda: os.path.exists(lines) and os.path.getsize(lines), "no steps were done")

    def ended(self, run, status, *says):
        """Waits for the end of what `start` began. Returns what it said."""
        said = run.communicate(timeout=100)[1]
        self.assertEqual(run.returncode, status, said)
        for part in says:
            self.assertIn(part, said)
        return said

    def need_tcp(self):
        if "tcp" not in self.ok("--version").partition("links")[2]:
            self.skipTest("the tool is built without the tcp link")

    # ---- files ----

    def json_of(self, *names):
        with open(self.path(*names), encoding="utf-8") as file:
            return json.load(file)

    def lines_of(self, *names):
        """The JSON objects of a file that has one in each line."""
        with open(self.path(*names), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def write_bytes(self, name, data):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def read_bytes(self, *names):
        with open(self.path(*names), "rb") as file:
            return file.read()

    def write_f32(self, name, values):
        return self.write_bytes(name, struct.pack(f"<{len(values)}f", *values))

    def read_f32(self, *names):
        data = self.read_bytes(*names)
        return list(struct.unpack(f"<{len(data) // 4}f", data))

    def contents(self, *names):
        """What each file of a folder holds."""
        return {name: self.read_bytes(*names, name) for name in os.listdir(self.path(*names))}


def stop(pid):
    """Stops a process, and waits until all its threads stand still. On a busy machine they go on for a while."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + 60
    while any(") T " not in open(f"/proc/{pid}/task/{t}/stat").read() for t in os.listdir(f"/proc/{pid}/task")):
        if time.monotonic() > end:
            raise AssertionError(f"process {pid} does not stop")
        time.sleep(0.01)


def profile(change=lambda p: None):
    """Returns the profile that docs/plan.md works with, with floats added, after a change."""
    costs = dict.fromkeys(["compress_ms_fixed", "compress_ms_per_element", "decompress_ms_per_element"], 0)
    ternary = {"compress_ms_fixed": 0.5, "compress_ms_per_element": 0.00025, "decompress_ms_per_element": 0.000125}
    layers = [("conv1", 1000, 3), ("conv2", 2000, 2), ("fc1", 8000, 1), ("fc2", 1000, 1)]
    there = {
        "forward_ms": 4,
        "layers": [{"name": n, "elements": e, "backward_ms": b} for n, e, b in layers],
        "link": {"alpha_ms": 1, "ms_per_byte": 0.0001875, "members": 4},
        "codecs": [
            {"spec": "none", "bytes_per_element": 6, **costs},
            {"spec": "ternary", "bytes_per_element": 2, **ternary},
        ],
    }
    change(there)
    return there


def gaussians(n, seed):
    source = random.Random(seed)
    return [source.gauss(0, 1e-3) for _ in range(n)]


def main():
    if not TOOL:
        sys.exit("usage: TEST.py GRADWIRE_TOOL")
    result = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False).result
    if result.skipped and len(result.skipped) == result.testsRun:
        print(f"skipped: {result.skipped[0][1]}")
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
