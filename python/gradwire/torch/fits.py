"""Checks that a codec with momentum= fits the optimizer."""
import torch

from .. import _api


def why_not(codec, optimizer):
    """Returns why momentum= of the codec does not fit, or None. codec: an _api.Codec. optimizer: None if it is not
    known; then no momentum= fits."""
    traits = _api.library().gw_codec_traits_of(codec.handle)
    if not traits.momentum > 0:
        return None
    if optimizer is None:
        return f"{codec.canonical}: a codec with momentum= must fit the optimizer; pass it as optimizer="
    kind = type(optimizer).__name__
    if not isinstance(optimizer, torch.optim.SGD):
        return f"{codec.canonical.partition(':')[0]} with momentum= fits torch.optim.SGD only, and this is {kind}"
    wanted = 0.0 if traits.velocity else traits.momentum
    for group in optimizer.param_groups:
        # Momentum that a schedule computes may have another last place.
        if not abs(group["momentum"] - wanted) < 1e-6 or group["dampening"] != 0:
            output = ",output=velocity" if traits.velocity else ""
            return (
                f"the codec has momentum={traits.momentum:g}{output}, so the optimizer must have momentum {wanted:g} "
                f"and dampening 0, and has {group['momentum']:g} and {group['dampening']:g}"
            )
    return None


def check_optimizer(codecs, optimizer):
    """Raises TypeError if it is no optimizer, and ValueError if a codec does not fit. codecs: [_api.Codec]."""
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer is {optimizer!r}, and must be an optimizer of PyTorch")
    for codec in codecs:
        if why := why_not(codec, optimizer):
            raise ValueError(f"gradwire: {why}")
