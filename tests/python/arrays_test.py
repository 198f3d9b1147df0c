"""Tests what the package takes for numbers (gradwire/_arrays.py). What loses nothing gives the same bytes as a plain
array. What would lose something is refused, in sentences of our own."""
import array
import copy
import ctypes
import decimal
import fractions
import mmap
import pathlib
import pickle
import sys
import unittest
import unittest.mock
import warnings

try:
    import numpy
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python"))

import gradwire
from gradwire import _api, _arrays, codes

try:
    import torch
except ImportError:
    torch = None

PLAIN = numpy.arange(-6, 6, dtype=numpy.float32).reshape(3, 4)


class Units(numpy.ndarray):
    """Stands for subclasses that hold more than numbers, as those of astropy and pint do."""


class Refusing(unittest.TestCase):
    def refuses(self, thing, *words, call=gradwire.encode, error=(TypeError, ValueError)):
        with self.assertRaises(error) as caught:
            call(thing)
        for word in words:
            self.assertIn(word, str(caught.exception))


class Arrays(Refusing):
    def test_what_loses_nothing_gives_the_same_frame(self):
        raw = b"\0" + PLAIN.tobytes()
        frame = gradwire.encode(PLAIN, "none").tobytes()
        read_only = PLAIN.copy()
        read_only.flags.writeable = False
        wide = numpy.zeros((3, 8), numpy.float32)
        wide[:, ::2] = PLAIN
        for same in (
            numpy.asfortranarray(PLAIN),
            PLAIN.T.copy().T,
            wide[:, ::2],
            PLAIN[::-1].copy()[::-1],
            PLAIN.astype(">f4"),
            numpy.frombuffer(raw, numpy.float32, offset=1).reshape(3, 4),
            numpy.matrix(PLAIN),
            read_only,
            memoryview(PLAIN),
            array.array("f", PLAIN.ravel().tolist()),
        ):
            self.assertEqual(gradwire.encode(same, "none").tobytes(), frame)
            found = _arrays.numbers(same, "it")
            self.assertTrue(type(found) is numpy.ndarray and found.flags.aligned and found.flags.c_contiguous)
        scalar = gradwire.encode(numpy.float32(2.5), "none")
        self.assertEqual(gradwire.decode(scalar).tolist(), [2.5])
        self.assertEqual(scalar.tobytes(), gradwire.encode(numpy.array(2.5, numpy.float32), "none").tobytes())
        many = numpy.broadcast_to(numpy.float32(3), (2, 5))
        self.assertEqual(gradwire.decode(gradwire.encode(many, "none")).tolist(), [3.0] * 10)
        n_bytes = len(frame)
        mapped = mmap.mmap(-1, n_bytes)
        mapped.write(frame)
        for same in (
            mapped,
            bytearray(frame),
            memoryview(frame),
            numpy.frombuffer(frame, numpy.uint8)[::-1].copy()[::-1],
        ):
            self.assertEqual(gradwire.inspect(same)["frame_bytes"], n_bytes)

    def test_what_holds_more_than_numbers(self):
        fields = numpy.zeros(3, [("a", "f4"), ("b", "i4")])
        for thing, words in (
            (numpy.ma.masked_array(PLAIN, PLAIN < 0), ["numpy.ma", "MaskedArray", "more than numbers"]),
            (PLAIN.view(Units), ["Units", "more than numbers"]),
            (fields, ["the tensor holds", "'a'"]),
            (fields.view(numpy.recarray), ["recarray"]),
            (PLAIN.astype(numpy.complex64), ["complex64"]),
            (numpy.zeros(3, "M8[s]"), ["datetime64[s]"]),
            (numpy.zeros(3, object), ["Python objects"]),
            (numpy.array(["1"]), ["<U1"]),
            (PLAIN.astype(numpy.float64), ["holds float64, and must hold float32"]),
            (PLAIN.astype(">f8"), ["holds float64"]),
            (memoryview(PLAIN.astype(numpy.float64)), ["holds float64"]),
            (array.array("d", [1.0]), ["holds float64"]),
            ([1.0, 2.0], ["must be a numpy array"]),
            (None, ["of type NoneType"]),
            ("1.0", ["of type str"]),
            ((ctypes.c_float * 3)(), ["c_float_Array_3"]),
        ):
            self.refuses(thing, *words)
        frame = gradwire.encode(PLAIN)
        for wrong in (frame.view(numpy.int8), memoryview(frame[:8]).cast("I"), numpy.ma.array(frame)):
            for call in (gradwire.decode, gradwire.inspect, lambda frame: gradwire.reduce([frame])):
                self.refuses(wrong, call=call)

    def test_lists(self):
        for same in ([[1, 2], [3, 4]], ((1, 2), (3, 4)), [numpy.int64([1, 2]), [3, numpy.int8(4)]]):
            self.assertEqual(_arrays.numbers(same, "it").tolist(), [[1, 2], [3, 4]])
        self.assertEqual(_arrays.numbers([2**53, 0.5], "it").tolist(), [2.0**53, 0.5])
        exact = [[2**63 - 1], [numpy.uint64(1)], [numpy.array(True)]]
        self.assertEqual(_arrays.numbers(exact, "it").tolist(), [[2**63 - 1], [1], [1]])
        endless = []
        endless.append(endless)
        for thing, words in (
            ([PLAIN, numpy.ma.masked_array(PLAIN, PLAIN < 0)], ["element 1 of it", "MaskedArray"]),
            ([1.0, numpy.ma.masked], ["element 1 of it", "Masked"]),
            ([[1.0], [2.0, 3.0]], ["the elements of it differ in shape"]),
            ([1.0, [2.0]], ["differ in shape"]),
            ([2**53 + 1, 0.5], ["element 0 of it is 9007199254740993", "float64"]),
            ([numpy.uint64(2**64 - 1), numpy.int64(-1)], ["element 0 of it is 18446744073709551615"]),
            ([[1.0, 2.0], [2**60 + 1, 1]], ["element 1 of it holds 1152921504606846977", "float64"]),
            ([numpy.array([1.0]), numpy.array([2**53 + 1])], ["element 1 of it holds 9007199254740993"]),
            ([True, numpy.uint64(2**53 + 1), -1.0], ["element 1 of it is 9007199254740993"]),
            ([numpy.array([2**64 - 1], "u8"), numpy.array([-1])], ["element 0 of it holds 18446744073709551615"]),
            (endless, ["lists in lists"]),
            ([10**400, 0.5], ["more than 64 bits"]),
            ([2**70], ["Python objects"]),
            ([decimal.Decimal(1)], ["element 0 of it", "decimal.Decimal"]),
            ([fractions.Fraction(1, 3)], ["fractions.Fraction"]),
            ([1, "2"], ["element 1 of it", "of type str"]),
            ([1, None], ["element 1 of it", "NoneType"]),
            ([1j], ["complex128"]),
            ({1.0, 2.0}, ["of type set"]),
            (iter([1.0]), ["list_iterator"]),
        ):
            self.refuses(thing, *words, call=lambda thing: _arrays.numbers(thing, "it"))

    def test_shapes(self):
        for given, shape in (((2, 3), [2, 3]), ((), []), ((), [1]), ((1,), []), ((1, 1), [1]), ((0,), [0])):
            _arrays.check_shape(numpy.zeros(given), shape, "it")
        for given, shape in (((3, 2), [2, 3]), ((6,), [2, 3]), ((1, 3), [3]), ((0, 2), [2, 0]), ((1,), [0])):
            self.refuses(numpy.zeros(given), "it has shape", call=lambda a, s=shape: _arrays.check_shape(a, s, "it"))
        shared = gradwire.measure(numpy.ones(9000, numpy.float32), "ternary:bucket=1024")
        self.assertEqual(shared.shape, (9,))
        encode = lambda shared: gradwire.encode(numpy.ones(9000, numpy.float32), "ternary:bucket=1024", shared=shared)
        encode(shared)
        self.refuses(shared.reshape(3, 3), "shared has shape [3, 3], and must have [9]", call=encode)

    def test_codes(self):
        packed = codes.pack(numpy.int16([[-1, 0], [1, 1]]).T)
        self.assertEqual(codes.unpack(packed, 4).tolist(), [-1, 1, 0, 1])
        self.assertEqual(codes.unpack(packed.tobytes(), 4).tolist(), [-1, 1, 0, 1])
        self.assertEqual(codes.pack([]).size, 0)
        self.refuses(numpy.ma.masked_array([1, 0], [True, False]), "MaskedArray", call=codes.pack)
        for wrong in ([2], [300], [0.5]):
            self.refuses(wrong, call=codes.pack)
        for wrong in (numpy.uint8([0xFF]), [1.0]):
            self.refuses(wrong, call=lambda packed: codes.unpack(packed, 4))
        for n, words in ((-1, "n is -1"), (2**62, "must be 0 to 4"), (1.5, "whole number"), (5, "0 to 4")):
            self.refuses(n, words, call=lambda n: codes.unpack(packed, n))


@unittest.skipUnless(torch, "PyTorch is not installed")
class Tensors(Refusing):
    def test_what_loses_nothing_gives_the_same_frame(self):
        frame = gradwire.encode(PLAIN, "none").tobytes()
        plain = torch.from_numpy(PLAIN)
        spread = torch.zeros(3, 8)
        spread[:, ::2] = plain
        negative = torch.conj(torch.complex(torch.zeros(3, 4), -plain)).imag
        self.assertTrue(negative.is_neg())
        for same in (plain.t().contiguous().t(), spread[:, ::2], torch.nn.Parameter(plain), negative, plain + 0):
            self.assertEqual(gradwire.encode(same, "none").numpy().tobytes(), frame)
        computed = torch.nn.Parameter(plain) * 1
        self.assertEqual(gradwire.encode(computed, "none").numpy().tobytes(), frame)
        self.assertEqual(gradwire.decode(gradwire.encode(torch.tensor(2.5), "none")).tolist(), [2.5])
        exact = _arrays.numbers(plain.bfloat16(), "it")
        self.assertEqual((exact.dtype, exact.tolist()), (numpy.float32, PLAIN.tolist()))

    def test_what_holds_more_than_numbers_or_none(self):
        plain = torch.from_numpy(PLAIN.copy())
        freed = [torch.zeros(12), torch.zeros(12, dtype=torch.bfloat16)]
        freed.append(freed[0][6:])
        for tensor in freed[:2]:
            tensor.storage().resize_(0)

        class Labelled(torch.Tensor):
            pass

        warnings.simplefilter("ignore", UserWarning)  # names and sparse_csr are experimental, says PyTorch
        for thing, words in (
            (plain.bfloat16(), ["the tensor holds bfloat16, and must hold float32"]),
            (plain.half(), ["holds float16"]),
            *((view, ["no values", "freed"]) for view in freed[::2]),
            (plain.to_sparse(), ["sparse_coo", "to_dense()"]),
            (plain.to_sparse_csr(), ["sparse_csr", "to_dense()"]),
            (plain.to("meta"), ["meta device", "no values"]),
            (torch.quantize_per_tensor(plain, 1.0, 0, torch.qint8), ["quantized", "dequantize()"]),
            (torch.complex(plain, plain), ["complex64"]),
            (torch.complex(plain, plain).conj(), ["complex64"]),
            (plain.as_subclass(Labelled), ["Labelled", "more than numbers", "plain torch.Tensor"]),
            (torch.nn.UninitializedParameter(), ["UninitializedParameter"]),
        ):
            self.refuses(thing, *words)
        if hasattr(plain, "refine_names"):  # PyTorch 2.14 has it no more
            self.refuses(plain.refine_names("rows", "columns"), "names of dimensions", "rename(None)")
        if torch.backends.mkldnn.is_available():
            self.refuses(plain.to_mkldnn(), "mkldnn", "to_dense()")
        if torch.cuda.is_available():
            self.refuses(plain.cuda(), "cuda:0", "bring it to the CPU")
        self.refuses([plain, plain.to_sparse()], "element 1 of it", call=lambda t: _arrays.numbers(t, "it"))
        self.refuses(freed[1], "it has no values", call=lambda t: _arrays.numbers(t, "it"))
        self.refuses(torch.zeros(2, dtype=torch.bfloat16), "bfloat16", call=lambda t: _arrays.numbers(t, "it", "uint8"))

    def test_pytorchs_own_words_do_not_come_through(self):
        with unittest.mock.patch.object(torch.Tensor, "numpy", side_effect=TypeError("Got unsupported ScalarType")):
            self.refuses(torch.zeros(3), "the tensor is a tensor of float32 that numpy cannot read")


class Owners(unittest.TestCase):
    def test_nobody_copies_what_owns_a_handle(self):
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "a Codec of Gradwire cannot be copied"):
                copied(_api.Codec("ternary"))

    def test_errors_travel(self):
        for wrong, kind in (("ternari", ValueError), ("ternary:clib=3", ValueError)):
            with self.assertRaises(kind) as caught:
                gradwire.encode(PLAIN, wrong)
            self.assertIsInstance(caught.exception, gradwire.InvalidValue)
            for error in (pickle.loads(pickle.dumps(caught.exception)), copy.copy(caught.exception)):
                self.assertEqual(
                    (type(error), error.status, str(error)),
                    (gradwire.InvalidValue, gradwire.Status.SPEC, str(caught.exception)),
                )
        self.assertIn("did you mean 'clip'", str(caught.exception))
        with self.assertRaises(ValueError):
            gradwire.decode(b"nonsense")
        with self.assertRaises(ValueError):
            gradwire.encode(PLAIN * numpy.float32("nan"))


if __name__ == "__main__":
    unittest.main()
