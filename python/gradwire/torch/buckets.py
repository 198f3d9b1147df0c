"""DDP's buckets on their way from the hook to the exchange and back."""
import ctypes

import torch

from ..errors import Error, Status


def _storage(tensor):
    """Returns the address of a tensor's storage. PyTorch 2 has storage() no more for long."""
    return getattr(tensor, "untyped_storage", tensor.storage)().data_ptr()


class Layout:
    """Which tensors a bucket holds, and where they lie. 16-bit floats are widened into `staging`, float32."""

    def __init__(self, numbers, sizes, buffer, gradients):
        """sizes: how many elements these tensors were declared with."""
        self.n, self.numbers, self.offsets = (len(numbers), (ctypes.c_uint32 * len(numbers))(*numbers), [])
        for gradient, size in zip(gradients, sizes):
            offset = gradient.storage_offset() - buffer.storage_offset()
            if _storage(gradient) != _storage(buffer) or not gradient.is_contiguous():
                raise Error(Status.ARGUMENT, "a gradient does not lie in one piece in its bucket")
            if gradient.numel() != size:
                raise Error(
                    Status.ARGUMENT, f"a gradient has {gradient.numel()} elements, and its parameter had {size}"
                )
            self.offsets.append(offset)
        if buffer.numel() != sum(sizes):
            raise Error(
                Status.ARGUMENT, f"a bucket holds {buffer.numel()} elements, and its parameters {sum(sizes)} in all"
            )
        # The exchange takes float32 in the host's memory. The program may have set another default device.
        self.staging = None
        if buffer.dtype != torch.float32 or buffer.is_cuda:
            self.staging = torch.empty(buffer.numel(), dtype=torch.float32, device="cpu", pin_memory=buffer.is_cuda)
        self._at, self._addresses = None, None

    def addresses(self, base):
        if base != self._at:
            self._at = base
            self._addresses = (ctypes.c_void_p * self.n)(*(base + 4 * offset for offset in self.offsets))
        return self._addresses


def _future(buffer):
    return torch.futures.Future(devices=[buffer.device]) if buffer.is_cuda else torch.futures.Future()


class Passed:
    """A bucket on its way through DDP's own all-reduce. work: that of torch.distributed."""

    def __init__(self, work, buffer):
        self.work, self.buffer, self.future = work, buffer, _future(buffer)


class Bucket:
    """A bucket on its way from the hook to the thread and back."""

    def __init__(self, layout, buffer, is_last, scale):
        """is_last: it is the last one of its step. scale: the GradScaler's factor, or 1."""
        self.layout, self.buffer, self.is_last, self.scale = layout, buffer, is_last, scale
        self.copied = None
        self.future = _future(buffer)

    def floats(self):
        return self.buffer if self.layout.staging is None else self.layout.staging

    def bring(self):
        """Copies the bucket to where the exchange reads it. The hook's thread calls this. With CUDA, the copy is made
        in the thread's stream."""
        if self.layout.staging is not None:
            self.layout.staging.copy_(self.buffer, non_blocking=self.buffer.is_cuda)
            if self.buffer.is_cuda:
                self.copied = torch.cuda.Event()
                self.copied.record()

    def is_zero(self):
        if self.copied is not None:
            self.copied.synchronize()
        return not self.floats().any()

    def finish(self):
        """Is called when the averages stand in floats()."""
        if self.layout.staging is not None:
            self.buffer.copy_(self.layout.staging)
        self.future.set_result(self.buffer)
