"""Tests help, version and wrong use: exit statuses, sentences, and what a terminal shows."""

import contextlib
import fcntl
import os
import pty
import re
import resource
import struct
import subprocess
import termios

import harness

COMMANDS = "codecs launch keys encode decode scaler reduce inspect predict bench plan advise".split()
LEVELS = ["scalar", "avx2", "avx512", "neon"]
BENCH = "bench codec --elements 1000 --runs 1".split()


class Use(harness.Case):
    def setUp(self):
        super().setUp()
        self.a, self.out = self.write_f32("a.f32", [1.0]), self.path("a.gw")

    # ---- what the tool tells of itself ----

    def test_help_and_version(self):
        text = self.ok("help")
        for command in COMMANDS + ["train", "eval", "export", "probe"] * harness.HAS_TRAINER:
            self.assertIn(f"\n  {command} ", text)
            page = self.ok(command, "--help")
            self.assertIn("Example:", page, command)
        self.assertEqual([page, text, text], [self.ok(*w.split()) for w in (f"help {command}", "--help", "help help")])
        version = self.ok("--version")
        self.assertTrue(version.startswith("gradwire 0."))
        words = {line.split()[0]: line.split()[1:] for line in version.splitlines()}
        self.assertTrue(all(words[part] for part in ["compiler", "oneDNN", "SQLite"]), words)
        self.assertIn(words["kernels"][0], LEVELS)

    def test_codecs(self):
        """parse_test has the listing itself. Names choose what is listed; the order stays that of the whole list."""
        listing, whole = self.ok_json("codecs"), self.ok("codecs")
        self.assertIn(listing["kernels"], LEVELS)
        names = [codec["name"] for codec in listing["codecs"]]
        self.assertTrue(all(f"{name}\n    " in whole for name in names), names)
        some = self.ok_json("codecs", "topk", "none", "topk")["codecs"]
        self.assertEqual(some, [codec for codec in listing["codecs"] if codec["name"] in ("none", "topk")])
        topk, last = "topk\n" + whole.partition("\n\ntopk\n")[2].partition("\n\n")[0], whole.split("\n\n")[-1]
        self.assertEqual(self.ok("codecs", "topk:ratio=0.01"), f"{topk}\n\n{last}")
        # All of them are measured, in the same order.
        lines = self.ok(*BENCH).splitlines()
        begin = next(i for i, line in enumerate(lines) if line.startswith("codec "))
        rows = lines[begin + 1 : lines.index("", begin)]
        self.assertEqual([re.split("[ :]", row)[0] for row in rows], names)
        self.assertTrue(max(map(len, rows)) <= 100 and max(map(len, lines)) <= 120)
        words = "bench codec --elements 10K --runs 2 --workers 3 --codec none --codec ternary:code=mask"
        bench = self.ok_json(*words.split())
        self.assertEqual((bench["elements"], bench["threads"], bench["memcpy_seconds"] > 0), (10000, 1, True))
        frames = {"encode": "push", "decode": "push", "reduce": "average", "decode_average": "average"}
        self.assertEqual([(row["operation"], row["frame"]) for row in bench["results"]], 2 * [*frames.items()])
        for row in bench["results"]:
            self.assertGreater(row["elements_per_second"], 0)
            self.assertAlmostEqual(row["memcpy_ratio"], row["seconds"] / bench["memcpy_seconds"], places=9)
        self.assertEqual(bench["results"][0]["bits_per_element"], 32)

    # ---- descriptors ----

    def test_open_files(self):
        """Every command raises its limit of open files as far as it may. The pipe for its output is full, so the
        command waits, and the test can look."""
        reads, writes = os.pipe()
        self.addCleanup(os.close, reads)
        self.addCleanup(os.close, writes)
        os.write(writes, bytes(fcntl.fcntl(writes, fcntl.F_GETPIPE_SZ)))
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (50, most))
        waits = self.start("help", stdout=writes, stderr=subprocess.DEVNULL, preexec_fn=few)
        raised = lambda: resource.prlimit(waits.pid, resource.RLIMIT_NOFILE) == (most, most)
        self.wait_until(waits, raised, "the limit stays low")

    def test_closed_streams(self):
        """A file that the tool writes does not get the number of a stream that is closed."""
        words = ["encode", self.a, "--codec", "none", "-o"]
        self.ok(*words, self.path("whole.gw"))
        for closed in (">&-", "<&-", "2>&-", ">&- <&- 2>&-"):
            done = self.run_program("sh", "-c", f'exec "$@" {closed}', "sh", harness.TOOL, *words, self.out, "--json")
            self.assertEqual(done.returncode, int(">&-" in closed.split()), closed)
            self.assertEqual(self.read_bytes(self.out), self.read_bytes("whole.gw"), closed)
            os.remove(self.out)
        # launch holds its remote workers by their standard input, whatever it has itself.
        hosts = self.write_bytes("hosts", b"127.0.0.1\n")
        shell = self.write_bytes("shell", b'#!/bin/sh\n[ -p /proc/$$/fd/0 ] && exit 0\n')
        os.chmod(shell, 0o755)
        words = [harness.TOOL, "launch", "--hosts", hosts, "--ssh", shell, "--", "train"]
        self.assertEqual(self.run_program("sh", "-c", 'exec "$@" <&-', "sh", *words).returncode, 0)

    # ---- what a terminal shows ----

    def on_terminal(self, words, columns, **said):
        """Runs the tool on a terminal of so many columns. Returns what it wrote there."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        run, written = self.start(*words, stdout=its, stderr=its, env={**environment, **said}), b""
        os.close(its)
        with contextlib.suppress(OSError):  # Linux says EIO at the end
            while piece := os.read(ours, 65536):
                written += piece
        os.close(ours)
        self.assertEqual(run.wait(60), 0, written)
        return written.decode()

    @staticmethod
    def states(written):
        """The states of the line of progress that a terminal shows."""
        return [state[: state.index("\033[K")] for state in written.split("\r") if "\033[K" in state]

    @harness.needs_trainer
    def test_progress(self):
        """The line of progress fits the terminal, and --quiet leaves it away."""
        words = ["train", *harness.SMALL, *"--workers 2 --steps 40 --codec ternary --lr 1e30".split()]
        for columns, said, most in ((200, {"COLUMNS": "50"}, 50), (50, {"COLUMNS": "80"}, 50), (0, {}, 80)):
            states = self.states(self.on_terminal(words, columns, **said))
            self.assertTrue(states)
            for state in states:
                self.assertLess(len(state), most, state)
                self.assertRegex(state, r"^step \d+/40  .* left$")
        self.assertRegex(self.states(self.on_terminal(words, 200))[-1], r"dropped .* images/s .*up 1/.* left$")
        self.assertNotIn("step 1/", self.said(*words, "--quiet", says="test accuracy"))
        bench = [*BENCH, "--codec", "ternary:code=mask,entropy=off,min=7"]
        self.assertTrue(0 < max(len(state) for state in self.states(self.on_terminal(bench, 40))) < 40)
        for quiet in (words, bench):
            self.assertEqual(self.states(self.on_terminal([*quiet, "--quiet"], 80)), [])

    def test_help_fits_the_terminal(self):
        wide = self.on_terminal(["codecs", "--help"], 300)
        self.assertGreater(max(map(len, wide.splitlines())), 80)
        for line in self.on_terminal(["server", "--help"], 70).split("Example:")[0].splitlines():
            self.assertLessEqual(len(line), 70, line)
        self.assertEqual(wide.replace("\r\n", "\n"), self.ok("codecs", "--help"))

    # ---- wrong use ----

    def test_wrong_use(self):
        """parse_test has more codecs that are not legal, and numbers_test numbers."""
        a, out = self.a, self.out
        encode = ["encode", a, "-o", out, "--codec", "none"]
        rows = [
            ("", "a command is missing"),
            ("encod", ["no command 'encod'", "did you mean 'encode'?"]),
            ("help inspekt", "did you mean 'inspect'?"),
            ("bench codecs", f"there are bench codec{' and bench exchange' * harness.HAS_TRAINER}\n"),
            ("codecs --quiet", "there is no option '--quiet'"),
            ("codecs top", ["no codec 'top'", "did you mean 'topk'?"]),
            ("codecs none terngrad --json", "did you mean 'ternary'?"),
            (["scaler", a], "--codec is missing"),
            (["scaler", a, "--codec", "ternary:clop=2"], ["gradwire scaler: ", "clop"]),
            (["decode", a], "-o is missing"),
            (encode[:4], "--codec is missing"),
            ([*encode[:2], *encode[4:]], "-o is missing"),
            ([*encode[:1], *encode[2:]], "nothing to work on"),
            ([*encode, a], "one word too many"),
            ([*encode[:1], "", *encode[2:]], "is empty: encode takes one"),
            ([*encode, "-o", "-"], ["-o is '-'", "is not for binary files; name a file"]),
            ([*encode, "-o", ""], "-o is empty; name a file"),
            ([*encode, "--codec", ""], "--codec is empty; leave it away, or give a value"),
            ([*encode, "--seed="], "--seed is empty; "),
            ([*encode, "--codek", "none"], ["no option '--codek'", "did you mean '--codec'?"]),
            ([*encode, "--json=yes"], "--json takes no value"),
            ([*encode, "--rank", -1], ["--rank is '-1'", "from 0 to 32766"]),
            ([*encode, "--rank", 32767], "from 0 to 32766"),
            ([*encode, "--seed", 2**64], "whole number"),
            ([*encode, "--seed"], "--seed needs a value"),
            ([*encode, "--nonfinite", "maybe"], "stop or skip"),
            ([*encode, "--state", self.path("s")], "keeps nothing between calls"),
        ]
        self.each_refused(2, rows)
        # The last of an option counts.
        words = [*encode[:3], self.path("b.gw"), "--codec", "none", "--codec=bf16", "--seed=18446744073709551615"]
        self.assertEqual(self.ok_json(*words)["codec"], "bf16")

    @harness.needs_trainer
    def test_hints(self):
        """Some names that other programs have share too few letters with ours."""
        says = "put -- before the workers' command: gradwire launch -n N -- train ..."
        rows = [
            ("train --quit", "did you mean '--quiet'?"),
            ("train --learning-rate 0.1", "did you mean '--lr'?"),
            ("train --batch-size 64", "did you mean '--batch'?"),
            ("train --codec auto", ["only PyTorch's attach knows", "gradwire advise"]),
            ("train --out -", ["--out is '-'", "name a folder"]),
            (["export", "--from", self.folder, "-o", "-"], ["-o is '-'", "name a folder"]),
            ("launch -n 2 train --net lenet", ["no option '--net'", says]),
            ("launch -n 2 -- gradwire train", "leave gradwire away"),
            ("launch --hots x", "did you mean '--hosts'?"),
        ]
        self.each_refused(2, rows)
        # Every command that knows the tensors' names.
        says = "skip=conv9.weight fits no name here (conv1.weight, conv1.bias"
        rows = [
            f"train --net lenet --steps 1 --data {harness.PICTURES}",
            f"probe --net lenet --workers 2 -o {self.path('p.json')}",
            "predict --net alexnet --cluster eth-1g-gtx1080",
            "bench exchange --net alexnet",
        ]
        self.each_refused(2, [(words + " --codec ternary:skip=last+conv9.weight", says) for words in rows])


if __name__ == "__main__":
    harness.main()
