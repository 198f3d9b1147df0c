"""Tests files: damaged input, outputs that cannot be written, interruption. src/base/files_test has how a file gets its
name; npy_test has tensors; wire_test and tests/wire cut frames everywhere and alter each byte; reduce_test has what is
not of one step."""

import os
import resource
import signal
import struct
import subprocess
import time

import harness


class Files(harness.Case):
    def frame(self, spec="ternary", n=3000, name="g", *more):
        source, frame = self.write_f32(name + ".f32", harness.gaussians(n, 1)), self.path(name + ".gw")
        self.ok("encode", "--codec", spec, source, "-o", frame, *more)
        return frame

    def test_what_is_no_frame(self):
        """Commands name the file, and write none. If a file is one of ours, they name its kind, and who reads it."""
        whole, out = self.read_bytes(self.frame()), self.path("out.f32")
        damaged, two = self.write_bytes("damaged.gw", whole[:-1]), self.write_bytes("two.gw", whole * 2)
        other = self.frame("ternary", 3000, "b", "--scaler", 2, "--rank", 1)
        self.ok("encode", "--codec", "topk", "--state", self.path("s"), self.path("g.f32"), "-o", self.path("t.gw"))
        rows = [
            (["inspect", damaged], "damaged.gw: "),
            (["decode", damaged, "-o", out], "damaged.gw: "),
            (["reduce", other, damaged, "-o", out], "damaged.gw: "),
            (["decode", two, "-o", out], "a file holds one frame"),
            (["reduce", self.path("g.gw"), other, "-o", out], "ranks 0 and 1 disagree in scaler 0: "),
            (["encode", self.path("g.gw"), "--codec", "none", "-o", out], "must end in .f32"),
            (["inspect", self.path("absent.gw")], "No such file"),
            (["inspect", self.folder], "it is a folder"),
            (["inspect", "/dev/null"], "must be a file"),
            (["inspect", self.path("s")], ["s is no frame", "state between calls", "gradwire encode --state"]),
        ]
        for begin, *says in [
            (b"GWPARAM1", "holds parameters of a network", "gradwire eval --from"),
            (b"GWSTATE1", "codec state, beside a checkpoint", "--resume"),
            (b"SQLite f", "an SQLite database", "gradwire server --snapshot"),
            (b"\x93NUMPY", "holds a tensor", "gradwire encode"),
        ]:
            rows.append((["inspect", self.write_bytes(f"other{len(rows)}", begin + bytes(100))], says))
        self.each_refused(1, rows)
        self.assertFalse(os.path.exists(out))

    # ---- outputs ----

    def test_outputs(self):
        """An output replaces a file whole, through a link, too. A device stays one."""
        frame, out, link = self.frame("none"), self.write_bytes("out.f32", b"old"), self.path("link.f32")
        os.symlink(out, link)
        self.ok("decode", frame, "-o", link)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(len(self.read_bytes(out)), 12000)
        self.ok("decode", frame, "-o", self.path("out.npy"))
        self.assertTrue(self.read_bytes("out.npy").endswith(self.read_bytes(out)))
        self.ok("decode", frame, "-o", "/dev/null")
        self.assertFalse(os.path.isfile("/dev/null"))
        self.write_bytes("plain", b"")
        encode = ["encode", "--codec", "none", self.path("g.f32"), "-o"]
        rows = [
            (["decode", frame, "-o", self.path("plain/out.f32")], ["plain/out.f32", "Not a directory"]),
            (["reduce", frame, "-o", self.path("absent/out.gw")], "No such file or directory"),
            ([*encode, self.folder], "it is a folder"),
            ([*encode, "/dev/full"], "No space left on device"),
        ]
        self.each_refused(1, rows)
        self.refused(2, "decode", frame, "-o", self.path("out.csv"), says=".f32 or .npy")
        with open("/dev/full", "wb") as full:
            self.assertEqual(self.start("codecs", stdout=full).wait(60), 1)
        few = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        kept = self.write_bytes("kept.gw", b"the old content")
        self.said(*encode, kept, status=1, says="File too large", preexec_fn=few)
        self.assertEqual(self.read_bytes("kept.gw"), b"the old content")

    def test_output_to_a_pipe(self):
        """A reader that comes later gets the whole frame. Nobody waits without end for one that never comes."""
        a, pipe, out = self.write_f32("a.f32", [1.0] * 50000), self.path("pipe"), self.path("a.gw")
        os.mkfifo(pipe)
        encode = ["encode", a, "--codec", "none", "-o"]
        self.refused(1, *encode, pipe, says="nobody reads this pipe")
        self.ok(*encode, out)
        writer = self.start(*encode, pipe)
        self.assertEqual(self.read_bytes(pipe), self.read_bytes(out))
        self.assertEqual(writer.wait(60), 0)

    def test_interrupted(self):
        """A signal during a long encode leaves neither the frame nor a temporary file."""
        floats = struct.pack("<1000f", *harness.gaussians(1000, 1))
        source, out = self.write_bytes("big.f32", floats * 20000), self.path("big.gw")
        for number in [signal.SIGINT, signal.SIGTERM]:
            for _ in range(20):
                process = self.start("encode", "--codec", "none", source, "-o", out, stderr=subprocess.DEVNULL)
                # Stop the tool while its temporary file is there. Only then could it leave something behind.
                while process.poll() is None and not any(n.endswith(".tmp") for n in os.listdir(self.folder)):
                    time.sleep(0.001)
                process.send_signal(number)
                if process.wait(60) == -number:
                    break
                os.remove(out)
            else:
                self.fail("the encode always ended before the signal")
            self.assertEqual(os.listdir(self.folder), ["big.f32"])


if __name__ == "__main__":
    harness.main()
