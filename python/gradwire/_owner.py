"""What objects of the package share that own an object of the library. A copy would destroy it a second time. And if it
has threads or connections, it works only in the process that made it: a fork copies none of these."""
import os

from .errors import Error, Status


class Owner:
    """Refuses to be copied and pickled."""

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} of Gradwire cannot be copied or pickled; make another")


class OfOneProcess(Owner):
    """Remembers the process in which it was made."""

    def __init__(self):
        self._process = os.getpid()

    def is_of_this_process(self):
        return getattr(self, "_process", None) == os.getpid()

    def check_process(self):
        """Raises gradwire.Error in another process."""
        if not self.is_of_this_process():
            raise Error(
                Status.ORDER,
                f"this {type(self).__name__} of Gradwire belongs to the process that forked this one, and works only "
                "there; make another here",
            )
