#!/usr/bin/env python3
"""Trains a small model with DistributedDataParallel, with or without Gradwire, and shows that replicas are the same.

    torchrun -r 1 -t 1 --nproc_per_node 4 examples/pytorch/train.py --model lenet --data /data/mnist --codec ternary
    torchrun -r 1 -t 1 --nproc_per_node 3 examples/pytorch/train.py --model resnet20 --data /data/cifar10 --codec topk
    torchrun -r 1 -t 1 --nproc_per_node 4 examples/pytorch/train.py --model transformer --codec gspar:density=0.1
    mpirun -n 4 python3 examples/pytorch/train.py --model transformer
    srun -n 4 python3 examples/pytorch/train.py --model transformer

`--codec ddp` is DistributedDataParallel by itself. lenet takes MNIST's four files, resnet20 CIFAR-10's binary files,
plain or compressed; `--data drawn` draws pictures that can be told apart, for a quick look. transformer predicts the
next character of a text that a small grammar makes. After every epoch rank 0 prints a line, as JSON with --json."""
import argparse
import gzip
import json
import lzma
import os
import pathlib
import random
import sys
import time

import gradwire.launcher
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

# ---- data ------------------------------------------------------------------------------------------------------------


def read(folder, name):
    """Reads the bytes of a file, which may be compressed."""
    for ending, unpack in (("", lambda raw: raw), (".gz", gzip.decompress), (".xz", lzma.decompress)):
        path = pathlib.Path(folder) / (name + ending)
        if path.exists():
            return torch.frombuffer(bytearray(unpack(path.read_bytes())), dtype=torch.uint8)
    sys.exit(f"there is no {name} in {folder} (nor {name}.gz, {name}.xz); --data drawn needs no files")


def mnist(folder):
    def part(prefix):
        pictures, labels = read(folder, f"{prefix}-images-idx3-ubyte"), read(folder, f"{prefix}-labels-idx1-ubyte")
        return pictures[16:].view(-1, 1, 28, 28).float() / 255, labels[8:].long()

    return part("train"), part("t10k")


def cifar10(folder):
    def part(names):
        records = torch.cat([read(folder, f"{name}.bin") for name in names]).view(-1, 3073)
        return records[:, 1:].reshape(-1, 3, 32, 32).float() / 128 - 1, records[:, 0].long()

    return part([f"data_batch_{i}" for i in range(1, 6)]), part(["test_batch"])


def drawn(shape, n=2000, n_test=100):
    """Ten fixed pictures, with noise."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(10, *shape, generator=generator)

    def part(count):
        labels = torch.randint(0, 10, (count,), generator=generator)
        return centres[labels] + torch.randn(count, *shape, generator=generator), labels

    return part(n), part(n_test)


def text(n):
    """Sentences of a small grammar. A model can learn what comes next, but not all of it."""
    draw = random.Random(1)
    people, verbs = ["the worker", "an owner", "a server", "the client"], ["sends", "adds up", "waits for", "keeps"]
    things = ["a frame", "two slices", "the average", "gradients", "its residual"]
    out = []
    while sum(map(len, out)) < n:
        sentence = f"{draw.choice(people)} {draw.choice(verbs)} {draw.choice(things)}"
        if draw.random() < 0.4:
            sentence += f", and {draw.choice(people)} {draw.choice(verbs)} {draw.choice(things)}"
        out.append(sentence + ". ")
    return "".join(out)[:n]


def characters(window=32, n=60000, n_test=6000):
    """Windows of text, and for each character the one that follows."""
    whole = text(n + n_test)
    letters = sorted(set(whole))
    numbers = torch.tensor([letters.index(c) for c in whole])

    def part(begin, count):
        windows = numbers[begin : begin + count].unfold(0, window + 1, window)
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

    return part(0, n), part(n, n_test), len(letters)


# ---- models ----------------------------------------------------------------------------------------------------------


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )


class Block(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, before, maps, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(before, maps, 3, stride, 1, bias=False), nn.BatchNorm2d(maps)
        self.conv2, self.norm2 = nn.Conv2d(maps, maps, 3, 1, 1, bias=False), nn.BatchNorm2d(maps)
        self.grow = maps - before

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.grow:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.grow))
        return F.relu(x + y)


def resnet20():
    blocks, before = [], 16
    for maps in (16, 32, 64):
        for block in range(3):
            blocks.append(Block(before, maps, 2 if before != maps else 1))
            before = maps
    head = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*head, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Transformer(nn.Module):
    """Two layers that look only at earlier characters."""

    def __init__(self, letters, width=64, window=32):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Parameter(0.02 * torch.randn(window, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 2), nn.Linear(width, letters)
        self.register_buffer("mask", torch.full((window, window), float("-inf")).triu(1))

    def forward(self, x):
        return self.out(self.layers(self.letters(x) + self.places, mask=self.mask))


# ---- training --------------------------------------------------------------------------------------------------------


def load(args):
    """Returns (model, training set, test set)."""
    if args.model == "transformer":
        train, test, letters = characters()
        return Transformer(letters), train, test
    shape, reader, model = {"lenet": ((1, 28, 28), mnist, lenet), "resnet20": ((3, 32, 32), cifar10, resnet20)}[
        args.model
    ]
    if not args.data:
        sys.exit(f"--data DIR is missing: {args.model} trains on pictures; --data drawn needs no files")
    train, test = drawn(shape) if args.data == "drawn" else reader(args.data)
    return model(), train, test


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


def evaluate(model, test):
    model.eval()
    with torch.no_grad():
        parts = [(model(x), y) for x, y in zip(test[0].split(500), test[1].split(500))]
    model.train()
    right = sum((logits.argmax(-1) == y).sum().item() for logits, y in parts)
    loss = sum(loss_of(logits, y).item() * len(y) for logits, y in parts) / len(test[1])
    return right / test[1].numel(), loss


def digest(model):
    """A number that depends on the bits of all parameters."""
    return sum(p.detach().view(torch.int32).long().sum().item() for p in model.parameters()) & (2**63 - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["lenet", "resnet20", "transformer"], default="lenet")
    parser.add_argument("--data", help="folder with the data's files, or drawn")
    parser.add_argument(
        "--codec", default="ternary:residual=on", help="a specification, or ddp (default ternary:residual=on)"
    )
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="steps of an epoch (default: the whole training set)")
    parser.add_argument("--batch", type=int, default=64, help="of all processes together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd", help="sgd has momentum 0.9")
    parser.add_argument("--schedule", choices=["constant", "cosine"], default="constant", help="of the learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for option in ("epochs", "batch", "steps"):
        if (value := getattr(args, option)) is not None and value < 1:
            parser.error(f"--{option} is {value}, and must be 1 or more")
    if not 0 < args.lr < float("inf"):
        parser.error(f"--lr is {args.lr}, and must be a finite number above 0")
    try:
        os.environ.update(gradwire.launcher.environment())
    except ValueError as error:
        sys.exit(f"who this rank is cannot be found: {error}")
    dist.init_process_group("gloo")
    # oneDNN 3 counts wrong on a machine that does not say how large its caches are.
    if "MKL-DNN v3" in torch.__config__.show() and not os.path.exists("/sys/devices/system/cpu/cpu0/cache"):
        torch.backends.mkldnn.set_flags(False)
    rank, size = dist.get_rank(), dist.get_world_size()
    if args.batch < size:
        sys.exit(f"--batch {args.batch} is for all processes together, and there are {size}")
    torch.manual_seed(args.seed)
    module, train, test = load(args)
    ddp, compression = DistributedDataParallel(module), None
    if args.optimizer == "adamw":
        optimizer = torch.optim.AdamW(ddp.parameters(), args.lr)
    else:
        optimizer = torch.optim.SGD(ddp.parameters(), args.lr, momentum=0.9, weight_decay=5e-4)
    if args.codec != "ddp":
        import gradwire.torch as gw

        compression = gw.attach(ddp, args.codec, optimizer=optimizer, seed=args.seed)
    n_steps = min(args.steps or len(train[0]), len(train[0]) // args.batch)
    if n_steps < 1:
        sys.exit(f"--batch {args.batch} is larger than the training set, of {len(train[0])}, so no step is made")
    schedule = None
    if args.schedule == "cosine":
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * n_steps)
    for epoch in range(args.epochs):
        order = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(1000 * args.seed + epoch))
        start = time.perf_counter()
        for step in range(n_steps):
            mine = order[step * args.batch : (step + 1) * args.batch][rank::size]
            optimizer.zero_grad()
            loss_of(ddp(train[0][mine]), train[1][mine]).backward()
            optimizer.step()
            if schedule:
                schedule.step()
        seconds = time.perf_counter() - start
        digests = [None] * size
        dist.all_gather_object(digests, digest(module))
        accuracy, loss = evaluate(module, test)
        line = {"model": args.model, "codec": args.codec, "seed": args.seed, "epoch": epoch + 1, "steps": n_steps}
        line["ranks"] = size
        line.update(
            accuracy=accuracy, loss=loss, seconds=seconds, identical=len(set(digests)) == 1, hash=f"{digests[0]:016x}"
        )
        if compression:
            line.update({k: compression.stats()[k] for k in ("times_smaller_up", "times_smaller_down")})
        if rank == 0 and args.json:
            print(json.dumps(line), flush=True)
        elif rank == 0:
            print(
                "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in line.items()), flush=True
            )
        if not line["identical"]:
            sys.exit(f"replicas differ: {digests}")
    if compression:
        compression.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
