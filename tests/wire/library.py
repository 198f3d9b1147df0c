"""Functions that Python lacks: float32 arithmetic, and XXH3-64 from the library that has it."""

import ctypes
import ctypes.util
import struct


class Missing(Exception):
    """A shared library is not installed."""


def find_xxhash():
    for candidate in [ctypes.util.find_library("xxhash"), "libxxhash.so.0"]:
        try:
            return ctypes.CDLL(candidate) if candidate else None
        except OSError:
            continue
    return None


_xxhash = find_xxhash()


def check():
    if _xxhash is None:
        raise Missing("the shared library libxxhash is not installed")
    _xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    _xxhash.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def xxh3(data, seed):
    return _xxhash.XXH3_64bits_withSeed(data, len(data), seed)


def float32(x):
    """Rounds x to float32, to nearest, ties to even. If Python's float64 does one operation on two float32, and this
    rounds the result, that is the float32 operation. The reason is that 53 bits are more than twice 24 plus two."""
    return ctypes.c_float(x).value


def float32_words(data):
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def bytes_of_floats(values):
    return struct.pack(f"<{len(values)}f", *values)
