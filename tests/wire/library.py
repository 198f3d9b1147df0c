"""What Python lacks: float32 arithmetic, XXH3-64 and zstd. The last two are the libraries that Gradwire itself is
linked with, so that compressed chunks can be compared byte by byte."""

import ctypes
import ctypes.util
import struct


class Missing(Exception):
    """A shared library is not installed."""


def find(name, soname):
    for candidate in [ctypes.util.find_library(name), soname]:
        try:
            return ctypes.CDLL(candidate) if candidate else None
        except OSError:
            continue
    return None


_xxhash = find("xxhash", "libxxhash.so.0")
_zstd = find("zstd", "libzstd.so.1")
ZSTD_C_LEVEL, ZSTD_C_CONTENT_SIZE_FLAG = 100, 200


def check():
    for library, name in [(_xxhash, "libxxhash"), (_zstd, "libzstd")]:
        if library is None:
            raise Missing(f"the shared library {name} is not installed")
    _xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    _xxhash.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    _zstd.ZSTD_createCCtx.restype = ctypes.c_void_p
    for function in ["ZSTD_CCtx_setParameter", "ZSTD_compress2", "ZSTD_decompress", "ZSTD_findFrameCompressedSize"]:
        getattr(_zstd, function).restype = ctypes.c_size_t


def xxh3(data, seed):
    return _xxhash.XXH3_64bits_withSeed(data, len(data), seed)


def zstd_compress(content, room):
    """One zstd frame of at most `room` bytes, level 1, without the content size in its header; None where zstd finds
    that too little, which it does a little before the frame is that large."""
    out = ctypes.create_string_buffer(max(room, 1))
    context = ctypes.c_void_p(_zstd.ZSTD_createCCtx())
    for parameter, value in [(ZSTD_C_LEVEL, 1), (ZSTD_C_CONTENT_SIZE_FLAG, 0)]:
        _zstd.ZSTD_CCtx_setParameter(context, parameter, value)
    size = _zstd.ZSTD_compress2(context, out, ctypes.c_size_t(room), content, ctypes.c_size_t(len(content)))
    _zstd.ZSTD_freeCCtx(context)
    return None if _zstd.ZSTD_isError(ctypes.c_size_t(size)) else out.raw[:size]


def zstd_decompress(data, limit):
    """The content of exactly one zstd frame; None where it is not one, or holds more than `limit` bytes."""
    n = ctypes.c_size_t(len(data))
    if data[:4] != b"\x28\xb5\x2f\xfd" or _zstd.ZSTD_findFrameCompressedSize(data, n) != len(data):
        return None
    out = ctypes.create_string_buffer(max(limit, 1))
    size = _zstd.ZSTD_decompress(out, ctypes.c_size_t(limit), data, n)
    return None if _zstd.ZSTD_isError(ctypes.c_size_t(size)) else ctypes.string_at(out, size)


def float32(x):
    """x rounded to float32, to nearest, ties to even. One operation on two float32 in Python's float64, rounded by
    this, is the float32 operation: 53 bits are more than twice 24 and two."""
    return ctypes.c_float(x).value


def float32_words(data):
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def bytes_of_floats(values):
    return struct.pack(f"<{len(values)}f", *values)
