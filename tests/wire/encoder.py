"""A second encoder, which follows docs/wire-format.md. Its frames have the same bytes as those of the C library."""

import bisect
import math
import struct

import numpy

import decoder
import library
from decoder import BASE3, BF16, CHUNK, FAST, FIELDS, FLOAT_BYTES, GSPAR, MASK, MINUS, MIXED, NONE, ONEBIT, PACKED, PLUS
from decoder import PRIVATE, RANS, SPARSE, SPARSE_CHUNK, SPARSE_CODES, TABLE_CODES, TERNARY, TWO_BIT, Header, bits_of
from decoder import ceil_div
from library import float32

# ---- 1. Words -------------------------------------------------------------------------------------------------------


def bits_where(condition, numbers):
    """Returns text of 0 and 1. It says for which of the numbers the condition holds."""
    return "".join(map("01".__getitem__, map(bool, map(condition, numbers))))


def bytes_of_bits(bits):
    """Turns text of 0 and 1 into bytes, padded with 0. The first character becomes the lowest bit of the first byte."""
    return int("0" + bits[::-1], 2).to_bytes(ceil_div(len(bits), 8), "little")


def number(x, width):
    """Returns x as text of 0 and 1, the lowest bit first."""
    return format(x, f"0{width}b")[::-1]


# ---- 2. Header ------------------------------------------------------------------------------------------------------


def seal(header, scalers, payload):
    """Makes a whole frame, with its checksum."""
    h, rest = header, library.bytes_of_floats(scalers) + payload
    head = struct.pack(
        "<2sBBBBHIIIIQQQ",
        b"GW",
        3,
        h.codec,
        h.code,
        h.flags,
        h.workers,
        h.rank,
        h.tensor,
        h.step,
        h.bucket,
        h.begin,
        h.count,
        len(payload),
    )
    return head + struct.pack("<Q", decoder.checksum(head, rest)) + rest


def with_flags(frame, flags):
    """Returns the frame with these flags added."""
    header, scalers, payload, _ = decoder.parse(frame)
    header.flags |= flags
    return seal(header, scalers, payload)


# ---- 3. Float codecs ------------------------------------------------------------------------------------------------


def round_even(word, bits):
    """Returns an unsigned number without its lowest bits, rounded to nearest, ties to even."""
    kept, rest, half = word >> bits, word & (1 << bits) - 1, 1 << bits - 1
    return kept + (rest > half or (rest == half and kept & 1))


def bf16_of_word(word):
    return word >> 31 << 15 | min(round_even(word & 0x7FFFFFFF, 16), 0x7F7F)


def f16_of_word(word):
    sign, exponent, fraction = word >> 31, word >> 23 & 255, word & 0x7FFFFF
    if exponent >= 113:
        magnitude = round_even((exponent - 112) << 23 | fraction, 13)
    else:  # below 2^-14: multiples of 2^-24
        drop = 126 - exponent
        magnitude = round_even(1 << 23 | fraction, drop) if drop < 26 else 0
    return sign << 15 | min(magnitude, 0x7BFF)


def pack_floats(codec, values):
    data = library.bytes_of_floats(values)
    if codec == NONE:
        return data
    halves = [(bf16_of_word if codec == BF16 else f16_of_word)(word) for word in library.float32_words(data)]
    return struct.pack(f"<{len(halves)}H", *halves)


# ---- 4. Ternary pushes ----------------------------------------------------------------------------------------------


def two_bit(values):
    fields = [v + 1 for v in values] + [1] * (-len(values) % 4)
    return bytes(a | b << 2 | c << 4 | d << 6 for a, b, c, d in zip(*[iter(fields)] * 4))


def base3(values):
    digits = [v + 1 for v in values] + [1] * (-len(values) % 5)
    return bytes(a + 3 * b + 9 * c + 27 * d + 81 * e for a, b, c, d, e in zip(*[iter(digits)] * 5))


def nonzeros_and_signs(numbers):
    return bits_where(bool, numbers), bits_where(lambda x: x < 0, filter(None, numbers))


def mask(values):
    return b"".join(map(bytes_of_bits, nonzeros_and_signs(values)))


def are_skewed(signs):
    k, negative = len(signs), signs.count("1")
    return 3 * (2 * negative - k) ** 2 > 4 * k * (48 + k // 128)


def lost_with_raw_signs(signs):
    k, skew = len(signs), 2 * signs.count("1") - len(signs)
    return 3 * min(k, decoder.FIRST_SIGNS) * skew**2 // (4 * k**2) if k else 0


def room_for_loss(signs, positions):
    """Returns how many bits may be lost at most to fill lanes."""
    return (estimate(positions.m, positions.rarer) + len(signs)) // 256


def choose_signs(signs, positions):
    if not are_skewed(signs):
        return decoder.RAW_SIGNS
    costs_little = lost_with_raw_signs(signs) <= room_for_loss(signs, positions)
    return decoder.MIXED_SIGNS if len(signs) > decoder.FIRST_SIGNS and costs_little else decoder.CODED_SIGNS


def sent_signs(signs, how):
    """Returns what stands in the head, and the raw bits."""
    n_raw = {decoder.RAW_SIGNS: len(signs), decoder.CODED_SIGNS: 0, decoder.MIXED_SIGNS: decoder.FIRST_SIGNS}[how]
    return [number(how, 2), *([String(signs[n_raw:])] if how else [])], signs[:n_raw]


AS_RAW, AS_STRING, AS_MIXED = (number(how, 2) for how in range(3))


def rans(values):
    nonzeros, signs = nonzeros_and_signs(values)
    positions = String(nonzeros)
    parts, raw = sent_signs(signs, choose_signs(signs, positions))
    return coded([positions, *parts], raw)


PUSH_WRITERS = {TWO_BIT: two_bit, BASE3: base3, MASK: mask, RANS: rans}


def chunk_of_push(values, code, entropy):
    """Returns (code, bytes)."""
    if entropy == "on":
        data = rans(values)
        if len(data) <= ceil_div(len(values), 4) + 2:
            return RANS, data
    elif code != "auto":
        return code, PUSH_WRITERS[code](values)
    tried = [TWO_BIT, BASE3, MASK]
    n, (_, signs) = len(values), nonzeros_and_signs(values)
    if entropy == "auto" and (16 * abs(2 * len(signs) - n) > n or are_skewed(signs)):
        tried.append(RANS)
    return min(((c, PUSH_WRITERS[c](values)) for c in tried), key=lambda chunk: len(chunk[1]))


def join(chunks, named, header):
    """Returns the payload. Sets the header's code, if the code was not named."""
    if chunks and not named:
        header.code = MIXED if len(chunks) > 1 else chunks[0][0]
    table = b""
    if header.code in TABLE_CODES and len(chunks) > 1:
        for code, data in chunks:
            table += (len(data) | (code << 20 if header.code == MIXED else 0)).to_bytes(3, "little")
    return table + b"".join(data for _, data in chunks)


def chunks_of(numbers, size=CHUNK):
    return [numbers[i : i + size] for i in range(0, len(numbers), size)]


def push_of_values(values, scalers, code="auto", entropy="auto", private=False, **fields):
    """Returns the frame of ternary values. code is a number or auto."""
    named = code != "auto" and entropy != "on"
    header = Header(TERNARY, code if named else TWO_BIT, private * PRIVATE, count=len(values), **fields)
    chunks = [chunk_of_push(part, code, entropy) for part in chunks_of(values)]
    return seal(header, scalers, join(chunks, named, header))


# ---- 5. Ternary averages --------------------------------------------------------------------------------------------


def packed(sums, workers):
    planes, out = (2 * workers).bit_length(), b""
    for begin in range(0, len(sums), 64):
        digits = [s + workers for s in sums[begin : begin + 64]]
        for plane in range(planes):
            out += bytes_of_bits(bits_where(lambda digit: digit >> plane & 1, digits))
    return out


def level_strings(sides):
    """Yields a string for j = 1, 2, ... It says which of the digits that are at least j from the center are farther. A
    side has how far away a digit may be, and how far digits are. Both sides of the center are in one, or each is
    one."""
    for j in range(1, max(end for end, _ in sides)):
        for end, distances in sides:
            if j < end:
                yield String(bits_where(lambda distance: distance > j, [d for d in distances if d >= j]))


def lost_together(distances, j):
    """Returns how many bits are lost if one string says for both sides which digits are more than j from the center."""
    asked = [d for d in distances if abs(d) >= j]
    below, farther = sum(d < 0 for d in asked), [d for d in asked if abs(d) > j]
    above, far_below = len(asked) - below, sum(d < 0 for d in farther)
    if not above or not below or len(farther) in (0, len(asked)):
        return 0
    off = (len(farther) - far_below) * below - far_below * above
    return 3 * len(asked) * (off**2 // (above * below)) // (4 * len(farther) * (len(asked) - len(farther)))


def choose_signs_of_sums(distances, signs, positions):
    skewed = are_skewed(signs)
    if not skewed and not are_skewed(bits_where(lambda d: d < 0, [d for d in distances if abs(d) > 1])):
        return decoder.RAW_SIGNS
    farthest = max(map(abs, distances))
    lost = lost_with_raw_signs(signs) + sum(lost_together(distances, j) for j in range(1, farthest))
    if lost > room_for_loss(signs, positions):
        return decoder.CODED_SIGNS
    return decoder.MIXED_SIGNS if skewed and len(signs) > decoder.FIRST_SIGNS else decoder.RAW_SIGNS


def parts_of_sums(sums, workers, center=None):
    """Returns what stands in the head of a chunk in rans, and its raw bits."""
    digits, n = [s + workers for s in sums], len(sums)
    center = (2 * sum(digits) + n) // (2 * n) if center is None else center
    distances = [digit - center for digit in digits if digit != center]
    others, signs = nonzeros_and_signs([digit - center for digit in digits])
    above, below = [d for d in distances if d > 0], [-d for d in distances if d < 0]
    ends = 2 * workers - center, center
    positions = String(others)
    how = choose_signs_of_sums(distances, signs, positions)
    said, raw = sent_signs(signs, how)
    sides = [(max(ends), list(map(abs, distances)))]
    if how == decoder.CODED_SIGNS:
        sides = list(zip(ends, (above, below)))
    return [number(center, (2 * workers).bit_length()), positions, *said, *level_strings(sides)], raw


def room_of_strings(parts):
    return sum(64 * ceil_div(part.m, 64) for part in parts if isinstance(part, String) and part.bytes)


def chunk_of_average(sums, workers, code):
    """Returns (code, bytes)."""
    plain = PACKED, packed(sums, workers)
    if code == PACKED or workers > decoder.LEVELS_MOST_WORKERS:
        return plain
    parts, raw = parts_of_sums(sums, workers)
    chunk = RANS, coded(parts, raw)
    fits = room_of_strings(parts) <= 16 * 65536 + 64 * 2050
    return chunk if code == RANS or (fits and len(chunk[1]) < len(plain[1])) else plain


def average_of_sums(sums, scalers, workers, code="auto", entropy="auto", **fields):
    if code != RANS:  # the library never chooses this code by itself
        code = {"off": PACKED, "on": "auto"}.get(entropy, code)
    header = Header(TERNARY, PACKED if code == "auto" else code, decoder.AVERAGE, workers, count=len(sums), **fields)
    chunks = [chunk_of_average(part, workers, code) for part in chunks_of(sums)]
    return seal(header, scalers, join(chunks, code != "auto", header))


def sum_of_floats(columns):
    """Adds in float32, in rank order. Returns the sums, divided by the number of columns."""
    out = list(columns[0])
    for column in columns[1:]:
        out = [float32(a + b) for a, b in zip(out, column)]
    return [float32(x / len(columns)) for x in out] if len(columns) > 1 else out


def reduce(frames, code="auto", entropy="auto"):
    """Returns the average of the pushes of one slice, or of pushes and averages."""
    if any(decoder.parse(frame)[0].flags & FAST for frame in frames):
        off = "off" if entropy == "auto" else entropy
        return with_flags(add_up(frames, PACKED if code == "auto" else code, off), FAST)
    return add_up(frames, code, entropy)


def add_up(frames, code, entropy):
    parts = sorted((decoder.decode(frame) for frame in frames), key=lambda part: part[0].rank)
    first, scalers = parts[0][0], parts[0][1]
    fields = {"tensor": first.tensor, "step": first.step, "begin": first.begin}
    if first.codec == TERNARY and not first.flags & PRIVATE:
        sums = [sum(column) for column in zip(*(numbers for _, _, numbers, _ in parts))]
        workers = sum(header.workers for header, _, _, _ in parts)
        return average_of_sums(sums, scalers, workers, code, entropy, bucket=first.bucket, **fields)
    if first.codec == GSPAR and not first.flags & PRIVATE and len(parts) <= decoder.LEVELS_MOST_WORKERS:
        return average_of_parts(frames, scalers, fields)
    columns = [library.floats(data) for _, _, _, data in parts]
    if first.codec in (SPARSE, GSPAR):
        return average_of_sparse(columns, fields)
    codec = NONE if first.codec in (TERNARY, ONEBIT) else first.codec
    values = sum_of_floats(columns)
    header = Header(codec, 0, decoder.AVERAGE, len(parts), count=first.count, **fields)
    return seal(header, [], pack_floats(codec, values))


# ---- 6. Coded strings (rans) ----------------------------------------------------------------------------------------


def places(bits, k):
    """The gap before each 1: how often 2^k goes into it, in unary, and k bits of the rest."""
    gaps = [len(zeros) for zeros in bits.split("1")[:-1]]
    return "".join("0" * (gap >> k) + "1" + number(gap % (1 << k), k) for gap in gaps)


class String:
    """A string of bits, with its head and its bytes. The caller may give a wrong count, or wrong most ones."""

    def __init__(self, bits, count=None, most_ones=None):
        m, c = len(bits), bits.count("1") if count is None else count
        self.m, self.head, self.bytes = m, number(c, m.bit_length()) if m else "", b""
        self.rarer = min(c, m - c)
        if 0 < c < m:
            bits = bits.translate(decoder.TURNED_OVER) if 2 * c > m else bits
            if decoder.is_sparse(m, self.rarer):
                self.head += places(bits, decoder.gap_bits(m, self.rarer))
                return
            self.bytes = bytes_of_bits(bits)
            most_ones = most_ones or max(bin(byte).count("1") for byte in self.bytes)
            self.head += number(most_ones - 1, 3)
            self.table = decoder.Table(self.rarer, m, most_ones)


def estimate(m, ones):
    """Estimates how many bits a string takes."""
    rarer = min(ones, m - ones)
    return rarer * ((m // rarer).bit_length() + 1) if rarer else 0


def fitting_lanes(strings, n_raw):
    """Returns how many lanes an encoder takes. strings: those that are read from lanes."""
    estimated = sum(estimate(string.m, string.rarer) for string in strings)
    for lanes in (32, 8) if strings else ():
        if max(0, lanes - n_raw // 28) * 3200 <= n_raw + estimated:
            return lanes
    return 1 if strings else 0


def fill_states(lanes, raw):
    """Returns states that hold raw bits, and the raw bits that are left."""
    states = []
    for _ in range(lanes):
        if len(raw) < 35:
            states.append(decoder.LEAST_STATE)
            continue
        e = int(raw[:-5:-1], 2)
        states.append((1 << 16 + e) + int(raw[-5 : -21 - e : -1], 2))
        raw = raw[: -20 - e]
    return states, raw


def put_byte(x, byte, table, words):
    """Returns the state after a byte. Bits that the state cannot hold are appended to the words."""
    i = table.bytes.index(byte)
    f, start = table.frequencies[i], table.starts[i]
    if x >= f << 16:
        words += (x % 65536).to_bytes(2, "little")
        x >>= 16
    return (x // f << 16) + start + x % f


def state_text(x):
    e = x.bit_length() - 17
    return number(e, 4) + number(x - (1 << 16 + e), 16 + e)


def cut_coded(parts, raw="", lanes=None, states=None):
    """Makes a chunk of strings, and of numbers, which are text. Returns its three parts: the head as text, the rest,
    and the words."""
    strings = [part for part in parts if isinstance(part, String) and part.bytes]
    lanes = fitting_lanes(strings, len(raw)) if lanes is None else lanes
    states, rest = (states, raw) if states else fill_states(lanes, raw)
    words = bytearray()
    for string in reversed(strings):
        for i in reversed(range(len(string.bytes))):
            states[i % lanes] = put_byte(states[i % lanes], string.bytes[i], string.table, words)
    head = number(decoder.LANES.index(lanes), 2) + "".join(map(state_text, states))
    head += "".join(part.head if isinstance(part, String) else part for part in parts)
    return head, bytes_of_bits(rest), bytes(words)


def coded(*parts, **choices):
    head, rest, words = cut_coded(*parts, **choices)
    return bytes_of_bits(head) + rest + words


# ---- 6a. Sparse frames ----------------------------------------------------------------------------------------------


def exponent_strings(exponents, largest):
    left = exponents
    for x in decoder.exponents_asked(largest):
        if not left:
            return
        yield String(bits_where(lambda exponent: exponent < x, left))
        left = [exponent for exponent in left if exponent < x]


def exponents_in_the_end(exponents, largest):
    return [exponent for exponent in exponents if exponent < largest - 15] if largest > 16 else []


def numbers(exponents, width):
    return "".join(number(exponent, width) for exponent in exponents)


def room_of_exponents(exponents, width):
    """Estimates, as an encoder does, how many bits are saved if exponents are apart. If this is above 0, they are
    apart."""
    largest, left, apart, ordered = max(exponents), len(exponents), width, sorted(exponents)
    for x in decoder.exponents_asked(largest):
        if left:
            below = bisect.bisect_left(ordered, x)
            apart += 32 + estimate(left, below)
            left = below
    return width * (len(exponents) - len(exponents_in_the_end(exponents, largest))) - apart


def cut_values(data, form):
    """Returns for each value its fraction and sign as text, and its exponent field."""
    fraction_bits, exponent_bits = FIELDS[form]
    begin, end, size = fraction_bits, fraction_bits + exponent_bits, FLOAT_BYTES[form]
    texts = [bits_of(data[at : at + size]) for at in range(0, len(data), size)]
    return [text[:begin] + text[end:] for text in texts], [int(text[begin:end][::-1], 2) for text in texts]


def values_as_they_are(data, _):
    """Returns what stands in the head of a chunk, and raw bits."""
    return ["0"], bits_of(data)


def values_apart(data, form):
    rests, exponents = cut_values(data, form)
    largest, width = max(exponents), FIELDS[form][1]
    late = numbers(exponents_in_the_end(exponents, largest), width)
    return ["1", number(largest, width), *exponent_strings(exponents, largest)], "".join(rests) + late


def values_shorter(data, form):
    apart = room_of_exponents(cut_values(data, form)[1], FIELDS[form][1]) > 0
    return (values_apart if apart else values_as_they_are)(data, form)


def parts_of_sparse(elements, codec, form, with_values=values_shorter, workers=None):
    """Returns what stands in the head of a chunk, and its raw bits."""
    sent = [x for x in elements if x is not None]
    sums, own = [x for x in sent if isinstance(x, int)], [x for x in sent if isinstance(x, float)]
    positions, late = String(bits_where(lambda x: x is not None, elements)), ""
    parts = [positions]
    if codec == GSPAR:
        signs = bits_where(lambda x: x < 0, sums)
        parts.append(String(bits_where(lambda x: isinstance(x, float), sent)))
        if workers is not None:
            parts += [String(signs), *map(String, beyond_parts(sums, workers))]
        else:
            said, late = sent_signs(signs, choose_signs(signs, positions))
            parts += said
    of_values, raw = with_values(pack_floats(form, own), form) if own else ([], "")
    return [*parts, *of_values], raw + late


def chunk_of_sparse(elements, codec, form, with_values=values_shorter, workers=None):
    """Makes a chunk of elements. None is not sent. Floats are sent, and with gspar also sums (integers: PLUS, MINUS).
    workers: the number of workers of an average."""
    data = coded(*parts_of_sparse(elements, codec, form, with_values, workers))
    n, n_strings = len(elements), 3 if codec == GSPAR else 1
    if with_values is values_shorter and workers is None:
        if len(data) > 4 * n + n_strings * (2 * ceil_div(n, 8) + 40) + 160:
            return chunk_of_sparse(elements, codec, form, values_as_they_are)
    return data


def beyond_parts(sums, workers):
    above, below = [s for s in sums if s > 0], [s for s in sums if s < 0]
    for j in range(1, workers):
        yield bits_where(lambda s: s > j, above)
        yield bits_where(lambda s: s < -j, below)
        above, below = [s for s in above if s > j], [s for s in below if s < -j]


def sparse(elements, codec=SPARSE, code=0, workers=None):
    """Returns the payload."""
    form = SPARSE_CODES[code]
    chunks = [chunk_of_sparse(part, codec, form, workers=workers) for part in chunks_of(elements, SPARSE_CHUNK)]
    return table_and_chunks(chunks)


def table_and_chunks(chunks):
    table = [len(data) for data in chunks] if len(chunks) > 1 else []
    return struct.pack(f"<{len(table)}I", *table) + b"".join(chunks)


def push_of_sparse(elements, code=0, **fields):
    return seal(Header(SPARSE, code, count=len(elements), **fields), [], sparse(elements, SPARSE, code))


def push_of_parts(elements, q, private=True, **fields):
    return seal(Header(GSPAR, 0, private * PRIVATE, count=len(elements), **fields), [q], sparse(elements, GSPAR))


def sums_of_parts(elements, q, workers, **fields):
    """Makes a gspar average."""
    header = Header(GSPAR, 0, decoder.AVERAGE, workers, count=len(elements), **fields)
    return seal(header, [q], sparse(elements, GSPAR, workers=workers))


def mean_of_parts(column, q):
    """Returns for one element None, a sum, or a float that is the average."""
    total = sum(x for x in column if isinstance(x, int))
    own = [library.floats(x)[0] for x in column if isinstance(x, bytes)]
    if not own:
        return total or None
    value = 0.0
    for x in [*own, float32(total * q)]:
        value = float32(value + x)
    return float32(value / len(column)) or None


def average_of_parts(frames, scalers, fields):
    """Averages pushes with a shared q."""
    parts = sorted((decoder.parse(frame) for frame in frames), key=lambda part: part[0].rank)
    columns = zip(*(decoder.read_elements(header, payload) for header, _, payload, _ in parts))
    elements = [mean_of_parts(column, scalers[0]) for column in columns]
    chunks = chunks_of(elements, SPARSE_CHUNK)
    data = [chunk_of_sparse(part, GSPAR, NONE, workers=len(parts)) for part in chunks]
    payload = table_and_chunks(data)
    rooms = [room_of_strings(parts_of_sparse(c, GSPAR, NONE, workers=len(parts))[0]) for c in chunks]
    many = any(room > 32 * SPARSE_CHUNK + 64 * 2067 for room in rooms)
    long = len(payload) >= 4 * len(elements) or any(len(d) >= 4 * len(c) for d, c in zip(data, chunks))
    if elements and (many or long):
        unit = float32(abs(scalers[0]) / len(parts))
        values = [x if isinstance(x, float) else float32((x or 0) * unit) for x in elements]
        header = Header(NONE, 0, decoder.AVERAGE, len(parts), count=len(values), **fields)
        return seal(header, [], pack_floats(NONE, values))
    return sums_of_parts(elements, scalers[0], len(parts), **fields)


def average_of_sparse(columns, fields):
    """Sends only the elements that are not 0, if that is smaller. An element that was not sent counts as +0 here. To
    add +0 changes no sum but -0."""
    values = [x or 0.0 for x in sum_of_floats(columns)]
    payload, codec = sparse([x or None for x in values]), SPARSE
    if values and len(payload) >= 4 * len(values):
        payload, codec = pack_floats(NONE, values), NONE
    return seal(Header(codec, 0, decoder.AVERAGE, len(columns), count=len(values), **fields), [], payload)


# ---- 7. onebit ------------------------------------------------------------------------------------------------------


def means_of_signs(part):
    """Returns the mean of the numbers that are not negative, and the mean magnitude of the negative ones."""
    means = []
    for negative in (False, True):
        count = sum((x < 0) == negative for x in part)
        chosen = [x if (x < 0) == negative else 0.0 for x in part]
        means.append(abs(float32(sum_bucket(chosen, False) / count)) if count else 0.0)
    return means


def push_of_onebit(values, residual, bucket=0, **fields):
    """Returns the frame, and the residual of the next step."""
    a = [float32(g + r) for g, r in zip(values, residual)]
    scalers = []
    for begin in range(0, len(a) if bucket else 1, bucket or 1):
        scalers += means_of_signs(a[begin : begin + bucket] if bucket else a)
    header = Header(ONEBIT, bucket=bucket, count=len(a), **fields)
    frame = seal(header, scalers, bytes_of_bits(bits_where(lambda x: x < 0, a)))
    sent = library.floats(decoder.decode(frame)[3])
    return frame, [float32(x - y) for x, y in zip(a, sent)]


# ---- 8. Random numbers ----------------------------------------------------------------------------------------------


def philox(counter, seed):
    """Philox4x32-10 (Salmon et al., SC 2011). The counter's first word is an array."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


class Draws:
    """The random numbers of one worker's tensor in one step."""

    def __init__(self, seed=0, rank=0, step=0, tensor=0):
        self.seed, self.rank, self.step, self.tensor = seed, rank, step, tensor

    def half(self, purpose, block, word, odd):
        words = numpy.array(philox((block, self.step, purpose << 24 | self.rank, self.tensor), self.seed))
        drawn = words[word, numpy.arange(len(word))]
        return numpy.where(odd, drawn >> 16, drawn & 0xFFFF)

    def first(self, e):
        """e: an array of elements' numbers, uint64."""
        return self.half(1, 16 * (e // 128) + e % 32 // 2, e % 128 // 32, e % 2)

    def second(self, e):
        return self.half(2, e // 8, e % 8 // 2, e % 2)


def next_float32(x):
    return struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", x))[0] + 1))[0]


def quotient(s):
    q = float32(2.0**32 / s)
    return next_float32(q) if float32(s * q) < 2.0**32 else q


def draw(values, scalers, clips, bucket, draws, begin=0):
    """Turns gradients into ternary values, by TernGrad's equations 1 to 3 and 21."""
    if not len(values):
        return []
    scales = [2.0**64 if s < 2.0**-90 else 1.0 for s in scalers]
    quotients = [quotient(s * scale) if s else 0.0 for s, scale in zip(scalers, scales)]
    g, at = numpy.array(values, numpy.float32), numpy.arange(len(values)) // (bucket or len(values))
    clip, scale, q = (numpy.array(x, numpy.float32)[at] for x in (clips, scales, quotients))
    t = numpy.minimum((numpy.minimum(abs(g), clip) * scale * q).astype(numpy.uint64), 1 << 32)
    e = numpy.arange(begin, begin + len(values), dtype=numpy.uint64)
    h, r = numpy.minimum(t >> 16, 65535), draws.first(e)
    drawn = (r < h) | ((r == h) & ((r << 16 | draws.second(e)) < t))
    return numpy.where(drawn, numpy.where(g < 0, -1, 1), 0).tolist()


# ---- 9. Statistics --------------------------------------------------------------------------------------------------


def sum_block(values, square):
    """Returns (sum of g, sum of g^2) of up to 1024 elements."""
    largest = max(map(abs, values))
    if 0 < largest < 2.0**-50 or largest > 2.0**60:
        total = 0.0
        for g in values:
            total += g * g if square else g
        return total
    g, lanes = numpy.array(values, numpy.float32), numpy.zeros(32, numpy.float32)
    g = g * g if square else g
    for row in range(0, len(g), 32):
        lanes[: len(g) - row] += g[row : row + 32]
    half, lanes = 16, lanes.tolist()
    while half:
        lanes = [lanes[j] + lanes[j + half] for j in range(half)]
        half //= 2
    return lanes[0]


def sum_bucket(values, square):
    total = 0.0
    for run in range(0, len(values), CHUNK):
        of_run = 0.0
        for begin in range(run, min(run + CHUNK, len(values)), 1024):
            of_run += sum_block(values[begin : min(begin + 1024, run + CHUNK)], square)
        total += of_run
    return total


def measure(values, bucket=0, c=2.5):
    """Returns this tensor's own scalers and clips, one for each bucket."""
    scalers, clips = [], []
    for begin in range(0, len(values) if bucket else 1, bucket or 1):
        part = values[begin : begin + bucket] if bucket else values
        largest, clip = max(map(abs, part), default=0.0), math.inf
        if part:
            mean = sum_bucket(part, False) / len(part)
            sigma = math.sqrt(max(sum_bucket(part, True) / len(part) - mean * mean, 0.0))
            if c != 0 and c * sigma >= abs(mean):
                clip = float32(c * sigma)
        scalers.append(min(largest, clip))
        clips.append(clip)
    return scalers, clips


# ---- 10. Rounding with a residual -----------------------------------------------------------------------------------


def push_of_rounded(x, residual, level=3, bucket=0, **fields):
    """Returns (frame, the next residual) of a worker that shares its own levels. level "max": the largest magnitude."""
    a, values, levels = [float32(g + e) for g, e in zip(x, residual)], [], []
    for begin in range(0, len(x) if bucket else 1, bucket or 1):
        of_x, of_a = (part[begin : begin + bucket] if bucket else part for part in (x, a))
        l = max(map(abs, of_a), default=0.0)
        if level != "max" and of_x:
            l = max(level * math.sqrt(sum_bucket(of_x, True) / len(of_x)), l / 4)
        levels.append(float32(l) if l >= 2.0**-125 else 0.0)
        values += [(y > 0) - (y < 0) if 0 < levels[-1] / 2 < abs(y) else 0 for y in of_a]
    sent = [v * levels[i // bucket if bucket else 0] for i, v in enumerate(values)]
    rest = [float32(y - z) for y, z in zip(a, sent)]
    return push_of_values(values, levels, bucket=bucket, **fields), rest
