"""Frames that the encoder here and the tool must both make, and which of them are kept in golden/.

    python3 golden.py --write      writes golden/*.gw and golden/manifest.json anew

Kept frames show when the format moves, even where both sides move alike: a decoder of tomorrow must still read them."""

import functools
import hashlib
import itertools
import json
import math
import os
import random
import sys

import decoder
import encoder
import library
from decoder import (BF16, F16, GAPS, GSPAR, LEVELS, MINUS, NONE, PACKED, PLUS, RADIX, SPARSE, SPARSE_CHUNK,
                     SPARSE_CODES, TERNARY, Header)
from encoder import plain, rice
from library import float32

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
CODES = ["2bit", "base3", "mask", "gaps", "packed", "radix", "levels"]
FLOATS = {NONE: "none", BF16: "bf16", F16: "f16"}


# ---- inputs ---------------------------------------------------------------------------------------------------------

@functools.lru_cache(maxsize=None)
def bell(n, scale=1e-3, seed=1):
    """Nearly Gaussian, from sums of what random() gives, which is the same in every Python."""
    source = random.Random(seed)
    return tuple(float32(scale * (sum(source.random() for _ in range(6)) - 3)) for _ in range(n))


@functools.lru_cache(maxsize=None)
def spiky(n, seed=2):
    """A few large elements among small ones."""
    source = random.Random(seed)
    return tuple(float32((source.random() - 0.5) * (1 if source.random() < 0.002 else 1e-3)) for _ in range(n))


@functools.lru_cache(maxsize=None)
def all_magnitudes(n, seed=3):
    """From below the least denormal to 1e37, so that blocks are summed both ways and products vanish."""
    source = random.Random(seed)
    return tuple(float32((source.random() - 0.5) * 10 ** (81 * source.random() - 44)) for _ in range(n))


@functools.lru_cache(maxsize=None)
def around(exponents, n=1024, seed=4):
    """A block of n elements below each of some powers of two, with tails that are clipped."""
    source = random.Random(seed)
    return tuple(float32((2 * source.random() - 1)**3 * 2.0**e) for e in exponents for _ in range(n))


def rounding_cases():
    """float32 words at, just below and just above what rounds to even, underflows and overflows in bf16 and half."""
    words = [0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F7F7FFF, 0x7F7F8000, 0x477FEFFF, 0x477FF000, 0x47800000,
             0x33000000, 0x33000001, 0x32FFFFFF, 0x33800000, 0x33C00000, 0x387FC000, 0x387FE000, 0x387FFFFF, 0x38800000]
    for base in [0x3F800000, 0x3F810000, 0x38000000, 0x38002000, 0x477FC000]:
        words += [base + low for low in (0, 0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001)]
    source = random.Random(5)
    words += [source.randrange(0x7F800000) for _ in range(300)]
    words += [word | 1 << 31 for word in words]
    return library.floats(b"".join(word.to_bytes(4, "little") for word in words))


def ties(seed, n=2048):
    """Elements whose threshold is hardly another number than the one drawn for them: the second draw decides."""
    draws, source, values = encoder.Draws(seed), random.Random(6), [1.0]
    for e in range(1, n):
        number = draws.first(e) << 16 | draws.second(e)
        step = 1 << max(0, number.bit_length() - 24)
        values.append(float32(max(0, number + source.randint(-3, 3) * step) / 2.0**32))
    return values


def clusters(percent):
    """Gaps is 2.1 % (42) or 1.6 % (43) above the entropy: zstd is tried for the first alone, though it would do better
    for both."""
    return ([1] * percent + [0] * (100 - percent)) * 200


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
    """One worker's tensor, encoded here or by the tool."""
    kept = False

    def __init__(self, name, values, codec=TERNARY, code="auto", entropy="auto", clip=2.5, bucket=0, private=False,
                 shared=None, seed=0, rank=0, step=0, tensor=0):
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
        return encoder.push_of_values(ternary, scalers, code, self.entropy, self.private, rank=rank, step=step,
                                      tensor=tensor, bucket=self.bucket)

    def by_tool(self, case):
        spec = FLOATS.get(self.codec) or (f"ternary:code={self.code},entropy={self.entropy},clip={self.clip},"
                                          f"bucket={self.bucket},share={'off' if self.private else 'on'}")
        words = ["encode", "--codec", spec, case.write_f32("g.f32", self.values), "-o", case.path("g.gw")]
        for option, value in zip(["--seed", "--rank", "--step", "--tensor"], self.where):
            words += [option, value]
        if self.shared:
            case.write_bytes("s.json", json.dumps({"scalers": self.shared}).encode() if self.bucket else
                             json.dumps({"scaler": self.shared[0]}).encode())
            words += ["--scaler", case.path("s.json")]
        case.ok(*words)
        return case.read_bytes(case.path("g.gw"))


class Largest:
    """The first step of a worker that sends its k largest elements, of equals the first. Their residual is +0 yet, and
    is added: -0 becomes +0."""
    kept = False

    def __init__(self, name, values, ratio=0.1, code=0, rank=0, step=0, tensor=0):
        self.name, self.values, self.ratio, self.code = name, tuple(values), ratio, code
        self.where = rank, step, tensor

    @functools.cached_property
    def frame(self):
        n, (rank, step, tensor) = len(self.values), self.where
        k = min(n, max(1, math.ceil(self.ratio * n)))
        sent = set(sorted(range(n), key=lambda i: -abs(self.values[i]))[:k])
        elements = [x + 0.0 if i in sent else None for i, x in enumerate(self.values)]
        return encoder.push_of_sparse(elements, self.code, rank=rank, step=step, tensor=tensor)

    def by_tool(self, case):
        spec = f"topk:ratio={self.ratio},value={['f32', 'bf16', 'f16'][self.code]}"
        words = ["encode", "--codec", spec, case.write_f32("g.f32", self.values), "-o", case.path("g.gw")]
        for option, value in zip(["--rank", "--step", "--tensor"], self.where):
            words += [option, value]
        case.ok(*words)
        return case.read_bytes(case.path("g.gw"))


class Average:
    """Pushes added up. The tool has no word for levels: it takes them where they are the smallest."""
    kept = False

    def __init__(self, name, pushes, pull="auto", entropy="auto"):
        self.name, self.pushes, self.pull, self.entropy = name, pushes, pull, entropy

    @functools.cached_property
    def frame(self):
        return encoder.reduce(self.pushes, self.pull if self.pull == "auto" else CODES.index(self.pull), self.entropy)

    def by_tool(self, case):
        if self.pull == "levels":
            return None
        names = [case.write_bytes(f"{i}.gw", frame) for i, frame in enumerate(self.pushes)]
        spec = f"ternary:pull={self.pull},entropy={self.entropy}"
        case.ok("reduce", *names, "--codec", spec, "-o", case.path("a.gw"))
        return case.read_bytes(case.path("a.gw"))


class Written:
    """A frame that the tool does not make from files: a slice, or an average of very many workers."""
    kept = False

    def __init__(self, name, frame):
        self.name, self.frame = name, frame

    def by_tool(self, _):
        return None


# ---- which ----------------------------------------------------------------------------------------------------------

def head_sizes():
    return sorted({1, 2, 3, *(2**j + d for j in range(2, 17) for d in (-1, 0, 1))} - {65537})


def pushes():
    for codec, name in FLOATS.items():
        yield kept(Push(f"{name}-rounding", rounding_cases(), codec, rank=7, step=8, tensor=9))
        yield Push(f"{name}-empty", [], codec)
    for code in ["auto"] + CODES[:4]:
        for n in [0, 1, 2, 5, 33, 100]:
            yield kept(Push(f"push-{code}-{n}", bell(n), code=code, seed=n), n in (0, 33))
        for entropy in ["off", "on"]:
            yield kept(Push(f"push-{code}-{entropy}-70000", bell(70000), code=code, entropy=entropy, seed=5, rank=3),
                       (code, entropy) in [("2bit", "on"), ("base3", "off"), ("mask", "off"), ("auto", "off")])
        yield kept(Push(f"push-{code}-on-1025", bell(1025), code=code, entropy="on", seed=6))
    yield kept(Push("push-auto-mixed", bell(70000)[:4464] + (0.0,) * 61072 + bell(6000), seed=5))
    yield Push("push-gaps-spiky", spiky(70000), code="gaps", clip=0)
    yield kept(Push("push-auto-zeros", [0.0] * 70000))
    yield Push("push-auto-equal", [-2.0] * 600)
    for n in range(88, 132, 4):  # here zstd begins to find room
        for code in ["auto"] + CODES[:4]:
            yield Push(f"push-{code}-equal-{n}", [-2.0] * n, code=code, entropy="on")
    yield Push("push-auto-minus-zero", [-0.0, 0.0, -1.0, 1.0] * 25)
    yield Push("push-alone", [0.0] * 70 + [-5.0] + [0.0] * 70)
    # What the first Rice parameter is found from is just not, and just, a power of two.
    for n in [47274, 47275]:
        yield Push(f"push-gaps-guess-{n}", [0.0] * n + [1.0], code="gaps", clip=0)
    for form, far in [(1, 16), (2, 36), (3, 56)]:
        values = (([0] * 16 + [1]) * 9 + [0] * far + [1]) * 10
        assert encoder.string(encoder.bits_where(bool, values)).startswith(encoder.number(form, 2))
        yield kept(Push(f"push-gaps-form-{form}", values, code="gaps", clip=0))
    # Heads: how wide a string's count is written changes with the string's length, and with the count itself.
    for n in head_sizes():
        yield Push(f"push-gaps-head-{n}-0", [0.0] * n, code="gaps", clip=0)
        yield kept(Push(f"push-gaps-head-{n}-1", [0.0] * (n - 1) + [1.0], code="gaps", clip=0),
                   n in (1, 2, 3, 4, 65536))
        some = [-1.0] * (n // 25) + [1.0] * (n // 5)
        yield Push(f"push-gaps-head-{n}-some", some + [0.0] * (n - len(some)), code="gaps", clip=0)
        yield Push(f"push-gaps-head-{n}-all", [1.0] * (n - 1) + [-1.0], code="gaps", clip=0)
    # On both sides of where strings are Rice coded: these would be shorter so on either.
    for rarer in [399, 400]:
        yield Push(f"push-gaps-{rarer}-of-1000", [1.0] * rarer + [0.0] * (1000 - rarer), code="gaps", clip=0)
        yield Push(f"push-gaps-{1000 - rarer}-of-1000", [0.0] * rarer + [1.0] * (1000 - rarer), code="gaps", clip=0)
    for n in [1, 2, 3, 4, 5]:  # from 4 bits on a string of equal ones is shorter Rice coded
        yield Push(f"push-gaps-zeros-{n}", [0.0] * n, code="gaps")
        yield kept(Push(f"push-gaps-equal-{n}", [-2.0] * n, code="gaps"), n in (3, 4))
    for percent in [42, 43]:
        yield Push(f"push-auto-{percent}%", clusters(percent), clip=0)
    # 2^32 / s has to be raised, and element 1 draws a number that is hardly below its threshold.
    yield Push("push-certain", [0.8474337458610535] * 2, clip=0, seed=3854854)
    yield kept(Push("push-ties", ties(21), clip=0, seed=21))
    yield kept(Push("push-far", bell(300), seed=2**64 - 1, rank=32766, step=2**32 - 1, tensor=2**32 - 1))
    yield kept(Push("push-shared", bell(3000), shared=[0.01], seed=9))
    yield Push("push-clip-1", bell(3000), clip=1, seed=10)
    for bucket in [1, 100, 1024, 1500, 5000]:
        values = bell(3000)[:7 if bucket == 1 else 3000]
        yield kept(Push(f"push-bucket-{bucket}", values, bucket=bucket, seed=11), bucket == 1500)
        yield kept(Push(f"push-private-{bucket}", values, bucket=bucket, private=True, seed=12), bucket == 1024)
    yield Push("push-bucket-long", bell(70000) + bell(3000), bucket=66560, seed=13, entropy="off")
    yield Push("push-bucket-shared", bell(3000), bucket=1024, shared=[0.004, 0.1, 0.003], seed=14)
    # Blocks on both sides of where sums are float64: enough of them to see the last bit of some sigma move.
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


def frames_of_workers(n_workers, n, density, signs=(-1, 1), **fields):
    """Pushes of different codes, not in rank order: neither matters."""
    fields = {"step": 3, "tensor": 9, **fields}
    n_scalers = Header(TERNARY, count=n, bucket=fields.get("bucket", 0)).n_scalers()
    scalers = [abs(s) for s in bell(n_scalers + 1000, seed=6)[1000:]]
    return [encoder.push_of_values(ternary(n, density, rank, signs), scalers, rank % 4,
                                   ["off", "on"][rank % 8 == 7], rank=rank, **fields)
            for rank in reversed(range(n_workers))]


def averages():
    for n_workers in [1, 2, 4, 9, 200]:
        frames = frames_of_workers(n_workers, 300, 0.2)
        sparse = frames_of_workers(n_workers, 1000, 0.02 / n_workers)
        for pull in CODES[4:]:
            for entropy in ["off", "on"]:
                yield kept(Average(f"average-{n_workers}-{pull}-{entropy}", frames, pull, entropy),
                           entropy == "off" or n_workers == 9)
                yield Average(f"average-{n_workers}-sparse-{pull}-{entropy}", sparse, pull, entropy)
        for entropy in ["off", "auto", "on"]:
            yield Average(f"average-{n_workers}-sparse-auto-{entropy}", sparse, "auto", entropy)
        for n in [0, 1, 64, 65]:
            yield kept(Average(f"average-{n_workers}-auto-{n}", frames_of_workers(n_workers, n, 0.5)), n_workers == 4)
    for n_workers in [127, 128]:  # radix: the last base whose digits fit a byte, and the first whose do not
        for entropy in ["off", "on"]:
            yield Average(f"average-{n_workers}-{entropy}", frames_of_workers(n_workers, 40, 0.5), "radix", entropy)
    for entropy in ["off", "auto", "on"]:
        yield Average(f"average-auto-{entropy}-3000", frames_of_workers(4, 3000, 0.1), "auto", entropy)
        for pull in ["auto"] + CODES[4:]:
            yield kept(Average(f"average-{pull}-{entropy}-70000", wide_frames(), pull, entropy),
                       pull == "auto" or (pull, entropy) == ("radix", "on"))
    for percent in [42, 43]:
        values = clusters(percent)
        yield Average(f"average-auto-{percent}%", [Push("", values, clip=0, rank=rank).frame for rank in range(2)])
    for n_workers in [2, 3, 8, 64]:  # signs and levels of which some are rare, and some the rule
        skewed = frames_of_workers(n_workers, 2000, 0.3, (-1, *[1] * 9))
        yield kept(Average(f"average-{n_workers}-skewed", skewed, entropy="off"), n_workers < 64)
        equal = [Push("", [1.0] * 300 + [0.0] * 7 + [-1.0] * 2, clip=0, rank=rank).frame for rank in range(n_workers)]
        yield Average(f"average-{n_workers}-equal", equal, entropy="off")
    yield kept(Average("average-auto-mixed", frames_of_sums([0] * 65536 + [2, -1, 1, -2], 2)))
    # As small packed as in radix, and larger in levels.
    yield Average("average-127-auto-64", frames_of_sums(range(-127, 128, 4), 127))
    yield kept(Average("average-bucket", frames_of_workers(3, 3000, 0.3, bucket=1024)))
    yield Average("average-slice", frames_of_workers(3, 3000, 0.3, bucket=1024, begin=2**33))
    for n_workers in [1, 3]:
        private = [Push("", bell(2000, seed=rank), bucket=1024, private=True, seed=19, rank=rank).frame
                   for rank in range(20, 20 + n_workers)]
        yield kept(Average(f"average-{n_workers}-private", private), n_workers == 3)
        for codec, name in FLOATS.items():
            frames = [Push("", (*bell(500, seed=rank), -0.0, 3e38, -3.4e38, 6e4, 1e-45), codec, rank=rank).frame
                      for rank in range(n_workers)]
            yield kept(Average(f"average-{n_workers}-{name}", frames), n_workers == 3)


@functools.lru_cache(maxsize=None)
def wide_frames():
    """Two chunks, of which the second suits zstd."""
    both = [ternary(65536, 0.01, rank) + clusters(30)[:4464] for rank in range(2)]
    return [encoder.push_of_values(values, [0.25], rank=rank) for rank, values in enumerate(both)]


def frames_of_sums(sums, n_workers):
    parts = [[(s > rank) - (-s > rank) for s in sums] for rank in range(n_workers)]
    return [encoder.push_of_values(values, [0.5], rank=rank) for rank, values in enumerate(parts)]


def strings_table(*strings):
    data = encoder.bytes_of_bits("".join(strings))
    return len(data).to_bytes(4, "little") + data


def written():
    # Every shape of words that bases have: one digit in two bytes, few in many, words longer than 16 bytes.
    for n_workers in [10, 31, 92, 93, 150, 1000, 9000, 21808, 32767]:
        source = random.Random(n_workers)
        sums = [source.choice((-n_workers, n_workers, source.randint(-n_workers, n_workers))) for _ in range(203)]
        sparse = [s if source.random() < 0.2 else 0 for s in sums]
        for code, numbers in [(PACKED, sums), (RADIX, sums), (LEVELS, sparse)]:
            for entropy in ["off", "on"]:
                if code == LEVELS and (entropy == "on" or n_workers > decoder.LEVELS_MOST_WORKERS):
                    continue
                frame = encoder.average_of_sums(numbers, [0.75], n_workers, code, entropy)
                yield kept(Written(f"average-of-{n_workers}-{CODES[code]}-{entropy}", frame),
                           len(frame) < 10000 and (code, entropy) in [(RADIX, "off"), (LEVELS, "off")])
    # A slice's draws are those of the same elements in the whole tensor.
    values, begin, end = bell(5000, seed=7), 2048, 4500
    own, clips = encoder.measure(values, 1024)
    draws = encoder.Draws(seed=20, rank=1, step=2, tensor=3)
    part = encoder.draw(values[begin:end], own[2:5], clips[2:5], 1024, draws, begin)
    frame = encoder.push_of_values(part, own[2:5], bucket=1024, rank=1, step=2, tensor=3, begin=begin)
    yield kept(Written("push-slice", frame))
    whole = encoder.draw(values, own, clips, 1024, encoder.Draws(seed=20, rank=1, step=2, tensor=3))
    assert part == whole[begin:end]
    # What encoders do not do, and decoders take: one chunk called mixed, ENTROPY without a compressed chunk, another
    # form than the best, strings marked by their commoner bit, a scaler of -0.
    two_bit = encoder.two_bit([1, 0, -1, -1, 0])
    table = (len(two_bit)).to_bytes(4, "little")
    for name, header, payload in [
            ("mixed", Header(TERNARY, decoder.MIXED, count=5), table + two_bit),
            ("entropy", Header(TERNARY, decoder.TWO_BIT, decoder.ENTROPY, count=5), table + two_bit),
            ("form", Header(TERNARY, GAPS, count=5), strings_table(rice(3, "1", 5, [2]), rice(2, "1", 1, [0]))),
            ("plain", Header(TERNARY, GAPS, count=300), strings_table(plain("0" * 300))),
            ("marked", Header(TERNARY, GAPS, count=5),
             strings_table(rice(1, "1", 5, [0] * 5), rice(1, "0", 5, [1, 0, 0, 0]))),
            ("levels", Header(TERNARY, LEVELS, decoder.AVERAGE, 3, count=5),
             strings_table(plain("11011"), rice(1, "1", 4, [1]), rice(2, "0", 3, []), rice(3, "1", 1, [0]),
                           rice(1, "1", 3, [0, 1]), plain("1"))),
            ("mixed-empty", Header(TERNARY, decoder.MIXED, decoder.AVERAGE, 2), b"")]:
        yield kept(Written(f"odd-{name}", encoder.seal(header, [1.5], payload)))
    # Levels have many strings, of every length from the chunk's down: each here in the next of all forms.
    for n in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 300]:
        source, forms = random.Random(n), itertools.cycle([(0, ""), *itertools.product((1, 2, 3), "01")])
        sums = [source.randint(-40, 40) for _ in range(n)]
        parts = [encoder.in_form(*next(forms), bits) for bits in encoder.level_parts(sums, 40) if bits]
        header = Header(TERNARY, LEVELS, decoder.AVERAGE, 40, count=n)
        yield kept(Written(f"odd-forms-{n}", encoder.seal(header, [1.5], strings_table(*parts))), n in (4, 33))
    yield kept(Written("odd-minus-zero", encoder.seal(Header(TERNARY, count=5), [-0.0], two_bit)))


# ---- sparse ---------------------------------------------------------------------------------------------------------

def sparse_pushes():
    for code, form in SPARSE_CODES.items():
        name = f"sparse-{FLOATS[form]}"
        for n in [0, 1, 2, 5, 33, 100, 3000]:
            yield kept(Largest(f"{name}-{n}", bell(n), code=code, rank=5, step=6, tensor=7), n in (0, 1, 33))
        yield kept(Largest(f"{name}-rounding", rounding_cases(), 1, code))
        yield Largest(f"{name}-magnitudes", all_magnitudes(5000), 0.5, code)
        yield kept(Largest(f"{name}-two-chunks", spiky(SPARSE_CHUNK + 1), 0.001, code))
    # Where ternary has chunks, and where a count is written wider.
    for n in [65535, 65536, 65537, 131071, 131072, 131073, SPARSE_CHUNK - 1, SPARSE_CHUNK]:
        yield Largest(f"sparse-{n}", spiky(n), 0.001)
        if n in (65536, SPARSE_CHUNK):
            yield Largest(f"sparse-{n}-most", spiky(n), 0.99)
    yield Largest("sparse-three-chunks", spiky(2 * SPARSE_CHUNK + 70000), 0.01, 1)
    for ratio in [0.25, 0.39, 0.4, 0.41, 0.6, 0.75, 1]:  # plain strings, and coded ones on either side
        yield Largest(f"sparse-share-{ratio}", bell(1000), ratio)
    # The largest Rice parameters: from 131072 on two of them do as well, and the first is taken.
    for at in [0, 131071, 131072, 196608, SPARSE_CHUNK - 1]:
        values = [0.0] * SPARSE_CHUNK
        values[at] = 1.0
        yield kept(Largest(f"sparse-one-at-{at}", values, 1e-6), at == 131072)
    for n in [189098, 189099]:  # the first parameter just not, and just, 17
        yield Largest(f"sparse-guess-{n}", [0.0] * n + [1.0], 1e-6)
    yield kept(Largest("sparse-ties", [1.0, -1.0, 2.0, 0.5] * 50, 0.4))
    yield Largest("sparse-zeros", [0.0, -0.0] * 35)
    yield from sparse_values()


def of_exponents(exponents, form):
    """Numbers of these exponent fields, in turn positive and negative, the first with the fraction of 1.5; those of
    field 0 are no zeros."""
    bias = 15 if form == F16 else 127
    return [(-1)**i * (1.5 if i == 0 else 1) * 2.0**(max(x, 1) - bias) * (0.5 if x == 0 else 1)
            for i, x in enumerate(exponents)]


@functools.lru_cache(maxsize=None)
def exponents_by_room(n, width, in_the_end):
    """Fields that an encoder writes apart with 2, 1 or no bits of room, and with so many too few that it does not: by
    what strings take, or by what it sends in the end. As many of these as are soon found, at the border itself some."""
    source, found = random.Random(n), {}
    for _ in range(3000):
        spread, far = source.uniform(0.5, 2) * n**0.5, source.random() * in_the_end
        largest = source.randrange(17 if in_the_end else 5, 2**width - 1)
        fields = [source.randrange(largest - 16) if largest > 16 and source.random() < far else
                  max(0, largest - int(source.expovariate(1) * spread)) for _ in range(n)]
        _, before, after = encoder.exponents_and_rooms(fields, width)
        room, other = (after, before) if in_the_end else (before, after)
        if abs(room) <= 2 and room < other:
            found.setdefault(room, fields)
        if len(found) == 5:
            break
    assert any(room >= 0 for room in found) and -1 in found
    return found


def sparse_values():
    """Values with their exponents apart, and not."""
    for code, form in SPARSE_CODES.items():
        name, width = f"sparse-{FLOATS[form]}", decoder.FIELDS[form][1]
        middle, most = 2**(width - 1), 2**width - 2
        for n in [1, 2, 3, 6, 7, 300]:
            for x in [0, 1, middle, most]:
                yield kept(Largest(f"{name}-{n}-of-field-{x}", of_exponents([x] * n, form), 1, code),
                           x == middle and n in (1, 2, 300))
        for x in [0, 1, 2, 3, most]:  # two values, and the first string of one bit
            yield Largest(f"{name}-fields-{x}-and-less", of_exponents([x, max(0, x - 1)], form), 1, code)
        for x in [15, 16, 17, 18, most]:  # up to 16 every field is asked about, and beyond it the last are sent
            ends = [x] * 300 + [y for y in (0, 1, 2, x - 17, x - 16, x - 15, x - 14) if y >= 0] * 2
            yield kept(Largest(f"{name}-ends-{x}", of_exponents(ends, form), 1, code), x in (16, 17))
        yield Largest(f"{name}-end-alone", of_exponents([most] * 30 + [0], form), 1, code)
        yield Largest(f"{name}-zeros-and-others", [0.0, -0.0, 1.0, 1.5, -1.25] * 20, 1, code)
        yield Largest(f"{name}-every-field", of_exponents([*range(most + 1)] * 2, form), 1, code)
        for kind, n in [("strings", 8), ("end", 30), ("end", 60)] + [("strings", 30), ("strings", 60)] * (form == F16):
            for room, fields in exponents_by_room(n, width, kind == "end").items():
                yield kept(Largest(f"{name}-{n}-{kind}-room-{room}", of_exponents(fields, form), 1, code),
                           room in (0, -1))
    # By hand: 8 bits, strings of 5, 4 and 4, 2 more and one value left of three: 24. Strings of 5, 4 and two left: 21,
    # and after another of 4: 25.
    for name, fields, room in [("at", [130, 128, 127], 0), ("past", [130, 127, 127], -1)]:
        assert encoder.exponents_and_rooms(fields, 8)[1] == room
        yield kept(Largest(f"sparse-none-3-{name}-the-border", of_exponents(fields, NONE), 1))


def parts(n, density, own, seed):
    """Elements of gspar: few sent, some of those with a value of their own."""
    source = random.Random(seed)
    return [None if source.random() >= density else
            float32(source.random() - 0.5) if source.random() < own else source.choice((PLUS, MINUS)) for _ in range(n)]


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
    # Own values: one, two of one exponent, which are written apart, and so many that they are.
    for name, own in [("one", [1.5]), ("zero", [-0.0]), ("two", [1.5, -1.0]), ("bell", bell(300)),
                      ("magnitudes", all_magnitudes(300)), ("room", of_exponents([130, 128, 127], NONE)),
                      ("no-room", of_exponents([130, 127, 127], NONE))]:
        frame = encoder.push_of_parts([PLUS, None, *own, MINUS, MINUS], 0.5)
        yield kept(Written(f"gspar-own-{name}", frame), name in ("one", "two", "bell"))
    for q in [0.0, -0.0, 1e-45, 3.4e38]:
        elements = [PLUS, None, MINUS, 1.0, -1.0, 0.0, -0.0]
        yield kept(Written(f"gspar-q-{q}", encoder.push_of_parts(elements, float32(q))))


def frames_of_parts(n_workers, n, density):
    return [encoder.push_of_parts(parts(n, density, 0.3, rank), float32(0.1 + rank), rank=rank, step=3, tensor=9)
            for rank in reversed(range(n_workers))]


def frames_of_largest(n_workers, n, ratio):
    """Of codes that differ."""
    return [Largest("", spiky(n, seed=rank), ratio, rank % 3, rank, 3, 9).frame for rank in reversed(range(n_workers))]


def columns(*workers):
    """Codec sparse: what each worker sends of a few elements."""
    return [encoder.push_of_sparse(elements, rank=rank) for rank, elements in enumerate(workers)]


def sparse_averages():
    for n_workers in [1, 2, 3, 9]:
        for n in [0, 1, 300]:
            for share in [0.02, 0.5, 1]:  # that of sums differs: some averages are sparse, and some dense
                name = f"{n_workers}-{n}-{share}"
                yield kept(Average(f"average-sparse-{name}", frames_of_largest(n_workers, n, share)), n == 300)
                yield kept(Average(f"average-gspar-{name}", frames_of_parts(n_workers, n, share)), n == 300)
    yield Average("average-sparse-two-chunks", frames_of_largest(2, SPARSE_CHUNK + 1, 0.001))
    yield Average("average-gspar-two-chunks", frames_of_parts(2, SPARSE_CHUNK + 1, 0.001))
    yield Average("average-sparse-magnitudes",
                  [Largest("", all_magnitudes(2000, seed=rank), 0.5, rank=rank).frame for rank in range(9)])
    for n in [64, 1000, 3000]:  # one element of 3000 is not sent: a payload as long as that of codec none
        for left_out in [0, 1, 2]:
            elements = [1.0] * (n // 2) + [None] * left_out + [-1.0] * (n - n // 2 - left_out)
            yield kept(Average(f"average-sparse-{n}-but-{left_out}", columns(elements)), n == 3000)
    few = [None] * 20
    sums = [[1e8, 2.5, 1e-45, -1e-45, -0.0, 3e38, -3.4e38], [1.0, -2.5, None, None, -0.0, 3e38, -3e38],
            [-1e8, None, None, None, None, None, None]]
    # In float32 and rank order; to 0; below the least number, also from below; to infinity.
    frames = columns(*([*map(lambda x: x if x is None else float32(x), worker), *few] for worker in sums))
    yield kept(Average("average-sparse-sums", frames))
    yield kept(Average("average-sparse-minus-zero", columns([-0.0] * 3 + few)))
    # Among others whose exponents are worth writing apart: numbers below the least normal one, and infinite ones.
    values = [*bell(1000, 1.0), *[3e38] * 3, -3e38, *[1e-40, -1e-45] * 2, *[None] * 2000]
    frames = columns(*[[x if x is None else float32(x) for x in values]] * 3)
    yield kept(Average("average-sparse-values", frames))
    yield kept(Average("average-sparse-nan", columns([*bell(30), math.nan, None, math.inf, *[None] * 30])))
    # Zeros of a dense payload are +0.
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
            data = with_values(encoder.string("1" * 65536), halves, form)
            frame = encoder.seal(Header(SPARSE, code, count=65536), [], data)
            yield Written(f"sparse-every-{FLOATS[form]}-{name}", frame)
    for codec in [SPARSE, NONE]:
        frame = encoder.seal(Header(codec, 0, decoder.AVERAGE, 3), [], b"")
        yield kept(Written(f"average-sparse-empty-{codec}", frame))
    # What encoders do not do, and decoders take: numbers that are not finite, zeros that are sent, other forms of
    # strings and values, an average that would be smaller dense, or is of one.
    odd = library.floats(bytes.fromhex("0000807f 000080ff 0000c07f 00000000 00000080"))
    yield kept(Written("odd-sparse-values", encoder.push_of_sparse([None, *odd, None])))
    yield kept(Written("odd-gspar-values", encoder.push_of_parts([PLUS, *odd, None], 0.5)))
    for name, string in [("plain", plain("0" * 300)), ("marked", rice(1, "0", 300, [0] * 300)),
                         ("form-3", rice(3, "0", 300, [0] * 300))]:
        frame = encoder.seal(Header(SPARSE, count=300), [], encoder.bytes_of_bits(string))
        yield kept(Written(f"odd-sparse-{name}", frame))
    for form in [1, 2, 3]:  # the last of as many elements as a string can ask about
        string = rice(form, "1", SPARSE_CHUNK, [SPARSE_CHUNK - 1])
        data = encoder.values_as_they_are(string, library.bytes_of_floats([2.0]), NONE)
        frame = encoder.seal(Header(SPARSE, count=SPARSE_CHUNK), [], data)
        yield kept(Written(f"odd-sparse-last-{form}", frame), form == 3)
    for code, form in SPARSE_CODES.items():
        # Values in the longer form, and a largest exponent field that none has; its strings in any form.
        data = encoder.pack_floats(form, [1.0, -1.5, 2.0, 0.0, 1.25, 1e-7])
        rests, exponents = encoder.cut_values(data, form)
        width, rest = decoder.FIELDS[form][1], encoder.bytes_of_bits("".join(rests))
        chunks = [("plain", encoder.values_as_they_are(plain("1" * 6), data, form))]
        for largest in [max(exponents) + 1, 2**width - 1]:
            parts, left = [plain("1" * 6), "1", encoder.number(largest, width)], exponents
            for x in decoder.exponents_asked(largest):
                bits = encoder.bits_where(lambda field: field < x, left)
                parts += [encoder.in_form(x % 4, "01"[x // 4 % 2], bits)] if bits else []
                left = [field for field in left if field < x]
            parts.append(encoder.numbers(encoder.exponents_in_the_end(exponents, largest), width))
            chunks.append((f"apart-{largest}", encoder.bytes_of_bits("".join(parts)) + rest))
        for name, data in chunks:
            frame = encoder.seal(Header(SPARSE, code, count=6), [], data)
            yield kept(Written(f"odd-sparse-{FLOATS[form]}-{name}", frame))
        # Nothing but zeros, though 3 fields are asked about.
        strings = [plain("11"), "1", encoder.number(3, width), plain("11") * 3]
        minus_zeros = encoder.bytes_of_bits((decoder.FIELDS[form][0] * "0" + "1") * 2)
        frame = encoder.seal(Header(SPARSE, code, count=2), [], encoder.bytes_of_bits("".join(strings)) + minus_zeros)
        yield kept(Written(f"odd-sparse-{FLOATS[form]}-zeros", frame))
    strings = "".join([rice(3, "0", 5, [1, 0]), rice(1, "1", 3, [0, 0]), rice(2, "0", 1, [])])
    payload = encoder.values_as_they_are(strings, library.bytes_of_floats([1.0, 2.0]), NONE)
    yield kept(Written("odd-gspar-strings", encoder.seal(Header(GSPAR, count=5), [0.5], payload)))
    for n_workers in [1, 32767]:
        header = Header(SPARSE, 0, decoder.AVERAGE, n_workers, count=9)
        payload = encoder.sparse([1.0] * 7 + [0.0, -0.0])
        yield kept(Written(f"odd-sparse-average-of-{n_workers}", encoder.seal(header, [], payload)))


def all_cases():
    yield from pushes()
    yield from averages()
    yield from written()
    yield from sparse_pushes()
    yield from parts_pushes()
    yield from sparse_averages()
    yield from sparse_written()


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
