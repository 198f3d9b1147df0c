"""encode --state: the residual and the threshold go from call to call, exactly, and a file that is not one is refused."""

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
        self.ok("encode", "--codec", f"topk:ratio={self.K / self.N},refresh=1", "--state", self.path("state"), "--step", step,
                *more, g, "-o", out)
        self.ok("decode", out, "-o", self.path("out.f32"))
        return list(struct.unpack(f"<{self.N}f", self.read_bytes(self.path("out.f32"))))

    def test_what_is_not_sent_waits(self):
        residual = [0.0] * self.N
        for step in range(6):
            a = [float32(x + r) for x, r in zip(self.gradient(step), residual)]
            largest = sorted(range(self.N), key=lambda i: -abs(a[i]))[:self.K]
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
        self.refused(1, "encode", "--codec", "topk", "--state", self.path("state"), self.write_f32("short.f32", [1.0]), "-o",
                     self.path("short.gw"), says="1000 elements")
        self.assertEqual(self.read_bytes(self.path("state")), before)

    def test_what_is_no_state_is_refused(self):
        self.encode(0)
        state = self.read_bytes(self.path("state"))
        g = self.write_f32("g.f32", self.gradient(1))
        for name, data, says in [("empty", b"", "not a saved codec state"), ("cut", state[:-1], "altered"),
                                 ("altered", state[:500] + bytes([state[500] ^ 1]) + state[501:], "altered"),
                                 ("other", b"GWST" + b"\x09" + state[5:], "version 9"), ("frame", self.read_bytes(self.path("g.gw")), "not a saved")]:
            path = self.write_bytes(name, data)
            self.refused(1, "encode", "--codec", "topk", "--state", path, g, "-o", self.path("x.gw"), says=says)
            self.assertEqual(self.read_bytes(path), data)
        self.refused(2, "encode", "--codec", "topk", "--state", "-", g, "-o", self.path("x.gw"))

    def test_a_global_codec_takes_one_tensor_as_the_network(self):
        g, out = self.write_f32("g.f32", self.gradient(0)), self.path("g.gw")
        said = self.ok_json("encode", "--codec", "topk:ratio=0.01,scope=global", g, "-o", out)
        self.assertEqual(said["nonzeros"], self.K)


if __name__ == "__main__":
    harness.main()
