"""Gradwire: makes the gradients of distributed training small on the wire, and moves them.

    gradwire.measure, encode, decode, inspect, reduce   frames of numpy arrays and PyTorch tensors (gradwire/frames.py)
    gradwire.torch                                      compresses what DistributedDataParallel averages
    gradwire.pserver                                    a client of the parameter server
    gradwire.codes                                      bare 2-bit codes
    gradwire.codecs                                     lists the codecs and their options

The shared library is found, and must be of this package's version, when a part that needs it is first used."""
import importlib

from ._library import VERSION as __version__
from .errors import Error, Status, Timeout

_OF_FRAMES = ("measure", "encode", "decode", "inspect", "reduce")
__all__ = [*_OF_FRAMES, "Error", "Status", "Timeout", "__version__"]


def __getattr__(name):
    """Loads numpy with the first part that needs it."""
    if name in _OF_FRAMES:
        return getattr(importlib.import_module(".frames", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
