"""Tests train --resume from outside: killed runs, what is left of them, and what may change in between. C tests have
the parts: checkpoint_test and rank_state_test damage of each file, resume_test which checkpoint is taken and other
options, metrics_test and histograms_test lines and events that are gone on with, the codecs' tests states of other
versions and for other workers, convex_test every optimizer beside codecs without state. networks_test has more."""

import glob
import os
import random
import re
import shutil
import signal
import subprocess
import time

import harness
import pictures

RUN = [*harness.SMALL, "--codec", "topk:ratio=0.05,refresh=3", "--ema", 0.99]
FOUR = [*RUN, "--workers", 4, "--checkpoint-every", 10, "--steps"]
# Only some steps have these. They are spread over the planned length.
COUNTED = ["nonzero_share", "variance_factor", "residual_norm", "threshold_age"]
TIMES = ["step_ms", "compute_ms", "encode_ms", "wait_ms"]
SAME = ["parameter_hash", "steps", "skipped_steps", "test_accuracy", "train_accuracy", "train_loss", "bytes_up"]
SAME += ["bytes_down", "dense_bytes", "residual_norm", "threshold_age"]


def interrupt(out, until):
    """Makes of the folder of a finished run that of an interrupted one, with checkpoints up to a step."""
    os.remove(os.path.join(out, "summary.json"))
    os.remove(os.path.join(out, "parameters.gwp"))
    for name in ["metrics.jsonl", "histograms.jsonl", "events.out.tfevents.0.gradwire"]:
        os.rename(os.path.join(out, name), os.path.join(out, name + ".partial"))
    for path in glob.glob(os.path.join(out, "checkpoint-*")):
        if int(os.path.basename(path)[11:19]) > until:
            os.remove(path)


def newest(out):
    checkpoints = glob.glob(os.path.join(out, "checkpoint-*.gwp"))
    return max([int(os.path.basename(path)[11:19]) for path in checkpoints], default=0)


@harness.needs_trainer
class Resume(harness.Case):
    """Most runs begin as copies of one run."""

    whole = os.path.join(harness.PICTURES, "whole")

    def begun(self, name="run", until=None):
        """Returns a folder as an uninterrupted run leaves it. With `until` it is as an interrupted run leaves it."""
        if not os.path.exists(self.whole):
            self.ok("train", *FOUR, 30, "--out", self.whole)
        out = shutil.copytree(self.whole, self.path(name))
        if until is not None:
            interrupt(out, until)
        return out

    def resume(self, out, *words, says=()):
        """Goes on with a run, and must say these words. Returns the summary."""
        self.said("train", *words, "--resume", out, says=says)
        return self.summary(out)

    def summary(self, out):
        return self.json_of(out, "summary.json")

    def metrics(self, out, without=()):
        lines = self.lines_of(out, "metrics.jsonl")
        return [{key: value for key, value in line.items() if key not in [*TIMES, *without]} for line in lines]

    def check_same_run(self, out, reference, same_length=True):
        """Checks that everything but times is as an uninterrupted run writes it. same_length: the interrupted run had
        the same planned length."""
        without = () if same_length else COUNTED
        self.assertEqual(self.metrics(out, without), self.metrics(reference, without))
        got, want = self.summary(out), self.summary(reference)
        for field in SAME + COUNTED[:2] * same_length:
            self.assertEqual(got.get(field), want.get(field), field)
        self.assertTrue(got["replicas_identical"])
        got, want = self.contents(out), self.contents(reference)
        self.assertEqual(sorted(got), sorted(want))
        for name in want:
            if name.endswith(".gws") or name == "parameters.gwp" or (same_length and re.search("gwp$|^histo", name)):
                self.assertEqual(got[name], want[name], name)

    # ---- interrupted runs ----

    def kill_after_a_checkpoint(self, out, seconds, *run):
        before = newest(out)
        process = self.start(*run, stderr=subprocess.DEVNULL)
        self.wait_until(process, lambda: newest(out) != before, "it makes no checkpoint")
        time.sleep(seconds)
        process.kill()
        self.assertEqual(process.wait(60), -signal.SIGKILL)

    def test_killed_again_and_again(self):
        """Kills an endless run at random moments after new checkpoints, and interrupts it in the end."""
        out, reference = self.path("run"), self.path("reference")
        run = ["train", *RUN, "--workers", 4, "--schedule", "const", "--checkpoint-every", 5, "--steps"]
        moments = random.Random(7)
        for i in range(4):
            self.kill_after_a_checkpoint(
                out, moments.uniform(0, 0.03), *run, 1000000, "--resume" if i else "--out", out
            )
        killed = newest(out)
        process = self.start(*run, 1000000, "--resume", out)
        self.wait_until(process, lambda: newest(out) != killed, "it makes no checkpoint")
        process.send_signal(signal.SIGINT)
        said = self.ended(process, 1, f"--resume goes on from there: {out}")
        self.assertNotIn("summary.json", os.listdir(out))
        steps = newest(out)
        self.assertIn(f"stopped after {steps} of 1000000 steps", said)
        self.ok(*run, steps + 7, "--resume", out)
        self.ok(*run, steps + 7, "--out", reference)
        for path in glob.glob(os.path.join(out, f"checkpoint-{steps:08}.*")) if steps % 5 else []:
            os.remove(path)  # the reference makes no checkpoint there
        self.check_same_run(out, reference, same_length=False)

    # ---- what is left of a run ----

    def test_files_that_lost_something(self):
        """If the newest checkpoint is not whole, the run goes on from the one before it. What is gone is told, and does
        not change what is learnt."""
        out, name = self.begun(until=20), "checkpoint-00000020.rank-1-of-4.gws"
        for name, damage in [
            (name, lambda data: data[:-1]),
            ("metrics.jsonl.partial", lambda data: b"".join(data.splitlines(True)[:7])[:-4]),
            ("events.out.tfevents.0.gradwire.partial", lambda data: data[:1000]),
            ("histograms.jsonl.partial", lambda data: data.replace(b'\n{"step"', b'\n{"stop"', 1)),
        ]:
            self.write_bytes(os.path.join(out, name), damage(self.read_bytes(out, name)))
        says = ["the checkpoint after 20 steps is not whole", "rank-1-of-4.gws", "resumed after 10 of 30 steps"]
        says += ["lacks 4 of those steps", "do not count 4 of the 30 steps", "gradwire lacks the last "]
        summary = self.resume(out, *FOUR, 30, says=[*says, "histograms.jsonl was damaged"])
        whole = self.summary(self.whole)
        self.assertEqual((summary["missing_steps"], whole["missing_steps"]), (4, 0))
        self.assertEqual([line["step"] for line in self.metrics(out)], [*range(6), *range(10, 30)])
        self.assertEqual(summary["parameter_hash"], whole["parameter_hash"])
        path = os.path.join(self.begun("cut", until=20), "histograms.jsonl.partial")
        self.write_bytes(path, self.read_bytes(path)[:-3])  # a kill may do this, and no step is lost by it
        said = self.said("train", *FOUR, 30, "--resume", self.path("cut"), "--out", self.path("cut/"))
        self.assertNotRegex(said, "lacks the|was damaged")
        self.check_same_run(self.path("cut"), self.whole)

    def test_nothing_to_resume(self):
        """A run that cannot go on keeps what it had."""
        out, resume = self.path("run"), ["train", *FOUR, 30, "--resume"]
        self.refused(1, *resume, self.path("absent"), says=self.path("absent"))
        self.assertFalse(os.path.exists(self.path("absent")))
        self.ok("train", *RUN, "--steps", 2, "--out", out)
        self.refused(1, *resume, out, says=[out, "nothing to resume", "--checkpoint-every"])
        self.refused(1, "train", *RUN, "--out", out, says=f"--resume {out} goes on with it")
        out, whole = self.begun("begun", until=20), self.begun("whole")
        for name in ["checkpoint-00000010.rank-1-of-4.gws", "checkpoint-00000020.rank-1-of-4.gws"]:
            os.remove(os.path.join(out, name))
        before = self.contents(out), self.contents(whole)
        self.refused(1, *resume, out, says=[out, "none of its checkpoints is whole"])
        self.refused(1, *resume, whole, says=["finished run of 30 steps", "larger --steps"])
        self.assertEqual((self.contents(out), self.contents(whole)), before)

    def test_finished(self):
        """The run was killed after the last checkpoint, before it had saved all."""
        out = self.begun(until=30)
        summary = self.resume(out, *FOUR, 30)
        self.check_same_run(out, self.whole)
        self.assertEqual({layer["push_bits"] for layer in summary["layers"]}, {None})  # it made no step
        says = "was to have 30 steps, and now has 40; its learning rate falls by the new length"
        summary = self.resume(out, *FOUR, 40, says=says)
        self.assertEqual([line["step"] for line in self.metrics(out)], list(range(40)))
        self.assertEqual((summary["steps"], summary["resumed_from"]), (40, 30))
        self.kill_after_a_checkpoint(out, 0, "train", *FOUR, 1000000, "--resume", out)
        self.assertNotIn("summary.json", os.listdir(out))
        # Else the parameters of the shorter run would count as the newest.
        says = ["holds no parameters.gwp", "a checkpoint can be named"]
        self.refused(1, "eval", "--data", harness.PICTURES, "--from", out, says=says)
        path = os.path.join(out, f"checkpoint-{newest(out):08}.gwp")
        self.assertEqual(self.ok_json("eval", "--data", harness.PICTURES, "--from", path)["step"], newest(out))

    # ---- options ----

    def test_other_options(self):
        out, other = self.begun(until=20), self.path("other")
        pictures.write_mnist(other, 1)
        path = os.path.join(other, "t10k-images-idx3-ubyte")  # one pixel of a test picture differs
        content = self.read_bytes(path)
        self.write_bytes(path, content[:-1] + bytes([content[-1] ^ 1]))
        before = self.contents(out)
        rows = [
            ("--net mlp:784-17-10", "--net is mlp:784-17-10, and the run of"),
            (["--data", other], ["--data is 600+100 samples of 784 values, hash", "and the run of"]),
            (["--save-gradients", self.path("g"), "--save-at", 3], "--save-at has step 3, which is over"),
            ("--steps 19", "the run is to have 19 steps"),
            ("--overwrite", "only one can be given"),
            (["--out", self.folder], "a run goes on in its own folder"),
        ]
        self.each_refused(2, "train", *FOUR, 30, "--resume", out, rows)
        self.assertEqual(self.contents(out), before)

    def test_alone(self):
        """--resume needs no other option, because the run's folder has them all. It works from any folder."""
        spec = "--net mlp:784-16-10 --workers 3 --codec ternary:residual=on,momentum=0.8 --batch 30 --seed 9 --epochs 1"
        spec += " --optimizer momentum --momentum 0.8 --lr 0.1 --schedule step:1 --l2 1e-4 --ema 0.9 --plan single"
        spec += " --nonfinite stop --checkpoint-every 4 --threads 2 --codec-threads 2 --timeout 50 --data"
        reference, (above, name) = self.path("reference"), os.path.split(harness.PICTURES)
        self.ok("train", *spec.split(), name, "--out", reference, cwd=above)
        kept = self.json_of(reference, "run.json")["options"]
        self.assertEqual(kept["data"], harness.PICTURES)
        out = shutil.copytree(reference, self.path("run"))
        interrupt(out, 12)
        self.assertNotIn("in place of", self.said("train", "--resume", out, cwd=self.folder))
        self.check_same_run(out, reference)
        self.assertEqual(self.json_of(out, "run.json")["options"], kept)

    def test_given_beside(self):
        """An option beside --resume holds, the tool says so, and it holds in the next resumption, too."""
        out = self.begun(until=10)
        words = ["--workers", 6, "--steps", 40, "--checkpoint-every", 20, "--flat", "--threads", 2]
        lines = ["--workers 6 in place of the run's 4\n", "--steps 40 in place of the run's 30\n"]
        lines += ["--checkpoint-every 20 in place of the run's 10\n", "\n--flat, which the run did not have\n"]
        lines += ["the run had 4 workers, and now has 6: each begins with the mean of what they kept"]
        lines += ["the run had 1 computing thread a worker, and now has 2: from here on its results are not"]
        said = self.said("train", "--resume", out, *words, says=[*lines, "thresholds are taken afresh"])
        self.assertEqual(said.count("in place of"), 3, said)
        summary = self.summary(out)
        self.assertEqual((summary["replicas_identical"], summary["workers"]), (True, 6))
        self.assertEqual(len(glob.glob(os.path.join(out, "checkpoint-00000040.rank-*-of-6.gws"))), 6)
        interrupt(out, 20)
        says = "--epochs in place of the run's --steps 40"
        self.said("train", "--resume", out, "--epochs", 4, says=says)
        self.assertEqual((self.summary(out)["workers"], self.summary(out)["steps"]), (6, 36))

    def test_data_that_are_gone(self):
        data, run = self.path("data"), self.path("run")
        pictures.write_mnist(data, 1)
        self.ok("train", *"--net mlp:784-8-10 --steps 4 --checkpoint-every 2 --out".split(), run, "--data", data)
        want = self.ok_json("eval", "--from", run)
        self.assertEqual((want["data"], want["samples"]), (data, 100))
        moved = shutil.move(data, self.path("moved\nthere"))
        for words in [["eval", "--from"], ["train", "--steps", 6, "--resume"]]:
            self.refused(1, *words, run, says=[f"were in {data}", "nothing is there now", "--data SOURCE"])
        got = self.ok_json("eval", "--from", run, "--data", moved)
        self.assertEqual(got["test_accuracy"], want["test_accuracy"])
        pictures.write_mnist(data, 2)
        self.refused(1, "eval", "--from", run, says=[f"{data} holds other data than the run of"])
        says = "--data " + self.path(r"moved\x0athere") + f" in place of the run's {data}"
        self.said("train", "--steps", 6, "--resume", run, "--data", moved, says=says)
        self.assertEqual(self.ok_json("eval", "--from", run)["data"], moved)

    def test_folders_without_run_file(self):
        """The tool does not guess what a run file would hold."""
        out = self.begun(until=20)
        last = os.path.join(out, "checkpoint-00000020.gwp")
        os.remove(os.path.join(out, "run.json"))
        self.refused(1, "train", "--resume", out, says="there is no run.json in")
        for path in [out, last, shutil.copy(last, self.path("alone.gwp"))]:
            self.refused(1, "eval", "--from", path, says=["does not say what data", "--data DIR"])
        self.refused(1, "eval", "--from", self.path("absent"), says="is not there")
        for text, says in [
            ("{", "run.json, line 1"),
            ('{"options": {"pace": 1}}', 'an option "pace"'),
            ('{"options": {"data": 3}}', "a number is not what --data can be"),
            ('{"options": {"batch": 0}}', "so says the run.json"),
        ]:
            self.write_bytes(os.path.join(out, "run.json"), text.encode())
            self.refused(1, "train", "--resume", out, says=says)


if __name__ == "__main__":
    harness.main()
