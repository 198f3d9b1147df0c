"""Tests encode --state. The residual and the threshold go from call to call exactly. A file that is no state is
refused."""

import os
import random
import struct

import harness


def float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class State(harness.Case):
    N, K = 1000, 10

    def gradient(self, step):
        source = random.Random(step)
        return [float32(source.gauss(0, 1)) for _ in range(self.N)]

    def encode(self, step, *more):
        g, out = self.write_f32("g.f32", self.gradient(step)), self.path("g.gw")
        self.ok(
            "encode",
            "--codec",
            f"topk:ratio={self.K / self.N},refresh=1,scope=layer,over=0",
            "--state",
            self.path("state"),
            "--step",
            step,
            *more,
            g,
            "-o",
            out,
        )
        self.ok("decode", out, "-o", self.path("out.f32"))
        return list(struct.unpack(f"<{self.N}f", self.read_bytes(self.path("out.f32"))))

    def test_what_is_not_sent_waits(self):
        residual = [0.0] * self.N
        for step in range(6):
            a = [float32(x + r) for x, r in zip(self.gradient(step), residual)]
            largest = sorted(range(self.N), key=lambda i: -abs(a[i]))[: self.K]
            sent = [a[i] if i in largest else 0.0 for i in range(self.N)]
            residual = [float32(x - s) for x, s in zip(a, sent)]
            self.assertEqual(self.encode(step), sent, f"step {step}")

    def test_no_state_is_written_without_a_frame(self):
        self.encode(0)
        before = self.read_bytes(self.path("state"))
        g = self.write_f32("bad.f32", [1.0, float("nan")] + [0.0] * (self.N - 2))
        encode = ["encode", "--codec", "topk", "--state", self.path("state"), g, "-o", self.path("bad.gw")]
        self.refused(1, *encode, says="element 1 is nan")
        self.ok(*encode, "--nonfinite", "skip")
        self.refused(
            1,
            "encode",
            "--codec",
            "topk",
            "--state",
            self.path("state"),
            self.write_f32("short.f32", [1.0]),
            "-o",
            self.path("short.gw"),
            says="1000 elements",
        )
        self.assertEqual(self.read_bytes(self.path("state")), before)

    def test_what_waits_can_make_an_element_infinite(self):
        """Both steps have finite numbers. So the sentence must not call the second step's gradient infinite."""
        g = self.write_f32("large.f32", [3.2e38, 3e38] + [0.0] * (self.N - 2))
        encode = [
            "encode",
            "--codec",
            "topk:ratio=0.001,refresh=1,scope=layer,over=0",
            "--state",
            self.path("state"),
            g,
            "-o",
            self.path("g.gw"),
        ]
        self.ok(*encode)
        self.refused(1, *encode, says=["element 1 is 3e+38, which", "in the state"])
        self.ok(*encode, "--nonfinite", "skip")

    def test_frame_and_state_appear_together(self):
        self.encode(0)
        frame, g = self.read_bytes(self.path("g.gw")), self.write_f32("g.f32", self.gradient(1))
        self.refused(
            1,
            "encode",
            "--codec",
            "topk",
            "--state",
            self.path("absent/state"),
            g,
            "-o",
            self.path("g.gw"),
            says="absent/state",
        )
        self.assertEqual(self.read_bytes(self.path("g.gw")), frame)
        state = self.read_bytes(self.path("state"))
        os.mkdir(self.path("folder"))
        self.refused(
            1,
            "encode",
            "--codec",
            "topk",
            "--state",
            self.path("state"),
            g,
            "-o",
            self.path("folder"),
            says="is a folder",
        )
        self.assertEqual(self.read_bytes(self.path("state")), state)

    def test_one_file_has_one_role(self):
        """A file must not have two roles. Neither its spelling nor whether it is there already makes a difference."""
        g, other = self.write_f32("g.f32", self.gradient(0)), os.path.join(self.folder, ".", "new")
        os.symlink(g, self.path("link.f32"))
        os.link(g, self.path("hard.f32"))
        encode = ["encode", "--codec", "topk"]
        self.ok(*encode, g, "-o", self.path("g.gw"))
        self.write_bytes("w.f32", self.read_bytes(self.path("g.gw")))
        before = {name: self.read_bytes(self.path(name)) for name in os.listdir(self.folder)}
        for roles, words in [
            (["-o", "--state"], [*encode, g, "--state", self.path("new"), "-o", other]),
            (["-o", "--state"], [*encode, g, "--state", self.path("g.gw"), "-o", self.path("g.gw")]),
            (["-o", "the input"], [*encode, g, "-o", g]),
            (["-o", "the input"], [*encode, g, "-o", self.path("link.f32")]),
            (["-o", "the input"], [*encode, g, "-o", self.path("hard.f32")]),
            (["--state", "the input"], [*encode, g, "--state", g, "-o", self.path("new")]),
            (
                ["-o", "--scaler"],
                ["encode", "--codec", "ternary", g, "--scaler", self.path("g.gw"), "-o", self.path("g.gw")],
            ),
            (["-o", "the input"], ["decode", self.path("w.f32"), "-o", self.path("w.f32")]),
            (["-o", "an input"], ["reduce", self.path("w.f32"), self.path("g.gw"), "-o", self.path("g.gw")]),
        ]:
            self.refused(2, *words, says=[f"{roles[0]} and {roles[1]} are one file", "name another"])
        self.assertEqual({name: self.read_bytes(self.path(name)) for name in os.listdir(self.folder)}, before)
        self.ok(*encode, g, "-o", "/dev/null", "--json")
        self.ok(*encode, g, "--state", self.path("new"), "-o", self.path("new.gw"))

    def test_what_is_no_state_is_refused(self):
        self.encode(0)
        state = self.read_bytes(self.path("state"))
        g = self.write_f32("g.f32", self.gradient(1))
        for name, data, says in [
            ("empty", b"", "not a saved codec state"),
            ("cut", state[:-1], "altered"),
            ("altered", state[:500] + bytes([state[500] ^ 1]) + state[501:], "altered"),
            ("other", b"GWST" + b"\x09" + state[5:], "version 9"),
            ("frame", self.read_bytes(self.path("g.gw")), "not a saved"),
        ]:
            path = self.write_bytes(name, data)
            self.refused(1, "encode", "--codec", "topk", "--state", path, g, "-o", self.path("x.gw"), says=says)
            self.assertEqual(self.read_bytes(path), data)
        self.refused(2, "encode", "--codec", "topk", "--state", "-", g, "-o", self.path("x.gw"))

    def test_a_global_codec_takes_one_tensor_as_the_network(self):
        g, out = self.write_f32("g.f32", self.gradient(0)), self.path("g.gw")
        said = self.ok_json("encode", "--codec", "topk:ratio=0.01,over=0,scope=global", g, "-o", out)
        self.assertEqual(said["nonzeros"], self.K)


if __name__ == "__main__":
    harness.main()
