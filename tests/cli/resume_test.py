"""Tests train --resume from outside: killed runs, what is left of them, and what may change in between."""

import glob
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time

import harness
import pictures

RUN = ["--net", "mlp:784-16-10", "--codec", "topk:ratio=0.05,refresh=3", "--ema", 0.99]
COUNTED = [
    "nonzero_share",
    "variance_factor",
    "residual_norm",
    "threshold_age",
]  # only some steps have these; they are spread over the planned length
TIMES = ["step_ms", "compute_ms", "encode_ms", "wait_ms"]


@harness.needs_trainer
class Resume(harness.Case):
    """Runs of all tests have the same data. Most begin as copies of one run."""

    shared = whole = data = None

    @classmethod
    def setUpClass(cls):
        cls.shared = harness.tempfile.mkdtemp(prefix="gradwire-cli-")
        cls.data = os.path.join(cls.shared, "data")
        pictures.write_mnist(cls.data, 1)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared, ignore_errors=True)

    def setUp(self):
        super().setUp()
        self.words = [*RUN, "--data", self.data]

    def begun(self, name="run", until=None):
        """Returns a folder as an uninterrupted run leaves it. With `until` it is as an interrupted run leaves it, with
        checkpoints up to that step."""
        if not Resume.whole:
            made = os.path.join(self.shared, "run")
            self.ok("train", *self.words, "--workers", 4, "--steps", 30, "--checkpoint-every", 10, "--out", made)
            Resume.whole = made
        out = shutil.copytree(Resume.whole, self.path(name))
        self.interrupt(out, until)
        return out

    def interrupt(self, out, until):
        if until is None:
            return
        os.remove(os.path.join(out, "summary.json"))
        os.remove(os.path.join(out, "parameters.gwp"))
        for name in ["metrics.jsonl", "histograms.jsonl", "events.out.tfevents.0.gradwire"]:
            os.rename(os.path.join(out, name), os.path.join(out, name + ".partial"))
        for path in glob.glob(os.path.join(out, "checkpoint-*")):
            if int(os.path.basename(path)[11:19]) > until:
                os.remove(path)

    def resume(self, out, *more, workers=4, steps=30):
        """Goes on with a run. Returns the summary, and what the tool said."""
        done = self.run_tool(
            "train",
            *self.words,
            "--workers",
            workers,
            "--steps",
            steps,
            "--checkpoint-every",
            10,
            "--resume",
            out,
            "--json",
            *more,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def summary(self, out):
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
            return json.load(file)

    def metrics(self, out):
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]

    def events(self, out, counted):
        """Returns TensorBoard's events without their times. If not `counted`, those that only counted steps have are
        left out, too."""
        content, at, events = self.read_bytes(os.path.join(out, "events.out.tfevents.0.gradwire")), 0, []
        while at < len(content):
            (n,) = struct.unpack_from("<Q", content, at)
            # The event stands behind its length and the length's checksum. Its field 1 is the time.
            events.append(content[at + 12 + 9 : at + 12 + n])
            at += 12 + n + 4
        return [event for event in events if counted or not (b"codec/" in event or b"gradient/" in event)]

    def snapshot(self, out):
        return {name: self.read_bytes(os.path.join(out, name)) for name in os.listdir(out)}

    def check_same_run(self, out, reference, same_length=True):
        """Checks that everything but times is as an uninterrupted run writes it. same_length: the interrupted run had
        the same planned length."""
        lines = self.metrics(out), self.metrics(reference)
        for line in lines[0] + lines[1] if not same_length else []:
            for field in COUNTED:
                line.pop(field, None)
        self.assertEqual(*lines)
        got, want = self.summary(out), self.summary(reference)
        for field in [
            "parameter_hash",
            "steps",
            "skipped_steps",
            "test_accuracy",
            "train_accuracy",
            "train_loss",
            "bytes_up",
            "bytes_down",
            "dense_bytes",
            "residual_norm",
            "threshold_age",
        ] + ["nonzero_share", "variance_factor"] * same_length:
            self.assertEqual(got.get(field), want.get(field), field)
        self.assertTrue(got["replicas_identical"])
        self.assertEqual(sorted(os.listdir(out)), sorted(os.listdir(reference)))
        for name in os.listdir(reference):
            if name.endswith(".gws") or name == "parameters.gwp" or (name.endswith(".gwp") and same_length):
                self.assertEqual(
                    self.read_bytes(os.path.join(out, name)), self.read_bytes(os.path.join(reference, name)), name
                )
        if same_length:
            of_both = [self.read_bytes(os.path.join(folder, "histograms.jsonl")) for folder in (out, reference)]
            self.assertTrue(of_both[0])
            self.assertEqual(*of_both)
        self.assertEqual(self.events(out, same_length), self.events(reference, same_length))

    def newest(self, out):
        return max(
            [int(os.path.basename(path)[11:19]) for path in glob.glob(os.path.join(out, "checkpoint-*.gwp"))], default=0
        )

    def kill_after_a_checkpoint(self, run, out, seconds):
        before = self.newest(out)
        process = subprocess.Popen([harness.TOOL, *map(str, run), "--steps", "1000000"], stderr=subprocess.DEVNULL)
        while process.poll() is None and self.newest(out) == before:
            time.sleep(0.001)
        time.sleep(seconds)
        process.kill()
        self.assertEqual(process.wait(), -signal.SIGKILL)

    def test_killed_again_and_again(self):
        """Kills an endless run at random moments after new checkpoints. Then ends it."""
        out, reference = self.path("run"), self.path("reference")
        run = ["train", *self.words, "--workers", 4, "--schedule", "const", "--checkpoint-every", 5]
        moments = random.Random(7)
        for i in range(4):
            self.kill_after_a_checkpoint([*run, "--resume" if i else "--out", out], out, moments.uniform(0, 0.03))
        steps = self.newest(out) + 7
        self.ok(*run, "--steps", steps, "--resume", out)
        self.ok(*run, "--steps", steps, "--out", reference)
        self.check_same_run(out, reference, same_length=False)

    def test_interrupted(self):
        out = self.path("run")
        run = ["train", *self.words, "--workers", 4, "--steps", 2000, "--schedule", "const", "--checkpoint-every", 2000]
        process = subprocess.Popen([harness.TOOL, *map(str, run), "--out", out], stderr=subprocess.PIPE, text=True)
        lines = os.path.join(out, "metrics.jsonl.partial")
        while process.poll() is None and not (os.path.exists(lines) and os.path.getsize(lines)):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 1, said)
        self.assertIn(f"--resume goes on from there: {out}", said)
        self.assertNotIn("summary.json", os.listdir(out))
        steps = self.newest(out)
        self.assertIn(f"stopped after {steps} of 2000 steps", said)
        run[run.index(2000)] = steps + 4
        self.ok(*run, "--resume", out)
        self.ok(*run, "--out", self.path("reference"))
        for path in glob.glob(os.path.join(out, f"checkpoint-{steps:08}.*")):
            os.remove(path)  # the reference makes no checkpoint there
        self.check_same_run(out, self.path("reference"), same_length=False)

    def test_codecs_without_state(self):
        for optimizer, codec in [("sgd", "ternary"), ("momentum", "none"), ("adam", "bf16")]:
            run = [
                "train",
                "--net",
                "mlp:784-16-10",
                "--data",
                self.data,
                "--workers",
                3,
                "--codec",
                codec,
                "--optimizer",
                optimizer,
                "--steps",
                12,
                "--checkpoint-every",
                4,
            ]
            reference, out = self.path("reference-" + codec), self.path("run-" + codec)
            self.ok(*run, "--out", reference)
            self.assertEqual(glob.glob(os.path.join(reference, "*.gws")), [])
            shutil.copytree(reference, out)
            self.interrupt(out, 8)
            self.ok(*run, "--resume", out, "--out", out + "/")
            self.check_same_run(out, reference)

    def test_dropped_steps_are_counted_on(self):
        run = [
            "train",
            "--net",
            "mlp:784-16-10",
            "--data",
            self.data,
            "--lr",
            "1e30",
            "--steps",
            12,
            "--checkpoint-every",
            4,
        ]
        reference, out = self.path("reference"), self.path("run")
        self.ok(*run, "--out", reference)
        self.assertGreater(self.summary(reference)["skipped_steps"], 8)
        shutil.copytree(reference, out)
        self.interrupt(out, 8)
        self.ok(*run, "--resume", out)
        self.check_same_run(out, reference)

    def test_other_workers(self):
        for workers in [3, 8]:
            out = self.begun(f"run{workers}", until=20)
            summary, said = self.resume(out, workers=workers)
            self.assertIn(
                f"the run had 4 workers, and now has {workers}: each begins with the mean of what they kept",
                said,
            )
            self.assertIn("thresholds are taken afresh", said)
            self.assertTrue(summary["replicas_identical"])
            self.assertEqual(summary["workers"], workers)
            self.assertEqual(len(self.metrics(out)), 30)
            self.assertNotEqual(summary["parameter_hash"], self.summary(Resume.whole)["parameter_hash"])
            self.assertEqual(len(glob.glob(os.path.join(out, f"checkpoint-00000030.rank-*-of-{workers}.gws"))), workers)
            self.assertEqual(self.resume(out, workers=workers, steps=33)[0]["steps"], 33)

    def test_computing_threads(self):
        """If the number is not given, the run keeps its own. If another is given, the tool says so. (Checkpoints hold
        the number, so files differ if the numbers differ.)"""
        run = ["train", "--net", "mlp:784-16-10", "--data", self.data, "--steps", 12, "--checkpoint-every", 4]
        reference = self.path("reference")
        self.ok(*run, "--threads", 2, "--out", reference)
        for given in [[], ["--threads", 2], ["--threads", 1]]:
            out = shutil.copytree(reference, self.path("run" + "".join(map(str, given))))
            self.interrupt(out, 8)
            done = self.run_tool(*run, *given, "--resume", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            told = "the run had 2 computing threads a worker, and now has 1: from here on its results are not"
            self.assertEqual(told in done.stderr, given[1:] == [1], done.stderr)
            if given[1:] != [1]:
                self.check_same_run(out, reference)

    def test_residuals_are_averaged(self):
        """If only one element of a tensor is sent, and no parameter moves, residuals are sums of gradients. So their
        mean over the workers does not depend on how many workers there are."""
        run = ["train", *self.words, "--codec", "topk:ratio=1e-9,refresh=1", "--lr", 0, "--checkpoint-every", 2]
        made = self.path("made")
        self.ok(*run, "--workers", 4, "--steps", 2, "--out", made)

        def mean(out, workers):
            files = [
                self.read_f32(os.path.join(out, f"checkpoint-00000003.rank-{rank}-of-{workers}.gws"))
                for rank in range(workers)
            ]
            return [sum(values) / workers for values in zip(*files)]

        self.ok(*run, "--workers", 1, "--steps", 3, "--out", self.path("reference"))
        want = mean(self.path("reference"), 1)
        for workers in [1, 3, 8]:
            out = shutil.copytree(made, self.path(f"run{workers}"))
            self.ok(*run, "--workers", workers, "--steps", 3, "--resume", out)
            got = mean(out, workers)
            far = sum(not abs(a - b) <= 1e-5 for a, b in zip(got, want))
            self.assertEqual(len(got), len(want))
            self.assertLess(far, len(want) // 50)  # the heads of states differ, and elements that were sent

    def test_damaged_checkpoints(self):
        """If the newest checkpoint is not whole, the run goes on from the one before it. In the end all is as if nobody
        had interrupted the run."""

        def cut(path):
            self.write_bytes(path, self.read_bytes(path)[:-1])

        def altered(path):
            content = bytearray(self.read_bytes(path))
            content[len(content) // 2] ^= 1
            self.write_bytes(path, bytes(content))

        def of_another_step(path):
            shutil.copy(path.replace("00000020", "00000010"), path)

        for i, (name, damage, says) in enumerate(
            [
                ("checkpoint-00000020.rank-2-of-4.gws", os.remove, "cannot be opened"),
                ("checkpoint-00000020.rank-2-of-4.gws", cut, "cut short"),
                ("checkpoint-00000020.rank-0-of-4.gws", altered, "damaged"),
                ("checkpoint-00000020.rank-3-of-4.gws", of_another_step, "another run"),
                ("checkpoint-00000020.gwp", cut, "cut short"),
                ("checkpoint-00000020.gwp", of_another_step, "no checkpoint after 20 steps"),
            ]
        ):
            out = self.begun(f"run{i}", until=20)
            damage(os.path.join(out, name))
            said = self.resume(out)[1]
            for part in ["the checkpoint after 20 steps is not whole", name, says, "resumed after 10 of 30 steps"]:
                self.assertIn(part, said, f"{name} {says}")
            self.check_same_run(out, Resume.whole)

    def test_states_of_another_run(self):
        """The states of another run have the same names, step and sizes, but another learning rate. They are not
        mixed."""
        out, other = self.begun(until=20), self.path("other")
        self.ok(
            "train", *self.words, "--workers", 4, "--steps", 30, "--checkpoint-every", 10, "--lr", 0.02, "--out", other
        )
        name = "checkpoint-00000020.rank-1-of-4.gws"
        shutil.copy(os.path.join(other, name), os.path.join(out, name))
        said = self.resume(out)[1]
        self.assertIn("belongs to another run", said)
        self.check_same_run(out, Resume.whole)

    def test_no_whole_checkpoint(self):
        out = self.begun(until=20)
        for name in ["checkpoint-00000010.rank-1-of-4.gws", "checkpoint-00000020.rank-1-of-4.gws"]:
            os.remove(os.path.join(out, name))
        before = self.snapshot(out)
        self.refused(
            1,
            "train",
            *self.words,
            "--workers",
            4,
            "--steps",
            30,
            "--resume",
            out,
            says=[out, "none of its checkpoints is whole"],
        )
        self.assertEqual(self.snapshot(out), before)

    def test_nothing_to_resume(self):
        absent, out = self.path("absent"), self.path("run")
        self.refused(1, "train", *self.words, "--resume", absent, says=absent)
        self.assertFalse(os.path.exists(absent))
        os.mkdir(out)
        self.refused(1, "train", *self.words, "--resume", out, says=[out, "nothing to resume", "--checkpoint-every"])
        self.ok("train", *self.words, "--steps", 2, "--out", out)
        self.refused(1, "train", *self.words, "--resume", out, says=[out, "nothing to resume"])
        self.refused(1, "train", *self.words, "--out", out, says=f"--resume {out} goes on with it")

    def test_other_options(self):
        out, other = self.begun(until=20), self.path("other")
        pictures.write_mnist(other, 2)
        before = self.snapshot(out)
        for words, says in [
            (["--net", "mlp:784-17-10"], "--net is mlp:784-17-10, and the run of"),
            (["--codec", "topk:ratio=0.05,refresh=4"], ["--codec is topk", "refresh=4", "refresh=3"]),
            (["--codec", "ternary"], "--codec is ternary"),
            (["--seed", 2], "--seed is 2, and the run of"),
            (["--data", other], ["--data is 600+100 samples of 784 values, labels", "and the run of"]),
            (["--batch", 128], "--batch is 128"),
            (["--optimizer", "sgd"], "--optimizer is sgd"),
            (["--lr", 0.5], "--lr is 0.5"),
            (["--momentum", 0.5], "--momentum is 0.5"),
            (["--schedule", "const"], "--schedule is const"),
            (["--weight-decay", 0], "--weight-decay is 0"),
            (["--ema", 0], "--ema is 0"),
            (["--transform", "mirror"], ["--transform is mirror, and the run of", "has scale"]),
            (["--save-gradients", self.path("g"), "--save-at", 3], "--save-at has step 3, which is over"),
            (["--steps", 19], "the run is to have 19 steps"),
            (["--overwrite"], "only one can be given"),
            (["--out", self.folder], "a run goes on in its own folder"),
        ]:
            self.refused(2, "train", *self.words, "--workers", 4, "--steps", 30, "--resume", out, *words, says=says)
        self.assertEqual(self.snapshot(out), before)

    def test_alone(self):
        """--resume needs no other option, because the run's folder has them all. It works from any folder."""
        codec = "ternary:residual=on,momentum=0.8"
        spec = ["--net", "mlp:784-16-10", "--workers", 3, "--codec", codec, "--batch", 30]
        spec += [
            "--optimizer",
            "momentum",
            "--momentum",
            0.8,
            "--lr",
            "0.1",
            "--schedule",
            "step:1",
            "--l2",
            "1e-4",
            "--ema",
            "0.9",
        ]
        spec += ["--seed", 9, "--plan", "single", "--nonfinite", "stop", "--checkpoint-every", 4, "--epochs", 1]
        spec += ["--threads", 2, "--codec-threads", 2, "--timeout", 50]
        reference = self.path("reference")
        done = self.run_tool("train", *spec, "--data", "data", "--out", reference, cwd=self.shared)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(reference, "run.json"), encoding="utf-8") as file:
            kept = json.load(file)["options"]
        self.assertEqual(kept["data"], self.data)
        out = shutil.copytree(reference, self.path("run"))
        self.interrupt(out, 12)
        done = self.run_tool("train", "--resume", out, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("in place of", done.stderr)
        self.check_same_run(out, reference)
        with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["options"], kept)

    def test_given_beside(self):
        """An option beside --resume holds, the tool says so, and it holds in the next resumption, too."""
        out = self.begun(until=10)
        done = self.run_tool(
            "train", "--resume", out, "--workers", 2, "--steps", 40, "--checkpoint-every", 20, "--flat"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in [
            "--workers 2 in place of the run's 4",
            "--steps 40 in place of the run's 30",
            "--checkpoint-every 20 in place of the run's 10",
            "--flat, which the run did not have",
        ]:
            self.assertEqual(done.stderr.splitlines().count(line), 1, done.stderr)
        self.assertEqual(done.stderr.count("in place of"), 3, done.stderr)
        self.assertEqual(self.summary(out)["workers"], 2)
        self.interrupt(out, 20)
        done = self.run_tool("train", "--resume", out, "--epochs", 4)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--epochs in place of the run's --steps 40", done.stderr)
        self.assertEqual((self.summary(out)["workers"], self.summary(out)["steps"]), (2, 36))

    def test_data_that_are_gone(self):
        data, out = self.path("data"), self.begun(until=20)
        pictures.write_mnist(data, 1)
        self.ok(
            *"train --net mlp:784-8-10 --steps 4 --checkpoint-every 2 --data".split(), data, "--out", self.path("b")
        )
        want = self.ok_json("eval", "--from", self.path("b"))
        self.assertEqual((want["data"], want["samples"]), (data, 100))
        newest = os.path.join(self.path("b"), "checkpoint-00000004.gwp")
        self.assertEqual(self.ok_json("eval", "--from", newest)["test_accuracy"], want["test_accuracy"])
        moved = shutil.move(data, self.path("moved"))
        for words in [["eval", "--from"], ["train", "--steps", 6, "--resume"]]:
            self.refused(1, *words, self.path("b"), says=[f"were in {data}", "nothing is there now", "--data SOURCE"])
        got = self.ok_json("eval", "--from", self.path("b"), "--data", moved)
        self.assertEqual(got["test_accuracy"], want["test_accuracy"])
        pictures.write_mnist(data, 2)
        self.refused(1, "eval", "--from", self.path("b"), says=[f"{data} holds other data than the run of"])
        self.refused(2, "train", "--steps", 6, "--resume", self.path("b"), says=["--data is", "and the run of"])
        done = self.run_tool("train", "--steps", 6, "--resume", self.path("b"), "--data", moved)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"--data {moved} in place of the run's {data}", done.stderr)
        self.assertEqual(self.ok_json("eval", "--from", self.path("b"))["data"], moved)

    def test_folders_without_run_file(self):
        """Earlier versions wrote no run file. The tool does not guess what it would hold."""
        out = self.begun(until=20)
        os.remove(os.path.join(out, "run.json"))
        self.assertIn("there is no run.json in", self.resume(out)[1])
        newest = os.path.join(out, "checkpoint-00000030.gwp")
        os.remove(os.path.join(out, "run.json"))
        for path in [out, newest, shutil.copy(newest, self.path("alone.gwp"))]:
            self.refused(1, "eval", "--from", path, says=["does not say what data", "--data DIR"])
        self.refused(1, "eval", "--from", self.path("absent"), says="is not there")
        for text, says in [
            ("{", "run.json, line 1"),
            ("[]", "holds no options"),
            ('{"options": {"pace": 1}}', 'an option "pace"'),
            ('{"options": {"workers": "x"}}', "--workers"),
            ('{"options": {"data": 3}}', "a number is not what --data can be"),
            ('{"options": {"batch": 0}}', "so says the run.json"),
        ]:
            self.write_bytes(os.path.join(out, "run.json"), text.encode())
            self.refused(1, "train", "--resume", out, says=says)

    def test_finished(self):
        out = self.begun()
        before = self.snapshot(out)
        self.refused(
            1,
            "train",
            *self.words,
            "--workers",
            4,
            "--steps",
            30,
            "--resume",
            out,
            says=["finished run of 30 steps", "larger --steps"],
        )
        self.assertEqual(self.snapshot(out), before)
        # The run was killed after the last checkpoint, before it had saved all.
        self.interrupt(out, 30)
        self.resume(out)
        self.check_same_run(out, Resume.whole)
        summary, said = self.resume(out, steps=40)
        self.assertIn("was to have 30 steps, and now has 40; its learning rate falls by the new length", said)
        self.assertEqual([line["step"] for line in self.metrics(out)], list(range(40)))
        self.assertEqual((summary["steps"], summary["resumed_from"]), (40, 30))
        run = ["train", *self.words, "--workers", 4, "--checkpoint-every", 10, "--resume", out]
        self.kill_after_a_checkpoint(run, out, 0)
        self.assertNotIn("summary.json", os.listdir(out))
        # Else the parameters of the shorter run would count as the newest.
        self.refused(
            1, "eval", "--data", self.data, "--from", out, says=["holds no parameters.gwp", "a checkpoint can be named"]
        )
        newest = os.path.join(out, f"checkpoint-{self.newest(out):08}.gwp")
        self.assertEqual(self.ok_json("eval", "--data", self.data, "--from", newest)["step"], self.newest(out))

    def test_lost_metrics(self):
        out = self.begun(until=20)
        path = os.path.join(out, "metrics.jsonl.partial")
        self.write_bytes(path, b"".join(self.read_bytes(path).splitlines(True)[:15])[:-4])
        summary, said = self.resume(out)
        self.assertIn("lacks 6 of those steps", said)
        self.assertEqual([line["step"] for line in self.metrics(out)], [*range(14), *range(20, 30)])
        self.assertEqual(summary["parameter_hash"], self.summary(Resume.whole)["parameter_hash"])


if __name__ == "__main__":
    harness.main()
