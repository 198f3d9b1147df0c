"""Tests train, eval and export from outside: small runs, folders of runs, words, interruption. train_test, convex_test,
nonfinite_test and metrics_test have what runs compute and write, and the tests in train/data what data can be wrong."""

import os
import resource
import shutil
import signal
import subprocess

import harness

RUN_FILES = "events.out.tfevents.0.gradwire histograms.jsonl metrics.jsonl parameters.gwp run.json summary.json".split()
SMALL = [*harness.SMALL, "--steps", "30"]
# One seed gives one hash of parameters. The weights are more than one chunk, and the biases are far fewer.
HASH = ["--net", "mlp:784-100-10", "--data", harness.PICTURES, *"--workers 4 --batch 32 --steps 12 --seed 3".split()]
CODECS = ["none", "bf16", "ternary:share=off", "ternary:bucket=512", "ternary:clip=0", "ternary:scope=global", "onebit"]
CODECS += ["topk:ratio=0.05,refresh=3", "topk:ratio=0.05,refresh=3,scope=global,value=bf16", "ternary:residual=on"]
CODECS += ["ternary:residual=on,level=max,momentum=0.9", "topk:ratio=0.05,scope=global,over=0.5,momentum=0.9"]


@harness.needs_trainer
class Train(harness.Case):
    # ---- folders of runs ----

    def test_a_folder_has_one_run(self):
        """disk_folder_test has which files are a run's. The earlier run stays, too, if the new one cannot begin."""
        out = self.path("run")
        train = ["train", *SMALL, "--out", out]
        first = self.start(*train, "--steps", 1000000, stderr=subprocess.DEVNULL)
        self.wait_until(first, lambda: os.path.exists(os.path.join(out, "run.json")), "the run wrote nothing")
        self.refused(1, *train, says="another run is writing")
        first.kill()
        first.wait(60)
        left = ["events.out.tfevents.0.gradwire.partial", "histograms.jsonl.partial", "metrics.jsonl.partial"]
        self.assertEqual(sorted(os.listdir(out)), [*left, "run.json"])
        self.refused(1, *train, says=[out, f"an earlier run ({left[0]} and 3 other files)", "--overwrite"])
        self.write_bytes(os.path.join(out, "notes.txt"), b"mine")
        self.ok(*train, "--overwrite", "--checkpoint-every", 10)
        before = self.contents(out)
        self.refused(1, *train, "--overwrite", "--data", self.path("absent"), says="absent")
        self.assertEqual(self.contents(out), before)
        self.ok(*train, "--overwrite", "--checkpoint-every", 14)
        new = [f"checkpoint-000000{step}.gwp" for step in (14, 28, 30)]
        self.assertEqual(sorted(os.listdir(out)), sorted([*RUN_FILES, "notes.txt", *new]))
        self.refused(2, "train", *SMALL, "--overwrite", says="--overwrite needs --out")

    def test_run_folder(self):
        out, to = self.path("run"), self.path("parameters")
        words = "--data digits --workers 3 --codec ternary --seed 5 --out".split()
        printed = self.ok_json("train", *SMALL, *words, out)
        self.assertEqual(self.json_of(out, "summary.json"), printed)
        wanted = {"net": "mlp:784-16-10", "workers": 3, "steps": 30, "seed": 5, "replicas_identical": True}
        self.assertLessEqual(wanted.items(), printed.items())
        self.assertEqual((printed["wire"]["asked"], printed["plan"]["asked"]), ("auto", "none"))
        self.assertEqual(len(self.lines_of(out, "metrics.jsonl")), 30)
        result = self.ok_json("eval", "--data", "digits", "--from", out)
        self.assertEqual((result["test_accuracy"], result["samples"]), (printed["test_accuracy"], 4000))
        self.assertEqual(self.ok_json("eval", "--set", "train", "--from", out)["samples"], 20000)
        files = self.ok_json("export", "--from", out, "-o", self.path("\udcff"))["files"]
        self.assertIn(self.path(r"\xff/fc1.bias.npy"), files)
        self.ok("export", "--from", out, "-o", to)
        self.ok("encode", "--codec", "none", os.path.join(to, "fc1.weight.npy"), "-o", self.path("w.gw"))
        self.assertEqual(self.ok_json("inspect", self.path("w.gw"))["elements"], 784 * 16)
        shutil.copy(os.path.join(to, "fc1.bias.npy"), os.path.join(to, "momentum.fc1.bias.npy"))
        self.refused(1, "export", "--from", out, "-o", to, says="momentum.fc1.bias.npy is of an earlier export")

    def test_names_that_are_not_utf8(self):
        """A run does not end without its summary, and no option is missing when it goes on."""
        odd, link, out = self.path("odd\udcff"), self.path("link"), self.path("run")
        shutil.copytree(harness.PICTURES, odd)
        os.symlink(odd, link)
        words = ["train", "--net", "mlp:784-16-10", "--steps", 2, "--data"]
        self.assertEqual(self.ok_json(*words, odd)["data"], self.path(r"odd\xff"))
        self.refused(2, *words, odd, "--out", out, says=["--data", r"odd\xff is not UTF-8", "run.json"])
        self.ok(*words, link, "--out", out)
        self.assertEqual(self.json_of(out, "summary.json")["data"], link)

    def test_saved_gradients(self):
        """bench exchange knows their tensors' names. Two networks with as many tensors and parameters are two."""
        saved, one = self.path("g"), "mlp:784-7-51-10"
        words = ["train", "--data", harness.PICTURES, "--steps", 1, "--save-gradients", saved, "--save-at", 0, "--net"]
        bench = ["bench", "exchange", "--gradients", saved, "--runs", 1, "--workers", 2, "--codec"]
        self.ok(*words, one, "--workers", 2)
        self.assertTrue(self.ok_json(*bench, "ternary:skip=fc3.weight")["results"][0]["averages_identical"])
        self.refused(2, *bench, "ternary:skip=fc4.weight", says="fits no name here (fc1.weight, fc1.bias, ")
        self.ok(*words, "mlp:784-8-7-10", "--workers", 2)
        os.rename(saved + ".rank-0.gwp", saved + ".rank-1.gwp")
        self.ok(*words, one)
        self.refused(1, *bench, "ternary", says="rank-1.gwp holds the gradient of another network than rank 0's")

    def test_an_export_is_whole_or_nothing(self):
        """The third weight is too long for the files that may be written. The first two are not."""
        out, folder = self.path("run"), self.path("export")
        train = ["train", "--net", "mlp:784-2-1000-10", "--data", harness.PICTURES, "--checkpoint-every", 1]
        few = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        export, says = ["export", "--from", out, "-o", folder], ["fc3.weight.npy", "File too large"]
        self.ok(*train, "--steps", 1, "--out", out)
        self.said(*export, status=1, says=says, preexec_fn=few)
        self.assertEqual(os.listdir(folder), [])
        self.ok(*export)
        earlier, bias = self.contents("export"), os.path.join(folder, "fc3.bias.npy")
        self.assertEqual(len(earlier), 6)
        self.ok("train", "--resume", out, "--steps", 2)
        self.said(*export, status=1, says=says, preexec_fn=few)
        self.assertEqual(self.contents("export"), earlier, "files of two exports are mixed")
        os.remove(bias)
        os.symlink("fc1.weight.npy", bias)
        self.refused(1, *export, says="fc3.bias.npy: it is one file with another output")
        self.assertEqual(self.read_bytes(bias), earlier["fc1.weight.npy"])

    def test_interrupted(self):
        """train_test has which files are left."""
        out = self.path("run")
        run = self.start("train", *SMALL[:-1], 1000000, "--workers", 2, "--out", out)
        self.wait_for_steps(run, out)
        run.send_signal(signal.SIGINT)
        self.ended(run, 1, "no checkpoint was saved; --checkpoint-every K")
        self.assertNotIn("summary.json", os.listdir(out))

    # ---- what runs compute and tell ----

    def test_one_seed_gives_one_hash(self):
        """Kernels, codes, entropy coding, threads and plans change no parameter. What is the same with all changes at
        once is the same with each."""

        def hash_of(codec, *words, level=None):
            env = {"GRADWIRE_CPU": level} if level else {}
            summary = self.ok_json("train", *HASH, "--codec", codec, *words, env=env)
            self.assertTrue(summary["replicas_identical"])
            return summary["parameter_hash"]

        hashes = {codec: hash_of(codec) for codec in ["ternary", *CODECS]}
        self.assertEqual(len(set(hashes.values())), 1 + len(CODECS), "different codecs gave the same parameters")
        for codec, wanted in hashes.items():
            self.assertEqual(hash_of(codec, "--plan", "single", "--codec-threads", 3, level="scalar"), wanted, codec)
        for packing in ["code=2bit,pull=packed", "code=base3", "code=mask,entropy=on", "entropy=off"]:
            self.assertEqual(hash_of(f"ternary:{packing}"), hashes["ternary"], packing)
        for level in ("avx2", "avx512", "neon"):
            self.assertEqual(hash_of("ternary", level=level), hashes["ternary"], level)

    def test_convex(self):
        """What eval looks at, with every mixture of options. The run knows its own data."""
        file = self.write_bytes("a", b"2 1:1 3:0.5\n1 2:1\n2 1:0.5\n1 2:2 3:1\n")
        test = self.write_bytes("a.t", b"1 2:1\n2 1:1\n1 1:1\n")
        one, out = self.write_bytes("one.t", b"1 2:1\n1 2:3 3:1\n"), self.path("run")  # only one of the two labels
        words = ["train", "--net", "logreg", "--data", file, "--out", out, "--optimizer", "svrg", "--codec", "ternary"]
        words += "--l2 0.01 --workers 2 --batch 4 --epochs 30 --lr 1 --schedule inverse:100".split()
        result, eval = self.ok_json(*words, "--test", test), ["eval", "--from", out]
        wanted = {"parameters": 3, "passes": 90, "l2": 0.01, "train_accuracy": 1, "test_accuracy": 2 / 3}
        self.assertLessEqual(wanted.items(), result.items())
        for more, accuracy, samples in [
            (["--net", "logreg", "--data", test], 2 / 3, 3),
            (["--data", file, "--test", test], 2 / 3, 3),
            (["--data", file, "--test", one], 1, 2),
            ([], 2 / 3, 3),
            (["--test", file], 1, 4),
            (["--data", file], 1, 4),
        ]:
            seen = self.ok_json(*eval, *more)
            self.assertEqual((seen["test_accuracy"], seen["samples"]), (accuracy, samples), more)
        seen = self.ok_json(*eval, "--data", file, "--test", test, "--set", "train")
        self.assertEqual((seen["samples"], seen["train_accuracy"], "test_accuracy" in seen), (4, 1, False))
        self.refused(1, *eval, "--data", one, says="there must be two labels")
        rows = [
            ([*eval, "--data", "digits", "--test", test], ["--test", "LIBSVM"]),
            ([*eval, "--data", file, "--set", "both"], ["both", "test or train"]),
            ([*eval, "--data", "digits"], ["the data have 784", "run by --data"]),
            ([*words, "--overwrite", "--net", "lenet", "--optimizer", "sgd"], ["lenet takes 784", "the data have 3"]),
            (["train", "--test", test], "--test"),
        ]
        self.each_refused(2, rows)

    def test_sentences(self):
        """About bytes, thresholds, rates, and runs that diverged."""
        out, small = (
            self.path("run"),
            "train --net logreg --data uneven:n=64,d=2 --batch 32 --workers 2 --steps 2".split(),
        )
        said = self.said(*small)
        self.assertRegex(said, r"up \S+ \S+ \(([0-9.]+ times larger than|about as large as) float32's")
        self.assertNotIn("1.00 times", said)
        said = self.said(
            *small, *"--lr 1e38 --l2 1 --schedule const".split(), says="the run diverged: after 1.0 passes"
        )
        self.assertNotRegex(said, "objective -?(nan|inf)")
        for refresh in (1, 3):
            said = self.said(*small, "--codec", f"topk:scope=layer,refresh={refresh}")
            self.assertEqual("that share is not just ratio=" in said, refresh == 3, said)
        for optimizer, rate in [("adam", 0.01), ("sgd", 0.1)]:  # the latter has no momentum
            self.ok(*small, "--out", out, "--overwrite", "--optimizer", optimizer)
            self.assertEqual(self.lines_of(out, "metrics.jsonl")[0]["lr"], rate)
        self.ok("train", *SMALL, *"--optimizer sgd --lr 1e37 --steps 5 --overwrite --out".split(), out)
        self.assertIsNone(self.ok_json("eval", "--from", out)["test_loss"])
        said = self.said("eval", "--from", out, says="but the loss is no finite number")
        self.assertNotIn("nan", said.replace(out, "").lower().replace("or nan", ""))

    # ---- what is refused ----

    def test_wrong_use(self):
        """If a file is wrong, any file, the tool has failed. If an option is wrong, the tool was used wrongly. A run
        writes gradients in its middle, so the tool checks their place before it begins."""
        absent, out, saved, to = (self.path(name) for name in ("absent", "run", "g", "p"))
        gradients, eval = ["train", *SMALL, "--save-at", 1, "--save-gradients"], ["eval", "--data", "digits", "--from"]
        self.ok(*gradients, saved, "--out", out)
        self.assertTrue(os.path.exists(saved + ".rank-0.gwp"))
        cut = self.write_bytes("cut.gwp", self.read_bytes(out, "parameters.gwp")[:-1])
        rows = [
            ([*gradients, os.path.join(absent, "g")], ["absent", "cannot be written to"]),
            (["train", *SMALL, "--data", absent], absent),
            (["train", *SMALL, "--out", os.path.join(cut, "run")], "cut.gwp/run"),
            ([*eval, out, "--data", absent], absent),
            ([*eval, cut], [cut, "cut short"]),
            ([*eval, self.folder], "holds no parameters.gwp"),
            ([*eval, absent], "absent"),
            (["export", "--from", cut, "-o", to], [cut, "cut short"]),
        ]
        self.each_refused(1, rows)
        self.assertFalse(os.path.exists(to))
        self.refused(2, *eval, out, "--net", "lenet", says="--net is lenet")
        convex = "--net logreg --data uneven:n=64,d=32 --l2 0.1 --weight-decay 0.1"
        rows = [
            ("--workers 65", ["65", "64"]),
            ("--wire tiny", ['--wire is "tiny"', "small, fast or auto"]),
            ("--lr fast", "--lr is 'fast'"),
            ("--batch 601", ["--batch is 601", "600 samples"]),
            ("--optimizer svrg", "svrg is for logreg and svm"),
            ("--epochs 1", "--steps and --epochs"),
            (convex, "--l2 is a weight decay in the place of --weight-decay"),
            ("--optimizer sgd --momentum 0.5", "--optimizer is sgd"),
            (["--out", ""], "--out is empty; name a folder"),
            ("--save-at 1", "--save-gradients NAME"),
            (["--save-gradients", saved], "gradients of step 100"),
            (["--save-at", 1, "--save-gradients", self.path("folder/")], "must end in a name"),
            (["--save-at", 1, "--save-gradients", self.path(200 * "n")], "must end in a name"),
        ]
        self.each_refused(2, "train", *SMALL, rows)


if __name__ == "__main__":
    harness.main()
