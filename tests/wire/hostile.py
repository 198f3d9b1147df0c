"""Frames that every decoder must refuse, each for one reason: their checksums are right where they are not the point.

    python3 hostile.py --write     writes hostile/*.gw anew"""

import os
import struct
import sys

import encoder
import library
from decoder import (AVERAGE, BASE3, BF16, CHUNK, ENTROPY, F16, FIELDS, FLOAT_BYTES, GAPS, GSPAR, LEVELS, MASK, MINUS,
                     MIXED, NONE, PACKED, PLUS, PRIVATE, RADIX, SPARSE, SPARSE_CHUNK, SPARSE_CODES, TERNARY, TWO_BIT,
                     Header, bytewise_shape, tight_shape)
from encoder import bytes_of_bits, number, plain, rice, rice_code, rice_head

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


def long_length(form, length, m):
    """A string of m bits whose count would have `length` bits; what follows could be read."""
    return number(form, 2) + "1" + number(length, m.bit_length().bit_length()) + number(0, length) + "10" * 40


def long_count(c, m):
    return rice_head(1, "1", c, m) + "10" * c


TOO_LONG, TOO_MANY = "a count longer", "more marked"


def strings():
    """Gaps: what is wrong with their strings of bits."""
    first = plain("1" * 8 + "0" * 22)  # four bytes, and eight nonzeros
    cases = [(f"length-{length}-of-{m}-form-{form}", m, long_length(form, length, m), TOO_LONG) for form, length, m in [
        (1, 3, 2), (2, 3, 3), (1, 5, 8), (2, 6, 8), (3, 7, 8), (1, 5, 15), (1, 6, 30), (2, 6, 30), (3, 6, 30),
        (1, 7, 31), (1, 7, 32), (1, 7, 63), (1, 9, 128), (1, 15, 255), (1, 17, 65535), (1, 18, 65536), (2, 31, 65536)]]
    cases.append(("second-length-5", 30, first + long_length(1, 5, 8), TOO_LONG))
    for m, c in [(2, 3), (4, 5), (4, 7), (8, 9), (8, 15), (27, 28), (27, 31), (30, 31), (65535, 65536), (65536, 65537),
                 (65536, 131071)]:
        says = TOO_LONG if c.bit_length() > m.bit_length() else TOO_MANY
        cases.append((f"count-{c}-of-{m}", m, long_count(c, m), says))
    cases.append(("second-count-9", 30, first + long_count(9, 8), TOO_MANY))
    for name, n, form, distances in [
            ("past-1", 1, 1, [1]), ("past-the-end", 27, 1, [27]), ("past-the-end-2", 27, 2, [27]),
            ("past-the-end-3", 27, 3, [27]), ("second-past-the-end", 27, 1, [13, 13]), ("of-all-past-the-end", 5, 1,
            [0, 0, 0, 0, 1]), ("far-past-the-end", 27, 3, [1 << 12]), ("past-2^32", CHUNK, 3, [1 << 32])]:
        cases.append((name, n, rice(form, "1", n, distances) + plain("1"), "past the end"))
    cases += [
        ("zeros-past-the-end", 27, rice(1, "0", 27, [27]) + plain("1" * 27), "past the end"),
        ("signs-past-the-end", 30, first + rice(1, "1", 8, [8]), "past the end"),
        ("empty", 27, "", "cut short"),
        ("ends-in-first", 30, first[:24], "cut short"),
        ("ends-before-signs", 30, first, "cut short"),
        ("ends-in-signs", 30, first + plain("000000"), "cut short"),
        ("ends-in-form", 29, plain("1" * 29), "cut short"),
        ("ends-before-v", 28, plain("1" * 28) + number(1, 2), "cut short"),
        ("ends-before-length", 27, plain("1" * 27) + rice_head(1, "1", 16, 27)[:3], "cut short"),
        ("ends-in-length", 26, plain("1" * 26) + rice_head(1, "1", 16, 26)[:4], "cut short"),
        ("ends-before-count", 24, plain("1" * 24) + rice_head(1, "1", 16, 24)[:6], "cut short"),
        ("ends-in-count", 22, plain("1" * 22) + rice_head(1, "1", 16, 22)[:8], "cut short"),
        ("ends-before-zeros", 24, plain("1" * 24) + rice_head(1, "1", 1, 24), "cut short"),
        ("ends-in-zeros", 30, first + rice(1, "1", 8, [99])[:16], "cut short"),
        ("ends-in-low-bits", 30, first + rice(3, "1", 8, [0])[:8], "cut short"),
        ("padding", 30, first + plain("0" * 8) + "000001", "padding is not 0"),
        ("padding-first", 5, plain("0" * 5) + "1", "padding is not 0"),
        ("long", 30, first + plain("0" * 8) + "0" * 14, "too long"),
        ("long-of-ones", 30, first + plain("0" * 8) + "0" * 6 + "1" * 8, "too long"),
        ("long-no-padding", 30, plain("0" * 30) + "0" * 8, "too long")]
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
    many = bytes_of_bits(long_count(2 * CHUNK - 1, CHUNK))
    yield "zstd-of-gaps-count-131071", push(GAPS, zstd(many), n=CHUNK), TOO_MANY
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

    # 3, 0, -3, -1, 0, 2, 1 and four more zeros: 36 bits
    asked = ["10110110000", "01100", "110", "10", "10", "1"]
    parts, n = list(map(plain, asked)), len(asked[0])
    levels = bytes_of_bits("".join(parts))
    cases = [
        ("empty", 3, b"", "cut short"), ("cut", 3, levels[:-1], "cut short"),
        ("no-signs", 3, bytes_of_bits("".join(parts[:1])), "cut short"),
        ("of-more-workers", 4, levels, "cut short"), ("of-fewer-workers", 2, levels, "too long"),
        ("of-one-worker", 1, levels, "too long"), ("long", 3, levels + b"\0", "too long"),
        ("padding", 3, levels[:-1] + bytes([levels[-1] | 0x80]), "padding is not 0")]
    for i, m in enumerate(map(len, asked)):
        for name, bits, says in [("length", long_length(1, m.bit_length() + 1, m), TOO_LONG),
                                 ("count", long_count(m + 1, m), TOO_MANY),
                                 ("past", rice(1, "1", m, [m]) + 40 * "0", "past the end")]:
            # Counts of 1 and 3, and lengths of 1, 4 to 7 bits can be no larger: all ones already.
            can = {"length": m.bit_length() & m.bit_length() + 1, "count": m & m + 1}
            if can.get(name, True):
                cases.append((f"{name}-{i}", 3, bytes_of_bits("".join(parts[:i]) + bits), says))
    for name, workers, data, says in cases:
        yield f"levels-{name}", average(LEVELS, table((0, False, data)), workers=workers, n=n), says
    yield "levels-no-table", average(LEVELS, levels, workers=3, n=n), "table: "
    yield "levels-code-in-table", average(LEVELS, table((LEVELS, False, levels)), workers=3, n=n), "a code in a frame"
    for name, data in [("zstd", zstd(levels)), ("zstd-bit", levels)]:
        frame = average(LEVELS, table((0, True, data)), ENTROPY, workers=3, n=n)
        yield f"levels-{name}", frame, "levels in a zstd frame"
        mixed = average(MIXED, table((LEVELS, True, data)), ENTROPY, workers=3, n=n)
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
                ("count-0", 32, b"\0", "do not add up"), ("count-less", 32, b"\3", "strings: "),
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
    yield "gspar-q-absent", resealed(frame, 40, struct.pack("<Q", len(frame) - 60)), "strings: "
    yield "gspar-q-cut", resealed(sealed(Header(GSPAR, count=0), b"", [0.5])[:59], 40, bytes(8)), "shorter than it says"


def sparse_chunks():
    """Sizes, tables and strings of bits."""
    def push(data, n=N, code=0):
        return sealed(Header(SPARSE, code, count=n), data, [])

    def gspar(data, n=N):
        return sealed(Header(GSPAR, count=n), data, [0.5])

    kinds = [("", encoder.values_as_they_are, "values: wrong length", "values: wrong length"),
             ("apart-", encoder.values_apart, "cut short", "too long")]
    for kind, with_values, less, more in kinds:
        for code, form in SPARSE_CODES.items():
            data, size = encoder.chunk_of_sparse(ELEMENTS, SPARSE, form, with_values), FLOAT_BYTES[form]
            for name, altered, says in [
                    ("short", data[:-1], less), ("long", data + b"\0", more), ("value-short", data[:-size], less),
                    ("value-long", data + bytes(size), more), ("no-values", data[:-2 * size], less)]:
                yield f"sparse-{kind}{code}-{name}", push(altered, code=code), says
            other = encoder.chunk_of_sparse(ELEMENTS, SPARSE, SPARSE_CODES[(code + 1) % 3], with_values)
            if len(other) != len(data):
                says = more if len(other) > len(data) else less
                yield f"sparse-{kind}{code}-other-values", push(other, code=code), says
        data = encoder.chunk_of_sparse(PARTS, GSPAR, NONE, with_values)
        for name, altered, says in [
                ("short", data[:-1], less), ("long", data + b"\0", more), ("value-short", data[:-4], less),
                ("value-long", data + bytes(4), more), ("values-of-all", data + bytes(8), more),
                ("no-values", data[:-7], less)]:
            yield f"gspar-{kind}{name}", gspar(altered), says
    yield "sparse-nothing", push(b""), "more elements"
    yield "sparse-empty-long", push(b"\0", n=0), "do not add up"
    yield "gspar-empty-long", gspar(b"\0", n=0), "do not add up"
    yield "gspar-nothing", gspar(b""), "more elements"
    first = plain("1" * 8 + "0" * 22)
    for form, length, m in [(1, 6, 27), (2, 6, 27), (3, 7, 27), (1, 18, SPARSE_CHUNK // 2 - 1), (1, 19, CHUNK - 1),
                            (2, 20, CHUNK), (3, 31, CHUNK)]:
        bits = long_length(form, length, m)
        yield f"sparse-length-{length}-of-{m}-form-{form}", push(bytes_of_bits(bits), n=m), TOO_LONG
    for name, n, bits, says in [
            ("count-28", 27, long_count(28, 27), TOO_MANY),
            ("past-the-end", 27, rice(1, "1", 27, [27]), "past the end"),
            ("second-past-the-end", 27, rice(1, "1", 27, [13, 13]), "past the end"),
            ("zeros-past-the-end", 27, rice(1, "0", 27, [27]), "past the end"),
            ("past-2^32", SPARSE_CHUNK, rice(3, "1", SPARSE_CHUNK, [1 << 32]), "past the end"),
            ("past-65536", 65537, rice(3, "1", 65537, [65537]), "past the end"),
            ("count-65537", 65536, long_count(65537, 65536), TOO_MANY),
            ("past-262143", SPARSE_CHUNK, rice(1, "1", SPARSE_CHUNK, [SPARSE_CHUNK]), "past the end"),
            ("count-262145", SPARSE_CHUNK, long_count(SPARSE_CHUNK + 1, SPARSE_CHUNK), TOO_MANY),
            ("count-narrow", SPARSE_CHUNK, rice_head(1, "1", SPARSE_CHUNK, SPARSE_CHUNK)[:24], "cut short"),
            ("ends-in-string", 30, first[:24], "cut short"),
            ("ends-before-v", SPARSE_CHUNK, number(1, 2), "cut short"),
            ("ends-in-length", SPARSE_CHUNK, rice_head(3, "1", 9, SPARSE_CHUNK)[:7], "cut short"),
            ("ends-in-count", 27, rice_head(1, "1", 16, 27)[:8], "cut short"),
            ("ends-in-zeros", 27, rice(1, "1", 27, [399])[:24], "cut short"),
            ("ends-in-low-bits", 27, rice(3, "1", 27, [0])[:8], "cut short"),
            ("padding-last", 7, plain("0" * 7) + "0000001", "padding is not 0"),
            ("padding-first", 7, plain("0" * 7) + "1", "padding is not 0")]:
        yield f"sparse-{name}", push(bytes_of_bits(bits), n=n), says
    # Twenty elements, of which nine are sent, of which one has a value of its own: 43 bits.
    asked = ["1" * 9 + "0" * 11, "1" + "0" * 8, "10" * 4]
    strings = list(map(plain, asked))
    for i, m in enumerate(map(len, asked)):
        before = "".join(strings[:i])
        too_long, too_many = long_length(1, m.bit_length() + 1, m), long_count(m + 1, m)
        yield f"gspar-length-{i}", gspar(bytes_of_bits(before + too_long), n=20), TOO_LONG
        yield f"gspar-too-many-{i}", gspar(bytes_of_bits(before + too_many), n=20), TOO_MANY
        past = bytes_of_bits(before + rice(1, "1", m, [m]) + 80 * "0")
        yield f"gspar-past-{i}", gspar(past, n=20), "past the end"
        full_bytes = (len(before + strings[i]) - 1) // 8
        yield f"gspar-ends-in-{i}", gspar(bytes_of_bits("".join(strings))[:full_bytes], n=20), "cut short"
    whole = "".join(strings) + "0"
    for name, more in [("first", "1"), ("last", (-len(whole) - 1) % 8 * "0" + "1")]:
        yield f"gspar-padding-{name}", gspar(bytes_of_bits(whole + more) + bytes(4), n=20), "padding is not 0"
    of_none = plain("1" * 5) + plain("0" * 5) + plain("10101")  # 21 bits, and no values
    yield "gspar-bit-of-no-values", gspar(bytes_of_bits(of_none + "1"), n=5), "padding is not 0"
    yield "gspar-no-values-long", gspar(bytes_of_bits(of_none + "000") + b"\0", n=5), "too long"


def sparse_values():
    """What is wrong with values, most of them with their exponents apart."""
    def push(n, bits, rest=b"", code=0):
        return sealed(Header(SPARSE, code, count=n), bytes_of_bits(bits) + rest, [])

    six, nine, ten = plain("1" + "0" * 5), plain("1" * 9), plain("1" * 10)  # bits: a byte, 11, 12
    yield "values-end-before-bit", push(6, six), "cut short"
    yield "values-as-they-are-none", push(6, six + "0"), "values: wrong length"
    for code, form in SPARSE_CODES.items():
        fraction_bits, width = FIELDS[form]
        size, largest = FLOAT_BYTES[form], number(2**width - 1, width)
        name = f"values-{code}"
        for padding in ("1", 3 * "0" + "1"):
            frame = push(9, nine + "0" + padding, bytes(9 * size), code)
            yield f"{name}-as-they-are-padding-{len(padding)}", frame, "padding is not 0"
        yield f"{name}-end-before-largest", push(5, plain("1" * 5) + "1", code=code), "cut short"
        yield f"{name}-end-in-largest", push(27, plain("1" * 27) + "1" + "1" * 2, code=code), "cut short"
        yield f"{name}-end-before-string", push(15 - width, plain("1" * (15 - width)) + "1" + largest[:-2] + "00",
                                                code=code), "cut short"
        # The largest field: strings that all answer 1, as long as there are any bits; in either form.
        for kind, string in [("plain", plain("1" * 9)), ("coded", rice(1, "0", 9, []))]:
            for n_strings in (1, 15, 16):  # after the last of these the fields follow
                bits = nine + "1" + largest + string * n_strings
                frame = push(9, bits + "0" * (-len(bits) % 8) if kind == "coded" else bits, code=code)
                yield f"{name}-run-out-of-{kind}-{n_strings}", frame, "cut short"
        # Fields in the end: more than 16 below the largest.
        for e in sorted({17, 20, 2**width - 1}):
            strings = nine + "1" + number(e, width) + plain("0" * 7 + "11") + plain("11") * 15
            for at, fields in enumerate([[e - 15, 0], [0, e - 15], [2**width - 1, 0]]):
                bits = strings + "".join(number(x, width) for x in fields)
                frame = push(9, bits, bytes(9 * (fraction_bits + 1) // 8 + 1), code)
                yield f"{name}-in-the-end-{e}-{at}", frame, "that a string asked about"
            bits = strings + number(0, width) + number(0, width)
            yield f"{name}-ends-in-the-end-{e}", push(9, bits[:(len(bits) - 1) // 8 * 8], code=code), "cut short"
            yield f"{name}-after-the-end-{e}", push(9, bits + -len(bits) % 8 * "0", b"", code), "cut short"
        whole = nine + "1" + number(3, width) + plain("1" * 9) + plain("01" * 4 + "1")  # two fields are asked about
        last = plain("00001")
        one = rice(1, "1", 5, [4])
        fields = (fraction_bits + 1) * 9
        for kind, string, says in [
                ("too-long", long_length(1, 7, 9), TOO_LONG), ("too-many", long_count(10, 9), TOO_MANY),
                ("past-the-end", rice(1, "1", 9, [9]) + "0" * 200, "past the end")]:
            yield f"{name}-first-{kind}", push(9, nine + "1" + number(3, width) + string, code=code), says
            third = {"too-long": number(1, 2) + "1" + number(0, 2), "too-many": long_count(6, 5),
                     "past-the-end": rice(1, "1", 5, [5]) + "0" * 200}[kind]
            if kind != "too-long":  # five bits have no longer count
                yield f"{name}-third-{kind}", push(9, whole + third, code=code), says
        for kind, string in [("plain", last), ("coded", one)]:
            bits = whole + string
            pad = -len(bits) % 8
            good = bytes_of_bits(bits), bytes_of_bits("01" * (fields // 2) + "0" * (fields % 2))
            yield f"{name}-{kind}-no-fractions", push(9, bits, code=code), "cut short"
            yield f"{name}-{kind}-fractions-short", push(9, bits, good[1][:-1], code), "cut short"
            yield f"{name}-{kind}-long", push(9, bits, good[1] + b"\0", code), "too long"
            yield f"{name}-{kind}-as-many-as-plain", push(9, bits, bytes(9 * size), code), "too long"
            for at in sorted({0, pad - 1}) if pad else []:
                frame = push(9, bits + "0" * at + "1", good[1], code)
                yield f"{name}-{kind}-padding-{at}", frame, "padding is not 0"
            for at in [0, -fields % 8 - 1] if fields % 8 else []:
                frame = push(9, bits, bytes_of_bits("0" * (fields + at) + "1"), code)
                yield f"{name}-{kind}-last-padding-{at}", frame, "padding is not 0"


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
        # As above, of two values with their exponents apart.
        full, last = [encoder.sparse([None] * n + [1.0, -1.0], codec) for n in (SPARSE_CHUNK - 2, 7)]
        a, b = len(full), len(last)
        for name, sizes, says in [
                ("first-longer", (a + 1, b - 1), "too long"), ("first-shorter", (a - 1, b + 1), "cut short"),
                ("value-moved", (a - 3, b + 3), "cut short")]:
            frame = sealed(Header(codec, count=two), struct.pack("<II", *sizes) + full + last, scalers)
            yield f"{kind}-table-apart-{name}", frame, says
        # One chunk has no table, also where ternary has several.
        for n in (N, CHUNK + 1):
            data = encoder.sparse([None] * (n - 1) + [1.0], codec)
            frame = sealed(Header(codec, count=n), entry(len(data)) + data, scalers)
            yield f"{kind}-table-not-due-{n}", frame, "strings: "
        says = "strings: cut short" if codec == GSPAR else "values: wrong length"
        parts = [encoder.sparse([None] * n, codec) for n in (CHUNK, 1)]
        payload = b"".join(map(entry, map(len, parts))) + b"".join(parts)
        yield f"{kind}-chunks-of-ternary", sealed(Header(codec, count=CHUNK + 1), payload, scalers), says


def all_cases():
    """(name, frame, what the decoder here says of it)"""
    for group in [headers, float_frames, push_chunks, strings, tables, compressed, averages, sparse_headers,
                  sparse_chunks, sparse_values, sparse_tables]:
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
