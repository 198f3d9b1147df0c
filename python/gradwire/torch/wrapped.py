"""Finds the DistributedDataParallel model that attach is to serve, and says what to do if it cannot."""
import torch
from torch.nn.parallel import DistributedDataParallel

from .. import _api


def find_ddp(model):
    """Returns the DistributedDataParallel model: this one, or the one that torch.compile wrapped. Raises TypeError."""
    while isinstance(model, torch.nn.Module) and "_orig_mod" in model._modules:
        model = model._orig_mod
    if isinstance(model, DistributedDataParallel):
        return model
    kind = _api.shown(model) if isinstance(model, type) else f"a {type(model).__name__}"
    text = f"attach takes a DistributedDataParallel model, and this is {kind}"
    if isinstance(model, torch.nn.Module) and any(isinstance(m, DistributedDataParallel) for m in model.modules()):
        text += ", which wraps one; give attach the one within"
    raise TypeError(text)


def check_hooks(ddp):
    """Raises ValueError if DDP makes a communication hook of its own for one of its options. It takes only one."""
    if getattr(ddp, "mixed_precision", None) is not None:
        raise ValueError(
            "gradwire: DDP has made a communication hook of its own for mixed_precision=, and takes only one. Make DDP "
            "without it, and call the model under torch.autocast"
        )
    if any(hasattr(p, "_in_backward_optimizers") for p in getattr(ddp, "_module_parameters", ddp.module.parameters())):
        raise ValueError(
            "gradwire: the optimizer runs in backward (_apply_optimizer_in_backward), for which DDP makes a "
            "communication hook of its own, and it takes only one. Call optimizer.step() after backward"
        )
    if getattr(ddp, "skip_all_reduce_unused_params", False):
        raise ValueError(
            "gradwire: DDP was made with skip_all_reduce_unused_params=True, and then hands over some buckets only. "
            "Make it without skip_all_reduce_unused_params; for what is not used, nothing is sent"
        )
    # Its hooks of Python hand over a parameter's gradient, no bucket, and look at no future. So no error would be seen.
    if getattr(ddp, "_use_python_reducer", False):
        raise ValueError(
            "gradwire: DDP was made with torch._dynamo.config.optimize_ddp naming a python_reducer, which hands over "
            "no buckets. Set it to True or False before you make DDP"
        )


def second_hook(ddp):
    """Returns the ValueError that says which hook ddp has, after it refused one more."""
    names = [getattr(hook, "__qualname__", repr(hook)) for hook, _ in getattr(ddp, "_comm_hooks", ())]  # PyTorch 2
    named = f" ({', '.join(names)})" if names else ""
    return ValueError(
        f"gradwire: this model has a communication hook already{named}, and DDP takes only one. Make a new "
        "DistributedDataParallel model for Gradwire, and register no other hook on it"
    )
