#!/usr/bin/env python3
"""Parameters on servers: LeNet on MNIST, 3 workers and one parameter server that applies the optimizer, in each of its
modes.

    experiments/lenet-servers/run.py --data DIR [--tool build/release/gradwire] [--jobs 2] [--only GLOB] [--table]

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. table.txt is made anew from results.tsv after every run. `local` are the workers'
own parameters, without a server. `sync` must have the same hash."""
import contextlib
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = "run optimizer mode codec lr seed steps test_accuracy train_loss bytes_up bytes_down dense_bytes".split()
COLUMNS += "images_per_second skipped_steps replicas_identical parameter_hash".split()

WORKERS, BATCH, STEPS = 3, 64, 1000
SAME = f"--net lenet --batch {BATCH} --steps {STEPS} --schedule poly:0.5 --weight-decay 0.0005 --plan single"
SAME += " --timeout 600"
OPTIMIZERS = {"momentum": 0.01, "sgd": 0.1}
MODES = ("local", "sync", "async", "stale:1", "stale:4")
CODECS = {"none": "none", "ternary": "ternary", "topk": "topk:ratio=0.01,scope=layer,refresh=100,over=0"}


def all_runs():
    """Returns all runs as (name, optimizer, mode, codec, learning rate, seed), the most telling first."""
    return [
        (f"{optimizer}-{mode.replace(':', '')}-{codec}-lr{lr:g}-s{seed}", optimizer, mode, codec, lr, seed)
        for seed in (1, 2)
        for optimizer, lr in OPTIMIZERS.items()
        for codec in CODECS
        for mode in MODES
    ]


@contextlib.contextmanager
def server(args, mode):
    words = [args.tool, "server", "--workers", WORKERS, "--mode", mode, "--listen", "127.0.0.1:0"]
    with grid.running(words, stderr=subprocess.PIPE) as process:
        yield re.search(r"listening address=(\S+)", process.stderr.readline()).group(1)


def run_one(args, run):
    name, optimizer, mode, codec, lr, seed = run
    words = [*SAME.split(), "--data", args.data, "--workers", WORKERS, "--codec", CODECS[codec], "--seed", seed]
    words += ["--optimizer", optimizer, "--lr", lr]
    with contextlib.ExitStack() as stack:
        if mode != "local":
            words += ["--servers", stack.enter_context(server(args, mode)), "--parameters", "servers"]
        s = grid.train(args, *words)
    return {
        **{k: s[k] for k in COLUMNS if k in s},
        "optimizer": optimizer,
        "mode": mode,
        "codec": codec,
        "lr": lr,
        "seed": seed,
    }


def table(rows):
    lines = [
        f"LeNet on MNIST, {WORKERS} workers, batch {BATCH} in all, {STEPS} steps: "
        "test accuracy in percent, the mean of the seeds",
        f"{grid.machine(rows)}; experiments/lenet-servers/run.py",
        "",
        f"{'optimizer':10} {'codec':8} " + " ".join(f"{mode:>14}" for mode in MODES),
    ]
    for optimizer in OPTIMIZERS:
        for codec in CODECS:
            cells = []
            for mode in MODES:
                found = [
                    100 * float(r["test_accuracy"])
                    for r in rows
                    if (r["optimizer"], r["mode"], r["codec"]) == (optimizer, mode, codec)
                ]
                cells.append(f"{sum(found) / len(found):8.2f} ({len(found)})" if found else "")
            if any(cells):
                lines.append(f"{optimizer:10} {codec:8} " + " ".join(f"{cell:>14}" for cell in cells))
    key = lambda r: (r["optimizer"], r["codec"], r["lr"], r["seed"])
    hashes = {(key(r), r["mode"]): r["parameter_hash"] for r in rows}
    both = [k for k, mode in hashes if mode == "local" and (k, "sync") in hashes]
    same = sum(hashes[k, "local"] == hashes[k, "sync"] for k in both)
    lines += [
        "",
        "In brackets: the number of seeds.",
        f"Parameters after sync are those of local, bit for bit, in {same} of {len(both)} runs; replicas "
        f"are identical at the end of {sum(r['replicas_identical'] == 'True' for r in rows)} of {len(rows)}.",
    ]
    return lines


if __name__ == "__main__":
    sys.exit(grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(), run_one))
