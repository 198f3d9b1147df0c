"""Compares Gradwire with the second decoder and encoder. Both make the same floats of the same frames, and the same
frames of the same floats. Both refuse hostile frames.

    GRADWIRE_LIBRARY=.../libgradwire.so python3 run.py"""

import os
import random
import struct
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))

import decoder
import encoder
import golden
import hostile
import library
import product
from decoder import RANS, Header
from product import gradwire

CORPUS = os.path.join(HERE, "..", "..", "fuzz", "corpus")
MODE_SEAL = 1  # fuzz/entries.c
MOST_ELEMENTS = 200000


def read(path):
    with open(path, "rb") as file:
        return file.read()


def shared_floats(elements, q, workers):
    unit = library.float32(q / workers)
    return [0.0 if x is None else library.float32(x * unit) if isinstance(x, int) else x for x in elements]


class Alone(unittest.TestCase):
    """Tests without Gradwire that the decoder here reads what the encoder here writes."""

    def numbers(self, largest):
        source = random.Random(largest)
        for n in [0, 1, 2, 5, 63, 64, 65, 1000]:
            for number in range(-largest, largest + 1, max(1, largest // 2)):
                yield [number] * n
            for share in [0.01, 0.4, 0.95]:
                for least in [-largest, 0]:
                    yield [source.randint(least, largest) if source.random() < share else 0 for _ in range(n)]
        if largest <= 2:
            yield [0] * 65536 + [-largest]
            yield [largest] * 65535 + [1 - largest]

    def test_pushes(self):
        for values in self.numbers(1):
            for code in ["auto", *decoder.PUSH_READERS]:
                for entropy in ["off", "on"]:
                    frame = encoder.push_of_values(values, [0.5], code, entropy)
                    self.assertEqual(decoder.decode(frame)[2], values)

    def test_sparse(self):
        for n in [0, 1, 2, 5, 63, 64, 65, 1000]:
            for density in [0, 0.01, 0.4, 0.95, 1]:
                for own in [0, 0.3, 1]:
                    elements = golden.parts(n, density, own, seed=n)
                    floats = [{None: 0.0, decoder.PLUS: 0.5, decoder.MINUS: -0.5}.get(x, x) for x in elements]
                    frame = encoder.push_of_parts(elements, 0.5)
                    self.assertEqual(library.floats(decoder.decode(frame)[3]), floats)
                    sums = [7 * x if isinstance(x, int) else x for x in elements]
                    frame = encoder.sums_of_parts(sums, 0.5, 7)
                    self.assertEqual(library.floats(decoder.decode(frame)[3]), shared_floats(sums, 0.5, 7))
                    frame = encoder.push_of_sparse([None if x is None else value for x, value in zip(elements, floats)])
                    self.assertEqual(library.floats(decoder.decode(frame)[3]), floats)

    def test_averages(self):
        for n_workers in [1, 2, 3, 64, 300]:
            for sums in self.numbers(n_workers):
                for code in ["auto", *decoder.AVERAGE_READERS]:
                    for entropy in ["off", "on"]:
                        frame = encoder.average_of_sums(sums, [0.5], n_workers, code, entropy)
                        self.assertEqual(decoder.decode(frame)[2], sums)


class Golden(unittest.TestCase):
    def test_kept_frames_decode(self):
        manifest = golden.manifest()
        for name, about in manifest.items():
            with self.subTest(name):
                frame = read(golden.path_of(name))
                floats = decoder.decode(frame)[3]
                self.assertEqual(len(floats), 4 * about["elements"])
                self.assertEqual(golden.digest(floats), about["sha256 of the floats"])
                self.assertEqual(golden.digest(product.decode(frame)), about["sha256 of the floats"])
        self.assertEqual({name + ".gw" for name in manifest} | {"manifest.json"}, set(os.listdir(golden.FOLDER)))

    def test_both_encode_alike(self):
        kept = set()
        for case in golden.all_cases():
            with self.subTest(case.name):
                by_gradwire = case.by_gradwire()
                if by_gradwire is not None and by_gradwire != case.frame:
                    self.fail(differences(by_gradwire, case.frame))
                self.assertEqual(product.decode(case.frame), decoder.decode(case.frame)[3])
                if case.kept:
                    kept.add(case.name)
                    self.assertEqual(case.frame, read(golden.path_of(case.name)))
        self.assertEqual(kept, set(golden.manifest()))

    def test_drawn_elements(self):
        """gspar and uniform draw the elements that they send. The test knows which bytes must follow from that."""
        tensors = [
            [1.0],
            [0.0] * 300,
            [-2.0] * 300,
            golden.bell(3000),
            golden.all_magnitudes(5000),
            golden.spiky(300000),
        ]
        for spec in ["gspar", "gspar:density=0.5", "gspar:share=on", "uniform"]:
            for values in tensors:
                frame = product.encode(spec, values)
                header, scalers, payload, _ = decoder.parse(frame)
                elements = [
                    library.floats(x)[0] if isinstance(x, bytes) else x for x in decoder.read_elements(header, payload)
                ]
                again = encoder.sparse(elements, header.codec, header.code)
                self.assertEqual(frame, encoder.seal(header, scalers, again))
                self.assertEqual(product.decode(frame), decoder.decode(frame)[3])

    def test_scalers(self):
        for bucket in [0, 1024]:
            for clip in [0, 2.5]:
                tensors = [golden.bell(3000, seed=seed) for seed in range(3)] + [golden.all_magnitudes(3000)]
                for values in tensors:
                    own = encoder.measure(values, bucket, clip)[0]
                    self.assertEqual(product.measure(f"ternary:bucket={bucket},clip={clip}", values), list(own))


def differences(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return (
        f"Gradwire's frame has {len(a)} bytes, the one here {len(b)}; they differ from byte {at} on: "
        f"{a[at:at + 16].hex()} and {b[at:at + 16].hex()}; headers {a[:48].hex()} and {b[:48].hex()}"
    )


class Strangers(unittest.TestCase):
    def test_reduce_refuses(self):
        """Frames that cannot be added to the first one are refused."""
        sparse = encoder.push_of_sparse(hostile.ELEMENTS)
        gspar = encoder.push_of_parts(hostile.PARTS, 0.5)
        shared = encoder.push_of_parts(hostile.PARTS, 0.5, False)
        dense = encoder.seal(Header(decoder.NONE, rank=1, count=hostile.N), [], bytes(4 * hostile.N))
        average = encoder.average_of_sparse([[1.0] * hostile.N] * 2, {})
        onebit = encoder.push_of_onebit([1.0, -2.0, 3.0], [0.0] * 3)[0]
        for first, second in [
            (sparse, sparse),
            (sparse, encoder.push_of_parts(hostile.PARTS, 0.5, rank=1)),
            (gspar, encoder.push_of_sparse(hostile.ELEMENTS, rank=1)),
            (sparse, dense),
            (gspar, dense),
            (gspar, encoder.push_of_parts(hostile.PARTS, 0.5, False, rank=1)),
            (shared, encoder.push_of_parts(hostile.PARTS, 0.25, False, rank=1)),
            (shared, encoder.sums_of_parts(hostile.PARTS, 0.5, 2)),
            (sparse, average),
            (sparse, encoder.push_of_sparse(hostile.ELEMENTS + [None], rank=1)),
            (sparse, encoder.push_of_sparse(hostile.ELEMENTS, rank=1, step=1)),
            (sparse, encoder.push_of_sparse(hostile.ELEMENTS, rank=1, begin=1024)),
            (gspar, encoder.push_of_parts(hostile.PARTS, 0.5, rank=1, tensor=1)),
            (onebit, onebit),
            (onebit, encoder.push_of_onebit([1.0, -2.0, 3.0], [0.0] * 3, 2, rank=1)[0]),
            (onebit, encoder.seal(Header(decoder.NONE, rank=1, count=3), [], bytes(12))),
        ]:
            self.assertIsNotNone(product.reduce([first]))
            self.assertIsNone(product.reduce([first, second]))


class Hostile(unittest.TestCase):
    def test_both_refuse(self):
        names = set()
        for name, fresh, says in hostile.all_cases():
            with self.subTest(name):
                self.assertNotIn(name, names)
                names.add(name)
                frame = read(hostile.path_of(name))
                self.assertEqual(frame, fresh)
                with self.assertRaises(decoder.Refused) as refusal:
                    decoder.decode(frame)
                self.assertIn(says, str(refusal.exception))
                self.assertIsNone(product.decode(frame))
                self.assertRaises(gradwire.Error, gradwire.inspect, frame)
        self.assertEqual({name + ".gw" for name in names}, set(os.listdir(hostile.FOLDER)))

    def test_every_cut_and_every_altered_byte(self):
        for frame in [
            encoder.push_of_values([1, 0, -1] * 20, [1.5], RANS),
            encoder.push_of_parts(hostile.PARTS, 0.5),
            encoder.push_of_onebit([1.0, -2.0] * 9, [0.0] * 18)[0],
        ]:
            for at in range(len(frame)):
                for bad in [frame[:at], frame[:at] + bytes([frame[at] ^ 1 << at % 8]) + frame[at + 1 :]]:
                    self.assertRaises(decoder.Refused, decoder.decode, bad)
                    self.assertIsNone(product.decode(bad))

    def test_fuzz_corpus(self):
        """Gradwire and the decoder here say the same of all inputs that fuzzing found worth keeping."""
        names = sorted(os.listdir(CORPUS)) if os.path.isdir(CORPUS) else []
        if not names:
            self.skipTest("fuzz/corpus is empty")
        accepted = refused = 0
        for name in names:
            data = read(os.path.join(CORPUS, name))
            frame = data[1:]
            if data[:1] and data[0] & MODE_SEAL:
                frame = sealed(frame)
            count = struct.unpack_from("<Q", frame, 32)[0] if len(frame) >= 56 else 0
            if name.startswith("reduce") or count > MOST_ELEMENTS:
                continue
            with self.subTest(name):
                try:
                    frame = frame[: decoder.parse(frame)[3]]
                    floats = decoder.decode(frame)[3]
                    accepted += 1
                except decoder.Refused:
                    floats = None
                    refused += 1
                self.assertEqual(product.decode(frame), floats)
        self.assertTrue(accepted and refused, f"{accepted} accepted, {refused} refused")


def sealed(frame):
    """Repairs a frame as fuzz/entries.c does."""
    if len(frame) < 56:
        return frame
    data = bytearray(frame)
    data[:3] = b"GW\3"
    bucket, count = struct.unpack_from("<I", data, 20)[0], struct.unpack_from("<Q", data, 32)[0]
    head = 56 + 4 * Header(data[3], bucket=bucket, count=count).n_scalers()
    if head <= len(data):
        struct.pack_into("<Q", data, 40, len(data) - head)
    struct.pack_into("<Q", data, 48, decoder.checksum(bytes(data), bytes(data[56:])))
    return bytes(data)


if __name__ == "__main__":
    try:
        library.check()
    except library.Missing as missing:
        print(f"skipped: {missing}")
        sys.exit(77)
    unittest.main()
