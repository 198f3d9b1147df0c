"""Tests files: damaged input, .npy, outputs that cannot be written, interruption."""

import os
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
    return (
        b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + struct.pack(f"{descr[0]}{len(values)}f", *values)
    )


class Files(harness.Case):
    def frame(self, spec="ternary", n=3000, name="g", *more):
        source = self.write_f32(name + ".f32", harness.gaussians(n, 1))
        self.ok("encode", "--codec", spec, source, "-o", self.path(name + ".gw"), *more)
        return self.path(name + ".gw")

    # ---- damaged frames ----

    def test_damaged_frame(self):
        """tests/wire cuts frames everywhere and alters each byte. Here commands name the file, and write none."""
        whole = self.read_bytes(self.frame())
        for damaged in [b"", whole[:56], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])]:
            path, out = self.write_bytes("damaged.gw", damaged), self.path("out.f32")
            for command in [["inspect"], ["decode", "-o", out], ["reduce", "-o", out]]:
                self.refused(1, *command, path, says="damaged.gw: ")
            self.assertFalse(os.path.exists(out))

    def test_newer_version(self):
        altered = bytearray(self.read_bytes(self.frame()))
        altered[2] += 1
        self.refused(1, "inspect", self.write_bytes("new.gw", altered), says="version")

    def test_more_than_a_frame(self):
        path = self.write_bytes("two.gw", self.read_bytes(self.frame()) * 2)
        self.refused(1, "decode", path, "-o", self.path("x.f32"), says="a file holds one frame")

    def test_not_a_frame(self):
        self.refused(1, "inspect", self.write_bytes("text.gw", b"hello, world" * 20), says="text.gw: ")
        self.refused(1, "inspect", self.path("absent.gw"), says="No such file")
        self.refused(1, "inspect", self.folder, says="it is a folder")
        self.refused(1, "inspect", "/dev/null", says="must be a file")

    def test_other_files_of_ours(self):
        """If a file is one of ours but no frame, the message names its kind, and the command that reads it."""
        for begin, says in [
            (b"GWPARAM1", ["holds parameters of a network", "gradwire eval --from"]),
            (b"GWSTATE1", ["codec state, beside a checkpoint", "--resume"]),
            (b"SQLite f", ["an SQLite database", "gradwire server --snapshot"]),
            (b"\x93NUMPY", ["holds a tensor", "gradwire encode"]),
        ]:
            other = self.write_bytes("other", begin + bytes(100))
            self.assertNotIn("version", self.refused(1, "inspect", other, says=["other is no frame", *says]))
        source = self.write_f32("g.f32", harness.gaussians(100, 1))
        self.ok("encode", "--codec", "topk", "--state", self.path("s"), source, "-o", self.path("g.gw"))
        self.refused(1, "inspect", self.path("s"), says=["state between calls", "gradwire encode --state"])

    def test_mixed_frames(self):
        base = self.frame("ternary", 3000, "a", "--scaler", 1)
        out = self.path("r.gw")
        for name, spec, n, more in [
            ("codec", "none", 3000, []),
            ("size", "ternary", 2999, ["--scaler", 1]),
            ("step", "ternary", 3000, ["--scaler", 1, "--step", 1]),
            ("tensor", "ternary", 3000, ["--scaler", 1, "--tensor", 1]),
            ("scaler", "ternary", 3000, ["--scaler", 2]),
            ("bucket", "ternary:bucket=4096", 3000, []),
            ("share", "ternary:share=off", 3000, []),
        ]:
            other = self.frame(spec, n, name, "--rank", 1, *more)
            self.refused(1, "reduce", base, other, "-o", out, says="rank")
        self.refused(1, "reduce", base, base, "-o", out, says="rank")
        average = self.path("average.gw")
        self.ok("reduce", self.frame("none", 3000, "float"), "-o", average)
        self.refused(1, "reduce", average, "-o", out, says="average")
        self.assertFalse(os.path.exists(out))

    # ---- tensors ----

    def test_f32_of_odd_length(self):
        path = self.write_bytes("odd.f32", b"12345")
        self.refused(1, "encode", "--codec", "none", path, "-o", self.path("x.gw"), says=["5 bytes", "4 bytes each"])
        path = self.write_bytes("g.txt", b"1234")
        self.refused(1, "encode", "--codec", "none", path, "-o", self.path("x.gw"), says=".f32")

    def test_npy_both_ways(self):
        values = [float(v) for v in range(-12, 12)]
        for version, shape in [(1, (24,)), (2, (4, 6)), (3, (2, 3, 4)), (1, (24, 1))]:
            source = self.write_bytes("in.npy", npy(values, shape=shape, version=version))
            self.ok("encode", "--codec", "none", source, "-o", self.path("x.gw"))
            self.ok("decode", self.path("x.gw"), "-o", self.path("out.npy"))
            self.ok("decode", self.path("x.gw"), "-o", self.path("out.f32"))
            self.assertEqual(self.read_f32(self.path("out.f32")), values)
            self.assertEqual(self.read_bytes(self.path("out.npy")), npy(values))
        for shape in [(), (3, 0)]:
            values = [5.0] * (shape == ())
            self.assertEqual(self.values_of(npy(values, shape=shape)), values)

    def values_of(self, data):
        """What the tool reads from a file of these bytes. Behind the head of a frame of `none` stand the floats."""
        self.ok("encode", "--codec", "none", self.write_bytes("in.npy", data), "-o", self.path("x.gw"))
        return [value for (value,) in struct.iter_unpack("<f", self.read_bytes(self.path("x.gw"))[56:])]

    def test_npy_as_all_numpys_wrote_it(self):
        values = [float(v) for v in range(24)]
        for header in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (24L,), }",  # Python 2
            "{'shape': (24,), 'fortran_order': False, 'descr': '=f4'}",
            '{"descr":"<f4","fortran_order":False,"shape":(24,)}',
            "{'descr': '<f4',\r\n 'fortran_order': False,\n\t'shape': ( 4 , 6 ) , }",
        ]:
            for align in [1, 16, 64]:  # NumPy before 1.14 padded to 16
                self.assertEqual(self.values_of(npy(values, header=header, align=align)), values, header)
        for at, shape in enumerate([(24,), (4, 6), (2, 3, 4), (24, 1), (1, 24), (2, 1, 12), ()]):
            one = values[: 1 if shape == () else 24]
            self.assertEqual(self.values_of(npy(one, descr=">f4", shape=shape, version=1 + at % 3)), one)
        # In Fortran's order the first index runs fastest.
        self.assertEqual(self.values_of(npy(values, shape=(24,), order=True)), values)
        self.assertEqual(self.values_of(npy([0, 1, 2, 3, 4, 5], shape=(2, 3), order=True)), [0, 2, 4, 1, 3, 5])
        c_order = [float(100 * i + 10 * j + k) for i in range(2) for j in range(3) for k in range(4)]
        fortran = [float(100 * i + 10 * j + k) for k in range(4) for j in range(3) for i in range(2)]
        for descr in ["<f4", ">f4"]:
            self.assertEqual(self.values_of(npy(fortran, descr=descr, shape=(2, 3, 4), order=True)), c_order)
        self.assertEqual(self.values_of(npy([], shape=(3, 0, 2), order=True)), [])

    def test_npy_refusals(self):
        values = [1.0, 2.0]
        whole = npy(values)
        for says, data in [
            ("'<f8'", npy(values, descr="<f8")),
            ("'<f2'", npy(values, descr="<f2")),
            ("'|O'", npy(values, header="{'descr': '|O', 'fortran_order': False, 'shape': (2,)}")),
            (
                "'[...]'",
                npy(
                    values,
                    header="{'descr': [('a', '<f4'), ('b', '<f4', (2,))], 'fortran_order': False, 'shape': (1,)}",
                ),
            ),
            ("npz archive, and numpy.save writes .npy", b"PK\x03\x04" + bytes(20)),
            ("magic", b"NUMPY" + whole[5:]),
            ("version 4", whole[:6] + b"\x04" + whole[7:]),
            ("cut short", whole[:8]),
            ("header claims", whole[:20]),
            ("2 float32 elements, but 4 bytes", whole[:-4]),
            ("2 float32 elements, but 12 bytes", whole + b"abcd"),
            ("not one that NumPy writes", npy(values, header="{'descr': '<f4', 'shape': (2,)}")),
            ("not one that NumPy writes", npy(values, shape="(99999999999, 99999999999,)")),
            ("elements, but 8 bytes", npy(values, shape="(4611686018427387904,)")),
            ("not one that NumPy writes", npy(values, header="{'descr': '<f4'")),
            ("not one that NumPy writes", npy(values, header="{" + "'" * 40)),
            ("not one that NumPy writes", npy(values, shape="(-2,)")),
        ]:
            path = self.write_bytes("bad.npy", data)
            self.refused(1, "encode", "--codec", "none", path, "-o", self.path("x.gw"), says=[says, "bad.npy"])

    # ---- outputs ----

    def test_unwritable_outputs(self):
        frame = self.frame()
        self.write_bytes("plain", b"")
        self.refused(1, "decode", frame, "-o", self.path("plain/out.f32"), says=["plain/out.f32", "Not a directory"])
        self.refused(1, "decode", frame, "-o", self.path("absent/out.f32"), says="No such file or directory")
        os.mkdir(self.path("folder.f32"))
        self.refused(1, "decode", frame, "-o", self.path("folder.f32"), says="it is a folder")
        self.refused(1, "encode", "--codec", "none", self.path("g.f32"), "-o", self.folder, says="it is a folder")
        self.refused(1, "reduce", frame, "-o", self.path("plain/out.gw"), says="Not a directory")
        self.refused(2, "decode", frame, "-o", self.path("out.csv"), says=".f32 or .npy")

    def test_disk_full(self):
        frame = self.frame("none")
        self.refused(1, "decode", frame, "-o", "/dev/full", says="No space left on device")
        self.refused(1, "encode", "--codec", "none", self.path("g.f32"), "-o", "/dev/full", says="No space left")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([harness.TOOL, "codecs"], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 1)

    def test_full_file_system(self):
        small = self.path("small")
        os.mkdir(small)
        mounted = (
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], stderr=subprocess.DEVNULL, check=False
            ).returncode
            == 0
        )
        if not mounted:
            self.skipTest("no right to mount a small file system")
        try:
            self.write_bytes("small/kept.gw", b"the old content")
            source = self.write_f32("big.f32", harness.gaussians(50000, 1))
            self.refused(1, "encode", "--codec", "none", source, "-o", self.path("small/kept.gw"), says="No space left")
            self.assertEqual(os.listdir(small), ["kept.gw"])
            self.assertEqual(self.read_bytes(self.path("small/kept.gw")), b"the old content")
        finally:
            subprocess.run(["umount", small], check=True)

    def test_replaces_whole_or_not(self):
        frame = self.frame()
        out = self.write_bytes("out.f32", b"old")
        os.symlink(out, self.path("link.f32"))
        self.ok("decode", frame, "-o", self.path("link.f32"))
        self.assertTrue(os.path.islink(self.path("link.f32")))
        self.assertEqual(len(self.read_bytes(out)), 12000)
        self.ok("decode", frame, "-o", "/dev/null")
        self.assertFalse(os.path.isfile("/dev/null"))

    def test_interrupted(self):
        """A signal during a long encode leaves neither the frame nor a temporary file."""
        source = self.path("big.f32")
        with open(source, "wb") as file:
            file.write(struct.pack("<1000f", *harness.gaussians(1000, 1)) * 40000)
        for number in [signal.SIGINT, signal.SIGTERM]:
            seen = False
            for _ in range(20):
                process = subprocess.Popen(
                    [harness.TOOL, "encode", "--codec", "none", source, "-o", self.path("big.gw")],
                    stderr=subprocess.DEVNULL,
                )
                # Stop the tool while its temporary file is there. Only then could it leave something behind.
                while process.poll() is None and not any(n.endswith(".tmp") for n in os.listdir(self.folder)):
                    time.sleep(0.001)
                process.send_signal(number)
                process.wait()
                if process.returncode == -number:
                    seen = True
                    break
                os.remove(self.path("big.gw"))
            self.assertTrue(seen, "the encode always ended before the signal")
            self.assertEqual(sorted(os.listdir(self.folder)), ["big.f32"])


if __name__ == "__main__":
    harness.main()
