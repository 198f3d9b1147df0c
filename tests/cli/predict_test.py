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

    def test_the_example_by_hand(self):
        """The document prints all digits of what the model gives. predict_test knows them, too."""
        words = ["--cluster", self.cluster(), "--gpus", "8", "--ratio", "16"]
        strong = "--gradient-bytes 240M --batch 1024 --batch-seconds 4 --scaling strong".split()
        for row in [*self.rows(*words, *GRADIENT).values(), *self.rows(*words, *strong).values()]:
            for key in ("seconds", "samples_per_second", "network_seconds"):
                self.assertIn(f" {row[key]:.15g} ", DOCUMENT)
        self.assertEqual(row["bytes_up"], 15e6)
        # The options of what the paper leaves out. The other columns stay the paper's.
        words += [*GRADIENT, *"--gpus 16 --owners servers:2 --overlap 0.75 --stragglers 0.1".split()]
        row = self.rows(*words)["none", 16]
        self.assertAlmostEqual(row["network_seconds"], 0.001 + 4 * 1.92)
        self.assertAlmostEqual(row["hidden_seconds"], 0.23)
        self.assertAlmostEqual(row["paper_seconds"], 0.54 + 2 * 1.9205)
        self.assertGreater(row["waiting_seconds"], 0.46 * 0.15)
        self.assertIn("paper, s", self.ok("predict", *words))
        self.assertNotIn("paper, s", self.ok("predict", *words[:-6]))

    def test_rows(self):
        """For every number of GPUs there is a row of `none` beside the codecs. The command tells all that it
        assumes."""
        words = ["predict", "--net", "googlenet", "--cluster", ETHERNET, "--ratio", "16"]
        report = self.ok_json(*words, *"--codec ternary --codec none --codec bf16".split())
        gpus = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
        expected = [(codec, n, max(1, n // 4)) for n in gpus for codec in ("none", "ternary", "bf16")]
        self.assertEqual([(row["codec"], row["gpus"], row["machines"]) for row in report["rows"]], expected)
        self.assertEqual({row["speedup"] for row in report["rows"] if row["codec"] == "none"}, {1})
        wanted = {"gradient_bytes": 4 * 6998552, "net": "googlenet", "batch": 64, "scaling": "weak"}
        self.assertEqual({key: report[key] for key in wanted}, wanted)
        text, page = "\n".join(report["assumptions"]), self.ok(*words)
        for part in ["T(1,1,K) is", "50 us", "weak scaling", "equation 27", "1/16 of the bytes", "time is left out"]:
            self.assertIn(part, text)
        for sentence in self.ok_json(*words)["assumptions"]:
            self.assertIn(sentence, page)
        for each, gpus in [
            (6, [1, 2, 4, *(6 * 2**k for k in range(7))]),
            (1000, [*(2**k for k in range(10)), 1000]),
        ]:
            words = ["--cluster", self.cluster(gpus_per_machine=each), *GRADIENT, "--ratio", "16", "--codec", "none"]
            self.assertEqual([n for _, n in self.rows(*words)], gpus)
        words = ["predict", "--cluster", self.cluster(), *GRADIENT, "--codec-time", "none", "--gpus"]
        for n, is_told in (("100000", True), ("2048", False)):
            self.assertEqual("more than 512 machines count as those of 512" in self.ok(*words, n), is_told)

    def test_the_document_is_what_the_tool_says(self):
        command, table = re.search(r"\n    (gradwire predict .*)\n\n```text\n((?:.+\n)+)```", DOCUMENT).groups()
        printed = self.ok(*shlex.split(command)[1:])
        for line in table.rstrip("\n").split("\n"):
            self.assertIn(line + "\n", printed, command)
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
        self.assertNotIn("figure_5", self.ok_json("predict", "--net", "googlenet", "--cluster", ETHERNET))

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
        self.assertAlmostEqual(skipping["bytes_up"], last + (1 - last / dense) * ternary["bytes_up"], delta=1)
        # Sums of more machines have more levels. Unions of more selections have more elements.
        for codec in ("ternary", "topk:ratio=0.01"):
            self.assertGreater(rows[codec, 512]["bytes_down"], 1.5 * rows[codec, 8]["bytes_down"], codec)
            self.assertAlmostEqual(rows[codec, 512]["bytes_up"] / rows[codec, 8]["bytes_up"], 1, delta=0.1)
        self.assertEqual({row["codec_seconds"] for row in rows.values()}, {0})
        forced = self.rows(*words, "--ratio", "2.5")
        for codec, bytes in [("ternary:skip=last", last + (dense - last) / 2.5), ("topk:ratio=0.01", dense / 2.5)]:
            self.assertEqual([forced[codec, 512][f"bytes_{way}"] for way in ("up", "down")], [bytes] * 2)
        # The time for coding is given, or measured here, or left out.
        words = ["--net", "resnet50", "--cluster", INFINIBAND, "--gpus", "4,8", "--codec", "bf16"]
        given = self.rows(*words, "--codec-time", "2.5")
        self.assertAlmostEqual(given["bf16", 8]["codec_seconds"], 2.5e-9 * 25557032, places=12)
        self.assertEqual([given["bf16", 4]["codec_seconds"], given["none", 8]["codec_seconds"]], [0, 0])
        self.assertEqual(self.rows(*words, "--ratio", "2")["bf16", 8]["codec_seconds"], 0)
        for more in ([], ["--ratio", "2", "--codec-time", "here"]):
            self.assertGreater(self.rows(*words, *more)["bf16", 8]["codec_seconds"], 0)

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
        charts = set()
        for gpus in ("4,8,64", "64,4,8"):  # in any order, a line goes from left to right
            self.ok(*words, "--gpus", gpus, "-o", chart)
            charts.add(self.read_bytes(chart))
        self.assertEqual(len(charts), 1)
        self.ok(*words, "--gpus", "4", "-o", chart)  # a line of one point
        self.assertNotIn(b"nan", self.read_bytes(chart))
        self.refused(1, *words, "-o", self.path("no/such/folder.svg"), says="folder")
        self.refused(2, *words, "-o", strange, says="--cluster")
        self.refused(2, *words, "-o", "-", says="-o is '-'")

    def test_wrong_use(self):
        """predict_test has more numbers that cannot be. plan_test has more files that are no JSON."""
        alone = ["predict", "--net", "alexnet"]
        rows = [
            ("--gpus 6", "6 GPUs do not fill machines of 4"),
            ("--gpus 99999999999999999999999", "from 1 to 100000"),
            ("--gpus 4,", "--gpus is '4,'"),
            ("--gpus 4;8", "with commas between"),
            (["--gpus", ",".join(["4"] * 65)], "more than 64 numbers"),
            ("--ratio 0", "--ratio is 0"),
            ("--batch-seconds -1", "--batch-seconds is -1"),
            ("--scaling week", "must be strong or weak"),
            ("--owners rings", "did you mean 'ring'?"),
            ("--owners servers:0", "--owners servers is '0'"),
            ("--overlap 2", "from 0 to 1"),
            ("--stragglers 11", "from 0 to 10"),
            ("--codec-time fast", "here, none, or nanoseconds"),
            ("--gpu v100", "--gpu is 'v100'"),
            ("--net alexnett", "did you mean 'alexnet'?"),
            ("--net resnet20", ["is not known", "--batch and --batch-seconds"]),
            ("--cluster cloud", ["there is no cluster 'cloud'", "or name a file"]),
            ("--gradient-bytes 1000", "--net and --gradient-bytes are both given"),
            ("file", "predict takes no files"),
        ]
        self.each_refused(2, *alone, "--cluster", ETHERNET, "--ratio", "16", rows)
        self.refused(2, *alone, says="--cluster is missing")
        rows = [("", "--net is missing"), ("--gradient-bytes 1000", "--batch-seconds are needed")]
        self.each_refused(2, "predict", "--cluster", ETHERNET, rows)
        whole, words = json.dumps(BY_HAND), [*alone, "--cluster"]
        for text, says in [
            (whole[:-20], "is no cluster"),
            (whole[:-1] + ', "gpu_bandwidth": 1}', "duplicate"),
            ("[1]", "must be an object"),
            ({**BY_HAND, "network_bandwith": 1}, 'is "network_bandwidth" meant?'),
            ({**BY_HAND, "colour": 1}, 'has a field "colour", which is unknown; the fields are gpus_per_machine, '),
            ({**BY_HAND, "network_bandwidth": -1}, "network_bandwidth is -1, and must be a number above 0"),
            ({**BY_HAND, "gpus_per_machine": 2.5}, "whole number from 1 to 1024"),
            (" " * 70000, "65536 at most"),
        ]:
            path = self.write_bytes("bad.json", (text if isinstance(text, str) else json.dumps(text)).encode())
            self.refused(1, *words, path, says=[says, "bad.json"])
        self.ok(*words, self.cluster(network_latency_s=0), "--ratio", "16")
        odd = self.path("odd\udcff.json")  # no UTF-8
        os.rename(self.cluster(), odd)
        self.assertEqual(self.ok_json(*words, odd, "--ratio", "16")["cluster_name"], self.path(r"odd\xff.json"))


if __name__ == "__main__":
    harness.main()
