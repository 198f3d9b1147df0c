"""Tests predictions: the example by hand, what TernGrad's figure 5 shows, codecs' bytes, charts, and bad input.
predict_test in tool/predict has the model itself."""

import json
import os
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
GRADIENT = "--gradient-bytes 240M --batch 128 --batch-seconds 0.5".split()


class Predict(harness.Case):
    def cluster(self, name="cluster.json", **changes):
        return self.write_bytes(name, json.dumps({**BY_HAND, **changes}).encode())

    def rows(self, *words):
        """Returns the rows by codec and number of GPUs."""
        return {(row["codec"], row["gpus"]): row for row in self.ok_json("predict", *words)["rows"]}

    def gains(self, net, cluster):
        """By how much ternary gradients speed up training, by number of GPUs."""
        rows = self.rows("--net", net, "--cluster", cluster, "--gpus", "8,64,512", "--ratio", "16")
        return {gpus: rows["ternary", gpus]["speedup"] for gpus in (8, 64, 512)}

    def near(self, value, expected):
        self.assertLessEqual(abs(value - expected), 1e-15 * expected, f"{value} {expected}")

    # ---- the model

    def test_the_example_by_hand(self):
        words = ["--cluster", self.cluster(), "--gpus", "8", "--ratio", "16"]
        strong = "--gradient-bytes 240M --batch 1024 --batch-seconds 4 --scaling strong".split()
        for more, codec, samples in [
            (GRADIENT, "none", 2048000 / 4921),
            (GRADIENT, "ternary", 2048000 / 1321),
            (strong, "none", 2048000 / 4991),
            (strong, "ternary", 2048000 / 1391),
        ]:
            row = self.rows(*words, *more)[codec, 8]
            self.near(row["samples_per_second"], samples)
            for key in ("seconds", "samples_per_second", "network_seconds"):
                self.assertIn(f" {row[key]:.15g} ", DOCUMENT)
        self.assertEqual(row["bytes_up"], 15e6)

    def test_rows(self):
        """For every number of GPUs there is a row of `none` beside the codecs. The command tells all that it
        assumes."""
        words = ["predict", "--net", "googlenet", "--cluster", ETHERNET, "--ratio", "16"]
        report = self.ok_json(*words, *"--codec ternary --codec none --codec bf16".split())
        gpus = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
        expected = [(codec, n) for n in gpus for codec in ("none", "ternary", "bf16")]
        self.assertEqual([(row["codec"], row["gpus"]) for row in report["rows"]], expected)
        for row in report["rows"]:
            self.assertEqual(row["machines"], max(1, row["gpus"] // 4))
            self.near(row["samples_per_second"], row["gpus"] * 64 / row["seconds"])
            self.assertEqual(row["paper_seconds"], row["seconds"])
            if row["codec"] == "none" or row["machines"] == 1:
                self.assertEqual(row["speedup"], 1)
        wanted = {"gradient_bytes": 4 * 6998552, "net": "googlenet", "batch": 64, "scaling": "weak"}
        self.assertEqual({key: report[key] for key in wanted}, wanted)
        self.assertEqual(report["cluster"]["gpus_per_machine"], 4)
        text, page = "\n".join(report["assumptions"]), self.ok(*words)
        for part in ["T(1,1,K) is", "50 us", "weak scaling", "equation 27", "1/16 of the bytes", "time is left out"]:
            self.assertIn(part, text)
        for sentence in self.ok_json(*words)["assumptions"]:
            self.assertIn(sentence, page)
        for each, expected in [
            (6, [1, 2, 4, 6, 12, 24, 48, 96, 192, 384]),
            (1000, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]),
        ]:
            words = ["--cluster", self.cluster(gpus_per_machine=each), *GRADIENT, "--ratio", "16", "--codec", "none"]
            self.assertEqual([gpus for _, gpus in self.rows(*words)], expected)

    # ---- figure 5

    def test_figure_5(self):
        """Also checks the table of docs/plan.md. With the T(1,1,K) that the figure's gain implies, the model gives that
        gain."""
        gains = {(net, c): self.gains(net, c) for net in NETS for c in (ETHERNET, INFINIBAND)}
        cells = re.findall(r"\| (\d+) GPUs \|" + r" ([0-9.]+) \|" * 6, DOCUMENT)
        self.assertEqual(len(cells), 3)
        for gpus, *said in cells:
            by = {key: gain[int(gpus)] for key, gain in gains.items()}
            self.assertEqual([f"{by[net, c]:.2f}" for c in (ETHERNET, INFINIBAND) for net in NETS], said)
            for net in NETS:
                self.assertGreater(by[net, ETHERNET], by[net, INFINIBAND], (net, gpus))
            for c in (ETHERNET, INFINIBAND):
                self.assertGreater(min(by["alexnet", c], by["vgg-a", c]), by["googlenet", c])
        self.assertAlmostEqual(gains["vgg-a", INFINIBAND][512], 2, delta=0.4)
        for net, cluster, gpus, gain, batch in [("alexnet", ETHERNET, 8, 3.04, 128), ("vgg-a", INFINIBAND, 512, 2, 32)]:
            words = ["--net", net, "--cluster", cluster, "--gpus", gpus, "--ratio", "16"]
            report = self.ok_json("predict", *words)
            reading = report["figure_5"]
            self.assertEqual((reading["gpus"], reading["gain"], report["batch"]), (gpus, gain, batch))
            self.assertEqual(reading["assumed_batch_seconds"], report["batch_seconds"])
            self.assertAlmostEqual(reading["predicted_gain"], report["rows"][1]["speedup"], places=12)
            implied = reading["implied_batch_seconds"]
            self.assertNotAlmostEqual(implied, report["batch_seconds"], places=2)
            again = self.rows(*words, "--batch-seconds", repr(implied))
            self.assertAlmostEqual(again["ternary", gpus]["speedup"], gain, places=9)
            self.assertIn(f"implies a T(1,1,K) of {implied:.4g} s", self.ok("predict", *words))
        self.assertNotIn("figure_5", self.ok_json("predict", "--net", "googlenet", "--cluster", ETHERNET))

    # ---- codecs

    def test_codecs(self):
        words = ["--net", "alexnet", "--cluster", ETHERNET, "--gpus", "4,8,512", "--codec-time", "none"]
        words += "--codec ternary --codec ternary:skip=last --codec bf16 --codec topk:ratio=0.01".split()
        rows = self.rows(*words)
        dense, last = 4 * 60965224, 4 * 4097000
        self.assertEqual(rows["none", 8]["bytes_up"], dense)
        self.assertAlmostEqual(rows["bf16", 8]["bytes_up"] / dense, 0.5, delta=0.001)
        ternary, skipping = rows["ternary", 8], rows["ternary:skip=last", 8]
        self.assertTrue(dense / 64 < ternary["bytes_up"] < dense / 16)
        # The last layer keeps its bytes. The other layers have the same bits per element.
        share = (dense - last) / dense
        self.assertAlmostEqual(skipping["bytes_up"], last + share * ternary["bytes_up"], delta=1)
        # Sums of more machines have more levels. Unions of more selections have more elements.
        for codec in ("ternary", "topk:ratio=0.01"):
            self.assertGreater(rows[codec, 512]["bytes_down"], 1.5 * rows[codec, 8]["bytes_down"], codec)
            self.assertAlmostEqual(rows[codec, 512]["bytes_up"] / rows[codec, 8]["bytes_up"], 1, delta=0.1)
        for (codec, gpus), row in rows.items():
            self.assertEqual(row["codec_seconds"], 0)
            if gpus > 4:
                mean = (row["bytes_up"] + row["bytes_down"]) / 2
                rounds = (gpus // 4).bit_length() - 1
                self.assertAlmostEqual(row["network_seconds"], rounds * (50e-6 + mean / 125e6), places=9)
        forced = self.rows(*words, "--ratio", "2.5")
        bytes_of = lambda codec, gpus: [forced[codec, gpus][f"bytes_{way}"] for way in ("up", "down")]
        self.assertEqual(bytes_of("ternary:skip=last", 8), [last + (dense - last) / 2.5] * 2)
        self.assertEqual(bytes_of("topk:ratio=0.01", 512)[1], dense / 2.5)
        # The time for coding is given, or measured here, or left out.
        words = ["--net", "resnet50", "--cluster", INFINIBAND, "--gpus", "4,8", "--codec", "bf16"]
        given = self.rows(*words, "--codec-time", "2.5")
        self.assertAlmostEqual(given["bf16", 8]["codec_seconds"], 2.5e-9 * 25557032, places=12)
        self.assertEqual([given["bf16", 4]["codec_seconds"], given["none", 8]["codec_seconds"]], [0, 0])
        self.assertEqual(self.rows(*words, "--ratio", "2")["bf16", 8]["codec_seconds"], 0)
        for more in ([], ["--ratio", "2", "--codec-time", "here"]):
            self.assertGreater(self.rows(*words, *more)["bf16", 8]["codec_seconds"], 0)

    def test_what_the_paper_leaves_out(self):
        words = ["--cluster", self.cluster(), "--gpus", "16", "--ratio", "16", *GRADIENT]
        paper = self.rows(*words)["none", 16]["seconds"]
        for owners, network in [("server", 0.001 + 8 * 1.92), ("servers:2", 0.001 + 4 * 1.92), ("ring", 2.883)]:
            row = self.rows(*words, "--owners", owners)["none", 16]
            self.assertAlmostEqual(row["seconds"], 0.54 + network, places=12, msg=owners)
            self.assertEqual(row["paper_seconds"], paper)
        self.assertIn("paper, s", self.ok("predict", *words, "--owners", "sharded"))
        self.assertNotIn("paper, s", self.ok("predict", *words))
        row = self.rows(*words, "--overlap", "0.75", "--stragglers", "0.1")["none", 16]
        self.assertAlmostEqual(row["hidden_seconds"], 0.23, places=12)
        self.assertGreater(row["waiting_seconds"], 0.46 * 0.15)
        self.assertAlmostEqual(row["seconds"], paper - 0.23 + row["waiting_seconds"], places=12)
        words = ["predict", "--cluster", self.cluster(), *GRADIENT, "--codec-time", "none", "--gpus"]
        self.assertIn("more than 512 machines count as those of 512", self.ok(*words, "100000"))
        self.assertNotIn("more than 512 machines", self.ok(*words, "2048"))

    # ---- what the document shows, and charts

    def test_the_document_is_what_the_tool_says(self):
        command, table = re.search(r"\n    (gradwire predict .*)\n\n```text\n((?:.+\n)+)```", DOCUMENT).groups()
        printed = self.ok(*shlex.split(command)[1:])
        for line in table.rstrip("\n").split("\n"):
            self.assertIn(line + "\n", printed, command)
        for net, cluster, name in [("alexnet", ETHERNET, "eth"), ("vgg-a", INFINIBAND, "ib")]:
            self.ok("predict", "--net", net, "--cluster", cluster, "--ratio", "16", "-o", self.path("chart.svg"))
            self.assertEqual(self.read_bytes("chart.svg"), (ROOT / "docs" / f"predict-{name}.svg").read_bytes())

    def test_charts(self):
        """A chart has a title, both axes with units, a line for each codec, and escapes what comes from outside."""
        chart, strange = self.path("chart.svg"), self.cluster("a<b>&'\".json")
        words = ["predict", "--cluster", strange, *GRADIENT, *"--ratio 16 --codec ternary --codec bf16".split()]
        self.ok(*words, "-o", chart)
        root = xml.dom.minidom.parse(chart).documentElement
        texts = [node.firstChild.data for node in root.getElementsByTagName("text")]
        for part in ["a<b>&'\".json: predicted throughput", "samples per second", "GPUs", "none (float32)", "bf16"]:
            self.assertTrue(any(part in text for text in texts), f"{part}: {texts}")
        self.assertEqual(len(root.getElementsByTagName("circle")), 3 * 10)
        self.assertIn("a<b>", root.getAttribute("aria-label"))
        charts = set()
        for gpus in ("4,8,64", "64,4,8"):  # in any order, a line goes from left to right
            self.ok(*words, "--gpus", gpus, "-o", chart)
            charts.add(self.read_bytes(chart))
        self.assertEqual(len(charts), 1)
        self.ok(*words, "--gpus", "4", "-o", chart)  # a line of one point
        xml.dom.minidom.parse(chart)
        self.assertNotIn(b"nan", self.read_bytes(chart))
        self.refused(1, *words, "-o", self.path("no/such/folder.svg"), says="folder")
        self.refused(2, *words, "-o", strange, says="--cluster")
        self.refused(2, *words, "-o", "-", says="-o is '-'")

    # ---- bad input

    def test_bad_options(self):
        alone = ["predict", "--net", "alexnet"]
        good = [*alone, "--cluster", ETHERNET, "--ratio", "16"]
        rows = [
            ("--gpus 6", "6 GPUs do not fill machines of 4"),
            ("--gpus -4", "--gpus is '-4'"),
            ("--gpus 99999999999999999999999", "from 1 to 100000"),
            ("--gpus=", "--gpus is empty"),
            ("--gpus 4,", "--gpus is '4,'"),
            ("--gpus 4;8", "with commas between"),
            (["--gpus", "4, 8"], "with commas between"),
            (["--gpus", ",".join(["4"] * 65)], "more than 64 numbers"),
            ("--ratio 0", "--ratio is 0"),
            ("--batch 0", "--batch is '0'"),
            ("--batch-seconds -1", "--batch-seconds is -1"),
            ("--batch-seconds 0.001", "to copy the gradient to the processor alone takes"),
            ("--scaling week", "must be strong or weak"),
            ("--owners rings", "did you mean 'ring'?"),
            ("--owners servers:0", "--owners servers is '0'"),
            ("--codec-time fast", "here, none, or nanoseconds"),
            ("--codec ternery", "did you mean 'ternary'?"),
            ("--gpu v100", "--gpu is 'v100'"),
            ("--net alexnett", "did you mean 'alexnet'?"),
            ("--net resnet20", ["is not known", "--batch and --batch-seconds"]),
            ("--cluster eth-1g-gtx1081", "did you mean 'eth-1g-gtx1080'?"),
            ("--cluster cloud", ["there is no cluster 'cloud'", "or name a file"]),
            ("--gradient-bytes 1000", "--net and --gradient-bytes are both given"),
            ("file", "predict takes no files"),
        ]
        self.each_refused(2, *good, rows)
        self.refused(2, "predict", "--cluster", ETHERNET, says="--net is missing")
        self.refused(2, *alone, says="--cluster is missing")
        self.refused(2, "predict", "--cluster", ETHERNET, "--gradient-bytes", "1000", says="--batch-seconds are needed")

    def test_bad_cluster_files(self):
        whole, words = json.dumps(BY_HAND), ["predict", "--net", "alexnet", "--cluster"]
        missing = {key: value for key, value in BY_HAND.items() if key != "cpu_bandwidth"}
        for text, says in [
            (whole[:-20], "is no cluster"),
            ("", "is no cluster"),
            (whole.replace("125000000.0", "NaN"), "is no cluster"),
            (whole[:-1] + ', "gpu_bandwidth": 1}', "duplicate"),
            ("[1]", "must be an object"),
            (missing, 'has no "cpu_bandwidth"'),
            ({**BY_HAND, "network_bandwith": 1}, 'is "network_bandwidth" meant?'),
            ({**BY_HAND, "colour": 1}, 'has a field "colour", which is unknown; the fields are gpus_per_machine, '),
            ({**BY_HAND, "network_bandwidth": -1}, "network_bandwidth is -1, and must be a number above 0"),
            ({**BY_HAND, "cpu_bandwidth": "12e9"}, '"cpu_bandwidth" must be a number'),
            ({**BY_HAND, "gpus_per_machine": 2.5}, "whole number from 1 to 1024"),
            (" " * 70000, "65536 at most"),
        ]:
            path = self.write_bytes("bad.json", (text if isinstance(text, str) else json.dumps(text)).encode())
            self.refused(1, *words, path, says=[says, "bad.json"])
        self.refused(1, *words, self.path("none.json"), says="cannot read")
        self.refused(1, *words, self.folder, says="a folder")
        self.ok(*words, self.cluster(network_latency_s=0), "--ratio", "16")
        odd = self.path("odd\udcff.json")  # no UTF-8
        os.rename(self.cluster(), odd)
        self.assertEqual(self.ok_json(*words, odd, "--ratio", "16")["cluster_name"], self.path(r"odd\xff.json"))


if __name__ == "__main__":
    harness.main()
