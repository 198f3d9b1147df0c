"""Tests that one seed gives one hash of parameters. The code that packs the frames, the number of codec threads, the
kernels and merging must not change it."""

import os

import harness

# 784 x 100 weights are more than one chunk. The biases are far fewer.
RUN = [
    "--net",
    "mlp:784-100-10",
    "--data",
    harness.PICTURES,
    "--workers",
    "4",
    "--batch",
    "32",
    "--steps",
    "12",
    "--seed",
    "3",
]
PACKINGS = [
    f"code={code},pull={pull},entropy={entropy}"
    for code, pull in (("auto", "auto"), ("2bit", "packed"), ("base3", "auto"), ("mask", "auto"))
    for entropy in ("auto", "on", "off")
]


@harness.needs_trainer
class Hash(harness.Case):
    def hash_of(self, codec, *words, **environment):
        done = self.run_tool("train", *RUN, "--codec", codec, *words, "--json", env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        summary = harness.json.loads(done.stdout)
        self.assertTrue(summary["replicas_identical"])
        return summary["parameter_hash"]

    def same(self, codec):
        """Checks that threads, kernels and merging do not change the hash of a codec. Returns it. One run changes all
        three at once: what is the same with all changes is the same with each."""
        expected = self.hash_of(codec)
        words = ["--plan", "single", "--codec-threads", "3"]
        self.assertEqual(self.hash_of(codec, *words, GRADWIRE_CPU="scalar"), expected)
        return expected

    def test_packing_changes_nothing(self):
        hashes = {packing: self.hash_of("ternary:" + packing) for packing in PACKINGS}
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        self.assertEqual(self.same("ternary"), hashes[PACKINGS[0]])
        for level in ("scalar", "avx2", "avx512", "neon"):
            self.assertEqual(self.hash_of("ternary", GRADWIRE_CPU=level), hashes[PACKINGS[0]], level)

    def test_other_scalers_and_codecs(self):
        hashes = [
            self.same(codec)
            for codec in (
                "none",
                "bf16",
                "ternary:share=off",
                "ternary:bucket=512",
                "ternary:clip=0",
                "ternary:scope=global",
                "topk:ratio=0.05,refresh=3",
                "topk:ratio=0.05,refresh=3,scope=global,value=bf16",
                "onebit",
                "ternary:residual=on",
                "ternary:residual=on,level=max,momentum=0.9",
                "topk:ratio=0.05,scope=global,over=0.5,momentum=0.9",
            )
        ]
        self.assertEqual(len(set(hashes)), len(hashes), "different codecs gave the same parameters")

    def test_seed_changes_everything(self):
        self.assertNotEqual(self.hash_of("ternary"), self.hash_of("ternary", "--seed", "4"))


if __name__ == "__main__":
    harness.main()
