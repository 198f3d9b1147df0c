"""A second encoder: docs/wire-format.md the other way. Its frames are the C library's, byte for byte."""

import math
import struct

import decoder
import library
from decoder import (BF16, CHUNK, ENTROPY, FIELDS, FLOAT_BYTES, GSPAR, LEVELS, MINUS, MIXED, NONE, PACKED, PLUS,
                     PRIVATE, RADIX, SPARSE, SPARSE_CHUNK, SPARSE_CODES, TABLE_CODES, TERNARY, TWO_BIT, Header, bits_of,
                     ceil_div)
from library import float32

# ---- 1. Words -------------------------------------------------------------------------------------------------------

def bits_where(condition, numbers):
    """Text of 0 and 1: which of the numbers the condition holds for."""
    return "".join("1" if condition(x) else "0" for x in numbers)


def bytes_of_bits(bits):
    """Text of 0 and 1 into bytes, the first in the lowest bit of the first byte, padded with 0."""
    return int("0" + bits[::-1], 2).to_bytes(ceil_div(len(bits), 8), "little")


# ---- 2. Header ------------------------------------------------------------------------------------------------------

def seal(header, scalers, payload):
    """A whole frame, with its checksum."""
    h, rest = header, library.bytes_of_floats(scalers) + payload
    head = struct.pack("<2sBBBBHIIIIQQQ", b"GW", 1, h.codec, h.code, h.flags, h.workers, h.rank, h.tensor, h.step,
                       h.bucket, h.begin, h.count, len(payload))
    return head + struct.pack("<Q", decoder.checksum(head, rest)) + rest


# ---- 3. Float codecs ------------------------------------------------------------------------------------------------

def round_even(word, bits):
    """An unsigned number without its lowest bits, rounded to nearest, ties to even."""
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


def gaps(values):
    return strings(nonzeros_and_signs(values))


PUSH_WRITERS = [two_bit, base3, mask, gaps]


def entropy_bits(symbols):
    """Order 0: what a perfect code of these symbols one by one would take."""
    counts = {}
    for symbol in symbols:
        counts[symbol] = counts.get(symbol, 0) + 1
    return sum(count * math.log2(len(symbols) / count) for count in counts.values())


def worth_trying(data, symbols):
    return len(data) >= 128 and 8 * len(data) > 1.02 * entropy_bits(symbols)


def chunk_of_push(values, code, entropy):
    """(code, compressed, bytes)"""
    if code != "auto":
        data = PUSH_WRITERS[code](values)
        compressed = library.zstd_compress(data, len(data) - 1) if entropy == "on" else None
    else:
        chunks = [write(values) for write in PUSH_WRITERS]
        code = min(range(4), key=lambda i: len(chunks[i]))
        data, compressed = chunks[code], None
        if entropy == "on" or (entropy == "auto" and worth_trying(data, values)):
            compressed = library.zstd_compress(chunks[TWO_BIT], len(data) - 1)
            code = TWO_BIT if compressed else code
    return (code, True, compressed) if compressed else (code, False, data)


def join(chunks, auto, entropy, header):
    """The payload; sets the header's code and flag ENTROPY."""
    coded = any(compressed for _, compressed, _ in chunks) if auto else entropy == "on"
    header.flags |= ENTROPY if coded else 0
    header.code = MIXED if auto and len(chunks) > 1 else chunks[0][0] if chunks else header.code
    table = b""
    if coded or header.code in TABLE_CODES:
        for code, compressed, data in chunks:
            named = code << 28 if header.code == MIXED else 0
            table += struct.pack("<I", len(data) | named | compressed << 31)
    return table + b"".join(data for _, _, data in chunks)


def chunks_of(numbers, size=CHUNK):
    return [numbers[i:i + size] for i in range(0, len(numbers), size)]


def push_of_values(values, scalers, code="auto", entropy="auto", private=False, **fields):
    """The frame of ternary values; code is a number or auto."""
    header = Header(TERNARY, TWO_BIT if code == "auto" else code, private * PRIVATE, count=len(values), **fields)
    chunks = [chunk_of_push(part, code, entropy) for part in chunks_of(values)]
    return seal(header, scalers, join(chunks, code == "auto", entropy, header))


# ---- 5. Ternary averages --------------------------------------------------------------------------------------------

def packed(sums, workers):
    planes, out = (2 * workers).bit_length(), b""
    for begin in range(0, len(sums), 64):
        digits = [s + workers for s in sums[begin:begin + 64]]
        for plane in range(planes):
            out += bytes_of_bits(bits_where(lambda digit: digit >> plane & 1, digits))
    return out


def level_parts(sums, workers):
    yield from nonzeros_and_signs(sums)
    above, below = [s for s in sums if s > 0], [s for s in sums if s < 0]
    for j in range(1, workers):
        yield bits_where(lambda s: s > j, above)
        yield bits_where(lambda s: s < -j, below)
        above, below = [s for s in above if s > j], [s for s in below if s < -j]


def levels(sums, workers):
    return strings(level_parts(sums, workers))


def chunk_of_average(sums, workers, code, entropy):
    base, digits = 2 * workers + 1, [s + workers for s in sums]
    writers = {PACKED: lambda: packed(sums, workers),
               RADIX: lambda: radix(digits, base, decoder.tight_shape(base))}
    if workers <= decoder.LEVELS_MOST_WORKERS:
        writers[LEVELS] = lambda: levels(sums, workers)
    best, data = min(((c, writers[c]()) for c in (writers if code == "auto" else [code])), key=lambda c: len(c[1]))
    if (entropy == "on" and code != LEVELS) or (code == "auto" and entropy == "auto" and worth_trying(data, sums)):
        tried = RADIX if code == "auto" else code
        content = radix(digits, base, decoder.bytewise_shape(base)) if tried == RADIX else data
        compressed = library.zstd_compress(content, len(data) - 1)
        if compressed:
            return tried, True, compressed
    return best, False, data


def average_of_sums(sums, scalers, workers, code="auto", entropy="auto", **fields):
    header = Header(TERNARY, PACKED if code == "auto" else code, decoder.AVERAGE, workers, count=len(sums), **fields)
    chunks = [chunk_of_average(part, workers, code, entropy) for part in chunks_of(sums)]
    return seal(header, scalers, join(chunks, code == "auto", entropy, header))


def sum_of_floats(columns):
    """float32 sums in rank order, divided by how many they are."""
    out = list(columns[0])
    for column in columns[1:]:
        out = [float32(a + b) for a, b in zip(out, column)]
    return [float32(x / len(columns)) for x in out] if len(columns) > 1 else out


def reduce(frames, code="auto", entropy="auto"):
    """The average of one slice's pushes."""
    parts = sorted((decoder.decode(frame) for frame in frames), key=lambda part: part[0].rank)
    first, scalers = parts[0][0], parts[0][1]
    fields = {"tensor": first.tensor, "step": first.step, "begin": first.begin}
    if first.codec == TERNARY and not first.flags & PRIVATE:
        sums = [sum(column) for column in zip(*(numbers for _, _, numbers, _ in parts))]
        return average_of_sums(sums, scalers, len(parts), code, entropy, bucket=first.bucket, **fields)
    columns = [library.floats(data) for _, _, _, data in parts]
    if first.codec in (SPARSE, GSPAR):
        return average_of_sparse(columns, fields)
    codec = NONE if first.codec == TERNARY else first.codec
    values = sum_of_floats(columns)
    header = Header(codec, 0, decoder.AVERAGE, len(parts), count=first.count, **fields)
    return seal(header, [], pack_floats(codec, values))


# ---- 6. Strings of bits ---------------------------------------------------------------------------------------------

def number(x, width):
    """Text of 0 and 1, the lowest bit first."""
    return format(x, f"0{width}b")[::-1]


def plain(bits):
    return number(0, 2) + bits


def rice_head(form, marked, c, m):
    length = c.bit_length()
    lower = number(c, length)[:-1] if length > 1 else ""
    return number(form, 2) + marked + number(length, m.bit_length().bit_length()) + lower


def rice_code(g, k):
    return "0" * (g >> k) + "1" + number(g & (1 << k) - 1, k)


def rice(form, marked, m, distances):
    c = len(distances)
    k = decoder.first_k(m, c) + form - 1
    return rice_head(form, marked, c, m) + "".join(rice_code(g, k) for g in distances)


def in_form(form, marked, bits):
    """A string as text; plain ones mark nothing."""
    if form == 0:
        return plain(bits)
    return rice(form, marked, len(bits), [len(others) for others in bits.split(marked)[:-1]])


def string(bits):
    m, marked = len(bits), "1" if 2 * bits.count("1") <= len(bits) else "0"
    if m == 0:
        return ""
    forms = range(4) if 5 * bits.count(marked) < 2 * m else [0]
    return min((in_form(form, marked, bits) for form in forms), key=len)


def strings(parts):
    return bytes_of_bits("".join(map(string, parts)))


# ---- 6a. Sparse frames ----------------------------------------------------------------------------------------------

def exponent_strings(exponents, largest):
    """Before each string how many values are left, and the string as text."""
    left = exponents
    for x in decoder.exponents_asked(largest):
        if not left:
            return
        yield len(left), string(bits_where(lambda exponent: exponent < x, left))
        left = [exponent for exponent in left if exponent < x]


def exponents_in_the_end(exponents, largest):
    return [exponent for exponent in exponents if exponent < largest - 15] if largest > 16 else []


def numbers(exponents, width):
    return "".join(number(exponent, width) for exponent in exponents)


def exponents_and_rooms(exponents, width):
    """The exponents apart, and by how many bits an encoder's two conditions for them hold; below 0: it goes back."""
    largest, most = max(exponents), width * len(exponents)
    before, after, out = math.inf, math.inf, number(largest, width)
    for n_left, text in exponent_strings(exponents, largest):
        before = min(before, most - len(out) - 2 - n_left)
        if before < 0:
            return out, before, after
        out += text
    if largest > 16:
        out += numbers(exponents_in_the_end(exponents, largest), width)
        after = most - len(out)
    return out, before, after


def cut_values(data, form):
    """Of each value its fraction and sign as text, and its exponent field."""
    fraction_bits, exponent_bits = FIELDS[form]
    begin, end, size = fraction_bits, fraction_bits + exponent_bits, FLOAT_BYTES[form]
    texts = [bits_of(data[at:at + size]) for at in range(0, len(data), size)]
    return [text[:begin] + text[end:] for text in texts], [int(text[begin:end][::-1], 2) for text in texts]


def values_as_they_are(bits, data, _):
    return bytes_of_bits(bits + "0") + data


def values_apart(bits, data, form):
    rests, exponents = cut_values(data, form)
    largest, width = max(exponents), FIELDS[form][1]
    parts = [number(largest, width), *(text for _, text in exponent_strings(exponents, largest)),
             numbers(exponents_in_the_end(exponents, largest), width)]
    return bytes_of_bits(bits + "1" + "".join(parts)) + bytes_of_bits("".join(rests))


def values_shorter(bits, data, form):
    rests, exponents = cut_values(data, form)
    text, *rooms = exponents_and_rooms(exponents, FIELDS[form][1])
    if min(rooms) < 0:
        return values_as_they_are(bits, data, form)
    return bytes_of_bits(bits + "1" + text) + bytes_of_bits("".join(rests))


def chunk_of_sparse(elements, codec, form, with_values=values_shorter):
    """Elements: None is not sent; numbers, PLUS and MINUS are."""
    sent = [x for x in elements if x is not None]
    units, own = [x for x in sent if x in (PLUS, MINUS)], [x for x in sent if x not in (PLUS, MINUS)]
    parts = [bits_where(lambda x: x is not None, elements)]
    if codec == GSPAR:
        parts += [bits_where(lambda x: x not in (PLUS, MINUS), sent), bits_where(lambda x: x == MINUS, units)]
    return with_values("".join(map(string, parts)), pack_floats(form, own), form) if own else strings(parts)


def sparse(elements, codec=SPARSE, code=0):
    """The payload."""
    chunks = [chunk_of_sparse(part, codec, SPARSE_CODES[code]) for part in chunks_of(elements, SPARSE_CHUNK)]
    table = [len(data) for data in chunks] if len(chunks) > 1 else []
    return struct.pack(f"<{len(table)}I", *table) + b"".join(chunks)


def push_of_sparse(elements, code=0, **fields):
    return seal(Header(SPARSE, code, count=len(elements), **fields), [], sparse(elements, SPARSE, code))


def push_of_parts(elements, q, **fields):
    return seal(Header(GSPAR, count=len(elements), **fields), [q], sparse(elements, GSPAR))


def average_of_sparse(columns, fields):
    """What is not 0, where that is smaller. What was not sent is +0 here: adding that changes no sum but -0."""
    values = [x or 0.0 for x in sum_of_floats(columns)]
    payload, codec = sparse([x or None for x in values]), SPARSE
    if values and len(payload) >= 4 * len(values):
        payload, codec = pack_floats(NONE, values), NONE
    return seal(Header(codec, 0, decoder.AVERAGE, len(columns), count=len(values), **fields), [], payload)


# ---- 7. Numbers in base L -------------------------------------------------------------------------------------------

def radix(digits, base, shape):
    d, w = shape
    out = []
    for begin in range(0, len(digits), d):
        part, word = digits[begin:begin + d], 0
        for digit in reversed(part):
            word = word * base + digit
        out.append(word.to_bytes(w if len(part) == d else decoder.word_bytes(base, len(part)), "little"))
    return b"".join(out)


# ---- 8. Random numbers ----------------------------------------------------------------------------------------------

def philox(counter, seed):
    """Philox4x32-10 (Salmon et al., SC 2011)."""
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
        self.seed, self.rank, self.step, self.tensor, self.blocks = seed, rank, step, tensor, {}

    def half(self, purpose, block, word, odd):
        key = purpose, block
        if key not in self.blocks:
            self.blocks[key] = philox((block, self.step, purpose << 24 | self.rank, self.tensor), self.seed)
        return self.blocks[key][word] >> 16 if odd else self.blocks[key][word] & 0xFFFF

    def first(self, e):
        return self.half(1, 16 * (e // 128) + e % 32 // 2, e % 128 // 32, e % 2)

    def second(self, e):
        return self.half(2, e // 8, e % 8 // 2, e % 2)


def next_float32(x):
    return struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", x))[0] + 1))[0]


def quotient(s):
    q = float32(2.0**32 / s)
    return next_float32(q) if float32(s * q) < 2.0**32 else q


def draw(values, scalers, clips, bucket, draws, begin=0):
    """Gradients into ternary values: TernGrad's equations 1 to 3 and 21."""
    out, bucket = [], bucket or max(len(values), 1)
    ready = []
    for s in scalers:
        scale = 2.0**64 if s < 2.0**-90 else 1.0
        ready.append((quotient(s * scale), scale) if s else None)
    for i, g in enumerate(values):
        at = i // bucket
        if ready[at] is None:
            out.append(0)
            continue
        q, scale = ready[at]
        t = min(int(float32(min(abs(g), clips[at]) * scale * q)), 1 << 32)
        h, r = min(t >> 16, 65535), draws.first(begin + i)
        drawn = r < h or (r == h and (r << 16 | draws.second(begin + i)) < t)
        out.append((-1 if g < 0 else 1) if drawn else 0)
    return out


# ---- 9. Statistics --------------------------------------------------------------------------------------------------

def sum_block(values, square):
    """(sum of g, sum of g^2) of up to 1024 elements."""
    largest = max(map(abs, values))
    if 0 < largest < 2.0**-50 or largest > 2.0**60:
        total = 0.0
        for g in values:
            total += g * g if square else g
        return total
    lanes = [0.0] * 32
    for i, g in enumerate(values):
        lanes[i % 32] = float32(lanes[i % 32] + (float32(g * g) if square else g))
    half = 16
    while half:
        lanes = [lanes[j] + lanes[j + half] for j in range(half)]
        half //= 2
    return lanes[0]


def sum_bucket(values, square):
    total = 0.0
    for run in range(0, len(values), CHUNK):
        of_run = 0.0
        for begin in range(run, min(run + CHUNK, len(values)), 1024):
            of_run += sum_block(values[begin:min(begin + 1024, run + CHUNK)], square)
        total += of_run
    return total


def measure(values, bucket=0, c=2.5):
    """Own scalers and clips, one of each bucket."""
    scalers, clips = [], []
    for begin in range(0, len(values) if bucket else 1, bucket or 1):
        part = values[begin:begin + bucket] if bucket else values
        largest, clip = max(map(abs, part), default=0.0), math.inf
        if part:
            mean = sum_bucket(part, False) / len(part)
            sigma = math.sqrt(max(sum_bucket(part, True) / len(part) - mean * mean, 0.0))
            if c != 0 and c * sigma >= abs(mean):
                clip = float32(c * sigma)
        scalers.append(min(largest, clip))
        clips.append(clip)
    return scalers, clips
