"""Frames that the encoder here and Gradwire must both make. Some of them are kept in golden/.

    python3 golden.py --write      writes golden/*.gw and golden/manifest.json anew

The kept frames show when the format changes, even if both encoders change in the same way. A later decoder must still
read them."""

import bisect
import functools
import hashlib
import json
import math
import os
import random
import sys

import numpy

import decoder
import encoder
import library
import product
from decoder import BF16, F16, FAST, GSPAR, MINUS, NONE, PACKED, PLUS, RANS, SPARSE, SPARSE_CHUNK, SPARSE_CODES, TERNARY
from decoder import Header
from encoder import String
from library import float32

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
CODES = ["2bit", "base3", "mask", "packed", "rans"]
FLOATS = {NONE: "none", BF16: "bf16", F16: "f16"}


# ---- inputs ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def bell(n, scale=1e-3, seed=1):
    """Nearly Gaussian numbers: sums of random(), which gives the same in every Python."""
    source = random.Random(seed)
    return tuple(float32(scale * (sum(source.random() for _ in range(6)) - 3)) for _ in range(n))


@functools.lru_cache(maxsize=None)
def spiky(n, seed=2):
    """A few large elements among small ones."""
    source = random.Random(seed)
    return tuple(float32((source.random() - 0.5) * (1 if source.random() < 0.002 else 1e-3)) for _ in range(n))


@functools.lru_cache(maxsize=None)
def all_magnitudes(n, seed=3):
    """Numbers from below the least denormal to 1e37. So blocks are summed in both ways, and some products become 0."""
    source = random.Random(seed)
    return tuple(float32((source.random() - 0.5) * 10 ** (81 * source.random() - 44)) for _ in range(n))


@functools.lru_cache(maxsize=None)
def around(exponents, n=1024, seed=4):
    """A block of n elements below each of some powers of two, with tails that are clipped."""
    source = random.Random(seed)
    return tuple(float32((2 * source.random() - 1) ** 3 * 2.0**e) for e in exponents for _ in range(n))


def rounding_cases():
    """float32 words around the limits of bf16 and half. They are at, just below and just above numbers that round to
    even, underflow or overflow."""
    limits = "0 1 7FFFFF 800000 7F7FFFFF 7F7F7FFF 7F7F8000 477FEFFF 477FF000 47800000 33000000 "
    limits += "33000001 32FFFFFF 33800000 33C00000 387FC000 387FE000 387FFFFF 38800000"
    words = [int(word, 16) for word in limits.split()]
    for base in [0x3F800000, 0x3F810000, 0x38000000, 0x38002000, 0x477FC000]:
        words += [base + low for low in (0, 0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001)]
    source = random.Random(5)
    words += [source.randrange(0x7F800000) for _ in range(300)]
    words += [word | 1 << 31 for word in words]
    return library.floats(b"".join(word.to_bytes(4, "little") for word in words))


def ties(seed, n=2048):
    """Elements whose threshold is close to the number drawn for them, so that the second draw decides."""
    draws, source, values = encoder.Draws(seed), random.Random(6), [1.0]
    e = numpy.arange(1, n, dtype=numpy.uint64)
    for number in (draws.first(e) << 16 | draws.second(e)).tolist():
        step = 1 << max(0, number.bit_length() - 24)
        values.append(float32(max(0, number + source.randint(-3, 3) * step) / 2.0**32))
    return values


# ---- frames ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def drawn(values, clip, bucket, shared, where):
    own, clips = encoder.measure(values, bucket, clip)
    scalers = list(shared or own)
    return encoder.draw(values, scalers, clips, bucket, encoder.Draws(*where)), scalers


def kept(case, condition=True):
    case.kept = condition
    return case


class Push:
    """The tensor of one worker, encoded here or by Gradwire."""

    kept = False

    def __init__(
        self,
        name,
        values,
        codec=TERNARY,
        code="auto",
        entropy="auto",
        clip=2.5,
        bucket=0,
        private=False,
        shared=None,
        seed=0,
        rank=0,
        step=0,
        tensor=0,
    ):
        self.name, self.values, self.codec, self.code, self.entropy = name, tuple(values), codec, code, entropy
        self.clip, self.bucket, self.private = clip, bucket, private
        self.shared, self.where = shared and tuple(shared), (seed, rank, step, tensor)

    @functools.cached_property
    def frame(self):
        _, rank, step, tensor = self.where
        if self.codec != TERNARY:
            header = Header(self.codec, rank=rank, tensor=tensor, step=step, count=len(self.values))
            return encoder.seal(header, [], encoder.pack_floats(self.codec, self.values))
        ternary, scalers = drawn(self.values, self.clip, self.bucket, self.shared, self.where)
        code = self.code if self.code == "auto" else CODES.index(self.code)
        return encoder.push_of_values(
            ternary, scalers, code, self.entropy, self.private, rank=rank, step=step, tensor=tensor, bucket=self.bucket
        )

    def by_gradwire(self):
        spec = FLOATS.get(self.codec) or (
            f"ternary:code={self.code},entropy={self.entropy},clip={self.clip},"
            f"bucket={self.bucket},share={'off' if self.private else 'on'}"
        )
        seed, rank, step, tensor = self.where
        return product.encode(spec, self.values, rank, step, tensor, seed, self.shared)


class Largest:
    """The first step of a worker that sends its k largest elements. Of equal ones it sends the first. Their residual is
    still +0. It is added, so -0 becomes +0."""

    kept = False

    def __init__(self, name, values, ratio=0.1, code=0, rank=0, step=0, tensor=0):
        self.name, self.values, self.ratio, self.code = name, tuple(values), ratio, code
        self.where = rank, step, tensor

    @functools.cached_property
    def frame(self):
        n, (rank, step, tensor) = len(self.values), self.where
        k = min(n, max(1, math.ceil(self.ratio * n)))
        sent = set(sorted(range(n), key=[-abs(x) for x in self.values].__getitem__)[:k])
        elements = [x + 0.0 if i in sent else None for i, x in enumerate(self.values)]
        return encoder.push_of_sparse(elements, self.code, rank=rank, step=step, tensor=tensor)

    def by_gradwire(self):
        spec = f"topk:ratio={self.ratio},scope=layer,over=0,value={['f32', 'bf16', 'f16'][self.code]}"
        return product.encode(spec, self.values, *self.where)


class MoreThanLargest:
    """The last step of a worker that sends 1 + over times its k largest elements, and takes that off the residual."""

    kept = True

    def __init__(self, name, *steps, ratio, over, rank=0, tensor=0):
        self.name, self.steps, self.ratio, self.over, self.where = name, steps, ratio, over, (rank, tensor)

    @functools.cached_property
    def frame(self):
        residual, (rank, tensor) = [0.0] * len(self.steps[0]), self.where
        for step, values in enumerate(self.steps):
            a = [float32(x + e) for x, e in zip(values, residual)]
            k = math.ceil(self.ratio * len(a))
            selected = set(sorted(range(len(a)), key=lambda i: -abs(a[i]))[:k])
            sent = [float32(x * (1 + self.over)) if i in selected else None for i, x in enumerate(a)]
            residual = [x if y is None else float32(x - y) for x, y in zip(a, sent)]
        return encoder.push_of_sparse(sent, rank=rank, step=step, tensor=tensor)

    def by_gradwire(self):
        return product.encode_steps(
            f"topk:ratio={self.ratio},refresh=1,scope=layer,over={self.over}", self.steps, *self.where
        )


class Rounded:
    """The last step of a worker that rounds to ternary values, with a residual and perhaps with momentum."""

    kept = True

    def __init__(self, name, *steps, level=3, bucket=0, momentum=0.0, rank=0, tensor=0):
        self.name, self.steps, self.where, self.choices = name, steps, (rank, tensor), (level, bucket, momentum)

    @functools.cached_property
    def frame(self):
        level, bucket, momentum = self.choices
        residual, velocity = [0.0] * len(self.steps[0]), [0.0] * len(self.steps[0])
        for step, values in enumerate(self.steps):
            velocity = [float32(float32(float32(momentum) * u) + g) for u, g in zip(velocity, values)]
            fields = dict(zip(("rank", "tensor"), self.where), step=step)
            frame, residual = encoder.push_of_rounded(velocity, residual, level, bucket, **fields)
        return frame

    def by_gradwire(self):
        level, bucket, momentum = self.choices
        spec = f"ternary:residual=on,level={level},bucket={bucket},momentum={momentum}"
        return product.encode_steps(spec, self.steps, *self.where)


class Signs:
    """The last step of a worker. Each step goes on from the residual that the one before left."""

    kept = False

    def __init__(self, name, *steps, bucket=0, rank=0, tensor=0):
        self.name, self.steps, self.bucket, self.where = name, steps, bucket, (rank, tensor)

    @functools.cached_property
    def frame(self):
        residual, (rank, tensor) = [0.0] * len(self.steps[0]), self.where
        for step, values in enumerate(self.steps):
            frame, residual = encoder.push_of_onebit(values, residual, self.bucket, rank=rank, step=step, tensor=tensor)
        return frame

    def by_gradwire(self):
        return product.encode_steps(f"onebit:bucket={self.bucket}", self.steps, *self.where)


class Average:
    """The average of pushes and averages."""

    kept = False

    def __init__(self, name, pushes, pull="auto", entropy="auto"):
        self.name, self.pushes, self.pull, self.entropy = name, pushes, pull, entropy

    @functools.cached_property
    def frame(self):
        return encoder.reduce(self.pushes, self.pull if self.pull == "auto" else CODES.index(self.pull), self.entropy)

    def by_gradwire(self):
        return product.reduce(self.pushes, f"ternary:pull={self.pull},entropy={self.entropy}")


class Written:
    """A frame that Gradwire does not make from whole tensors, such as a slice, or an average of very many workers."""

    kept = False

    def __init__(self, name, frame):
        self.name, self.frame = name, frame

    def by_gradwire(self):
        return None


# ---- which ----------------------------------------------------------------------------------------------------------


def head_sizes():
    return sorted({1, 2, 3, *(2**j + d for j in range(2, 17) for d in (-1, 0, 1))} - {65537})


def pushes():
    for codec, name in FLOATS.items():
        yield kept(Push(f"{name}-rounding", rounding_cases(), codec, rank=7, step=8, tensor=9))
        yield Push(f"{name}-empty", [], codec)
    for code in ["auto"] + CODES[:3]:
        for n in [0, 1, 2, 5, 33, 100]:
            for entropy in ["auto", "on"]:
                yield kept(
                    Push(f"push-{code}-{entropy}-{n}", bell(n), code=code, entropy=entropy, seed=n),
                    entropy == "auto" and n in (0, 33),
                )
        for entropy in ["off", "auto", "on"]:
            yield kept(
                Push(f"push-{code}-{entropy}-70000", bell(70000), code=code, entropy=entropy, seed=5, rank=3),
                entropy == "off" or code == "auto",
            )
        yield kept(Push(f"push-{code}-on-1025", bell(1025), code=code, entropy="on", seed=6), code == "auto")
    yield kept(Push("push-auto-mixed", bell(70000)[:4464] + (0.0,) * 61072 + bell(6000), seed=5))
    yield Push("push-spiky", spiky(70000), clip=0)
    yield kept(Push("push-auto-zeros", [0.0] * 70000))
    yield Push("push-auto-equal", [-2.0] * 600)
    yield Push("push-auto-minus-zero", [-0.0, 0.0, -1.0, 1.0] * 25)
    yield Push("push-alone", [0.0] * 70 + [-5.0] + [0.0] * 70)
    yield from coded_pushes()
    # 2^32 / s must be rounded up, and element 1 draws a number that is only just below its threshold.
    yield Push("push-certain", [0.8474337458610535] * 2, clip=0, seed=3854854)
    yield kept(Push("push-ties", ties(21), clip=0, seed=21))
    yield kept(Push("push-far", bell(300), seed=2**64 - 1, rank=32766, step=2**32 - 1, tensor=2**32 - 1))
    yield kept(Push("push-shared", bell(3000), shared=[0.01], seed=9))
    yield Push("push-clip-1", bell(3000), clip=1, seed=10)
    for bucket in [1, 100, 1024, 1500, 5000]:
        values = bell(3000)[: 7 if bucket == 1 else 3000]
        yield kept(Push(f"push-bucket-{bucket}", values, bucket=bucket, seed=11), bucket == 1500)
        yield kept(Push(f"push-private-{bucket}", values, bucket=bucket, private=True, seed=12), bucket == 1024)
    yield Push("push-bucket-long", bell(70000) + bell(3000), bucket=66560, seed=13, entropy="off")
    yield Push("push-bucket-shared", bell(3000), bucket=1024, shared=[0.004, 0.1, 0.003], seed=14)
    # Blocks on both sides of the limits beyond which sums are float64. There are enough to see the last bit of some
    # sigma change.
    for name, exponents in [("small", (-50, -49)), ("large", (60, 61))]:
        yield Push(f"push-thresholds-{name}", around(24 * exponents), bucket=1024, seed=17)
    for clip in [0, 2.5]:
        yield kept(Push(f"push-magnitudes-{clip}", all_magnitudes(5000), clip=clip, seed=15))
        yield kept(Push(f"push-magnitudes-bucket-{clip}", all_magnitudes(5000), clip=clip, bucket=64, seed=16))
        for exponent in [-145, -127, -97, -90, -89, 100, 126]:
            yield kept(Push(f"push-scale-{exponent}-{clip}", around((exponent,), 200), clip=clip, seed=18), clip != 0)


def ternary(n, density, seed, signs=(-1, 1)):
    source = random.Random(seed)
    return [source.choice(signs) if source.random() < density else 0 for _ in range(n)]


SKEWED = (-1, *[1] * 9)


def exactly(name, values, keep=False, **choices):
    """A push of these ternary values. Without a clip, elements of the largest magnitude are drawn for certain."""
    return kept(Push(f"push-{name}", values, clip=0, **choices), keep)


def in_order(n, nonzeros, negative=0):
    return [-1] * negative + [1] * (nonzeros - negative) + [0] * (n - nonzeros)


def first_where(condition, numbers):
    return next(x for x in numbers if condition(x))


def lanes_of(values):
    """Returns how many lanes an encoder takes for a chunk."""
    return decoder.LANES[encoder.rans(values)[0] & 3]


def coded_pushes():
    """Pushes for the entropy coder, with many shares of nonzeros and of negative ones, in 0, 1, 8 and 32 lanes."""
    for n, shares in [
        *((n, [0, 0.001, 0.02, 0.3, 0.5, 0.97, 1]) for n in (7, 300, 5000)),
        (66001, [0.0002, 0.02, 0.3]),
    ]:
        for share in shares:
            for name, signs in [("fair", (-1, 1)), ("skewed", SKEWED), ("positive", (1,))]:
                values = ternary(n, share, n, signs)
                for entropy in ["auto", "on"] if n < 66001 else ["auto"]:
                    keep = entropy == "on" and name != "positive" and n > 7
                    yield exactly(f"share-{share}-{name}-{n}-{entropy}", values, keep, entropy=entropy)
    # From a power of two on, a count is written with more bits.
    for n in head_sizes():
        for name, nonzeros, negative in [("0", 0, 0), ("1", 1, 0), ("some", n // 25 + n // 5, n // 25), ("all", n, 1)]:
            values = in_order(n, nonzeros, negative)
            yield exactly(f"head-{n}-{name}", values, name == "1" and n in (2, 3, 4, 65536), entropy="on")
    # The following are on both sides of a limit. From there on, an encoder takes more lanes; or it sends signs as a
    # string; or it does not try rans, because the values are too even; or it does not take rans, because it is too
    # long.
    for lanes, density, signs in [(8, 0.2, (1,)), (8, 0.3, (-1, 1)), (8, 0.9, SKEWED), (32, 0.05, (-1, 1))]:
        values = ternary(40000, density, 8, signs)
        n = bisect.bisect_left(range(40000), lanes, key=lambda n: lanes_of(values[:n]))
        assert lanes_of(values[: n - 1]) < lanes <= lanes_of(values[:n])
        for at in [n - 1, n]:
            yield exactly(f"lanes-{lanes}-{density}-{signs.count(1)}-{at}", values[:at], True, entropy="on")
    for k in [1, 63, 64, 65, 100, 127, 128, 1000, 5000, 65536]:
        fewest = first_where(lambda c: not encoder.are_skewed("1" * c + "0" * (k - c)), range(k + 1))
        for negative in sorted({fewest - 1, fewest, k - fewest, k - fewest + 1} & set(range(k + 1))):
            yield exactly(f"signs-{negative}-of-{k}", in_order(k, k, negative), k == 100, entropy="on")
    # On both sides of the limit signs are coded, or mixed.
    for k in [896, 897, 2000, 5000, 30000]:
        positions = String(encoder.nonzeros_and_signs(in_order(65536, k, 0))[0])
        how = [encoder.choose_signs("1" * c + "0" * (k - c), positions) for c in range(k // 2 + 1)]
        assert (decoder.MIXED_SIGNS in how) == (k > 897)
        for c in [c for c in range(k // 2) if how[c] != how[c + 1]]:
            for negative in [c, c + 1, k - c]:
                yield exactly(f"mixed-{negative}-of-{k}", in_order(65536, k, negative), k == 2000, entropy="on")
    for n in [64, 1024, 1600]:
        for k in [n * 15 // 32 + d for d in (-1, 0, 1)] + [n * 17 // 32 + d for d in (-1, 0, 1)]:
            yield exactly(f"even-{k}-of-{n}", in_order(n, k, k // 2))
    for n in range(1, 60):
        yield exactly(f"bound-{n}", ternary(n, 0.5, n), entropy="on")
        yield exactly(f"smaller-{n}", ternary(n, 0.2, n, SKEWED))


def frames_of_workers(n_workers, n, density, signs=(-1, 1), **fields):
    """Pushes of different codes, not in rank order. Neither may matter."""
    fields = {"step": 3, "tensor": 9, **fields}
    n_scalers = Header(TERNARY, count=n, bucket=fields.get("bucket", 0)).n_scalers()
    scalers = [abs(s) for s in bell(n_scalers + 1000, seed=6)[1000:]]
    codes = list(decoder.PUSH_READERS)
    return [
        encoder.push_of_values(ternary(n, density, rank, signs), scalers, codes[rank % 4], "off", rank=rank, **fields)
        for rank in reversed(range(n_workers))
    ]


def averages():
    for n_workers in [1, 2, 3, 8, 64]:
        for name, n, density in [("", 300, 0.2), ("-sparse", 1000, 0.02 / n_workers), ("-full", 1000, 1)]:
            frames = frames_of_workers(n_workers, n, density)
            for pull in ["auto", "packed"]:
                for entropy in ["off", "auto", "on"]:
                    title = f"average-{n_workers}{name}-{pull}-{entropy}"
                    yield kept(
                        Average(title, frames, pull, entropy), pull == entropy == "auto" or name + pull == "auto"
                    )
        for n in [0, 1, 64, 65]:
            yield kept(Average(f"average-{n_workers}-auto-{n}", frames_of_workers(n_workers, n, 0.5)), n_workers == 3)
        # Sums around another number than 0, with signs that are a string, and with levels that no sum or all sums
        # reach.
        yield kept(Average(f"average-{n_workers}-skewed", frames_of_workers(n_workers, 2000, 0.3, SKEWED)))
        yield kept(
            Average(f"average-{n_workers}-positive", frames_of_workers(n_workers, 2000, 0.9, (1,))), n_workers == 8
        )
        # Signs are mixed, because the skew is small and the chunk is large.
        for density in [0.2, 0.02] if n_workers in (2, 8) else []:
            frames = frames_of_workers(n_workers, 20000, density, (-1,) * 4 + (1,) * 6)
            yield kept(Average(f"average-{n_workers}-mixed-{density}", frames), (n_workers, density) == (8, 0.2))
        equal = [exactly("", in_order(309, 302, 2), rank=rank).frame for rank in range(n_workers)]
        yield Average(f"average-{n_workers}-equal", equal)
    for entropy in ["off", "auto", "on"]:
        yield Average(f"average-auto-{entropy}-3000", frames_of_workers(4, 3000, 0.1), "auto", entropy)
        for pull in ["auto", "packed"]:
            yield kept(
                Average(f"average-{pull}-{entropy}-70000", wide_frames(), pull, entropy), pull + entropy == "autoauto"
            )
    yield kept(Average("average-auto-mixed", frames_of_sums([0] * 65536 + [2, -1, 1, -2], 2)))
    yield Average("average-127-auto-64", frames_of_sums(range(-127, 128, 4), 127))
    for name, codec_frames in [("", frames_of_workers(3, 3000, 0.1)), ("none-", frames_of_floats(NONE, 2))]:
        fast = [encoder.with_flags(codec_frames[0], FAST), *codec_frames[1:]]
        for entropy in ["off", "auto", "on"] if name == "" else ["auto"]:
            yield kept(Average(f"average-fast-{name}{entropy}", fast, "auto", entropy), entropy == "auto")
    # Averages are added like pushes.
    for n_workers in [2, 65, 1024, 1025]:
        frames = [
            average_of(uneven(3000, n_workers - 1), n_workers - 1),
            encoder.push_of_values([0, 1, -1] * 1000, [0.75]),
        ]
        yield kept(Average(f"average-{n_workers}-of-average", frames), n_workers in (2, 1024))
    for name, part in [("at", 155), ("past", 156)]:
        frames = [average_of(of_much_room(part), 32), encoder.push_of_values([0] * 65536, [0.75])]
        yield Average(f"average-{name}-the-room", frames)
    yield kept(Average("average-bucket", frames_of_workers(3, 3000, 0.3, bucket=1024)))
    yield Average("average-slice", frames_of_workers(3, 3000, 0.3, bucket=1024, begin=2**33))
    for n_workers in [1, 3]:
        private = [
            Push("", bell(2000, seed=rank), bucket=1024, private=True, seed=19, rank=rank).frame
            for rank in range(20, 20 + n_workers)
        ]
        yield kept(Average(f"average-{n_workers}-private", private), n_workers == 3)
        for codec, name in FLOATS.items():
            yield kept(Average(f"average-{n_workers}-{name}", frames_of_floats(codec, n_workers)), n_workers == 3)


def frames_of_floats(codec, n_workers):
    return [
        Push("", (*bell(500, seed=rank), -0.0, 3e38, -3.4e38, 6e4, 1e-45), codec, rank=rank).frame
        for rank in range(n_workers)
    ]


@functools.lru_cache(maxsize=None)
def wide_frames():
    """Frames of two chunks."""
    both = [ternary(65536, 0.01, rank) + ternary(4464, 0.3, rank + 2, SKEWED) for rank in range(2)]
    return [encoder.push_of_values(values, [0.25], rank=rank) for rank, values in enumerate(both)]


def frames_of_sums(sums, n_workers):
    parts = [[(s > rank) - (-s > rank) for s in sums] for rank in range(n_workers)]
    return [encoder.push_of_values(values, [0.5], rank=rank) for rank, values in enumerate(parts)]


def average_of(sums, n_workers):
    return encoder.average_of_sums(sums, [0.75], n_workers, PACKED)


def uneven(n, n_workers, seed=9):
    """Sums that workers may have if their values are independent, and the largest possible sums."""
    source, most = random.Random(seed), min(n_workers, 3 * math.isqrt(n_workers))
    return [-n_workers, n_workers] + [source.randint(-most, most) * (source.random() < 0.7) for _ in range(n - 2)]


def of_much_room(part):
    """Sums whose strings fill an encoder's room if `part` is 155. The string of sums other than 0 takes 1024 words.
    Those of magnitudes 1 to 17 take 1023, 1022, ... words, and that of 18 takes `part`. Signs are raw."""
    at_least = [64 * (1024 - j) for j in range(18)] + [64 * part, 64]
    magnitudes = [sum(i < count for count in at_least[1:]) for i in range(65536)]
    return [magnitude * (-1) ** i for i, magnitude in enumerate(magnitudes)]


def written():
    for n_workers in [1, 10, 127, 128, 1000, 1024, 9000, 32767]:
        source = random.Random(n_workers)
        sums = [source.choice((-n_workers, n_workers, source.randint(-n_workers, n_workers))) for _ in range(203)]
        sparse = [s if source.random() < 0.2 else 0 for s in sums]
        for code, numbers in [(PACKED, sums), (RANS, sums), (RANS, sparse)]:
            if code == PACKED or n_workers <= decoder.LEVELS_MOST_WORKERS:
                name = f"average-of-{n_workers}-{CODES[code]}{'-sparse' if numbers is sparse else ''}"
                yield kept(Written(name, encoder.average_of_sums(numbers, [0.75], n_workers, code)))
    # Elements of a slice get the same draws as in the whole tensor.
    values, begin, end = bell(5000, seed=7), 2048, 4500
    own, clips = encoder.measure(values, 1024)
    draws = encoder.Draws(seed=20, rank=1, step=2, tensor=3)
    part = encoder.draw(values[begin:end], own[2:5], clips[2:5], 1024, draws, begin)
    frame = encoder.push_of_values(part, own[2:5], bucket=1024, rank=1, step=2, tensor=3, begin=begin)
    yield kept(Written("push-slice", frame))
    whole = encoder.draw(values, own, clips, 1024, encoder.Draws(seed=20, rank=1, step=2, tensor=3))
    assert part == whole[begin:end]
    two_bit = encoder.two_bit([1, 0, -1, -1, 0])
    yield from odd_pushes()
    yield from odd_averages()
    yield kept(Written("odd-minus-zero", encoder.seal(Header(TERNARY, count=5), [-0.0], two_bit)))


def odd_pushes():
    """Pushes that no encoder makes, but that decoders take: no chunk, with code mask or rans; another number of lanes;
    a larger K; signs sent in the other way; raw bits in lanes from which no string is read."""
    for code in (decoder.MASK, RANS):
        yield kept(Written(f"odd-empty-{CODES[code]}", encoder.seal(Header(TERNARY, code), [1.5], b"")))
    for name, n, share, signs in [("few", 9, 0.3, (-1, 1)), ("fair", 300, 0.3, (-1, 1)), ("full", 300, 1, SKEWED)]:
        values = ternary(n, share, 5, signs)
        nonzeros, negative = encoder.nonzeros_and_signs(values)
        for lanes in decoder.LANES:
            for most_ones in [None, 8]:
                for kind in ["raw", "string"]:
                    parts = [encoder.AS_RAW]
                    if kind == "string":
                        parts = [encoder.AS_STRING, String(negative, most_ones=most_ones)]
                    parts, raw = [String(nonzeros, most_ones=most_ones), *parts], negative if kind == "raw" else ""
                    if lanes == 0 and any(isinstance(part, String) and part.bytes for part in parts):
                        continue
                    payload = encoder.coded(parts, raw, lanes=lanes)
                    title = f"odd-{name}-{kind}-{lanes}-lanes" + ("-of-8-ones" if most_ones else "")
                    frame = encoder.seal(Header(TERNARY, RANS, count=n), [1.5], payload)
                    yield kept(Written(title, frame), lanes < 32)


def odd_averages():
    """Averages around any center. Decoders take them all."""
    sums = [3, 0, -3, -1, 0, 2, 1, 0, 0, 0, 0, 1, -2, 2, 3]
    for n_workers in [3, 4]:
        for center in range(2 * n_workers + 1):
            parts, raw = encoder.parts_of_sums(sums, n_workers, center)
            header = Header(TERNARY, RANS, decoder.AVERAGE, n_workers, count=len(sums))
            frame = encoder.seal(header, [1.5], encoder.coded(parts, raw))
            yield kept(Written(f"odd-center-{center}-of-{n_workers}", frame), n_workers == 3)


# ---- sparse ---------------------------------------------------------------------------------------------------------


def ternary_steps():
    steps = [spiky(3000, seed=t) for t in range(4)]
    yield Rounded("ternary-residual", *steps, rank=3, tensor=2)
    yield Rounded("ternary-residual-max", *steps, level="max", bucket=700)
    yield Rounded("ternary-residual-momentum", *(bell(3000, seed=t) for t in range(6)), level=1.5, momentum=0.9)
    yield Rounded("ternary-residual-magnitudes", *(all_magnitudes(5000, seed=t) for t in range(3)), bucket=1024)


def sparse_pushes():
    for code, form in SPARSE_CODES.items():
        name = f"sparse-{FLOATS[form]}"
        for n in [0, 1, 2, 5, 33, 100, 3000]:
            yield kept(Largest(f"{name}-{n}", bell(n), code=code, rank=5, step=6, tensor=7), n in (0, 1, 33))
        yield kept(Largest(f"{name}-rounding", rounding_cases(), 1, code))
        yield Largest(f"{name}-magnitudes", all_magnitudes(5000), 0.5, code)
        yield kept(Largest(f"{name}-two-chunks", spiky(SPARSE_CHUNK + 1), 0.001, code))
    # Sizes around the chunks of ternary, and around those from which a count is written with more bits.
    for n in [65535, 65536, 65537, 131071, 131072, 131073, SPARSE_CHUNK - 1, SPARSE_CHUNK]:
        yield Largest(f"sparse-{n}", spiky(n), 0.001)
        if n in (65536, SPARSE_CHUNK):
            yield Largest(f"sparse-{n}-most", spiky(n), 0.99)
    yield Largest("sparse-three-chunks", spiky(2 * SPARSE_CHUNK + 70000), 0.01, 1)
    for ratio in [0.25, 0.49, 0.5, 0.51, 0.75, 1]:  # below and above a half, another bit is the rarer one
        yield Largest(f"sparse-share-{ratio}", bell(1000), ratio)
    for at in [0, 131071, SPARSE_CHUNK - 1]:
        values = [0.0] * SPARSE_CHUNK
        values[at] = 1.0
        yield kept(Largest(f"sparse-one-at-{at}", values, 1e-6), at == 131071)
    yield kept(Largest("sparse-ties", [1.0, -1.0, 2.0, 0.5] * 50, 0.4))
    yield Largest("sparse-zeros", [0.0, -0.0] * 35)
    steps = [spiky(1000, seed=t) for t in range(4)]
    yield MoreThanLargest("sparse-over-steps", *steps, ratio=0.05, over=0.5, rank=3, tensor=2)
    yield from sparse_values()


def of_exponents(exponents, form):
    """Numbers with these exponent fields. They are positive and negative by turns. The first one has the fraction of
    1.5. Those of field 0 are not zero."""
    bias = 15 if form == F16 else 127
    return [
        (-1) ** i * (1.5 if i == 0 else 1) * 2.0 ** (max(x, 1) - bias) * (0.5 if x == 0 else 1)
        for i, x in enumerate(exponents)
    ]


@functools.lru_cache(maxsize=None)
def exponents_by_room(n, width, in_the_end):
    """Exponent fields by room, from 2 to -2 bits. With 2 or 1 bits an encoder writes them apart. With less it does not.
    in_the_end: some fields are sent after the strings."""
    source, found = random.Random(n), {}
    for _ in range(20000):
        spread, far = source.uniform(0.02, 1) * n**0.5, source.random() * in_the_end
        largest = source.randrange(17 if in_the_end else 5, 2**width - 1)
        fields = [
            source.randrange(largest - 16)
            if largest > 16 and source.random() < far
            else max(0, largest - int(source.expovariate(1) * spread))
            for _ in range(n)
        ]
        room = encoder.room_of_exponents(fields, width)
        if abs(room) <= 2:
            found.setdefault(room, fields)
        if len(found) == 5:
            break
    assert any(room > 0 for room in found) and any(room <= 0 for room in found)
    return found


def sparse_values():
    """Values whose exponents are apart, and values whose exponents are not."""
    for code, form in SPARSE_CODES.items():
        name, width = f"sparse-{FLOATS[form]}", decoder.FIELDS[form][1]
        middle, most = 2 ** (width - 1), 2**width - 2
        for n in [1, 2, 3, 6, 7, 300]:
            for x in [0, 1, middle, most]:
                yield kept(
                    Largest(f"{name}-{n}-of-field-{x}", of_exponents([x] * n, form), 1, code),
                    x == middle and n in (1, 2, 300),
                )
        for x in [0, 1, 2, 3, most]:  # two values; if there is a second string, it has one bit
            yield Largest(f"{name}-fields-{x}-and-less", of_exponents([x, max(0, x - 1)], form), 1, code)
        for x in [15, 16, 17, 18, most]:  # up to 16 a string asks about every field; beyond it the last fields are sent
            ends = [x] * 300 + [y for y in (0, 1, 2, x - 17, x - 16, x - 15, x - 14) if y >= 0] * 2
            yield kept(Largest(f"{name}-ends-{x}", of_exponents(ends, form), 1, code), x in (16, 17))
        yield Largest(f"{name}-end-alone", of_exponents([most] * 30 + [0], form), 1, code)
        yield Largest(f"{name}-zeros-and-others", [0.0, -0.0, 1.0, 1.5, -1.25] * 20, 1, code)
        yield Largest(f"{name}-every-field", of_exponents([*range(most + 1)] * 2, form), 1, code)
        for kind, n in [("strings", 60), ("strings", 200), ("end", 200)]:
            for room, fields in exponents_by_room(n, width, kind == "end").items():
                yield kept(
                    Largest(f"{name}-{n}-{kind}-room-{room}", of_exponents(fields, form), 1, code), room in (0, 1)
                )


def parts(n, density, own, seed):
    """Elements of gspar. A share of them, `density`, is sent. Of these a share, `own`, has a value of its own."""
    source = random.Random(seed)
    return [
        None
        if source.random() >= density
        else float32(source.random() - 0.5)
        if source.random() < own
        else source.choice((PLUS, MINUS))
        for _ in range(n)
    ]


def parts_pushes():
    for n in [0, 1, 2, 33, 1000]:
        for density in [0.05, 0.5, 1]:
            for own in [0, 0.1, 1]:
                frame = encoder.push_of_parts(parts(n, density, own, n), 0.75, rank=3, step=2, tensor=1)
                yield kept(Written(f"gspar-{n}-{density}-{own}", frame), n in (0, 33) and density < 1)
    for n in [65536, 65537, SPARSE_CHUNK, SPARSE_CHUNK + 1, 2 * SPARSE_CHUNK + 3]:
        frame = encoder.push_of_parts(parts(n, 0.002, 0.2, n), 0.75)
        yield kept(Written(f"gspar-{n}", frame), n == SPARSE_CHUNK + 1)
    dense = parts(70000, 0.99, 0.9, 8) + [None] * (SPARSE_CHUNK - 70000) + [MINUS]
    yield Written("gspar-last-element", encoder.push_of_parts(dense, 0.75))
    # Own values: one; two whose exponents are written apart or not; and many.
    for name, own in [
        ("one", [1.5]),
        ("zero", [-0.0]),
        ("two", [1.5, -1.0]),
        ("bell", bell(300)),
        ("magnitudes", all_magnitudes(300)),
        ("room", of_exponents([130, 128, 127], NONE)),
        ("no-room", of_exponents([130, 127, 127], NONE)),
    ]:
        frame = encoder.push_of_parts([PLUS, None, *own, MINUS, MINUS], 0.5)
        yield kept(Written(f"gspar-own-{name}", frame), name in ("one", "two", "bell"))
    for q in [0.0, -0.0, 1e-45, 3.4e38]:
        elements = [PLUS, None, MINUS, 1.0, -1.0, 0.0, -0.0]
        yield kept(Written(f"gspar-q-{q}", encoder.push_of_parts(elements, float32(q))))


def frames_of_parts(n_workers, n, density, own=0.3, q=None):
    """Frames of workers. q None: each worker has its own q."""
    return [
        encoder.push_of_parts(
            parts(n, density, own, rank),
            float32(0.1 + rank) if q is None else float32(q),
            q is None,
            rank=rank,
            step=3,
            tensor=9,
        )
        for rank in reversed(range(n_workers))
    ]


def frames_of_largest(n_workers, n, ratio):
    """Frames of workers whose codes differ."""
    return [Largest("", spiky(n, seed=rank), ratio, rank % 3, rank, 3, 9).frame for rank in reversed(range(n_workers))]


def columns(*workers):
    """Frames of codec sparse. Each worker's list says what it sends of a few elements."""
    return [encoder.push_of_sparse(elements, rank=rank) for rank, elements in enumerate(workers)]


def sparse_averages():
    for n_workers in [1, 2, 3, 9]:
        for n in [0, 1, 300]:
            for share in [0.02, 0.5, 1]:  # the share of the sums differs, so some averages are sparse, and some dense
                name = f"{n_workers}-{n}-{share}"
                yield kept(Average(f"average-sparse-{name}", frames_of_largest(n_workers, n, share)), n == 300)
                yield kept(Average(f"average-gspar-{name}", frames_of_parts(n_workers, n, share)), n == 300)
                shared = frames_of_parts(n_workers, n, share, 0.05, 0.7)
                yield kept(Average(f"average-shared-{name}", shared), n == 300)
    yield Average("average-sparse-two-chunks", frames_of_largest(2, SPARSE_CHUNK + 1, 0.001))
    yield Average("average-gspar-two-chunks", frames_of_parts(2, SPARSE_CHUNK + 1, 0.001))
    yield Average("average-shared-two-chunks", frames_of_parts(3, SPARSE_CHUNK + 9, 0.3, 0.01, 0.7))
    for q in [-0.0, 1e-45, 3.4e38]:
        yield kept(Average(f"average-shared-q-{q}", frames_of_parts(3, 70, 0.5, 0.05, q)))
    for own in [0, 1]:
        yield kept(Average(f"average-shared-own-{own}", frames_of_parts(5, 300, 0.4, own, 0.7)))
    # Some workers send an element as +-q, and others as a value. These may cancel each other, overflow, or be 0.
    sums = [
        [PLUS, 0.25, PLUS, MINUS, 1e8, 0.75, 3e38, -0.0, -0.0, 0.5],
        [PLUS, PLUS, -1.0, 1.25, 1.0, MINUS, 3e38, None, MINUS, -0.5],
        [MINUS, PLUS, PLUS, MINUS, -1e8, None, None, None, PLUS, None],
    ]
    frames = [
        encoder.push_of_parts(
            [x if x is None or x in (PLUS, MINUS) else float32(x) for x in worker], 0.75, False, rank=r
        )
        for r, worker in enumerate([*map(lambda w: w + [None] * 60, sums)])
    ]
    yield kept(Average("average-shared-sums", frames))
    yield Average(
        "average-sparse-magnitudes",
        [Largest("", all_magnitudes(2000, seed=rank), 0.5, rank=rank).frame for rank in range(9)],
    )
    for n in [64, 1000, 3000]:  # if one element of 3000 is not sent, the payload is as long as that of codec none
        for left_out in [0, 1, 2]:
            elements = [1.0] * (n // 2) + [None] * left_out + [-1.0] * (n - n // 2 - left_out)
            yield kept(Average(f"average-sparse-{n}-but-{left_out}", columns(elements)), n == 3000)
    few = [None] * 20
    sums = [
        [1e8, 2.5, 1e-45, -1e-45, -0.0, 3e38, -3.4e38],
        [1.0, -2.5, None, None, -0.0, 3e38, -3e38],
        [-1e8, None, None, None, None, None, None],
    ]
    # Sums in float32 and in rank order. They become 0, or less than the least number, on both sides, or infinite.
    frames = columns(*([*map(lambda x: x if x is None else float32(x), worker), *few] for worker in sums))
    yield kept(Average("average-sparse-sums", frames))
    yield kept(Average("average-sparse-minus-zero", columns([-0.0] * 3 + few)))
    # Numbers below the least normal one, and infinite ones, stand among others. The exponents are worth writing apart.
    values = [*bell(1000, 1.0), *[3e38] * 3, -3e38, *[1e-40, -1e-45] * 2, *[None] * 2000]
    frames = columns(*[[x if x is None else float32(x) for x in values]] * 3)
    yield kept(Average("average-sparse-values", frames))
    yield kept(Average("average-sparse-nan", columns([*bell(30), math.nan, None, math.inf, *[None] * 30])))
    # In a dense payload all zeros are +0.
    for name, zeros in [("rounded", [float32(-1e-45), None]), ("minus", [-0.0])]:
        frames = columns(*([1.0] * 1500 + [x] + [1.0] * 1500 for x in zeros))
        yield Average(f"average-sparse-dense-{name}-zero", frames)
    frames = [encoder.push_of_sparse([None] * 1000 + [2.0], rank=rank, begin=2**33) for rank in range(3)]
    yield Average("average-sparse-slice", frames)


def sparse_written():
    slice_of = {"rank": 1, "step": 2, "tensor": 3, "begin": 2**34 - 1024}
    yield kept(Written("sparse-slice", encoder.push_of_sparse([None, 1.5] * 512, **slice_of)))
    yield kept(Written("gspar-slice", encoder.push_of_parts([None, 1.5, MINUS, PLUS] * 256, 0.5, **slice_of)))
    halves = b"".join(word.to_bytes(2, "little") for word in range(65536))
    for code in [1, 2]:
        form = SPARSE_CODES[code]
        for name, with_values in [("plain", encoder.values_as_they_are), ("apart", encoder.values_apart)]:
            of_values, raw = with_values(halves, form)
            data = encoder.coded([String("1" * 65536), *of_values], raw)
            frame = encoder.seal(Header(SPARSE, code, count=65536), [], data)
            yield Written(f"sparse-every-{FLOATS[form]}-{name}", frame)
    for codec in [SPARSE, NONE]:
        frame = encoder.seal(Header(codec, 0, decoder.AVERAGE, 3), [], b"")
        yield kept(Written(f"average-sparse-empty-{codec}", frame))
    # Frames that no encoder makes, but that decoders take: numbers that are not finite, zeros that are sent, other
    # forms of strings and values, an average that would be smaller if it were dense, an average of one worker.
    odd = library.floats(bytes.fromhex("0000807f 000080ff 0000c07f 00000000 00000080"))
    yield kept(Written("odd-sparse-values", encoder.push_of_sparse([None, *odd, None])))
    yield kept(Written("odd-gspar-values", encoder.push_of_parts([PLUS, *odd, None], 0.5)))
    for lanes in (1, 8, 32):  # other numbers of lanes, and tables for more ones than a byte has
        few = [None] * 9 + [1.5, -2.0, None, 0.25] * 3
        texts, raw = encoder.parts_of_sparse(few, SPARSE, NONE, encoder.values_apart)
        for name, string in [("", texts[0]), ("-most", String("0" * 9 + "1101" * 3, most_ones=8))]:
            data = encoder.coded([string, *texts[1:]], raw, lanes=lanes)
            frame = encoder.seal(Header(SPARSE, count=len(few)), [], data)
            yield kept(Written(f"odd-sparse-lanes-{lanes}{name}", frame))
        texts, raw = encoder.parts_of_sparse([PLUS, MINUS, None, 1.0, MINUS] * 30, GSPAR, NONE)
        data = encoder.coded(texts, raw, lanes=lanes)
        yield kept(Written(f"odd-gspar-lanes-{lanes}", encoder.seal(Header(GSPAR, count=150), [0.5], data)))
        # Signs are a string, though they are fair.
        signs = String("01" * 20)
        data = encoder.coded([String("1" * 40), String("0" * 40), encoder.AS_STRING, signs], lanes=lanes)
        yield kept(Written(f"odd-gspar-signs-{lanes}", encoder.seal(Header(GSPAR, count=40), [0.5], data)))
    for code, form in SPARSE_CODES.items():
        # Values are in the longer form, or no value has the largest exponent field.
        data = encoder.pack_floats(form, [1.0, -1.5, 2.0, 0.0, 1.25, 1e-7])
        rests, exponents = encoder.cut_values(data, form)
        width, six = decoder.FIELDS[form][1], String("1" * 6)
        chunks = [("plain", encoder.coded([six, "0"], decoder.bits_of(data)))]
        for largest in [max(exponents) + 1, 2**width - 1]:
            strings = encoder.exponent_strings(exponents, largest)
            late = encoder.numbers(encoder.exponents_in_the_end(exponents, largest), width)
            data = encoder.coded([six, "1", encoder.number(largest, width), *strings], "".join(rests) + late)
            chunks.append((f"apart-{largest}", data))
        for name, data in chunks:
            frame = encoder.seal(Header(SPARSE, code, count=6), [], data)
            yield kept(Written(f"odd-sparse-{FLOATS[form]}-{name}", frame))
        # All values are zeros, though strings ask about 3 fields.
        minus_zeros = (decoder.FIELDS[form][0] * "0" + "1") * 2
        data = encoder.coded([String("11"), "1", encoder.number(3, width), *[String("11")] * 3], minus_zeros)
        frame = encoder.seal(Header(SPARSE, code, count=2), [], data)
        yield kept(Written(f"odd-sparse-{FLOATS[form]}-zeros", frame))
    for n in [1, 5, 33, 300]:  # sums of many workers
        source = random.Random(n)
        sums = [source.randint(1, 40) * source.choice((-1, 1)) for _ in range(n)]
        for lanes in (1, 32):
            texts, raw = encoder.parts_of_sparse(sums, GSPAR, NONE, workers=40)
            data = encoder.coded(texts, raw, lanes=lanes)
            header = Header(GSPAR, 0, decoder.AVERAGE, 40, count=n)
            yield kept(Written(f"odd-shared-{n}-lanes-{lanes}", encoder.seal(header, [1.5], data)), n in (5, 33))
    for n_workers in [1, 1024]:
        sums = [0.5 if i % 9 == 8 else None if i % 3 == 0 else (i - 40) * (n_workers // 40) or PLUS for i in range(80)]
        sums = [max(-n_workers, min(n_workers, s)) if isinstance(s, int) else s for s in sums]
        frame = encoder.sums_of_parts(sums, 0.75, n_workers, step=3)
        yield kept(Written(f"average-shared-of-{n_workers}", frame))
    for n_workers in [1, 32767]:
        header = Header(SPARSE, 0, decoder.AVERAGE, n_workers, count=9)
        payload = encoder.sparse([1.0] * 7 + [0.0, -0.0])
        yield kept(Written(f"odd-sparse-average-of-{n_workers}", encoder.seal(header, [], payload)))


# ---- onebit ---------------------------------------------------------------------------------------------------------


def onebit():
    for n in [0, 1, 2, 7, 8, 9, 33, 1024, 1025, 3000]:
        yield kept(Signs(f"onebit-{n}", bell(n), rank=5, tensor=7), n in (0, 1, 9, 33))
    steps = [bell(3000, seed=seed) for seed in range(3)]
    yield kept(Signs("onebit-steps", *steps, rank=32766, tensor=2**32 - 1))
    for bucket in [1, 7, 100, 1024, 1500, 5000]:
        yield kept(Signs(f"onebit-bucket-{bucket}", *steps, bucket=bucket), bucket in (7, 1500))
    yield Signs("onebit-bucket-alone", bell(7), bucket=1)
    yield Signs("onebit-runs", bell(70000), bell(70000, seed=2))
    yield Signs("onebit-bucket-long", bell(140000), bell(140000, seed=2), bucket=66560)
    yield kept(Signs("onebit-zeros", [0.0, -0.0] * 8, [0.0, -0.0] * 8))
    yield Signs("onebit-positive", [2.0, 0.0, 1.0] * 100)
    yield Signs("onebit-negative", [-2.0, -1.0] * 100)
    for bucket in [0, 64]:
        yield kept(Signs(f"onebit-magnitudes-{bucket}", all_magnitudes(5000), bucket=bucket))
    # Blocks on both sides of the limits beyond which sums are float64.
    for name, exponents in [("small", (-50, -49)), ("large", (60, 61))]:
        yield Signs(f"onebit-thresholds-{name}", around(24 * exponents), bucket=1024)
    for exponent in [-145, -127, 100, 126]:
        yield kept(Signs(f"onebit-scale-{exponent}", around((exponent,), 200)))
    for n_workers, bucket in [(1, 0), (2, 0), (3, 100)]:
        frames = [
            encoder.push_of_onebit(bell(3000, seed=rank), [0.0] * 3000, bucket, rank=rank)[0]
            for rank in reversed(range(n_workers))
        ]
        yield kept(Average(f"average-{n_workers}-onebit-{bucket}", frames), n_workers == 3)


def all_cases():
    yield from pushes()
    yield from averages()
    yield from written()
    yield from ternary_steps()
    yield from sparse_pushes()
    yield from parts_pushes()
    yield from sparse_averages()
    yield from sparse_written()
    yield from onebit()


def digest(floats):
    return hashlib.sha256(floats).hexdigest()


def path_of(name):
    return os.path.join(FOLDER, name + ".gw")


def manifest():
    with open(os.path.join(FOLDER, "manifest.json"), encoding="utf-8") as file:
        return json.load(file)


def write():
    os.makedirs(FOLDER, exist_ok=True)
    for name in os.listdir(FOLDER):
        os.remove(os.path.join(FOLDER, name))
    entries = {}
    for case in filter(lambda case: case.kept, all_cases()):
        with open(path_of(case.name), "wb") as file:
            file.write(case.frame)
        header, _, _, floats = decoder.decode(case.frame)
        entries[case.name] = {"elements": header.count, "sha256 of the floats": digest(floats)}
    with open(os.path.join(FOLDER, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(entries, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    library.check()
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: golden.py --write")
    write()
