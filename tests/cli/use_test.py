"""Tests help, version and wrong use: exit statuses and sentences."""

import contextlib
import fcntl
import json
import os
import pty
import re
import resource
import struct
import subprocess
import termios
import time

import harness

COMMANDS = ["codecs", "launch", "keys", "encode", "decode", "scaler", "reduce", "inspect", "predict", "bench"]
COMMANDS += ["plan", "advise"]


class Use(harness.Case):
    def test_help(self):
        text = self.ok("help")
        for command in COMMANDS:
            self.assertIn(command, text)
            page = self.ok(command, "--help")
            self.assertIn("Example:", page, command)
            self.assertEqual(page, self.ok("help", command))
        self.assertEqual(text, self.ok("--help"))
        for command in ["train", "eval", "export", "probe"]:
            if f"\n  {command} " in text:
                self.assertIn("Example:", self.ok(command, "--help"), command)

    def test_version(self):
        lines = self.ok("--version").splitlines()
        self.assertTrue(lines[0].startswith("gradwire 0."))
        words = {line.split()[0]: line.split()[1:] for line in lines}
        for part in ["compiler", "kernels", "oneDNN", "SQLite"]:
            self.assertTrue(words[part], part)
        self.assertIn(words["kernels"][0], ["scalar", "avx2", "avx512", "neon"])

    def test_open_files(self):
        """Every command raises its limit of open files as far as it may. The pipe for its output is full, so the
        command waits, and the test can look."""
        for words in (["help"], ["codecs"], ["decode", "--help"]):
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
                waits = subprocess.Popen([harness.TOOL, *words], stdout=writes, stderr=subprocess.DEVNULL)
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
                ends.callback(waits.wait)
                ends.callback(waits.kill)
                deadline = time.monotonic() + 30
                while resource.prlimit(waits.pid, resource.RLIMIT_NOFILE) != (before[1], before[1]):
                    self.assertLess(time.monotonic(), deadline, f"{words}: the limit stays low")
                    self.assertIsNone(waits.poll(), words)
                    time.sleep(0.01)

    def test_no_or_unknown_command(self):
        self.refused(2, says="a command is missing")
        self.refused(2, "encod", says=["no command 'encod'", "did you mean 'encode'?"])
        self.refused(2, "frobnicate", says="no command 'frobnicate'")
        self.refused(2, "help", "inspekt", says="did you mean 'inspect'?")

    def test_unknown_option(self):
        self.refused(2, "encode", "--codek", "none", says=["no option '--codek'", "did you mean '--codec'?"])
        self.refused(2, "inspect", "--xyzzy", says="no option '--xyzzy'")

    @harness.needs_trainer
    def test_options_as_other_programs_call_them(self):
        """Some of their names have too few letters in common with ours."""
        self.refused(2, "train", "--learning-rate", "0.1", says="did you mean '--lr'?")
        self.refused(2, "train", "--batch-size", "64", says="did you mean '--batch'?")
        self.refused(2, "train", "--codec", "terngrad", says="did you mean 'ternary'?")

    def test_option_values(self):
        a = self.write_f32("a.f32", [1.0])
        out = self.path("a.gw")
        encode = ["encode", a, "-o", out, "--codec", "none"]
        self.refused(2, *encode, "--rank", "-1", says=["--rank is '-1'", "from 0 to 32766"])
        self.refused(2, *encode, "--rank", "32767", says="from 0 to 32766")
        self.refused(2, *encode, "--step", "4294967296", says="from 0 to 4294967295")
        self.refused(2, *encode, "--seed", "1.5", says="whole number")
        self.refused(2, *encode, "--seed", "18446744073709551616", says="whole number")
        self.refused(2, *encode, "--json=yes", says="--json takes no value")
        self.refused(2, *encode, "--seed", says="--seed needs a value")
        self.refused(2, *encode, "--nonfinite", "maybe", says="stop or skip")
        self.refused(2, *encode, "--state", self.path("s"), says="keeps nothing between calls")
        self.ok(*encode, "--seed=18446744073709551615")

    def test_the_last_of_an_option_counts(self):
        a = self.write_f32("a.f32", [1.0])
        words = ["encode", a, "-o", self.path("a.gw"), "--codec", "none", "--codec=bf16", "-o", self.path("b.gw")]
        self.assertEqual(self.ok_json(*words, "--json")["codec"], "bf16")
        self.assertEqual([os.path.exists(self.path(name)) for name in ("a.gw", "b.gw")], [False, True])

    def test_empty_words(self):
        a = self.write_f32("a.f32", [1.0])
        words = ["encode", a, "-o", self.path("a.gw")]
        self.refused(2, *words, "--codec", "", says="--codec is empty; leave it away, or give a value")
        self.refused(2, *words, "--codec=none", "--seed=", says="--seed is empty; ")
        self.refused(2, "encode", a, "-o", "", "--codec", "none", says="-o is empty; name a file")
        self.refused(2, "encode", "", "-o", self.path("a.gw"), "--codec", "none", says="is empty: encode takes one")
        self.refused(2, "keys", "new", "", says="is empty: ")
        self.refused(2, "server", "--workers", 1, "--listen=", says="--listen is empty; ")

    def test_closed_streams(self):
        """A file that the tool writes does not get the number of a stream that is closed."""
        a = self.write_f32("a.f32", [1.0, 2.0])
        self.ok("encode", a, "-o", self.path("whole.gw"), "--codec", "none")
        for closed in (">&-", "<&-", "2>&-", ">&- <&- 2>&-"):
            frame = self.path("x.gw")
            words = [harness.TOOL, "encode", a, "-o", frame, "--codec", "none", "--json"]
            done = subprocess.run(
                ["sh", "-c", f'exec "$@" {closed}', "sh", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            self.assertEqual(done.returncode, int(">&-" in closed.split()), closed)
            self.assertEqual(self.read_bytes(frame), self.read_bytes(self.path("whole.gw")), closed)
            os.remove(frame)
        # launch holds its remote workers by their standard input, whatever it has itself.
        self.write_bytes("hosts", b"127.0.0.1\n")
        self.write_bytes("shell", b'#!/bin/sh\n[ -p /proc/$$/fd/0 ] && exit 0\n')
        os.chmod(self.path("shell"), 0o755)
        words = [harness.TOOL, "launch", "--hosts", self.path("hosts"), "--ssh", self.path("shell"), "--", "train"]
        self.assertEqual(subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *words]).returncode, 0)

    # ---- what a terminal shows ----

    def on_terminal(self, words, columns, **said):
        """Runs the tool on a terminal of so many columns. Returns what it wrote there."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        words = [harness.TOOL, *map(str, words)]
        with subprocess.Popen(words, stdout=its, stderr=its, env={**environment, **said}) as run:
            os.close(its)
            written = b""
            with contextlib.suppress(OSError):  # Linux says EIO at the end
                while True:
                    piece = os.read(ours, 65536)
                    if not piece:
                        break
                    written += piece
        os.close(ours)
        self.assertEqual(run.returncode, 0, written)
        return written.decode()

    @staticmethod
    def states(written):
        """The states of the line of progress that a terminal shows."""
        return [state[: state.index("\033[K")] for state in written.split("\r") if "\033[K" in state]

    @harness.needs_trainer
    def test_progress_fits_the_terminal(self):
        words = ["train", "--net", "mlp:784-4-10", "--workers", 2, "--steps", 40, "--codec", "ternary", "--lr", "1e30"]
        for columns, said, most in (
            (80, {}, 80),
            (200, {"COLUMNS": "50"}, 50),
            (50, {"COLUMNS": "80"}, 50),
            (0, {}, 80),
        ):
            states = self.states(self.on_terminal(words, columns, **said))
            self.assertTrue(states)
            for state in states:
                self.assertLess(len(state), most, state)
                self.assertRegex(state, r"^step \d+/40  .* left$")
        wide = self.states(self.on_terminal(words, 200))
        self.assertRegex(wide[-1], r"dropped .* images/s .*up 1/.* left$")

    @harness.needs_trainer
    def test_quiet(self):
        words = ["train", "--net", "mlp:784-4-10", "--steps", 4, "--quiet"]
        self.assertEqual(self.states(self.on_terminal(words, 80)), [])
        said = self.run_tool(*words).stderr
        self.assertNotIn("step 1/4", said)
        self.assertIn("test accuracy", said)
        self.assertIn("did you mean '--quiet'?", self.refused(2, "train", "--quit"))
        self.refused(2, "codecs", "--quiet", says="there is no option '--quiet'")
        measure = ["bench", "codec", "--elements", 1000, "--runs", 1]
        self.assertTrue(self.states(self.on_terminal([*measure, "--codec", "ternary"], 40)))
        for state in self.states(self.on_terminal([*measure, "--codec", "ternary:code=mask,entropy=off,min=7"], 40)):
            self.assertLess(len(state), 40)
        self.assertEqual(self.states(self.on_terminal([*measure, "--codec", "none", "--quiet"], 80)), [])

    def test_help_fits_the_terminal(self):
        wide = self.on_terminal(["codecs", "--help"], 300)
        self.assertGreater(max(map(len, wide.splitlines())), 80)
        for line in self.on_terminal(["server", "--help"], 70).split("Example:")[0].splitlines():
            self.assertLessEqual(len(line), 70, line)
        self.assertEqual(wide.replace("\r\n", "\n"), self.ok("codecs", "--help"))

    def test_bench_codec_has_a_line_for_each_codec(self):
        names = [codec["name"] for codec in json.loads(self.ok("codecs", "--json"))["codecs"]]
        lines = self.ok("bench", "codec", "--elements", 5000, "--runs", 1).splitlines()
        self.assertLessEqual(max(map(len, lines)), 120)
        begin = next(i for i, line in enumerate(lines) if line.startswith("codec "))
        rows = lines[begin + 1 : lines.index("", begin)]
        self.assertLessEqual(max(map(len, rows)), 100)
        self.assertEqual([re.split("[ :]", row)[0] for row in rows], names)
        results = self.ok_json("bench", "codec", "--elements", 5000, "--runs", 1)["results"]
        self.assertEqual(len(results), 4 * 12)
        self.assertEqual({row["operation"] for row in results}, {"encode", "decode", "reduce", "decode_average"})

    @harness.needs_trainer
    def test_hints(self):
        says = "put -- before the workers' command: gradwire launch -n N -- train ..."
        self.refused(2, "launch", "-n", 2, "train", "--net", "lenet", says=["no option '--net'", says])
        self.refused(2, "launch", "-n", 2, "--", "gradwire", "train", says="leave gradwire away")
        self.refused(2, "launch", "--hots", "x", says="did you mean '--hosts'?")
        self.refused(2, "train", "--codec", "auto", says=["only PyTorch's attach knows", "gradwire advise"])

    def test_missing_words(self):
        a = self.write_f32("a.f32", [1.0])
        self.refused(2, "encode", a, "-o", self.path("a.gw"), says="--codec is missing")
        self.refused(2, "encode", a, "--codec", "none", says="-o is missing")
        self.refused(2, "encode", "--codec", "none", "-o", self.path("a.gw"), says="nothing to work on")
        self.refused(2, "encode", a, a, "--codec", "none", "-o", self.path("a.gw"), says="one word too many")
        self.refused(2, "decode", a, says="-o is missing")
        self.refused(2, "reduce", "-o", self.path("a.gw"), says="nothing to work on")
        self.refused(2, "scaler", a, says="--codec is missing")
        self.refused(2, "bench", says="bench codec")
        more = " and bench exchange" if harness.HAS_TRAINER else ""
        self.refused(2, "bench", "codecs", says=f"there are bench codec{more}\n")

    def test_outputs_are_no_streams(self):
        a = self.write_f32("a.f32", [1.0])
        self.ok("encode", a, "--codec", "none", "-o", self.path("a.gw"))
        for words in [
            ["encode", a, "--codec", "none", "-o", "-"],
            ["decode", self.path("a.gw"), "-o", "-"],
            ["reduce", self.path("a.gw"), "-o", "-"],
        ]:
            self.refused(2, *words, says=["-o is '-'", "standard output is not for binary files; name a file"])
        if harness.HAS_TRAINER:
            self.refused(2, "train", "--out", "-", says=["--out is '-'", "name a folder"])
            self.refused(2, "export", "--from", self.folder, "-o", "-", says=["-o is '-'", "name a folder"])

    def test_codec_specifications(self):
        a = self.write_f32("a.f32", [1.0, 2.0])
        for spec, says in [
            ("ternery", "ternery"),
            ("", "codec"),
            ("ternary:clop=2", "clop"),
            ("ternary:clip=-1", "clip"),
            ("ternary:clip=two", "clip"),
            ("ternary:clip=1,clip=2", "clip"),
            ("ternary:code=3bit", "code"),
            ("ternary:bucket=-5", "bucket"),
            ("none:clip=1", "clip"),
        ]:
            sentence = self.refused(2, "encode", "--codec", spec, a, "-o", self.path("a.gw"), says=says)
            self.assertTrue(sentence.startswith("gradwire encode: "), sentence)
            self.refused(2, "scaler", "--codec", spec, a, says=says)

    @harness.needs_trainer
    def test_names_in_skip_must_fit(self):
        """Every command that knows the tensors' names."""
        for words in (
            ["train", "--net", "lenet", "--data", "digits", "--steps", "1"],
            ["probe", "--net", "lenet", "--workers", "2", "-o", self.path("p.json")],
            ["predict", "--net", "alexnet", "--cluster", "eth-1g-gtx1080"],
            ["bench", "exchange", "--net", "alexnet"],
        ):
            says = "skip=conv9.weight fits no name here (conv1.weight, conv1.bias"
            self.refused(2, *words, "--codec", "ternary:skip=last+conv9.weight", says=says)

    def test_codecs(self):
        listing = self.ok_json("codecs")
        self.assertIn(listing["kernels"], ["scalar", "avx2", "avx512", "neon"])
        names = [codec["name"] for codec in listing["codecs"]]
        for name in ["none", "bf16", "f16", "ternary"]:
            self.assertIn(name, names)
        ternary = listing["codecs"][names.index("ternary")]
        defaults = {option["key"]: option["default"] for option in ternary["options"]}
        for key, value in [
            ("clip", "2.5"),
            ("share", "on"),
            ("bucket", "0"),
            ("scope", "layer"),
            ("min", "0"),
            ("code", "auto"),
            ("pull", "auto"),
            ("entropy", "auto"),
        ]:
            self.assertEqual(defaults[key], value, key)
        text = self.ok("codecs")
        self.assertIn("what it costs in accuracy: docs/choosing.md", text)
        for name in names:
            self.assertIn(f"{name}\n    ", text)
        for name in names:
            self.assertEqual(self.ok_json("codecs", name)["codecs"], [listing["codecs"][names.index(name)]])

    def test_some_codecs(self):
        """Names choose what is listed. The order stays that of the whole list."""
        names = [codec["name"] for codec in self.ok_json("codecs", "topk", "none", "topk")["codecs"]]
        self.assertEqual(names, ["none", "topk"])
        whole, text = self.ok("codecs"), self.ok("codecs", "topk")
        self.assertTrue(text.startswith("topk\n"), text)
        self.assertIn("ratio=", text)
        parts = whole.split("\n\n")
        (topk,) = (part for part in parts if part.startswith("topk\n"))
        self.assertEqual(text, f"{topk}\n\n{parts[-1]}")
        self.assertEqual(self.ok("codecs", "topk:ratio=0.01"), text)
        self.refused(2, "codecs", "top", says=["no codec 'top'", "did you mean 'topk'?"])
        self.refused(2, "codecs", "none", "terngrad", "--json", says="did you mean 'ternary'?")
        self.refused(2, "codecs", "topk:ratio=7", says="ratio")

    def test_bench(self):
        bench = self.ok_json("bench", "codec", "--elements", "10K", "--runs", "2", "--workers", "3")
        self.assertEqual(bench["elements"], 10000)
        self.assertEqual(bench["threads"], 1)
        self.assertGreater(bench["memcpy_seconds"], 0)
        self.assertIn(bench["cpu"], ["scalar", "avx2", "avx512", "neon"])
        codecs = {row["codec"] for row in bench["results"]}
        for part in ["none", "bf16", "ternary"]:
            self.assertIn(part, codecs)
        for code in ["2bit", "base3", "mask"]:
            self.assertTrue(any(f"code={code}" in codec for codec in codecs), code)
        operations = ["encode", "decode", "reduce", "decode_average"]
        rows = [(row["codec"], row["operation"]) for row in bench["results"]]
        self.assertEqual(sorted(rows), sorted((codec, operation) for codec in codecs for operation in operations))
        for row in bench["results"]:
            self.assertEqual(row["frame"], "push" if row["operation"] in ["encode", "decode"] else "average")
            self.assertGreater(row["elements_per_second"], 0)
            self.assertAlmostEqual(row["memcpy_ratio"], row["seconds"] / bench["memcpy_seconds"], places=9)
            if row["codec"] == "none":
                self.assertEqual(row["bits_per_element"], 32)
        text = self.ok(
            "bench", "codec", "--elements", "5K", "--runs", "1", "--codec", "ternary:code=mask", "--codec", "f16"
        )
        self.assertIn("ternary:code=mask", text)
        self.assertNotIn("bf16", text)

    def test_levels_agree(self):
        """Checks that the instruction set changes no byte."""
        a = self.write_f32("a.f32", harness.gaussians(5000, 3))
        frames = []
        for level in ["scalar", "avx2", "avx512"]:
            out = self.path(level + ".gw")
            done = self.run_tool("encode", "--codec", "ternary:code=mask", a, "-o", out, env={"GRADWIRE_CPU": level})
            self.assertEqual(done.returncode, 0, done.stderr)
            frames.append(self.read_bytes(out))
        self.assertEqual(frames[0], frames[1])
        self.assertEqual(frames[0], frames[2])


if __name__ == "__main__":
    harness.main()
