"""Finds and loads the shared library: where GRADWIRE_LIBRARY says, else installed, else in the build folder of this
checkout."""
import ctypes
import ctypes.util
import os
import pathlib

NAME = "libgradwire.so.0"


def _places():
    named = os.environ.get("GRADWIRE_LIBRARY")
    if named:
        yield named
        return
    yield NAME
    yield str(pathlib.Path(__file__).resolve().parent.parent.parent / "build/release" / NAME)


def load():
    reasons = []
    for place in _places():
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        "the library of Gradwire is not found (" + "; ".join(reasons) + "); install it, or name it in GRADWIRE_LIBRARY"
    )
