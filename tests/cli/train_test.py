"""Tests train, eval and export from outside: small runs, folders of runs, data files that are wrong, interruption."""

import gzip
import os
import resource
import shutil
import signal
import subprocess

import harness
import pictures

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
        """disk_folder_test has all names of files that are a run's. The earlier run is not removed either if the new
        one cannot begin."""
        out = self.path("run")
        train, absent = ["train", *SMALL, "--out", out], ["--overwrite", "--data", self.path("absent")]
        first = self.start(*train, "--steps", 1000000, stderr=subprocess.DEVNULL)
        self.wait_until(first, lambda: os.path.exists(os.path.join(out, "run.json")), "the run wrote nothing")
        self.refused(1, *train, says="another run is writing")
        first.kill()
        first.wait(60)
        left = ["events.out.tfevents.0.gradwire.partial", "histograms.jsonl.partial", "metrics.jsonl.partial"]
        left.append("run.json")
        self.assertEqual(sorted(os.listdir(out)), left)
        self.refused(1, *train, says=[out, f"an earlier run ({left[0]} and 3 other files)", "--overwrite"])
        foreign = ["checkpoint-1.gwp", "checkpoint-00000010.gwp.old", "my.metrics.jsonl", "notes.txt"]
        for name in foreign:
            self.write_bytes(os.path.join(out, name), b"mine")
        self.ok(*train, "--overwrite", "--checkpoint-every", 10)
        before = self.contents(out)
        self.refused(1, *train, says="an earlier run (checkpoint-00000010.gwp and 8 other files)")
        self.refused(1, *train, *absent, says="absent")
        self.assertEqual(self.contents(out), before)
        self.ok(*train, "--overwrite", "--checkpoint-every", 14)
        new = ["checkpoint-00000014.gwp", "checkpoint-00000028.gwp", "checkpoint-00000030.gwp"]
        self.assertEqual(sorted(os.listdir(out)), sorted(RUN_FILES + foreign + new))
        self.refused(2, "train", *SMALL, "--overwrite", says="--overwrite needs --out")

    def test_a_run_that_diverged(self):
        out = self.path("run")
        self.ok("train", *SMALL, *"--optimizer sgd --lr 1e37 --steps 5 --out".split(), out)
        self.assertIsNone(self.ok_json("eval", "--from", out)["test_loss"])
        said = self.said("eval", "--from", out, says="but the loss is no finite number")
        self.assertNotIn("nan", said.replace(out, "").lower().replace("or nan", ""))

    def test_run_folder(self):
        out = self.path("run")
        words = "--data digits --workers 3 --codec ternary --seed 5 --out".split()
        printed = self.ok_json("train", *SMALL, *words, out)
        self.assertEqual(self.json_of(out, "summary.json"), printed)
        wanted = {"net": "mlp:784-16-10", "workers": 3, "steps": 30, "seed": 5, "replicas_identical": True}
        self.assertEqual({key: printed[key] for key in wanted}, wanted)
        self.assertGreater(printed["dense_bytes"], 10 * printed["bytes_up"])
        steps = self.lines_of(out, "metrics.jsonl")
        self.assertEqual(len(steps), 30)
        fields = "step epoch loss lr step_ms compute_ms encode_ms wait_ms bytes_up bytes_down".split()
        self.assertLessEqual(set(fields), set(steps[0]))
        result = self.ok_json("eval", "--data", "digits", "--from", out)
        self.assertEqual((result["test_accuracy"], result["samples"]), (printed["test_accuracy"], 4000))
        self.assertEqual(self.ok_json("eval", "--set", "train", "--from", out)["samples"], 20000)
        files = self.ok_json("export", "--from", out, "-o", self.path("\udcff"))["files"]
        self.assertIn(self.path(r"\xff/fc1.bias.npy"), files)
        self.ok("export", "--from", out, "-o", self.path("parameters"))
        shutil.copy(self.path("parameters/fc1.bias.npy"), self.path("parameters/momentum.fc1.bias.npy"))
        says = "momentum.fc1.bias.npy is of an earlier export"
        self.refused(1, "export", "--from", out, "-o", self.path("parameters"), says=says)
        self.ok("encode", "--codec", "none", self.path("parameters/fc1.weight.npy"), "-o", self.path("w.gw"))
        self.assertEqual(self.ok_json("inspect", self.path("w.gw"))["elements"], 784 * 16)

    def test_names_that_are_not_utf8(self):
        """A run does not end without its summary, and no option is missing when it goes on."""
        odd, out = self.path("odd\udcff"), self.path("run")
        shutil.copytree(harness.PICTURES, odd)
        words = ["train", "--net", "mlp:784-16-10", "--steps", 2, "--data", odd]
        self.assertEqual(self.ok_json(*words)["data"], self.path(r"odd\xff"))
        self.refused(2, *words, "--out", out, says=["--data", r"odd\xff is not UTF-8", "run.json"])
        os.symlink(odd, self.path("link"))
        words[-1] = self.path("link")
        self.ok(*words, "--out", out)
        self.assertEqual(self.json_of(out, "summary.json")["data"], self.path("link"))
        # A name may be long, and is not cut within a character.
        folder = self.path(*("\u00e9" * 60 + "x" * k for k in range(4)))
        os.makedirs(folder)
        plan = self.write_bytes(
            os.path.join(folder, "plan.json"), b'{"groups": [["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]]}'
        )
        self.assertEqual(self.ok_json(*words, "--plan", plan)["plan"]["asked"], plan)

    def test_saved_gradients(self):
        """bench exchange knows their tensors' names. Two networks with as many tensors and parameters are two."""
        saved, one = self.path("g"), "mlp:784-7-51-10"
        words = ["train", "--data", harness.PICTURES, "--steps", 1, "--save-gradients", saved, "--save-at", 0, "--net"]
        bench = ["bench", "exchange", "--gradients", saved, "--runs", 1, "--workers", 2, "--codec"]
        self.ok(*words, one, "--workers", 2)
        rows = self.ok_json(*bench, "ternary:skip=fc3.weight")["results"]
        self.assertTrue(rows[0]["averages_identical"])
        self.refused(2, *bench, "ternary:skip=fc4.weight", says="fits no name here (fc1.weight, fc1.bias, ")
        self.ok(*words, "mlp:784-8-7-10", "--workers", 2)
        os.rename(saved + ".rank-0.gwp", saved + ".rank-1.gwp")
        self.ok(*words, one)
        self.refused(1, *bench, "ternary", says="rank-1.gwp holds the gradient of another network than rank 0's")

    def test_an_export_is_whole_or_nothing(self):
        """The third weight is too long for the files that may be written. The first two are not."""
        out, folder = self.path("run"), self.path("export")
        net = ["--net", "mlp:784-2-1000-10", "--data", harness.PICTURES]
        self.ok("train", *net, *"--steps 1 --checkpoint-every 1 --out".split(), out)
        few = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        export = ["export", "--from", out, "-o", folder]
        self.said(*export, status=1, says=["fc3.weight.npy", "File too large"], preexec_fn=few)
        self.assertEqual(os.listdir(folder), [])
        self.ok(*export)
        earlier = self.contents("export")
        self.assertEqual(len(earlier), 6)
        self.ok("train", "--resume", out, "--steps", 2)
        self.said(*export, status=1, says="fc3.weight.npy", preexec_fn=few)
        self.assertEqual(self.contents("export"), earlier, "files of two exports are mixed")
        bias = os.path.join(folder, "fc3.bias.npy")
        os.remove(bias)
        os.mkdir(bias)
        self.refused(1, *export, says="fc3.bias.npy: it is a folder")
        os.rmdir(bias)
        os.symlink("fc1.weight.npy", bias)
        self.refused(1, *export, says="fc3.bias.npy: it is one file with another output")
        earlier["fc3.bias.npy"] = earlier["fc1.weight.npy"]
        self.assertEqual(self.contents("export"), earlier)

    def test_interrupted(self):
        out = self.path("run")
        run = self.start("train", *SMALL[:-1], 1000000, "--workers", 2, "--out", out)
        self.wait_for_steps(run, out)
        run.send_signal(signal.SIGINT)
        self.ended(run, 1, "no checkpoint was saved; --checkpoint-every K")
        self.assertFalse({"summary.json", "metrics.jsonl", "parameters.gwp"} & set(os.listdir(out)))

    # ---- what runs compute and tell ----

    def test_one_seed_gives_one_hash(self):
        """Kernels, codes, entropy coding, threads and plans change no parameter. What is the same with all changes at
        once is the same with each."""

        def hash_of(codec, *words, level=None):
            env = {"GRADWIRE_CPU": level} if level else {}
            summary = self.ok_json("train", *HASH, "--codec", codec, *words, env=env)
            self.assertTrue(summary["replicas_identical"])
            return summary["parameter_hash"]

        def hash_both_ways(codec):
            expected = hash_of(codec)
            self.assertEqual(hash_of(codec, "--plan", "single", "--codec-threads", 3, level="scalar"), expected, codec)
            return expected

        wanted = hash_both_ways("ternary")
        for packing in ["code=2bit,pull=packed", "code=base3", "code=mask,entropy=on", "entropy=off"]:
            self.assertEqual(hash_of(f"ternary:{packing}"), wanted, packing)
        for level in ("avx2", "avx512", "neon"):
            self.assertEqual(hash_of("ternary", level=level), wanted, level)
        hashes = {wanted, hash_of("ternary", "--seed", "4"), *map(hash_both_ways, CODECS)}
        self.assertEqual(len(hashes), 2 + len(CODECS), "different codecs or seeds gave the same parameters")

    def test_the_wire_choice_among_threads(self):
        """There is no network between threads, so nothing may depend on time."""
        whys = set()
        for words in ["auto 2 ternary", "fast 2 ternary", "auto 2 none", "auto 1 ternary"]:
            wire, workers, codec = words.split()
            found = self.ok_json("train", *SMALL, "--workers", workers, "--codec", codec, "--wire", wire)["wire"]
            whys.add(found["why"])
            stands, steps = ("fast", 30) if wire == "fast" else ("small", 0)
            self.assertEqual([found[key] for key in ("asked", "stands", "fast_steps")], [wire, stands, steps])
            self.assertEqual((found["small_ms"], found["comparisons"]), (None, 0))
        self.assertEqual(len(whys), 4, whys)
        self.refused(2, "train", *SMALL, "--wire", "tiny", says=["--wire is \"tiny\"", "small, fast or auto"])

    def test_what_the_codec_keeps(self):
        """Every tenth step is counted. exchange_test has what is counted, metrics_test the sums, and each codec's tests
        how far its draw scatters."""
        out = self.path("run")
        run = ["train", *SMALL[:-1], 200, "--workers", 2, "--out", out, "--overwrite", "--codec"]
        keys = ["residual_norm", "threshold_age", "variance_factor"]
        for codec, has in [("topk:ratio=0.02,refresh=7", [True, True, False]), ("gspar:eps=0.5", [False, False, True])]:
            summary, steps = self.ok_json(*run, codec), self.lines_of(out, "metrics.jsonl")
            for t, step in enumerate(steps):
                counted = t % 10 == 9
                self.assertEqual([key in step for key in keys], [counted and one for one in has])
                self.assertEqual(step["nonzero_share"] is not None, counted)
            self.assertEqual([key in summary for key in keys], has)
            events = self.read_bytes(out, "events.out.tfevents.0.gradwire")
            self.assertEqual([events.count(f"codec/{key}".encode()) for key in keys[:2]], [20 * one for one in has[:2]])
            if has[2]:
                self.assertTrue(1.4 < summary["variance_factor"] < 1.6)
            else:
                self.assertEqual([summary[key] for key in keys[:2]], [steps[-1][key] for key in keys[:2]])
                self.assertGreater(len({step["threshold_age"] for step in steps[9::10]}), 3)

    def test_the_default_rate(self):
        """Steps are as long in the end, with momentum and without."""
        out = self.path("run")
        run = "train --net logreg --data uneven:n=64,d=2 --batch 32 --steps 2 --overwrite".split()
        for optimizer, rate in [("momentum", 0.01), ("adam", 0.01), ("sgd", 0.1), ("svrg", 0.1)]:
            self.ok(*run, "--out", out, "--optimizer", optimizer)
            self.assertEqual(self.lines_of(out, "metrics.jsonl")[0]["lr"], rate)

    def test_convex(self):
        """convex_test has the optimizers, and libsvm_test files that are wrong."""
        file = self.write_bytes("a", b"2 1:1 3:0.5\n1 2:1\n2 1:0.5\n1 2:2 3:1\n")
        test = self.write_bytes("a.t", b"1 2:1\n2 1:1\n1 1:1\n")
        one, out = self.write_bytes("one.t", b"1 2:1\n1 2:3 3:1\n"), self.path("run")  # only one of the two labels
        words = ["train", "--net", "logreg", "--data", file]
        words += "--l2 0.01 --workers 2 --batch 4 --epochs 30 --lr 1 --schedule inverse:100".split()
        result = self.ok_json(*words, "--test", test, *"--optimizer svrg --codec ternary --out".split(), out)
        wanted = {"parameters": 3, "passes": 90, "l2": 0.01, "train_accuracy": 1, "test_accuracy": 2 / 3}
        self.assertEqual({key: result[key] for key in wanted}, wanted)
        self.assertGreater(result["objective"], result["train_loss"])
        self.assertEqual(self.lines_of(out, "metrics.jsonl")[-1]["objective"], result["objective"])
        for more, accuracy, samples in [
            (["--net", "logreg", "--data", test], 2 / 3, 3),
            (["--data", file, "--test", test], 2 / 3, 3),
            (["--data", file, "--test", one], 1, 2),
            ([], 2 / 3, 3),
            (["--test", file], 1, 4),
            (["--data", file], 1, 4),
        ]:
            seen = self.ok_json("eval", *more, "--from", out)
            self.assertEqual((seen["test_accuracy"], seen["samples"]), (accuracy, samples), more)
        seen = self.ok_json("eval", "--data", file, "--test", test, "--set", "train", "--from", out)
        self.assertEqual((seen["samples"], seen["train_accuracy"], "test_accuracy" in seen), (4, 1, False))
        self.assertAlmostEqual(seen["train_loss"], result["train_loss"], 12)
        self.refused(1, "eval", "--data", one, "--from", out, says="there must be two labels")
        rows = [
            (["eval", "--data", "digits", "--test", test, "--from", out], ["--test", "LIBSVM"]),
            (["eval", "--data", file, "--set", "both", "--from", out], ["both", "test or train"]),
            (["eval", "--data", "digits", "--from", out], ["the data have 784", "run by --data"]),
            ([*words, "--net", "lenet"], ["lenet takes 784 values", "the data have 3"]),
            ("train --optimizer svrg", "svrg is for logreg and svm"),
            (["train", "--test", test], "--test"),
        ]
        self.each_refused(2, rows)
        self.refused(1, *words, "--test", self.path("absent"), says="absent")
        self.write_bytes(file, b"1 1:1\n2 1:1 1:2\n")
        self.refused(1, *words, says=[file + ", line 2", "must ascend"])

    def test_sentences_about_convex_runs(self):
        small = "train --net logreg --optimizer sgd --data uneven:n=64,d=2 --batch 32 --steps 2 --workers 2".split()
        said = self.said(*small)
        self.assertRegex(said, r"up \S+ \S+ \(([0-9.]+ times larger than|about as large as) float32's")
        self.assertNotIn("1.00 times", said)
        words = "--lr 1e38 --l2 1 --schedule const".split()
        said = self.said(*small, *words, says="the run diverged: after 1.0 passes")
        self.assertNotRegex(said, "objective -?(nan|inf)")
        for refresh in (1, 3):
            said = self.said(*small, "--codec", f"topk:scope=layer,refresh={refresh}")
            self.assertEqual("that share is not just ratio=" in said, refresh == 3, said)

    # ---- what is refused ----

    def test_wrong_use(self):
        rows = [
            ("--workers 65", ["65", "64"]),
            ("--net lenett", "lenett"),
            ("--codec ternary:clip=-1", "clip"),
            ("--optimizer adamm", "adamm"),
            ("--schedule poly", "poly"),
            ("--lr fast", "--lr is 'fast'"),
            ("--workers 0", "--workers is '0'"),
        ]
        self.each_refused(2, "train", *SMALL, rows)
        convex = "train --net logreg --data uneven:n=64,d=32 --batch 32 --steps 2".split()
        rows = [
            ("--epochs 1", "--steps and --epochs"),
            ("--l2 0.1 --weight-decay 0.1", "--l2 is a weight decay in the place of --weight-decay"),
            ("--optimizer sgd --momentum 0.5", "--optimizer is sgd"),
            ("--optimizer svrg --momentum 0.9", "--optimizer is svrg"),
            (["--out", ""], "--out is empty; name a folder"),
            ("--save-at 1", "--save-gradients NAME"),
        ]
        self.each_refused(2, *convex, rows)
        self.ok(*convex, "--momentum", 0.5, "--weight-decay", 0.1)
        self.assertEqual(self.ok_json(*convex, "--net", "svm")["parameters"], 32)

    def test_data(self):
        """data_test has what can be wrong within a file."""
        data, name = self.path("data"), "data/t10k-images-idx3-ubyte"
        train = ["train", *SMALL, "--data", data]
        pictures.write_mnist(data, 1)
        self.refused(2, *train, "--batch", 601, says=["--batch is 601", "600 samples"])
        packed = gzip.compress(self.read_bytes(name))
        os.remove(self.path(name))
        self.refused(1, *train, says="t10k-images")
        self.write_bytes(name + ".gz", packed)
        self.ok(*train)
        self.write_bytes(name + ".gz", packed[:-9])
        self.refused(1, *train, says="t10k-images")

    def test_files_that_fail(self):
        """If a file is wrong, any file, the tool has failed. If an option is wrong, the tool was used wrongly. A run
        writes gradients in its middle, so the tool checks their place before it begins."""
        absent, out, saved = self.path("absent"), self.path("run"), self.path("g")
        gradients = ["train", *SMALL, "--out", out, "--save-at", 1, "--save-gradients"]
        self.refused(1, *gradients, os.path.join(absent, "g"), says=["absent", "cannot be written to"])
        for name in [self.path("folder/"), self.path(200 * "n")]:
            self.refused(2, *gradients, name, says="must end in a name")
        self.refused(2, "train", *SMALL, "--save-gradients", saved, says="gradients of step 100")
        self.ok(*gradients, saved)
        self.assertTrue(os.path.exists(saved + ".rank-0.gwp"))
        cut = self.write_bytes("cut.gwp", self.read_bytes(out, "parameters.gwp")[:-1])
        plain, to = self.write_bytes("plain", b""), self.path("p")
        rows = [
            (["train", *SMALL, "--data", absent], absent),
            (["train", *SMALL, "--out", os.path.join(plain, "run")], "plain/run"),
            (["eval", "--data", absent, "--from", out], absent),
            (["eval", "--data", "digits", "--from", cut], [cut, "cut short"]),
            (["eval", "--data", "digits", "--from", self.folder], "holds no parameters.gwp"),
            (["eval", "--data", "digits", "--from", absent], "absent"),
            (["export", "--from", cut, "-o", to], [cut, "cut short"]),
            (["export", "--from", absent, "-o", to], "absent"),
        ]
        self.each_refused(1, rows)
        self.refused(2, "eval", "--net", "lenet", "--data", "digits", "--from", out, says="--net is lenet")
        self.assertFalse(os.path.exists(to))


if __name__ == "__main__":
    harness.main()
