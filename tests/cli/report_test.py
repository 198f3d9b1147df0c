"""Tests gradwire report: the page about runs, what it is made of, and what it makes of folders that are broken.
histograms_test has how values are counted, and the events of histograms."""

import html.parser
import json
import os
import re
import shutil
import unittest

import harness

# The script of every chart is in the page, so the page fetches nothing.
OUTSIDE = re.compile(r"""https?:|\bsrc\s*=|@import|url\((?!data:)|<link(?![^>]*href="data:,")|<iframe|\bimport\b""")
RUN = ["train", *harness.SMALL, *"--batch 8 --workers 2 --codec ternary".split()]
KINDS = ["raw", "clipped", "sent", "averaged"]
SHAPE = {"max": 1, "counts": [1] * 64}


class Page(html.parser.HTMLParser):
    """Finds the scripts of a page, and checks that all elements that are opened are closed."""

    VOID = {"meta", "link", "br", "input"}

    def __init__(self, text):
        super().__init__()
        self.open, self.scripts = [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        if tag == "script":
            self.scripts.append([dict(attributes), ""])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, text):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += text


def line(step, **more):
    """A line of metrics."""
    times = {"step_ms": 10 + (step * 7919 % 1000) / 100, "compute_ms": 6.125, "encode_ms": 1.5, "wait_ms": 3.0625}
    sent = {"bytes_up": 1000, "bytes_down": 2000, "dense_bytes": 32000, "nonzero_share": None, "wire": "small"}
    learnt = {"epoch": step // 100, "loss": 3 / max(1 + step, 1), "accuracy": 0.5, "committed": True}
    return json.dumps({"step": step, **learnt, **times, **sent, **more}) + "\n"


@harness.needs_trainer
class Report(harness.Case):
    def report(self, *folders):
        """Makes a page, checks what must hold for every page, and returns what is in it about the runs."""
        path = self.path("report.html")
        told = self.ok_json("report", *folders, "-o", path)
        text = self.read_bytes(path).decode()
        self.assertLess(told["bytes"], 2e6)
        (kind, data), (none, _) = Page(text).scripts
        self.assertEqual((kind, none), ({"type": "application/json", "id": "data"}, {}))
        self.assertEqual(OUTSIDE.findall(text.replace(data, "")), [])
        self.assertFalse(re.search("<!--(style|data|script)-->", text))
        runs = json.loads(data)["runs"]
        self.assertEqual(len(runs), len(folders))
        notes = [f"{run['path']}: {note}" for run in runs for note in run["notes"]]
        self.assertEqual(told, {"path": path, "runs": len(folders), "bytes": len(text.encode()), "notes": notes})
        return runs

    def write(self, folder, name, text):
        os.makedirs(folder, exist_ok=True)
        self.write_bytes(os.path.join(folder, name), text.encode())

    def synthetic(self, name, n_steps, finished=True, bytes_up=1000, cut=""):
        """Makes a run's folder as a run of n_steps steps might leave it, with histograms and a summary."""
        folder, ending = self.path(name), "" if finished else ".partial"
        options = {"net": "lenet", "codec": "ternary", "batch": 200, "steps": n_steps, "workers": 4}
        self.write(folder, "run.json", json.dumps({"gradwire": "0", "data": "20000+4000 samples", "options": options}))
        tested = {"test_accuracy": 0.9, "nonzero_share": 0.1}
        lines = [line(t, bytes_up=bytes_up, **(tested if t % 100 == 99 else {})) for t in range(n_steps)]
        self.write(folder, "metrics.jsonl" + ending, "".join(lines) + cut)
        kinds = {kind: {"max": 0.0123456789, "counts": [12345] * 64} for kind in KINDS}
        steps = sorted({t * max(n_steps - 1, 0) // 19 for t in range(20)})
        rows = [{"step": t, "tensor": f"conv{i}.weight", "elements": 9, **kinds} for t in steps for i in range(64)]
        self.write(folder, "histograms.jsonl" + ending, "".join(json.dumps(row) + "\n" for row in rows))
        if finished:
            names = ["push_bits", "push_entropy_bits", "pull_bits", "pull_entropy_bits"]
            layer = {"name": "layer.weight", "elements": 123456, "nonzero_share": 0.123456}
            layers = [{**layer, **dict.fromkeys(names, 1.23456)}] * 161
            summary = {"net": "lenet", "test_accuracy": 0.9, "train_loss": 0.1, "layers": layers}
            self.write(folder, "summary.json", json.dumps(summary))
        return folder

    # ---- real runs ----

    def test_a_real_run(self):
        """A run records histograms in twenty steps. Their sums and counts agree, and the training is the same as
        without them. --report makes the page at once."""
        out = self.path("real")
        self.refused(2, *RUN, "--steps", 2, "--report", says="--report needs --out")
        summary = self.ok_json(*RUN, "--steps", 60, "--out", out, "--report")
        self.assertEqual(summary["parameter_hash"], self.ok_json(*RUN, "--steps", 60)["parameter_hash"])
        Page(self.read_bytes(out, "report.html").decode())
        (run,) = self.report(out)
        self.assertEqual((run["finished"], run["planned"], run["notes"], run["path"]), (True, 60, [], out))
        self.assertEqual((run["options"]["codec"], run["options"]["workers"]), ("ternary", 2))
        for field in "bytes_up bytes_down dense_bytes step_ms compute_ms encode_ms wait_ms seconds".split():
            self.assertAlmostEqual(run["totals"][field] / summary[field], 1, 9, field)
        self.assertEqual(run["summary"]["parameter_hash"], summary["parameter_hash"])
        self.assertEqual([row[0] for row in run["layers"]], [layer["name"] for layer in summary["layers"]])
        lines, series = self.lines_of(out, "metrics.jsonl"), run["series"]
        self.assertEqual(series["steps"], list(range(1, 61)))
        for at in [0, -1]:
            for field in ["loss", "accuracy", "step_ms", "wait_ms"]:
                self.assertAlmostEqual(series[field][at], lines[at][field], delta=1e-12 * max(1, lines[at][field]))
        self.assertAlmostEqual(series["bytes"][-1], summary["bytes_up"] + summary["bytes_down"])
        self.assertEqual(run["tests"]["test_accuracy"], [summary["test_accuracy"]])
        self.assertEqual(run["wires"], [[1, "small"]])
        lines = self.lines_of(out, "histograms.jsonl")
        steps = sorted({line["step"] for line in lines})
        self.assertEqual((len(steps), steps[0], steps[-1]), (20, 0, 59))
        names = [layer["name"] for layer in summary["layers"] if layer["name"].endswith("weight")]
        self.assertEqual([(line["step"], line["tensor"]) for line in lines], [(t, n) for t in steps for n in names])
        for of in lines:
            self.assertEqual({sum(of[kind]["counts"]) for kind in KINDS}, {of["elements"]})
            self.assertTrue(of["sent"]["max"] == of["clipped"]["max"] <= of["raw"]["max"])
            levels = [sum(count > 0 for count in of[kind]["counts"]) for kind in ("sent", "averaged")]
            self.assertTrue(levels[0] <= 3 and levels[1] <= 5, levels)
        events = self.read_bytes(out, "events.out.tfevents.0.gradwire")
        self.assertEqual([events.count(f"/{kind}".encode()) for kind in KINDS], [len(lines)] * 4)
        rows = run["histograms"]["rows"]
        self.assertEqual((len(rows), rows[0]["step"]), (len(lines), 1))
        self.assertEqual(rows[0]["raw"][1:], lines[0]["raw"]["counts"])
        self.ok(*RUN, "--steps", 2, "--out", out, "--overwrite")
        self.assertNotIn("report.html", os.listdir(out))

    def test_which_histograms_there_are(self):
        """A codec with a residual draws no frames, and neither does a codec that loses nothing. One step is enough."""
        out = self.path("run")
        for codec, kinds in [
            ("none", ["raw", "averaged"]),
            ("topk", ["raw", "averaged"]),
            ("gspar", ["raw", "sent", "averaged"]),
            ("ternary:bucket=1024", ["raw", "sent", "averaged"]),
            ("ternary:scope=global", ["raw", "averaged"]),
        ]:
            self.ok(*RUN[:-1], codec, "--steps", 1, "--out", out, "--overwrite")
            (of,) = [of for of in self.lines_of(out, "histograms.jsonl") if of["tensor"] == "fc1.weight"]
            self.assertEqual([kind for kind in of if isinstance(of[kind], dict)], kinds, codec)
        self.ok(*"train --net logreg --data uneven:n=64,d=32 --steps 3 --overwrite --out".split(), out)
        self.assertEqual([of["tensor"] for of in self.lines_of(out, "histograms.jsonl")], ["weight"] * 3)

    # ---- long, short and broken runs ----

    def test_long_runs_stay_small(self):
        n = 2000
        first = self.synthetic("first", n)
        runs = self.report(first, *(shutil.copytree(first, self.path(f"run{i}")) for i in range(19)))
        for run in runs:
            series = run["series"]
            self.assertEqual({len(series["steps"])}, {len(column) for column in series.values()})
            self.assertTrue(150 < len(series["steps"]) <= 402, len(series["steps"]))
            self.assertEqual((series["steps"][0], series["steps"][-1], series["loss"][0]), (1, n, 3))
            self.assertAlmostEqual(series["loss"][-1] / (3 / n), 1, 12)
            seconds = sum(10 + (t * 7919 % 1000) / 100 for t in range(n)) / 1e3
            self.assertAlmostEqual(series["seconds"][-1], seconds, 6)
            times = [series[name] for name in ("step_ms_min", "step_ms", "step_ms_max")]
            self.assertAlmostEqual(min(times[0]), 10)
            self.assertAlmostEqual(max(times[2]), 19.99)
            self.assertTrue(all(least <= mean <= most for least, mean, most in zip(*times)))
            rows = run["histograms"]["rows"]
            steps, tensors = ({row[name] for row in rows} for name in ["step", "tensor"])
            self.assertEqual(len(rows), len(steps) * len(tensors))
            self.assertTrue({1, n} <= steps and {"conv0.weight", "conv63.weight"} <= tensors)
            self.assertEqual((run["histograms"]["steps"], run["histograms"]["tensors"]), (20, 64))
        (run,) = self.report(first)
        self.assertTrue(20 <= len({row["tensor"] for row in run["histograms"]["rows"]}) <= 64)

    def test_many_short_and_unfinished_runs(self):
        lengths = [1 + i % 3 for i in range(60)]
        for n, run in zip(lengths, self.report(*(self.synthetic(f"run{i}", n) for i, n in enumerate(lengths)))):
            self.assertEqual((run["series"]["steps"], run["totals"]["steps"]), (list(range(1, n + 1)), n))
        cut = '{"step": 50, "loss": 0.'
        going, ended = self.report(self.synthetic("a", 50, finished=False, cut=cut), self.synthetic("b", 50, cut=cut))
        self.assertEqual((going["finished"], going["planned"], going["notes"]), (False, 50, []))
        self.assertTrue(going["histograms"]["rows"])
        self.assertEqual((going["totals"]["steps"], ended["totals"]["steps"]), (50, 50))
        self.assertEqual(ended["notes"], ["metrics.jsonl: the last line is cut"])
        self.write(self.path("begun"), "run.json", json.dumps({"options": {"steps": 7}, "data": 3}))
        (run,) = self.report(self.path("begun"))
        self.assertEqual((run["finished"], run["planned"], run["series"]["steps"]), (False, 7, []))

    @unittest.skipUnless(shutil.which("chromium"), "there is no chromium, which could show the page")
    def test_results_come_first(self):
        """A browser shows a sentence with what came out, then results with both directions, then settings."""
        self.report(*(self.synthetic(f"run{i}", 50, finished=i < 2, bytes_up=1000 * (3 - i)) for i in range(3)))
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", self.path("report.html")]
        main = self.run_program(*words).stdout.partition("<main")[2]
        said = [text for text in re.split(r"<[^>]*>|\n", main)[1:] if text.strip()]
        self.assertEqual(said[0], "Results")
        for part in [
            "run0 has the best test accuracy, 90 %.",
            "run2 moved the fewest bytes (bytes beside float32: up 32 times fewer, down 16 times fewer)",
            "Not finished: 1 of 3 runs.",
        ]:
            self.assertIn(part, said[1])
        columns = ["run", "test accuracy", "to the first, points", "bytes up", "up, beside float32", "bytes down"]
        columns += ["down, beside float32", "train loss", "ms a step", "to the first", "state"]
        self.assertEqual(said[2 : 2 + len(columns)], columns)
        places = [said.index(text) for text in ("run1", "What differs", "The same in all runs")]
        self.assertEqual(places, sorted(places))

    def test_hostile_texts(self):
        bad = "</script><script>alert(1)</script><!--<script>\u2028&amp;\"'"
        folder = self.path("<img onerror=alert(2)>")
        options = {"net": bad, "codec": bad * 100, bad: bad, "steps": "<b>", "batch": -1}
        self.write(folder, "run.json", json.dumps({"data": bad, "options": options}))
        self.write(folder, "metrics.jsonl", line(0, wire=bad) + bad + "\n")
        layers = [{"name": bad, "elements": "many"}, 7, None]
        self.write(folder, "summary.json", json.dumps({"net": bad, "layers": layers, "wire": {"why": bad}}))
        self.write(folder, "histograms.jsonl", json.dumps({"step": 0, "tensor": bad[:90], "raw": SHAPE}) + "\n")
        other = self.path(os.fsdecode(b"\xff</script>"))
        self.write(other, "metrics.jsonl", line(0))
        first, second = self.report(folder, other)
        self.assertEqual((first["options"]["net"], first["wire"]["why"], first["layers"][0][0]), (bad, bad, bad))
        self.assertEqual(first["path"], folder)
        self.assertLess(len(first["options"]["codec"]), 400)
        self.assertTrue(second["path"].endswith(r"\xff</script>"))
        raw = self.read_bytes("report.html").decode()
        self.assertNotIn("alert(1)</", raw)
        self.assertNotIn("<img", raw)

    def test_broken_files(self):
        folder, good = self.path("run"), line(0) + line(5)

        def of(name, text):
            """The run, after a file of it was written anew."""
            self.write(folder, name, text)
            return self.report(folder)[0]

        for what, text, n_bad in [
            ("a line of ten megabytes", good + '{"step": 6, "x": "' + 10_000_000 * "x" + '"}\n', 1),
            ("no JSON, no object, no step", good + 'x\n[1]\n{"loss": 1}\n\n', 4),
            ("steps that go back, are negative or huge", good + "".join(line(t) for t in [5, 3, -1, 2**60]), 4),
            ("deep", good + "[" * 50000 + "\n", 1),
            ("bytes that are no text", good + "\0\0\n", 1),
        ]:
            run = of("metrics.jsonl", text)
            self.assertEqual((run["series"]["steps"], len(run["notes"])), ([1, 6], 1), what)
            self.assertIn(f"{n_bad} line{'s' * (n_bad > 1)} cannot be used, the first is line 3", run["notes"][0], what)
        run = of("metrics.jsonl", line(0, loss=1e308, step_ms=1e308) + line(1, loss=None, step_ms=1e308))
        self.assertEqual((run["totals"]["step_ms"], run["series"]["loss"][1]), (None, None))
        self.assertEqual(of("metrics.jsonl", good)["notes"], ["metrics.jsonl has 2 of the first 6 steps"])
        self.said("report", folder, "-o", self.path("noted.html"), says="metrics.jsonl has 2 of the first 6 steps")
        for name, text, says in [
            ("run.json", "{", "run.json, line 1"),
            ("run.json", "[]", "run.json holds no JSON object"),
            ("run.json", " " * 2_000_000, "run.json has 2000000 bytes"),
            ("summary.json", "nonsense", "summary.json, line 1"),
        ]:
            run = of(name, text)
            self.assertIn(says, run["notes"][0])
            self.assertFalse(run["finished"])
            os.remove(os.path.join(folder, name))
        os.mkdir(os.path.join(folder, "histograms.jsonl"))
        self.assertIn("histograms.jsonl cannot be read; it is left out", self.report(folder)[0]["notes"])
        os.rmdir(os.path.join(folder, "histograms.jsonl"))
        os.truncate(os.path.join(folder, "metrics.jsonl"), 1 << 42)
        notes = self.report(folder)[0]["notes"]
        self.assertEqual(notes[0], "metrics.jsonl: line 3 has no end, and what follows is left out")
        self.write(folder, "metrics.jsonl", good)
        bad = [{**SHAPE, "max": -1}, {**SHAPE, "counts": [1] * 63}, {**SHAPE, "counts": ["1"] * 64}, 7]
        bad.append({**SHAPE, "counts": [1] * 63 + [-1]})
        rows = [{"step": t, "tensor": "w", "raw": raw} for t, raw in enumerate([SHAPE, *bad])]
        rows.append({"step": 2**63 - 1, "tensor": "w", "raw": SHAPE})
        run = of("histograms.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.assertEqual([row["step"] for row in run["histograms"]["rows"]], [1])
        self.assertIn("histograms.jsonl: 6 lines cannot be used, the first is line 2", run["notes"])

    def test_refusals(self):
        run, page = self.synthetic("run", 2), self.write_bytes("page.html", b"before")
        empty, file, missing = self.path("empty"), self.write_bytes("file", b""), self.path("missing")
        os.mkdir(empty)
        before = self.contents(run)
        rows = [
            ([missing, "-o", page], [missing, "is no folder"]),
            ([run, file, "-o", page], [file, "is no folder"]),
            ([run, empty, "-o", page], [empty, "holds no run"]),
            ([run, "-o", os.path.join(missing, "page.html")], "cannot write"),
            ([run, "-o", self.folder], "it is a folder"),
        ]
        self.each_refused(1, "report", rows)
        rows = [
            ([run], "-o FILE.html is missing"),
            (["-o", page], "nothing to work on"),
            ([run, "-o", "-"], "standard output"),
            ([run, "--out", page], "there is no option"),
        ]
        for name in ["metrics.jsonl", "metrics.jsonl.partial", "../run/run.json", "checkpoint-00000003.gwp"]:
            rows.append(([run, "-o", os.path.join(run, name)], "a file of the run itself"))
        self.each_refused(2, "report", rows)
        self.assertEqual((self.contents(run), self.read_bytes(page)), (before, b"before"))
        self.ok("report", run, "-o", os.path.join(run, "report.html"))
        os.mkfifo(os.path.join(empty, "run.json"))
        os.mkfifo(os.path.join(empty, "metrics.jsonl"))
        self.assertIn("run.json cannot be read", self.report(empty)[0]["notes"][0])


if __name__ == "__main__":
    harness.main()
