"""Tests gradwire report: the page about runs, what it is made of, and what it makes of folders that are broken."""

import html.parser
import json
import os
import re
import shutil
import struct
import subprocess
import time
import unittest

import harness

# The script of every chart is in the page, so the page fetches nothing.
OUTSIDE = re.compile(r"""https?:|\bsrc\s*=|@import|url\((?!data:)|<link(?![^>]*href="data:,")|<iframe|\bimport\b""")
RUN = ["train", "--net", "lenet", "--data", harness.PICTURES, "--batch", 8, "--workers", 2, "--codec", "ternary"]


class Page(html.parser.HTMLParser):
    """Finds the scripts of a page, and checks that all elements that are opened are closed."""

    VOID = {"meta", "link", "br", "input"}

    def __init__(self, text):
        super().__init__()
        self.open, self.scripts, self.tags = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append([dict(attributes), ""])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, text):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += text


@harness.needs_trainer
class Report(harness.Case):
    def report(self, *folders, name="report.html"):
        """Makes a page, checks what must hold for every page, and returns the data in it."""
        path = self.path(name)
        told = self.ok_json("report", *folders, "-o", path)
        text = self.read_bytes(path).decode()
        self.assertEqual(told, {"path": path, "runs": len(folders), "bytes": len(text.encode())})
        page = Page(text)
        self.assertEqual(
            [attributes for attributes, _ in page.scripts], [{"type": "application/json", "id": "data"}, {}]
        )
        self.assertEqual(OUTSIDE.findall(text.replace(page.scripts[0][1], "")), [])
        for mark in ["<!--style-->", "<!--data-->", "<!--script-->"]:
            self.assertNotIn(mark, text)
        data = json.loads(page.scripts[0][1])
        self.assertEqual(len(data["runs"]), len(folders))
        return data

    def write(self, folder, name, text):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def line(self, step, **more):
        fields = {
            "step": step,
            "epoch": step // 100,
            "loss": 3 / max(1 + step, 1),
            "accuracy": 0.5,
            "step_ms": 10 + (step * 7919 % 1000) / 100,
            "compute_ms": 6.125,
            "encode_ms": 1.5,
            "wait_ms": 3.0625,
            "bytes_up": 1000,
            "bytes_down": 2000,
            "dense_bytes": 32000,
            "nonzero_share": None,
            "committed": True,
            "wire": "small",
        }
        return json.dumps({**fields, **more}) + "\n"

    def synthetic(self, name, n_steps, finished=True, **more):
        """Makes a run's folder as a run of n_steps steps might leave it, with histograms and a summary."""
        folder = self.path(name)
        options = {"net": "lenet", "codec": "ternary", "batch": 200, "steps": n_steps, "workers": 4}
        self.write(folder, "run.json", json.dumps({"gradwire": "0", "data": "20000+4000 samples", "options": options}))
        sent = {"bytes_up": more.get("bytes_up", 1000)}
        lines = [
            self.line(t, **sent, **({"test_accuracy": 0.9, "nonzero_share": 0.1} if t % 100 == 99 else {}))
            for t in range(n_steps)
        ]
        ending = "" if finished else ".partial"
        self.write(folder, "metrics.jsonl" + ending, "".join(lines) + more.get("cut", ""))
        shape = {"max": 0.0123456789, "counts": [12345] * 64}
        kinds = {kind: shape for kind in ["raw", "clipped", "sent", "averaged"]}
        self.write(
            folder,
            "histograms.jsonl" + ending,
            "".join(
                json.dumps({"step": step, "tensor": f"conv{i}.weight", "elements": 9, **kinds}) + "\n"
                for step in sorted({t * max(n_steps - 1, 0) // 19 for t in range(20)})
                for i in range(64)
            ),
        )
        if finished:
            names = ["push_bits", "push_entropy_bits", "pull_bits", "pull_entropy_bits"]
            layer = {
                "name": "layer.weight",
                "elements": 123456,
                "nonzero_share": 0.123456,
                **{n: 1.23456 for n in names},
            }
            summary = {"net": "lenet", "test_accuracy": 0.9, "train_loss": 0.1, "layers": [layer] * 161}
            self.write(folder, "summary.json", json.dumps(summary))
        return folder

    def test_a_real_run(self):
        out = self.path("real")
        summary = self.ok_json(*RUN, "--steps", 60, "--out", out)
        (run,) = self.report(out)["runs"]
        self.assertTrue(run["finished"])
        self.assertEqual((run["planned"], run["notes"], run["path"]), (60, [], out))
        self.assertEqual((run["options"]["codec"], run["options"]["workers"]), ("ternary", 2))
        for field in [
            "bytes_up",
            "bytes_down",
            "dense_bytes",
            "step_ms",
            "compute_ms",
            "encode_ms",
            "wait_ms",
            "seconds",
        ]:
            self.assertAlmostEqual(run["totals"][field] / summary[field], 1, 9, field)
        self.assertEqual(run["summary"]["parameter_hash"], summary["parameter_hash"])
        self.assertEqual([row[0] for row in run["layers"]], [layer["name"] for layer in summary["layers"]])
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        series = run["series"]
        self.assertEqual(series["steps"], list(range(1, 61)))
        for at in [0, -1]:
            for field in ["loss", "accuracy", "step_ms", "wait_ms"]:
                self.assertAlmostEqual(series[field][at] / (lines[at][field] or 1), lines[at][field] and 1, 12)
        self.assertAlmostEqual(series["bytes"][-1], summary["bytes_up"] + summary["bytes_down"])
        self.assertEqual(run["tests"]["test_accuracy"], [summary["test_accuracy"]])
        self.assertEqual(run["wires"], [[1, "small"]])

    def test_histograms_of_a_run(self):
        """A run records histograms in twenty steps. Their sums, counts and events agree, and the training is the
        same."""
        out = self.path("run")
        told = self.ok_json(*RUN, "--steps", 60, "--out", out)
        self.assertEqual(told["parameter_hash"], self.ok_json(*RUN, "--steps", 60)["parameter_hash"])
        with open(os.path.join(out, "histograms.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        steps = sorted({line["step"] for line in lines})
        self.assertEqual((len(steps), steps[0], steps[-1]), (20, 0, 59))
        names = [layer["name"] for layer in told["layers"] if layer["name"].endswith("weight")]
        self.assertEqual([(line["step"], line["tensor"]) for line in lines], [(t, n) for t in steps for n in names])
        events = dict(self.histogram_events(out))
        self.assertEqual(len(events), 4 * len(lines))
        for line in lines:
            for kind in ["raw", "clipped", "sent", "averaged"]:
                got = line[kind]
                self.assertEqual(sum(got["counts"]), line["elements"])
                event = events[line["step"], f"gradient/{line['tensor']}/{kind}"]
                self.assertEqual(event[7], got["counts"])
                self.assertEqual(event[3], [line["elements"]])
                self.assertAlmostEqual(max(-event[1][0], event[2][0]) / got["max"], 1, 6)
                self.assertAlmostEqual(event[6][-1] / got["max"], 1, 6)
                self.assertEqual(len(event[6]), 64)
            self.assertLessEqual(line["clipped"]["max"], line["raw"]["max"])
            self.assertEqual(line["sent"]["max"], line["clipped"]["max"])
            self.assertLessEqual(sum(count > 0 for count in line["sent"]["counts"]), 3)
            self.assertLessEqual(sum(count > 0 for count in line["averaged"]["counts"]), 5)
        (run,) = self.report(out)["runs"]
        self.assertEqual(len(run["histograms"]["rows"]), len(lines))
        self.assertEqual(run["histograms"]["rows"][0]["raw"][1:], lines[0]["raw"]["counts"])
        self.assertEqual(run["histograms"]["rows"][0]["step"], 1)

    def test_which_histograms_there_are(self):
        """A codec with a residual draws no frames, and neither does a codec that loses nothing. One step is enough."""
        for codec, kinds in [
            ("none", ["raw", "averaged"]),
            ("topk", ["raw", "averaged"]),
            ("gspar", ["raw", "sent", "averaged"]),
            ("ternary:bucket=1024", ["raw", "sent", "averaged"]),
            ("ternary:scope=global", ["raw", "averaged"]),
        ]:
            out = self.path("run")
            self.ok(*RUN[:-1], codec, "--steps", 1, "--out", out, "--overwrite")
            with open(os.path.join(out, "histograms.jsonl"), encoding="utf-8") as file:
                (line,) = [json.loads(line) for line in file if '"fc1.weight"' in line]
            self.assertEqual([kind for kind in line if isinstance(line[kind], dict)], kinds, codec)
        self.ok("train", "--net", "logreg", "--data", "uneven:n=64,d=32", "--steps", 3, "--out", out, "--overwrite")
        with open(os.path.join(out, "histograms.jsonl"), encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["tensor"] for line in file], ["weight"] * 3)

    def fields(self, message):
        """Yields the fields of a protocol buffers message as (number, value): integers, bytes, doubles and floats."""
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = message[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    return value

        while at < len(message):
            key = varint()
            if key & 7 == 0:
                yield key >> 3, varint()
                continue
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value = message[at : at + size]
            at += size
            if key & 7 in (1, 5):
                (value,) = struct.unpack("<d" if size == 8 else "<f", value)
            yield key >> 3, value

    def histogram_events(self, out):
        """Yields ((step, tag), {number of HistogramProto's field: [numbers]}) of all histograms in the event file."""
        content, at, last = self.read_bytes(os.path.join(out, "events.out.tfevents.0.gradwire")), 0, 0
        while at < len(content):
            (n,) = struct.unpack_from("<Q", content, at)
            event = dict(self.fields(content[at + 12 : at + 12 + n]))
            at += 12 + n + 4
            self.assertGreaterEqual(event.get(2, 0), last)
            last = event.get(2, 0)
            value = dict(self.fields(dict(self.fields(event[5]))[1])) if 5 in event else {}
            if 5 in value:
                proto = {
                    number: list(struct.unpack(f"<{len(x) // 8}d", x)) if isinstance(x, bytes) else [x]
                    for number, x in self.fields(value[5])
                }
                yield (last, value[1].decode()), proto

    def test_train_writes_a_report(self):
        out = self.path("run")
        self.refused(2, *RUN, "--steps", 2, "--report", says="--report needs --out")
        self.ok(*RUN, "--steps", 2, "--out", out, "--report")
        Page(self.read_bytes(os.path.join(out, "report.html")).decode())
        self.ok(*RUN, "--steps", 2, "--out", out, "--overwrite")
        self.assertNotIn("report.html", os.listdir(out))

    def test_long_runs_stay_small(self):
        first = self.synthetic("first", 10000)
        folders = [first, *(shutil.copytree(first, self.path(f"run{i}")) for i in range(19))]
        data = self.report(*folders)
        self.assertLess(os.path.getsize(self.path("report.html")), 2e6)
        for run in data["runs"]:
            series = run["series"]
            self.assertEqual({len(series["steps"])}, {len(column) for column in series.values()})
            self.assertTrue(150 < len(series["steps"]) <= 402, len(series["steps"]))
            self.assertEqual((series["steps"][0], series["steps"][-1]), (1, 10000))
            self.assertEqual(series["loss"][0], 3)
            self.assertAlmostEqual(series["loss"][-1] / (3 / 10000), 1, 12)
            self.assertAlmostEqual(
                series["seconds"][-1], sum(10 + (t * 7919 % 1000) / 100 for t in range(10000)) / 1e3, 6
            )
            self.assertAlmostEqual(min(series["step_ms_min"]), 10)
            self.assertAlmostEqual(max(series["step_ms_max"]), 19.99)
            for least, mean, most in zip(series["step_ms_min"], series["step_ms"], series["step_ms_max"]):
                self.assertTrue(least <= mean <= most)
            rows = run["histograms"]["rows"]
            steps, tensors = ({row[name] for row in rows} for name in ["step", "tensor"])
            self.assertEqual(len(rows), len(steps) * len(tensors))
            self.assertTrue({1, 10000} <= steps and {"conv0.weight", "conv63.weight"} <= tensors)
            self.assertEqual((run["histograms"]["steps"], run["histograms"]["tensors"]), (20, 64))
        (run,) = self.report(first)["runs"]
        self.assertTrue(20 <= len({row["tensor"] for row in run["histograms"]["rows"]}) <= 64)

    def test_many_short_and_unfinished_runs(self):
        folders = [self.synthetic(f"run{i}", 1 + i % 3) for i in range(60)]
        data = self.report(*folders)
        for i, run in enumerate(data["runs"]):
            self.assertEqual(run["series"]["steps"], list(range(1, 2 + i % 3)))
            self.assertEqual(run["totals"]["steps"], 1 + i % 3)
        self.assertLess(os.path.getsize(self.path("report.html")), 2e6)
        going = self.synthetic("going", 50, finished=False, cut='{"step": 50, "loss": 0.')
        (run,) = self.report(going)["runs"]
        self.assertFalse(run["finished"])
        self.assertEqual((run["totals"]["steps"], run["planned"]), (50, 50))
        self.assertEqual(run["notes"], [])
        self.assertTrue(run["histograms"]["rows"])
        cut = self.synthetic("cut", 50, cut='{"step": 50, "loss": 0.')
        (run,) = self.report(cut)["runs"]
        self.assertEqual((run["totals"]["steps"], run["notes"]), (50, ["metrics.jsonl: the last line is cut"]))
        self.write(self.path("begun"), "run.json", json.dumps({"options": {"steps": 7}, "data": 3}))
        (run,) = self.report(self.path("begun"))["runs"]
        self.assertEqual((run["finished"], run["planned"], run["series"]["steps"]), (False, 7, []))

    @unittest.skipUnless(shutil.which("chromium"), "there is no chromium, which could show the page")
    def test_results_come_first(self):
        """A browser shows a sentence with what came out, then results with both directions, then settings."""
        folders = [self.synthetic(f"run{i}", 50, finished=i < 2, bytes_up=1000 * (3 - i)) for i in range(3)]
        self.report(*folders)
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", self.path("report.html")]
        page = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True)
        main = page.stdout.decode().partition("<main")[2]
        said = [text for text in re.split(r"<[^>]*>|\n", main)[1:] if text.strip()]
        self.assertEqual(said[0], "Results")
        self.assertIn("run0 has the best test accuracy, 90 %.", said[1])
        self.assertIn(
            "run2 moved the fewest bytes (bytes beside float32: up 32 times fewer, down 16 times fewer)", said[1]
        )
        self.assertIn("Not finished: 1 of 3 runs.", said[1])
        columns = ["run", "test accuracy", "to the first, points", "bytes up", "up, beside float32", "bytes down"]
        columns += ["down, beside float32", "train loss", "ms a step", "to the first", "state"]
        self.assertEqual(said[2 : 2 + len(columns)], columns)
        self.assertLess(said.index("run1"), said.index("What differs"))
        self.assertLess(said.index("What differs"), said.index("The same in all runs"))

    def test_a_run_that_is_really_going(self):
        out = self.path("going")
        process = subprocess.Popen(
            [harness.TOOL, *map(str, RUN), "--steps", "100000", "--out", out], stderr=subprocess.DEVNULL
        )
        try:
            path = os.path.join(out, "metrics.jsonl.partial")
            while process.poll() is None and not (os.path.exists(path) and os.path.getsize(path)):
                time.sleep(0.05)
            (run,) = self.report(out)["runs"]
        finally:
            process.kill()
            process.wait()
        self.assertFalse(run["finished"])
        self.assertEqual(run["planned"], 100000)
        self.assertTrue(0 < run["totals"]["steps"] < 100000)

    def test_hostile_texts(self):
        bad = "</script><script>alert(1)</script><!--<script>\u2028&amp;\"'"
        folder = self.path("<img onerror=alert(2)>")
        options = {"net": bad, "codec": bad * 100, bad: bad, "steps": "<b>", "batch": -1}
        self.write(folder, "run.json", json.dumps({"data": bad, "options": options}))
        self.write(folder, "metrics.jsonl", self.line(0, wire=bad) + bad + "\n")
        layers = [{"name": bad, "elements": "many"}, 7, None]
        self.write(folder, "summary.json", json.dumps({"net": bad, "layers": layers, "wire": {"why": bad}}))
        shape = {"max": 1, "counts": [1] * 64}
        self.write(folder, "histograms.jsonl", json.dumps({"step": 0, "tensor": bad[:90], "raw": shape}) + "\n")
        other = os.path.join(self.folder, os.fsdecode(b"\xff</script>"))
        self.write(other, "metrics.jsonl", self.line(0))
        first, second = self.report(folder, other)["runs"]
        self.assertEqual((first["options"]["net"], first["wire"]["why"], first["layers"][0][0]), (bad, bad, bad))
        self.assertEqual(first["path"], folder)
        self.assertLess(len(first["options"]["codec"]), 400)
        self.assertTrue(second["path"].endswith("?</script>"))
        raw = self.read_bytes(self.path("report.html")).decode()
        self.assertNotIn("alert(1)</", raw)
        self.assertNotIn("<img", raw)

    def test_broken_files(self):
        folder = self.path("run")
        good = self.line(0) + self.line(5)
        cases = [
            ("a line of ten megabytes", good + '{"step": 6, "x": "' + 10_000_000 * "x" + '"}\n', 1),
            ("no JSON, no object, no step", good + 'x\n[1]\n{"loss": 1}\n\n', 4),
            ("steps that go back, are negative or huge", good + "".join(self.line(t) for t in [5, 3, -1, 2**60]), 4),
            ("deep", good + "[" * 50000 + "\n", 1),
            ("bytes that are no text", good + "\0\0\n", 1),
        ]
        for what, text, n_bad in cases:
            self.write(folder, "metrics.jsonl", text)
            (run,) = self.report(folder)["runs"]
            self.assertEqual(run["series"]["steps"], [1, 6], what)
            self.assertEqual(len(run["notes"]), 1, what)
            self.assertIn(f"{n_bad} line{'s' * (n_bad > 1)} cannot be used, the first is line 3", run["notes"][0], what)
        self.write(
            folder, "metrics.jsonl", self.line(0, loss=1e308, step_ms=1e308) + self.line(1, loss=None, step_ms=1e308)
        )
        (run,) = self.report(folder)["runs"]
        self.assertEqual((run["totals"]["step_ms"], run["series"]["loss"][1]), (None, None))
        self.write(folder, "metrics.jsonl", good)
        (run,) = self.report(folder)["runs"]
        self.assertEqual(run["notes"], ["metrics.jsonl has 2 of the first 6 steps"])
        for name, text, says in [
            ("run.json", "{", "run.json, line 1"),
            ("run.json", "[]", "run.json holds no JSON object"),
            ("run.json", " " * 2_000_000, "run.json has 2000000 bytes"),
            ("summary.json", "nonsense", "summary.json, line 1"),
        ]:
            self.write(folder, name, text)
            (run,) = self.report(folder)["runs"]
            self.assertIn(says, run["notes"][0])
            self.assertFalse(run["finished"])
            os.remove(os.path.join(folder, name))
        shape = {"max": 1, "counts": [1] * 64}
        bad = [{"max": -1, "counts": [1] * 64}, {"max": 1, "counts": [1] * 63}, {"max": 1, "counts": ["1"] * 64}, 7]
        rows = [{"step": t, "tensor": "w", "raw": raw} for t, raw in enumerate([shape, *bad])]
        rows.append({"step": 2**63 - 1, "tensor": "w", "raw": shape})
        self.write(folder, "histograms.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        (run,) = self.report(folder)["runs"]
        self.assertEqual([row["step"] for row in run["histograms"]["rows"]], [1])
        self.assertIn("histograms.jsonl: 5 lines cannot be used, the first is line 2", run["notes"])

    def test_refusals(self):
        run, page = self.synthetic("run", 2), self.path("page.html")
        empty, file, missing = self.path("empty"), self.write_bytes("file", b""), self.path("missing")
        os.mkdir(empty)
        self.write_bytes("page.html", b"before")
        self.refused(1, "report", missing, "-o", page, says=[missing, "is no folder"])
        self.refused(1, "report", run, file, "-o", page, says=[file, "is no folder"])
        self.refused(1, "report", run, empty, "-o", page, says=[empty, "holds no run"])
        os.mkfifo(os.path.join(empty, "run.json"))
        os.mkfifo(os.path.join(empty, "metrics.jsonl"))
        self.assertIn("run.json cannot be read", self.report(empty)["runs"][0]["notes"][0])
        self.refused(1, "report", run, "-o", os.path.join(missing, "page.html"), says="cannot write")
        self.refused(1, "report", run, "-o", self.folder, says="it is a folder")
        self.refused(2, "report", run, says="-o FILE.html is missing")
        self.refused(2, "report", "-o", page, says="nothing to work on")
        self.refused(2, "report", run, "-o", "-", says="standard output")
        self.refused(2, "report", run, "--out", page, says="there is no option")
        before = self.read_bytes(os.path.join(run, "metrics.jsonl"))
        for name in ["metrics.jsonl", "metrics.jsonl.partial", "../run/run.json", "checkpoint-00000003.gwp"]:
            self.refused(2, "report", run, "-o", os.path.join(run, name), says="a file of the run itself")
        self.assertEqual(self.read_bytes(os.path.join(run, "metrics.jsonl")), before)
        self.ok("report", run, "-o", os.path.join(run, "report.html"))
        self.assertEqual(self.read_bytes(page), b"before")


if __name__ == "__main__":
    harness.main()
