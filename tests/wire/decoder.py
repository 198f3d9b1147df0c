"""A second decoder of Gradwire's frames, slow and plain, written from docs/wire-format.md and laid out like it."""

import struct
import sys

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
    """The bits of bytes as text, lowest bit of the first byte first."""
    return format(int.from_bytes(data, "little"), f"0{8 * len(data)}b")[::-1] if data else ""


def split_bitmap(data, n, what):
    """A bitmap of n bits at the begin of data, as text, and the rest of data."""
    size = ceil_div(n, 8)
    require(len(data) >= size, f"{what}: cut short")
    bits = bits_of(data[:size])
    require("1" not in bits[n:], f"{what}: padding is not 0")
    return bits[:n], data[size:]


# ---- 2. Header ------------------------------------------------------------------------------------------------------

HEADER = struct.Struct("<2sBBBBHIIIIQQQQ")
HEADER_BYTES = 56
NONE, BF16, F16, TERNARY, SPARSE, GSPAR = range(1, 7)
ENTROPY, AVERAGE, PRIVATE = 1, 2, 4
MAX_WORKERS, MAX_RANK, MAX_ELEMENTS = 32767, 32766, 1 << 34
TWO_BIT, BASE3, MASK, GAPS, PACKED, RADIX, LEVELS, MIXED = range(8)
PUSH_CODES = {TWO_BIT, BASE3, MASK, GAPS, MIXED}
AVERAGE_CODES = {PACKED, RADIX, LEVELS, MIXED}
TABLE_CODES = {MASK, GAPS, LEVELS, MIXED}
SPARSE_CODES = {0: NONE, 1: BF16, 2: F16}  # how the values of codec sparse are written
CODES = {  # of pushes, of averages
    NONE: ({0}, {0}), BF16: ({0}, {0}), F16: ({0}, {0}), TERNARY: (PUSH_CODES, AVERAGE_CODES),
    SPARSE: (set(SPARSE_CODES), {0}), GSPAR: ({0}, set())}
LEVELS_MOST_WORKERS = 1024
FLOAT_BYTES = {NONE: 4, BF16: 2, F16: 2}
MOST_PER_BYTE = {TERNARY: 16384, SPARSE: 262144, GSPAR: 262144}


def checksum(head, rest):
    return library.xxh3(head[:48], 0) ^ library.xxh3(rest, 1)


class Header:
    def __init__(self, codec, code=0, flags=0, workers=1, rank=0, tensor=0, step=0, bucket=0, begin=0, count=0):
        self.codec, self.code, self.flags, self.workers, self.rank = codec, code, flags, workers, rank
        self.tensor, self.step, self.bucket, self.begin, self.count = tensor, step, bucket, begin, count

    def average(self):
        return bool(self.flags & AVERAGE)

    def n_scalers(self):
        if self.codec == TERNARY and self.bucket:
            return ceil_div(self.count, self.bucket)
        return 1 if self.codec in (TERNARY, GSPAR) else 0

    def chunk(self):
        return SPARSE_CHUNK if self.codec in (SPARSE, GSPAR) else CHUNK

    def n_chunks(self):
        return ceil_div(self.count, self.chunk())

    def chunk_elems(self, i):
        return min(self.chunk(), self.count - i * self.chunk())


def parse(data):
    """Checks everything that the header says; returns header, scalers, payload and the bytes of the frame."""
    require(len(data) >= HEADER_BYTES, "shorter than a header")
    (magic, version, codec, code, flags, workers, rank, tensor, step, bucket, begin, count, payload_bytes,
     wanted) = HEADER.unpack(data[:HEADER_BYTES])
    header = Header(codec, code, flags, workers, rank, tensor, step, bucket, begin, count)
    require(magic == b"GW", "not a frame")
    require(version == 1, "another version")
    require(codec in CODES, "unknown codec")
    require(flags < 8, "unknown flags")
    require(1 <= workers <= MAX_WORKERS and rank <= MAX_RANK and begin + count <= MAX_ELEMENTS, "outside the limits")
    require(begin % 1024 == 0 and (bucket == 0 or begin % bucket == 0), "begin is not aligned")
    require(header.average() or workers == 1, "a push of several workers")
    require(not header.average() or not flags & PRIVATE, "an average with private scalers")
    require(code in CODES[codec][header.average()], "a code that this kind does not have")
    require(codec == TERNARY or (flags in (0, AVERAGE) and bucket == 0), "only ternary frames have flags and buckets")
    if codec in FLOAT_BYTES:
        require(payload_bytes == FLOAT_BYTES[codec] * count, "payload and count disagree")
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
    value = fraction * 2.0**-24 if exponent == 0 else (1024 + fraction) * 2.0**(exponent - 25)
    return sign << 31 | struct.unpack("<I", struct.pack("<f", value))[0]


def decode_floats(codec, payload):
    """float32 bytes: infinities and NaN pass as they are."""
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


def read_gaps(data, n):
    strings = Strings(data)
    nonzeros = strings.read(n)
    signs = strings.read(nonzeros.count("1"))
    strings.end()
    return place_signs(nonzeros, signs)


def two_bit_bytes(n):
    return ceil_div(n, 4)


PUSH_READERS = {TWO_BIT: read_two_bit, BASE3: read_base3, MASK: read_mask, GAPS: read_gaps}
# The most bytes that a chunk of n elements can have in a code, or a little more: what a zstd frame may grow to.
PUSH_LIMITS = {TWO_BIT: two_bit_bytes, BASE3: two_bit_bytes, MASK: lambda n: n, GAPS: lambda n: n + 8}


def read_table(header, payload, code_bytes):
    """Cuts the payload into chunks: (code, compressed, bytes) of each."""
    n_chunks, coded = header.n_chunks(), header.flags & ENTROPY
    if not coded and header.code not in TABLE_CODES:
        sizes = [code_bytes(header.chunk_elems(i)) for i in range(n_chunks)]
        entries = [(header.code, False, size) for size in sizes]
        rest = payload
    else:
        require(len(payload) >= 4 * n_chunks, "table: cut short")
        entries, rest = [], payload[4 * n_chunks:]
        for (entry,) in struct.iter_unpack("<I", payload[:4 * n_chunks]):
            code, compressed = entry >> 28 & 7, bool(entry >> 31)
            require(coded or not compressed, "table: a compressed chunk without ENTROPY")
            require(header.code == MIXED or code == 0, "table: a code in a frame of one code")
            entries.append((code if header.code == MIXED else header.code, compressed, entry & (1 << 28) - 1))
    require(sum(size for _, _, size in entries) == len(rest), "the chunks do not add up to the payload")
    chunks = []
    for code, compressed, size in entries:
        chunks.append((code, compressed, rest[:size]))
        rest = rest[size:]
    return chunks


def unpack_zstd(data, limit):
    content = library.zstd_decompress(data, limit)
    require(content is not None, "not one zstd frame, or longer than its values take")
    return content


def read_push(header, payload):
    """The values -1, 0, 1."""
    values = []
    sizes = {TWO_BIT: lambda n: ceil_div(n, 4), BASE3: lambda n: ceil_div(n, 5)}
    for i, (code, compressed, data) in enumerate(read_table(header, payload, sizes.get(header.code))):
        n = header.chunk_elems(i)
        require(code in PUSH_READERS, "a chunk in a code that pushes do not have")
        content = unpack_zstd(data, PUSH_LIMITS[code](n)) if compressed else data
        values += PUSH_READERS[code](content, n)
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


def read_levels(data, n, workers):
    strings = Strings(data)
    nonzeros = strings.read(n)
    sums = place_signs(nonzeros, strings.read(nonzeros.count("1")))
    sides = {sign: [i for i, s in enumerate(sums) if s == sign] for sign in (1, -1)}
    for _ in range(1, workers):
        for sign in sides:
            farther = strings.read(len(sides[sign]))
            sides[sign] = [i for i, bit in zip(sides[sign], farther) if bit == "1"]
            for i in sides[sign]:
                sums[i] += sign
    strings.end()
    return sums


def read_sums_of_chunk(code, compressed, data, n, workers):
    """The sums -N..N of one chunk."""
    base = 2 * workers + 1
    if code == LEVELS:
        require(not compressed, "levels in a zstd frame")
        require(workers <= LEVELS_MOST_WORKERS, "levels of too many workers")
        return read_levels(data, n, workers)
    if code == PACKED:
        content = unpack_zstd(data, packed_bytes(n, workers)) if compressed else data
        digits = read_packed(content, n, workers)
    else:
        shape = bytewise_shape(base) if compressed else tight_shape(base)
        content = unpack_zstd(data, radix_bytes(n, base, shape)) if compressed else data
        digits = read_radix(content, n, base, shape)
    require(all(digit <= 2 * workers for digit in digits), "a digit above 2N")
    return [digit - workers for digit in digits]


def read_average(header, payload):
    sums, base = [], 2 * header.workers + 1
    sizes = {PACKED: lambda n: packed_bytes(n, header.workers),
             RADIX: lambda n: radix_bytes(n, base, tight_shape(base))}
    for i, (code, compressed, data) in enumerate(read_table(header, payload, sizes.get(header.code))):
        require(code in AVERAGE_CODES - {MIXED}, "a chunk in a code that averages do not have")
        sums += read_sums_of_chunk(code, compressed, data, header.chunk_elems(i), header.workers)
    return sums


# ---- 6. Strings of bits ---------------------------------------------------------------------------------------------

def first_k(m, c):
    """k1: the Rice parameter of form 1, where c of m bits are marked."""
    a = (m - c) * 45426 // (65536 * c) if c else 0
    return max(1, a.bit_length() - 1)


class Strings:
    """Reads the strings of a chunk, one after the other."""

    def __init__(self, data):
        self.data, self.bits, self.at = data, bits_of(data), 0

    def take(self, m):
        begin, self.at = self.at, self.at + m
        require(self.at <= len(self.bits), "strings: cut short")
        return self.bits[begin:self.at]

    def number(self, width):
        return int(self.take(width)[::-1], 2)

    def read(self, m):
        """The next string, of m bits, as text."""
        if m == 0:
            return ""
        form = self.number(2)
        if form == 0:
            return self.take(m)
        marked = self.take(1)
        c = self.count(m)
        k = first_k(m, c) + form - 1
        out, position = ["0" if marked == "1" else "1"] * m, -1
        for _ in range(c):
            one = self.bits.find("1", self.at)
            require(one >= 0, "strings: cut short")
            zeros, self.at = one - self.at, one + 1
            position += 1 + (zeros << k) + self.number(k)
            require(position < m, "strings: past the end")
            out[position] = marked
        return "".join(out)

    def count(self, m):
        """How many of m bits are marked."""
        length = self.number(m.bit_length().bit_length())
        require(length <= m.bit_length(), "strings: a count longer than that of all bits")
        lower = self.number(length - 1) if length > 1 else 0
        c = lower | 1 << length - 1 if length else 0
        require(c <= m, "strings: more marked than there are")
        return c

    def pad(self):
        """To the next byte."""
        require("1" not in self.take(-self.at % 8), "strings: padding is not 0")

    def end(self):
        require(len(self.bits) - self.at < 8, "strings: too long")
        self.pad()


# ---- 6a. Sparse frames ----------------------------------------------------------------------------------------------

PLUS, MINUS = "+q", "-q"  # elements of gspar without a value of their own


FIELDS = {NONE: (23, 8), BF16: (7, 8), F16: (10, 5)}  # bits of a value's fraction and of its exponent


def cut_sparse(header, payload):
    """The bytes of each chunk."""
    n_chunks = header.n_chunks()
    sizes, rest = [len(payload)] * n_chunks, payload
    if n_chunks > 1:
        require(len(payload) >= 4 * n_chunks, "table: cut short")
        sizes, rest = struct.unpack(f"<{n_chunks}I", payload[:4 * n_chunks]), payload[4 * n_chunks:]
    require(sum(sizes) == len(rest), "the chunks do not add up to the payload")
    ends = [sum(sizes[:i + 1]) for i in range(n_chunks)]
    return [rest[end - size:end] for size, end in zip(sizes, ends)]


def exponents_asked(largest):
    return range(largest, max(largest - 15, 1) - 1, -1)


def read_exponents(strings, n, width):
    largest = strings.number(width)
    exponents, left = [0] * n, range(n)
    for x in exponents_asked(largest):
        below = strings.read(len(left))
        for i, bit in zip(left, below):
            exponents[i] = 0 if bit == "1" else x
        left = [i for i, bit in zip(left, below) if bit == "1"]
    for i in left if largest > 16 else []:
        exponents[i] = strings.number(width)
        require(exponents[i] <= largest - 16, "values: an exponent that a string asked about")
    return exponents


def read_values(strings, n, form):
    """n values, to the end of the chunk: the float32 bytes of each."""
    if n == 0:
        strings.end()
        return []
    fraction_bits, exponent_bits = FIELDS[form]
    if strings.number(1) == 0:
        strings.pad()
        data = strings.data[strings.at // 8:]
        require(len(data) == FLOAT_BYTES[form] * n, "values: wrong length")
    else:
        exponents = read_exponents(strings, n, exponent_bits)
        strings.pad()
        data = b""
        for exponent in exponents:
            word = strings.number(fraction_bits) | exponent << fraction_bits
            word |= strings.number(1) << fraction_bits + exponent_bits
            data += word.to_bytes(FLOAT_BYTES[form], "little")
        strings.end()
    floats = decode_floats(form, data)
    return [floats[at:at + 4] for at in range(0, len(floats), 4)]


def read_elements(header, payload):
    """Of each element None where it is not sent, PLUS or MINUS, or the float32 bytes of its own value."""
    form = SPARSE_CODES[header.code] if header.codec == SPARSE else NONE
    out = []
    for i, data in enumerate(cut_sparse(header, payload)):
        strings = Strings(data)
        sent = strings.read(header.chunk_elems(i))
        k = sent.count("1")
        own = strings.read(k) if header.codec == GSPAR else "1" * k
        negative = iter(strings.read(own.count("0")))
        values = iter(read_values(strings, own.count("1"), form))
        ready = iter([next(values) if bit == "1" else MINUS if next(negative) == "1" else PLUS for bit in own])
        out += [next(ready) if bit == "1" else None for bit in sent]
    return out


def read_sparse(header, scalers, payload):
    """float32 bytes of all elements."""
    words = {None: bytes(4)}
    if header.codec == GSPAR:
        words.update({PLUS: library.bytes_of_floats(scalers), MINUS: library.bytes_of_floats([-scalers[0]])})
    return b"".join(words.get(x, x) for x in read_elements(header, payload))


# ---- 7. Numbers in base L -------------------------------------------------------------------------------------------

def most_digits(base, w):
    d = 0
    while base**(d + 1) <= 256**w:
        d += 1
    return d


def tight_shape(base):
    """(d, w): d digits in w bytes."""
    best = None
    for w in range(1, 37 if base > 184 else 17):
        d = most_digits(base, w)
        if d and (best is None or w * best[0] < best[1] * d):
            best = d, w
    return best


def bytewise_shape(base):
    return (most_digits(base, 1), 1) if base <= 256 else (1, 2)


def word_bytes(base, d):
    """The fewest bytes that hold d digits."""
    w = 0
    while base**d > 256**w:
        w += 1
    return w


def radix_bytes(n, base, shape):
    d, w = shape
    return n // d * w + word_bytes(base, n % d)


def read_radix(data, n, base, shape):
    require(len(data) == radix_bytes(n, base, shape), "radix: wrong length")
    d, w = shape
    digits, at = [], 0
    while len(digits) < n:
        m = min(d, n - len(digits))
        width = w if m == d else word_bytes(base, m)
        word = int.from_bytes(data[at:at + width], "little")
        at += width
        for _ in range(m):
            word, digit = divmod(word, base)
            digits.append(digit)
        require(word == 0, "radix: a word at or above base^digits")
    return digits


# ---- a whole frame --------------------------------------------------------------------------------------------------

def decode(data):
    """Header, scalers, ternary values or sums (None of other frames), and the floats as little-endian bytes."""
    header, scalers, payload, _ = parse(data)
    if header.codec in (SPARSE, GSPAR):
        return header, scalers, None, read_sparse(header, scalers, payload)
    if header.codec != TERNARY:
        return header, scalers, None, decode_floats(header.codec, payload)
    numbers = read_average(header, payload) if header.average() else read_push(header, payload)
    units = [float32(s / header.workers) for s in scalers]
    bucket = header.bucket or max(header.count, 1)
    floats = [float32(number * units[i // bucket]) for i, number in enumerate(numbers)]
    if not header.average():
        floats = [x if number else 0.0 for x, number in zip(floats, numbers)]
    return header, scalers, numbers, library.bytes_of_floats(floats)


if __name__ == "__main__":
    library.check()
    with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as sink:
        sink.write(decode(source.read())[3])
