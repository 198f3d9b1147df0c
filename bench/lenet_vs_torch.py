#!/usr/bin/env python3
"""LeNet training speed: gradwire train (codec none, 1 worker) beside PyTorch on the same network, batch and threads.

Both train on pictures of MNIST's shape with momentum 0.9 and weight decay. torch gets its batches ready in memory, so
that only the training step is measured. Runs take turns, and medians are compared. Exits 77 if torch is missing.

    bench/lenet_vs_torch.py --tool build/release/gradwire [--data DIR|digits] [--threads 1] [--runs 5] [--steps 400]
"""
import argparse
import json
import os
import platform
import statistics
import sys
import time

import commands


def torch_images_per_second(torch, steps, batch, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )
    assert sum(p.numel() for p in net.parameters()) == 431080
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=0.0005)
    loss_of = nn.CrossEntropyLoss()
    images = torch.rand(16, batch, 1, 28, 28)
    labels = torch.randint(0, 10, (16, batch))
    begin = 0.0
    for step in range(-20, steps):  # the first 20 steps warm up
        if step == 0:
            begin = time.perf_counter()
        optimizer.zero_grad()
        loss_of(net(images[step % 16]), labels[step % 16]).backward()
        optimizer.step()
    return steps * batch / (time.perf_counter() - begin)


def gradwire_images_per_second(tool, data, steps, batch, threads):
    command = [tool, "train", "--net", "lenet", "--data", data, "--workers", 1, "--codec", "none", "--batch", batch]
    command += ["--steps", steps, "--threads", threads]
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    return commands.tell(command, env=environment)["images_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default="build/release/gradwire")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print(
            "skipped: this Python has no torch (Debian: apt-get install python3-torch, run with /usr/bin/python3)",
            file=sys.stderr,
        )
        return 77

    ours, theirs = [], []
    for run in range(options.runs):
        ours.append(
            gradwire_images_per_second(options.tool, options.data, options.steps, options.batch, options.threads)
        )
        theirs.append(torch_images_per_second(torch, options.steps, options.batch, options.threads))
        print("run %d: gradwire %.0f images/s, torch %.0f" % (run + 1, ours[-1], theirs[-1]), file=sys.stderr)
    a, b = statistics.median(ours), statistics.median(theirs)
    print(
        json.dumps(
            {
                "machine": platform.processor() or platform.machine(),
                "torch": torch.__version__,
                "threads": options.threads,
                "batch": options.batch,
                "runs": options.runs,
                "gradwire_images_per_second": a,
                "torch_images_per_second": b,
                "ratio": a / b,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
