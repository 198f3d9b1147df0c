"""Tests files: damaged input, .npy, outputs that cannot be written, interruption. src/base/files_test has how a file
gets its name; tests/wire cuts frames everywhere and alters each byte."""

import os
import resource
import signal
import struct
import subprocess
import time

import harness


def npy(values, descr="<f4", order=False, shape=None, version=1, header=None, align=64):
    shape = (len(values),) if shape is None else shape
    text = header or f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"
    lead = 10 if version == 1 else 12
    text += " " * (-(lead + len(text) + 1) % align) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    data = struct.pack(f"{descr[0]}{len(values)}f", *values)
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + data


class Files(harness.Case):
    def frame(self, spec="ternary", n=3000, name="g", *more):
        source, frame = self.write_f32(name + ".f32", harness.gaussians(n, 1)), self.path(name + ".gw")
        self.ok("encode", "--codec", spec, source, "-o", frame, *more)
        return frame

    # ---- files that are no frames, or not of one step ----

    def test_what_is_no_frame(self):
        """Commands name the file, and write none. If a file is one of ours, they name its kind, and who reads it."""
        whole, out = self.read_bytes(self.frame()), self.path("out.f32")
        for damaged in [b"", whole[:56], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b"hello, world" * 20]:
            path = self.write_bytes("damaged.gw", damaged)
            for command in [["inspect"], ["decode", "-o", out], ["reduce", "-o", out]]:
                self.refused(1, *command, path, says="damaged.gw: ")
        newer = whole[:2] + bytes([whole[2] + 1]) + whole[3:]
        self.refused(1, "inspect", self.write_bytes("new.gw", newer), says="version")
        self.refused(1, "decode", self.write_bytes("two.gw", whole * 2), "-o", out, says="a file holds one frame")
        self.ok("encode", "--codec", "topk", "--state", self.path("s"), self.path("g.f32"), "-o", self.path("t.gw"))
        rows = [
            ([self.path("absent.gw")], "No such file"),
            ([self.folder], "it is a folder"),
            (["/dev/null"], "must be a file"),
            ([self.path("s")], ["state between calls", "gradwire encode --state"]),
        ]
        self.each_refused(1, "inspect", rows)
        for begin, says in [
            (b"GWPARAM1", ["holds parameters of a network", "gradwire eval --from"]),
            (b"GWSTATE1", ["codec state, beside a checkpoint", "--resume"]),
            (b"SQLite f", ["an SQLite database", "gradwire server --snapshot"]),
            (b"\x93NUMPY", ["holds a tensor", "gradwire encode"]),
        ]:
            other = self.write_bytes("other", begin + bytes(100))
            self.assertNotIn("version", self.refused(1, "inspect", other, says=["other is no frame", *says]))
        self.assertFalse(os.path.exists(out))

    def test_mixed_frames(self):
        """reduce_test in the ternary codec's folder has all that does not fit."""
        base, out = self.frame("ternary", 3000, "a", "--scaler", 1), self.path("r.gw")
        other = self.frame("ternary", 3000, "b", "--scaler", 2, "--rank", 1)
        self.refused(1, "reduce", base, other, "-o", out, says="ranks 0 and 1 disagree in scaler 0: 1 and 2")
        self.ok("reduce", self.frame("none"), "-o", self.path("average.gw"))
        self.refused(1, "reduce", self.path("average.gw"), "-o", out, says="average")
        self.assertFalse(os.path.exists(out))

    # ---- tensors ----

    def values_of(self, data):
        """What the tool reads from a file of these bytes. Behind the head of a frame of `none` stand the floats."""
        self.ok("encode", "--codec", "none", self.write_bytes("in.npy", data), "-o", self.path("x.gw"))
        return [value for (value,) in struct.iter_unpack("<f", self.read_bytes("x.gw")[56:])]

    def test_npy_as_all_numpys_wrote_it(self):
        values = [float(v) for v in range(-12, 12)]
        for at, shape in enumerate([(24,), (4, 6), (2, 3, 4), (24, 1)]):
            self.assertEqual(self.values_of(npy(values, shape=shape, version=1 + at % 3)), values)
            one = values[: 1 if at == 0 else 24]
            self.assertEqual(self.values_of(npy(one, descr=">f4", shape=shape if at else (), version=1 + at % 3)), one)
        self.ok("decode", self.path("x.gw"), "-o", self.path("out.npy"))
        self.assertEqual(self.read_bytes("out.npy"), npy(values))
        for header in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (24L,), }",  # Python 2
            "{'shape': (24,), 'fortran_order': False, 'descr': '=f4'}",
            '{"descr":"<f4","fortran_order":False,"shape":(24,)}',
            "{'descr': '<f4',\r\n 'fortran_order': False,\n\t'shape': ( 4 , 6 ) , }",
        ]:
            for align in [1, 16, 64]:  # NumPy before 1.14 padded to 16
                self.assertEqual(self.values_of(npy(values, header=header, align=align)), values, header)
        # In Fortran's order the first index runs fastest.
        self.assertEqual(self.values_of(npy(values, shape=(24,), order=True)), values)
        c_order = [float(100 * i + 10 * j + k) for i in range(2) for j in range(3) for k in range(4)]
        fortran = [float(100 * i + 10 * j + k) for k in range(4) for j in range(3) for i in range(2)]
        for descr in ["<f4", ">f4"]:
            self.assertEqual(self.values_of(npy(fortran, descr=descr, shape=(2, 3, 4), order=True)), c_order)
        self.assertEqual(self.values_of(npy([0, 1, 2, 3, 4, 5], shape=(2, 3), order=True)), [0, 2, 4, 1, 3, 5])
        for order in (False, True):
            self.assertEqual(self.values_of(npy([], shape=(3, 0, 2), order=order)), [])

    def test_tensors_that_are_refused(self):
        values, encode = [1.0, 2.0], ["encode", "--codec", "none", "-o", self.path("x.gw")]
        self.refused(1, *encode, self.write_bytes("odd.f32", b"12345"), says=["5 bytes", "4 bytes each"])
        self.refused(1, *encode, self.write_bytes("g.txt", b"1234"), says=".f32")
        whole, odd = npy(values), lambda text: npy(values, header=text)
        many = "{'descr': [('a', '<f4'), ('b', '<f4', (2,))], 'fortran_order': False, 'shape': (1,)}"
        for says, data in [
            ("'<f8'", npy(values, descr="<f8")),
            ("'|O'", odd("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}")),
            ("'[...]'", odd(many)),
            ("npz archive, and numpy.save writes .npy", b"PK\x03\x04" + bytes(20)),
            ("magic", b"NUMPY" + whole[5:]),
            ("version 4", whole[:6] + b"\x04" + whole[7:]),
            ("cut short", whole[:8]),
            ("header claims", whole[:20]),
            ("2 float32 elements, but 4 bytes", whole[:-4]),
            ("elements, but 8 bytes", npy(values, shape="(4611686018427387904,)")),
            ("not one that NumPy writes", odd("{'descr': '<f4', 'shape': (2,)}")),
            ("not one that NumPy writes", npy(values, shape="(99999999999, 99999999999,)")),
            ("not one that NumPy writes", odd("{" + "'" * 40)),
        ]:
            self.refused(1, *encode, self.write_bytes("bad.npy", data), says=[says, "bad.npy"])

    # ---- outputs ----

    def test_outputs(self):
        """An output replaces a file whole, through a link, too. A device stays one."""
        frame, out, link = self.frame("none"), self.write_bytes("out.f32", b"old"), self.path("link.f32")
        os.symlink(out, link)
        self.ok("decode", frame, "-o", link)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(len(self.read_bytes(out)), 12000)
        self.ok("decode", frame, "-o", "/dev/null")
        self.assertFalse(os.path.isfile("/dev/null"))
        self.write_bytes("plain", b"")
        os.mkdir(self.path("folder.f32"))
        encode = ["encode", "--codec", "none", self.path("g.f32"), "-o"]
        rows = [
            (["decode", frame, "-o", self.path("plain/out.f32")], ["plain/out.f32", "Not a directory"]),
            (["decode", frame, "-o", self.path("absent/out.f32")], "No such file or directory"),
            (["decode", frame, "-o", self.path("folder.f32")], "it is a folder"),
            (["reduce", frame, "-o", self.path("plain/out.gw")], "Not a directory"),
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
