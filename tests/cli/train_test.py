"""Tests train, eval and export from outside: small runs on drawn digits, data files that are wrong, interruption."""

import gzip
import json
import math
import os
import signal
import struct
import subprocess
import time

import harness

RUN_FILES = [
    "events.out.tfevents.0.gradwire",
    "histograms.jsonl",
    "metrics.jsonl",
    "parameters.gwp",
    "run.json",
    "summary.json",
]
SMALL = ["--net", "mlp:784-16-10", "--data", harness.PICTURES, "--steps", "30"]


def images(n, magic=0x803, side=28, claimed=None):
    return struct.pack(">IIII", magic, n if claimed is None else claimed, side, side) + bytes(n * side * side)


def labels(n, magic=0x801, label=3):
    return struct.pack(">II", magic, n) + bytes([label]) * n


@harness.needs_trainer
class Train(harness.Case):
    def data(self, **changed):
        """Makes a folder with MNIST's file names, which hold 64 black images."""
        files = {
            "train-images-idx3-ubyte": images(64),
            "train-labels-idx1-ubyte": labels(64),
            "t10k-images-idx3-ubyte": images(64),
            "t10k-labels-idx1-ubyte": labels(64),
        }
        for name, content in changed.items():
            files[[key for key in files if key.startswith(name.replace("_", "-"))][0]] = content
        folder = self.path("data")
        os.makedirs(folder, exist_ok=True)
        for name, content in files.items():
            path = os.path.join(folder, name)
            if content is not None:
                self.write_bytes(path, content)
            elif os.path.exists(path):
                os.remove(path)
        return folder

    def test_two_runs_one_folder(self):
        out = self.path("run")
        first = subprocess.Popen(
            [harness.TOOL, "train", *SMALL[:-1], "100000", "--out", out], stderr=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 60
            while not os.path.exists(os.path.join(out, "run.json")):
                self.assertLess(time.monotonic(), deadline, "the run wrote nothing in a minute")
                time.sleep(0.02)
            self.refused(1, "train", *SMALL, "--out", out, says="another run is writing")
        finally:
            first.kill()
            first.wait()
        left = ["events.out.tfevents.0.gradwire.partial", "histograms.jsonl.partial", "metrics.jsonl.partial"]
        left.append("run.json")
        self.assertEqual(sorted(os.listdir(out)), left)
        self.refused(1, "train", *SMALL, "--out", out, says=[out, f"an earlier run ({left[0]} and 3 other files)"])
        self.assertEqual(sorted(os.listdir(out)), left)
        for name in [
            "checkpoint-00000100.gwp.partial",
            "checkpoint-00000100.rank-0-of-4.gws.partial",
            "checkpoint-00000100.rank-11-of-12.gws",
            "parameters.gwp.partial",
            "summary.json.partial",
        ]:
            self.write_bytes(os.path.join(out, name), b"")
        self.ok("train", *SMALL, "--out", out, "--overwrite")
        self.assertEqual(sorted(os.listdir(out)), RUN_FILES)

    def test_earlier_run(self):
        out = self.path("run")
        self.ok("train", *SMALL, "--out", out, "--checkpoint-every", 10)
        foreign = [
            "checkpoint-1.gwp",
            "checkpoint-00000010.rank-01-of-4.gws",
            "checkpoint-00000010.gwp.old",
            "my.metrics.jsonl",
            "notes.txt",
            "partial",
        ]
        for name in foreign:
            self.write_bytes(os.path.join(out, name), b"mine")
        before = {name: self.read_bytes(os.path.join(out, name)) for name in os.listdir(out)}
        self.assertEqual(len(before), 9 + len(foreign))
        refusal = [out, "an earlier run (checkpoint-00000010.gwp and 8 other files)", "--overwrite"]
        self.refused(1, "train", *SMALL, "--out", out, says=refusal)
        # Neither is the earlier run removed if the new one cannot begin.
        self.refused(1, "train", *SMALL, "--out", out, "--overwrite", "--data", self.path("absent"), says="absent")
        self.assertEqual({name: self.read_bytes(os.path.join(out, name)) for name in os.listdir(out)}, before)
        self.ok("train", *SMALL, "--out", out, "--overwrite", "--checkpoint-every", 14)
        new = ["checkpoint-00000014.gwp", "checkpoint-00000028.gwp", "checkpoint-00000030.gwp"]
        self.assertEqual(sorted(os.listdir(out)), sorted(RUN_FILES + foreign + new))
        self.refused(2, "train", *SMALL, "--overwrite", says="--overwrite needs --out")

    def test_run_folder(self):
        out = self.path("run")
        printed = self.ok_json(
            "train", *SMALL, "--data", "digits", "--workers", 3, "--codec", "ternary", "--seed", 5, "--out", out
        )
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), printed)
        for field, value in [
            ("net", "mlp:784-16-10"),
            ("workers", 3),
            ("steps", 30),
            ("seed", 5),
            ("replicas_identical", True),
        ]:
            self.assertEqual(printed[field], value)
        self.assertGreater(printed["dense_bytes"], 10 * printed["bytes_up"])
        steps = self.metrics(out)
        self.assertEqual(len(steps), 30)
        for field in [
            "step",
            "epoch",
            "loss",
            "lr",
            "step_ms",
            "compute_ms",
            "encode_ms",
            "wait_ms",
            "bytes_up",
            "bytes_down",
        ]:
            self.assertIn(field, steps[0])
        result = self.ok_json("eval", "--data", "digits", "--from", out)
        self.assertEqual((result["test_accuracy"], result["samples"]), (printed["test_accuracy"], 4000))
        self.assertEqual(self.ok_json("eval", "--set", "train", "--from", out)["samples"], 20000)
        self.ok("export", "--from", out, "-o", self.path("parameters"))
        self.assertIn("fc1.weight.npy", os.listdir(self.path("parameters")))
        self.ok("encode", "--codec", "none", self.path("parameters/fc1.weight.npy"), "-o", self.path("w.gw"))
        self.assertEqual(self.ok_json("inspect", self.path("w.gw"))["elements"], 784 * 16)

    def test_the_wire_choice_among_threads(self):
        """There is no network between threads, so nothing may depend on time."""
        whys = {}
        for wire, workers, codec in [
            ("auto", 2, "ternary"),
            ("fast", 2, "ternary"),
            ("auto", 2, "none"),
            ("auto", 1, "ternary"),
        ]:
            run = ["--workers", workers, "--codec", codec, "--wire", wire]
            found = self.ok_json("train", *SMALL, *run)["wire"]
            whys[wire, workers, codec] = found["why"]
            self.assertEqual((found["asked"], found["stands"]), (wire, "fast" if wire == "fast" else "small"))
            self.assertEqual(found["fast_steps"], 30 if wire == "fast" else 0)
            self.assertEqual((found["small_ms"], found["comparisons"]), (None, 0))
        self.assertEqual(len(set(whys.values())), 4, whys)
        self.refused(2, "train", *SMALL, "--wire", "tiny", says=["--wire is \"tiny\"", "small, fast or auto"])

    def metrics(self, out):
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def kept_by_rank_0(self, path, sizes):
        """Reads the residual's norm and the oldest threshold's age from a state file of topk."""
        content, at, squares, oldest = self.read_bytes(path), 40, 0.0, 0
        for n in sizes:
            self.assertEqual(content[at : at + 4], b"GWST")
            oldest = max(oldest, struct.unpack_from("<I", content, at + 32 + 4)[0])
            own = 0.0
            for e in struct.unpack_from(f"<{n}f", content, at + 32 + 24):
                own += e * e  # as the tool adds; sum() of Python 3.12 rounds in another way
            squares += own
            at += 32 + 24 + 4 * n + 8
        self.assertEqual(at + 8, len(content))
        return math.sqrt(squares), oldest

    def test_what_the_codec_keeps(self):
        """Runs 200 steps. Every tenth step is counted."""
        out = self.path("topk")
        run = ["train", *SMALL, "--steps", 200, "--workers", 2]
        summary = self.ok_json(*run, "--codec", "topk:ratio=0.02,refresh=7", "--out", out, "--checkpoint-every", 50)
        steps, sizes = self.metrics(out), [layer["elements"] for layer in summary["layers"]]
        for t in [50, 100, 150, 200]:
            norm, age = self.kept_by_rank_0(os.path.join(out, f"checkpoint-{t:08}.rank-0-of-2.gws"), sizes)
            self.assertAlmostEqual(steps[t - 1]["residual_norm"] / norm, 1, 9)
            self.assertEqual(steps[t - 1]["threshold_age"], age)
        self.assertGreater(len({step["threshold_age"] for step in steps[9::10]}), 3)
        self.assertEqual((summary["residual_norm"], summary["threshold_age"]), (norm, age))
        self.assertNotIn("variance_factor", summary)
        for t, step in enumerate(steps):
            counted = t % 10 == 9
            self.assertEqual(
                [key in step for key in ["residual_norm", "threshold_age", "variance_factor"]],
                [counted, counted, False],
            )
            self.assertEqual(step["nonzero_share"] is not None, counted)
        share = sum(layer["nonzero_share"] * layer["elements"] for layer in summary["layers"]) / sum(sizes)
        self.assertAlmostEqual(summary["nonzero_share"] / share, 1, 9)
        events = self.read_bytes(os.path.join(out, "events.out.tfevents.0.gradwire"))
        for tag in [b"codec/residual_norm", b"codec/threshold_age", b"codec/nonzero_share"]:
            self.assertEqual(events.count(tag), 20)
        for codec, least, most in [
            ("gspar:eps=0.5", 1.4, 1.6),
            ("uniform:density=0.2", 4.5, 5.5),
            ("ternary:clip=0", 1.5, 20),
            ("none", None, None),
            ("bf16", None, None),
        ]:
            out = self.path(codec.partition(":")[0])
            summary = self.ok_json(*run, "--codec", codec, "--out", out)
            factors = [step["variance_factor"] for step in self.metrics(out) if "variance_factor" in step]
            self.assertNotIn("residual_norm", summary)
            self.assertEqual(len(factors), 20 if least else 0)
            if least:
                self.assertAlmostEqual(summary["variance_factor"], sum(factors) / 20)
                self.assertTrue(least < summary["variance_factor"] < most, (codec, summary["variance_factor"]))
            else:
                self.assertNotIn("variance_factor", summary)

    def test_same_parameters_whatever_runs(self):
        """Kernels, codes, entropy coding, threads and plans change no parameter."""
        hashes = set()
        for level, codec, more in [
            ("scalar", "ternary", []),
            ("avx2", "ternary", []),
            ("avx512", "ternary:code=2bit,pull=packed,entropy=off", []),
            ("avx512", "ternary:code=base3,entropy=on", ["--plan", "single"]),
            ("avx512", "ternary:code=mask,entropy=on", ["--codec-threads", "2"]),
            ("avx512", "ternary:entropy=off", []),
        ]:
            done = self.run_tool(
                "train",
                *SMALL,
                "--workers",
                2,
                "--codec",
                codec,
                "--json",
                *more,
                env={**os.environ, "GRADWIRE_CPU": level},
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            hashes.add(json.loads(done.stdout)["parameter_hash"])
        self.assertEqual(len(hashes), 1)

    def test_wrong_use(self):
        for words, says in [
            (["--workers", "65"], ["65", "64"]),
            (["--net", "lenett"], "lenett"),
            (["--codec", "ternery"], "ternery"),
            (["--codec", "ternary:clip=-1"], "clip"),
            (["--optimizer", "adamm"], "adamm"),
            (["--schedule", "poly"], "poly"),
            (["--lr", "fast"], "--lr is 'fast'"),
            (["--link", "carrier-pigeon"], "carrier-pigeon"),
            (["--workers", "0"], "--workers is '0'"),
        ]:
            self.refused(2, "train", *SMALL, *words, says=says)

    def refused_data(self, says, **changed):
        self.refused(1, "train", "--net", "lenet", "--steps", 1, "--data", self.data(**changed), says=says)

    def test_data(self):
        self.ok("train", "--net", "lenet", "--steps", 1, "--data", self.data())
        self.refused_data(["train-images", "cut short"], train_images=images(64)[:-1])
        self.refused_data(["train-images", "cut short"], train_images=images(2)[:9])
        self.refused_data(["train-images", "too long"], train_images=images(64) + b"x")
        self.refused_data(["train-images", "cut short"], train_images=images(1, claimed=0xFFFFFFFF))
        self.refused_data(["train-images", "0x"], train_images=images(64, magic=0x801))
        self.refused_data(["t10k-labels", "label 10 of sample 0", "0 to 9"], t10k_labels=labels(64, label=10))
        self.refused_data(["63", "64"], train_labels=labels(63))
        self.refused_data(["t10k-images"], t10k_images=None)
        packed = self.path("data/t10k-images-idx3-ubyte.gz")
        self.write_bytes(packed, gzip.compress(images(64)))
        self.ok("train", "--net", "lenet", "--steps", 1, "--data", self.path("data"))
        self.write_bytes(packed, gzip.compress(images(64))[:-9])
        self.refused_data(["t10k-images"], t10k_images=None)
        few = self.data(train_images=images(10), train_labels=labels(10))
        self.refused(2, "train", "--net", "lenet", "--steps", 1, "--data", few, says=["--batch is 64", "10 samples"])

    def test_convex(self):
        file, test = self.path("a"), self.path("a.t")
        self.write_bytes(file, b"2 1:1 3:0.5\n1 2:1\n2 1:0.5\n1 2:2 3:1\n")
        self.write_bytes(test, b"1 2:1\n2 1:1\n1 1:1\n")
        words = [
            "train",
            "--net",
            "logreg",
            "--data",
            file,
            "--l2",
            0.01,
            "--workers",
            2,
            "--batch",
            4,
            "--epochs",
            30,
            "--lr",
            1,
            "--schedule",
            "inverse:100",
        ]
        for optimizer, passes in [("sgd", 30), ("svrg", 90)]:
            out = self.path(optimizer)
            result = self.ok_json(*words, "--test", test, "--optimizer", optimizer, "--codec", "ternary", "--out", out)
            self.assertEqual(result["parameters"], 3)
            self.assertEqual(result["passes"], passes)
            self.assertEqual(result["l2"], 0.01)
            self.assertEqual(result["train_accuracy"], 1)
            self.assertAlmostEqual(result["test_accuracy"], 2 / 3)
            self.assertGreater(result["objective"], result["train_loss"])
            self.assertEqual(self.metrics(out)[-1]["objective"], result["objective"])
            self.assertAlmostEqual(
                self.ok_json("eval", "--net", "logreg", "--data", test, "--from", out)["test_accuracy"], 2 / 3
            )
            seen = self.ok_json("eval", "--data", file, "--test", test, "--from", out)
            self.assertEqual((seen["samples"], seen["test_accuracy"]), (3, result["test_accuracy"]))
            seen = self.ok_json("eval", "--data", file, "--test", test, "--set", "train", "--from", out)
            self.assertEqual((seen["samples"], seen["train_accuracy"]), (4, 1))
            self.assertAlmostEqual(seen["train_loss"], result["train_loss"], 12)
            self.assertNotIn("test_accuracy", seen)
            # The test file has only one of the two labels.
            self.write_bytes("one.t", b"1 2:1\n1 2:3 3:1\n")
            self.assertEqual(
                self.ok_json("eval", "--data", file, "--test", self.path("one.t"), "--from", out)["test_accuracy"], 1
            )
            self.refused(1, "eval", "--data", self.path("one.t"), "--from", out, says="there must be two labels")
        self.assertEqual(self.ok_json("eval", "--from", out)["test_accuracy"], result["test_accuracy"])
        self.assertEqual(self.ok_json("eval", "--test", file, "--from", out)["samples"], 4)
        self.assertEqual(self.ok_json("eval", "--data", file, "--from", out)["samples"], 4)
        self.refused(2, "eval", "--data", "digits", "--test", test, "--from", out, says=["--test", "LIBSVM"])
        self.refused(2, "eval", "--data", file, "--set", "both", "--from", out, says=["both", "test or train"])
        self.assertEqual(self.ok_json(*words)["test_accuracy"], 1)
        self.refused(2, *words, "--net", "lenet", says=["lenet takes 784 values", "the data have 3"])
        self.refused(2, "train", "--optimizer", "svrg", says="svrg is for logreg and svm")
        self.refused(2, "train", "--test", test, says="--test")
        self.refused(1, *words, "--test", self.path("absent"), says="absent")
        self.write_bytes(file, b"1 1:1\n2 1:1 1:2\n")
        self.refused(1, *words, says=[file + ", line 2", "must ascend"])
        self.assertEqual(
            self.ok_json("train", "--net", "svm", "--data", "uneven:n=64,d=32", "--epochs", 2)["parameters"], 32
        )

    def test_options_that_contradict(self):
        convex = ["train", "--net", "logreg", "--data", "uneven:n=64,d=32", "--batch", 32, "--steps", 2]
        for words, says in [
            (["--epochs", 1], "--steps and --epochs"),
            (["--l2", 0.1, "--weight-decay", 0.1], "--l2 is a weight decay in the place of --weight-decay"),
            (["--optimizer", "sgd", "--momentum", 0.5], "--optimizer is sgd"),
            (["--optimizer", "svrg", "--momentum", 0.9], "--optimizer is svrg"),
            (["--out", ""], "--out is empty; name a folder"),
            (["--save-at", 1], "--save-gradients NAME"),
        ]:
            self.refused(2, *convex, *words, says=says)
        self.ok(*convex, "--momentum", 0.5, "--weight-decay", 0.1)

    def test_sentences_about_convex_runs(self):
        file, out = self.write_bytes("a", b"1\n2\n"), self.path("run")
        words = ["train", "--net", "logreg", "--optimizer", "sgd", "--data"]
        self.refused(1, *words, file, "--batch", 2, says=[file, "no sample has a feature"])
        small = [*words, "uneven:n=64,d=2", "--batch", 32, "--steps", 2, "--workers", 2]
        done = self.run_tool(*small, "--out", out)
        self.assertRegex(done.stderr, r"up \S+ \S+ \(([0-9.]+ times larger than|about as large as) float32's")
        self.assertNotIn("1.00 times", done.stderr)
        self.ok("eval", "--from", out)
        self.refused(2, "eval", "--data", "digits", "--from", out, says=["the data have 784", "run by --data"])
        done = self.run_tool(*small, "--lr", 1e38, "--l2", 1, "--schedule", "const")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the run diverged: after 1.0 passes", done.stderr)
        self.assertNotRegex(done.stderr, "objective -?(nan|inf)")
        for refresh in (1, 3):
            done = self.run_tool(*small, "--codec", f"topk:scope=layer,refresh={refresh}")
            self.assertEqual("that share is not just ratio=" in done.stderr, refresh == 3, done.stderr)

    def test_places_of_gradients(self):
        """A run writes gradients in its middle. So the tool checks their place before the run begins."""
        words = ["train", *SMALL, "--save-at", 1, "--save-gradients"]
        self.refused(1, *words, self.path("absent/g"), says=["absent", "cannot be written to"])
        for name in [self.path("folder/"), self.path(200 * "n")]:
            self.refused(2, *words, name, says="must end in a name")
        self.refused(2, *words[:-3], "--save-gradients", self.path("g"), says="gradients of step 100")
        self.ok(*words, self.path("g"))
        self.assertTrue(os.path.exists(self.path("g.rank-0.gwp")))

    def test_files_that_fail(self):
        """If a file is wrong, any file, the tool has failed. If an option is wrong, the tool was used wrongly."""
        absent, out = self.path("absent"), self.path("run")
        self.refused(1, "train", *SMALL, "--data", absent, says=absent)
        self.ok("train", *SMALL, "--out", out)
        self.refused(1, "eval", "--data", absent, "--from", out, says=absent)
        self.refused(1, "eval", "--data", self.data(t10k_images=images(64)[:-1]), "--from", out, says="cut short")
        self.refused(2, "eval", "--net", "lenet", "--data", "digits", "--from", out, says="--net is lenet")
        cut = self.write_bytes("cut.gwp", self.read_bytes(os.path.join(out, "parameters.gwp"))[:-1])
        self.refused(1, "eval", "--data", "digits", "--from", cut, says=[cut, "cut short"])
        self.refused(1, "export", "--from", cut, "-o", self.path("p"), says=[cut, "cut short"])
        self.refused(1, "eval", "--data", "digits", "--from", self.folder, says="holds no parameters.gwp")
        self.assertFalse(os.path.exists(self.path("p")))

    def test_unwritable_out(self):
        self.write_bytes("plain", b"")
        self.refused(1, "train", *SMALL, "--out", self.path("plain/run"), says="plain/run")
        self.refused(1, "eval", "--data", "digits", "--from", self.path("absent"), says="absent")
        self.refused(1, "export", "--from", self.path("absent"), "-o", self.path("p"), says="absent")

    def test_interrupted(self):
        out = self.path("run")
        process = subprocess.Popen(
            [
                harness.TOOL,
                "train",
                "--net",
                "lenet",
                "--data",
                "digits",
                "--workers",
                "2",
                "--steps",
                "100000",
                "--out",
                out,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 60
        while not os.path.exists(out) or not any(os.path.getsize(os.path.join(out, name)) for name in os.listdir(out)):
            self.assertLess(time.monotonic(), deadline, "the run wrote nothing in a minute")
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("no checkpoint was saved; --checkpoint-every K", said)
        for name in ["summary.json", "metrics.jsonl", "parameters.gwp"]:
            self.assertNotIn(name, os.listdir(out))


if __name__ == "__main__":
    harness.main()
