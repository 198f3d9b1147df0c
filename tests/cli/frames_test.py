"""Tests that tensors come back from frames, what inspect tells of them, scalers, averages, and state between calls.
Each codec's own tests have what a frame holds; here the commands hand it on."""

import json
import math
import os
import random
import statistics
import struct

import harness

N = 10000
ONE_LAYER = "scope=layer,over=0"


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bits(*counts):
    return -sum(c * math.log2(c / sum(counts)) for c in counts if c)


class Frames(harness.Case):
    def encode(self, spec, values, name="g", *more):
        source, frame = self.write_f32(name + ".f32", values), self.path(name + ".gw")
        self.ok("encode", "--codec", spec, source, "-o", frame, *more)
        return frame

    def decode(self, frame):
        self.ok("decode", frame, "-o", self.path("decoded.f32"))
        return self.read_f32("decoded.f32")

    def push(self, spec, gradients, scaler=None):
        more = ["--scaler", scaler] if scaler else []
        return [self.encode(spec, values, f"w{r}", "--rank", r, *more) for r, values in enumerate(gradients)]

    # ---- one frame ----

    def test_every_kind_of_frame(self):
        values = harness.gaussians(N, 4)
        for spec in harness.CODECS:
            frame = self.encode(spec, values)
            about = self.ok_json("inspect", frame)
            wanted = {"elements": N, "frame_bytes": len(self.read_bytes(frame)), "workers": 1, "checksum": "ok"}
            self.assertEqual({key: about[key] for key in wanted}, wanted, spec)
            self.assertIs(about["finite"], True, spec)
            self.assertAlmostEqual(about["bits_per_element"], 8 * about["payload_bytes"] / N, places=12, msg=spec)
            decoded = self.decode(frame)
            self.assertEqual(len(decoded), N, spec)
            self.assertEqual(sum(v != 0 for v in decoded), about["nonzeros"], spec)
            if about["codec"] == "ternary" and "bucket" not in spec:
                self.assertEqual({abs(v) for v in decoded}, {0.0, about["scaler"]}, spec)
            self.assertIn(f"{N}", self.ok("inspect", frame))
            self.assertEqual(self.decode(self.encode(spec, [])), [], spec)
        few = [0.0, -0.0, 1e-45, -3.5, 3.4e38]
        self.decode(self.encode("none", few))
        self.assertEqual(self.read_bytes("decoded.f32"), self.read_bytes("g.f32"))
        # A path need not be UTF-8, but JSON must be.
        told = self.ok_json("decode", self.encode("none", few), "-o", self.path("\udcff.f32"))
        self.assertEqual(told["output"], self.path(r"\xff.f32"))
        said = self.ok("inspect", self.encode("none", few, "\x1b[31m\udcff"))
        self.assertEqual(said.splitlines()[0], self.path(r"\x1b[31m\xff.gw"))

    def test_draws(self):
        values = harness.gaussians(N, 7)
        base = self.read_bytes(self.encode("ternary", values))
        self.assertEqual(base, self.read_bytes(self.encode("ternary", values, "again")))
        for option in ["--seed", "--rank", "--step", "--tensor"]:
            other = self.encode("ternary", values, "other", option, "1")
            self.assertNotEqual(self.decode(other), self.decode(self.path("g.gw")), option)
        about = self.ok_json("inspect", self.encode("ternary", values, "g", "--rank", 3, "--step", 17, "--tensor", 5))
        self.assertEqual((about["rank"], about["step"], about["tensor"]), (3, 17, 5))

    def test_nonfinite(self):
        for bad, at in [(math.nan, 0), (-math.inf, 99)]:
            values = harness.gaussians(100, 9)
            values[at] = bad
            source, out = self.write_f32("bad.f32", values), self.path("bad.gw")
            for spec in ["none", "ternary", "ternary:bucket=1024,share=off"]:
                encode = ["encode", "--codec", spec, source, "-o", out]
                self.refused(1, *encode, says=[f"element {at} is", "bad.f32"])
                done = self.run_tool(*encode, "--nonfinite", "skip", "--json")
                self.assertEqual((done.returncode, json.loads(done.stdout)), (0, {"skipped": True}))
                self.assertIn(f"element {at} is", done.stderr)
                self.assertFalse(os.path.exists(out))
            self.refused(1, "scaler", "--codec", "ternary", source, says=f"element {at} is")

    # ---- what inspect tells ----

    def test_inspect(self):
        """How much smaller a frame is counts for its own direction: an average takes more bytes than a push."""
        values = harness.gaussians(N, 1)
        frames = self.push("ternary", [values, values])
        self.ok("reduce", *frames, "-o", self.path("average.gw"))
        for frame, way in [(frames[0], "up"), (self.path("average.gw"), "down")]:
            about = self.ok_json("inspect", frame)
            self.assertAlmostEqual(about["times_smaller"], 4 * N / about["frame_bytes"], 9)
            says = f"{about['times_smaller']:.2f} times smaller than float32, on the way {way} only\n"
            self.assertIn(says, self.ok("inspect", frame))
        frame = self.encode("onebit:bucket=0", values)
        for scaler in self.ok_json("inspect", frame)["scalers"]:
            self.assertIn(f"scaler     {scaler:.9g}\n", self.ok("inspect", frame))
        said = self.ok("inspect", self.encode("onebit:bucket=64", values))
        self.assertIn(f"scalers    {2 * -(-N // 64)}, 2 for every 64 elements\n", said)
        words = ["encode", "--codec", "ternary", self.path("g.f32"), "-o", self.path("g.gw")]
        encoded = self.ok_json(*words)
        self.assertGreater(encoded.pop("variance_factor"), 1)  # this needs the gradient, which inspect does not have
        self.assertEqual(encoded, self.ok_json("inspect", self.path("g.gw")))
        self.assertNotIn("sent", encoded)

    def test_entropy(self):
        """Of sparse frames the entropy counts the presence of each element and the signs of gspar's part B. It does not
        count values."""
        values = harness.gaussians(N, 8)
        about, decoded = self.ok_json("inspect", self.encode("ternary", values)), self.decode(self.path("g.gw"))
        counts = [sum((v > 0) - (v < 0) == symbol for v in decoded) for symbol in (-1, 0, 1)]
        self.assertAlmostEqual(about["entropy_bits_per_element"], bits(*counts) / N, places=9)
        about = self.ok_json("inspect", self.encode("topk:ratio=0.1," + ONE_LAYER, values))
        self.assertAlmostEqual(about["entropy_bits_per_element"], bits(N // 10, N - N // 10) / N, places=9)
        self.assertNotIn("part_a", about)
        about = self.ok_json("inspect", self.encode("gspar", values))
        decoded, q = self.decode(self.path("g.gw")), about["inverse_lambda"]
        plus, minus = sum(v == q for v in decoded), sum(v == -q for v in decoded)
        own = sum(abs(v) > q for v in decoded)
        self.assertEqual((about["part_a"], about["part_b"]), (own, plus + minus))
        expected = bits(own, plus + minus, N - own - plus - minus) + bits(plus, minus)
        self.assertAlmostEqual(about["entropy_bits_per_element"], expected / N, places=9)

    def test_sparse_frames_tell_what_their_bits_are_spent_on(self):
        source = random.Random(3)
        g, out = self.write_f32("g.f32", [source.gauss(0, 1) ** 3 for _ in range(20000)]), self.path("g.gw")
        for value, rest in [("", 24), (",value=bf16", 8)]:
            encoded = self.ok_json("encode", "--codec", f"topk:ratio=0.01,{ONE_LAYER}{value}", g, "-o", out)
            said, sent = self.ok_json("inspect", out), 200
            self.assertEqual((said["sent"], said["density"], said["sign_bits"]), (sent, sent / 20000, 0))
            self.assertLess(said["value_bits"], sent * (rest + 8 / 2), "exponents are sent near their entropy")
            self.assertTrue(rest * sent <= said["value_entropy_bits"] <= said["value_bits"])
            self.assertEqual(said["head_bits"] + said["position_bits"] + said["value_bits"], 8 * said["frame_bytes"])
            self.assertLess(said["position_bits"], 1.05 * said["position_entropy_bits"])
            self.assertTrue(0 < encoded["variance_factor"] < 1, "the largest hold much of the energy, and not all")
            self.assertIn("200, 1 % of all", self.ok("inspect", out))

    # ---- scalers and averages ----

    def test_shared_scaler(self):
        gradients = [harness.gaussians(N, 10 + rank) for rank in range(4)]
        gradients[2] = [3 * v for v in gradients[2]]
        files = [self.write_f32(f"w{rank}.f32", values) for rank, values in enumerate(gradients)]
        scaler = ["scaler", "--codec", "ternary"]
        shared = self.ok_json(*scaler, *files)["scaler"]
        own = [self.ok_json(*scaler, file)["scaler"] for file in files]
        self.assertEqual(shared, max(own))
        self.assertEqual(float32(float(self.ok(*scaler, *files))), shared)
        as_file = self.write_bytes("scaler.json", json.dumps({"scaler": shared}).encode())
        with_number = [self.read_bytes(f) for f in self.push("ternary", gradients, repr(shared))]
        frames = self.push("ternary", gradients, as_file)
        self.assertEqual(with_number, [self.read_bytes(f) for f in frames])

        # reduce_test has what an average is. The codec that is named says how it is packed.
        average, other = self.path("average.gw"), self.path("other.gw")
        about = self.ok_json("reduce", *frames, "-o", average)
        self.assertEqual(about, self.ok_json("inspect", average))
        self.assertEqual((about["workers"], about["frame"], about["elements"]), (4, "average", N))
        self.ok("reduce", *frames, "-o", other, "--codec", "ternary:pull=packed,entropy=off")
        self.assertNotEqual(self.read_bytes(average), self.read_bytes(other))
        self.assertEqual(self.decode(average), self.decode(other))

        # A scaler below the tensor's own is refused.
        self.refused(1, "encode", "--codec", "ternary", "--scaler", own[0], files[2], "-o", self.path("x.gw"))
        self.assertFalse(os.path.exists(self.path("x.gw")))

    def test_bucket_scalers(self):
        spec, out = "ternary:bucket=1024", self.path("w0.gw")
        files = [self.write_f32(f"w{rank}.f32", harness.gaussians(5000, 20 + rank)) for rank in range(2)]
        both = self.ok_json("scaler", "--codec", spec, *files)["scalers"]
        each = [self.ok_json("scaler", "--codec", spec, file)["scalers"] for file in files]
        self.assertEqual(both, [max(pair) for pair in zip(*each, strict=True)])
        self.assertEqual([float32(float(x)) for x in self.ok("scaler", "--codec", spec, *files).split()], both)
        encode = ["encode", "--codec", spec, files[0], "-o", out, "--scaler"]
        scalers = self.write_bytes("s.json", json.dumps({"scalers": both}).encode())
        self.ok(*encode, scalers)
        self.assertEqual(self.ok_json("inspect", out)["scalers"], both)
        self.refused(2, *encode, "1.0", says="5 buckets")
        self.write_bytes(scalers, json.dumps({"scalers": both[:-1]}).encode())
        self.refused(1, *encode, scalers, says=["4 scalers", "needs 5"])

    def test_scaler_refusals(self):
        a, b = self.write_f32("a.f32", [1.0, 2.0]), self.write_f32("b.f32", [1.0])
        bad, encode = self.write_bytes("bad.json", b'{"scaler": "big"}'), ["encode", a, "-o", self.path("a.gw")]
        self.ok("scaler", "--codec", "ternary:scope=global", a, b)
        self.refused(2, "scaler", "--codec", "none", a, says="share no scaler")
        self.refused(2, "scaler", "--codec", "ternary:share=off", a, says="share no scaler")
        self.refused(1, "scaler", "--codec", "ternary", a, b, says=["a.f32 has 2", "b.f32 has 1"])
        self.refused(2, *encode, "--codec", "none", "--scaler", "1", says="leave --scaler away")
        self.refused(1, *encode, "--codec", "ternary", "--scaler", "nothing", says="neither a number nor")
        os.mkfifo(self.path("pipe"))  # nobody writes there: to open it would wait
        self.refused(1, *encode, "--codec", "ternary", "--scaler", self.path("pipe"), says="no regular file")
        self.refused(1, *encode, "--codec", "ternary", "--scaler", bad, says="scaler is no number")

    def test_output_to_a_pipe(self):
        """A reader that comes later gets the whole frame. Nobody waits without end for one that never comes."""
        a, pipe, out = self.write_f32("a.f32", [1.0] * 50000), self.path("pipe"), self.path("a.gw")
        os.mkfifo(pipe)
        self.refused(1, "encode", a, "--codec", "none", "-o", pipe, says="nobody reads this pipe")
        self.ok("encode", a, "--codec", "none", "-o", out)
        writer = self.start("encode", a, "--codec", "none", "-o", pipe)
        with open(pipe, "rb") as reader, open(out, "rb") as whole:
            self.assertEqual(reader.read(), whole.read())
        self.assertEqual(writer.wait(60), 0)

    def test_average_of_every_kind(self):
        gradients = [harness.gaussians(2000, 30 + rank) for rank in range(3)]
        files = [self.write_f32(f"w{rank}.f32", values) for rank, values in enumerate(gradients)]
        for spec in harness.CODECS:
            scaler = None
            if "ternary" in spec:
                scaler = self.write_bytes("s.json", self.ok("scaler", "--codec", spec, *files, "--json").encode())
            frames = self.push(spec, gradients, scaler)
            decoded = [self.decode(frame) for frame in frames]
            self.ok("reduce", *frames, "-o", self.path("average.gw"), "--codec", spec)
            average = self.decode(self.path("average.gw"))
            most = max(map(abs, average)) * (2.0**-8 if spec == "bf16" else 1e-6)
            for column, got in zip(zip(*decoded), average):
                self.assertLessEqual(abs(statistics.fmean(column) - got), most, spec)


class State(harness.Case):
    """The residual and the threshold go from call to call exactly. A file that is no state is refused."""

    N, K = 1000, 10

    def gradient(self, step):
        source = random.Random(step)
        return [float32(source.gauss(0, 1)) for _ in range(self.N)]

    def encode(self, step):
        """Codes the gradient of a step with the state that is there. Returns what was sent."""
        self.g = self.write_f32("g.f32", self.gradient(step))
        self.state, self.out = self.path("state"), self.path("g.gw")
        spec = f"topk:ratio={self.K / self.N},refresh=1,{ONE_LAYER}"
        self.ok("encode", "--codec", spec, "--state", self.state, "--step", step, self.g, "-o", self.out)
        self.ok("decode", self.out, "-o", self.path("out.f32"))
        return self.read_f32("out.f32")

    def test_what_is_not_sent_waits(self):
        residual = [0.0] * self.N
        for step in range(6):
            a = [float32(x + r) for x, r in zip(self.gradient(step), residual)]
            largest = sorted(range(self.N), key=lambda i: -abs(a[i]))[: self.K]
            sent = [a[i] if i in largest else 0.0 for i in range(self.N)]
            residual = [float32(x - s) for x, s in zip(a, sent)]
            self.assertEqual(self.encode(step), sent, f"step {step}")
        # A global codec takes one tensor as the network.
        said = self.ok_json("encode", "--codec", "topk:ratio=0.01,over=0,scope=global", self.g, "-o", self.out)
        self.assertEqual(said["nonzeros"], self.K)

    def test_momentum(self):
        """encode knows no average. So it cannot give gradients back, and says so."""
        source, codec = self.write_f32("g.f32", harness.gaussians(100, 3)), "topk:momentum=0.9"
        words = ["encode", source, "-o", self.path("g.gw"), "--state", self.path("state"), "--codec"]
        self.refused(2, *words, codec, says="write output=velocity")
        sizes = [self.ok_json(*words, codec + ",output=velocity", "--step", t)["residual_norm"] for t in (0, 1)]
        self.assertGreater(sizes[1], 1.5 * sizes[0])  # 1 + 0.9 times the same gradient

    def test_state_and_frame_appear_together(self):
        """No state is written without a frame, and no frame without its state."""
        self.encode(0)
        encode, before = ["encode", "--codec", "topk"], self.contents()
        kept = [*encode, "--state", self.state]
        bad = self.write_f32("bad.f32", [1.0, float("nan")] + [0.0] * (self.N - 2))
        short, folder, out = self.write_f32("short.f32", [1.0]), self.path("folder"), self.path("other.gw")
        os.mkdir(folder)
        self.refused(1, *kept, bad, "-o", out, says="element 1 is nan")
        self.ok(*kept, bad, "-o", out, "--nonfinite", "skip")
        self.refused(1, *kept, short, "-o", out, says="1000 elements")
        self.refused(1, *kept, self.g, "-o", folder, says="is a folder")
        self.refused(1, *encode, "--state", self.path("absent/state"), self.g, "-o", self.out, says="absent/state")
        os.rmdir(folder)
        after = self.contents()
        self.assertEqual({name: after.get(name) for name in before}, before)
        self.assertFalse(os.path.exists(out))

    def test_what_waits_can_make_an_element_infinite(self):
        """Both steps have finite numbers. So the sentence must not call the second step's gradient infinite."""
        g = self.write_f32("large.f32", [3.2e38, 3e38] + [0.0] * (self.N - 2))
        spec = "topk:ratio=0.001,refresh=1," + ONE_LAYER
        encode = ["encode", "--codec", spec, "--state", self.path("state"), g, "-o", self.path("g.gw")]
        self.ok(*encode)
        self.refused(1, *encode, says=["element 1 is 3e+38, which", "in the state"])
        self.ok(*encode, "--nonfinite", "skip")

    def test_one_file_has_one_role(self):
        """A file must not have two roles. Neither its spelling nor whether it is there already makes a difference."""
        g, new, frame, w = self.write_f32("g.f32", self.gradient(0)), *map(self.path, ("new", "g.gw", "w.f32"))
        link, hard, other = self.path("link.f32"), self.path("hard.f32"), os.path.join(self.folder, ".", "new")
        os.symlink(g, link)
        os.link(g, hard)
        encode = ["encode", "--codec", "topk", g]
        self.ok(*encode, "-o", frame)
        self.write_bytes(w, self.read_bytes(frame))
        before = self.contents()
        for one, two, words in [
            ("-o", "--state", [*encode, "--state", new, "-o", other]),
            ("-o", "--state", [*encode, "--state", frame, "-o", frame]),
            ("-o", "the input", [*encode, "-o", g]),
            ("-o", "the input", [*encode, "-o", link]),
            ("-o", "the input", [*encode, "-o", hard]),
            ("--state", "the input", [*encode, "--state", g, "-o", new]),
            ("-o", "--scaler", ["encode", "--codec", "ternary", g, "--scaler", frame, "-o", frame]),
            ("-o", "the input", ["decode", w, "-o", w]),
            ("-o", "an input", ["reduce", w, frame, "-o", frame]),
        ]:
            self.refused(2, *words, says=[f"{one} and {two} are one file", "name another"])
        self.assertEqual(self.contents(), before)
        self.ok(*encode, "-o", "/dev/null", "--json")
        self.ok(*encode, "--state", new, "-o", self.path("new.gw"))

    def test_what_is_no_state_is_refused(self):
        self.encode(0)
        state = self.read_bytes("state")
        for name, data, says in [
            ("empty", b"", "not a saved codec state"),
            ("cut", state[:-1], "altered"),
            ("altered", state[:500] + bytes([state[500] ^ 1]) + state[501:], "altered"),
            ("other", b"GWST" + b"\x09" + state[5:], "version 9"),
            ("frame", self.read_bytes("g.gw"), "not a saved"),
        ]:
            path = self.write_bytes(name, data)
            self.refused(1, "encode", "--codec", "topk", "--state", path, self.g, "-o", self.path("x.gw"), says=says)
            self.assertEqual(self.read_bytes(path), data)
        self.refused(2, "encode", "--codec", "topk", "--state", "-", self.g, "-o", self.path("x.gw"))


if __name__ == "__main__":
    harness.main()
