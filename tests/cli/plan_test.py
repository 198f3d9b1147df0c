"""Tests plans and advice from profiles: what the tool prints, and profiles that it refuses."""

import json
import os
import statistics
import subprocess
import sys
from xml.etree import ElementTree

import harness

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import ports

PORTS = ports.free_ports()

LAYERS = [("conv1", 1000, 3), ("conv2", 2000, 2), ("fc1", 8000, 1), ("fc2", 1000, 1)]


def codec(spec, **costs):
    names = ["compress_ms_fixed", "compress_ms_per_element", "decompress_ms_per_element", "bytes_per_element"]
    return {"spec": spec, **{name: 0 for name in names}, **costs}


def profile():
    """Returns the example of docs/plan.md, with floats added."""
    costs = {"compress_ms_fixed": 0.5, "compress_ms_per_element": 0.00025, "decompress_ms_per_element": 0.000125}
    return {
        "forward_ms": 4,
        "layers": [{"name": n, "elements": e, "backward_ms": b} for n, e, b in LAYERS],
        "link": {"alpha_ms": 1, "ms_per_byte": 0.0001875, "members": 4},
        "codecs": [codec("none", bytes_per_element=6), codec("ternary", bytes_per_element=2, **costs)],
    }


class Plan(harness.Case):
    def write(self, value, name="profile.json"):
        return self.write_bytes(name, (value if isinstance(value, str) else json.dumps(value)).encode())

    def test_the_example_of_the_docs(self):
        path = self.write(profile())
        for method, groups, inline, beside in [
            ("none", 4, 17.75, 17),
            ("single", 1, 21.5, 21.5),
            ("paper", None, 17.75, 16),
            ("exact", None, 17.5, 16),
            ("fixed:1", 4, 17.75, 17),
            ("fixed:25MB", 1, 21.5, 21.5),
        ]:
            for compress, step in [("inline", inline), ("beside", beside)]:
                words = ["plan", "--profile", path, "--codec", "ternary", "--method", method, "--compress", compress]
                plan = self.ok_json(*words)
                self.assertAlmostEqual(plan["step_ms"], step)
                self.assertEqual((plan["method"], plan["codec"]), (method, "ternary"))
                names = [name for group in plan["groups"] for name in group]
                self.assertEqual(names, ["fc2", "fc1", "conv2", "conv1"])
                if groups:
                    self.assertEqual(len(plan["groups"]), groups)
                self.assertAlmostEqual(plan["timeline"][-1]["arrived_ms"], step)
                self.assertIn(method, self.ok(*words))
                for other in ["none", "single", "paper"]:
                    self.assertGreaterEqual(plan[f"step_ms_{other}"], plan["step_ms_exact"])
        self.assertEqual(self.ok_json("plan", "--profile", path, "--codec", "ternary")["groups"][0], ["fc2", "fc1"])

    def test_defaults(self):
        path = self.write(profile())
        plan = self.ok_json("plan", "--profile", path)
        self.assertEqual((plan["codec"], plan["compress"], plan["method"]), ("ternary", "inline", "exact"))
        path = self.write({**profile(), "compress": "beside", "about": {"date": "a day"}})
        self.assertEqual(self.ok_json("plan", "--profile", path)["compress"], "beside")
        # The command finds a codec in any spelling.
        self.assertEqual(self.ok_json("plan", "--profile", path, "--codec", "ternary:clip=2.5")["codec"], "ternary")
        self.refused(1, "plan", "--profile", path, "--codec", "bf16", says='no codec "bf16"')
        self.refused(2, "plan", "--profile", path, "--codec", "ternari", says="ternary")

    def test_chart(self):
        path, chart = self.write(profile()), self.path("step.svg")
        for words in [[], ["--method", "fixed:4000"], ["--method", "single", "--compress", "beside"]]:
            self.ok("plan", "--profile", path, "--codec", "ternary", "-o", chart, *words)
            texts = [e.text for e in ElementTree.parse(chart).getroot().iter() if e.tag.endswith("text")]
            titles = [text for text in texts if "groups:" in text]
            self.assertEqual(len(titles), 5 if "fixed:4000" in words else 4)
            self.assertTrue(titles[0].startswith(words[1] if words else "exact: 17.50 ms, groups: 2"))
            self.assertIn("backward", texts)
        nothing = profile()
        nothing["forward_ms"] = nothing["link"]["alpha_ms"] = nothing["link"]["ms_per_byte"] = 0
        for layer in nothing["layers"]:
            layer["backward_ms"] = 0
        for forward in [0, 5e-324, 1e-300, 1e300]:
            nothing["forward_ms"] = forward
            words = ["plan", "--profile", self.write(nothing), "--codec", "none", "-o", self.path("none.svg")]
            done = self.run_tool(*words)
            self.assertEqual(done.returncode, 1)
            self.assertIn("can be drawn", done.stderr)
            self.assertFalse(os.path.exists(self.path("none.svg")))
        self.refused(1, "plan", "--profile", self.write("{}"), "-o", chart, says="gradwire probe")

    def test_advice_says_what_it_does_not_know(self):
        """It says by how much its model was off, and if the gain is smaller than that."""
        there = profile()
        said = self.ok("advise", "--profile", self.write(there), "--lost", "any")
        self.assertNotIn("That gain is less", said)
        rows = self.ok_json("advise", "--profile", self.write(there))["codecs"]
        self.assertEqual([row["off_by"] for row in rows], [None] * len(rows))
        there["codecs"][-1]["off_by"] = 0.99
        said = self.ok("advise", "--profile", self.write(there), "--lost", "any")
        self.assertRegex(said, r"ternary .* 99\.0%")
        self.assertIn("That gain is less than what the model was off by when the profile was measured (99.0 %)", said)
        rows = {row["codec"]: row for row in self.ok_json("advise", "--profile", self.write(there))["codecs"]}
        self.assertEqual(rows["ternary"]["off_by"], 0.99)
        there["codecs"][-1]["off_by"] = -0.5
        self.refused(1, "advise", "--profile", self.write(there), says='"off_by" is -0.5')

    def test_advice_knows_accuracy(self):
        """A codec is taken if trainings say that it loses little. What would be faster is named, with the reason."""
        lost = {c["name"]: c["losses"] for c in self.ok_json("codecs")["codecs"]}["ternary"]
        lost = max(row["points_lost"] for row in lost if row["codec"] == "ternary")
        there = profile()
        path = self.write(there)
        advice = self.ok_json("advise", "--profile", path)
        self.assertEqual((advice["codec"], advice["pays"], advice["assumed"]["most_points_lost"]), ("none", False, 0.3))
        rows = {row["codec"]: row["points_lost"] for row in advice["codecs"]}
        self.assertEqual(rows, {"none": 0, "ternary": lost})
        said = self.ok("advise", "--profile", path)
        self.assertIn("Take none: no codec that makes the step shorter is known to lose at most 0.3 points", said)
        self.assertIn(f"ternary would take 17.500 ms, but lost {lost:.2f} points of accuracy in a training.", said)
        for words, takes in ((lost, "ternary"), (lost - 0.01, "none"), ("any", "ternary")):
            self.assertEqual(self.ok_json("advise", "--profile", path, "--lost", words)["codec"], takes)
        # A codec that nobody has trained with may lose anything.
        there["codecs"][1]["spec"] = "ternary:clip=7"
        said = self.ok("advise", "--profile", self.write(there), "--lost", 100)
        self.assertIn("ternary:clip=7 would take 17.500 ms, but nobody has measured what it costs", said)
        self.assertIn("Take none", said)
        for wrong in (-1, 101, "nan", "none"):
            self.refused(2, "advise", "--profile", path, "--lost", wrong, says="points of accuracy from 0 to 100")

    def test_advice(self):
        path = self.write(profile())
        advice = self.ok_json("advise", "--profile", path, "--lost", "any")
        self.assertEqual((advice["codec"], advice["pays"]), ("ternary", True))
        self.assertAlmostEqual(advice["step_ms"], 17.5)
        self.assertAlmostEqual(advice["step_ms_floats"], 21.5)
        self.assertIn("Take ternary with --plan exact", self.ok("advise", "--profile", path, "--lost", "any"))
        # At the bandwidth from which the codec pays, both take the same time.
        edge = advice["codecs"][0]["pays_from_ms_per_byte"]
        for factor, pays in [(0.999, False), (1.02, True)]:
            there = profile()
            there["link"]["ms_per_byte"] = factor * edge
            row = next(
                r for r in self.ok_json("advise", "--profile", self.write(there))["codecs"] if r["codec"] != "none"
            )
            self.assertEqual(row["pays"], pays)
        slow = profile()
        slow["codecs"][1]["compress_ms_fixed"] = 1000
        path = self.write(slow)
        advice = self.ok_json("advise", "--profile", path)
        self.assertEqual((advice["codec"], advice["pays"], advice["speedup"]), ("none", False, 1))
        self.assertIn("Take none", self.ok("advise", "--profile", path))
        # If the profile has no floats, the command assumes their costs, and says so.
        slow["codecs"].pop(0)
        advice = self.ok_json("advise", "--profile", self.write(slow))
        self.assertEqual((advice["codec"], advice["assumed"]["floats"]), ("none", True))

    @harness.needs_trainer
    def test_replay(self):
        """Plans change messages, never averages. A step takes at least as long as its backward."""
        p = profile()
        p["layers"].append({"name": "fc3", "elements": 70000, "backward_ms": 2})
        path = self.write(p)
        plans = ["exact", "paper", "none", "single", "fixed:4000"]
        words = ["bench", "exchange", "--profile", path, "--workers", 3, "--runs", 3]
        for plan in plans:
            words += ["--plan", plan]
        report = self.ok_json(*words)
        self.assertEqual((report["tensors"], report["elements"]), (5, 82000))
        rows = report["results"]
        self.assertEqual([(r["codec"], r["plan"]) for r in rows], [(c, n) for c in ["none", "ternary"] for n in plans])
        for row in rows:
            self.assertTrue(row["averages_identical"])
            self.assertEqual(row["average_hash"], next(r for r in rows if r["codec"] == row["codec"])["average_hash"])
            self.assertAlmostEqual(row["compute_seconds"], 0.013)
            self.assertGreaterEqual(row["seconds_min"], 0.013)
            self.assertGreaterEqual(row["after_seconds"], 0.013)
            self.assertGreater(row["predicted_seconds"], 0.013)
        self.assertEqual([r["groups"] for r in rows if r["plan"] == "none"], [5, 5])
        single = [r for r in rows if r["plan"] == "single"]
        self.assertTrue(all(r["groups"] == 1 and r["hidden_share"] is None for r in single))
        # Bytes do not depend on the plan, except for the header of each message.
        self.assertLess(rows[2]["bytes_up"] - rows[3]["bytes_up"], 3 * 5 * 64)
        # The profile does not have this codec, so only plans work that need no costs.
        words = ["bench", "exchange", "--profile", path, "--workers", 2, "--runs", 1, "--codec", "bf16"]
        row = self.ok_json(*words, "--plan", "single")["results"][0]
        self.assertIsNone(row["predicted_seconds"])
        self.refused(1, *words, says='no codec "bf16"')
        words[-1] = "ternary:scope=global"
        self.refused(2, *words, "--plan", "none", says="--plan single")
        self.refused(2, "bench", "exchange", "--plan", "none", says="--plan needs a --profile")
        self.refused(2, "bench", "exchange", "--profile", path, "--net", "vgg16", says="give one of them")
        self.refused(2, "bench", "exchange", "--profile", path, "--plan", "best", says="must be exact")
        self.refused(1, "bench", "exchange", "--profile", self.write("{}"), says="gradwire probe")

    @harness.needs_trainer
    def test_probe(self):
        """plan, advise and replays read what probe writes. The test asserts no time."""
        path = self.path("probed.json")
        few = ["probe", "--workers", 2, "--runs", 1, "-o", path]
        words = [*few, "--net", "mlp:512-256-4", "--batch", 4, "--codec", "ternary", "--codec", "none"]
        self.ok(*words)
        with open(path) as file:
            probed = json.load(file)
        self.assertEqual([c["spec"] for c in probed["codecs"]], ["none", "ternary"])
        self.assertEqual([layer["elements"] for layer in probed["layers"]], [131072, 256, 1024, 4])
        self.assertEqual(probed["link"]["members"], 2)
        self.assertEqual((probed["compress"], probed["about"]["backward"]), ("beside", "measured"))
        self.assertAlmostEqual(probed["codecs"][0]["bytes_per_element"], 4, delta=0.1)  # 8 (N - 1) / N
        self.assertLess(probed["codecs"][1]["bytes_per_element"], 0.6)
        self.assertEqual(len(probed["about"]["exchanges"]["ternary"]), len(probed["about"]["exchanges"]["none"]))
        for codec in probed["codecs"]:
            points = probed["about"]["exchanges"][codec["spec"]]
            off = statistics.median(abs(point["fitted_ms"] / point["measured_ms"] - 1) for point in points)
            self.assertAlmostEqual(codec["off_by"], off, 9)
        self.ok("plan", "--profile", path)
        self.ok("advise", "--profile", path)
        self.ok("bench", "exchange", "--profile", path, "--runs", 1, "--workers", 2)
        # Built-in networks, with times that the user gives.
        self.ok(*few, "--net", "resnet20", "--images-per-second", 1000, "--batch", 10, "--codec", "none")
        with open(path) as file:
            probed = json.load(file)
        backward = sum(layer["backward_ms"] for layer in probed["layers"])
        self.assertAlmostEqual(probed["forward_ms"] + backward, 10)
        table = {name: profile()[name] for name in ["forward_ms", "layers"]}
        self.ok(*few, "--layers", self.write(table, "table.json"), "--codec", "none")
        with open(path) as file:
            self.assertEqual(json.load(file)["layers"], table["layers"])

    @harness.needs_trainer
    def test_probe_refuses(self):
        path = self.path("probed.json")
        self.refused(2, "probe", says="-o is missing")
        for words, says in [
            (["--net", "resnet50"], "--images-per-second"),
            (["--net", "nothing"], "nothing"),
            (["--net", "logreg"], "nothing to plan"),
            (["--net", "lenet", "--images-per-second", "100"], "There are alexnet"),
            (["--images-per-second", "0"], "must be above 0"),
            (["--images-per-second", "-1"], "must be above 0"),
            (["--layers", "x", "--net", "lenet"], "--net and --images-per-second do, too"),
            (["--codec", "ternary", "--codec", "ternary"], "given twice"),
            (["--codec", "topk:scope=global,refresh=1"], "nothing to plan"),
            (["--codec", "nothing"], "nothing"),
            (["--workers", "1"], "--workers"),
        ]:
            self.refused(2, "probe", "-o", path, *words, says=says)
        for bad in ["{}", "[]", '{"forward_ms": 1, "layers": []}', '{"forward_ms": -1, "layers": []}', ""]:
            self.refused(1, "probe", "-o", path, "--layers", self.write(bad, "table.json"))
        self.refused(1, "probe", "-o", path, "--layers", self.path("absent"), says="cannot read")
        self.refused(1, "probe", "-o", self.path("no/folder"), "--net", "mlp:4-4", "--workers", 2, "--runs", 1)
        self.assertEqual([name for name in os.listdir(self.folder) if "probed" in name], [])

    @harness.needs_trainer
    def test_members_must_agree(self):
        self.need_tcp()
        path = self.write(profile())
        probe = ["probe", "--net", "mlp:16-8-4", "--codec", "ternary", "--runs", 1]
        bench = ["bench", "exchange", "--profile", path, "--codec", "none", "--runs", 1]
        for words, one, other in [
            (probe, ["--runs", 2], []),
            (probe, ["--codec", "bf16"], []),
            (probe, ["--net", "mlp:16-9-4"], []),
            (bench, ["--runs", 2], []),
            (bench, ["--plan", "none"], ["--plan", "single"]),
        ]:
            place = f"127.0.0.1:{next(PORTS)}"
            members = []
            for rank, more in enumerate((one, other)):
                out = ["-o", self.path(f"out-{rank}.json")] if words is probe else []
                tcp = ["--link", "tcp", "--workers", 2, "--rank", rank, "--rendezvous", place, "--timeout", 60]
                command = [harness.TOOL, *map(str, [*words, *more, *out, *tcp])]
                members.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            for member in members:
                said = member.communicate(timeout=60)[1]
                self.assertIn(member.returncode, (1, 2), said)
                self.assertIn("the same", said)
            self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("out-")])

    @harness.needs_trainer
    def test_train(self):
        """With every plan the parameters have the same bits."""
        names = ["conv1", "conv2", "fc1", "fc2"]
        tensors = [f"{name}.{part}" for name in names for part in ("weight", "bias")]
        words = ["train", "--net", "lenet", "--data", harness.PICTURES, "--workers", 2, "--batch", 8, "--steps", 4]
        plan = {"groups": [tensors[5:][::-1], tensors[4:5], [tensors[0], tensors[2]], [tensors[1], tensors[3]]]}
        for codec in ["ternary", "topk:ratio=0.05"]:
            hashes, messages = set(), []
            for how in ["none", "single", "fixed:1", "fixed:1MB", self.write(plan, "plan.json")]:
                run = self.path(f"run-{len(messages)}-{codec[:4]}")
                self.ok(*words, "--codec", codec, "--plan", how, "--out", run)
                with open(os.path.join(run, "summary.json")) as file:
                    summary = json.load(file)
                self.assertTrue(summary["replicas_identical"])
                hashes.add(summary["parameter_hash"])
                messages.append(summary["bytes_up"])
            self.assertEqual(len(hashes), 1)
            self.assertEqual(len(set(messages)), 5 if codec == "ternary" else len(set(messages)))
        # What probe and plan have made fits the network that was probed.
        probed, found = self.path("probed.json"), self.path("found.json")
        self.ok("probe", "--workers", 2, "--runs", 1, "--batch", 8, "--codec", "ternary", "-o", probed)
        self.write_bytes("found.json", self.ok("plan", "--profile", probed, "--codec", "ternary", "--json").encode())
        self.ok(*words, "--codec", "ternary", "--plan", found)
        for bad, says in [
            ({}, 'no "groups"'),
            ({"groups": [tensors[:-1]]}, "says nothing of fc2.bias"),
            ({"groups": [[*tensors, "fc2.bias"]]}, "has fc2.bias twice"),
            ({"groups": [[*tensors, "fc3.bias"]]}, "no tensor of lenet"),
            ({"groups": [tensors, []]}, "is empty"),
            ({"groups": [tensors, 5]}, "no list of names"),
            ({"groups": [[7]]}, "no tensor of lenet"),
            ("{", "is no plan"),
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
        words = ["train", "--net", "lenet", "--data", harness.PICTURES, "--workers", 3, "--batch", 9, "--steps", 30]
        # A plan takes seconds to make. The codec that keeps the most changes plans, and the other makes one.
        for codec, ways in [
            ("ternary", [(["paper"], 1)]),
            ("topk:ratio=0.05,refresh=8", [(["exact", "--replan", 17], 2), (["paper", "--replan", 7], 3)]),
        ]:
            hashes = set()
            for how, plans in [(["none"], 0), *ways]:
                summary = self.ok_json(*words, "--codec", codec, "--plan", *how)
                self.assertTrue(summary["replicas_identical"])
                hashes.add(summary["parameter_hash"])
                plan = summary["plan"]
                self.assertEqual((plan["asked"], plan["plans"]), (how[0], plans))
                self.assertIn(plan["groups"], [4] if plans == 0 else range(1, 9))
                self.assertEqual(plan["predicted_ms"] is None, plans == 0)
            self.assertEqual(len(hashes), 1)
        # If a run was interrupted, it goes on, and makes a plan of its own steps.
        run = self.path("resumed")
        words += ["--codec", codec]
        self.ok(*words[:-3], 20, *words[-2:], "--plan", "exact", "--out", run, "--checkpoint-every", 20)
        self.assertEqual(self.ok_json("train", "--resume", run, "--steps", 40)["plan"]["plans"], 1)
        said = self.run_tool(*words, "--steps", 12, "--plan", "exact").stderr
        self.assertIn("the run was too short", said)
        for more, says in [
            (["--plan", "none", "--replan", 5], "--replan is for"),
            (["--replan", 5], "--replan is for"),
            (["--plan", "exact", "--replan", 0], "from 1 to"),
            (["--plan", "exact", "--codec", "topk:scope=global,refresh=1"], "one group"),
            (["--plan", "exact", "--net", "logreg", "--data", "uneven"], "nothing to plan"),
            (["--plan", "exact", "--servers", "127.0.0.1:9"], "make a plan beforehand"),
        ]:
            self.refused(2, *words[:-2], *more, says=says)

    @harness.needs_trainer
    def test_replay_refuses(self):
        """The command refuses with an exit status, not by a signal. Files that are there stay."""
        path = self.write(profile())
        replay = ["bench", "exchange", "--profile", path]
        self.refused(2, *replay, "--plan", "fixed:0", says="fixed:BYTES")
        self.refused(1, *replay, "--codec", "onebit", says='no codec "onebit"')
        slow = profile()
        slow["forward_ms"] = 1e12
        slow = self.write(slow, "slow.json")
        self.refused(
            2, "bench", "exchange", "--profile", slow, "--timeout", 2, says="--timeout lets a member be silent"
        )
        for words in [[*replay, "-o", path], ["plan", "--profile", path, "-o", path]]:
            self.refused(2, *words, says="are one file")
        self.refused(2, "probe", "--layers", path, "-o", path, says="are one file")
        with open(path) as file:
            self.assertEqual(json.load(file), profile())

    def test_odd_names_in_a_chart(self):
        for spec in ["\uffff<&\">", *("x" * k + "\u4e2d" * 300 for k in range(3))]:
            odd = profile()
            odd["codecs"] = [codec(spec, bytes_per_element=6)]
            self.ok("plan", "--profile", self.write(odd), "-o", self.path("odd.svg"))
            ElementTree.parse(self.path("odd.svg"))

    def test_bad_profiles(self):
        def change(how):
            p = profile()
            how(p)
            return p

        many = [{"name": f"l{i}", "elements": 1, "backward_ms": 0} for i in range(100000)]
        whole = json.dumps(profile())
        for value, says in [
            ("", "is no profile"),
            (whole[: len(whole) // 2], "is no profile"),
            (whole + "x", "is no profile"),
            ("[]", 'has no "layers"'),
            ("{}", "gradwire probe"),
            (whole.replace('"forward_ms": 4', '"forward_ms": NaN'), "is no profile"),
            (whole.replace('"forward_ms": 4', '"forward_ms": 1e999'), "is no profile"),
            (change(lambda p: p.pop("forward_ms")), "forward_ms"),
            (change(lambda p: p.update(forward_ms=-1)), "forward_ms is -1"),
            (change(lambda p: p.update(forward_ms="4")), "forward_ms"),
            (change(lambda p: p.update(compress="outside")), "must be inline or beside"),
            (change(lambda p: p.update(layers=[])), "0 layers"),
            (change(lambda p: p.update(layers=7)), "must be a list"),
            (change(lambda p: p.update(layers=many)), "100000 layers"),
            (change(lambda p: p["layers"].append(p["layers"][0])), 'two layers have the name "conv1"'),
            (change(lambda p: p["layers"][1].update(backward_ms=-2)), "conv2: backward_ms is -2"),
            (change(lambda p: p["layers"][1].update(elements=0)), "conv2"),
            (change(lambda p: p["layers"][1].update(elements=1.5)), "whole number"),
            (change(lambda p: p["layers"][1].update(elements=-3)), "whole number"),
            (change(lambda p: p["layers"][1].update(name=3)), "must be a text"),
            (change(lambda p: p["layers"][1].update(backward=3)), 'is "backward_ms" meant'),
            (change(lambda p: p["layers"].append(5)), "must be an object"),
            (change(lambda p: p["link"].pop("alpha_ms")), 'no "alpha_ms"'),
            (change(lambda p: p["link"].update(members=0)), "0 members"),
            (change(lambda p: p["link"].update(ms_per_byte=-1)), "ms_per_byte is -1"),
            (change(lambda p: p.update(codecs=[])), "0 codecs"),
            (change(lambda p: p["codecs"].append(p["codecs"][0])), 'two codecs have the name "none"'),
            (change(lambda p: p["codecs"][0].pop("bytes_per_element")), 'no "bytes_per_element"'),
            (change(lambda p: p["codecs"][0].update(compress_ms_fixed=-1)), "compress_ms_fixed is -1"),
            (change(lambda p: p["codecs"][0].update(compress_ms_per_element=1e308)), "more milliseconds than"),
        ]:
            path = self.write(value)
            for command in ["plan", "advise"]:
                done = self.run_tool(command, "--profile", path)
                self.assertIn(done.returncode, (1, 2), says)
                self.assertEqual(done.stdout, "")
                self.assertIn(says, done.stderr)
        for command in ["plan", "advise"]:
            self.refused(2, command, says="--profile is missing")
            self.refused(1, command, "--profile", self.path("none"), says="cannot read")
            self.refused(1, command, "--profile", "/", says="it is a folder")
            self.refused(2, command, "--profile", path, "more", says="one word too many")
            self.refused(2, command, "--profile", path, "--compress", "besides", says="must be inline or beside")
        path = self.write(profile())
        for method in [
            "best",
            "fixed",
            "fixed:",
            "fixed:0",
            "fixed:-1",
            "fixed:1XB",
            "exact:3",
            ":",
            "fixed:99999999999Gi",
        ]:
            self.refused(2, "plan", "--profile", path, "--method", method, says="must be exact, paper, none, single")
        there = profile()
        there["link"]["ms_per_byte"] = 0
        self.refused(1, "advise", "--profile", self.write(there), says="ms_per_byte is 0")


if __name__ == "__main__":
    harness.main()
