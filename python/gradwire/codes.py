"""Bare ternary codes, two bits each and four to a byte, as the parameter server's uint8 keys hold them:

    codes = pack([-1, 0, 1, 1])     # a numpy array of one uint8
    values = unpack(codes, 4)       # a numpy array of four int8

There is no scaler in them: send it in another way (pull_parameter has scale_key for it)."""
import ctypes

import numpy

from . import _api, _arrays, _library

_lib = _library.declare(
    {
        "gw_codes_pack": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]),
        "gw_codes_unpack": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64]),
    }
)


def pack(values):
    """Packs values: integers -1, 0 and 1, of any shape, taken in C order. Returns uint8, one byte for four of them.
    Raises TypeError and ValueError."""
    given = _arrays.numbers(values, "the array of values")
    if given.size and not numpy.issubdtype(given.dtype, numpy.integer):
        raise TypeError(f"codes are made of integers, and these are {given.dtype}")
    if given.size and (given.min() < -128 or given.max() > 127):
        raise ValueError("codes are for -1, 0 and 1")
    values = given.astype(numpy.int8)
    codes = numpy.empty((values.size + 3) // 4, numpy.uint8)
    _library.check(_lib.gw_codes_pack(values.ctypes.data, values.size, codes.ctypes.data, codes.size))
    return codes


def unpack(codes, n):
    """Returns the first n values, int8. codes has one byte for four of them, and no more. Raises TypeError and
    ValueError."""
    codes = _arrays.numbers(codes, "the array of codes", "uint8")
    n = _api.in_range("n", n, 0, 4 * codes.size)
    values = numpy.empty(n, numpy.int8)
    _library.check(_lib.gw_codes_unpack(codes.ctypes.data, codes.size, values.ctypes.data, n))
    return values
