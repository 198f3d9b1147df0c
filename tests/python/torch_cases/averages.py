"""Tests that what is sent is right: averages, replicas, layers in float, the plain hook."""
import torch
import torch.distributed as dist

import gradwire
import gradwire.torch as gw

from common import SIZE, TOPK, attached, attached_with, backward, digest, local_gradients, network, said_by, sgd, train
from common import wrapped


def averages_are_those_of_the_library():
    """The averages are bit for bit those that the library makes of the same gradients. The codecs have no shared
    numbers."""
    found = {}
    for codec in ("none", "bf16", "uniform:density=0.3", "onebit", TOPK):
        ddp, compression = attached(codec)
        backward(ddp, 0)
        same = True
        for i, p in enumerate(ddp.parameters()):
            frames = [gradwire.encode(local_gradients(r)[i], codec, rank=r, step=0, id=i, seed=0) for r in range(SIZE)]
            expected = gradwire.decode(gradwire.reduce(frames))
            same = same and torch.equal(expected.view_as(p.grad), p.grad)
        found[codec] = same
        compression.close()
    return found


def replicas_stay_identical():
    found = {}
    codecs = ["none", "ternary", "ternary:skip=last", "gspar:density=0.2", TOPK, "topk:ratio=0.1,scope=global"]
    for codec in (*codecs, "ternary:residual=on,momentum=0.9"):
        ddp, optimizer, compression = attached_with(codec)
        train(ddp, 5, optimizer)
        found[codec] = [digest(ddp), compression.stats()["times_smaller_up"], compression.stats()["steps"]]
        compression.close()
    return found


def momentum_fits_the_optimizer():
    """Everything is sent, so an unchanged SGD ends where it ends without a codec, but for the last places. Returns the
    largest difference of a parameter, and how far the parameters have moved."""
    found = []
    everything = "topk:ratio=1,refresh=1,scope=layer,over=0,momentum=0.9"
    for nesterov, output in ((False, ""), (True, ""), (False, ",output=velocity")):
        ends = []
        for codec in ("none", everything + output):
            own = 0.0 if "velocity" in codec else 0.9
            ddp, optimizer, compression = attached_with(codec, lambda p: sgd(p, own, nesterov=nesterov))
            train(ddp, 8, optimizer)
            compression.close()
            ends.append(torch.cat([p.detach().flatten() for p in ddp.parameters()]))
        begin = torch.cat([p.detach().flatten() for p in network().parameters()])
        found.append([(ends[1] - ends[0]).abs().max().item(), (ends[0] - begin).abs().max().item()])
    return found


def last_layer_goes_as_float():
    """skip=last looks at parameter names. So the last module's weight and bias are exact."""
    ddp, compression = attached("ternary:skip=last")
    backward(ddp, 0)
    mean = [sum(local_gradients(r)[i] for r in range(SIZE)) / SIZE for i in range(4)]
    found = [torch.allclose(p.grad, m, rtol=1e-5, atol=1e-7) for p, m in zip(ddp.parameters(), mean)]
    compression.close()
    return found


def the_hook_by_itself():
    ddp, compression = wrapped(), attached("ternary")[1]
    ddp.register_comm_hook(compression, gw.hook)
    dist.barrier()  # a rank that is still in attach when another fails would get the error there
    said = said_by(RuntimeError, backward, ddp, 0)
    compression.close()
    return said
