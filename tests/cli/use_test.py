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

    def test_help(self):
        text = self.ok("help")
        for command in COMMANDS + ["train", "eval", "export", "probe"] * harness.HAS_TRAINER:
            self.assertIn(f"\n  {command} ", text)
            page = self.ok(command, "--help")
            self.assertIn("Example:", page, command)
        self.assertEqual(page, self.ok("help", command))
        self.assertEqual(text, self.ok("--help"))
        self.assertEqual(text, self.ok("help", "help"))

    def test_version(self):
        lines = self.ok("--version").splitlines()
        self.assertTrue(lines[0].startswith("gradwire 0."))
        words = {line.split()[0]: line.split()[1:] for line in lines}
        for part in ["compiler", "kernels", "oneDNN", "SQLite"]:
            self.assertTrue(words[part], part)
        self.assertIn(words["kernels"][0], LEVELS)

    def test_codecs(self):
        """parse_test has the listing itself. Names choose what is listed; the order stays that of the whole list."""
        listing, whole = self.ok_json("codecs"), self.ok("codecs")
        self.assertIn(listing["kernels"], LEVELS)
        names = [codec["name"] for codec in listing["codecs"]]
        ternary = listing["codecs"][names.index("ternary")]
        defaults = {option["key"]: option["default"] for option in ternary["options"]}
        self.assertEqual([defaults[key] for key in ("clip", "share", "bucket", "code")], ["2.5", "on", "0", "auto"])
        self.assertIn("what it costs in accuracy: docs/choosing.md", whole)
        self.assertTrue(all(f"{name}\n    " in whole for name in names), names)
        some = self.ok_json("codecs", "topk", "none", "topk")["codecs"]
        self.assertEqual(some, [codec for codec in listing["codecs"] if codec["name"] in ("none", "topk")])
        parts = whole.split("\n\n")
        (topk,) = (part for part in parts if part.startswith("topk\n"))
        self.assertIn("ratio=", topk)
        for spec in ("topk", "topk:ratio=0.01"):
            self.assertEqual(self.ok("codecs", spec), f"{topk}\n\n{parts[-1]}")
        rows = [
            ("top", ["no codec 'top'", "did you mean 'topk'?"]),
            ("none terngrad --json", "did you mean 'ternary'?"),
            ("topk:ratio=7", "ratio"),
        ]
        self.each_refused(2, "codecs", rows)

    def test_bench_codec(self):
        names = [codec["name"] for codec in self.ok_json("codecs")["codecs"]]
        lines = self.ok(*BENCH).splitlines()
        self.assertLessEqual(max(map(len, lines)), 120)
        begin = next(i for i, line in enumerate(lines) if line.startswith("codec "))
        rows = lines[begin + 1 : lines.index("", begin)]
        self.assertLessEqual(max(map(len, rows)), 100)
        self.assertEqual([re.split("[ :]", row)[0] for row in rows], names)
        bench = self.ok_json(*"bench codec --elements 10K --runs 2 --workers 3".split())
        self.assertEqual((bench["elements"], bench["threads"], bench["memcpy_seconds"] > 0), (10000, 1, True))
        codecs, operations = {row["codec"] for row in bench["results"]}, [
            "encode",
            "decode",
            "reduce",
            "decode_average",
        ]
        self.assertEqual(len(codecs), 12)
        rows = [(row["codec"], row["operation"]) for row in bench["results"]]
        self.assertEqual(sorted(rows), sorted((codec, operation) for codec in codecs for operation in operations))
        for row in bench["results"]:
            self.assertEqual(row["frame"], "push" if row["operation"] in operations[:2] else "average")
            self.assertGreater(row["elements_per_second"], 0)
            self.assertAlmostEqual(row["memcpy_ratio"], row["seconds"] / bench["memcpy_seconds"], places=9)
            self.assertTrue(row["codec"] != "none" or row["bits_per_element"] == 32)
        text = self.ok(*BENCH, "--codec", "ternary:code=mask", "--codec", "f16")
        self.assertTrue("ternary:code=mask" in text and "bf16" not in text, text)

    # ---- descriptors ----

    def test_open_files(self):
        """Every command raises its limit of open files as far as it may. The pipe for its output is full, so the
        command waits, and the test can look."""
        for words in (["help"], ["decode", "--help"]):
            reads, writes = os.pipe()
            with contextlib.ExitStack() as ends:
                ends.callback(os.close, reads)
                ends.callback(os.close, writes)
                os.set_blocking(writes, False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        os.write(writes, b"x" * 4096)
                os.set_blocking(writes, True)
                before = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.setrlimit(resource.RLIMIT_NOFILE, (50, before[1]))
                waits = self.start(*words, stdout=writes, stderr=subprocess.DEVNULL)
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
                raised = lambda: resource.prlimit(waits.pid, resource.RLIMIT_NOFILE) == (before[1], before[1])
                self.wait_until(waits, raised, f"{words}: the limit stays low")
                waits.kill()

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
        wide = self.states(self.on_terminal(words, 200))
        self.assertRegex(wide[-1], r"dropped .* images/s .*up 1/.* left$")
        self.assertNotIn("step 1/", self.said(*words, "--quiet", says="test accuracy"))
        bench = [*BENCH, "--codec", "ternary:code=mask,entropy=off,min=7"]
        self.assertTrue(0 < max(len(state) for state in self.states(self.on_terminal(bench, 40))) < 40)
        for quiet in (words, bench):
            self.assertEqual(self.states(self.on_terminal([*quiet, "--quiet"], 80)), [])
        self.assertIn("did you mean '--quiet'?", self.refused(2, "train", "--quit"))
        self.refused(2, "codecs", "--quiet", says="there is no option '--quiet'")

    def test_help_fits_the_terminal(self):
        wide = self.on_terminal(["codecs", "--help"], 300)
        self.assertGreater(max(map(len, wide.splitlines())), 80)
        for line in self.on_terminal(["server", "--help"], 70).split("Example:")[0].splitlines():
            self.assertLessEqual(len(line), 70, line)
        self.assertEqual(wide.replace("\r\n", "\n"), self.ok("codecs", "--help"))

    # ---- wrong use ----

    def test_commands_and_words(self):
        a, out = self.a, self.out
        rows = [
            ("", "a command is missing"),
            ("encod", ["no command 'encod'", "did you mean 'encode'?"]),
            ("frobnicate", "no command 'frobnicate'"),
            ("help inspekt", "did you mean 'inspect'?"),
            ("help encode decode", "'decode' is one word too many"),
            ("encode --codek none", ["no option '--codek'", "did you mean '--codec'?"]),
            ("inspect --xyzzy", "no option '--xyzzy'"),
            (["encode", a, "-o", out], "--codec is missing"),
            (["encode", a, "--codec", "none"], "-o is missing"),
            (["encode", "--codec", "none", "-o", out], "nothing to work on"),
            (["encode", a, a, "--codec", "none", "-o", out], "one word too many"),
            (["decode", a], "-o is missing"),
            (["reduce", "-o", out], "nothing to work on"),
            (["scaler", a], "--codec is missing"),
            ("bench", "bench codec"),
            ("bench codecs", f"there are bench codec{' and bench exchange' * harness.HAS_TRAINER}\n"),
            (["encode", a, "-o", out, "--codec", ""], "--codec is empty; leave it away, or give a value"),
            (["encode", a, "-o", out, "--codec=none", "--seed="], "--seed is empty; "),
            (["encode", a, "-o", "", "--codec", "none"], "-o is empty; name a file"),
            (["encode", "", "-o", out, "--codec", "none"], "is empty: encode takes one"),
            (["keys", "new", ""], "is empty: "),
            ("server --workers 1 --listen=", "--listen is empty; "),
        ]
        self.each_refused(2, rows)

    @harness.needs_trainer
    def test_hints(self):
        """Some names that other programs have share too few letters with ours."""
        says = "put -- before the workers' command: gradwire launch -n N -- train ..."
        rows = [
            ("train --learning-rate 0.1", "did you mean '--lr'?"),
            ("train --batch-size 64", "did you mean '--batch'?"),
            ("train --codec terngrad", "did you mean 'ternary'?"),
            ("train --codec auto", ["only PyTorch's attach knows", "gradwire advise"]),
            ("launch -n 2 train --net lenet", ["no option '--net'", says]),
            ("launch -n 2 -- gradwire train", "leave gradwire away"),
            ("launch --hots x", "did you mean '--hosts'?"),
        ]
        self.each_refused(2, rows)
        # Every command that knows the tensors' names.
        says = "skip=conv9.weight fits no name here (conv1.weight, conv1.bias"
        for words in (
            "train --net lenet --steps 1 --data " + harness.PICTURES,
            "probe --net lenet --workers 2 -o " + self.path("p.json"),
            "predict --net alexnet --cluster eth-1g-gtx1080",
            "bench exchange --net alexnet",
        ):
            self.refused(2, *words.split(), "--codec", "ternary:skip=last+conv9.weight", says=says)

    def test_option_values(self):
        """parse_test has more codecs that are not legal."""
        encode = ["encode", self.a, "-o", self.out, "--codec", "none"]
        rows = [
            ("--rank -1", ["--rank is '-1'", "from 0 to 32766"]),
            ("--rank 32767", "from 0 to 32766"),
            ("--step 4294967296", "from 0 to 4294967295"),
            ("--seed 1.5", "whole number"),
            ("--seed 18446744073709551616", "whole number"),
            ("--json=yes", "--json takes no value"),
            ("--help=yes", "--help takes no value"),
            ("--seed", "--seed needs a value"),
            ("--nonfinite maybe", "stop or skip"),
            (["--state", self.path("s")], "keeps nothing between calls"),
        ]
        self.each_refused(2, *encode, rows)
        for spec, says in [("ternery", "ternery"), ("ternary:clop=2", "clop"), ("ternary:clip=two", "clip")]:
            sentence = self.refused(2, *encode[:-1], spec, says=says)
            self.assertTrue(sentence.startswith("gradwire encode: "), sentence)
            self.refused(2, "scaler", "--codec", spec, self.a, says=says)
        self.refused(2, *BENCH, "--quiet=yes", says="--quiet takes no value")
        self.ok(*encode, "--seed=18446744073709551615")
        # The last of an option counts.
        words = [*encode[:-2], "--codec", "none", "--codec=bf16", "-o", self.path("b.gw")]
        os.remove(self.out)
        self.assertEqual(self.ok_json(*words)["codec"], "bf16")
        self.assertEqual([os.path.exists(self.path(name)) for name in ("a.gw", "b.gw")], [False, True])

    def test_outputs_are_no_streams(self):
        self.ok("encode", self.a, "--codec", "none", "-o", self.out)
        for words in [["encode", self.a, "--codec", "none"], ["decode", self.out], ["reduce", self.out]]:
            says = ["-o is '-'", "standard output is not for binary files; name a file"]
            self.refused(2, *words, "-o", "-", says=says)
        if harness.HAS_TRAINER:
            self.refused(2, "train", "--out", "-", says=["--out is '-'", "name a folder"])
            self.refused(2, "export", "--from", self.folder, "-o", "-", says=["-o is '-'", "name a folder"])


if __name__ == "__main__":
    harness.main()
