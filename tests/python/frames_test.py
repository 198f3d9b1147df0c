"""Tests the Python package without a network: frames of numpy arrays and of PyTorch tensors beside those of the tool,
and the structures of the package beside the compiler's."""
import contextlib
import ctypes
import io
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

try:
    import numpy
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

import gradwire
from gradwire import _api

try:
    import torch
except ImportError:
    torch = None

TOOL = os.path.join(os.path.dirname(os.environ["GRADWIRE_LIBRARY"]), "gradwire")
CODECS = ["none", "bf16", "f16", "ternary", "ternary:share=off,bucket=4096", "gspar:density=0.1", "uniform:density=0.1"]
CODECS += ["topk:ratio=0.05", "onebit:bucket=1024"]
# What a codec keeps between steps is of no use to one frame, and momentum= is refused.
MANY = [e for c in gradwire.codecs.codecs() for e in c["examples"] if "momentum" not in e]


def gradient(n, seed=1):
    return numpy.random.default_rng(seed).normal(size=n).astype(numpy.float32)


class Codecs(unittest.TestCase):
    def run_module(self, **options):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        return subprocess.run([sys.executable, "-m", "gradwire.codecs"], env=environment, text=True, **options)

    def test_the_listing_is_the_tools(self):
        if not os.path.exists(TOOL):
            self.skipTest("the tool was not built")
        own = self.run_module(stdout=subprocess.PIPE, check=True).stdout
        for names, listing in ([], own), (
            ["topk:ratio=0.5", "none"],
            gradwire.codecs.listing(["topk:ratio=0.5", "none"]),
        ):
            tools = subprocess.run([TOOL, "codecs", *names], stdout=subprocess.PIPE, text=True, check=True).stdout
            self.assertEqual(listing.splitlines(), tools.splitlines()[:-1])

    def test_nobody_reads_the_listing(self):
        reads, writes = os.pipe()
        os.close(reads)
        done = self.run_module(stdout=writes, stderr=subprocess.PIPE)
        os.close(writes)
        self.assertEqual(done.stderr, "")

    def test_the_command_line(self):
        with unittest.mock.patch("sys.argv", ["codecs", "topk"]), contextlib.redirect_stdout(io.StringIO()) as said:
            gradwire.codecs._main()
        self.assertEqual(said.getvalue(), gradwire.codecs.listing(["topk"]) + "\n")
        for words, says in ((["ternari"], "did you mean 'ternary'"), (["topk", "ternary:clib=3"], "'clip'")):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as wrong:
                with unittest.mock.patch("sys.argv", ["codecs", *words]):
                    gradwire.codecs._main()
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(says, wrong.getvalue())


class Frames(unittest.TestCase):
    def test_frames_are_the_tools(self):
        if not os.path.exists(TOOL):
            self.skipTest("the tool was not built")
        with tempfile.TemporaryDirectory() as folder:
            npy, out = os.path.join(folder, "g.npy"), os.path.join(folder, "g.gwf")
            for n in (1, 1023, 70001):
                g = gradient(n)
                numpy.save(npy, g)
                for codec in CODECS:
                    words = ["--codec", codec, "--seed", "5", "--rank", "2", "--step", "9"]
                    subprocess.run([TOOL, "encode", npy, "-o", out, *words], check=True, stderr=subprocess.DEVNULL)
                    with open(out, "rb") as file:
                        expected = file.read()
                    self.assertEqual(gradwire.encode(g, codec, seed=5, rank=2, step=9).tobytes(), expected, codec)
                    os.remove(out)

    def test_there_and_back(self):
        for n in (0, 1, 2, 63, 1025, 10000):
            for codec in MANY:
                shared = numpy.max([gradwire.measure(gradient(n, r), codec) for r in range(3)], axis=0)
                frames = [gradwire.encode(gradient(n, r), codec, rank=r, shared=shared) for r in range(3)]
                values = [gradwire.decode(f) for f in frames]
                average = gradwire.decode(gradwire.reduce(frames[::-1]))
                self.assertEqual(average.shape, (n,))
                if n:
                    rounding = {"bf16": 2.0**-8, "f16": 2.0**-11}.get(codec, 1e-6)
                    mean = numpy.mean(values, axis=0, dtype=numpy.float64)
                    self.assertLessEqual(abs(mean - average).max(), rounding * abs(average).max(), codec)
                about = gradwire.inspect(frames[1])
                self.assertEqual((about["n_elems"], about["rank"], about["average"]), (n, 1, False))
                self.assertEqual(about["frame_bytes"], frames[1].size)
                self.assertEqual(about["nonzeros"], numpy.count_nonzero(values[1]), codec)
        g = gradient(6).reshape(2, 3)
        numpy.testing.assert_array_equal(gradwire.decode(gradwire.encode(g.T, "none")), g.T.ravel())
        self.assertEqual(gradwire.decode(gradwire.encode(g, "none").tobytes()).size, 6)

    def test_packings_change_no_value(self):
        plain, g = {}, gradient(10000)
        for codec in MANY:
            frame = gradwire.encode(g, codec)
            about, decoded = gradwire.inspect(frame), gradwire.decode(frame)
            if about["codec"] == "ternary" and "bucket" not in codec:
                self.assertEqual(set(abs(decoded)), {0, about["first_scalers"][0]}, codec)
                numpy.testing.assert_array_equal(
                    decoded, plain.setdefault(("clip" in codec, "residual" in codec), decoded)
                )
        self.assertEqual(len(plain), 3)

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_pytorch(self):
        g = torch.from_numpy(gradient(3000).reshape(50, 60))
        for tensor in (g, g.t(), torch.nn.Parameter(g)):
            frame = gradwire.encode(tensor, "none")
            self.assertTrue(isinstance(frame, torch.Tensor) and frame.dtype == torch.uint8)
            self.assertTrue(torch.equal(gradwire.decode(frame), tensor.detach().reshape(-1)))
        self.assertIsInstance(gradwire.reduce([frame]), torch.Tensor)

    def test_what_draws_depend_on(self):
        g = gradient(5000)
        drawn = [gradwire.encode(g, "ternary", **{what: 1}) for what in ("seed", "rank", "step", "id")]
        values = {gradwire.decode(frame).tobytes() for frame in [gradwire.encode(g, "ternary"), *drawn]}
        self.assertEqual(len(values), 5)
        self.assertEqual(gradwire.inspect(gradwire.encode(g, rank=32766))["rank"], 32766)
        with self.assertRaisesRegex(gradwire.InvalidValue, "rank is 32767"):
            gradwire.encode(g, rank=32767)

    def test_names_and_residuals(self):
        g = gradient(5000)
        for name, is_whole in (("fc.weight", True), ("conv.weight", False)):
            sent = gradwire.decode(gradwire.encode(g, "ternary:skip=fc.*", name=name))
            self.assertEqual(bool((sent == g).all()), is_whole)
        twice = [gradwire.encode(g, "topk:ratio=0.05").tobytes() for _ in range(2)]
        self.assertEqual(*twice)  # each begins with an empty residual

    def test_frames_come_in_any_order(self):
        frames = [gradwire.encode(gradient(5000, r), "gspar:density=0.1", rank=r) for r in range(3)]
        averages = {gradwire.reduce(order).tobytes() for order in itertools.permutations(frames)}
        self.assertEqual(len(averages), 1)

    def test_inspect_is_the_tools(self):
        if not os.path.exists(TOOL):
            self.skipTest("the tool was not built")
        with tempfile.TemporaryDirectory() as folder:
            for codec in ("ternary", "topk:ratio=0.05"):
                frame = gradwire.encode(gradient(5000), codec, rank=3, step=7, id=2)
                path = os.path.join(folder, "w.gw")
                frame.tofile(path)
                said = subprocess.run([TOOL, "inspect", path, "--json"], stdout=subprocess.PIPE, check=True).stdout
                tools, own = json.loads(said), gradwire.inspect(frame)
                same = own.keys() & tools.keys()
                self.assertGreaterEqual(len(same), 6, (own, tools))
                self.assertEqual({k: own[k] for k in same}, {k: tools[k] for k in same})
                self.assertEqual(own["bits_per_element"], 8 * own["payload_bytes"] / own["n_elems"])

    def test_wrong_arguments(self):
        g = gradient(100)
        frame = gradwire.encode(g)
        for call, error, says in [
            (lambda: gradwire.encode([1.0, 2.0]), TypeError, "must be a numpy array"),
            (lambda: gradwire.encode(g.astype(numpy.float64)), TypeError, "must hold float32"),
            (lambda: gradwire.encode(g, "ternari"), gradwire.Error, "did you mean 'ternary'"),
            (lambda: gradwire.encode(g, rank=40000), gradwire.Error, "rank is 40000"),
            (lambda: gradwire.encode(g, name="x" * 1024), gradwire.Error, "a name of 1024 bytes"),
            (lambda: gradwire.encode(g * numpy.float32("inf")), gradwire.Error, "NaN or"),
            (lambda: gradwire.encode(g, shared=g), ValueError, "shared has shape [100], and must have [1]"),
            (lambda: gradwire.encode(g, shared=g[:1] * 0), gradwire.Error, "must be the maximum over workers"),
            (lambda: gradwire.encode(g, None), TypeError, "a codec is None, and must be a string"),
            (lambda: gradwire.encode(g, "ternary\0junk"), ValueError, "has a character of code 0"),
            (lambda: gradwire.encode(g, name="a\0b"), ValueError, "has a character of code 0"),
            (lambda: gradwire.encode(g, seed=2**64), ValueError, "seed is 18446744073709551616, and must be 0 to"),
            (lambda: gradwire.encode(g, rank=2**32), ValueError, "rank is 4294967296, and must be 0 to 4294967295"),
            (lambda: gradwire.encode(g, step=-1), ValueError, "step is -1, and must be 0 to 4294967295"),
            (lambda: gradwire.encode(g, id=1.5), TypeError, "id is 1.5, and must be a whole number"),
            (lambda: gradwire.encode(g, step=True), TypeError, "step is True, and must be a whole number"),
            (lambda: gradwire.reduce(gradwire.encode(g)), TypeError, "and must be a list of frames"),
            (lambda: gradwire.reduce(None), TypeError, "frames is None, and must be a list of frames"),
            (lambda: gradwire.decode(numpy.append(frame, frame)), gradwire.Error, f"{len(frame)} bytes follow the"),
            (lambda: gradwire.inspect(frame.tobytes() + b"x"), gradwire.Error, "1 bytes follow the frame's"),
            (lambda: gradwire.reduce([numpy.append(frame, frame)]), gradwire.Error, "bytes follow frame 0's"),
            (lambda: gradwire.decode(frame[:-1]), gradwire.Error, "cut"),
            (lambda: gradwire.decode(b""), gradwire.Error, "cut"),
            (lambda: gradwire.decode(g), TypeError, "must hold uint8"),
            (lambda: gradwire.inspect(b"x" * 100), gradwire.Error, "not a"),
            (lambda: gradwire.reduce([]), ValueError, "no frames"),
            (lambda: gradwire.reduce([frame, frame]), gradwire.Error, "same rank"),
            (lambda: gradwire.reduce([frame, b"nonsense"]), gradwire.InvalidValue, "frame 1: not a Gradwire frame"),
            (lambda: gradwire.encode(g, shared=g[:1] * 0 + numpy.float32("inf")), gradwire.Error, "scaler is inf; it"),
        ]:
            with self.assertRaises(error) as caught:
                call()
            self.assertIn(says, str(caught.exception))
        for at in range(0, frame.size, 7):  # each altered byte gives an error with a sentence, and no crash
            altered = frame.copy()
            altered[at] ^= 0x55
            with self.assertRaises(gradwire.Error):
                gradwire.decode(altered)

    def test_names(self):
        self.assertEqual(gradwire.__version__, "0.1.0")
        with self.assertRaises(AttributeError):
            gradwire.nonsense
        for name in dir(gradwire):
            if name != "torch":
                self.assertTrue(hasattr(gradwire, name), name)
        for name in ("encode", "pserver", "codecs", "torch", "Error", "InvalidValue"):
            self.assertIn(name, dir(gradwire))
        with unittest.mock.patch.dict("sys.modules", {"gradwire.torch": None}):
            gradwire.__dict__.pop("torch", None)
            self.assertFalse(hasattr(gradwire, "torch"))


class Structures(unittest.TestCase):
    """The package has copies of what the C headers say. A struct that grew would be taken all the same, because the
    library fills up what is missing with zeros."""

    C = {
        _api: {
            "ContextOptions": "gw_context_options",
            "Tensor": "gw_tensor",
            "Draw": "gw_draw",
            "FrameInfo": "gw_frame_info",
            "Link": "gw_link",
            "Message": "gw_message",
            "CodecTraits": "gw_codec_traits",
            "EncoderTraits": "gw_encoder_traits",
            "LinkOps": "gw_link_ops",
            "ExchangeOptions": "gw_exchange_options",
            "StepResult": "gw_step_result",
            "ProfileLayer": "gw_profile_layer",
            "ProfileCodec": "gw_profile_codec",
            "ProfileLink": "gw_profile_link",
            "Profile": "gw_profile",
            "ProbeOptions": "gw_probe_options",
        },
        gradwire.codecs: {"_Option": "gw_codec_option", "_Loss": "gw_codec_loss", "_Info": "gw_codec_info"},
        gradwire.pserver: {
            "_Shape": "gw_ps_shape",
            "_Value": "gw_ps_value",
            "_KeyOptions": "gw_ps_key_options",
            "_Call": "gw_ps_call",
            "_Options": "gw_ps_client_options",
        },
    }
    # "from" and "global" are keywords of Python.
    RENAMED = {("Message", "sender"): "from", ("CodecTraits", "is_global"): "global"}

    def said_by_the_compiler(self, expressions):
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder, "s.c"), os.path.join(folder, "s")
            lines = [f'printf("%lld\\n", (long long)({e}));' for e in expressions]
            head = [f"#include <{name}.h>" for name in ("gradwire/gradwire", "stddef", "stdio")]
            source.write_text("\n".join([*head, "int main(void)", "{", *lines, "return 0;", "}\n"]), encoding="utf-8")
            subprocess.run(["cc", f"-I{ROOT / 'include'}", source, "-o", program], check=True)
            said = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
        return dict(zip(expressions, map(int, said.split()), strict=True))

    def test_fields_stand_where_the_compiler_puts_them(self):
        expected = {}
        for module, names in self.C.items():
            own = [n for n, x in vars(module).items() if isinstance(x, type) and issubclass(x, ctypes.Structure)]
            self.assertEqual(sorted(own), sorted(names), module.__name__)
            for name, in_c in names.items():
                structure = getattr(module, name)
                expected[f"sizeof({in_c})"] = ctypes.sizeof(structure)
                for field, *_ in structure._fields_:
                    field_in_c = self.RENAMED.get((name, field), field)
                    expected[f"offsetof({in_c}, {field_in_c})"] = getattr(structure, field).offset
        self.assertEqual(self.said_by_the_compiler(list(expected)), expected)

    def test_numbers(self):
        expected = {
            f"GW_{name}": getattr(_api, name)
            for name in ("COMPRESS_BESIDE", "MERGE_EXACT", "MERGE_PAPER", "PLAN_MAX_LAYERS", "PLAN_MAX_CODECS")
        }
        expected.update({f"GW_{'ERR_' * (s < 0)}{s.name}": int(s) for s in gradwire.Status})
        ps = gradwire.pserver
        expected.update(
            {f"GW_PS_CALL_{name}": getattr(ps, f"_{name}") for name in ("INIT", "PUSH", "PULL", "PUT", "GET")}
        )
        expected.update({f"GW_PS_{name.upper()}": number for number, name in enumerate(ps._DTYPES, 1)})
        expected["GW_PS_NOTICE_IN_MEMORY"] = ps._IN_MEMORY
        expected["GW_PS_MOST_DIMS"] = ps.MAX_DIMS
        self.assertEqual(self.said_by_the_compiler(list(expected)), expected)


if __name__ == "__main__":
    unittest.main()
