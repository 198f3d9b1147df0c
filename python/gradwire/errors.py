"""What calls raise if the library refuses or fails."""


class Error(RuntimeError):
    """A call failed; the text says what is wrong and what would be right. `status` is the library's number
    (gradwire/status.h)."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class Timeout(Error):
    """A deadline passed; the text names the members or the server that were waited for."""
