"""Tests plans and advice from profiles: what the tool prints, and profiles that it refuses. merge_test and advise_test
have the plans themselves, and profiles with numbers that cannot be; probe_test and probe_fit_test what is measured;
train_test what trainings do with plans."""

import json
import os
from xml.etree import ElementTree

import harness
from harness import PORTS, profile


class Plan(harness.Case):
    def write(self, value, name="profile.json"):
        return self.write_bytes(name, (value if isinstance(value, str) else json.dumps(value)).encode())

    def test_plan(self):
        words = ["plan", "--profile", self.write({**profile(), "compress": "beside", "about": {"date": "a day"}})]
        plan = self.ok_json(*words, "--codec", "ternary:clip=2.5")  # a codec is found in any spelling
        self.assertEqual((plan["codec"], plan["compress"], plan["method"]), ("ternary", "beside", "exact"))
        more = ["--method", "none", "--compress", "inline"]
        plan = self.ok_json(*words, *more)
        wanted = {"codec": "ternary", "compress": "inline", "method": "none", "step_ms": 17.75, "step_ms_exact": 17.5}
        self.assertLessEqual(wanted.items(), plan.items())
        self.assertEqual(plan["groups"], [["fc2"], ["fc1"], ["conv2"], ["conv1"]])
        self.assertEqual(plan["timeline"][-1]["arrived_ms"], 17.75)
        self.assertIn("none, groups: 4", self.ok(*words, *more))
        self.refused(1, *words, "--codec", "bf16", says='no codec "bf16"')
        self.refused(2, *words, "--codec", "ternari", says="ternary")
        for method in "best fixed fixed: fixed:0 fixed:1XB exact:3 : fixed:99999999999Gi".split():
            self.refused(2, *words, "--method", method, says="must be exact, paper, none, single")

    def test_chart(self):
        path, chart = self.write(profile()), self.path("step.svg")
        for words, n in [([], 4), (["--method", "fixed:4000"], 5)]:
            self.ok("plan", "--profile", path, "--codec", "ternary", "-o", chart, *words)
            texts = [e.text for e in ElementTree.parse(chart).getroot().iter() if e.tag.endswith("text")]
            titles = [text for text in texts if "groups:" in text]
            self.assertEqual((len(titles), "backward" in texts), (n, True))
            self.assertTrue(titles[0].startswith(words[1] if words else "exact: 17.50 ms, groups: 2"))
        for spec in ["\uffff<&\">", *("x" * k + "\u4e2d" * 300 for k in range(3))]:
            odd = {**profile(), "codecs": [{**profile()["codecs"][0], "spec": spec}]}
            self.ok("plan", "--profile", self.write(odd), "-o", chart)
            ElementTree.parse(chart)
        os.remove(chart)
        nothing = profile(lambda p: [layer.update(backward_ms=0) for layer in p["layers"]])
        nothing["link"].update(alpha_ms=0, ms_per_byte=0)
        for nothing["forward_ms"] in [0, 5e-324, 1e15]:
            words = ["plan", "--profile", self.write(nothing), "--codec", "none", "-o", chart]
            self.said(*words, status=1, says="can be drawn")
        self.assertFalse(os.path.exists(chart))

    def test_advice(self):
        """A codec is taken if trainings say that it loses little. What would be faster is named, with the reason. It
        says by how much its model was off, and if the gain is smaller than that."""
        (ternary,) = self.ok_json("codecs", "ternary")["codecs"]
        lost = max(row["points_lost"] for row in ternary["losses"] if row["codec"] == "ternary")
        words = ["advise", "--profile", self.write(profile())]
        advice = self.ok_json(*words)
        rows = {row["codec"]: (row["points_lost"], row["off_by"]) for row in advice["codecs"]}
        self.assertEqual(rows, {"none": (0, None), "ternary": (lost, None)})
        self.assertEqual(advice["assumed"]["most_points_lost"], 0.3)
        for most, takes in ((0.3, "none"), (lost, "ternary"), (lost - 0.01, "none"), ("any", "ternary")):
            advice = self.ok_json(*words, "--lost", most)
            self.assertEqual((advice["codec"], advice["pays"]), (takes, takes == "ternary"))
        self.assertEqual((advice["step_ms"], advice["step_ms_floats"]), (17.5, 21.5))
        off = lambda p: (p["codecs"][0].update(off_by=0.01), p["codecs"][1].update(off_by=0.99))
        off_says = "That gain is less than what the model was off by when the profile was measured (99.0 %)"
        untold = lambda p: p["codecs"][1].update(spec="ternary:clip=7")
        link = lambda p: p["link"].update(ms_per_byte=5e-324)
        for change, most, *says in [
            (lambda p: 0, 0.3, "Take none: no codec that makes the step shorter is known to lose at most 0.3 points"),
            (lambda p: 0, 0.3, f"ternary would take 17.500 ms, but lost {lost:.2f} points of accuracy in a training."),
            (lambda p: 0, "any", "Take ternary with --plan exact"),
            (off, "any", off_says, " 99.0% "),
            (lambda p: p["codecs"][1].update(compress_ms_fixed=1000), "any", "Take none"),
            (untold, 100, "ternary:clip=7 would take 17.500 ms, but nobody has measured what it costs"),
            (link, "any", "(as if at any bandwidth)"),
            (lambda p: p["link"].update(ms_per_byte=1e-6), "any", "(as if at 8 Gbit/s)"),
            (lambda p: p["link"].update(ms_per_byte=0.001), "any", "(as if at 8 Mbit/s)"),
        ]:
            self.write(profile(change))
            said = self.ok(*words, "--lost", most)
            for part in says:
                self.assertIn(part, said)
            self.assertEqual(("That gain is less" in said, "inf " in said), (change == off, False), said)
        self.write(profile(lambda p: p["codecs"].pop(0)))  # without floats, their costs are assumed
        self.assertTrue(self.ok_json(*words)["assumed"]["floats"])
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
        self.assertEqual([row["groups"] for row in rows[2:4]], [5, 1])
        self.assertIsNone(rows[3]["hidden_share"])
        # Bytes do not depend on the plan, except for the header of each message.
        self.assertLess(rows[2]["bytes_up"] - rows[3]["bytes_up"], 3 * 5 * 64)
        # The profile does not have this codec, so only plans work that need no costs.
        words = [*replay, "--workers", 2, "--runs", 1, "--codec", "bf16"]
        self.assertIsNone(self.ok_json(*words, "--plan", "single")["results"][0]["predicted_seconds"])
        self.refused(1, *words, says='no codec "bf16"')
        slow = self.write(profile(lambda p: p.update(forward_ms=1e12)), "slow.json")
        before = self.read_bytes("profile.json")
        rows = [
            ([*words[:-1], "ternary:scope=global", "--plan", "none"], "--plan single"),
            ("bench exchange --plan none", "--plan needs a --profile"),
            ([*replay, "--net", "vgg16"], "give one of them"),
            ([*replay, "--plan", "best"], "must be exact"),
            ([*replay[:3], slow, "--timeout", 2], "--timeout lets a member be silent"),
            *((w, "are one file") for w in ([*replay, "-o", path], ["plan", *replay[2:], "-o", path])),
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
        self.assertEqual((probed["compress"], probed["about"]["backward"]), ("beside", "measured"))
        self.assertGreaterEqual(len(probed["about"]["exchanges"]["bf16"]), 5)  # a busy machine leaves out longer ones
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
        before = self.contents()
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
        self.each_refused(2, *few, rows)
        self.refused(2, "probe", says="-o is missing")
        # resnet20 is a network of the trainer, too, so it is run, and only then the file cannot be written.
        run = ["--net", "resnet20", "--batch", 1, "-o", self.path("no/folder")]
        self.each_refused(1, *few, [(["--layers", plan], 'no "layers"'), (run, "cannot write")])
        self.assertEqual(self.contents(), before)

    @harness.needs_trainer
    def test_members_must_agree(self):
        """probe_test has members that measure something else."""
        self.need_tcp()
        bench = ["bench", "exchange", "--profile", self.write(profile()), "--codec", "none", "--runs", 1]
        for words, first, second in [
            ("probe --net mlp:16-8-4 --codec ternary --runs 1 -o /dev/null".split(), ["--codec", "bf16"], []),
            (bench, ["--runs", 2], []),
            (bench, ["--plan", "none"], ["--plan", "single"]),
        ]:
            tcp = f"--link tcp --workers 2 --timeout 60 --rendezvous 127.0.0.1:{next(PORTS)} --rank".split()
            for member in [self.start(*words, *tcp, rank, *more) for rank, more in enumerate([first, second])]:
                said = member.communicate(timeout=60)[1]
                self.assertIn(member.returncode, (1, 2), said)
                self.assertIn("the same", said)

    @harness.needs_trainer
    def test_train(self):
        words = ["train", *harness.SMALL, "--steps", 12, "--workers", 2, "--plan"]
        self.said(*words, "exact", says="the run was too short")
        self.refused(1, *words, self.path("absent.json"), says="absent.json")
        rows = [
            ("best", "--plan is"),
            ("none --replan 5", "--replan is for"),
            ("exact --replan 0", "from 1 to"),
            ("exact --codec topk:scope=global,refresh=1", "one group"),
            ("exact --net logreg --data uneven", "nothing to plan"),
            ("exact --servers 127.0.0.1:9", "make a plan beforehand"),
        ]
        self.each_refused(2, *words, rows)

    def test_bad_profiles(self):
        """profile_test has what can be wrong in a profile."""
        path = self.write(profile(lambda p: p["codecs"][0].update(spec="\x1b[31m\u009b")))
        self.assertTrue(self.ok("advise", "--profile", path, "--json").isascii())
        for command in ["plan", "advise"]:
            self.refused(2, command, says="--profile is missing")
            bad = self.write("{}", "bad.json")
            rows = [([self.path("none")], "cannot read"), ([self.folder], "it is a folder"), ([bad], "gradwire probe")]
            self.each_refused(1, command, "--profile", rows)
            rows = [("more", "one word too many"), ("--compress besides", "must be inline or beside")]
            self.each_refused(2, command, "--profile", path, rows)
        self.write(profile(lambda p: p["link"].update(ms_per_byte=0)))
        self.refused(1, "advise", "--profile", path, says="ms_per_byte is 0")


if __name__ == "__main__":
    harness.main()
