"""The exceptions that calls raise if the library refuses or fails."""
import enum


class Status(enum.IntEnum):
    """The library's numbers that Python names. gradwire/status.h says what they mean. A test compares them."""

    OK = 0
    NOT_YET = 1
    ARGUMENT = -1
    SPEC = -2
    ORDER = -4
    FRAME_CUT = -20
    FRAME_MISMATCH = -26
    MEMORY = -40
    NONFINITE = -50
    TIMEOUT = -60
    PEER = -61
    CLOSED = -62
    SYSTEM = -80
    UNSUPPORTED = -81


class Error(RuntimeError):
    """A call failed. The text says what is wrong and what would be right. `status` is the library's number
    (gradwire/status.h)."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status

    def __reduce__(self):  # so that it comes whole out of a pool of processes
        return type(self), (self.status, str(self))


class Timeout(Error):
    """A deadline passed. The text names the members or the server for which the call waited."""


class InvalidValue(Error, ValueError):
    """What the caller gave is wrong: an argument, a specification, a frame, or a gradient that is not finite."""


def of_status(status):
    """The class of the exception for a status."""
    if status == Status.TIMEOUT:
        return Timeout
    is_given = Status.FRAME_MISMATCH <= status <= Status.FRAME_CUT
    return InvalidValue if is_given or status in (Status.ARGUMENT, Status.SPEC, Status.NONFINITE) else Error
