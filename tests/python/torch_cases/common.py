"""What the cases share: networks, batches, training, a compression on this rank."""
import os
import pathlib
import time
import warnings

import torch
from torch.nn.parallel import DistributedDataParallel

import gradwire.launcher
import gradwire.torch as gw

warnings.filterwarnings("ignore")
os.environ.update(gradwire.launcher.environment())
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TRANSPORT = os.environ.get("TRANSPORT", "tcp")
FOLDER = pathlib.Path(os.environ["FOLDER"])
TOPK = "topk:ratio=0.1,refresh=1,scope=layer,over=0"


def network(seed=0, hidden=64):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 5))


def batch(step, rank=RANK):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(8, 20, generator=generator)
    return x, x[:, :5].argmax(1)


def backward(model, step, rank=RANK, factor=1.0):
    x, y = batch(step, rank)
    loss = factor * torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return loss.item()


def sgd(parameters, momentum=0.9, **options):
    return torch.optim.SGD(parameters, 0.1, momentum=momentum, **options)


def train(ddp, steps, optimizer=None, first=0):
    optimizer = optimizer or sgd(ddp.parameters())
    for step in range(first, first + steps):
        optimizer.zero_grad()
        backward(ddp, step)
        optimizer.step()
    return optimizer


def digest(module):
    """Returns a number. Ranks whose parameters have the same bits get the same number."""
    return sum(p.detach().contiguous().view(torch.int32).long().sum().item() for p in module.parameters())


def wrapped(model=None, **ddp_options):
    return DistributedDataParallel(model or network(), **ddp_options)


def attached(codec, model=None, ddp_options=None, transport=TRANSPORT, **options):
    ddp = wrapped(model, **(ddp_options or {}))
    return ddp, gw.attach(ddp, codec, transport=transport, **options)


def attached_with(codec, make=sgd, **options):
    """make(parameters) makes the optimizer that attach is told. Returns it, too."""
    ddp = wrapped()
    optimizer = make(ddp.parameters())
    return ddp, optimizer, gw.attach(ddp, codec, transport=TRANSPORT, optimizer=optimizer, **options)


def say(word):
    """Tells other ranks, which may have no connection to this one any more."""
    (FOLDER / f"{word}-{TRANSPORT}-{RANK}").touch()


def wait_until(is_so):
    end = time.monotonic() + 120
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)


def await_word(word, *, of):
    """Waits until these ranks have said it."""
    wait_until(lambda: all((FOLDER / f"{word}-{TRANSPORT}-{rank}").exists() for rank in of))


def local_gradients(rank, step=0):
    """Returns this rank's gradient without any exchange."""
    model = network()
    backward(model, step, rank)
    return [p.grad for p in model.parameters()]


def residuals_in(state, module):
    """Returns the residual of every tensor in the bytes of topk's state. 56 bytes come before each, and a checksum
    after it."""
    found, at, raw = {}, 0, state["residuals"]
    for name, p in module.named_parameters():
        found[name] = raw[at + 56 : at + 56 + 4 * p.numel()].clone().view(torch.float32)
        at += 56 + 4 * p.numel() + 8
    assert at == raw.numel()
    return found


def said_by(kinds, call, *arguments, **options):
    """Returns the text of the error of these kinds that the call raises."""
    try:
        call(*arguments, **options)
    except kinds as error:
        return str(error)
    return "no error"
