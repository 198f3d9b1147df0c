"""Finds the parameters whose gradients DistributedDataParallel reduces, with all their names, and those of the last
layer. A parameter is known by its identity: it may have several names, and names come and go after DDP was made."""
import typing

import torch
from torch.nn.utils import parametrize

from .. import _api

DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # what gradients may be
_WRAPPED = "_orig_mod."  # torch.compile puts this into names


class Parameter(typing.NamedTuple):
    """names: every name that it has in the model, the first as in named_parameters()."""

    names: typing.List[str]
    tensor: torch.Tensor
    is_reduced: bool
    is_last: bool  # it belongs to the last layer


def _walk(path, prefix=""):
    """Yields (path, name, tensor) for every name of every parameter, in the order of named_parameters(). path: the
    modules from the model to the one that holds the parameter."""
    for name, tensor in path[-1]._parameters.items():
        if tensor is not None:
            yield path, prefix + name, tensor
    for name, child in path[-1]._modules.items():
        # A module may hold one that holds it. Classes may say of themselves what is equal, so only identity counts.
        if child is not None and all(child is not above for above in path):
            yield from _walk((*path, child), f"{prefix}{name}.")


def _layer(path):
    """Returns the layer whose parameters the last module of a path holds, or a part of them. A parametrization, and a
    module within a layer that has a weight, belong to that layer. So does what wraps a single module."""
    at = len(path) - 1
    for i, module in enumerate(path[:-1]):
        if module._parameters.get("weight") is not None or (
            parametrize.is_parametrized(module) and path[i + 1] is module.parametrizations
        ):
            at = i
            break
    while at > 1 and sum(next(m.parameters(), None) is not None for m in path[at - 1].children()) == 1:
        at -= 1
    return path[at]


def _reduced(ddp, names):
    """Returns {identity: parameter} of what DDP reduces. Raises if Gradwire does not take its gradient."""
    try:
        # Only DDP's reducer knows what it took when it was made. These buckets of zeros are what join() hands over.
        buckets = [(b.buffer(), b.parameters()) for b in ddp.reducer._get_zeros_like_grad_buckets()]
    except (AttributeError, RuntimeError):
        # Before the first step there are none for sparse gradients. The first step compares what it gets in any case.
        ignored = set(getattr(ddp, "parameters_to_ignore", ()))
        taken = [p for p, all_names in names.values() if p.requires_grad and not ignored.intersection(all_names)]
        buckets = [(p, [p]) for p in taken]
    sparse = {
        id(m.weight)
        for m in ddp.module.modules()
        if isinstance(m, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and m.sparse
    }
    reduced = {}
    for buffer, parameters in buckets:
        for p in parameters:
            name = names[id(p)][1][0] if id(p) in names else f"a parameter of shape {list(p.shape)}"
            what = None
            if buffer.is_sparse or id(p) in sparse:
                what = "sparse gradients; Gradwire takes dense ones"
            elif buffer.dtype not in DTYPES or p.is_complex():  # PyTorch 2.14 has buckets of floats for complex ones
                kind = p.dtype if p.is_complex() else buffer.dtype
                what = f"gradients of {kind}; Gradwire takes float32, float16 and bfloat16"
            elif buffer.device.type not in ("cpu", "cuda"):
                what = f"gradients on the device {buffer.device}; Gradwire takes cpu and cuda"
            if what:
                raise ValueError(
                    f"gradwire: {name} has {what}. Change the parameter, or leave it out of DDP with "
                    "_set_params_and_buffers_to_ignore_for_model"
                )
            reduced[id(p)] = p
    return reduced


def find_parameters(ddp):
    """Returns what ddp reduces, and what else the model has, as [Parameter] in the order of named_parameters(). What
    the model has no more comes last. Raises ValueError if ddp reduces what Gradwire does not take."""
    names, layer = {}, set()
    places = list(_walk((ddp.module,)))
    for _, name, tensor in places:
        all_names = names.setdefault(id(tensor), (tensor, []))[1]
        all_names += [name, name.replace(_WRAPPED, "")] if _WRAPPED in name else [name]
    reduced = _reduced(ddp, names)
    if not reduced:
        raise ValueError("gradwire: DistributedDataParallel reduces no parameter of this model")
    last_path = next((path for path, _, tensor in reversed(places) if id(tensor) in reduced), None)
    if last_path:
        layer = set(map(id, _layer(last_path).parameters()))
    found = [Parameter(n, p, id(p) in reduced, id(p) in layer) for p, n in names.values()]
    gone = [p for p in reduced.values() if id(p) not in names]
    return found + [Parameter([f"gone.{i}"], p, True, False) for i, p in enumerate(gone)]


def declare(parameters, specs):
    """Returns [(name, elements, last_layer)] of what is reduced, for a member of an exchange. A parameter goes by that
    of its names which skip= fits, else by its first one. parameters: [Parameter]. Raises ValueError if a name in skip=
    fits no parameter."""
    codecs = [_api.Codec(spec) for spec in specs]
    for codec in codecs:
        codec.check_skip([(name, p.tensor.numel(), p.is_last) for p in parameters for name in p.names])
    tensors = []
    for p in parameters:
        fits = [[codec.leaves_float(name, p.tensor.numel(), p.is_last) for codec in codecs] for name in p.names]
        wanted = [any(column) for column in zip(*fits)]
        if wanted not in fits:
            raise ValueError(f"gradwire: the specifications name one parameter differently: {', '.join(p.names)}")
        if p.is_reduced:
            tensors.append((p.names[fits.index(wanted)], p.tensor.numel(), p.is_last))
    return tensors
