"""Tests what the tool says if an allocation fails: its answer is whole, or its status tells that it is not."""

import json
import os
import re

import harness

MADE = re.compile(b'"made": *"[^"]*"')  # the time in a page
LAST = 150  # so many allocations before the end fail, each once: answers are made there


class Memory(harness.Case):
    def once(self, fail_at, *words):
        """Returns status, what the answer is (standard output and the file of -o), standard error, and how many
        allocations there were."""
        out = self.write_bytes("out", b"")
        env = {"LD_PRELOAD": os.environ["GRADWIRE_SHORT_OF_MEMORY"], "FAIL_AT": str(fail_at)}
        done = self.run_tool(*words, env=env)
        said, _, n = done.stderr.rpartition("allocations: ")
        return done.returncode, (done.stdout, MADE.sub(b"", self.read_bytes(out))), said, int(n or 0)

    def sweep(self, *words):
        status, whole, _, n = self.once(0, *words)
        self.assertEqual(status, 0)
        n_told = 0
        for fail_at in {1, *range(max(1, n - LAST), n + 1)}:
            status, answer, said, _ = self.once(fail_at, *words)
            where = f"{words[0]}, allocation {fail_at} of {n}"
            self.assertIn(status, (0, 1), where)
            self.assertTrue("gradwire" in said if status else answer == whole, where)
            n_told += status
        self.assertGreater(n_told, 20, words[0])

    def test_answers(self):
        file = self.write_bytes("profile.json", json.dumps(harness.profile()).encode())
        self.sweep("plan", "--profile", file, "--json", "-o", self.path("out"))
        self.sweep("advise", "--profile", file)
        self.sweep("advise", "--profile", file, "--json")
        self.sweep("codecs", "topk", "--json")

    @harness.needs_trainer
    def test_report(self):
        self.run_tool("train", *harness.SMALL, "--steps", 3, "--out", self.path("run"))
        self.sweep("report", self.path("run"), "--json", "-o", self.path("out"))


if __name__ == "__main__":
    harness.main()
