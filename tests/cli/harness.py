"""Runs the tool from outside: what it prints, writes and returns. Only the standard library is needed."""

import atexit
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import openmpi  # noqa: E402

import pictures  # noqa: E402

TOOL = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""

# OpenMPI keeps memory of its own, which looks like a leak.
MPI = {**openmpi.ENVIRONMENT, "ASAN_OPTIONS": "detect_leaks=0"}
# Data of tests that train, and that do not ask what is learnt.
PICTURES = tempfile.mkdtemp(prefix="gradwire-cli-")
atexit.register(shutil.rmtree, PICTURES, ignore_errors=True)
pictures.write_mnist(PICTURES, 1)
# One of each kind of frame; tests/python/frames_test.py has every packing.
CODECS = ["none", "bf16", "ternary", "ternary:bucket=4096", "topk:ratio=0.1", "onebit"]


def _has_trainer():
    if not TOOL:
        return False
    done = subprocess.run([TOOL, "help"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return "\n  train " in done.stdout


HAS_TRAINER = _has_trainer()
needs_trainer = unittest.skipUnless(HAS_TRAINER, "the tool is built without the trainer")


def needs_quick_convolutions(test):
    """Skips a test if oneDNN may use SSE 4.1 only on this machine (docs/pytorch.md, "Which PyTorch")."""
    version = subprocess.run([TOOL, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
    slow = "oneDNN    3." in version and not os.path.exists("/sys/devices/system/cpu/cpu0/cache")
    return unittest.skipIf(slow, "oneDNN 3 is slow if the machine does not say how large its caches are")(test)


class Case(unittest.TestCase):
    """A test with a folder of its own, which must hold no temporary file at the end."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gradwire-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def tearDown(self):
        left = [name for name in os.listdir(self.folder) if name.endswith(".tmp")]
        self.assertEqual(left, [], "temporary files are left")

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_tool(self, *words, **options):
        return subprocess.run(
            [TOOL, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240, **options
        )

    def ok(self, *words):
        """Runs the tool, which must succeed. Returns what it printed on standard output."""
        done = self.run_tool(*words)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        return done.stdout

    def ok_json(self, *words):
        """Runs a command with --json. Returns the one JSON object that it prints."""
        value = json.loads(self.ok(*words, "--json"))
        self.assertIsInstance(value, dict)
        return value

    def refused(self, status, *words, says=()):
        """Runs the tool. It must return `status`, say these words on standard error, and say nothing elsewhere."""
        done = self.run_tool(*words)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        self.assertEqual(done.stdout, "", f"{words}")
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, done.stderr, f"{words}")
        return done.stderr

    def need_tcp(self):
        if "tcp" not in self.ok("--version").partition("links")[2]:
            self.skipTest("the tool is built without the tcp link")

    def write_f32(self, name, values):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(struct.pack(f"<{len(values)}f", *values))
        return path

    def read_f32(self, path):
        with open(path, "rb") as file:
            data = file.read()
        return list(struct.unpack(f"<{len(data) // 4}f", data))

    def write_bytes(self, name, data):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def read_bytes(self, path):
        with open(path, "rb") as file:
            return file.read()


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
