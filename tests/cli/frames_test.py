"""Tests that tensors come back from frames, what inspect tells of them, scalers, averages, and state between calls.
Each codec's own tests have what a frame holds, sparse_test and size_test what its bits are spent on; here the commands
hand it on."""

import json
import math
import os
import statistics
import struct

import harness

N = 10000
ONE_LAYER = "scope=layer,over=0"


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


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
        """Frames come back, alone and as the average of three."""
        gradients = [harness.gaussians(2000, 30 + rank) for rank in range(3)]
        files = [self.write_f32(f"s{rank}.f32", values) for rank, values in enumerate(gradients)]
        for spec in harness.CODECS:
            scaler = None
            if "ternary" in spec:
                scaler = self.write_bytes("s.json", self.ok("scaler", "--codec", spec, *files, "--json").encode())
            frames = self.push(spec, gradients, scaler)
            about, decoded = self.ok_json("inspect", frames[0]), [self.decode(frame) for frame in frames]
            wanted = {"elements": 2000, "frame_bytes": len(self.read_bytes(frames[0])), "workers": 1, "checksum": "ok"}
            wanted |= {"finite": True, "nonzeros": sum(v != 0 for v in decoded[0])}
            self.assertEqual({key: about[key] for key in wanted}, wanted, spec)
            self.assertAlmostEqual(about["bits_per_element"], 8 * about["payload_bytes"] / 2000, places=12, msg=spec)
            self.ok("reduce", *frames, "-o", self.path("average.gw"), "--codec", spec)
            average = self.decode(self.path("average.gw"))
            most = max(map(abs, average)) * (2.0**-8 if spec == "bf16" else 1e-6)
            for column, got in zip(zip(*decoded), average, strict=True):
                self.assertLessEqual(abs(statistics.fmean(column) - got), most, spec)
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
        values = harness.gaussians(1000, 7)
        base = self.decode(self.encode("ternary", values))
        for option in ["--seed", "--rank", "--step", "--tensor"]:
            self.assertNotEqual(self.decode(self.encode("ternary", values, "other", option, "1")), base, option)
        about = self.ok_json("inspect", self.encode("ternary", values, "g", "--rank", 3, "--step", 17, "--tensor", 5))
        self.assertEqual((about["rank"], about["step"], about["tensor"]), (3, 17, 5))

    def test_nonfinite(self):
        source, out = self.write_f32("bad.f32", [1.0] * 99 + [-math.inf]), self.path("bad.gw")
        for spec in ["none", "ternary"]:
            encode = ["encode", "--codec", spec, source, "-o", out]
            self.refused(1, *encode, says=["element 99 is", "bad.f32"])
            done = self.run_tool(*encode, "--nonfinite", "skip", "--json")
            self.assertEqual((done.returncode, json.loads(done.stdout)), (0, {"skipped": True}))
            self.assertIn("element 99 is", done.stderr)
            self.assertFalse(os.path.exists(out))
        self.refused(1, "scaler", "--codec", "ternary", source, says="element 99 is")

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
        self.assertTrue(0 < about["entropy_bits_per_element"] < 2 and "part_a" not in about)
        frame = self.encode("onebit:bucket=0", values)
        for scaler in self.ok_json("inspect", frame)["scalers"]:
            self.assertIn(f"scaler     {scaler:.9g}\n", self.ok("inspect", frame))
        said = self.ok("inspect", self.encode("onebit:bucket=64", values))
        self.assertIn(f"scalers    {2 * -(-N // 64)}, 2 for every 64 elements\n", said)
        about = self.ok_json("inspect", self.encode("gspar", values))
        self.assertEqual(about["part_a"] + about["part_b"], about["nonzeros"])
        for spec in ("ternary", f"topk:ratio=0.01,{ONE_LAYER}"):
            encoded = self.ok_json("encode", "--codec", spec, self.path("g.f32"), "-o", self.path("g.gw"))
            self.assertGreater(
                encoded.pop("variance_factor"), 0
            )  # this needs the gradient, which inspect does not have
            about = self.ok_json("inspect", self.path("g.gw"))
            self.assertLessEqual({k: v for k, v in encoded.items() if k in about}.items(), about.items())
            self.assertEqual("sent" in about, spec != "ternary")
        self.assertEqual((about["sent"], about["density"], about["sign_bits"]), (100, 0.01, 0))
        self.assertEqual(about["head_bits"] + about["position_bits"] + about["value_bits"], 8 * about["frame_bytes"])
        self.assertIn("100, 1 % of all", self.ok("inspect", self.path("g.gw")))

    # ---- scalers and averages ----

    def test_shared_scaler(self):
        """The scaler of all is given as a number or as a file. reduce_test has what an average is."""
        gradients = [harness.gaussians(N, 10 + rank) for rank in range(4)]
        gradients[2] = [3 * v for v in gradients[2]]
        files = [self.write_f32(f"w{rank}.f32", values) for rank, values in enumerate(gradients)]
        scaler = ["scaler", "--codec", "ternary"]
        shared, own = self.ok_json(*scaler, *files)["scaler"], self.ok_json(*scaler, files[0])["scaler"]
        self.assertEqual(shared, max(self.ok_json(*scaler, file)["scaler"] for file in files))
        self.assertEqual(float32(float(self.ok(*scaler, *files))), shared)
        as_file = self.write_bytes("scaler.json", json.dumps({"scaler": shared}).encode())
        with_number = [self.read_bytes(f) for f in self.push("ternary", gradients, repr(shared))]
        frames = self.push("ternary", gradients, as_file)
        self.assertEqual(with_number, [self.read_bytes(f) for f in frames])
        average, other = self.path("average.gw"), self.path("other.gw")
        about = self.ok_json("reduce", *frames, "-o", average)
        self.assertEqual(about, self.ok_json("inspect", average))
        self.assertEqual((about["workers"], about["frame"], about["elements"]), (4, "average", N))
        # The codec that is named says how the average is packed.
        self.ok("reduce", *frames, "-o", other, "--codec", "ternary:pull=packed,entropy=off")
        self.assertNotEqual(self.read_bytes(average), self.read_bytes(other))
        self.assertEqual(self.decode(average), self.decode(other))
        # A scaler below the tensor's own is refused.
        self.refused(1, "encode", "--codec", "ternary", "--scaler", own, files[2], "-o", self.path("x.gw"))
        self.assertFalse(os.path.exists(self.path("x.gw")))

    def test_bucket_scalers(self):
        spec, out = "ternary:bucket=1024", self.path("w0.gw")
        files = [self.write_f32(f"w{rank}.f32", harness.gaussians(5000, 20 + rank)) for rank in range(2)]
        both = self.ok_json("scaler", "--codec", spec, *files)["scalers"]
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


class State(harness.Case):
    """The state goes from call to call; topk_test has what it does. A file that is no state is refused."""

    N = 1000

    def encode(self):
        """Codes a gradient with a state."""
        self.g = self.write_f32("g.f32", harness.gaussians(self.N, 1))
        self.state, self.out = self.path("state"), self.path("g.gw")
        spec = f"topk:ratio=0.01,refresh=1,{ONE_LAYER}"
        self.ok("encode", "--codec", spec, "--state", self.state, self.g, "-o", self.out)

    def test_momentum(self):
        """encode knows no average. So it cannot give gradients back, and says so."""
        source, codec = self.write_f32("g.f32", harness.gaussians(100, 3)), "topk:momentum=0.9"
        words = ["encode", source, "-o", self.path("g.gw"), "--state", self.path("state"), "--codec"]
        self.refused(2, *words, codec, says="write output=velocity")
        sizes = [self.ok_json(*words, codec + ",output=velocity", "--step", t)["residual_norm"] for t in (0, 1)]
        self.assertGreater(sizes[1], 1.5 * sizes[0])  # 1 + 0.9 times the same gradient

    def test_state_and_frame_appear_together(self):
        """No state is written without a frame, and no frame without its state."""
        self.encode()
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
        g, new, frame, w = self.write_f32("g.f32", [1.0] * self.N), *map(self.path, ("new", "g.gw", "w.f32"))
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
        self.encode()
        state = self.read_bytes("state")
        for name, data, says in [
            ("empty", b"", "not a saved codec state"),
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
