"""Tests that tensors come back from frames, and tests scalers and averages."""

import json
import math
import random
import statistics
import struct

import harness

N = 10000


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Frames(harness.Case):
    def encode(self, spec, values, name="g", *more):
        source = self.write_f32(name + ".f32", values)
        frame = self.path(name + ".gw")
        self.ok("encode", "--codec", spec, source, "-o", frame, *more)
        return frame

    def decode(self, frame):
        out = self.path("decoded.f32")
        self.ok("decode", frame, "-o", out)
        return self.read_f32(out)

    def test_none_keeps_every_bit(self):
        values = [0.0, -0.0, 1e-45, -3.5, 3.4e38] + harness.gaussians(1000, 1)
        frame = self.encode("none", values)
        self.assertEqual(struct.pack(f"<{len(values)}f", *self.decode(frame)), struct.pack(f"<{len(values)}f", *values))

    def test_bf16_and_f16_round(self):
        values = [float32(v) for v in harness.gaussians(1000, 2)]
        for spec, bits in [("bf16", 8), ("f16", 11)]:
            for had, got in zip(values, self.decode(self.encode(spec, values))):
                self.assertLessEqual(abs(had - got), max(abs(had) * 2.0**-bits, 2.0**-25), spec)

    def test_every_kind_of_frame(self):
        values = harness.gaussians(N, 4)
        for spec in harness.CODECS:
            frame = self.encode(spec, values)
            about = self.ok_json("inspect", frame)
            self.assertEqual(about["elements"], N, spec)
            self.assertEqual(about["frame_bytes"], len(self.read_bytes(frame)), spec)
            self.assertEqual(about["workers"], 1, spec)
            self.assertEqual(about["checksum"], "ok", spec)
            self.assertIs(about["finite"], True, spec)
            self.assertAlmostEqual(about["bits_per_element"], 8 * about["payload_bytes"] / N, places=12, msg=spec)
            decoded = self.decode(frame)
            self.assertEqual(len(decoded), N, spec)
            self.assertEqual(sum(v != 0 for v in decoded), about["nonzeros"], spec)
            if about["codec"] == "ternary" and "bucket" not in spec:
                self.assertEqual({abs(v) for v in decoded}, {0.0, about["scaler"]}, spec)
            self.assertIn(f"{N}", self.ok("inspect", frame))

    def test_inspect_names_the_direction(self):
        """How much smaller a frame is counts for its own direction: an average takes more bytes than a push."""
        frames = [self.encode("ternary", harness.gaussians(N, 1), f"g{w}", "--rank", w) for w in range(2)]
        self.ok("reduce", *frames, "-o", self.path("average.gw"))
        for frame, way in [(frames[0], "up"), (self.path("average.gw"), "down")]:
            about = self.ok_json("inspect", frame)
            self.assertAlmostEqual(about["times_smaller"], 4 * N / about["frame_bytes"], 9)
            self.assertIn(
                f"{about['times_smaller']:.2f} times smaller than float32, on the way {way} only\n",
                self.ok("inspect", frame),
            )

    def test_inspect_shows_all_scalers(self):
        values = harness.gaussians(N, 1)
        about = self.ok_json("inspect", self.encode("onebit:bucket=0", values))
        said = self.ok("inspect", self.encode("onebit:bucket=0", values))
        for scaler in about["scalers"]:
            self.assertIn(f"scaler     {scaler:.9g}\n", said)
        said = self.ok("inspect", self.encode("onebit:bucket=64", values))
        self.assertIn(f"scalers    {2 * -(-N // 64)}, 2 for every 64 elements\n", said)

    def test_ternary_values(self):
        values = harness.gaussians(N, 5)
        about = self.ok_json("inspect", self.encode("ternary", values))
        mean = sum(values) / N
        sigma = math.sqrt(sum((v - mean) ** 2 for v in values) / N)
        self.assertAlmostEqual(about["scaler"], 2.5 * sigma, delta=1e-6 * sigma)
        share = about["nonzeros"] / N
        expected = sum(min(abs(v), 2.5 * sigma) for v in values) / N / (2.5 * sigma)
        self.assertLess(abs(share - expected), 5 * math.sqrt(expected / N))

    def test_entropy(self):
        about = self.ok_json("inspect", self.encode("ternary:code=mask", harness.gaussians(N, 6)))
        decoded = self.decode(self.path("g.gw"))
        bits = 0.0
        for symbol in [-1, 0, 1]:
            share = sum((v > 0) - (v < 0) == symbol for v in decoded) / N
            bits -= share * math.log2(share)
        self.assertAlmostEqual(about["entropy_bits_per_element"], bits, places=9)

    def test_entropy_of_sparse_frames(self):
        """The entropy counts the presence of each element and the signs of gspar's part B. It does not count values."""

        def bits(*counts):
            return -sum(c * math.log2(c / sum(counts)) for c in counts if c)

        values = harness.gaussians(N, 8)
        about = self.ok_json("inspect", self.encode("topk:ratio=0.1,scope=layer,over=0", values))
        self.assertAlmostEqual(about["entropy_bits_per_element"], bits(N // 10, N - N // 10) / N, places=9)
        self.assertNotIn("part_a", about)
        about = self.ok_json("inspect", self.encode("gspar", values))
        decoded, q = self.decode(self.path("g.gw")), about["inverse_lambda"]
        plus, minus = sum(v == q for v in decoded), sum(v == -q for v in decoded)
        own = sum(abs(v) > q for v in decoded)
        self.assertEqual((about["part_a"], about["part_b"]), (own, plus + minus))
        expected = bits(own, plus + minus, N - own - plus - minus) + bits(plus, minus)
        self.assertAlmostEqual(about["entropy_bits_per_element"], expected / N, places=9)

    def test_draws(self):
        values = harness.gaussians(N, 7)
        base = self.read_bytes(self.encode("ternary", values))
        self.assertEqual(base, self.read_bytes(self.encode("ternary", values, "again")))
        for option in ["--seed", "--rank", "--step", "--tensor"]:
            other = self.encode("ternary", values, "other", option, "1")
            self.assertNotEqual(self.decode(other), self.decode(self.path("g.gw")), option)
        about = self.ok_json("inspect", self.encode("ternary", values, "g", "--rank", 3, "--step", 17, "--tensor", 5))
        self.assertEqual((about["rank"], about["step"], about["tensor"]), (3, 17, 5))

    def test_edges(self):
        for n in [0, 1, 2, 63, 1025]:
            values = harness.gaussians(n, n)
            for spec in harness.CODECS:
                self.assertEqual(len(self.decode(self.encode(spec, values))), n, (spec, n))
        self.assertEqual(self.decode(self.encode("ternary", [0.0] * 100)), [0.0] * 100)
        # Equal elements are not clipped, so each is drawn with probability 1.
        self.assertEqual(self.decode(self.encode("ternary", [-2.0] * 100)), [-2.0] * 100)

    def test_encode_json_is_inspect_json(self):
        source = self.write_f32("g.f32", harness.gaussians(500, 8))
        encoded = self.ok_json("encode", "--codec", "ternary", source, "-o", self.path("g.gw"))
        self.assertGreater(encoded.pop("variance_factor"), 1)  # this needs the gradient, which inspect does not have
        self.assertEqual(encoded, self.ok_json("inspect", self.path("g.gw")))

    def push(self, spec, gradients, scaler=None):
        frames = []
        for rank, values in enumerate(gradients):
            more = ["--rank", rank] + (["--scaler", scaler] if scaler else [])
            frames.append(self.encode(spec, values, f"w{rank}", *more))
        return frames

    def test_shared_scaler(self):
        gradients = [harness.gaussians(N, 10 + rank) for rank in range(4)]
        gradients[2] = [3 * v for v in gradients[2]]
        files = [self.write_f32(f"w{rank}.f32", values) for rank, values in enumerate(gradients)]
        shared = self.ok_json("scaler", "--codec", "ternary", *files)["scaler"]
        own = [self.ok_json("scaler", "--codec", "ternary", file)["scaler"] for file in files]
        self.assertEqual(shared, max(own))
        self.assertEqual(float32(float(self.ok("scaler", "--codec", "ternary", *files))), shared)
        as_file = self.path("scaler.json")
        with open(as_file, "w", encoding="utf-8") as file:
            json.dump({"scaler": shared}, file)
        with_number = [self.read_bytes(f) for f in self.push("ternary", gradients, repr(shared))]
        frames = self.push("ternary", gradients, as_file)
        self.assertEqual(with_number, [self.read_bytes(f) for f in frames])

        # The average is the sum of the ternary values times s/N. s/N is rounded once.
        about = self.ok_json("reduce", *frames, "-o", self.path("average.gw"))
        self.assertEqual(about, self.ok_json("inspect", self.path("average.gw")))
        self.assertEqual((about["workers"], about["frame"], about["elements"]), (4, "average", N))
        signs = [[(v > 0) - (v < 0) for v in self.decode(f)] for f in frames]
        unit = float32(shared / 4)
        expected = [float32(sum(column) * unit) for column in zip(*signs)]
        self.assertEqual(self.decode(self.path("average.gw")), expected)

        # The order of the frames does not matter. Neither does it matter how the sums are packed.
        self.ok("reduce", *reversed(frames), "-o", self.path("other.gw"))
        self.assertEqual(self.read_bytes(self.path("average.gw")), self.read_bytes(self.path("other.gw")))
        for pull in ["packed", "auto"]:
            for entropy in ["on", "off"]:
                self.ok(
                    "reduce", *frames, "-o", self.path("other.gw"), "--codec", f"ternary:pull={pull},entropy={entropy}"
                )
                self.assertEqual(self.decode(self.path("other.gw")), expected)

        # A scaler below the tensor's own is refused.
        self.refused(1, "encode", "--codec", "ternary", "--scaler", own[0], files[2], "-o", self.path("x.gw"))
        self.assertRaises(FileNotFoundError, self.read_bytes, self.path("x.gw"))

    def test_bucket_scalers(self):
        spec = "ternary:bucket=1024"
        files = [self.write_f32(f"w{rank}.f32", harness.gaussians(5000, 20 + rank)) for rank in range(2)]
        both = self.ok_json("scaler", "--codec", spec, *files)["scalers"]
        each = [self.ok_json("scaler", "--codec", spec, file)["scalers"] for file in files]
        self.assertEqual(len(both), 5)
        self.assertEqual(both, [max(pair) for pair in zip(*each)])
        self.assertEqual([float32(float(x)) for x in self.ok("scaler", "--codec", spec, *files).split()], both)
        with open(self.path("s.json"), "w", encoding="utf-8") as file:
            json.dump({"scalers": both}, file)
        out = self.path("w0.gw")
        self.ok("encode", "--codec", spec, "--scaler", self.path("s.json"), files[0], "-o", out)
        self.assertEqual(self.ok_json("inspect", out)["scalers"], both)
        self.refused(2, "encode", "--codec", spec, "--scaler", "1.0", files[0], "-o", out, says="5 buckets")
        with open(self.path("s.json"), "w", encoding="utf-8") as file:
            json.dump({"scalers": both[:-1]}, file)
        self.refused(
            1,
            "encode",
            "--codec",
            spec,
            "--scaler",
            self.path("s.json"),
            files[0],
            "-o",
            out,
            says=["4 scalers", "needs 5"],
        )

    def test_scaler_refusals(self):
        a, b = self.write_f32("a.f32", [1.0, 2.0]), self.write_f32("b.f32", [1.0])
        self.refused(2, "scaler", "--codec", "none", a, says="share no scaler")
        self.refused(2, "scaler", "--codec", "ternary:share=off", a, says="share no scaler")
        self.refused(1, "scaler", "--codec", "ternary", a, b, says=["a.f32 has 2", "b.f32 has 1"])
        self.ok("scaler", "--codec", "ternary:scope=global", a, b)
        out = self.path("a.gw")
        self.refused(2, "encode", "--codec", "none", "--scaler", "1", a, "-o", out, says="leave --scaler away")
        self.refused(
            1, "encode", "--codec", "ternary", "--scaler", "nothing", a, "-o", out, says="neither a number nor"
        )
        self.write_bytes("bad.json", b'{"scaler": "big"}')
        self.refused(
            1,
            "encode",
            "--codec",
            "ternary",
            "--scaler",
            self.path("bad.json"),
            a,
            "-o",
            out,
            says="scaler is no number",
        )

    def test_average_of_every_kind(self):
        gradients = [harness.gaussians(2000, 30 + rank) for rank in range(3)]
        for spec in harness.CODECS:
            files = [self.write_f32(f"w{rank}.f32", values) for rank, values in enumerate(gradients)]
            scaler = None
            if "ternary" in spec:
                scaler = self.path("s.json")
                self.write_bytes("s.json", self.ok("scaler", "--codec", spec, *files, "--json").encode())
            frames = self.push(spec, gradients, scaler)
            decoded = [self.decode(frame) for frame in frames]
            self.ok("reduce", *frames, "-o", self.path("average.gw"), "--codec", spec)
            average = self.decode(self.path("average.gw"))
            scale = max(map(abs, average))
            rounding = 2.0**-8 if spec == "bf16" else 1e-6
            for column, got in zip(zip(*decoded), average):
                self.assertLessEqual(abs(statistics.fmean(column) - got), rounding * scale, spec)

    def test_momentum(self):
        """encode knows no average. So it cannot give gradients back, and says so."""
        source, out, codec = self.write_f32("g.f32", harness.gaussians(100, 3)), self.path("g.gw"), "topk:momentum=0.9"
        self.refused(2, "encode", "--codec", codec, source, "-o", out, says="write output=velocity")
        state = ["--codec", codec + ",output=velocity", "--state", self.path("state"), source, "-o", out]
        sizes = [self.ok_json("encode", *state, "--step", step, "--json")["residual_norm"] for step in (0, 1)]
        self.assertGreater(sizes[1], 1.5 * sizes[0])  # 1 + 0.9 times the same gradient

    def test_nonfinite(self):
        for bad, at in [(math.nan, 0), (math.inf, 77), (-math.inf, 99)]:
            values = harness.gaussians(100, 9)
            values[at] = bad
            source = self.write_f32("bad.f32", values)
            for spec in ["none", "bf16", "ternary", "ternary:bucket=1024,share=off"]:
                out = self.path("bad.gw")
                self.refused(1, "encode", "--codec", spec, source, "-o", out, says=[f"element {at} is", "bad.f32"])
                done = self.run_tool("encode", "--codec", spec, source, "-o", out, "--nonfinite", "skip", "--json")
                self.assertEqual((done.returncode, json.loads(done.stdout)), (0, {"skipped": True}))
                self.assertIn(f"element {at} is", done.stderr)
                self.assertRaises(FileNotFoundError, self.read_bytes, out)
            self.refused(1, "scaler", "--codec", "ternary", source, says=f"element {at} is")


class Parts(harness.Case):
    def test_sparse_frames_tell_what_their_bits_are_spent_on(self):
        source = random.Random(3)
        g = self.write_f32("g.f32", [source.gauss(0, 1) ** 3 for _ in range(20000)])
        for codec, sent in [
            ("topk:ratio=0.01,scope=layer,over=0", 200),
            ("topk:ratio=0.01,scope=layer,over=0,value=bf16", 200),
        ]:
            out = self.path("g.gw")
            encoded = self.ok_json("encode", "--codec", codec, g, "-o", out)
            said = self.ok_json("inspect", out)
            self.assertEqual(said["sent"], sent)
            self.assertEqual(said["density"], sent / 20000)
            rest, exponent = (8, 8) if "bf16" in codec else (24, 8)
            self.assertLess(said["value_bits"], sent * (rest + exponent / 2), "exponents are sent near their entropy")
            self.assertTrue(rest * sent <= said["value_entropy_bits"] <= said["value_bits"])
            self.assertEqual(said["sign_bits"], 0)
            self.assertEqual(said["head_bits"] + said["position_bits"] + said["value_bits"], 8 * said["frame_bytes"])
            self.assertLess(said["position_bits"], 1.05 * said["position_entropy_bits"])
            self.assertTrue(0 < encoded["variance_factor"] < 1, "the largest hold much of the energy, and not all")
            self.assertIn("200, 1 % of all", self.ok("inspect", out))
        self.assertNotIn("sent", self.ok_json("encode", "--codec", "ternary", g, "-o", out))


if __name__ == "__main__":
    harness.main()
