"""Tests plans and advice from profiles: what the tool prints, and profiles that it refuses. merge_test and advise_test
have the plans themselves, and profiles with numbers that cannot be; probe_test has members that do not agree."""

import json
import os
import statistics
from xml.etree import ElementTree

import harness
from harness import PORTS, profile

DEEP = ["train", "--net", "mlp:784-30-20-10", "--data", harness.PICTURES]


class Plan(harness.Case):
    def write(self, value, name="profile.json"):
        return self.write_bytes(name, (value if isinstance(value, str) else json.dumps(value)).encode())

    def test_plan(self):
        words = ["plan", "--profile", self.write(profile())]
        for method, compress, groups, step in [
            ("none", "inline", [["fc2"], ["fc1"], ["conv2"], ["conv1"]], 17.75),
            ("paper", "beside", [["fc2"], ["fc1"], ["conv2", "conv1"]], 16),
            ("fixed:25MB", "beside", [["fc2", "fc1", "conv2", "conv1"]], 21.5),
        ]:
            plan = self.ok_json(*words, "--method", method, "--compress", compress, "--codec", "ternary")
            self.assertEqual((plan["method"], plan["groups"], plan["step_ms"]), (method, groups, step))
            self.assertAlmostEqual(plan["timeline"][-1]["arrived_ms"], step)
            self.assertLessEqual(plan["step_ms_exact"], step)
        plan = self.ok_json(*words)
        self.assertEqual((plan["codec"], plan["compress"], plan["method"]), ("ternary", "inline", "exact"))
        self.assertIn("exact", self.ok(*words))
        self.write({**profile(), "compress": "beside", "about": {"date": "a day"}})
        # The command finds a codec in any spelling.
        plan = self.ok_json(*words, "--codec", "ternary:clip=2.5")
        self.assertEqual((plan["codec"], plan["compress"]), ("ternary", "beside"))
        self.refused(1, *words, "--codec", "bf16", says='no codec "bf16"')
        self.refused(2, *words, "--codec", "ternari", says="ternary")

    def test_chart(self):
        path, chart = self.write(profile()), self.path("step.svg")
        for words, n in [([], 4), (["--method", "fixed:4000"], 5)]:
            self.ok("plan", "--profile", path, "--codec", "ternary", "-o", chart, *words)
            texts = [e.text for e in ElementTree.parse(chart).getroot().iter() if e.tag.endswith("text")]
            titles = [text for text in texts if "groups:" in text]
            self.assertEqual(len(titles), n)
            self.assertTrue(titles[0].startswith(words[1] if words else "exact: 17.50 ms, groups: 2"))
            self.assertIn("backward", texts)
        for spec in ["\uffff<&\">", *("x" * k + "\u4e2d" * 300 for k in range(3))]:
            odd = {**profile(), "codecs": [{**profile()["codecs"][0], "spec": spec}]}
            self.ok("plan", "--profile", self.write(odd), "-o", chart)
            ElementTree.parse(chart)
        os.remove(chart)
        nothing = profile(lambda p: [layer.update(backward_ms=0) for layer in p["layers"]])
        nothing["link"].update(alpha_ms=0, ms_per_byte=0)
        for nothing["forward_ms"] in [0, 5e-324, 1e-300, 1e15]:
            words = ["plan", "--profile", self.write(nothing), "--codec", "none", "-o", chart]
            self.said(*words, status=1, says="can be drawn")
        self.assertFalse(os.path.exists(chart))

    def test_words_that_a_terminal_would_obey(self):
        """A profile may come from somebody else. Its words are shown, and cannot forge a line or move the cursor."""
        evil, shown = "\x1b[31m\nred\u009b1m\u202e\u4e2d", r"\x1b[31m\x0ared\xc2\x9b1m\xe2\x80\xae" + "\u4e2d"
        path = self.write({**profile(), "compress": evil})
        self.assertIn(f"is '{shown}', and", self.refused(1, "plan", "--profile", path).splitlines()[0])
        path = self.write(profile(lambda p: p["codecs"][0].update(spec=evil)))
        advice = self.ok("advise", "--profile", path, "--json")
        self.assertTrue(advice.isascii())
        self.assertIn(evil, [row["codec"] for row in json.loads(advice)["codecs"]])

    # ---- advice ----

    def test_advice(self):
        """It says by how much its model was off, and if the gain is smaller than that."""
        words = ["advise", "--profile", self.write(profile()), "--lost", "any"]
        advice, said = self.ok_json(*words), self.ok(*words)
        self.assertEqual((advice["codec"], advice["pays"], advice["step_ms"]), ("ternary", True, 17.5))
        self.assertAlmostEqual(advice["step_ms_floats"], 21.5)
        self.assertEqual([row["off_by"] for row in advice["codecs"]], [None, None])
        self.assertIn("Take ternary with --plan exact", said)
        self.assertNotIn("That gain is less", said)
        self.write(profile(lambda p: (p["codecs"][0].update(off_by=0.01), p["codecs"][1].update(off_by=0.99))))
        said = self.ok(*words)
        self.assertRegex(said, r"ternary .* 99\.0%")
        self.assertIn("That gain is less than what the model was off by when the profile was measured (99.0 %)", said)
        rows = {row["codec"]: row for row in self.ok_json(*words)["codecs"]}
        self.assertEqual(rows["ternary"]["off_by"], 0.99)
        self.write(profile(lambda p: p["codecs"][-1].update(off_by=-0.5)))
        self.refused(1, *words, says='"off_by" is -0.5')
        slow = profile(lambda p: p["codecs"][1].update(compress_ms_fixed=1000))
        self.write(slow)
        self.assertIn("Take none", self.ok(*words))
        # If the profile has no floats, the command assumes their costs, and says so.
        slow["codecs"].pop(0)
        self.write(slow)
        advice = self.ok_json(*words)
        self.assertEqual((advice["codec"], advice["pays"], advice["assumed"]["floats"]), ("none", False, True))
        for ms_per_byte, says in [(5e-324, "any bandwidth"), (1e-6, "8 Gbit/s"), (0.001, "8 Mbit/s")]:
            self.write(profile(lambda p: p["link"].update(ms_per_byte=ms_per_byte)))
            said = self.ok(*words)
            self.assertIn(f"(as if at {says})", said)
            self.assertNotIn("inf ", said)

    def test_advice_knows_accuracy(self):
        """A codec is taken if trainings say that it loses little. What would be faster is named, with the reason."""
        lost = {c["name"]: c["losses"] for c in self.ok_json("codecs")["codecs"]}["ternary"]
        lost = max(row["points_lost"] for row in lost if row["codec"] == "ternary")
        words = ["advise", "--profile", self.write(profile())]
        advice, said = self.ok_json(*words), self.ok(*words)
        self.assertEqual((advice["codec"], advice["pays"], advice["assumed"]["most_points_lost"]), ("none", False, 0.3))
        rows = {row["codec"]: row["points_lost"] for row in advice["codecs"]}
        self.assertEqual(rows, {"none": 0, "ternary": lost})
        self.assertIn("Take none: no codec that makes the step shorter is known to lose at most 0.3 points", said)
        self.assertIn(f"ternary would take 17.500 ms, but lost {lost:.2f} points of accuracy in a training.", said)
        for most, takes in ((lost, "ternary"), (lost - 0.01, "none")):
            self.assertEqual(self.ok_json(*words, "--lost", most)["codec"], takes)
        # A codec that nobody has trained with may lose anything.
        self.write(profile(lambda p: p["codecs"][1].update(spec="ternary:clip=7")))
        said = self.ok(*words, "--lost", 100)
        self.assertIn("ternary:clip=7 would take 17.500 ms, but nobody has measured what it costs", said)
        for wrong in (-1, 101, "nan", "none"):
            self.refused(2, *words, "--lost", wrong, says="points of accuracy from 0 to 100")

    # ---- what plans do ----

    @harness.needs_trainer
    def test_replay(self):
        """Plans change messages, never averages. A step takes at least as long as its backward."""
        path = self.write(profile(lambda p: p["layers"].append({"name": "fc3", "elements": 70000, "backward_ms": 2})))
        plans, replay = ["exact", "paper", "none", "single", "fixed:4000"], ["bench", "exchange", "--profile", path]
        report = self.ok_json(*replay, "--workers", 3, "--runs", 3, *(w for plan in plans for w in ("--plan", plan)))
        self.assertEqual((report["tensors"], report["elements"]), (5, 82000))
        rows = report["results"]
        self.assertEqual([(r["codec"], r["plan"]) for r in rows], [(c, n) for c in ["none", "ternary"] for n in plans])
        self.assertEqual(len({(row["codec"], row["average_hash"]) for row in rows}), 2)
        for row in rows:
            self.assertTrue(row["averages_identical"])
            self.assertAlmostEqual(row["compute_seconds"], 0.013)
            for time in ["seconds_min", "after_seconds", "predicted_seconds"]:
                self.assertGreaterEqual(row[time], 0.013, time)
            if row["plan"] in ("none", "single"):
                self.assertEqual(row["groups"], 5 if row["plan"] == "none" else 1)
            if row["plan"] == "single":
                self.assertIsNone(row["hidden_share"])
        # Bytes do not depend on the plan, except for the header of each message.
        self.assertLess(rows[2]["bytes_up"] - rows[3]["bytes_up"], 3 * 5 * 64)
        # The profile does not have this codec, so only plans work that need no costs.
        words = [*replay, "--workers", 2, "--runs", 1, "--codec", "bf16"]
        self.assertIsNone(self.ok_json(*words, "--plan", "single")["results"][0]["predicted_seconds"])
        self.refused(1, *words, says='no codec "bf16"')
        self.refused(1, *replay[:3], self.write("{}", "bad.json"), says="gradwire probe")
        slow = self.write(profile(lambda p: p.update(forward_ms=1e12)), "slow.json")
        before = self.read_bytes("profile.json")
        rows = [
            ([*words[:-1], "ternary:scope=global", "--plan", "none"], "--plan single"),
            ("bench exchange --plan none", "--plan needs a --profile"),
            ("bench exchange --net alexnet --elements 9", "give one of them"),
            ([*replay, "--net", "vgg16"], "give one of them"),
            ([*replay, "--plan", "best"], "must be exact"),
            ([*replay[:3], slow, "--timeout", 2], "--timeout lets a member be silent"),
            ([*replay, "-o", path], "are one file"),
            (["plan", "--profile", path, "-o", path], "are one file"),
            (["probe", "--layers", path, "-o", path], "are one file"),
        ]
        self.each_refused(2, rows)
        self.assertEqual(self.read_bytes("profile.json"), before)

    @harness.needs_trainer
    def test_probe(self):
        """plan, advise, replays and trainings read what probe writes. The test asserts no time."""
        path = self.path("probed.json")
        few = ["probe", "--workers", 2, "--runs", 1, "-o", path]
        self.ok(*few, "--net", "mlp:784-30-10", "--batch", 4, "--codec", "bf16", "--codec", "none")
        probed = self.json_of(path)
        self.assertEqual([c["spec"] for c in probed["codecs"]], ["none", "bf16"])
        self.assertEqual([layer["elements"] for layer in probed["layers"]], [23520, 30, 300, 10])
        self.assertEqual(probed["link"]["members"], 2)
        self.assertEqual((probed["compress"], probed["about"]["backward"]), ("beside", "measured"))
        for one, most in zip(probed["codecs"], (4, 2)):  # 8 (N - 1) / N
            self.assertAlmostEqual(one["bytes_per_element"], most, delta=0.1)
            points = probed["about"]["exchanges"][one["spec"]]
            self.assertGreaterEqual(len(points), 5)  # a busy machine leaves out the longer ones
            off = statistics.median(abs(point["fitted_ms"] / point["measured_ms"] - 1) for point in points)
            self.assertAlmostEqual(one["off_by"], off, 9)
        plan = self.write(self.ok_json("plan", "--profile", path, "--codec", "bf16"), "found.json")
        self.ok("advise", "--profile", path)
        self.ok("bench", "exchange", "--profile", path, "--runs", 1, "--workers", 2)
        train = ["train", "--net", "mlp:784-30-10", "--data", harness.PICTURES, "--steps", 1]
        self.ok(*train, "--codec", "bf16", "--plan", plan)
        # Built-in networks, with times that the user gives.
        self.ok(*few, *"--net resnet20 --images-per-second 1000 --batch 10 --codec none".split())
        probed = self.json_of(path)
        self.assertAlmostEqual(probed["forward_ms"] + sum(layer["backward_ms"] for layer in probed["layers"]), 10)
        table = {name: profile()[name] for name in ["forward_ms", "layers"]}
        self.ok(*few, "--layers", self.write(table, "table.json"), "--codec", "none")
        self.assertEqual(self.json_of(path)["layers"], table["layers"])

    @harness.needs_trainer
    def test_probe_refuses(self):
        probe = ["probe", "-o", self.path("probed.json")]
        self.refused(2, "probe", says="-o is missing")
        rows = [
            ("--net resnet50", "--images-per-second"),
            ("--net nothing", "nothing"),
            ("--net logreg", "nothing to plan"),
            ("--net lenet --images-per-second 100", "There are alexnet"),
            ("--images-per-second 0", "must be above 0"),
            ("--layers x --net lenet", "--net and --images-per-second do, too"),
            ("--codec ternary --codec ternary", "given twice"),
            ("--codec topk:scope=global,refresh=1", "nothing to plan"),
            ("--workers 1", "--workers"),
        ]
        self.each_refused(2, *probe, rows)
        for bad in ["{}", '{"forward_ms": -1, "layers": []}', ""]:
            self.refused(1, *probe, "--layers", self.write(bad, "table.json"))
        # resnet20 is a network of the trainer, too, so it is run, and only then the file cannot be written.
        for net in ["mlp:4-4", "resnet20"]:
            words = f"--net {net} --batch 1 --workers 2 --runs 1 -o".split()
            self.refused(1, *probe, *words, self.path("no/folder"), says="cannot write")
        self.assertEqual([name for name in os.listdir(self.folder) if "probed" in name], [])

    @harness.needs_trainer
    def test_members_must_agree(self):
        self.need_tcp()
        probe = ["probe", "-o", self.path("out.json"), *"--net mlp:16-8-4 --codec ternary --runs 1".split()]
        bench = ["bench", "exchange", "--profile", self.write(profile()), "--codec", "none", "--runs", 1]
        for words, first, second in [
            (probe, ["--codec", "bf16"], []),
            (bench, ["--runs", 2], []),
            (bench, ["--plan", "none"], ["--plan", "single"]),
        ]:
            tcp = f"--link tcp --workers 2 --timeout 60 --rendezvous 127.0.0.1:{next(PORTS)} --rank".split()
            for member in [self.start(*words, *tcp, rank, *more) for rank, more in enumerate([first, second])]:
                said = member.communicate(timeout=60)[1]
                self.assertIn(member.returncode, (1, 2), said)
                self.assertIn("the same", said)
        self.assertFalse(os.path.exists(self.path("out.json")))

    @harness.needs_trainer
    def test_train(self):
        """With every plan the parameters have the same bits."""
        tensors = [f"fc{i}.{part}" for i in (1, 2, 3) for part in ("weight", "bias")]
        words = [*DEEP, "--workers", 2, "--steps", 3]
        plan = self.write({"groups": [tensors[3:][::-1], [tensors[0], tensors[2]], [tensors[1]]]}, "plan.json")
        for spec, ways in [("ternary", ["none", "single", "fixed:1", "fixed:4K", plan]), ("topk", ["single", plan])]:
            runs = [self.ok_json(*words, "--codec", spec, "--plan", how) for how in ways]
            self.assertTrue(all(run["replicas_identical"] for run in runs))
            self.assertEqual(len({run["parameter_hash"] for run in runs}), 1)
            if spec == "ternary":
                self.assertEqual(len({run["bytes_up"] for run in runs}), 4)
        for bad, says in [
            ({}, 'no "groups"'),
            ({"groups": [tensors[:-1]]}, "says nothing of fc3.bias"),
            ({"groups": [[*tensors, "fc2.bias"]]}, "has fc2.bias twice"),
            ({"groups": [[*tensors, "fc4.bias"]]}, "no tensor of mlp"),
            ({"groups": [tensors, []]}, "is empty"),
            ({"groups": [tensors, 5]}, "no list of names"),
            ({"groups": [[7]]}, "no tensor of mlp"),
            ("{", "a plan is what gradwire plan --json prints"),
        ]:
            done = self.run_tool(*words, "--plan", self.write(bad, "plan.json"))
            self.assertIn(done.returncode, (1, 2))
            self.assertIn(says, done.stderr)
        for how in ["best", "fixed", "fixed:0", "fixed:x", "exactly", ""]:
            self.assertIn("--plan is", self.run_tool(*words, "--plan", how).stderr)
        self.refused(1, *words, "--plan", self.path("absent.json"), says="absent.json")

    @harness.needs_trainer
    def test_train_plans_live(self):
        """The parameters have the same bits if the plan is made, and made anew, while the run trains."""
        # A plan takes seconds to make. The codec that keeps the most changes plans, and the other makes one.
        words, run, topk = [*DEEP, "--workers", 3, "--batch", 9], self.path("run"), "topk:ratio=0.05,refresh=8"
        keeps = ["--replan", 17, "--out", run, "--checkpoint-every", 30]
        for codec, live, plans in [("ternary", ["paper"], 1), (topk, ["exact", *keeps], 2)]:
            hashes = set()
            for how, n in [(["none"], 0), (live, plans)]:
                summary = self.ok_json(*words, "--steps", 30, "--codec", codec, "--plan", *how)
                self.assertTrue(summary["replicas_identical"])
                hashes.add(summary["parameter_hash"])
                plan = summary["plan"]
                self.assertEqual((plan["asked"], plan["plans"]), (how[0], n))
                self.assertIn(plan["groups"], range(1, 7) if n else [3])
                self.assertEqual(plan["predicted_ms"] is None, n == 0)
            self.assertEqual(len(hashes), 1)
        # A run that is gone on with makes a plan of its own steps.
        self.assertEqual(self.ok_json("train", "--resume", run, "--steps", 50)["plan"]["plans"], 1)
        self.said(*words, "--codec", topk, "--plan", "exact", "--steps", 12, says="the run was too short")
        rows = [
            ("--plan none --replan 5", "--replan is for"),
            ("--replan 5", "--replan is for"),
            ("--plan exact --replan 0", "from 1 to"),
            ("--plan exact --codec topk:scope=global,refresh=1", "one group"),
            ("--plan exact --net logreg --data uneven", "nothing to plan"),
            ("--plan exact --servers 127.0.0.1:9", "make a plan beforehand"),
        ]
        self.each_refused(2, *words, rows)

    # ---- bad profiles ----

    def test_bad_profiles(self):
        whole, layer = json.dumps(profile()), lambda **more: lambda p: p["layers"][1].update(more)
        for value, says in [
            ("", "is no profile"),
            (whole + "x", "is no profile"),
            ("[]", 'has no "layers"'),
            (whole.replace('"forward_ms": 4', '"forward_ms": NaN'), "is no profile"),
            (whole.replace('"forward_ms": 4', '"forward_ms": 1e999'), "is no profile"),
            (lambda p: p.update(forward_ms="4"), "forward_ms"),
            (lambda p: p.update(compress="outside"), "must be inline or beside"),
            (lambda p: p.update(layers=[]), "0 layers"),
            (lambda p: p.update(layers=7), "must be a list"),
            (layer(elements=1.5), "whole number"),
            (layer(name=3), "must be a text"),
            (layer(backward=3), 'is "backward_ms" meant'),
            (lambda p: p["layers"].append(5), "must be an object"),
            (lambda p: p["link"].pop("alpha_ms"), 'no "alpha_ms"'),
            (lambda p: p["codecs"][0].update(compress_ms_per_element=1e308), "is 1e+308; it is 1e+15 at most"),
            (lambda p: p.update(forward_ms=1e300), '"forward_ms" is 1e+300; it is'),
            (lambda p: p["link"].update(latency_ms=-1e16), '"latency_ms" is -1e+16; it is'),
        ]:
            done = self.run_tool("plan", "--profile", self.write(profile(value) if callable(value) else value))
            self.assertIn(done.returncode, (1, 2), says)
            self.assertEqual(done.stdout, "")
            self.assertIn(says, done.stderr)
        path = self.write("{}")
        for command in ["plan", "advise"]:
            self.refused(1, command, "--profile", path, says="gradwire probe")
            self.refused(2, command, says="--profile is missing")
            self.refused(1, command, "--profile", self.path("none"), says="cannot read")
            self.refused(1, command, "--profile", "/", says="it is a folder")
            self.refused(2, command, "--profile", path, "more", says="one word too many")
            self.refused(2, command, "--profile", path, "--compress", "besides", says="must be inline or beside")
        path = self.write(profile())
        for method in "best fixed fixed: fixed:0 fixed:-1 fixed:1XB exact:3 : fixed:99999999999Gi".split():
            self.refused(2, "plan", "--profile", path, "--method", method, says="must be exact, paper, none, single")
        self.write(profile(lambda p: p["link"].update(ms_per_byte=0)))
        self.refused(1, "advise", "--profile", path, says="ms_per_byte is 0")


if __name__ == "__main__":
    harness.main()
