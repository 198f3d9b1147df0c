"""Frames that every decoder must refuse, each for one reason. Their checksums are right, unless the checksum is that
reason.

    python3 hostile.py --write     writes hostile/*.gw anew"""

import os
import struct
import sys

import decoder
import encoder
import library
from decoder import AVERAGE, BASE3, BF16, CHUNK, F16, FIELDS, FLOAT_BYTES, GSPAR, MASK, MINUS, MIXED, NONE, ONEBIT
from decoder import PACKED, PLUS, PRIVATE, RANS, SPARSE, SPARSE_CHUNK, SPARSE_CODES, TERNARY, TWO_BIT, Header
from encoder import AS_MIXED, AS_RAW, AS_STRING, String, bytes_of_bits, coded, cut_coded, number

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hostile")
VALUES = [1, 0, -1, -1, 0, 1, 1]
N = len(VALUES)
PLAIN = encoder.two_bit(VALUES)


def sealed(header, payload, scalers=(1.5,)):
    return encoder.seal(header, list(scalers), payload)


def entry(size, code=0):
    return (size | code << 20).to_bytes(3, "little")


def table(*chunks):
    """Makes a payload, with its table, of chunks (code, bytes)."""
    return b"".join(entry(len(data), code) for code, data in chunks) + b"".join(data for _, data in chunks)


def resealed(frame, at, new):
    """Puts other bytes at an offset of the header, and makes the checksum right again."""
    data = bytearray(frame)
    data[at : at + len(new)] = new
    checksum = library.xxh3(bytes(data[:48]), 0) ^ library.xxh3(bytes(data[56:]), 1)
    data[48:56] = struct.pack("<Q", checksum)
    return bytes(data)


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
    # The two halves of the checksum must not be exchanged.
    swapped = library.xxh3(good[:48], 1) ^ library.xxh3(good[56:], 0)
    yield "seeds-swapped", good[:48] + struct.pack("<Q", swapped) + good[56:], "wrong checksum"
    for name, at, new, says in [
        ("magic", 0, b"WG", "not a frame"),
        ("version-0", 2, b"\0", "another version"),
        ("version-1", 2, b"\1", "another version"),
        ("version-2", 2, b"\2", "another version"),
        ("version-4", 2, b"\4", "another version"),
        ("code-packed", 4, b"\3", "a code that this kind"),
        ("code-mixed-of-one", 4, b"\5", "fewer than two chunks"),
        ("code-6", 4, b"\6", "a code that this kind"),
        ("code-255", 4, b"\xff", "a code that this kind"),
        ("flags-1", 5, b"\1", "unknown flags"),
        ("flags-16", 5, b"\x10", "unknown flags"),
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
        ("count-as-many-as-payload-allows", 32, struct.pack("<Q", 32768 * len(PLAIN)), "do not add up"),
        ("count-more-than-payload-allows", 32, struct.pack("<Q", 32768 * len(PLAIN) + 1), "more elements than"),
        ("count-less", 32, struct.pack("<Q", 4), "do not add up"),
        ("payload-huge", 40, struct.pack("<Q", 1 << 62), "shorter than it says"),
        ("payload-wraps", 40, struct.pack("<Q", (1 << 64) - 56), "shorter than it says"),
    ]:
        yield name, resealed(good, at, new), says
    for codec in (0, 8, 255):
        yield f"codec-{codec}", sealed(Header(codec, count=N), PLAIN, []), "unknown codec"
    yield "payload-none", sealed(Header(TERNARY, count=N), b""), "more elements than"
    yield "average-code-2bit", resealed(many, 4, b"\0"), "a code that this kind"
    yield "average-code-mask", resealed(many, 4, b"\2"), "a code that this kind"
    yield "average-code-mixed-of-one", resealed(many, 4, b"\5"), "fewer than two chunks"
    yield "average-code-6", resealed(many, 4, b"\6"), "a code that this kind"
    yield "average-private", resealed(many, 5, bytes([AVERAGE | PRIVATE])), "private"
    yield "average-of-none", resealed(many, 6, b"\0\0"), "outside the limits"
    yield "average-of-32768", resealed(many, 6, b"\0\x80"), "outside the limits"
    yield "begin-not-of-bucket", sealed(Header(TERNARY, bucket=2048, begin=1024, count=N), PLAIN), "not aligned"
    yield "scalers-absent", sealed(Header(TERNARY, bucket=1, count=N), PLAIN), "shorter than it says"
    many_scalers = resealed(resealed(good, 20, b"\1"), 32, struct.pack("<Q", 32768 * len(PLAIN)))
    yield "scalers-many", many_scalers, "shorter than it says"
    for name, scaler in [
        ("negative", -1.0),
        ("least-negative", -1e-45),
        ("infinite", float("inf")),
        ("nan", float("nan")),
    ]:
        yield f"scaler-{name}", sealed(Header(TERNARY, count=N), PLAIN, [scaler]), "a scaler is"
        frame = sealed(Header(TERNARY, PACKED, AVERAGE, 2, bucket=4, count=N), encoder.packed(VALUES, 2), [1.5, scaler])
        yield f"scaler-second-{name}", frame, "a scaler is"


def float_frames():
    for codec, size in [(NONE, 4), (BF16, 2), (F16, 2)]:
        good = sealed(Header(codec, count=2), bytes(2 * size), [])
        for name, at, new, says in [
            ("code", 4, b"\1", "a code that this kind"),
            ("mixed", 4, b"\5", "a code that this kind"),
            ("flags-1", 5, b"\1", "unknown flags"),
            ("private", 5, bytes([PRIVATE]), "only ternary"),
            ("bucket", 20, b"\1", "have buckets"),
            ("count-less", 32, b"\1", "disagree"),
            ("count-more", 32, b"\3", "disagree"),
            ("count-huge", 32, struct.pack("<Q", 1 << 34), "disagree"),
            ("workers", 6, b"\2", "a push of several"),
        ]:
            yield f"float-{codec}-{name}", resealed(good, at, new), says
    yield "float-odd-payload", sealed(Header(BF16, count=1), bytes(3), []), "disagree"


def push_chunks():
    def push(code, payload, n=N):
        return sealed(Header(TERNARY, code, count=n), payload)

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
        ("padding", bytes([mask[0] | 0x80]) + mask[1:], "mask: padding"),
        ("no-signs", mask[:1], "signs: cut short"),
        ("long", mask + b"\0", "signs: too long"),
        ("sign-padding", mask[:1] + bytes([mask[1] | 0x20]), "signs: padding"),
        ("more-nonzeros-than-signs", b"\x7f", "signs: cut short"),
    ]:
        yield f"mask-{name}", push(MASK, data), says


CODED = [1, 0, 0, -1, 0, 0, 0, 1, 0, 0, 1, 0, -1, 0, 0, 0, 0, 1, -1] * 3
NONZEROS, NEGATIVE = encoder.nonzeros_and_signs(CODED)


def coded_counts():
    """Yields (name, elements, chunk, words of the message). A count is more than there are bits, or it is not the count
    of its string. A decoder reads the string as the count says."""
    for m, c in [(2, 3), (5, 6), (5, 7), (8, 9), (8, 15), (64, 65), (65536, 65537), (65536, 131071)]:
        for name, before in [("", ""), ("second-", number(m, m.bit_length()) + AS_STRING)]:
            data = bytes_of_bits("00" + before + number(c, m.bit_length()) + "0")
            yield f"{name}count-{c}-of-{m}", m, data, "more than there"
    n, k = len(NONZEROS), len(NEGATIVE)
    for c in [1, k - 1, k + 1, n // 2, n // 2 + 1, n - 1]:
        for lanes in (1, 8, 32):
            wrong = String(NONZEROS, count=c, most_ones=8)
            yield f"other-count-{c}-{lanes}", n, coded([wrong, AS_RAW], "0" * c, lanes=lanes), "rans: a "
    for c in [1, k - 1]:
        wrong = String(NEGATIVE, count=c, most_ones=8)
        yield f"other-count-of-signs-{c}", n, coded([String(NONZEROS), AS_STRING, wrong]), "not the string's"
    for text in ("0" * n, "1" * n):
        wrong = String(text, count=1, most_ones=8)
        yield f"other-count-of-all-{text[0]}", n, coded([wrong, AS_RAW], "0"), "rans: a "


def coded_places():
    """A place that is not below m, in strings with few ones and with few zeros; places that run out."""
    for name, m, bits in [
        ("only", 128, "0" * 128 + "1"),
        ("far", 128, "0" * 191 + "1"),
        ("second", 256, "0" * 255 + "11"),
        ("last", 65536, "1" + "0" * 65535 + "1"),
        ("farther", 65536, "0" * 100000 + "1"),
    ]:
        r = bits.count("1")
        for c in (r, m - r):
            text = "00" + number(c, m.bit_length()) + encoder.places(bits, decoder.gap_bits(m, r)) + AS_RAW
            yield f"place-{name}-{c}", m, bytes_of_bits(text) + bytes((c + 7) // 8), "does not have"
            yield f"place-cut-{name}-{c}", m, bytes_of_bits(text)[:3], "rans: "


def coded_states(lanes):
    """States of lanes that hold no raw bits, because there are too few raw bits, or none. The states are not 2^16."""
    for name, raw, signs in [("few-raw", NEGATIVE, [AS_RAW]), ("no-raw", "", [AS_STRING, String(NEGATIVE)])]:
        for lane in sorted({0, lanes - 1}):
            for state in (0x10001, 0x1FFFF, 0x20000, 0xFFFFFFFF):
                states = [1 << 16] * lanes
                states[lane] = state
                data = coded([String(NONZEROS), *signs], raw, lanes=lanes, states=states)
                yield f"state-{lane}-of-{lanes}-{state:x}-{name}", len(CODED), data, "not 2^16"


def coded_seams(lanes):
    """Chunks that are cut or altered between their parts."""
    n, k = len(NONZEROS), len(NEGATIVE)
    head_text, rest, words = cut_coded([String(NONZEROS), AS_RAW], NEGATIVE, lanes=lanes)
    head, pad = bytes_of_bits(head_text), -len(head_text) % 8
    for name, data in [
        ("without-head", rest + words),
        ("without-rest", head + words),
        ("rest-cut", head + rest[:-1] + words),
        ("rest-long", head + rest + b"\0" + words),
        ("rest-longer", head + rest + b"\0\0" + words),
        ("words-cut", head + rest + words[2:]),
        ("last-word-cut", head + rest + words[:-2]),
        ("long", head + rest + words + b"\0"),
        ("longer", head + rest + words + b"\0\0"),
    ]:
        if data != head + rest + words:  # with many lanes there may be no word to cut
            yield f"{name}-{lanes}", n, data, "rans: "
    for at in sorted({0, pad - 1}) if pad else []:
        data = bytes_of_bits(head_text + "0" * at + "1") + rest + words
        yield f"head-padding-{at}-{lanes}", n, data, "the head's padding"
    for at in (k % 8, 7):
        data = head + rest[:-1] + bytes([rest[-1] | 1 << at]) + words
        yield f"rest-padding-{at}-{lanes}", n, data, "the rest's padding"
    # With another K a decoder reads other bytes, because bytes have other slots. K stands before the head's last two
    # bits.
    begin, right = head_text[:-5], int(head_text[-5:-2][::-1], 2)
    for other in sorted(set(range(8)) - {right}):
        data = bytes_of_bits(begin + number(other, 3) + AS_RAW) + rest + words
        yield f"most-ones-{other + 1}-{lanes}", n, data, "rans: "
    # The padding of a string's last byte has a one. The string has as many ones as its count says, or one more.
    for text in (NONZEROS, NONZEROS.translate(decoder.TURNED_OVER)):
        for at in (n % 8, 7):
            for name in ("as-many", "more"):
                string = String(text, most_ones=8)
                first, *middle, last = string.bytes
                string.bytes = bytes([first & first - 1 if name == "as-many" else first, *middle, last | 1 << at])
                data = coded([string, AS_RAW], "0" * text.count("1"), lanes=lanes)
                yield f"string-padding-{at}-of-{text[0]}-{name}-{lanes}", n, data, "a string's padding"


def coded_strings():
    """Pushes in rans whose strings are wrong."""
    cases = [*coded_counts(), *coded_places()]
    for lanes in (1, 8, 32):
        cases += [*coded_states(lanes), *coded_seams(lanes)]
        states = "".join(map(encoder.state_text, [1 << 16] * lanes))
        text = number(decoder.LANES.index(lanes), 2) + states + number(30000, 17) + number(7, 3)
        cases.append((f"words-run-out-{lanes}", CHUNK, bytes_of_bits(text), "words run out"))
    n = len(CODED)
    for name, parts in [
        ("first", [String(NONZEROS), AS_RAW]),
        ("second", [String("1" * n), AS_STRING, String(NONZEROS)]),
    ]:
        heads = "".join(part.head if isinstance(part, String) else part for part in parts)
        cases.append((f"no-lanes-{name}", n, bytes_of_bits("00" + heads), "no lanes"))
    # Of eight lanes the first two hold raw bits. The others do not.
    raw = "10" * 30
    states, rest = encoder.fill_states(8, raw)
    assert states[1] != 1 << 16 == states[2]
    for lane in (2, 7):
        others = states[:lane] + [0x10001] + states[lane + 1 :]
        head, _, words = cut_coded([String("1" * 60 + "0"), AS_RAW], raw, lanes=8, states=others)
        cases.append((f"state-{lane}-after-raw", 61, bytes_of_bits(head) + bytes_of_bits(rest) + words, "not 2^16"))
    # Signs are mixed, though there are no more of them than those that are raw. Or they are sent in a fourth way.
    for k in (1, 5, 896):
        for how, signs in [(2, [String("")]), (3, []), (3, [String("1" * k)])]:
            data = coded([String("1" * k), number(how, 2), *signs], "01" * (k // 2))
            cases.append((f"signs-{how}-{len(signs)}-of-{k}", k, data, "in no way there is"))
    for name, raw, late in [("few-raw", "01" * 440, 104), ("much-raw", "01" * 456, 104), ("short", "01" * 448, 103)]:
        data = coded([String("1" * 1000), AS_MIXED, String("1" * late)], raw)
        cases.append((f"mixed-{name}", 1000, data, "rans: "))
    good = encoder.rans(CODED)
    cases += [(f"cut-at-{at}", n, good[:at], "rans: ") for at in range(1, len(good))]
    for name, count, data, says in cases:
        yield f"rans-{name}", sealed(Header(TERNARY, RANS, count=count), data), says


def tables():
    def push(code, payload, n=N):
        return sealed(Header(TERNARY, code, count=n), payload)

    mask, last = encoder.mask([0] * CHUNK), encoder.mask([1] * 9)
    two = CHUNK + 9
    yield "table-cut", push(MASK, entry(1) + b"\0", n=two), "table: cut short"
    yield "table-first-longer", push(MASK, entry(len(mask) + 1) + entry(3) + mask + last, n=two), "too long"
    yield "table-first-shorter", push(MASK, entry(len(mask) - 1) + entry(5) + mask + last, n=two), "cut short"
    yield "table-less-than-payload", push(MASK, entry(len(mask)) + entry(3) + mask + last, n=two), "do not add up"
    yield "table-more-than-payload", push(MASK, entry(len(mask)) + entry(5) + mask + last, n=two), "do not add up"
    yield "table-huge", push(MASK, entry((1 << 20) - 1) + entry((1 << 20) - 1) + mask + last, n=two), "do not add up"
    yield "table-of-no-chunks", push(MASK, entry(0), n=0), "do not add up"
    yield "table-of-one-chunk", push(MASK, table((0, encoder.mask(VALUES)))), "signs: too long"
    yield "table-absent", push(MASK, mask + last, n=two), "do not add up"
    yield "table-of-three", push(
        MASK, entry(len(mask)) + entry(len(last)) + entry(0) + mask + last, n=two
    ), "do not add"
    wide = struct.pack("<II", len(mask), len(last))
    yield "table-of-32-bits", push(MASK, wide + mask + last, n=two), "do not add up"
    two_bit = encoder.two_bit([0] * CHUNK), encoder.two_bit([1] * 9)
    yield "table-not-due", push(TWO_BIT, table((0, PLAIN))), "do not add up"
    yield "table-not-due-of-two", push(TWO_BIT, table(*((0, data) for data in two_bit)), n=two), "do not add up"
    for at in (0, 1):
        codes = [0, 0]
        codes[at] = MASK
        frame = push(MASK, table(*zip(codes, (mask, last))), n=two)
        yield f"table-code-not-mixed-{at}", frame, "a code in a frame"
    rans = [encoder.rans([0, 1, 0, 0] * (CHUNK // 4)), encoder.rans([1] * 9)]
    good = b"".join(rans)
    for name, more in [("longer", 1), ("longer-by-a-word", 2), ("shorter", -1), ("shorter-by-a-word", -2)]:
        sizes = entry(len(rans[0]) + more) + entry(len(rans[1]) - more)
        yield f"table-rans-first-{name}", push(RANS, sizes + good, n=two), "rans: "
    yield "table-rans-swapped", push(RANS, table((0, rans[1]), (0, rans[0])), n=two), "rans: "
    yield "table-rans-code", push(RANS, table((RANS, rans[0]), (RANS, rans[1])), n=two), "a code in a frame"
    zeros = encoder.rans([0] * CHUNK)
    for code in (PACKED, MIXED, 6, 8, 15):
        yield f"mixed-push-{code}", push(MIXED, table((RANS, zeros), (code, PLAIN)), n=CHUNK + N), "pushes do not have"
    yield "mixed-other-code", push(MIXED, table((RANS, zeros), (BASE3, PLAIN[:1])), n=two), "wrong length"
    zeros, packed = coded(*encoder.parts_of_sums([0] * CHUNK, 2)), encoder.packed([1] * 9, 2)
    for code in (TWO_BIT, BASE3, MASK, MIXED, 6, 11, 15):
        frame = sealed(Header(TERNARY, MIXED, AVERAGE, 2, count=two), table((RANS, zeros), (code, packed)))
        yield f"mixed-average-{code}", frame, "averages do not have"
    for n in (0, N):
        yield f"mixed-of-{n}", push(MIXED, table((TWO_BIT, PLAIN)), n=n), "fewer than two chunks"
        frame = sealed(Header(TERNARY, MIXED, AVERAGE, 2, count=n), table((PACKED, packed)))
        yield f"mixed-average-of-{n}", frame, "fewer than two chunks"


def averages():
    def average(code, payload, workers=2, n=N):
        return sealed(Header(TERNARY, code, AVERAGE, workers, count=n), payload)

    packed = encoder.packed(VALUES, 2)
    yield "packed-above-2N", average(PACKED, b"\x7f\0\x7f"), "above 2N"
    planes = (bytes(7) + b"\x80") * 2  # element 63 is 3, but one worker reaches only 2
    yield "packed-last-above-2N", average(PACKED, planes, n=64, workers=1), "above 2N"
    yield "packed-second-group-above-2N", average(PACKED, bytes(16) + planes, n=128, workers=1), "above 2N"
    yield "packed-padding", average(PACKED, bytes([packed[0] | 0x80]) + packed[1:]), "packed: padding"
    yield "packed-short", average(PACKED, packed[:-1]), "do not add up"
    yield "packed-long", average(PACKED, packed + b"\0"), "do not add up"

    sums = [3, 0, -3, -1, 0, 2, 1, 0, 0, 0, 0, 1, -2, 2, 3, 0, 0, -2, 1]
    for center in (3, 2, 6, 0):
        parts, raw = encoder.parts_of_sums(sums, 3, center)
        good = coded(parts, raw)
        for name, data, says in [
            ("cut", good[:-1], "rans: "),
            ("word-cut", good[:-2], "rans: "),
            ("half", good[: len(good) // 2], "rans: "),
            ("long", good + b"\0", "rans: "),
        ]:
            yield f"sums-{center}-{name}", average(RANS, data, 3, len(sums)), says
        # The header claims another number of workers. Then there would be fewer or more strings, and the center would
        # have other bits.
        for workers in (1, 2, 4, 5):
            says = "below 0 or above 2N" if (center, workers) == (3, 2) else "rans: "
            yield f"sums-{center}-of-{workers}", average(RANS, good, workers, len(sums)), says
        # Each of the strings in turn has a count of more ones than it has bits.
        for i, part in enumerate(parts):
            if isinstance(part, String) and part.m & part.m + 1:
                others = [*parts[:i], String("0" * part.m, count=part.m + 1), *parts[i + 1 :]]
                yield f"sums-{center}-count-{i}", average(RANS, coded(others, raw), 3, len(sums)), "more than there"
    for center in (5, 6, 7):
        data = coded([number(center, 3), String("0" * N), AS_RAW])
        yield f"sums-center-{center}-of-2", average(RANS, data), "a center above 2N"
    # Sums are beyond the largest one: by their first string, by signs, or by the last of their levels.
    ones = String("1" * N)
    for name, parts, raw in [
        ("above-4", [number(4, 3), ones, AS_STRING, String("0" * N)], ""),
        ("below-0", [number(0, 3), ones, AS_STRING, ones], ""),
        ("one-above-4", [number(4, 3), ones, AS_STRING, String("1" * (N - 1) + "0"), String("0" * (N - 1))], ""),
        ("one-below-0", [number(0, 3), ones, AS_STRING, String("0" * (N - 1) + "1"), String("0" * (N - 1))], ""),
        ("raw-above-4", [number(4, 3), ones, AS_RAW, String("0" * N)], "0" * N),
        ("raw-below-0", [number(0, 3), ones, AS_RAW, String("0" * N)], "1" * N),
        ("raw-one-below-0", [number(1, 3), ones, AS_RAW, ones, String("0" * N)], "0" * (N - 1) + "1"),
        ("raw-one-above-4", [number(3, 3), ones, AS_RAW, ones, String("0" * N)], "1" * (N - 1) + "0"),
    ]:
        yield f"sums-{name}", average(RANS, coded(parts, raw)), "below 0 or above 2N"
    # There is one string too many, because no sum can be farther.
    yield "sums-string-more", average(RANS, coded([number(2, 3), ones, AS_RAW, ones, ones], "0" * N)), "rans: "
    for workers in (1025, 32767):
        data = coded([number(workers, (2 * workers).bit_length()), String("0" * N), AS_RAW])
        yield f"sums-of-{workers}-workers", average(RANS, data, workers=workers), "too many workers"
    # Of two chunks the first is packed. The second is in rans, which is not for so many workers.
    payload = table((PACKED, encoder.packed([0] * CHUNK, 1025)), (RANS, coded(*encoder.parts_of_sums([0], 1025))))
    yield "sums-mixed-of-1025-workers", average(MIXED, payload, 1025, CHUNK + 1), "too many workers"


ELEMENTS = [None, 1.5, None, -2.0, 3.0, None, None]
PARTS = [PLUS, 1.5, None, MINUS, 3.0, None, None]


def sums_of(workers, data, n):
    return sealed(Header(GSPAR, 0, AVERAGE, workers, count=n), data, [0.5])


def sparse_headers():
    pushes = {"sparse": encoder.push_of_sparse(ELEMENTS), "gspar": encoder.push_of_parts(PARTS, 0.5)}
    many = sealed(Header(SPARSE, 0, AVERAGE, 2, count=N), encoder.sparse(ELEMENTS), [])
    for kind, good in pushes.items():
        for name, at, new, says in [
            ("code-3", 4, b"\3", "a code that this kind"),
            ("code-7", 4, b"\7", "a code that this kind"),
            ("code-255", 4, b"\xff", "a code that this kind"),
            ("flags-1", 5, b"\1", "unknown flags"),
            ("flags-16", 5, b"\x10", "unknown flags"),
            ("bucket-1", 20, b"\1", "have buckets"),
            ("bucket-1024", 20, struct.pack("<I", 1024), "have buckets"),
            ("workers", 6, b"\2", "a push of several"),
            ("begin", 24, b"\1", "not aligned"),
            ("payload-huge", 40, struct.pack("<Q", 1 << 62), "shorter than"),
            ("count-0", 32, b"\0", "do not add up"),
            ("count-less", 32, b"\3", "rans: "),
            ("count-more", 32, struct.pack("<Q", 70), "rans: "),
            ("count-huge", 32, struct.pack("<Q", 1 << 34), "more elements"),
        ]:
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
    yield "sparse-private", resealed(pushes["sparse"], 5, bytes([PRIVATE])), "only ternary"
    yield "gspar-private-flags-1", resealed(pushes["gspar"], 5, bytes([PRIVATE | 1])), "unknown flags"
    sums = sums_of(2, encoder.sparse(PARTS, GSPAR, workers=2), N)
    for name, at, new, says in [
        ("code", 4, b"\1", "a code that this kind"),
        ("flags-1", 5, bytes([AVERAGE | 1]), "unknown flags"),
        ("private", 5, bytes([AVERAGE | PRIVATE]), "private"),
        ("bucket", 20, b"\1", "have buckets"),
        ("of-none", 6, b"\0", "outside the limits"),
        ("of-1025", 6, struct.pack("<H", 1025), "too many workers"),
        ("of-32767", 6, struct.pack("<H", 32767), "too many workers"),
        ("count-0", 32, b"\0", "do not add up"),
    ]:
        yield f"gspar-average-{name}", resealed(sums, at, new), says
    yield "gspar-average-q-negative", encoder.sums_of_parts(PARTS, -1.0, 2), "a scaler is"
    yield "sparse-average-flags-1", resealed(many, 5, bytes([AVERAGE | 1])), "unknown flags"
    yield "sparse-average-private", resealed(many, 5, bytes([AVERAGE | PRIVATE])), "private"
    yield "sparse-average-bucket", resealed(many, 20, b"\1"), "have buckets"
    yield "sparse-average-of-none", resealed(many, 6, b"\0"), "outside the limits"
    for name, q in [
        ("negative", -1.0),
        ("least-negative", -1e-45),
        ("infinite", float("inf")),
        ("minus-infinite", float("-inf")),
        ("nan", float("nan")),
    ]:
        yield f"gspar-q-{name}", encoder.push_of_parts(PARTS, q), "a scaler is"
    frame = sealed(Header(GSPAR, count=N), encoder.sparse(PARTS, GSPAR), [])
    yield "gspar-q-absent", resealed(frame, 40, struct.pack("<Q", len(frame) - 60)), "rans: "
    yield "gspar-q-cut", resealed(sealed(Header(GSPAR, count=0), b"", [0.5])[:59], 40, bytes(8)), "shorter than it says"


def sparse_chunks():
    """Chunks whose parts or strings are wrong."""

    def push(data, n=N, code=0):
        return sealed(Header(SPARSE, code, count=n), data, [])

    def gspar(data, n=N):
        return sealed(Header(GSPAR, count=n), data, [0.5])

    for kind, with_values in [("", encoder.values_as_they_are), ("apart-", encoder.values_apart)]:
        for code, form in SPARSE_CODES.items():
            data, size = encoder.chunk_of_sparse(ELEMENTS, SPARSE, form, with_values), FLOAT_BYTES[form]
            for name, altered in [
                ("short", data[:-1]),
                ("long", data + b"\0"),
                ("value-short", data[:-size]),
                ("value-long", data + bytes(size)),
                ("no-values", data[: -2 * size]),
            ]:
                yield f"sparse-{kind}{code}-{name}", push(altered, code=code), "rans: "
            other = encoder.chunk_of_sparse(ELEMENTS, SPARSE, SPARSE_CODES[(code + 1) % 3], with_values)
            if len(other) != len(data):
                yield f"sparse-{kind}{code}-other-values", push(other, code=code), "rans: "
        data = encoder.chunk_of_sparse(PARTS, GSPAR, NONE, with_values)
        for name, altered in [
            ("short", data[:-1]),
            ("long", data + b"\0"),
            ("value-short", data[:-4]),
            ("value-long", data + bytes(4)),
            ("values-of-all", data + bytes(8)),
            ("no-values", data[:-7]),
        ]:
            yield f"gspar-{kind}{name}", gspar(altered), "rans: "
    yield "sparse-nothing", push(b""), "more elements"
    yield "sparse-empty-long", push(b"\0", n=0), "do not add up"
    yield "gspar-empty-long", gspar(b"\0", n=0), "do not add up"
    yield "gspar-nothing", gspar(b""), "more elements"
    for m, c in [(5, 6), (27, 28), (65536, 65537), (SPARSE_CHUNK, SPARSE_CHUNK + 1), (SPARSE_CHUNK, 2**19 - 1)]:
        data = bytes_of_bits("00" + number(c, m.bit_length()) + "0" * 8)
        yield f"sparse-count-{c}-of-{m}", push(data, n=m), "more than there"
    # Nine of twenty elements are sent. One of these has a value of its own. Signs are a string. Then the same as sums
    # of three workers, whose levels come before the value.
    asked = ["1" * 9 + "0" * 11, "1" + "0" * 8, "10" * 4]
    levels = [*asked, "1010", "0101", "10", "01"]
    for kind, strings, flag, of in [("gspar-parts", asked, AS_STRING, gspar), ("gspar-sums", levels, "", None)]:
        of = of or (lambda data, n: sums_of(3, data, n))
        parts = [*map(String, strings)]
        parts.insert(2, flag)
        good = coded([*parts, "0"], "01" * 16)
        assert decoder.decode(of(good, 20))[3]
        for i, part in enumerate(parts):
            if isinstance(part, String) and part.m & part.m + 1:  # the bits of its count can say one too many
                data = coded([*parts[:i], number(part.m + 1, part.m.bit_length()), "0" * 40])
                yield f"{kind}-too-many-{i}", of(data, 20), "rans: "
        for at in range(1, len(good)):
            yield f"{kind}-cut-at-{at}", of(good[:at], 20), "rans: "
        yield f"{kind}-long", of(good + b"\0", 20), "rans: "
        yield f"{kind}-one-string-more", of(coded([*parts, String("1"), "0"], "01" * 16), 20), "rans: "
    # Fair signs are raw bits, and stand last.
    parts, raw = encoder.parts_of_sparse([PLUS, MINUS] * 9, GSPAR, NONE)
    for name, other in [("short", raw[:-9]), ("long", raw + "0" * 8), ("none", "")]:
        yield f"gspar-signs-{name}", gspar(coded(parts, other), 18), "rans: "
    data = coded(parts, raw)
    yield "gspar-signs-padding", gspar(data[:-1] + bytes([data[-1] | 0x80]), 18), "the rest's padding"


def sparse_values():
    """Wrong values. Most of them have their exponents apart."""

    def push(n, parts, raw="", code=0):
        return sealed(Header(SPARSE, code, count=n), coded([String("1" * n), *parts], raw), [])

    for code, form in SPARSE_CODES.items():
        fraction_bits, width = FIELDS[form]
        name, most = f"values-{code}", 2**width - 1
        rests, plain = "01" * 200, "01" * 200
        rests, plain = rests[: 9 * (fraction_bits + 1)], plain[: 9 * 8 * FLOAT_BYTES[form]]
        yield f"{name}-as-they-are-none", push(9, ["0"], code=code), "rans: "
        yield f"{name}-as-they-are-short", push(9, ["0"], plain[:-8], code), "rans: "
        yield f"{name}-as-they-are-long", push(9, ["0"], plain + "0" * 8, code), "rans: "
        yield f"{name}-end-before-largest", push(5, ["1"], code=code), "rans: "
        for n_strings in (0, 1, 15):
            parts = ["1", number(most, width), *[String("1" * 9)] * n_strings]
            yield f"{name}-run-out-of-strings-{n_strings}", push(9, parts, code=code), "rans: "
        # Fields in the end must be at least 16 below the largest.
        for e in sorted({17, 20, most}):
            parts = ["1", number(e, width), String("0" * 7 + "11"), *[String("11")] * 15]
            for at, fields in enumerate([[e - 15, 0], [0, e - 15], [most, 0]]):
                raw = rests + "".join(number(x, width) for x in fields)
                yield f"{name}-in-the-end-{e}-{at}", push(9, parts, raw, code), "that a string asked about"
            raw = rests + number(0, width) * 2
            yield f"{name}-in-the-end-{e}-short", push(9, parts, raw[:-8], code), "rans: "
            yield f"{name}-in-the-end-{e}-long", push(9, parts, raw + "0" * 8, code), "rans: "
        for kind, parts in [
            ("first", [number(10, 4)]),
            ("third", [String("1" * 9), String("01" * 4 + "1"), number(6, 3)]),
        ]:
            frame = push(9, ["1", number(3, width), *parts, "0" * 30], code=code)
            yield f"{name}-{kind}-too-many", frame, "more than there"
        good = ["1", number(3, width), String("1" * 9), String("01" * 4 + "1"), String("00001")]
        assert decoder.decode(push(9, good, rests, code))[3]
        for kind, raw in [("none", ""), ("short", rests[:-8]), ("long", rests + "0" * 8), ("as-many-as-plain", plain)]:
            yield f"{name}-fractions-{kind}", push(9, good, raw, code), "rans: "
        whole = coded([String("1" * 9), *good], rests, lanes=1)
        for at in range(1, len(whole), 3):
            frame = sealed(Header(SPARSE, code, count=9), whole[:at], [])
            yield f"{name}-cut-at-{at}", frame, "rans: "
        if len(rests) % 8:  # only f16
            head, rest, words = cut_coded([String("1" * 9), *good], rests, lanes=1)
            data = bytes_of_bits(head) + rest[:-1] + bytes([rest[-1] | 0x80]) + words
            yield f"{name}-padding", sealed(Header(SPARSE, code, count=9), data, []), "padding is not 0"


def sparse_tables():
    two = SPARSE_CHUNK + 9
    for kind, codec, scalers in [("sparse", SPARSE, []), ("gspar", GSPAR, [0.5])]:
        full, last = [encoder.sparse([None] * n + [1.0], codec) for n in (SPARSE_CHUNK - 1, 8)]
        a, b = len(full), len(last)
        for name, payload, says in [
            ("cut-3", bytes(3), "table: cut short"),
            ("cut-7", struct.pack("<II", 0, 0)[:7], "table: cut short"),
            ("cut-4", struct.pack("<I", a), "table: cut short"),
            ("alone", struct.pack("<II", a, b), "do not add up"),
            ("zeros", struct.pack("<II", 0, 0), "rans: "),
            ("absent", full + last, "do not add up"),
            ("of-one", struct.pack("<I", a) + full + last, "do not add up"),
            ("of-three", struct.pack("<III", a, b, 0) + full + last, "do not add up"),
            ("first-longer", struct.pack("<II", a + 1, b - 1) + full + last, "rans: "),
            ("first-shorter", struct.pack("<II", a - 1, b + 1) + full + last, "rans: "),
            ("value-moved", struct.pack("<II", a - 4, b + 4) + full + last, "rans: "),
            ("first-all", struct.pack("<II", a + b, 0) + full + last, "rans: "),
            ("last-all", struct.pack("<II", 0, a + b) + full + last, "rans: "),
            ("less-than-payload", struct.pack("<II", a, b - 1) + full + last, "do not add up"),
            ("more-than-payload", struct.pack("<II", a, b + 1) + full + last, "do not add up"),
            ("huge", struct.pack("<II", 2**32 - 1, 2**32 - 1) + full + last, "do not add up"),
            ("wraps", struct.pack("<II", 2**32 - b, a + 2 * b) + full + last, "do not add up"),
            ("bit-31", struct.pack("<II", a | 1 << 31, b) + full + last, "do not add up"),
            ("payload-cut", struct.pack("<II", a, b) + full + last[:-1], "do not add up"),
            ("payload-long", struct.pack("<II", a, b) + full + last + b"\0", "do not add up"),
            ("swapped", struct.pack("<II", b, a) + last + full, "rans: "),
        ]:
            yield f"{kind}-table-{name}", sealed(Header(codec, count=two), payload, scalers), says
        # The same, with two values whose exponents are apart.
        full, last = [encoder.sparse([None] * n + [1.0, -1.0], codec) for n in (SPARSE_CHUNK - 2, 7)]
        a, b = len(full), len(last)
        for name, sizes, says in [
            ("first-longer", (a + 1, b - 1), "rans: "),
            ("first-shorter", (a - 1, b + 1), "rans: "),
            ("value-moved", (a - 3, b + 3), "rans: "),
        ]:
            frame = sealed(Header(codec, count=two), struct.pack("<II", *sizes) + full + last, scalers)
            yield f"{kind}-table-apart-{name}", frame, says
        # One chunk has no table, also if ternary would have several chunks.
        for n in (N, CHUNK + 1):
            data = encoder.sparse([None] * (n - 1) + [1.0], codec)
            frame = sealed(Header(codec, count=n), struct.pack("<I", len(data)) + data, scalers)
            yield f"{kind}-table-not-due-{n}", frame, "rans: "
        parts = [encoder.sparse([None] * n, codec) for n in (CHUNK, 1)]
        payload = struct.pack("<II", *map(len, parts)) + b"".join(parts)
        yield f"{kind}-chunks-of-ternary", sealed(Header(codec, count=CHUNK + 1), payload, scalers), "rans: "


def onebit_frames():
    good, _ = encoder.push_of_onebit([1.0, -2.0, 3.0, -4.0, 0.0, 0.0, -1.0], [0.0] * N)
    for name, at, new, says in [
        ("code-1", 4, b"\1", "a code that this kind"),
        ("code-7", 4, b"\7", "a code that this kind"),
        ("entropy", 5, bytes([1]), "unknown flags"),
        ("private", 5, bytes([PRIVATE]), "only ternary"),
        ("average", 5, bytes([AVERAGE]), "a code that this kind"),
        ("flags-16", 5, b"\x10", "unknown flags"),
        ("workers", 6, b"\2", "a push of several"),
        ("bucket-of-one", 20, b"\1", "shorter than it says"),
        ("begin", 24, b"\1", "not aligned"),
        ("count-0", 32, b"\0", "disagree"),
        ("count-less", 32, b"\6", "padding is not 0"),
        ("count-more", 32, b"\x09", "disagree"),
        ("count-huge", 32, struct.pack("<Q", 1 << 34), "disagree"),
        ("payload-huge", 40, struct.pack("<Q", 1 << 62), "disagree"),
        ("payload-none", 40, b"\0", "disagree"),
    ]:
        yield f"onebit-{name}", resealed(good, at, new), says
    yield "onebit-cut", good[:-1], "shorter than it says"
    yield "onebit-cut-in-scaler", good[:61], "shorter than it says"
    yield "onebit-altered", good[:-1] + bytes([good[-1] ^ 1]), "wrong checksum"
    yield "onebit-padding", sealed(Header(ONEBIT, count=N), b"\x80", [1.5, 1.5]), "padding is not 0"
    yield "onebit-payload-long", sealed(Header(ONEBIT, count=N), b"\0\0", [1.5, 1.5]), "disagree"
    yield "onebit-one-scaler", sealed(Header(ONEBIT, count=N), b"\0", [1.5]), "shorter than it says"
    unaligned = Header(ONEBIT, bucket=2048, begin=1024, count=N)
    yield "onebit-begin-not-of-bucket", sealed(unaligned, b"\0", [1.5, 1.5]), "not aligned"
    for name, scaler in [
        ("negative", -1.0),
        ("least-negative", -1e-45),
        ("infinite", float("inf")),
        ("nan", float("nan")),
    ]:
        yield f"onebit-first-{name}", sealed(Header(ONEBIT, count=N), b"\0", [scaler, 1.5]), "a scaler is"
        frame = sealed(Header(ONEBIT, bucket=4, count=N), b"\0", [1.5, 1.5, 1.5, scaler])
        yield f"onebit-last-{name}", frame, "a scaler is"


def all_cases():
    """Yields (name, frame, words that the decoder here says of it)."""
    for group in [
        headers,
        float_frames,
        push_chunks,
        coded_strings,
        tables,
        averages,
        sparse_headers,
        sparse_chunks,
        sparse_values,
        sparse_tables,
        onebit_frames,
    ]:
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
