"""Tests predictions: that the document prints what the tool says, what is assumed, codecs' bytes, charts, wrong use.
predict_test and networks_test in tool/predict have the model, and what it refuses."""

import json
import pathlib
import re
import shlex
import xml.dom.minidom

import harness

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCUMENT = (ROOT / "docs" / "plan.md").read_text()

ETHERNET, INFINIBAND = "eth-1g-gtx1080", "ib-100g-p100"
NETS = ["alexnet", "googlenet", "vgg-a"]
BY_HAND = {"gpus_per_machine": 4, "gpu_bandwidth": 12e9, "cpu_bandwidth": 6e9}
BY_HAND |= {"network_latency_s": 0.0005, "network_bandwidth": 125e6}
GRADIENT = "--gradient-bytes 240M --batch 128 --batch-seconds 0.5 --ratio 16".split()


class Predict(harness.Case):
    def cluster(self, name="cluster.json", **changes):
        return self.write_bytes(name, json.dumps({**BY_HAND, **changes}).encode())

    def rows(self, *words):
        """Returns the rows by codec and number of GPUs."""
        return {(row["codec"], row["gpus"]): row for row in self.ok_json("predict", *words)["rows"]}

    def test_the_document_is_what_the_tool_says(self):
        command, table = re.search(r"\n    (gradwire predict .*)\n\n```text\n((?:.+\n)+)```", DOCUMENT).groups()
        printed = self.ok(*shlex.split(command)[1:])
        for line in table.rstrip("\n").split("\n"):
            self.assertIn(line + "\n", printed, command)
        # The example by hand, to the last digit.
        words = ["--cluster", self.cluster(), *GRADIENT, "--gpus", "8"]
        for more in ("", "--batch 1024 --batch-seconds 4 --scaling strong"):
            for row in self.rows(*words, *more.split()).values():
                for key in ("seconds", "samples_per_second", "network_seconds"):
                    self.assertIn(f" {row[key]:.15g} ", DOCUMENT)
        # Figure 5: its table, what its gain implies, and its charts.
        cells = re.findall(r"\| (\d+) GPUs \|" + r" ([0-9.]+) \|" * 6, DOCUMENT)
        for i, (c, net) in enumerate((c, net) for c in (ETHERNET, INFINIBAND) for net in NETS):
            rows = self.rows("--net", net, "--cluster", c, "--gpus", "8,64,512", "--ratio", "16")
            found = [(str(n), f"{rows['ternary', n]['speedup']:.2f}") for n in (8, 64, 512)]
            self.assertEqual(found, [(row[0], row[1 + i]) for row in cells])
        for net, cluster, gpus, name in [("alexnet", ETHERNET, 8, "eth"), ("vgg-a", INFINIBAND, 512, "ib")]:
            words = ["predict", "--net", net, "--cluster", cluster, "--ratio", "16"]
            report = self.ok_json(*words, "--gpus", gpus)
            reading = report["figure_5"]
            self.assertAlmostEqual(reading["predicted_gain"], report["rows"][1]["speedup"], 12)
            again = self.rows(*words[1:], "--gpus", gpus, "--batch-seconds", repr(reading["implied_batch_seconds"]))
            self.assertAlmostEqual(again["ternary", gpus]["speedup"], reading["gain"], 9)
            said = self.ok(*words, "-o", self.path("chart.svg"))
            self.assertIn(f"implies a T(1,1,K) of {reading['implied_batch_seconds']:.4g} s", said)
            self.assertEqual(self.read_bytes("chart.svg"), (ROOT / "docs" / f"predict-{name}.svg").read_bytes())

    def test_rows(self):
        """For every number of GPUs there is a row of `none` beside the codecs. The command tells all that it
        assumes."""
        words = ["predict", "--net", "googlenet", "--cluster", ETHERNET, "--ratio", "16"]
        report = self.ok_json(*words, *"--codec ternary --codec none --codec bf16".split())
        expected = [(c, 2**k, max(1, 2**k // 4)) for k in range(10) for c in ("none", "ternary", "bf16")]
        self.assertEqual([(row["codec"], row["gpus"], row["machines"]) for row in report["rows"]], expected)
        wanted = {"gradient_bytes": 4 * 6998552, "net": "googlenet", "batch": 64, "scaling": "weak"}
        self.assertLessEqual(wanted.items(), report.items())
        self.assertNotIn("figure_5", self.ok_json(*words[:-2], "--codec-time", "none"))
        text, page = "\n".join(report["assumptions"]), self.ok(*words)
        for part in ["T(1,1,K) is", "50 us", "weak scaling", "equation 27", "1/16 of the bytes", "time is left out"]:
            self.assertIn(part, text)
        for sentence in self.ok_json(*words)["assumptions"]:
            self.assertIn(sentence, page)
        for each, gpus in [
            (6, [1, 2, 4, *(6 * 2**k for k in range(7))]),
            (1000, [*(2**k for k in range(10)), 1000]),
        ]:
            words = ["--cluster", self.cluster(gpus_per_machine=each), *GRADIENT, "--codec", "none"]
            self.assertEqual([n for _, n in self.rows(*words)], gpus)
        words = ["--cluster", self.cluster("odd\udcff.json"), *GRADIENT, "--gpus", 16]
        words += "--owners servers:2 --overlap 0.75 --stragglers 0.1".split()
        report, page = self.ok_json("predict", *words), self.ok("predict", *words)
        self.assertTrue(
            page.startswith(f"a gradient of 240 MB on {self.path('odd')}" + r"\xff.json: ") and "paper, s" in page
        )
        told = [round(report["rows"][0][part], 9) for part in ("network_seconds", "hidden_seconds", "paper_seconds")]
        self.assertEqual((report["cluster_name"], told), (self.path(r"odd\xff.json"), [7.681, 0.23, 4.381]))

    def test_codecs(self):
        words = ["--net", "alexnet", "--cluster", ETHERNET, "--gpus", "4,8,512", "--codec-time", "none"]
        words += "--codec ternary --codec ternary:skip=last --codec bf16 --codec topk:ratio=0.01".split()
        rows, dense, last = self.rows(*words), 4 * 60965224, 4 * 4097000
        self.assertEqual(rows["none", 8]["bytes_up"], dense)
        self.assertAlmostEqual(rows["bf16", 8]["bytes_up"] / dense, 0.5, delta=0.001)
        ternary, skipping = rows["ternary", 8]["bytes_up"], rows["ternary:skip=last", 8]["bytes_up"]
        self.assertTrue(dense / 64 < ternary < dense / 16)
        # The last layer keeps its bytes. The other layers have the same bits per element.
        self.assertAlmostEqual(skipping, last + (1 - last / dense) * ternary, delta=1)
        # Sums of more machines have more levels. Unions of more selections have more elements.
        for codec in ("ternary", "topk:ratio=0.01"):
            self.assertGreater(rows[codec, 512]["bytes_down"], 1.5 * rows[codec, 8]["bytes_down"], codec)
        forced = self.rows(*words, "--ratio", "2.5")
        for codec, bytes in [("ternary:skip=last", last + (dense - last) / 2.5), ("topk:ratio=0.01", dense / 2.5)]:
            self.assertEqual([forced[codec, 512][f"bytes_{way}"] for way in ("up", "down")], [bytes] * 2)
        # The time for coding is left out, or given, or measured here.
        self.assertEqual({row["codec_seconds"] for row in rows.values()}, {0})
        words = [*words[:5], "4,8", "--codec", "bf16"]
        given, measured = self.rows(*words, "--codec-time", "2.5"), self.rows(*words)
        self.assertAlmostEqual(given["bf16", 8]["codec_seconds"], 2.5e-9 * dense / 4, places=12)
        self.assertEqual([given["bf16", 4]["codec_seconds"], given["none", 8]["codec_seconds"]], [0, 0])
        self.assertGreater(measured["bf16", 8]["codec_seconds"], 0)

    def test_charts(self):
        """A chart has a title, both axes with units, a line for each codec, and escapes what comes from outside."""
        chart, strange = self.path("chart.svg"), self.cluster("a<b>&'\".json")
        words = ["predict", "--cluster", strange, *GRADIENT, *"--codec ternary --codec bf16".split()]
        self.ok(*words, "-o", chart)
        root = xml.dom.minidom.parse(chart).documentElement
        texts = "\n".join(node.firstChild.data for node in root.getElementsByTagName("text"))
        for part in ["a<b>&'\".json: predicted throughput", "samples per second", "GPUs", "none (float32)", "bf16"]:
            self.assertIn(part, texts)
        self.assertEqual(len(root.getElementsByTagName("circle")), 3 * 10)
        charts = []
        for gpus in ("4,8,64", "64,4,8", "4"):  # in any order, a line goes from left to right; and a line of one point
            self.ok(*words, "--gpus", gpus, "-o", chart)
            charts.append(self.read_bytes(chart))
        self.assertEqual((charts[0], b"nan" in charts[2]), (charts[1], False))
        self.refused(1, *words, "-o", self.path("no/such/folder.svg"), says="folder")
        self.refused(2, *words, "-o", strange, says="--cluster")

    def test_wrong_use(self):
        """profile_test has files of clusters that are wrong."""
        alone = ["predict", "--net", "alexnet"]
        rows = [
            ("--gpus 4,", "--gpus is '4,'"),
            (["--gpus", ",".join(["4"] * 65)], "more than 64 numbers"),
            ("--scaling week", "must be strong or weak"),
            ("--owners rings", "did you mean 'ring'?"),
            ("--codec-time fast", "here, none, or nanoseconds"),
            ("--gpu v100", "--gpu is 'v100'"),
            ("--net resnet20", ["is not known", "--batch and --batch-seconds"]),
            ("--cluster cloud", ["there is no cluster 'cloud'", "or name a file"]),
            ("--gradient-bytes 1000", "--net and --gradient-bytes are both given"),
            ("file", "predict takes no files"),
        ]
        self.each_refused(2, *alone, "--cluster", ETHERNET, "--ratio", "16", rows)
        rows = [
            ("--net alexnet", "--cluster is missing"),
            (["--cluster", ETHERNET], "--net is missing"),
            (["--cluster", ETHERNET, "--gradient-bytes", 1000], "--batch-seconds are needed"),
        ]
        self.each_refused(2, "predict", rows)
        bad = self.cluster(gpus_per_machine=2.5)
        self.refused(1, *alone, "--cluster", bad, says=["whole number from 1 to 1024", bad])


if __name__ == "__main__":
    harness.main()
