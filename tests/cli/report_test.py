"""Tests gradwire report from outside: a real run's page, what a browser shows, and what is refused. report_test in
tool/report has long and short runs, and files that are broken or hostile."""

import json
import os
import re
import shutil
import unittest

import harness

# The script of every chart is in the page, so the page fetches nothing.
OUTSIDE = re.compile(r"""https?:|\bsrc\s*=|@import|url\((?!data:)|<link(?![^>]*href="data:,")|<iframe|\bimport\b""")
SCRIPT = re.compile("<script([^>]*)>(.*?)</script>", re.S)
RUN = ["train", *harness.SMALL, *"--batch 8 --workers 2 --codec ternary".split()]


@harness.needs_trainer
class Report(harness.Case):
    def report(self, *folders):
        """Makes a page, checks what must hold for every page, and returns what is in it about the runs."""
        path = self.path("report.html")
        told, text = self.ok_json("report", *folders, "-o", path), self.read_bytes(path).decode()
        (kind, data), (none, _) = SCRIPT.findall(text)
        self.assertEqual((kind, none, text.lower().count("<script")), (' type="application/json" id="data"', "", 2))
        self.assertEqual(OUTSIDE.findall(text.replace(data, "")), [])
        self.assertFalse(re.search("<!--(style|data|script)-->", text))
        runs = json.loads(data)["runs"]
        notes = [f"{run['path']}: {note}" for run in runs for note in run["notes"]]
        self.assertEqual(told, {"path": path, "runs": len(folders), "bytes": len(text.encode()), "notes": notes})
        return runs

    def test_a_real_run(self):
        """histograms_test, metrics_test and train_test have what a run writes. --report makes the page at once."""
        out = self.path("real")
        self.refused(2, *RUN, "--steps", 2, "--report", says="--report needs --out")
        summary = self.ok_json(*RUN, "--steps", 60, "--out", out, "--report")
        self.assertEqual(summary["parameter_hash"], self.ok_json(*RUN, "--steps", 60)["parameter_hash"])
        self.assertEqual(len(SCRIPT.findall(self.read_bytes(out, "report.html").decode())), 2)
        (run,) = self.report(out)
        self.assertEqual((run["finished"], run["planned"], run["notes"], run["path"]), (True, 60, [], out))
        self.assertEqual((run["options"]["codec"], run["options"]["workers"]), ("ternary", 2))
        for field in "bytes_up bytes_down dense_bytes step_ms compute_ms encode_ms wait_ms seconds".split():
            self.assertAlmostEqual(run["totals"][field] / summary[field], 1, 9, field)
        self.assertEqual(run["summary"]["parameter_hash"], summary["parameter_hash"])
        self.assertEqual([row[0] for row in run["layers"]], [layer["name"] for layer in summary["layers"]])
        lines, series = self.lines_of(out, "metrics.jsonl"), run["series"]
        self.assertEqual(series["steps"], list(range(1, 61)))
        for field in ["loss", "accuracy", "step_ms", "wait_ms"]:
            self.assertAlmostEqual(series[field][-1], lines[-1][field], 9)
        self.assertEqual(run["tests"]["test_accuracy"], [summary["test_accuracy"]])
        self.assertEqual(run["wires"], [[1, "small"]])
        lines, rows = self.lines_of(out, "histograms.jsonl"), run["histograms"]["rows"]
        self.assertEqual((len({line["step"] for line in lines}), lines[0]["step"], lines[-1]["step"]), (20, 0, 59))
        self.assertEqual((len(rows), rows[0]["step"]), (len(lines), 1))
        self.assertEqual(rows[0]["raw"][1:], lines[0]["raw"]["counts"])
        self.assertEqual(self.read_bytes(out, "events.out.tfevents.0.gradwire").count(b"/sent"), len(lines))
        self.ok(*RUN, "--steps", 2, "--out", out, "--overwrite")
        self.assertNotIn("report.html", os.listdir(out))

    @unittest.skipUnless(shutil.which("chromium"), "there is no chromium, which could show the page")
    def test_results_come_first(self):
        """A browser shows a sentence with what came out, then results with both directions, then settings."""
        options = {"net": "lenet", "codec": "ternary", "batch": 200, "steps": 50, "workers": 4}
        layers = [{"name": "layer.weight", "elements": 123456, "nonzero_share": 0.1, "push_bits": 1.2}]
        summary = {"net": "lenet", "test_accuracy": 0.9, "train_loss": 0.1, "layers": layers}
        for i in range(3):
            os.mkdir(self.path(f"run{i}"))
            sizes = {"bytes_up": 1000 * (3 - i), "bytes_down": 2000, "dense_bytes": 32000}
            lines = [{"step": t, "loss": 3 / (1 + t), "accuracy": 0.5, "step_ms": 10, **sizes} for t in range(50)]
            files = {"run.json": [{"data": "20000+4000 samples", "options": options}]}
            files |= {"metrics.jsonl.partial": lines} if i == 2 else {"metrics.jsonl": lines, "summary.json": [summary]}
            for name, values in files.items():
                self.write_bytes(f"run{i}/{name}", "".join(json.dumps(one) + "\n" for one in values).encode())
        self.report(*(self.path(f"run{i}") for i in range(3)))
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

    def test_refusals(self):
        run, other, empty = self.path("run"), self.path(os.fsdecode(b"\xff</script>")), self.path("empty")
        page, missing = self.write_bytes("page.html", b"before"), self.path("missing")
        self.ok(*RUN, "--steps", 2, "--out", run)
        before = self.contents(run)
        os.mkdir(empty)
        rows = [
            ([run, missing, "-o", page], [missing, "is no folder"]),
            ([run, page, "-o", page], [page, "is no folder"]),
            ([run, empty, "-o", page], [empty, "holds no run"]),
            ([run, "-o", os.path.join(missing, "page.html")], "cannot write"),
        ]
        self.each_refused(1, "report", rows)
        rows = [
            ([run], "-o FILE.html is missing"),
            (["-o", page], "nothing to work on"),
            ([run, "-o", os.path.join(run, "..", "run", "run.json")], "a file of the run itself"),
        ]
        self.each_refused(2, "report", rows)
        self.assertEqual((self.contents(run), self.read_bytes(page)), (before, b"before"))
        self.ok("report", run, "-o", os.path.join(run, "report.html"))
        shutil.copytree(run, other)
        os.truncate(os.path.join(other, "metrics.jsonl"), 9)
        self.assertEqual(self.report(run, other)[1]["path"], self.path(r"\xff</script>"))
        self.said("report", other, "-o", page, says="metrics.jsonl: the last line is cut")


if __name__ == "__main__":
    harness.main()
