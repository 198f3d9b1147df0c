"""Frames that every decoder must refuse, each for one reason: their checksums are right where they are not the point.

    python3 hostile.py --write     writes hostile/*.gw anew"""

import os
import struct
import sys

import encoder
import library
from decoder import (AVERAGE, BASE3, BF16, CHUNK, ENTROPY, F16, GAPS, GSPAR, LEVELS, MASK, MINUS, MIXED, NONE, PACKED,
                     PLUS, PRIVATE, RADIX, SPARSE, SPARSE_CHUNK, TERNARY, TWO_BIT, Header, bytewise_shape, tight_shape)
from encoder import bytes_of_bits, number, plain, rice

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hostile")
VALUES = [1, 0, -1, -1, 0, 1, 1]
N = len(VALUES)
PLAIN = encoder.two_bit(VALUES)


def sealed(header, payload, scalers=(1.5,)):
    return encoder.seal(header, list(scalers), payload)


def entry(size, code=0, compressed=False):
    return struct.pack("<I", size | code << 28 | compressed << 31)


def table(*chunks):
    """A payload of (code, compressed, bytes)."""
    return b"".join(entry(len(data), code, z) for code, z, data in chunks) + b"".join(data for _, _, data in chunks)


def resealed(frame, at, new):
    """Other bytes at an offset of the header, and the checksum made right again."""
    data = bytearray(frame)
    data[at:at + len(new)] = new
    checksum = library.xxh3(bytes(data[:48]), 0) ^ library.xxh3(bytes(data[56:]), 1)
    data[48:56] = struct.pack("<Q", checksum)
    return bytes(data)


def zstd(content):
    return library.zstd_compress(content, len(content) + 100)


def headers():
    good = sealed(Header(TERNARY, count=N), PLAIN)
    many = sealed(Header(TERNARY, PACKED, AVERAGE, 2, count=N), encoder.packed(VALUES, 2))
    yield "nothing", b"", "shorter than a header"
    yield "cut-in-magic", good[:1], "shorter than a header"
    yield "cut-in-header", good[:55], "shorter than a header"
    yield "cut-after-header", good[:56], "shorter than it says"
    yield "cut-in-scaler", good[:59], "shorter than it says"
    yield "cut-in-payload", good[:-1], "shorter than it says"
    yield "altered-header", good[:16] + b"\1" + good[17:], "wrong checksum"
    yield "altered-scaler", good[:56] + b"\1" + good[57:], "wrong checksum"
    yield "altered-payload", good[:-1] + b"\x55", "wrong checksum"
    yield "altered-checksum", good[:48] + bytes(8) + good[56:], "wrong checksum"
    # The two halves of the checksum are not interchangeable.
    swapped = library.xxh3(good[:48], 1) ^ library.xxh3(good[56:], 0)
    yield "seeds-swapped", good[:48] + struct.pack("<Q", swapped) + good[56:], "wrong checksum"
    for name, at, new, says in [
            ("magic", 0, b"WG", "not a frame"),
            ("version-0", 2, b"\0", "another version"),
            ("version-2", 2, b"\2", "another version"),
            ("code-packed", 4, b"\4", "a code that this kind"),
            ("code-radix", 4, b"\5", "a code that this kind"),
            ("code-levels", 4, b"\6", "a code that this kind"),
            ("code-8", 4, b"\x08", "a code that this kind"),
            ("code-255", 4, b"\xff", "a code that this kind"),
            ("flags-8", 5, b"\x08", "unknown flags"),
            ("flags-128", 5, b"\x80", "unknown flags"),
            ("workers-0", 6, b"\0\0", "outside the limits"),
            ("workers-2", 6, b"\2\0", "a push of several"),
            ("rank", 8, struct.pack("<I", 32767), "outside the limits"),
            ("begin-1", 24, struct.pack("<Q", 1), "not aligned"),
            ("begin-512", 24, struct.pack("<Q", 512), "not aligned"),
            ("begin-past-the-end", 24, struct.pack("<Q", 1 << 34), "outside the limits"),
            ("begin-wraps", 24, struct.pack("<Q", (1 << 64) - 1024), "outside the limits"),
            ("count-huge", 32, struct.pack("<Q", 1 << 34), "more elements than"),
            ("count-above-limit", 32, struct.pack("<Q", (1 << 34) + 1), "outside the limits"),
            ("count-wraps", 32, struct.pack("<Q", (1 << 64) - 1), "outside the limits"),
            ("count-as-many-as-payload-allows", 32, struct.pack("<Q", 16384 * len(PLAIN)), "do not add up"),
            ("count-more-than-payload-allows", 32, struct.pack("<Q", 16384 * len(PLAIN) + 1), "more elements than"),
            ("count-less", 32, struct.pack("<Q", 4), "do not add up"),
            ("payload-huge", 40, struct.pack("<Q", 1 << 62), "shorter than it says"),
            ("payload-wraps", 40, struct.pack("<Q", (1 << 64) - 56), "shorter than it says")]:
        yield name, resealed(good, at, new), says
    for codec in (0, 7, 255):
        yield f"codec-{codec}", sealed(Header(codec, count=N), PLAIN, []), "unknown codec"
    yield "payload-none", sealed(Header(TERNARY, count=N), b""), "more elements than"
    yield "average-code-2bit", resealed(many, 4, b"\0"), "a code that this kind"
    yield "average-code-mask", resealed(many, 4, b"\2"), "a code that this kind"
    yield "average-code-gaps", resealed(many, 4, b"\3"), "a code that this kind"
    yield "average-private", resealed(many, 5, bytes([AVERAGE | PRIVATE])), "private"
    yield "average-of-none", resealed(many, 6, b"\0\0"), "outside the limits"
    yield "average-of-32768", resealed(many, 6, b"\0\x80"), "outside the limits"
    yield "begin-not-of-bucket", sealed(Header(TERNARY, bucket=2048, begin=1024, count=N), PLAIN), "not aligned"
    yield "scalers-absent", sealed(Header(TERNARY, bucket=1, count=N), PLAIN), "shorter than it says"
    many_scalers = resealed(resealed(good, 20, b"\1"), 32, struct.pack("<Q", 16384 * len(PLAIN)))
    yield "scalers-many", many_scalers, "shorter than it says"
    for name, scaler in [("negative", -1.0), ("least-negative", -1e-45), ("infinite", float("inf")),
                         ("nan", float("nan"))]:
        yield f"scaler-{name}", sealed(Header(TERNARY, count=N), PLAIN, [scaler]), "a scaler is"
        frame = sealed(Header(TERNARY, PACKED, AVERAGE, 2, bucket=4, count=N), encoder.packed(VALUES, 2), [1.5, scaler])
        yield f"scaler-second-{name}", frame, "a scaler is"


def float_frames():
    for codec, size in [(NONE, 4), (BF16, 2), (F16, 2)]:
        good = sealed(Header(codec, count=2), bytes(2 * size), [])
        for name, at, new, says in [
                ("code", 4, b"\1", "a code that this kind"), ("mixed", 4, b"\7", "a code that this kind"),
                ("entropy", 5, bytes([ENTROPY]), "only ternary"), ("private", 5, bytes([PRIVATE]), "only ternary"),
                ("bucket", 20, b"\1", "only ternary"), ("count-less", 32, b"\1", "disagree"),
                ("count-more", 32, b"\3", "disagree"),
                ("count-huge", 32, struct.pack("<Q", 1 << 34), "disagree"), ("workers", 6, b"\2", "a push of several")]:
            yield f"float-{codec}-{name}", resealed(good, at, new), says
    yield "float-odd-payload", sealed(Header(BF16, count=1), bytes(3), []), "disagree"


def push_chunks():
    def push(code, payload, flags=0, n=N):
        return sealed(Header(TERNARY, code, flags, count=n), payload)

    yield "2bit-11", push(TWO_BIT, b"\x57\x55"), "field 11"
    yield "2bit-11-in-padding", push(TWO_BIT, PLAIN[:1] + bytes([PLAIN[1] | 0xC0])), "field 11"
    yield "2bit-padding-00", push(TWO_BIT, PLAIN[:1] + bytes([PLAIN[1] & 0x3F])), "padding is not 01"
    yield "2bit-padding-10", push(TWO_BIT, PLAIN[:1] + bytes([PLAIN[1] & 0x3F | 0x80])), "padding is not 01"
    yield "2bit-11-far", push(TWO_BIT, b"\x55" * 99 + b"\xd5", n=400), "field 11"
    yield "2bit-short", push(TWO_BIT, PLAIN[:1]), "do not add up"
    yield "2bit-long", push(TWO_BIT, PLAIN + b"\x55"), "do not add up"
    base3 = encoder.base3(VALUES)
    yield "base3-243", push(BASE3, b"\xf3" + base3[1:]), "above 242"
    yield "base3-255", push(BASE3, base3[:1] + b"\xff"), "above 242"
    yield "base3-243-far", push(BASE3, b"\x79" * 130 + b"\xf3" + b"\x79" * 9, n=700), "above 242"
    for digit in (0, 2):
        padded = base3[1] - 1 * 81 + digit * 81
        yield f"base3-padding-{digit}", push(BASE3, base3[:1] + bytes([padded])), "padding is not 1"
    yield "base3-long", push(BASE3, base3 + b"\x79"), "do not add up"

    mask = encoder.mask(VALUES)
    for name, data, says in [
            ("empty", b"", "cut short"), ("padding", bytes([mask[0] | 0x80]) + mask[1:], "mask: padding"),
            ("no-signs", mask[:1], "signs: cut short"), ("long", mask + b"\0", "signs: too long"),
            ("sign-padding", mask[:1] + bytes([mask[1] | 0x20]), "signs: padding"),
            ("more-nonzeros-than-signs", b"\x7f", "signs: cut short")]:
        yield f"mask-{name}", push(MASK, table((0, False, data))), says


def strings():
    """Gaps: what is wrong with their strings of bits."""
    first = plain("1" * 4 + "0" * 23)  # four bytes, and four nonzeros
    cases = [(f"k-{k}", 27, rice(k, "1", 27, [0]) + plain("0"), "above 16") for k in range(17, 32)]
    cases.append(("second-k-17", 27, plain("1" + "0" * 26) + rice(17, "1", 1, [0]), "above 16"))
    for name, n, k, distances in [
            ("count-28", 27, 1, [0] * 28), ("count-31", 27, 1, [0] * 31), ("count-3", 2, 1, [0] * 3),
            ("past-1", 1, 1, [1]), ("past-the-end", 27, 1, [27]), ("second-past-the-end", 27, 1, [13, 13]),
            ("far-past-the-end", 27, 16, [1 << 20]), ("past-2^32", 27, 16, [1 << 32])]:
        cases.append((name, n, rice(k, "1", n, distances) + plain("1"), "past the end"))
    cases += [
        ("zeros-past-the-end", 27, rice(1, "0", 27, [27]) + plain("1" * 27), "past the end"),
        ("signs-past-the-end", 27, first + rice(1, "1", 4, [4]), "past the end"),
        ("empty", 27, "", "cut short"),
        ("ends-in-first", 27, first[:24], "cut short"),
        ("ends-before-signs", 27, first, "cut short"),
        ("ends-in-signs", 27, first + plain("000"), "cut short"),
        ("ends-in-k", 25, plain("1" * 25), "cut short"),
        ("ends-before-v", 22, plain("1" * 22) + number(1, 5), "cut short"),
        ("ends-in-count", 27, first + rice(1, "1", 4, [0])[:8], "cut short"),
        ("ends-in-zeros", 27, first + rice(1, "1", 4, [99])[:16], "cut short"),
        ("ends-in-low-bits", 27, first + rice(16, "1", 4, [0])[:16], "cut short"),
        ("padding", 27, first + plain("0101") + "0000001", "padding is not 0"),
        ("padding-first", 5, plain("0" * 5) + "1", "padding is not 0"),
        ("long", 27, first + plain("0101") + "0" * 15, "too long"),
        ("long-of-ones", 27, first + plain("0101") + "0" * 7 + "1" * 8, "too long"),
        ("long-no-padding", 27, plain("0" * 27) + "0" * 8, "too long")]
    for name, n, bits, says in cases:
        yield f"gaps-{name}", sealed(Header(TERNARY, GAPS, count=n), table((0, False, bytes_of_bits(bits)))), says


def tables():
    def push(code, payload, flags=0, n=N):
        return sealed(Header(TERNARY, code, flags, count=n), payload)

    mask, last = encoder.mask([0] * CHUNK), encoder.mask([1] * 9)
    two = CHUNK + 9
    yield "table-cut", push(MASK, entry(1) + b"\0", n=two), "table: cut short"
    yield "table-first-longer", push(MASK, entry(len(mask) + 1) + entry(3) + mask + last, n=two), "too long"
    yield "table-first-shorter", push(MASK, entry(len(mask) - 1) + entry(5) + mask + last, n=two), "cut short"
    yield "table-less-than-payload", push(MASK, entry(len(mask)) + entry(3) + mask + last, n=two), "do not add up"
    yield "table-more-than-payload", push(MASK, entry(len(mask)) + entry(5) + mask + last, n=two), "do not add up"
    yield "table-huge", push(MASK, entry((1 << 28) - 1) + entry((1 << 28) - 1) + mask + last, n=two), "do not add up"
    yield "table-of-no-chunks", push(MASK, entry(0), n=0), "do not add up"
    yield "table-absent", push(TWO_BIT, PLAIN, ENTROPY), "table: cut short"
    yield "table-not-due", push(TWO_BIT, table((0, False, PLAIN))), "do not add up"
    yield "table-code-not-mixed", push(MASK, table((MASK, False, encoder.mask(VALUES)))), "a code in a frame"
    base3 = table((BASE3, False, encoder.base3(VALUES)))
    yield "table-code-with-entropy", push(BASE3, base3, ENTROPY), "a code in a frame"
    yield "table-zstd-not-due", push(MASK, table((0, True, zstd(encoder.mask(VALUES))))), "without ENTROPY"
    for code in (PACKED, RADIX, LEVELS, MIXED):
        yield f"mixed-push-{code}", push(MIXED, table((code, False, PLAIN))), "that pushes do not have"
    for code in (TWO_BIT, BASE3, MASK, GAPS, MIXED):
        frame = sealed(Header(TERNARY, MIXED, AVERAGE, 2, count=N), table((code, False, PLAIN)))
        yield f"mixed-average-{code}", frame, "that averages do not have"
    yield "mixed-other-code", push(MIXED, table((BASE3, False, PLAIN[:1]))), "wrong length"


def compressed():
    def push(code, data, n=400):
        return sealed(Header(TERNARY, code, ENTROPY, count=n), table((0, True, data)))

    good = zstd(bytes([0x55] * 100))
    yield "zstd-empty", push(TWO_BIT, b""), "not one zstd frame"
    yield "zstd-cut", push(TWO_BIT, good[:-1]), "not one zstd frame"
    yield "zstd-long", push(TWO_BIT, good + b"\0"), "not one zstd frame"
    yield "zstd-two", push(TWO_BIT, zstd(bytes([0x55] * 50)) * 2), "not one zstd frame"
    yield "zstd-skippable", push(TWO_BIT, bytes.fromhex("502a4d180100000000") + good), "not one zstd frame"
    yield "zstd-no-magic", push(TWO_BIT, good[4:]), "not one zstd frame"
    yield "zstd-of-less", push(TWO_BIT, zstd(bytes([0x55] * 99))), "wrong length"
    yield "zstd-of-more", push(TWO_BIT, zstd(bytes([0x55] * 101))), "longer than its values"
    yield "zstd-of-a-million", push(TWO_BIT, zstd(bytes(1000000))), "longer than its values"
    yield "zstd-of-11", push(TWO_BIT, zstd(bytes([0x55] * 99 + [0xD5]))), "field 11"
    yield "zstd-of-243", push(BASE3, zstd(bytes([121] * 79 + [243]))), "above 242"
    yield "zstd-of-mask", push(MASK, zstd(b"\1" + bytes(49))), "signs: cut short"
    yield "zstd-of-gaps-long", push(GAPS, zstd(encoder.gaps([0] * 400) + b"\0")), "too long"
    yield "zstd-of-gaps-a-million", push(GAPS, zstd(bytes(1000000))), "longer than its values"
    many = bytes_of_bits(rice(1, "1", CHUNK, [0] * (2 * CHUNK - 1)))
    yield "zstd-of-gaps-count-131071", push(GAPS, zstd(many), n=CHUNK), "past the end"
    yield "zstd-not-compressed", push(TWO_BIT, bytes([0x55] * 100)), "not one zstd frame"


def averages():
    def average(code, payload, flags=0, workers=2, n=N):
        return sealed(Header(TERNARY, code, AVERAGE | flags, workers, count=n), payload)

    packed = encoder.packed(VALUES, 2)
    yield "packed-above-2N", average(PACKED, b"\x7f\0\x7f"), "a digit above 2N"
    planes = (bytes(7) + b"\x80") * 2  # element 63 is 3, where one worker reaches 2
    yield "packed-last-above-2N", average(PACKED, planes, n=64, workers=1), "a digit above 2N"
    yield "packed-second-group-above-2N", average(PACKED, bytes(16) + planes, n=128, workers=1), "a digit above 2N"
    yield "packed-padding", average(PACKED, bytes([packed[0] | 0x80]) + packed[1:]), "packed: padding"
    yield "packed-short", average(PACKED, packed[:-1]), "do not add up"
    yield "packed-long", average(PACKED, packed + b"\0"), "do not add up"
    yield "packed-zstd-of-less", average(PACKED, table((0, True, zstd(packed[:-1]))), ENTROPY), "packed: cut short"

    # N = 2: base 5. Seven digits take three bytes, 5^7 = 78125; longer words hold more.
    yield "radix-last-word-above", average(RADIX, (5**7).to_bytes(3, "little")), "at or above"
    yield "radix-all-ones", average(RADIX, b"\xff" * 3), "at or above"
    yield "radix-short", average(RADIX, bytes(2)), "do not add up"
    yield "radix-long", average(RADIX, bytes(4)), "do not add up"
    yield "radix-of-32767", average(RADIX, b"\xff\xff", workers=32767, n=1), "at or above"
    digits = [0] * 299 + [4] * 3
    content = encoder.radix(digits, 5, bytewise_shape(5))
    for name, n, content, says in [
            ("last-above", 302, content[:-1] + b"\x7d", "at or above"),
            ("first-above", 302, b"\x7d" + content[1:], "at or above"),
            ("far-above", 1803, bytes(600) + b"\x7d", "at or above"),
            ("tight", 302, encoder.radix(digits, 5, tight_shape(5)), "wrong length")]:
        yield f"radix-zstd-{name}", average(RADIX, table((0, True, zstd(content))), ENTROPY, n=n), says

    parts = [plain(bits) for bits in ["1011011", "01100", "110", "10", "10", "1"]]  # 3, 0, -3, -1, 0, 2, 1
    levels = bytes_of_bits("".join(parts))
    for name, workers, data, says in [
            ("empty", 3, b"", "cut short"), ("cut", 3, levels[:-1], "cut short"),
            ("no-signs", 3, bytes_of_bits("".join(parts[:1])), "cut short"),
            ("of-more-workers", 4, levels, "cut short"), ("of-fewer-workers", 2, levels, "too long"),
            ("of-one-worker", 1, levels, "too long"), ("long", 3, levels + b"\0", "too long"),
            ("padding", 3, levels[:-1] + bytes([levels[-1] | 0x80]), "padding is not 0"),
            *[(f"k-17-{i}", 3, bytes_of_bits("".join(parts[:i]) + rice(17, "1", m, [0]) + 40 * "0"), "above 16")
              for i, m in enumerate([7, 5, 3, 2, 2, 1])],
            *[(f"past-{i}", 3, bytes_of_bits("".join(parts[:i]) + rice(1, "1", m, [m]) + 40 * "0"), "past the end")
              for i, m in enumerate([7, 5, 3, 2, 2, 1])]]:
        yield f"levels-{name}", average(LEVELS, table((0, False, data)), workers=workers), says
    yield "levels-no-table", average(LEVELS, levels, workers=3), "table: "
    yield "levels-code-in-table", average(LEVELS, table((LEVELS, False, levels)), workers=3), "a code in a frame"
    for name, data in [("zstd", zstd(levels)), ("zstd-bit", levels)]:
        yield f"levels-{name}", average(LEVELS, table((0, True, data)), ENTROPY, workers=3), "levels in a zstd frame"
        mixed = average(MIXED, table((LEVELS, True, data)), ENTROPY, workers=3)
        yield f"levels-mixed-{name}", mixed, "levels in a zstd frame"
    zeros = table((0, False, bytes_of_bits(plain("0" * 7))))
    yield "levels-of-1025-workers", average(LEVELS, zeros, workers=1025), "too many workers"
    mixed = table((LEVELS, False, bytes_of_bits(plain("0" * 7))))
    yield "levels-mixed-of-1025-workers", average(MIXED, mixed, workers=1025), "too many workers"


ELEMENTS = [None, 1.5, None, -2.0, 3.0, None, None]
PARTS = [PLUS, 1.5, None, MINUS, 3.0, None, None]


def sparse_headers():
    pushes = {"sparse": encoder.push_of_sparse(ELEMENTS), "gspar": encoder.push_of_parts(PARTS, 0.5)}
    many = sealed(Header(SPARSE, 0, AVERAGE, 2, count=N), encoder.sparse(ELEMENTS), [])
    for kind, good in pushes.items():
        for name, at, new, says in [
                ("code-3", 4, b"\3", "a code that this kind"), ("code-7", 4, b"\7", "a code that this kind"),
                ("code-255", 4, b"\xff", "a code that this kind"),
                ("entropy", 5, bytes([ENTROPY]), "only ternary"), ("private", 5, bytes([PRIVATE]), "only ternary"),
                ("flags-8", 5, b"\x08", "unknown flags"), ("bucket-1", 20, b"\1", "only ternary"),
                ("bucket-1024", 20, struct.pack("<I", 1024), "only ternary"),
                ("workers", 6, b"\2", "a push of several"),
                ("begin", 24, b"\1", "not aligned"), ("payload-huge", 40, struct.pack("<Q", 1 << 62), "shorter than"),
                ("count-0", 32, b"\0", "do not add up"), ("count-less", 32, b"\3", "values: wrong length"),
                ("count-more", 32, struct.pack("<Q", 70), "strings: "),
                ("count-huge", 32, struct.pack("<Q", 1 << 34), "more elements")]:
            yield f"{kind}-{name}", resealed(good, at, new), says
        payload_bytes = len(good) - 56 - 4 * (kind == "gspar")
        for name, more, says in [("as-many-as", 0, "table: cut short"), ("more-than", 1, "more elements")]:
            frame = resealed(good, 32, struct.pack("<Q", SPARSE_CHUNK * payload_bytes + more))
            yield f"{kind}-count-{name}-payload-allows", frame, says
        yield f"{kind}-cut", good[:-1], "shorter than it says"
        yield f"{kind}-altered", good[:-1] + bytes([good[-1] ^ 1]), "wrong checksum"
    for code in (1, 2):
        yield f"gspar-code-{code}", resealed(pushes["gspar"], 4, bytes([code])), "a code that this kind"
        yield f"sparse-average-code-{code}", resealed(many, 4, bytes([code])), "a code that this kind"
        half = sealed(Header(SPARSE, code, AVERAGE, 2, count=N), encoder.sparse(ELEMENTS, code=code), [])
        yield f"sparse-average-of-halves-{code}", half, "a code that this kind"
    for workers in (1, 2):
        frame = sealed(Header(GSPAR, 0, AVERAGE, workers, count=N), encoder.sparse(PARTS, GSPAR), [0.5])
        yield f"gspar-average-of-{workers}", frame, "a code that this kind"
    yield "sparse-average-entropy", resealed(many, 5, bytes([AVERAGE | ENTROPY])), "only ternary"
    yield "sparse-average-private", resealed(many, 5, bytes([AVERAGE | PRIVATE])), "private"
    yield "sparse-average-bucket", resealed(many, 20, b"\1"), "only ternary"
    yield "sparse-average-of-none", resealed(many, 6, b"\0"), "outside the limits"
    for name, q in [("negative", -1.0), ("least-negative", -1e-45), ("infinite", float("inf")),
                    ("minus-infinite", float("-inf")), ("nan", float("nan"))]:
        yield f"gspar-q-{name}", encoder.push_of_parts(PARTS, q), "a scaler is"
    frame = sealed(Header(GSPAR, count=N), encoder.sparse(PARTS, GSPAR), [])
    yield "gspar-q-absent", resealed(frame, 40, struct.pack("<Q", len(frame) - 60)), "values: wrong length"
    yield "gspar-q-cut", resealed(sealed(Header(GSPAR, count=0), b"", [0.5])[:59], 40, bytes(8)), "shorter than it says"


def sparse_chunks():
    """Sizes, tables and strings of bits."""
    def push(data, n=N, code=0):
        return sealed(Header(SPARSE, code, count=n), data, [])

    def gspar(data, n=N):
        return sealed(Header(GSPAR, count=n), data, [0.5])

    for code in range(3):
        data, size = encoder.sparse(ELEMENTS, code=code), 4 if code == 0 else 2
        for name, altered in [("short", data[:-1]), ("long", data + b"\0"), ("value-short", data[:-size]),
                              ("value-long", data + bytes(size)), ("no-values", data[:-3 * size])]:
            yield f"sparse-{code}-{name}", push(altered, code=code), "values: wrong length"
        other = encoder.sparse(ELEMENTS, code=(code + 1) % 3)
        if len(other) != len(data):
            yield f"sparse-{code}-other-values", push(other, code=code), "values: wrong length"
    yield "sparse-nothing", push(b""), "more elements"
    yield "sparse-empty-long", push(b"\0", n=0), "do not add up"
    yield "gspar-empty-long", gspar(b"\0", n=0), "do not add up"
    yield "gspar-nothing", gspar(b""), "more elements"
    data = encoder.sparse(PARTS, GSPAR)
    for name, altered in [("short", data[:-1]), ("long", data + b"\0"), ("value-short", data[:-4]),
                          ("value-long", data + bytes(4)), ("values-of-all", data + bytes(8)),
                          ("no-values", data[:-8])]:
        yield f"gspar-{name}", gspar(altered), "values: wrong length"

    first = plain("1" * 3 + "0" * 24)
    for k in range(17, 32):
        yield f"sparse-k-{k}", push(bytes_of_bits(rice(k, "1", 27, [0]) + 40 * "0"), n=27), "above 16"
    for name, n, bits, says in [
            ("count-28", 27, rice(1, "1", 27, [0] * 28), "past the end"),
            ("past-the-end", 27, rice(1, "1", 27, [27]), "past the end"),
            ("second-past-the-end", 27, rice(1, "1", 27, [13, 13]), "past the end"),
            ("zeros-past-the-end", 27, rice(1, "0", 27, [27]), "past the end"),
            ("past-2^32", 27, rice(16, "1", 27, [1 << 32]), "past the end"),
            ("past-65536", 65537, rice(16, "1", 65537, [65537]), "past the end"),
            ("count-65537", 65536, rice(1, "0", 65536, [0] * 65537), "past the end"),
            ("past-262143", SPARSE_CHUNK, rice(16, "1", SPARSE_CHUNK, [SPARSE_CHUNK]), "past the end"),
            ("count-262145", SPARSE_CHUNK, rice(1, "0", SPARSE_CHUNK, [0] * (SPARSE_CHUNK + 1)), "past the end"),
            ("count-narrow", SPARSE_CHUNK, number(1, 5) + "1" + number(0, 17), "cut short"),
            ("ends-in-string", 27, first[:24], "cut short"), ("ends-in-k", SPARSE_CHUNK, plain("0" * 3), "cut short"),
            ("ends-in-count", 27, rice(1, "1", 27, [0])[:8], "cut short"),
            ("ends-in-zeros", 27, rice(1, "1", 27, [99])[:24], "cut short"),
            ("ends-in-low-bits", 27, rice(16, "1", 27, [0])[:24], "cut short"),
            ("padding-last", 7, plain("0" * 7) + "0001", "padding is not 0"),
            ("padding-first", 7, plain("0" * 7) + "1", "padding is not 0")]:
        yield f"sparse-{name}", push(bytes_of_bits(bits), n=n), says
    yield "sparse-padding-before-values", push(bytes_of_bits(plain("1000000") + "0001") + bytes(4)), "padding is not 0"

    strings, sizes = [plain("1" * 4 + "0" * 3), plain("1010"), plain("01")], [7, 4, 2]
    for i, m in enumerate(sizes):
        before = "".join(strings[:i])
        yield f"gspar-k-17-{i}", gspar(bytes_of_bits(before + rice(17, "1", m, [0]) + 80 * "0")), "above 16"
        yield f"gspar-past-{i}", gspar(bytes_of_bits(before + rice(1, "1", m, [m]) + 80 * "0")), "past the end"
        if i > 0:  # no larger number than 7 fits its bits
            too_many = bytes_of_bits(before + rice(1, "1", m, [0] * (m + 1)))
            yield f"gspar-too-many-{i}", gspar(too_many), "past the end"
        full_bytes = (len(before + strings[i]) - 1) // 8
        yield f"gspar-ends-in-{i}", gspar(bytes_of_bits("".join(strings))[:full_bytes]), "cut short"
    whole = "".join(strings)
    for name, more in [("first", "1"), ("last", (-len(whole) - 1) % 8 * "0" + "1")]:
        yield f"gspar-padding-{name}", gspar(bytes_of_bits(whole + more) + bytes(8)), "padding is not 0"


def sparse_tables():
    two = SPARSE_CHUNK + 9
    for kind, codec, scalers in [("sparse", SPARSE, []), ("gspar", GSPAR, [0.5])]:
        full, last = [encoder.sparse([None] * n + [1.0], codec) for n in (SPARSE_CHUNK - 1, 8)]
        a, b = len(full), len(last)
        for name, payload, says in [
                ("cut-3", bytes(3), "table: cut short"), ("cut-7", struct.pack("<II", 0, 0)[:7], "table: cut short"),
                ("cut-4", struct.pack("<I", a), "table: cut short"),
                ("alone", struct.pack("<II", a, b), "do not add up"), ("zeros", struct.pack("<II", 0, 0), "cut short"),
                ("absent", full + last, "do not add up"),
                ("of-one", struct.pack("<I", a) + full + last, "do not add up"),
                ("of-three", struct.pack("<III", a, b, 0) + full + last, "do not add up"),
                ("first-longer", struct.pack("<II", a + 1, b - 1) + full + last, "values: wrong length"),
                ("first-shorter", struct.pack("<II", a - 1, b + 1) + full + last, "values: wrong length"),
                ("value-moved", struct.pack("<II", a - 4, b + 4) + full + last, "values: wrong length"),
                ("first-all", struct.pack("<II", a + b, 0) + full + last, "values: wrong length"),
                ("last-all", struct.pack("<II", 0, a + b) + full + last, "cut short"),
                ("less-than-payload", struct.pack("<II", a, b - 1) + full + last, "do not add up"),
                ("more-than-payload", struct.pack("<II", a, b + 1) + full + last, "do not add up"),
                ("huge", struct.pack("<II", 2**32 - 1, 2**32 - 1) + full + last, "do not add up"),
                ("wraps", struct.pack("<II", 2**32 - b, a + 2 * b) + full + last, "do not add up"),
                ("bit-31", struct.pack("<II", a | 1 << 31, b) + full + last, "do not add up"),
                ("payload-cut", struct.pack("<II", a, b) + full + last[:-1], "do not add up"),
                ("payload-long", struct.pack("<II", a, b) + full + last + b"\0", "do not add up"),
                ("swapped", struct.pack("<II", b, a) + last + full, "cut short")]:
            yield f"{kind}-table-{name}", sealed(Header(codec, count=two), payload, scalers), says
        # One chunk has no table, also where ternary has several.
        for n in (N, CHUNK + 1):
            data = encoder.sparse([None] * (n - 1) + [1.0], codec)
            says = "strings: cut short" if codec == GSPAR and n > N else "values: wrong length"
            yield f"{kind}-table-not-due-{n}", sealed(Header(codec, count=n), entry(len(data)) + data, scalers), says
        parts = [encoder.sparse([None] * n, codec) for n in (CHUNK, 1)]
        payload = b"".join(map(entry, map(len, parts))) + b"".join(parts)
        yield f"{kind}-chunks-of-ternary", sealed(Header(codec, count=CHUNK + 1), payload, scalers), says


def all_cases():
    """(name, frame, what the decoder here says of it)"""
    for group in [headers, float_frames, push_chunks, strings, tables, compressed, averages, sparse_headers,
                  sparse_chunks, sparse_tables]:
        yield from group()


def path_of(name):
    return os.path.join(FOLDER, name + ".gw")


def write():
    os.makedirs(FOLDER, exist_ok=True)
    for name in os.listdir(FOLDER):
        os.remove(os.path.join(FOLDER, name))
    for name, frame, _ in all_cases():
        with open(path_of(name), "wb") as file:
            file.write(frame)


if __name__ == "__main__":
    library.check()
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: hostile.py --write")
    write()
