"""Tests what DistributedDataParallel does: buckets, accumulation, unused parameters, join, scaling, several models."""
import contextlib
import threading
import time

import torch
import torch.distributed as dist

import gradwire
import gradwire.torch as gw

from common import RANK, SIZE, TOPK, attached, backward, batch, digest, local_gradients, network, residuals_in, sgd
from common import said_by, train


def buckets_of_all_sizes():
    """Many buckets, one bucket and views give the same bits."""
    found = []
    for options in ({}, {"bucket_cap_mb": 0.001}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        ddp, compression = attached("ternary", ddp_options=options)
        train(ddp, 4)
        found.append(digest(ddp))
        compression.close()
    return found


def accumulation():
    """no_sync sends nothing. Then the sum is averaged."""
    ddp, compression = attached("none")
    with ddp.no_sync():
        backward(ddp, 0)
    steps_before = compression.stats()["steps"]
    backward(ddp, 1)
    mean = [sum(local_gradients(r, 0)[i] + local_gradients(r, 1)[i] for r in range(SIZE)) / SIZE for i in range(4)]
    same = all(torch.allclose(p.grad, m, rtol=1e-4, atol=1e-6) for p, m in zip(ddp.parameters(), mean))
    steps = compression.stats()["steps"]
    compression.close()
    return [steps_before, steps, same]


def thrown_away():
    """Returns what six steps end with: as they are; if each comes after a backward whose gradients are thrown away; and
    if that one is under no_sync."""
    found = []
    for kind in ("as they are", "thrown away", "no_sync"):
        ddp, compression = attached("ternary:residual=on")
        optimizer = sgd(ddp.parameters())
        with compression:
            for step in range(6):
                if kind != "as they are":
                    with ddp.no_sync() if kind == "no_sync" else contextlib.nullcontext():
                        backward(ddp, step, factor=-1.0)
                optimizer.zero_grad()
                backward(ddp, step)
                optimizer.step()
        found.append(digest(ddp))
    return found


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.left, self.right = torch.nn.Linear(20, 30), torch.nn.Linear(30, 5), torch.nn.Linear(30, 5)

    def forward(self, x, branch):
        return (self.left if branch else self.right)(torch.relu(self.first(x)))


def unused_parameters():
    """A branch that no rank used keeps its residual. Its gradient stays None, as DDP says."""
    ddp, compression = attached(TOPK, Branches(), {"find_unused_parameters": True})
    states, grads = [], []
    for step, branch in enumerate([1, 1, 0, 1]):
        for p in ddp.parameters():
            p.grad = None
        x, y = batch(step)
        torch.nn.functional.cross_entropy(ddp(x, branch), y).backward()
        grads.append([ddp.module.left.weight.grad is None, ddp.module.right.weight.grad is None])
        states.append(compression.state_dict())
    compression.close()
    parts = [residuals_in(state, ddp.module) for state in states]
    same = {name: [torch.equal(parts[i][name], parts[i + 1][name]) for i in range(3)] for name in parts[0]}
    return {"grads": grads, "kept": same}


def uneven_inputs():
    """With join(), ranks that are done send zeros, which count in the average."""
    ddp, compression = attached("none")
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    with ddp.join():
        for step in range(2 + RANK):
            optimizer.zero_grad()
            backward(ddp, step)
            optimizer.step()
    found = [digest(ddp), compression.stats()["steps"]]
    compression.close()
    return found


def uneven_inputs_of_those_left():
    """join() is asked to divide by the ranks that still train. If it is not enabled, it does nothing."""
    ddp, compression = attached("none")
    with ddp.join(divide_by_initial_world_size=False, enable=False):
        backward(ddp, 0)
    dist.barrier()  # no rank fails while another one still attaches
    with compression, ddp.join(divide_by_initial_world_size=False):
        return said_by(RuntimeError, backward, ddp, 0)


def clipping():
    ddp, compression = attached("ternary")
    backward(ddp, 0)
    torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.01)
    norm = sum(p.grad.double().pow(2).sum() for p in ddp.parameters()).sqrt().item()
    compression.close()
    return norm


def several_models():
    """Two models train in one process, by turns. They get the same as two models that train alone."""
    alone = []
    for seed in (1, 2):
        ddp, compression = attached("ternary", network(seed))
        train(ddp, 3)
        alone.append(digest(ddp))
        compression.close()
    pairs = [attached("ternary", network(seed)) for seed in (1, 2)]
    optimizers = [sgd(ddp.parameters()) for ddp, _ in pairs]
    for step in range(3):
        for (ddp, _), optimizer in zip(pairs, optimizers):
            train(ddp, 1, optimizer, step)
    together = [digest(ddp) for ddp, _ in pairs]
    for _, compression in pairs:
        compression.close()
    return [alone, together]


def frozen_parameters():
    model = network()
    model[0].weight.requires_grad_(False)
    # The name fits, though this parameter needs no gradient.
    ddp, compression = attached("ternary:skip=0.weight", model)
    train(ddp, 2)
    names = compression.state_dict()["names"]
    compression.close()
    return [names, digest(ddp)]


class Bucket:
    """A bucket like DDP's, for element types that DDP over Gloo refuses."""

    def __init__(self, parameters, dtype):
        self._parameters = parameters
        self._buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=dtype)
        self._gradients, at = [], 0
        for p in parameters:
            self._gradients.append(self._buffer[at : at + p.numel()].view_as(p))
            at += p.numel()

    def parameters(self):
        return self._parameters

    def gradients(self):
        return self._gradients

    def buffer(self):
        return self._buffer

    def is_last(self):
        return True


class OnAnotherDevice(torch.overrides.TorchFunctionMode):
    """Does what torch.set_default_device("meta") does in PyTorch 2."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        more = {"device": "meta"} if function in (torch.empty, torch.zeros) else {}
        return function(*arguments, **{**more, **(named or {})})


def halves():
    """Buckets of float16 and bfloat16, made by hand, get the average of the widened values, narrowed once. The
    program's default device is another."""
    found = {}
    for dtype in (torch.float16, torch.bfloat16):
        ddp, compression = attached("none")
        bucket = Bucket(list(ddp.parameters()), dtype)
        values = [torch.cat([g.flatten() for g in local_gradients(r)]).to(dtype) for r in range(SIZE)]
        bucket.buffer().copy_(values[RANK])
        with OnAnotherDevice():
            got = gw.hook(compression, bucket).wait()
            same = not compression.state_dict()["residuals"].is_meta
        at = 0
        for i, p in enumerate(ddp.parameters()):
            parts = [v[at : at + p.numel()].float() for v in values]
            frames = [gradwire.encode(part, "none", rank=r, id=i) for r, part in enumerate(parts)]
            expected = gradwire.decode(gradwire.reduce(frames)).to(dtype)
            same = same and torch.equal(got[at : at + p.numel()], expected)
            at += p.numel()
        found[str(dtype)] = same and got.data_ptr() == bucket.buffer().data_ptr()
        compression.close()
    return found


class Scaler:
    """Has what attach needs of a GradScaler. PyTorch's own does nothing without CUDA."""

    def __init__(self):
        self.scale = 1024.0

    def get_scale(self):
        return self.scale

    def state_dict(self):
        return {"a number of its own": RANK, 3: 4}


def gradient_scaling():
    """The factor changes in the middle. Gradients divided by it are bit for bit those of a run without scaling."""
    found = []
    for scaling in (False, True):
        scaler = Scaler() if scaling else None
        ddp, compression = attached(TOPK, scaler=scaler)
        sums = []
        for step in range(4):
            if scaling and step == 2:
                scaler.scale = 256.0
            for p in ddp.parameters():
                p.grad = None
            factor = scaler.scale if scaling else 1.0
            backward(ddp, 0, factor=factor)
            sums.append([(p.grad / factor).double().abs().sum().item() for p in ddp.parameters()])
        found.append(sums)
        compression.close()
    return found


def python_goes_on():
    """The main thread counts while a step waits for rank 1. Compares its speed with the speed without a step. It begins
    to count before the step waits: if the wait held Python's lock, the main thread would stand still."""
    ddp, compression = attached("ternary")
    train(ddp, 2)

    def count(seconds):
        n, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            n += 1
        return n / seconds

    dist.barrier()
    shares = []
    for step in range(3):
        idle = count(0.3)
        dist.barrier()
        if RANK == 1:
            time.sleep(0.5)
        thread = threading.Thread(target=backward, args=(ddp, 2 + step))
        thread.start()
        shares.append(count(0.3) / idle)
        thread.join(60)
        dist.barrier()
    compression.close()
    return shares
