"""Finds and loads the shared library. It looks where GRADWIRE_LIBRARY says, else in the package's own folder (a wheel
brings it), else among the installed libraries, else in the build folder of this checkout."""
import ctypes
import functools
import os
import pathlib

from .errors import of_status

VERSION = "0.1.0"  # the version of this package; before 1.0 the library must have the same
NAME = "libgradwire.so.0"

_HERE = pathlib.Path(__file__).resolve().parent


def _places(name, variable):
    named = os.environ.get(variable)
    if named:
        yield named
        return
    yield str(_HERE / name)
    yield name
    yield str(_HERE.parent.parent / "build/release" / name)


def find(name, variable, mode=ctypes.DEFAULT_MODE):
    """Finds the ctypes library. If there is none, raises ImportError, which names every place that was looked at."""
    reasons = []
    for place in _places(name, variable):
        try:
            return ctypes.CDLL(place, mode)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        f"{name} of Gradwire is not found (" + "; ".join(reasons) + f"); install it, or name it in {variable}"
    )


@functools.lru_cache(maxsize=None)
def load():
    """Loads libgradwire, which must have this package's version."""
    library = find(NAME, "GRADWIRE_LIBRARY")
    library.gw_version.restype = ctypes.c_char_p
    found = library.gw_version().decode()
    if found != VERSION:
        raise ImportError(
            f"the Python package of Gradwire is {VERSION}, and the library that was found is {found} "
            f"({library._name}); install both from one version, or name the right library in GRADWIRE_LIBRARY"
        )
    library.gw_last_error.restype = ctypes.c_char_p
    return library


def check(status):
    """Returns the status if it is no error. Else raises a gradwire.Error with what the library says."""
    if status < 0:
        raise of_status(status)(status, last_error())
    return status


def last_error():
    return load().gw_last_error().decode(errors="replace")


def fail(status, sentence):
    """For functions that C calls: stores a sentence for gw_last_error() of this thread, and returns the status."""
    return load().gw_fail(status, sentence.replace("%", "%%").encode())


def declare(signatures):
    """Gives functions of the library their result and argument types: {name: (result, [arguments])}. Returns it."""
    library = load()
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
