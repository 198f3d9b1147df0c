"""A second decoder of Gradwire's frames, slow and plain, written from docs/wire-format.md and laid out like it."""

import bisect
import itertools
import math
import struct
import sys

import numpy

import library
from library import float32

# ---- 1. Words -------------------------------------------------------------------------------------------------------

CHUNK = 65536
SPARSE_CHUNK = 262144


class Refused(Exception):
    """The frame is not one that a decoder may accept."""


def require(good, sentence):
    if not good:
        raise Refused(sentence)


def ceil_div(a, b):
    return -(-a // b)


def bits_of(data):
    """Returns the bits of bytes as text. The lowest bit of the first byte comes first."""
    return format(int.from_bytes(data, "little"), f"0{8 * len(data)}b")[::-1] if data else ""


def split_bitmap(data, n, what):
    """Cuts a bitmap of n bits off the begin of data. Returns it as text, and the rest of data."""
    size = ceil_div(n, 8)
    require(len(data) >= size, f"{what}: cut short")
    bits = bits_of(data[:size])
    require("1" not in bits[n:], f"{what}: padding is not 0")
    return bits[:n], data[size:]


# ---- 2. Header ------------------------------------------------------------------------------------------------------

HEADER = struct.Struct("<2sBBBBHIIIIQQQQ")
HEADER_BYTES = 56
NONE, BF16, F16, TERNARY, SPARSE, GSPAR, ONEBIT = range(1, 8)
AVERAGE, PRIVATE, FAST = 2, 4, 8
MAX_WORKERS, MAX_RANK, MAX_ELEMENTS = 32767, 32766, 1 << 34
TWO_BIT, BASE3, MASK, PACKED, RANS, MIXED = range(6)
PUSH_CODES = {TWO_BIT, BASE3, MASK, RANS, MIXED}
AVERAGE_CODES = {PACKED, RANS, MIXED}
TABLE_CODES = {MASK, RANS, MIXED}
SPARSE_CODES = {0: NONE, 1: BF16, 2: F16}  # the forms in which codec sparse writes values
CODES = {  # the codes of pushes, and those of averages
    NONE: ({0}, {0}),
    BF16: ({0}, {0}),
    F16: ({0}, {0}),
    TERNARY: (PUSH_CODES, AVERAGE_CODES),
    SPARSE: (set(SPARSE_CODES), {0}),
    GSPAR: ({0}, {0}),
    ONEBIT: ({0}, set()),
}
LEVELS_MOST_WORKERS = 1024
FLOAT_BYTES = {NONE: 4, BF16: 2, F16: 2}
MOST_PER_BYTE = {TERNARY: 32768, SPARSE: 262144, GSPAR: 262144}


def checksum(head, rest):
    return library.xxh3(head[:48], 0) ^ library.xxh3(rest, 1)


class Header:
    def __init__(self, codec, code=0, flags=0, workers=1, rank=0, tensor=0, step=0, bucket=0, begin=0, count=0):
        self.codec, self.code, self.flags, self.workers, self.rank = codec, code, flags, workers, rank
        self.tensor, self.step, self.bucket, self.begin, self.count = tensor, step, bucket, begin, count

    def average(self):
        return bool(self.flags & AVERAGE)

    def n_scalers(self):
        if self.codec in (TERNARY, ONEBIT):
            return (1 + (self.codec == ONEBIT)) * (ceil_div(self.count, self.bucket) if self.bucket else 1)
        return 1 if self.codec == GSPAR else 0

    def chunk(self):
        return SPARSE_CHUNK if self.codec in (SPARSE, GSPAR) else CHUNK

    def n_chunks(self):
        return ceil_div(self.count, self.chunk())

    def chunk_elems(self, i):
        return min(self.chunk(), self.count - i * self.chunk())


def parse(data):
    """Checks all that the header says. Returns header, scalers, payload and the bytes of the frame."""
    require(len(data) >= HEADER_BYTES, "shorter than a header")
    (
        magic,
        version,
        codec,
        code,
        flags,
        workers,
        rank,
        tensor,
        step,
        bucket,
        begin,
        count,
        payload_bytes,
        wanted,
    ) = HEADER.unpack(data[:HEADER_BYTES])
    header = Header(codec, code, flags, workers, rank, tensor, step, bucket, begin, count)
    require(magic == b"GW", "not a frame")
    require(version == 3, "another version")
    require(codec in CODES, "unknown codec")
    require(flags & ~(AVERAGE | PRIVATE | FAST) == 0, "unknown flags")
    require(1 <= workers <= MAX_WORKERS and rank <= MAX_RANK and begin + count <= MAX_ELEMENTS, "outside the limits")
    require(begin % 1024 == 0 and (bucket == 0 or begin % bucket == 0), "begin is not aligned")
    require(header.average() or workers == 1, "a push of several workers")
    require(not header.average() or not flags & PRIVATE, "an average with private scalers")
    require(code in CODES[codec][header.average()], "a code that this kind does not have")
    require(codec in (TERNARY, GSPAR) or not flags & PRIVATE, "only ternary and gspar frames have private scalers")
    require(codec in (TERNARY, ONEBIT) or bucket == 0, "only ternary and onebit frames have buckets")
    require(codec != GSPAR or not header.average() or workers <= LEVELS_MOST_WORKERS, "gspar sums of too many workers")
    if codec in FLOAT_BYTES:
        require(payload_bytes == FLOAT_BYTES[codec] * count, "payload and count disagree")
    elif codec == ONEBIT:
        require(payload_bytes == ceil_div(count, 8), "payload and count disagree")
    else:
        require(count <= MOST_PER_BYTE[codec] * payload_bytes, "more elements than the payload can hold")
    head_bytes = HEADER_BYTES + 4 * header.n_scalers()
    frame_bytes = head_bytes + payload_bytes
    require(len(data) >= frame_bytes, "shorter than it says")
    require(wanted == checksum(data, data[HEADER_BYTES:frame_bytes]), "wrong checksum")
    scalers = library.floats(data[HEADER_BYTES:head_bytes])
    require(all(0 <= s < float("inf") for s in scalers), "a scaler is negative, infinite or no number")
    return header, scalers, data[head_bytes:frame_bytes], frame_bytes


# ---- 3. Float codecs ------------------------------------------------------------------------------------------------


def half_to_float32_word(h):
    sign, exponent, fraction = h >> 15, h >> 10 & 31, h & 1023
    if exponent == 31:
        return sign << 31 | 0x7F800000 | fraction << 13
    value = fraction * 2.0**-24 if exponent == 0 else (1024 + fraction) * 2.0 ** (exponent - 25)
    return sign << 31 | struct.unpack("<I", struct.pack("<f", value))[0]


def decode_floats(codec, payload):
    """Returns float32 bytes. Infinities and NaN pass as they are."""
    if codec == NONE:
        return payload
    halves = struct.unpack(f"<{len(payload) // 2}H", payload)
    words = [h << 16 for h in halves] if codec == BF16 else [half_to_float32_word(h) for h in halves]
    return struct.pack(f"<{len(words)}I", *words)


# ---- 4. Ternary pushes ----------------------------------------------------------------------------------------------


def read_two_bit(data, n):
    require(len(data) == ceil_div(n, 4), "2bit: wrong length")
    fields = [byte >> shift & 3 for byte in data for shift in (0, 2, 4, 6)]
    require(3 not in fields, "2bit: field 11")
    require(all(field == 1 for field in fields[n:]), "2bit: padding is not 01")
    return [field - 1 for field in fields[:n]]


def read_base3(data, n):
    require(len(data) == ceil_div(n, 5), "base3: wrong length")
    require(all(byte <= 242 for byte in data), "base3: a byte above 242")
    digits = [byte // power % 3 for byte in data for power in (1, 3, 9, 27, 81)]
    require(all(digit == 1 for digit in digits[n:]), "base3: padding is not 1")
    return [digit - 1 for digit in digits[:n]]


def place_signs(nonzeros, signs):
    signs = iter(signs)
    return [0 if bit == "0" else -1 if next(signs) == "1" else 1 for bit in nonzeros]


def read_mask(data, n):
    nonzeros, rest = split_bitmap(data, n, "mask")
    signs, rest = split_bitmap(rest, nonzeros.count("1"), "signs")
    require(not rest, "signs: too long")
    return place_signs(nonzeros, signs)


FIRST_SIGNS = 896  # if signs are mixed, so many are raw
RAW_SIGNS, CODED_SIGNS, MIXED_SIGNS = range(3)


def read_signs(coded, k):
    """Returns how k signs are sent, how many of them are raw, and the string of the others. The raw ones come first."""
    how = coded.number(2)
    require(how <= MIXED_SIGNS and (how < MIXED_SIGNS or k > FIRST_SIGNS), "signs: sent in no way there is")
    n_raw = {RAW_SIGNS: k, CODED_SIGNS: 0, MIXED_SIGNS: FIRST_SIGNS}[how]
    return how, n_raw, coded.string(k - n_raw) if how else ""


def read_rans(data, n):
    coded = Coded(data)
    nonzeros = coded.string(n)
    k = nonzeros.count("1")
    _, n_raw, signs = read_signs(coded, k)
    return place_signs(nonzeros, coded.end(n_raw) + signs)


PUSH_READERS = {TWO_BIT: read_two_bit, BASE3: read_base3, MASK: read_mask, RANS: read_rans}


TABLE_ENTRY = 3  # bytes


def read_table(header, payload, code_bytes):
    """Cuts the payload into chunks. Returns (code, bytes) for each."""
    n_chunks, rest = header.n_chunks(), payload
    require(header.code != MIXED or n_chunks > 1, "mixed, and fewer than two chunks")
    if header.code not in TABLE_CODES:
        entries = [(header.code, code_bytes(header.chunk_elems(i))) for i in range(n_chunks)]
    elif n_chunks <= 1:
        entries = [(header.code, len(payload))] * n_chunks
    else:
        end = TABLE_ENTRY * n_chunks
        require(len(payload) >= end, "table: cut short")
        numbers = [int.from_bytes(payload[at : at + TABLE_ENTRY], "little") for at in range(0, end, TABLE_ENTRY)]
        require(header.code == MIXED or max(numbers) < 1 << 20, "table: a code in a frame of one code")
        entries = [(n >> 20 if header.code == MIXED else header.code, n & (1 << 20) - 1) for n in numbers]
        rest = payload[end:]
    require(sum(size for _, size in entries) == len(rest), "the chunks do not add up to the payload")
    chunks = []
    for code, size in entries:
        chunks.append((code, rest[:size]))
        rest = rest[size:]
    return chunks


def read_push(header, payload):
    """Returns the values -1, 0, 1."""
    values = []
    sizes = {TWO_BIT: lambda n: ceil_div(n, 4), BASE3: lambda n: ceil_div(n, 5)}
    for i, (code, data) in enumerate(read_table(header, payload, sizes.get(header.code))):
        require(code in PUSH_READERS, "a chunk in a code that pushes do not have")
        values += PUSH_READERS[code](data, header.chunk_elems(i))
    return values


# ---- 5. Ternary averages --------------------------------------------------------------------------------------------


def packed_bytes(n, workers):
    planes = (2 * workers).bit_length()
    return planes * (n // 64 * 8 + ceil_div(n % 64, 8))


def read_packed(data, n, workers):
    planes, digits = (2 * workers).bit_length(), []
    for begin in range(0, n, 64):
        m = min(64, n - begin)
        group = [0] * m
        for plane in range(planes):
            bits, data = split_bitmap(data, m, "packed")
            group = [digit | (bit == "1") << plane for digit, bit in zip(group, bits)]
        digits += group
    require(not data, "packed: too long")
    return digits


def read_distances(coded, k, signs, ends):
    """Returns how far k digits are from the center. `ends` says how far above and below it a digit may be."""
    distances, sides = [1] * k, [(max(ends), range(k))]
    if signs is not None:
        sides = [(end, [i for i in range(k) if signs[i] == sign]) for end, sign in zip(ends, "01")]
    for j in range(1, max(ends)):
        for side, (end, asked) in enumerate(sides):
            farther = coded.string(len(asked)) if j < end else ""
            asked = [i for i, bit in zip(asked, farther) if bit == "1"]
            for i in asked:
                distances[i] += 1
            sides[side] = end, asked
    return distances


def read_rans_digits(data, n, workers):
    require(workers <= LEVELS_MOST_WORKERS, "rans of too many workers")
    coded = Coded(data)
    center = coded.number((2 * workers).bit_length())
    require(center <= 2 * workers, "rans: a center above 2N")
    others = coded.string(n)
    k = others.count("1")
    how, n_raw, signs = read_signs(coded, k)
    known = signs if how == CODED_SIGNS else None
    distances = iter(read_distances(coded, k, known, (2 * workers - center, center)))
    sides = place_signs(others, coded.end(n_raw) + signs)
    return [center + (side and side * next(distances)) for side in sides]


AVERAGE_READERS = {PACKED: read_packed, RANS: read_rans_digits}


def read_average(header, payload):
    """Returns the sums -N..N."""
    sums, workers = [], header.workers
    for i, (code, data) in enumerate(read_table(header, payload, lambda n: packed_bytes(n, workers))):
        require(code in AVERAGE_READERS, "a chunk in a code that averages do not have")
        digits = AVERAGE_READERS[code](data, header.chunk_elems(i), workers)
        require(all(0 <= digit <= 2 * workers for digit in digits), "a digit below 0 or above 2N")
        sums += [digit - workers for digit in digits]
    return sums


# ---- 6. Coded strings (rans) ----------------------------------------------------------------------------------------

LANES = [0, 1, 8, 32]
LEAST_STATE = 1 << 16
BYTES = sorted(range(256), key=lambda byte: (bin(byte).count("1"), byte))  # in the order of a table
TURNED_OVER = str.maketrans("01", "10")


def frequencies(c, m, most_ones):
    """Returns f_0 to f_K of a string with c ones among its m bits. K is the most ones that a byte of it has."""
    one = (c << 32) // m
    zero, f = (1 << 32) - one, [0] * (most_ones + 1)
    for k in range(1, most_ones + 1):
        p = 1 << 32
        for factor in [one] * k + [zero] * (8 - k):
            p = p * factor >> 32
        f[k] = max(1, p + (1 << 15) >> 16)
    f[0] = 65536 - sum(math.comb(8, k) * f[k] for k in range(1, most_ones + 1))
    return f


class Table:
    """The slots of each byte of a string."""

    def __init__(self, c, m, most_ones):
        f = frequencies(c, m, most_ones)
        self.bytes = [byte for byte in BYTES if bin(byte).count("1") <= most_ones]
        self.frequencies = [f[bin(byte).count("1")] for byte in self.bytes]
        self.starts = [0, *itertools.accumulate(self.frequencies)][:-1]

    def at_slot(self, slot):
        """Returns the byte that has the slot, its frequency and its first slot."""
        i = bisect.bisect_right(self.starts, slot) - 1
        return self.bytes[i], self.frequencies[i], self.starts[i]


def is_sparse(m, rarer):
    """Tells whether the places of the rarer bits are sent."""
    return rarer * 128 <= m


def gap_bits(m, rarer):
    """Returns how many bits of a gap are sent as they are."""
    return (m * 31 // (rarer * 32)).bit_length() - 1


class Coded:
    """Reads the strings of a chunk, one after the other."""

    def __init__(self, data):
        self.data, self.bits, self.at, self.words_at = data, bits_of(data), 0, len(data)
        self.states = [self.state() for _ in range(LANES[self.number(2)])]

    def take(self, n):
        begin, self.at = self.at, self.at + n
        require(self.at <= len(self.bits), "rans: cut short")
        return self.bits[begin : self.at]

    def number(self, width):
        """Reads a number of the head."""
        return int("0" + self.take(width)[::-1], 2)

    def state(self):
        e = self.number(4)
        return (1 << 16 + e) + self.number(16 + e)

    def string(self, m):
        """Reads the next string, which has m bits, as text."""
        c = self.number(m.bit_length())
        require(c <= m, "rans: a count of more than there are")
        if c in (0, m):
            return "01"[c > 0] * m
        turned_over = 2 * c > m
        rarer = m - c if turned_over else c
        if is_sparse(m, rarer):
            bits = self.places(m, rarer)
            return bits.translate(TURNED_OVER) if turned_over else bits
        most_ones = self.number(3) + 1
        require(self.states, "rans: a string, and no lanes")
        table, n_bytes = Table(rarer, m, most_ones), ceil_div(m, 8)
        bits = bits_of(bytes(self.next_byte(table, i % len(self.states)) for i in range(n_bytes)))
        require("1" not in bits[m:], "rans: a string's padding is not 0")
        require(bits.count("1") == rarer, "rans: a count that is not the string's")
        return bits[:m].translate(TURNED_OVER) if turned_over else bits[:m]

    def places(self, m, rarer):
        """Reads the gaps before the bits of the rarer value."""
        k, bits = gap_bits(m, rarer), ""
        for _ in range(rarer):
            times = self.bits.find("1", self.at) - self.at
            require(times >= 0, "rans: cut short")
            self.at += times + 1
            bits += "0" * ((times << k) + self.number(k)) + "1"
            require(len(bits) <= m, "rans: a place that the string does not have")
        return bits + "0" * (m - len(bits))

    def next_byte(self, table, lane):
        x = self.states[lane]
        byte, frequency, start = table.at_slot(x % 65536)
        x = frequency * (x >> 16) + x % 65536 - start
        self.states[lane] = x if x >= LEAST_STATE else x << 16 | self.word()
        return byte

    def word(self):
        self.words_at -= 2
        require(self.words_at >= 0, "rans: words run out")
        return int.from_bytes(self.data[self.words_at : self.words_at + 2], "little")

    def end(self, n_raw):
        """Returns the n_raw raw bits, as text. Nothing else may be left."""
        r, in_states = n_raw, ""
        for x in self.states:
            if r < 35:
                require(x == LEAST_STATE, "rans: a state that holds no raw bits is not 2^16")
                continue
            e = x.bit_length() - 17
            in_states = format(x - (1 << 16 + e), f"0{16 + e}b")[::-1] + format(e, "04b")[::-1] + in_states
            r -= 20 + e
        require("1" not in self.take(-self.at % 8), "rans: the head's padding is not 0")
        raw = self.take(r)
        require("1" not in self.take(-r % 8), "rans: the rest's padding is not 0")
        require(self.at == 8 * self.words_at, "rans: the words do not begin where the rest ends")
        return raw + in_states


# ---- 6a. Sparse frames ----------------------------------------------------------------------------------------------

PLUS, MINUS = 1, -1  # elements of gspar without a value of their own. Averages also have other sums


FIELDS = {NONE: (23, 8), BF16: (7, 8), F16: (10, 5)}  # bits of a value's fraction and of its exponent


def cut_sparse(header, payload):
    """Returns the bytes of each chunk."""
    n_chunks = header.n_chunks()
    sizes, rest = [len(payload)] * n_chunks, payload
    if n_chunks > 1:
        require(len(payload) >= 4 * n_chunks, "table: cut short")
        sizes, rest = struct.unpack(f"<{n_chunks}I", payload[: 4 * n_chunks]), payload[4 * n_chunks :]
    require(sum(sizes) == len(rest), "the chunks do not add up to the payload")
    ends = [sum(sizes[: i + 1]) for i in range(n_chunks)]
    return [rest[end - size : end] for size, end in zip(sizes, ends)]


def exponents_asked(largest):
    return range(largest, max(largest - 15, 1) - 1, -1)


def read_exponents(coded, n, width):
    """Returns the exponents that strings tell, with None for the others, and what the others may be at most."""
    largest = coded.number(width)
    exponents, left = [None] * n, range(n)
    for x in exponents_asked(largest):
        if not left:
            break
        below = coded.string(len(left))
        for i, bit in zip(left, below):
            exponents[i] = None if bit == "1" else x
        left = [i for i, bit in zip(left, below) if bit == "1"]
    if largest <= 16:
        exponents = [exponent or 0 for exponent in exponents]
    return exponents, largest - 16


def announce_values(coded, n, form):
    """Reads what the strings say of n values. Returns their exponents as read_exponents does, or None if they are not
    apart, and how many raw bits there are."""
    fraction_bits, exponent_bits = FIELDS[form]
    if n == 0 or coded.number(1) == 0:
        return None, 8 * FLOAT_BYTES[form] * n
    exponents, most = read_exponents(coded, n, exponent_bits)
    return (exponents, most), (fraction_bits + 1) * n + exponent_bits * exponents.count(None)


def number_of(bits):
    return int("0" + bits[::-1], 2)


def read_values(bits, n, form, announced):
    """Returns the float32 bytes of each value."""
    fraction_bits, exponent_bits = FIELDS[form]
    width, data = fraction_bits + 1 if announced else 8 * FLOAT_BYTES[form], bytearray()
    late = (number_of(bits[at : at + exponent_bits]) for at in range(width * n, len(bits), exponent_bits))
    for i in range(n):
        word = number_of(bits[width * i : width * (i + 1)])
        if announced:
            exponents, most = announced
            exponent = next(late) if exponents[i] is None else exponents[i]
            require(exponents[i] is not None or exponent <= most, "values: an exponent that a string asked about")
            sign, fraction = word >> fraction_bits, word & (1 << fraction_bits) - 1
            word = fraction | exponent << fraction_bits | sign << fraction_bits + exponent_bits
        data += word.to_bytes(FLOAT_BYTES[form], "little")
    floats = decode_floats(form, bytes(data))
    return [floats[at : at + 4] for at in range(0, len(floats), 4)]


def read_beyond(coded, sums, workers):
    """Reads how far the sums are from 0. Before this they are -1, 0 or 1."""
    sides = {sign: [i for i, s in enumerate(sums) if s == sign] for sign in (1, -1)}
    for _ in range(1, workers):
        for sign in sides:
            farther = coded.string(len(sides[sign]))
            sides[sign] = [i for i, bit in zip(sides[sign], farther) if bit == "1"]
            for i in sides[sign]:
                sums[i] += sign


def read_chunk(coded, n, header):
    """Returns for one chunk what read_elements returns for all."""
    form = SPARSE_CODES[header.code] if header.codec == SPARSE else NONE
    sent = coded.string(n)
    k, n_raw_signs, signs, sums = sent.count("1"), 0, "", []
    own = coded.string(k) if header.codec == GSPAR else "1" * k
    n_values, n_signs = own.count("1"), own.count("0")
    if header.codec == GSPAR and header.average():
        sums = [MINUS if bit == "1" else PLUS for bit in coded.string(n_signs)]
        read_beyond(coded, sums, header.workers)
    elif header.codec == GSPAR:
        _, n_raw_signs, signs = read_signs(coded, n_signs)
    announced, n_raw = announce_values(coded, n_values, form)
    raw = coded.end(n_raw + n_raw_signs)
    signs = raw[n_raw:] + signs
    sums = iter(sums or [MINUS if bit == "1" else PLUS for bit in signs])
    values = iter(read_values(raw[:n_raw], n_values, form, announced))
    ready = iter([next(values) if bit == "1" else next(sums) for bit in own])
    return [next(ready) if bit == "1" else None for bit in sent]


def read_elements(header, payload):
    """Returns for each element None if it is not sent, a sum (in a push PLUS or MINUS), or the float32 bytes of its
    value."""
    out = []
    for i, data in enumerate(cut_sparse(header, payload)):
        out += read_chunk(Coded(data), header.chunk_elems(i), header)
    return out


def read_sparse(header, scalers, payload):
    """Returns the float32 bytes of all elements."""
    unit = float32(abs(scalers[0]) / header.workers) if header.codec == GSPAR else 0.0
    words = {None: bytes(4)}
    elements = read_elements(header, payload)
    for x in set(elements):
        if isinstance(x, int):
            words[x] = library.bytes_of_floats([float32(x * unit)])
    return b"".join(words.get(x, x) for x in elements)


# ---- 7. onebit ------------------------------------------------------------------------------------------------------


def read_onebit(header, scalers, payload):
    """Returns the float32 bytes of all elements."""
    bits, _ = split_bitmap(payload, header.count, "onebit")
    bucket = header.bucket or max(header.count, 1)
    means = [scalers[2 * (i // bucket) + (bit == "1")] for i, bit in enumerate(bits)]
    return library.bytes_of_floats([-x if bit == "1" else x for x, bit in zip(means, bits)])


# ---- a whole frame --------------------------------------------------------------------------------------------------


def decode(data):
    """Returns header, scalers, ternary values or sums (None for other codecs), and the floats as little-endian
    bytes."""
    header, scalers, payload, _ = parse(data)
    if header.codec in (SPARSE, GSPAR):
        return header, scalers, None, read_sparse(header, scalers, payload)
    if header.codec == ONEBIT:
        return header, scalers, None, read_onebit(header, scalers, payload)
    if header.codec != TERNARY:
        return header, scalers, None, decode_floats(header.codec, payload)
    numbers = read_average(header, payload) if header.average() else read_push(header, payload)
    units = [float32(s / header.workers) for s in scalers]
    bucket = header.bucket or max(header.count, 1)
    counts, at = numpy.array(numbers, numpy.float64), numpy.arange(len(numbers)) // bucket
    floats = (counts * numpy.array(units, numpy.float64)[at]).astype("<f4") if numbers else counts.astype("<f4")
    if not header.average():
        floats[counts == 0] = 0.0
    return header, scalers, numbers, floats.tobytes()


if __name__ == "__main__":
    library.check()
    with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as sink:
        sink.write(decode(source.read())[3])
