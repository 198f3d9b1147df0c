"""Takes numbers from arrays, tensors, bytes and lists, for all parts of the package. What holds more than numbers is
refused, because the rest would be lost: masks, units, names, fields. What loses nothing is taken: other strides,
another byte order, memory that is not aligned."""
import array as standard_array
import mmap
import sys

import numpy

_PLAIN = (numpy.ndarray, numpy.memmap, numpy.matrix)
_NUMBERS = (bool, int, float, numpy.generic)
_MOST_DEPTH = 32  # as numpy 1 has it
_BYTES = (bytes, bytearray, memoryview, mmap.mmap, standard_array.array)


def is_tensor(thing):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def numbers(thing, what, wanted=None, depth=0):
    """Returns the numbers as a plain numpy array in C order, on the same memory if that is possible. wanted: the name
    of a type that they must have. A bfloat16 tensor gives float32. depth: how many lists stand around it. Raises
    TypeError."""
    if is_tensor(thing):
        found = _of_tensor(thing, what, wanted)
    elif isinstance(thing, _BYTES):
        found = _of_bytes(thing, what)
    elif isinstance(thing, (list, tuple)):
        found = _of_list(thing, what, depth)
    elif type(thing) in _PLAIN or isinstance(thing, _NUMBERS) or isinstance(thing, complex):
        found = numpy.asarray(thing)
    else:
        raise TypeError(
            f"{what} is of type {_name(type(thing))}, which may hold more than numbers; give a numpy array "
            "(numpy.asarray) or a PyTorch tensor of its numbers"
        )
    if found.dtype.hasobject:
        raise TypeError(f"{what} holds Python objects, or integers of more than 64 bits; numbers are taken")
    if found.dtype.kind not in "biuf":
        raise TypeError(f"{what} holds {found.dtype}; integers and real numbers are taken")
    if wanted and found.dtype.name != wanted:
        raise TypeError(f"{what} holds {found.dtype.name}, and must hold {wanted}")
    found = found.astype(found.dtype.newbyteorder("="), copy=False)
    return numpy.require(found, requirements=["C", "ALIGNED", "ENSUREARRAY"])


def check_shape(array, shape, what):
    """Checks that the array has the shape. One element fits every shape of one element. Raises ValueError."""
    if list(array.shape) != list(shape) and (array.size != 1 or any(n != 1 for n in shape)):
        raise ValueError(f"{what} has shape {list(array.shape)}, and must have {list(shape)}")


def _name(kind):
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _of_tensor(tensor, what, wanted):
    torch, advice = sys.modules["torch"], None
    name = str(tensor.dtype).partition(".")[2]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise TypeError(
            f"{what} is of type {_name(type(tensor))}, which may hold more than numbers; give a plain torch.Tensor"
        )
    if tensor.device.type == "meta":
        advice = "is on the meta device, and has no values"
    elif getattr(tensor, "is_nested", False):
        advice = "is nested; give its tensors one by one"
    elif tensor.is_quantized:
        advice = "is quantized; give tensor.dequantize()"
    elif tensor.layout != torch.strided:
        advice = f"is of layout {str(tensor.layout).partition('.')[2]}; give tensor.to_dense()"
    elif tensor.device.type != "cpu":
        raise ValueError(f"{what} is on {tensor.device}; bring it to the CPU first")
    elif getattr(tensor, "has_names", bool)():  # PyTorch 2.14 has no names of dimensions
        advice = f"has names of dimensions, {tensor.names}; give tensor.rename(None)"
    elif wanted and name != wanted:
        advice = f"holds {name}, and must hold {wanted}"
    if advice:
        raise TypeError(f"{what} {advice}")
    try:
        if not tensor.numel() or getattr(tensor, "untyped_storage", tensor.storage)().nbytes():
            tensor = tensor.detach().resolve_neg()
            return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    except (RuntimeError, TypeError):  # another type that numpy lacks, or a tensor that has no memory of its own
        raise TypeError(f"{what} is a tensor of {name} that numpy cannot read; give a copy as float32") from None
    raise TypeError(f"{what} has no values, because its storage was freed")  # as FSDP does with whole parameters


def _of_bytes(thing, what):
    if isinstance(thing, (bytes, bytearray)):
        return numpy.frombuffer(thing, numpy.uint8)
    try:
        return numpy.asarray(memoryview(thing))
    except (ValueError, NotImplementedError):
        raise TypeError(
            f"{what} holds values of the format {memoryview(thing).format!r}, which are no numbers"
        ) from None


def _of_list(things, what, depth):
    if depth == _MOST_DEPTH:
        raise TypeError(f"{what} holds lists in lists, more than {_MOST_DEPTH} deep")
    parts = [
        numpy.asarray(x) if isinstance(x, _NUMBERS) else numbers(x, f"element {i} of {what}", depth=depth + 1)
        for i, x in enumerate(things)
    ]
    if len({part.shape for part in parts}) > 1:
        raise ValueError(f"the elements of {what} differ in shape")
    whole = parts and all(part.dtype.kind in "biu" for part in parts)
    found = numpy.array([part.tolist() for part in parts] if whole else parts)  # else int64 beside uint64 gives floats
    for i, part in enumerate(parts):  # numpy makes floats of integers that stand beside floats
        verb = "holds" if part.ndim else "is"
        if part.dtype.kind in "iu" and found.dtype.kind == "f":
            for before, now in zip(part.ravel().tolist(), found[i].ravel().tolist()):
                if before != now:
                    raise TypeError(
                        f"element {i} of {what} {verb} {before}, and {found.dtype} beside it would change it"
                    )
    return found
