"""Gradwire: makes the gradients of distributed training small on the wire, and moves them.

    gradwire.measure, encode, decode, inspect, reduce   frames of numpy arrays and PyTorch tensors (gradwire/frames.py)
    gradwire.torch                                      compresses what DistributedDataParallel averages
    gradwire.pserver                                    a client of the parameter server
    gradwire.codes                                      bare 2-bit codes
    gradwire.codecs                                     lists the codecs and their options
    gradwire.launcher                                   finds out who this process is among those of a job
    gradwire.Error, InvalidValue, Timeout               what calls raise; an InvalidValue is a ValueError, too

The shared library is found, and must be of this package's version, when a part that needs it is first used."""
import importlib

from ._library import VERSION as __version__
from .errors import Error, InvalidValue, Status, Timeout

_OF_FRAMES = ("measure", "encode", "decode", "inspect", "reduce")
_PARTS = ("codecs", "codes", "launcher", "pserver", "torch")
__all__ = [*_OF_FRAMES, "Error", "InvalidValue", "Status", "Timeout", "__version__"]


def __dir__():
    return sorted({*__all__, *_PARTS})


def __getattr__(name):
    """Loads numpy or PyTorch with the first part that needs it."""
    if name in _OF_FRAMES:
        return getattr(importlib.import_module(".frames", __name__), name)
    if name in _PARTS:
        try:
            return importlib.import_module("." + name, __name__)
        except ImportError as error:  # an AttributeError, so that help() and hasattr() go on without PyTorch
            raise AttributeError(f"{__name__}.{name} cannot be loaded: {error}") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
