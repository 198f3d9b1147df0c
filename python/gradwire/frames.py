"""Frames: encode a tensor, read and decode a frame, add frames up. Tensors are numpy arrays or PyTorch tensors (CPU,
float32, any shape, taken in C order); frames are uint8 of the same kind, and bytes are taken too.

    shared = numpy.maximum(gradwire.measure(a), gradwire.measure(b))    # ternary: one scaler for all workers
    frames = [gradwire.encode(a, rank=0, shared=shared), gradwire.encode(b, rank=1, shared=shared)]
    print(gradwire.inspect(frames[0]))
    average = gradwire.decode(gradwire.reduce(frames))

A frame is what `gradwire encode` writes: docs/wire-format.md."""
import collections.abc
import ctypes
import sys

import numpy

from . import _api, _arrays, _library
from .errors import Error, InvalidValue, Status


def _array(thing, wanted, what):
    """Returns a contiguous numpy array of the wanted type, on the same memory if that is possible."""
    if isinstance(thing, (list, tuple, int, float)):
        raise TypeError(f"{what} is of type {type(thing).__name__}; it must be a numpy array or a PyTorch tensor")
    return _arrays.numbers(thing, what, wanted)


def _like(array, given):
    return sys.modules["torch"].from_numpy(array) if _arrays.is_tensor(given) else array


class _Encoder:
    def __init__(self, codec, name, id, n_elems):
        self._codec, self.handle = _api.Codec(codec), ctypes.c_void_p()
        about = _api.Tensor(name=_api.text("name", name), id=_api.in_range("id", id, 0, 2**32 - 1), n_elems=n_elems)
        _library.check(
            _api.library().gw_encoder_create(None, self._codec.handle, ctypes.byref(about), ctypes.byref(self.handle))
        )

    def __enter__(self):
        return self.handle

    def __exit__(self, *_):
        _api.library().gw_encoder_destroy(self.handle)


def measure(tensor, codec: str = "ternary", *, name: str = ""):
    """Returns the numbers of this tensor that workers share before they encode: float32, none for most codecs. Take the
    largest of all workers, element by element, and give that to encode(shared=...)."""
    lib, array = _api.library(), _array(tensor, "float32", "the tensor")
    with _Encoder(codec, name, 0, array.size) as encoder:
        shared = numpy.zeros(lib.gw_encoder_traits_of(encoder).n_shared, numpy.float32)
        _library.check(lib.gw_encoder_measure(encoder, array.ctypes.data, shared.ctypes.data, shared.size, None))
    return _like(shared, tensor)


def encode(
    tensor,
    codec: str = "ternary",
    *,
    seed: int = 0,
    rank: int = 0,
    step: int = 0,
    name: str = "",
    id: int = 0,
    shared=None,
):
    """Returns the frame of a whole tensor, as one worker would push it: uint8, one dimension.

    tensor: float32, finite. codec: a specification, `NAME[:key=value,...]`. seed, rank (0 to 32766), step and id, the
    tensor's number: random draws depend on these. name: skip= looks at it. shared: the largest of all workers' numbers
    (measure), so that their frames can be added up. None: this tensor's own numbers. A codec with a residual begins
    with an empty one. Raises gradwire.Error."""
    lib, array = _api.library(), _array(tensor, "float32", "the tensor")
    draw = _api.Draw(
        seed=_api.in_range("seed", seed, 0, 2**64 - 1),
        rank=_api.in_range("rank", rank, 0, 2**32 - 1),
        step=_api.in_range("step", step, 0, 2**32 - 1),
    )
    numbers = None if shared is None else _array(shared, "float32", "shared")
    with _Encoder(codec, name, id, array.size) as encoder:
        if numbers is not None:
            _arrays.check_shape(numbers, [lib.gw_encoder_traits_of(encoder).n_shared], "shared")
        frame, n_bytes = numpy.empty(lib.gw_encoder_bound(encoder, array.size), numpy.uint8), ctypes.c_size_t()
        _library.check(
            lib.gw_encoder_measure_encode(
                encoder,
                array.ctypes.data,
                numbers.ctypes.data if numbers is not None and numbers.size else None,
                ctypes.byref(draw),
                frame.ctypes.data,
                frame.size,
                ctypes.byref(n_bytes),
                None,
            )
        )
    return _like(frame[: n_bytes.value].copy(), tensor)


def _parse(frame, what="the frame"):
    array = _array(frame, "uint8", what)
    info = _api.FrameInfo()
    try:
        _library.check(_api.library().gw_frame_parse(array.ctypes.data, array.size, ctypes.byref(info)))
    except Error as error:
        which = "" if what == "the frame" else f"{what}: "
        raise type(error)(error.status, f"{which}{error}") from None
    if array.size > info.frame_bytes:
        more = array.size - info.frame_bytes
        raise InvalidValue(
            Status.ARGUMENT, f"{more} bytes follow {what}'s {info.frame_bytes}; give one frame at a time"
        )
    return array, info


def decode(frame):
    """Returns the values of a frame: float32, one dimension. Raises gradwire.Error if the frame is damaged or wrong."""
    array, info = _parse(frame)
    values = numpy.empty(info.n_elems, numpy.float32)
    _library.check(
        _api.library().gw_decode(None, array.ctypes.data, array.size, values.ctypes.data, ctypes.c_uint64(values.size))
    )
    return _like(values, frame)


def inspect(frame) -> dict:
    """Returns what a frame says of itself, after all of it was checked. bits_per_element counts the payload. entropy is
    that of the frame's symbols. first_scalers has 16 at most."""
    array, info = _parse(frame)
    lib, n_nonzero, entropy = _api.library(), ctypes.c_uint64(), ctypes.c_double()
    _library.check(
        lib.gw_frame_symbols(
            None, array.ctypes.data, array.size, None, 0, ctypes.byref(n_nonzero), ctypes.byref(entropy)
        )
    )
    names = ["average", "workers", "rank", "tensor_id", "step", "begin", "n_elems", "bucket"]
    scalers = [lib.gw_frame_scaler(array.ctypes.data, array.size, i) for i in range(min(info.n_scalers, 16))]
    return {
        "codec": info.codec.decode(),
        "code": info.code.decode(),
        **{name: getattr(info, name) for name in names},
        "n_scalers": info.n_scalers,
        "first_scalers": scalers,
        "frame_bytes": info.frame_bytes,
        "payload_bytes": info.payload_bytes,
        "nonzeros": n_nonzero.value,
        "bits_per_element": 8 * info.payload_bytes / info.n_elems if info.n_elems else 0.0,
        "entropy": entropy.value,
    }


def reduce(frames):
    """Averages the workers' frames of one slice, as an owner does. They may come in any order. Returns the frame of the
    average. Raises gradwire.Error if the frames do not belong together."""
    is_one = isinstance(frames, (bytes, bytearray, memoryview)) or getattr(frames, "ndim", 2) < 2
    if is_one or not isinstance(frames, collections.abc.Iterable):
        raise TypeError(f"frames is {_api.shown(frames)}, and must be a list of frames")
    frames = list(frames)
    if not frames:
        raise ValueError("there are no frames to add up")
    arrays = [_parse(frame, f"frame {i}")[0] for i, frame in enumerate(frames)]
    lib, n = _api.library(), len(arrays)
    places = (ctypes.c_void_p * n)(*(a.ctypes.data for a in arrays))
    sizes = (ctypes.c_size_t * n)(*(a.size for a in arrays))
    bound = lib.gw_reduce_bound(places, sizes, n)
    out, n_bytes = numpy.empty(bound, numpy.uint8), ctypes.c_size_t()
    _library.check(lib.gw_reduce(None, places, sizes, n, None, out.ctypes.data, bound, ctypes.byref(n_bytes)))
    return _like(out[: n_bytes.value].copy(), frames[0])
