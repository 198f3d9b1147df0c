"""Tests that tensors come back from frames, what inspect tells of them, scalers, averages, and state between calls.
Each codec's own tests have what a frame holds, what its bits are spent on, what an average is and what a state does.
Here the commands hand it on."""

import json
import math
import os
import statistics
import struct

import harness

N = 10000
ONE_LAYER = "scope=layer,over=0"


def float32(value):
    return struct.unpack("<f", struct.pack("<f", float(value)))[0]


class Frames(harness.Case):
    def encode(self, spec, values, name="g", *more):
        source, frame = self.write_f32(name + ".f32", values), self.path(name + ".gw")
        self.ok("encode", "--codec", spec, source, "-o", frame, *more)
        return frame

    def decode(self, frame):
        self.ok("decode", frame, "-o", self.path("decoded.f32"))
        return self.read_f32("decoded.f32")

    def test_there_and_back(self):
        """Alone, and as the average of three. Then the ends of what there is."""
        gradients, average = [harness.gaussians(N, 30 + rank) for rank in range(3)], self.path("average.gw")
        scaler = ["scaler", "--codec", "ternary", *(self.write_f32(f"{r}.f32", g) for r, g in enumerate(gradients))]
        scalers = self.write_bytes("s.json", self.ok(*scaler, "--json").encode())
        frames = [self.encode("ternary", g, f"w{r}", "--rank", r, "--scaler", scalers) for r, g in enumerate(gradients)]
        about, decoded = self.ok_json("inspect", frames[0]), [self.decode(frame) for frame in frames]
        wanted = {"elements": N, "frame_bytes": len(self.read_bytes(frames[0])), "workers": 1, "checksum": "ok"}
        wanted |= {"finite": True, "nonzeros": sum(v != 0 for v in decoded[0])}
        self.assertLessEqual(wanted.items(), about.items())
        self.assertAlmostEqual(about["bits_per_element"], 8 * about["payload_bytes"] / N, places=12)
        # A number does what the file does.
        shared = self.ok(*scaler).strip()
        again = self.encode("ternary", gradients[0], "again", "--rank", 0, "--scaler", shared)
        self.assertEqual(self.read_bytes(again), self.read_bytes(frames[0]))
        # The codec that is named says how the average is packed.
        sizes = set()
        for packing in ("", ":pull=packed,entropy=off"):
            about = self.ok_json("reduce", *frames, "-o", average, "--codec", "ternary" + packing)
            self.assertEqual(about, self.ok_json("inspect", average))
            self.assertEqual((about["workers"], about["frame"], about["elements"]), (3, "average", N))
            sizes.add(about["frame_bytes"])
            for column, got in zip(zip(*decoded), self.decode(average), strict=True):
                self.assertAlmostEqual(statistics.fmean(column), got, delta=1e-6 * float(shared))
        self.assertEqual(len(sizes), 2)
        for spec in harness.CODECS:
            self.assertEqual(self.decode(self.encode(spec, [])), [], spec)
        few = [0.0, -0.0, 1e-45, -3.5, 3.4e38]
        # A path need not be UTF-8, but JSON must be.
        told = self.ok_json("decode", self.encode("none", few), "-o", self.path("\udcff.f32"))
        self.assertEqual(told["output"], self.path(r"\xff.f32"))
        self.assertEqual(self.read_bytes("\udcff.f32"), self.read_bytes("g.f32"))
        said = self.ok("inspect", self.encode("none", few, "\x1b[31m\udcff"))
        self.assertEqual(said.splitlines()[0], self.path(r"\x1b[31m\xff.gw"))

    def test_nonfinite(self):
        source, out = self.write_f32("bad.f32", [1.0] * 99 + [-math.inf]), self.path("bad.gw")
        encode = ["encode", "--codec", "ternary", source, "-o", out]
        self.refused(1, *encode, says=["element 99 is", "bad.f32"])
        done = self.run_tool(*encode, "--nonfinite", "skip", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)), (0, {"skipped": True}))
        self.assertIn("element 99 is", done.stderr)
        self.assertFalse(os.path.exists(out))
        self.refused(1, "scaler", "--codec", "ternary", source, says="element 99 is")

    def test_inspect(self):
        """How much smaller a frame is counts for its own direction: an average takes more bytes than a push."""
        values, average = harness.gaussians(N, 1), self.path("average.gw")
        drawn = ["--rank", 3, "--step", 17, "--tensor", 5]
        before = self.read_bytes(self.encode("ternary", values, "g", *drawn))
        frame = self.encode("ternary", values, "g", *drawn, "--seed", 1)
        about = self.ok_json("inspect", frame)
        self.assertEqual((about["rank"], about["step"], about["tensor"], "part_a" in about), (3, 17, 5, False))
        self.assertNotEqual(self.read_bytes(frame), before)
        self.ok("reduce", frame, "-o", average)
        for frame, way in [(frame, "up"), (average, "down")]:
            about = self.ok_json("inspect", frame)
            self.assertAlmostEqual(about["times_smaller"], 4 * N / about["frame_bytes"], 9)
            says = f"{about['times_smaller']:.2f} times smaller than float32, on the way {way} only\n"
            self.assertIn(says, self.ok("inspect", frame))
        frame = self.encode("onebit:bucket=0", values)
        for scaler in self.ok_json("inspect", frame)["scalers"]:
            self.assertIn(f"scaler     {scaler:.9g}\n", self.ok("inspect", frame))
        said = self.ok("inspect", self.encode("onebit:bucket=64", values))
        self.assertIn(f"scalers    {2 * -(-N // 64)}, 2 for every 64 elements\n", said)
        about = self.ok_json("inspect", self.encode("gspar", values))
        self.assertEqual(about["part_a"] + about["part_b"], about["nonzeros"])
        words = ["encode", "--codec", f"topk:ratio=0.01,{ONE_LAYER}", self.path("g.f32"), "-o", self.path("g.gw")]
        encoded, about = self.ok_json(*words), self.ok_json("inspect", self.path("g.gw"))
        self.assertGreater(encoded.pop("variance_factor"), 0)  # this needs the gradient, which inspect does not have
        self.assertEqual(encoded, about)
        self.assertEqual((about["sent"], about["density"], about["sign_bits"]), (100, 0.01, 0))
        self.assertEqual(about["head_bits"] + about["position_bits"] + about["value_bits"], 8 * about["frame_bytes"])
        self.assertIn("100, 1 % of all", self.ok("inspect", self.path("g.gw")))

    def test_scalers(self):
        files = [self.write_f32(f"w{rank}.f32", harness.gaussians(5000, 20 + rank)) for rank in range(2)]
        out, short, spec = self.path("w0.gw"), self.write_f32("short.f32", [1.0]), "ternary:bucket=1024"
        scaler, encode = ["scaler", "--codec", "ternary"], ["encode", files[0], "-o", out, "--codec"]
        own = [self.ok_json(*scaler, file)["scaler"] for file in files]
        self.assertEqual(self.ok_json(*scaler, *files), {"scaler": max(own)})
        both = self.ok_json("scaler", "--codec", spec, *files)["scalers"]
        self.assertEqual([float32(x) for x in self.ok("scaler", "--codec", spec, *files).split()], both)
        scalers, few = self.path("s.json"), self.write_bytes("few.json", json.dumps({"scalers": both[:-1]}).encode())
        self.write_bytes(scalers, json.dumps({"scalers": both}).encode())
        self.ok(*encode, spec, "--scaler", scalers)
        self.assertEqual(self.ok_json("inspect", out)["scalers"], both)
        os.remove(out)
        bad, pipe = self.write_bytes("bad.json", b'{"scaler": "big"}'), self.path("pipe")
        os.mkfifo(pipe)  # nobody writes there: to open it would wait
        rows = [
            ([spec, "--scaler", few], ["4 scalers", "needs 5"]),
            (["ternary", "--scaler", repr(own[0] / 2)], "scaler"),
            (["ternary", "--scaler", "nothing"], "neither a number nor"),
            (["ternary", "--scaler", pipe], "no regular file"),
            (["ternary", "--scaler", bad], "scaler is no number"),
        ]
        self.each_refused(1, *encode, rows)
        self.each_refused(
            2, *encode, [([spec, "--scaler", 1], "5 buckets"), ("none --scaler 1", "leave --scaler away")]
        )
        self.assertFalse(os.path.exists(out))
        self.ok("scaler", "--codec", "ternary:scope=global", files[0], short)
        self.refused(2, "scaler", "--codec", "none", short, says="share no scaler")
        self.refused(1, *scaler, files[0], short, says=["w0.f32 has 5000", "short.f32 has 1"])


class State(harness.Case):
    def test_state_and_frame_appear_together(self):
        """No state is written without a frame, and no frame without its state. No other file is taken for a state."""
        g, state, out, new = self.write_f32("g.f32", harness.gaussians(1000, 1)), *map(self.path, ("s", "g.gw", "new"))
        encode = ["encode", "--codec", f"topk:ratio=0.01,refresh=1,{ONE_LAYER}", "--state"]
        self.ok(*encode, state, g, "-o", out)
        before, large = self.contents(), self.write_f32("large.f32", [3.2e38] * 1000)
        bad, short = self.write_f32("bad.f32", [1.0, math.nan] + [0.0] * 998), self.write_f32("short.f32", [1.0])
        rows = [
            ([state, bad, "-o", new], "element 1 is nan"),
            ([state, short, "-o", new], "1000 elements"),
            ([state, g, "-o", self.folder], "is a folder"),
            ([self.path("absent/state"), g, "-o", out], "absent/state"),
        ]
        altered = before["s"][:500] + bytes([before["s"][500] ^ 1]) + before["s"][501:]
        for data, says in [
            (b"", "not a saved codec state"),
            (altered, "altered"),
            (b"GWST\x09" + altered[5:], "version 9"),
            (before["g.gw"], "not a saved"),
        ]:
            before[f"bad-{len(rows)}"] = data
            rows.append(([self.write_bytes(f"bad-{len(rows)}", data), g, "-o", new], says))
        self.each_refused(1, *encode, rows)
        self.ok(*encode, state, bad, "-o", new, "--nonfinite", "skip")
        self.assertLessEqual(before.items(), self.contents().items())
        self.assertFalse(os.path.exists(new))
        # The numbers of both steps are finite. So the sentence must not call the second step's gradient infinite.
        self.ok(*encode, new, large, "-o", out)
        self.refused(1, *encode, new, large, "-o", out, says=["is 3.2e+38, which", "in the state"])
        # encode knows no average. So it cannot give gradients back.
        momentum = ["encode", "--codec", "topk:momentum=0.9", "--state", self.path("other"), g, "-o", out]
        self.refused(2, *momentum, says="write output=velocity")

    def test_one_file_has_one_role(self):
        """A file must not have two roles. Neither its spelling nor whether it is there already makes a difference."""
        g, new, frame, w = self.write_f32("g.f32", [1.0] * 1000), *map(self.path, ("new", "g.gw", "w.f32"))
        link, hard, other = self.path("link.f32"), self.path("hard.f32"), os.path.join(self.folder, ".", "new")
        os.symlink(g, link)
        os.link(g, hard)
        encode = ["encode", "--codec", "topk", g]
        self.ok(*encode, "-o", frame)
        self.write_bytes(w, self.read_bytes(frame))
        before = self.contents()
        rows = [
            ([*encode, "--state", new, "-o", other], "-o and --state"),
            ([*encode, "-o", link], "-o and the input"),
            ([*encode, "-o", hard], "-o and the input"),
            ([*encode, "--state", g, "-o", new], "--state and the input"),
            (["encode", "--codec", "ternary", g, "--scaler", frame, "-o", frame], "-o and --scaler"),
            (["decode", w, "-o", w], "-o and the input"),
            (["reduce", w, frame, "-o", frame], "-o and an input"),
        ]
        self.each_refused(2, [(words, f"{roles} are one file") for words, roles in rows])
        self.assertEqual(self.contents(), before)
        self.ok(*encode, "-o", "/dev/null", "--json")
        self.ok(*encode, "--state", new, "-o", self.path("new.gw"))


if __name__ == "__main__":
    harness.main()
