"""Tests FSDP2's all-reduce hook. The installed PyTorch need not have it."""
import types

import torch
import torch.distributed as dist

import gradwire
import gradwire.torch as gw
from gradwire.torch import sharded as gw_sharded

from common import FOLDER, RANK, SIZE, TOPK, TRANSPORT, await_word, backward, digest, network, said_by, say, sgd
from ddp import Scaler


class Unit(torch.nn.Linear):
    """Calls the hook as a unit of fully_shard does, with all its gradients as one flat tensor. Then it takes the result
    out of that tensor."""

    def set_all_reduce_hook(self, hook, *, stream=None):
        self.hook = hook

    def _get_fsdp_state(self):
        group = types.SimpleNamespace(_all_reduce_hook=getattr(self, "hook", None))
        return types.SimpleNamespace(_fsdp_param_group=group)

    def flat(self, dtype=torch.float32):
        return torch.cat([p.grad.view(-1) for p in self.parameters()]).to(dtype)

    def reduce(self, dtype=torch.float32):
        output, begin = self.flat(dtype), 0
        self.hook(output)
        for p in self.parameters():
            p.grad.copy_(output[begin : begin + p.numel()].view_as(p))
            begin += p.numel()


def units():
    torch.manual_seed(0)
    return torch.nn.Sequential(Unit(20, 64), torch.nn.ReLU(), Unit(64, 5))


def train_units(model, steps, first=0, dtype=torch.float32):
    for step in range(first, first + steps):
        model.zero_grad()
        backward(model, step)
        for unit in (model[2], model[0]):
            unit.reduce(dtype)
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad


def sharded(codec, **options):
    model = units()
    return model, gw.attach_sharded(model, dist.group.WORLD, codec, transport=TRANSPORT, **options)


def sharded_averages():
    """The averages are bit for bit those that the library makes of the same flat gradients."""
    flats = []
    for rank in range(SIZE):
        model = units()
        backward(model, 0, rank)
        flats.append([model[0].flat(), model[2].flat()])
    found = {}
    for codec in ("none", "uniform:density=0.3", TOPK):
        model, compression = sharded(codec, seed=7)
        backward(model, 0)
        model[2].reduce()
        model[0].reduce()
        same = True
        for i, unit in enumerate((model[0], model[2])):
            seed = (7 + i * gw_sharded._SEEDS_APART) % 2**64
            frames = [gradwire.encode(flats[r][i], codec, rank=r, step=0, id=0, seed=seed) for r in range(SIZE)]
            same = same and torch.equal(gradwire.decode(gradwire.reduce(frames)), unit.flat())
        found[codec] = same
        compression.close()
    return found


def sharded_training():
    """Returns [digest, steps] of several kinds of training, and of one that goes on from a saved state."""
    found = {}
    for codec, dtype in (("ternary:skip=2", torch.float32), (TOPK, torch.float32), ("ternary", torch.bfloat16)):
        model, compression = sharded(codec)
        train_units(model, 6, dtype=dtype)
        found[f"{codec} {dtype}"] = [digest(model), compression.stats()["steps"]]
        compression.close()
    model, compression = sharded(TOPK)
    train_units(model, 3)
    path = FOLDER / f"sharded-{RANK}.pt"
    torch.save([model.state_dict(), compression.state_dict()], path)
    compression.close()
    again, compression = sharded(TOPK)
    weights, state = torch.load(path)
    again.load_state_dict(weights)
    compression.load_state_dict(state)
    same = all(torch.equal(a, b) for a, b in zip(compression.state_dict()["residuals"], state["residuals"]))
    train_units(again, 3, first=3)
    compression.close()
    return found, [digest(again), same, sum(r.numel() for r in state["residuals"])]


def sharded_states():
    """A unit may have had no gradient when the state was taken. A state comes before the first gradient."""
    model, compression = sharded(TOPK)
    model[0].hook(torch.ones(10))
    state = compression.state_dict()
    compression.close()
    model, compression = sharded(TOPK)
    with compression:
        compression.load_state_dict(state)
        for unit in (model[0], model[2]):
            unit.hook(torch.ones(10))
        steps = compression.state_dict()["step"]
        return steps, said_by(gradwire.Error, compression.load_state_dict, state)


def sharded_scaling():
    """A GradScaler's factor changes in the middle, and when a state is loaded. Gradients divided by it are bit for bit
    those of a run without one."""
    found = []
    for scaler in (None, Scaler()):
        model, compression = sharded(TOPK, scaler=scaler)
        averages = []
        for step, factor in enumerate((1024.0, 1024.0, 256.0, 512.0)):
            if step == 3:
                state = compression.state_dict()
                compression.close()
                model, compression = sharded(TOPK, scaler=scaler)
                compression.load_state_dict(state)
            if scaler:
                scaler.scale = factor
            model.zero_grad()
            backward(model, 0, factor=factor if scaler else 1.0)
            for unit in (model[2], model[0]):
                unit.reduce()
            averages.append([(p.grad / (factor if scaler else 1.0)).double().sum().item() for p in model.parameters()])
        compression.close()
        found.append(averages)
    return found


class Lost:
    """A GradScaler that cannot be asked."""

    def __init__(self, error):
        self.error = error

    def get_scale(self):
        raise self.error


def sharded_on_one_rank():
    """Something goes wrong on rank 1 alone, and its program goes on to do something else."""
    said = []
    for error in (gw.Error(-1, "no scale"), ValueError("no scale"), KeyboardInterrupt()):
        model, compression = sharded("none", timeout=600)
        model[0].hook(torch.ones(10))
        dist.barrier()  # a failure ends a step that another rank still ends
        if RANK == 1:
            compression._scaler = Lost(error)
        said.append(said_by((gw.Error, ValueError, KeyboardInterrupt), model[0].hook, torch.ones(10)))
        word = f"heard-{type(error).__name__}"
        say(word)
        await_word(word, of=range(SIZE))
        if RANK == 1:
            said.append(said_by(gw.Error, compression.check))
        compression.close()
    return said


def sharded_errors():
    said = []

    def tries(*arguments):
        said.append(said_by((gw.Error, TypeError, ValueError), *arguments))

    tries(gw.attach_sharded, Unit, dist.group.WORLD)
    tries(gw.attach_sharded, None, dist.group.WORLD)
    tries(gw.attach_sharded, network(), dist.group.WORLD)
    tries(gw.attach_sharded, units(), dist.group.WORLD, "auto")
    tries(gw.attach_sharded, units(), dist.group.WORLD, "ternary:skip=last")
    tries(gw.attach_sharded, units(), dist.group.WORLD, "ternary:skip=0+9")
    tries(gw.attach_sharded, torch.nn.Sequential(*(Unit(1, 1) for _ in range(65))), dist.group.WORLD)
    model = torch.nn.Sequential(Unit(2, 2), torch.nn.Linear(2, 2))
    tries(gw.attach_sharded, model, dist.group.WORLD)
    model[1].requires_grad_(False)
    gw.attach_sharded(model, dist.group.WORLD, transport=TRANSPORT).close()
    with gw.attach_sharded(model, dist.group.WORLD, transport=TRANSPORT):
        tries(gw.attach_sharded, model, dist.group.WORLD)
        dist.barrier()  # no rank closes while another one still attaches
    tries(gw.attach_sharded, units(), {"replicas": "a mesh"})
    tries(gw.attach_sharded, units(), dist.group.WORLD, "onebit:momentum=0.9")
    model = units()
    optimizer = sgd(model.parameters())
    with gw.attach_sharded(model, dist.group.WORLD, "onebit:momentum=0.9", transport=TRANSPORT, optimizer=optimizer):
        model[0].hook(torch.ones(10))
        dist.barrier()  # a failure ends a step that another rank still ends
        optimizer.param_groups[0]["momentum"] = 0.8
        tries(model[0].hook, torch.ones(10))
    optimizer.param_groups[0]["momentum"] = 0.9
    with gw.attach_sharded(model, dist.group.WORLD, "onebit:momentum=0.9", transport=TRANSPORT, optimizer=optimizer):
        for value in (float("nan"), *[1.0] * 8):  # no step comes. After the NaN that is right for a while
            dist.barrier()  # a failure ends a step that another rank still ends
            tries(model[0].hook, torch.full((10,), value))
    scaler = Scaler()
    scaler.scale = 0.0
    model, compression = sharded("ternary", scaler=scaler)
    tries(model[0].hook, torch.ones(10))
    compression.close()
    model, compression = sharded("ternary", nonfinite="raise")
    tries(model[0].hook, torch.full((10,), float("nan") if RANK == 1 else 1.0))
    tries(model[0].hook, torch.ones(10))
    dist.barrier()
    tries(model[0].hook, torch.ones(11))
    tries(model[0].hook, torch.ones(10))
    compression.close()
    tries(model[0].hook, torch.ones(10))
    model, compression = sharded("ternary")
    output = torch.full((10,), float("nan") if RANK == 1 else 1.0)
    model[0].hook(output)
    said.append(bool(output.isnan().all()))
    if RANK != 1:
        tries(model[2].hook, torch.ones(10))
    compression.close()
    return said
