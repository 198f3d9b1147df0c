"""examples/pytorch/train.py with Top-K and error feedback in a few lines of PyTorch, in place of Gradwire's. It sends
floats, zeros included, so it saves no bytes. It shows what Top-K itself costs in accuracy. The words are those of
train.py; --codec must be ddp."""
import math
import pathlib
import sys

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "examples/pytorch"))
import train

RATIO = 0.05
residuals = {}


def hook(_, bucket):
    """Keeps the largest elements of each gradient plus its residual. The rest is the next residual."""
    for gradient, parameter in zip(bucket.gradients(), bucket.parameters()):
        whole = gradient.flatten() + residuals.get(parameter, 0)
        kept = whole.abs().topk(math.ceil(RATIO * whole.numel())).indices
        sent = torch.zeros_like(whole)
        sent[kept] = whole[kept]
        residuals[parameter] = whole - sent
        gradient.copy_(sent.view_as(gradient))
    return default_hooks.allreduce_hook(None, bucket)


class WithTopK(train.DistributedDataParallel):
    def __init__(self, module):
        super().__init__(module)
        self.register_comm_hook(None, hook)


if __name__ == "__main__":
    train.DistributedDataParallel = WithTopK
    train.main()
