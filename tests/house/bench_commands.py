"""bench/commands.py: what a command printed comes back; one that fails or does not end takes the others with it."""
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import commands


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.pids = pathlib.Path(folder.name) / "pids"
        self.hour = ["sh", "-c", f"echo $$ >> {self.pids}; exec sleep 3600"]

    def fails(self, words, seconds):
        """What is said of a command that must fail. The other, which takes an hour, must not be left."""
        with self.assertRaises(commands.Failed) as said:
            commands.run_all([self.hour, words], seconds)
        for pid in self.pids.read_text().split() if self.pids.exists() else []:
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists(), pid)
        return str(said.exception)

    def test_more_than_a_pipe_holds_comes_back(self):
        said = commands.run_measured([["echo", 1], ["head", "-c", 1000000, "/dev/zero"]])
        self.assertEqual([len(printed) for printed, _ in said], [2, 1000000])
        for _, megabytes in said:
            self.assertGreater(megabytes, 0.1)

    def test_one_fails(self):
        words = f"until [ -s {self.pids} ]; do sleep 0.01; done; echo a; echo why >&2; exit 3"
        self.assertRegex(self.fails(["sh", "-c", words], 60), "failed: sh .*: why$")

    def test_one_does_not_end(self):
        began = time.monotonic()
        self.assertIn("not done after 1 s", self.fails(["true"], 1))
        self.assertGreater(time.monotonic() - began, 1)


if __name__ == "__main__":
    unittest.main()
