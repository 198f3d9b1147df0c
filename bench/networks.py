#!/usr/bin/env python3
"""Images a second, and memory, of the trainer's networks beside PyTorch with the same batch and threads.

    /usr/bin/python3 bench/networks.py [--tool build/release/gradwire] [--runs 3]

Each run is a process of one worker, and takes turns with a process of PyTorch. It makes STEPS steps of forward,
backward and momentum, and the median counts. Pictures are drawn. Memory is the process's largest resident set. PyTorch
and NumPy must be installed."""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cli"))
sys.path.insert(0, str(ROOT / "bench"))
import commands
import pictures

NETS = ["cifarnet", "resnet20", "vgg16:0.25", "vgg16"]
STEPS = 12
SECONDS = 1800  # that one process may take
RATE = 0.01


def measured(words):
    """Runs a process. Returns what it prints, and its largest memory in MB."""
    return commands.run_measured([words], SECONDS)[0]


def ours(args, net, batch, threads, folder):
    run = pathlib.Path(folder) / "run"
    words = [args.tool, "train", "--net", net, "--data", folder, "--batch", batch, "--threads", threads, "--lr", RATE]
    words += ["--steps", STEPS, "--out", run, "--overwrite", "--json"]
    _, memory = measured(words)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return batch / (1e-3 * statistics.median(line["step_ms"] for line in lines[2:])), memory


def theirs(args, net, batch, threads, folder):
    text, memory = measured([sys.executable, __file__, "--torch", net, batch, threads, folder, "--tool", args.tool])
    return batch / float(text), memory


def torch_main(net, batch, threads, folder):
    """The main function of the other process. It prints the median seconds of a step."""
    import numpy
    import torch
    import torch_networks

    torch.set_num_threads(int(threads))
    npy = pathlib.Path(folder) / f"npy-{net}"
    p = {file.stem: torch.tensor(numpy.load(file)) for file in npy.glob("*.npy")}
    trained = [t.requires_grad_() for name, t in p.items() if ".running_" not in name]
    model = getattr(torch_networks, net.split(":")[0])
    side = 24 if net == "cifarnet" else 32
    x, labels = torch.randn(int(batch), 3, side, side), torch.randint(0, 10, (int(batch),))
    optimizer = torch.optim.SGD(trained, lr=RATE, momentum=0.9, weight_decay=0.0005)
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(p, x, True), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    print(statistics.median(times[2:]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default=str(ROOT / "build" / "release" / "gradwire"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--torch", nargs=4, metavar=("NET", "BATCH", "THREADS", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch:
        return torch_main(*args.torch)
    print(
        f"{'network':12} {'batch':>5} {'threads':>7} {'images/s':>9} {'PyTorch':>9} {'ratio':>6} {'MB':>6} "
        f"{'PyTorch':>8}"
    )
    with tempfile.TemporaryDirectory(prefix="gradwire-networks-") as folder:
        pictures.write_cifar(folder, per_file=160, n_test=4)
        for net in NETS:
            words = [args.tool, "train", "--net", net, "--data", folder, "--batch", 8, "--steps", 1]
            measured([*words, "--out", f"{folder}/one", "--overwrite"])
            measured([args.tool, "export", "--from", f"{folder}/one", "-o", f"{folder}/npy-{net}"])
            for batch, threads in [(32, 1), (128, 1), (128, 2)]:
                pairs = [
                    (ours(args, net, batch, threads, folder), theirs(args, net, batch, threads, folder))
                    for _ in range(args.runs)
                ]
                (a, a_mb), (b, b_mb) = ([statistics.median(column) for column in zip(*side)] for side in zip(*pairs))
                print(
                    f"{net:12} {batch:5} {threads:7} {a:9.0f} {b:9.0f} {a / b:6.2f} {a_mb:6.0f} {b_mb:8.0f}", flush=True
                )


if __name__ == "__main__":
    main()
