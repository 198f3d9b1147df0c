"""What stands for a compression where it cannot be itself: in a copy of its model, and in a file."""
from ..errors import Error, Status


class Copy:
    """Stands in a copied or saved model for its compression: PyTorch 2 keeps hooks in the model. The compression itself
    cannot be copied, because it holds connections. All that one does with this raises."""

    def __getattr__(self, name):
        if name.startswith("__"):  # Python and pickle ask for these
            raise AttributeError(name)
        raise Error(
            Status.ORDER,
            "gradwire: this is a copy of a compression, which is not attached: call gradwire.torch.attach for the "
            "copied model",
        )

    def __enter__(self):
        return self.check()

    def __exit__(self, *_):
        return None
