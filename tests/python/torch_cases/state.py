"""Tests what a compression keeps: it is saved, restored, and brought to other numbers of ranks. States that cannot be
right are refused."""
import threading
import time

import numpy
import torch
import torch.distributed as dist

import gradwire

from common import FOLDER, RANK, SIZE, TOPK, attached, backward, digest, residuals_in, said_by, sgd, train
from ddp import Scaler


def resume():
    """Ten steps at once give the same bits as five steps, a state that is saved and loaded into fresh objects, and five
    more steps."""
    found = []
    for codec in (TOPK, "onebit", "ternary"):
        ddp, compression = attached(codec)
        train(ddp, 10)
        compression.close()
        half, half_compression = attached(codec)
        optimizer = train(half, 5)
        path = f"{FOLDER}/state-{RANK}.pt"
        torch.save({"model": half.module.state_dict(), "optimizer": optimizer.state_dict()}, path + ".model")
        torch.save(half_compression.state_dict(), path)
        half_compression.close()
        again, again_compression = attached(codec)
        saved = torch.load(path + ".model")
        again.module.load_state_dict(saved["model"])
        optimizer = sgd(again.parameters())
        optimizer.load_state_dict(saved["optimizer"])
        device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            state = torch.load(path, device, weights_only=True)
        except TypeError:
            state = torch.load(path, device)
        again_compression.load_state_dict(state)
        train(again, 5, optimizer, first=5)
        found.append([digest(ddp), digest(again)])
        again_compression.close()
    return found


def save_states():
    """Saves states for another number of ranks."""
    ddp, compression = attached(TOPK)
    train(ddp, 3)
    torch.save(compression.state_dict(), FOLDER / f"of-{SIZE}-{RANK}.pt")
    compression.close()
    return True


def load_states():
    """Two ranks load the states of three. The mean residual stays the same."""
    states = [torch.load(FOLDER / f"of-3-{r}.pt") for r in range(3)]
    ddp, compression = attached(TOPK)
    said = []
    for wrong in (states[0], states[:2], [states[0], states[0], states[2]]):
        text = said_by(ValueError, compression.load_state_dict, wrong)
        said.append(text.replace(f"rank {RANK} of 2", "rank R of 2"))
    compression.load_state_dict(states)
    mine = compression.state_dict()
    name = "0.weight"
    mean = sum(residuals_in(s, ddp.module)[name].double() for s in states) / 3
    kept = residuals_in(mine, ddp.module)[name].double()
    found = [said, torch.allclose(kept, mean, atol=1e-7), mean.abs().sum().item() > 0, mine["step"]]
    train(ddp, 2)
    found.append(digest(ddp))
    compression.close()
    return found


def hostile_states():
    """Loads what a file may hold. Each wrong state is refused before anything changes, except those that only a
    checksum finds."""
    ddp, compression = attached(TOPK)
    train(ddp, 2)
    good = compression.state_dict()
    residuals = good["residuals"]
    cut, altered = residuals[:-5].clone(), residuals.clone()
    altered[-20] += 1
    of_two = [dict(good, rank=0, size=2), dict(good, rank=1, size=2, residuals=residuals[:100])]
    said = []
    for wrong in [
        5,
        [5],
        {"format": 1},
        dict(good, size=10**8),
        dict(good, step=2**40),
        dict(good, step="two"),
        dict(good, scale="x"),
        dict(good, scale=float("nan")),
        dict(good, names=4),
        dict(good, residuals=None),
        dict(good, residuals=residuals.float()),
        dict(good, residuals=residuals.to("meta")),
        dict(good, residuals=cut),
        of_two,
    ]:
        said.append(said_by((TypeError, ValueError, gradwire.Error), compression.load_state_dict, wrong))
    train(ddp, 1)
    compression.load_state_dict(good)
    train(ddp, 1)
    dist.barrier()  # else a rank that still ends its step would hear that another one has failed
    said.append(said_by(gradwire.Error, compression.load_state_dict, dict(good, residuals=altered)))
    said.append(said_by(gradwire.Error, compression.check))
    compression.close()
    return said


def scaler_comes_and_goes():
    """A run with a GradScaler goes on without one, and the other way round. Residuals follow. Returns the largest
    gradient of the next step of each, and of a run that never had a scaler."""
    found = []
    for before, after in ((None, None), (Scaler(), None), (None, Scaler())):
        ddp, compression = attached(TOPK, scaler=before)
        for step in range(3):
            ddp.zero_grad()
            backward(ddp, step, factor=before.scale if before else 1.0)
        state = compression.state_dict()
        compression.close()
        ddp, compression = attached(TOPK, scaler=after)
        with compression:
            compression.load_state_dict(state)
            factor = after.scale if after else 1.0
            backward(ddp, 3, factor=factor)
            found.append(max(p.grad.abs().max().item() for p in ddp.parameters()) / factor)
    return found


def plain_numbers():
    """Returns the types of what a state holds if attach got numbers of numpy."""
    ddp, compression = attached("none", seed=numpy.int64(3), threads=numpy.int32(2))
    with compression:
        train(ddp, 1)
        return sorted({type(value).__name__ for value in compression.state_dict().values()})


def named_codec_into_auto():
    """auto has no place for the residuals of a codec that it did not choose."""
    ddp, compression = attached(TOPK)
    train(ddp, 1)
    state = compression.state_dict()
    compression.close()
    ddp, compression = attached("auto")
    with compression:
        return said_by(ValueError, compression.load_state_dict, state)


def choice_without_residuals():
    """auto takes the choice of a state, and then finds that its residuals are cut. It does not go on."""
    ddp, compression = attached("auto", candidates=[TOPK])
    state = dict(compression.state_dict(), choice={"codec": TOPK, "groups": [0] * 4}, residuals=torch.ones(50).byte())
    said = [said_by(gradwire.Error, compression.load_state_dict, state), said_by(gradwire.Error, compression.check)]
    compression.close()
    return said


def state_beside_a_step():
    """Another thread begins a step while the state is saved. That step waits until the state is whole."""
    ddp, compression = attached(TOPK)
    train(ddp, 1)
    save, thread = compression._member.save, threading.Thread(target=backward, args=(ddp, 1))

    def save_slowly():
        thread.start()
        time.sleep(0.5)
        return save()

    compression._member.save = save_slowly
    with compression:
        before = compression.state_dict()["step"]
        thread.join(60)
        return [before, compression.stats()["steps"]]


def hostile_choices():
    ddp, compression = attached("auto", candidates=["ternary"])
    good, said = compression.state_dict(), []
    of_groups = [{"codec": "ternary", "groups": groups} for groups in ([2**32, 0, 0, 0], [3, 0, 0, 0])]
    for choice in ("x", {"groups": [0] * 4}, *of_groups):
        said.append(said_by(gradwire.Error, compression.load_state_dict, dict(good, choice=choice)))
    train(ddp, 1)
    compression.close()
    return said
