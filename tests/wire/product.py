"""What Gradwire itself makes of floats and frames. Thousands of cases go through the library in this process, because
as many starts of the tool would take minutes. tests/cli has the tool."""

import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import gradwire
import numpy
from gradwire import _api, _library


def decode(frame):
    """Returns the bytes of the floats. None: the frame is refused."""
    try:
        return gradwire.decode(frame).tobytes()
    except gradwire.Error:
        return None


def measure(spec, values):
    return gradwire.measure(numpy.array(values, numpy.float32), spec).tolist()


def encode(spec, values, rank=0, step=0, tensor=0, seed=0, shared=None):
    numbers = None if shared is None else numpy.array(shared, numpy.float32)
    values = numpy.array(values, numpy.float32)
    frame = gradwire.encode(values, spec, seed=seed, rank=rank, step=step, id=tensor, shared=numbers)
    return frame.tobytes()


def encode_steps(spec, steps, rank, tensor):
    """Returns the frame of the last step. Each step goes on from what the one before left."""
    lib, codec, encoder = _api.library(), _api.Codec(spec), ctypes.c_void_p()
    about = _api.Tensor(name=b"", id=tensor, n_elems=len(steps[0]))
    _library.check(lib.gw_encoder_create(None, codec.handle, ctypes.byref(about), ctypes.byref(encoder)))
    try:
        frame, n_bytes = numpy.empty(lib.gw_encoder_bound(encoder, len(steps[0])), numpy.uint8), ctypes.c_size_t()
        for step, values in enumerate(steps):
            array, draw = numpy.array(values, numpy.float32), _api.Draw(seed=0, rank=rank, step=step)
            out = frame.ctypes.data, frame.size, ctypes.byref(n_bytes), None
            _library.check(lib.gw_encoder_measure_encode(encoder, array.ctypes.data, None, ctypes.byref(draw), *out))
            _library.check(lib.gw_encoder_commit(encoder, ctypes.c_bool(True)))
        return frame[: n_bytes.value].tobytes()
    finally:
        lib.gw_encoder_destroy(encoder)


def reduce(frames, spec=None):
    """Returns the frame of the average. None: these frames are refused together."""
    lib, n, n_bytes = _api.library(), len(frames), ctypes.c_size_t()
    arrays = [numpy.frombuffer(frame, numpy.uint8) for frame in frames]
    places, sizes = (ctypes.c_void_p * n)(*(a.ctypes.data for a in arrays)), (ctypes.c_size_t * n)(*map(len, frames))
    codec = _api.Codec(spec) if spec else None
    out = numpy.empty(lib.gw_reduce_bound(places, sizes, n), numpy.uint8)
    status = lib.gw_reduce(
        None, places, sizes, n, codec and codec.handle, out.ctypes.data, out.size, ctypes.byref(n_bytes)
    )
    return out[: n_bytes.value].tobytes() if status == 0 else None
