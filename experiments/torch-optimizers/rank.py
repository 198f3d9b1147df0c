"""One process of run.py's: trains a perceptron on MNIST, and prints its last figures as JSON."""
import contextlib
import json
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples/pytorch"))

import train  # the example

# ---- optimizers that PyTorch 1.13 does not have, in their shortest form ----------------------------------------------


class Short(torch.optim.Optimizer):
    """move(p, m, lr) changes the parameter p. Its momentum m begins with 0."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                self.move(p, m, group["lr"])


class Lion(Short):
    """Chen et al., 2023."""

    def move(self, p, m, lr):
        p.sub_(lr * torch.sign(0.9 * m + 0.1 * p.grad))
        m.mul_(0.99).add_(p.grad, alpha=0.01)


class LARS(Short):
    """You et al., 2017."""

    def move(self, p, m, lr):
        trust = p.norm() / (p.grad.norm() + 1e-9) if p.dim() > 1 else 1.0
        p.sub_(lr * m.mul_(0.9).add_(trust * p.grad))


class Muon(Short):
    """Jordan et al., 2024."""

    def move(self, p, m, lr):
        m.mul_(0.95).add_(p.grad)
        if p.dim() < 2:
            p.sub_(0.05 * m)
            return
        x = p.grad + 0.95 * m
        x /= x.norm() + 1e-7
        for _ in range(5):
            a = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x
            b = -4.775 * a + 2.0315 * a @ a
            x = 3.4445 * x + (b @ x if x.shape[0] < x.shape[1] else x @ b)
        p.sub_(lr * x)


# ---- training --------------------------------------------------------------------------------------------------------


def main():
    folder, codec, seed, kind, words, also = sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(json.loads, sys.argv[4:])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(seed)
    (pictures, labels), test = train.mnist(folder)
    ddp = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)))
    optimizer = (globals().get(kind) or getattr(torch.optim, kind))(ddp.parameters(), **words)
    compression = None
    if codec != "ddp":
        import gradwire.torch as gw

        compression = gw.attach(ddp, codec, seed=seed)
    searches = kind == "LBFGS"
    n_steps, batch = (40, 1024) if searches else (500, 64)
    draw, losses = torch.Generator().manual_seed(100 * seed + rank), []
    for _ in range(n_steps):
        mine = torch.randint(0, len(pictures), (batch,), generator=draw)

        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(pictures[mine]), labels[mine])
            loss.backward()
            if "norm" in also:
                nn.utils.clip_grad_norm_(ddp.parameters(), also["norm"])
            if "value" in also:
                nn.utils.clip_grad_value_(ddp.parameters(), also["value"])
            return loss

        if "drops" in also:  # the next zero_grad does it
            with ddp.no_sync() if also["drops"] == "under no_sync" else contextlib.nullcontext():
                (-F.cross_entropy(ddp(pictures[mine]), labels[mine])).backward()
        if searches:
            loss = optimizer.step(closure)
        else:
            loss = closure()
            optimizer.step()
        losses.append(float(loss))
    accuracy, _ = train.evaluate(ddp.module, test)
    print(
        json.dumps(
            {
                "steps": n_steps,
                "test_accuracy": accuracy,
                "loss": sum(losses[-100:]) / len(losses[-100:]),
                "hash": train.digest(ddp.module),
            }
        )
    )
    if compression:
        compression.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
