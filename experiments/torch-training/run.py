#!/usr/bin/env python3
"""Training with PyTorch through gradwire.torch beside DistributedDataParallel's own all-reduce, at equal steps.

    /usr/bin/python3 experiments/torch-training/run.py --mnist DIR --cifar DIR [--only GLOB] [--table]

examples/pytorch/train.py trains LeNet on MNIST with four processes, ResNet-20 on CIFAR-10 with three, and a small
transformer on a text that a grammar makes with four. Call it with a Python that has PyTorch.

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. table.txt is made anew from results.tsv after every run."""
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "tests")]

import grid
import ports

COLUMNS = ["run", "model", "codec", "seed", "processes", "epochs", "steps", "accuracy", "loss", "times_smaller_up"]
COLUMNS += ["times_smaller_down", "hash"]

MODELS = {  # processes, seeds, words
    "lenet": (4, (1, 2, 3), ["--epochs", 2, "--batch", 64, "--lr", 0.02]),
    "transformer": (4, (1, 2, 3), ["--epochs", 12, "--batch", 32, "--lr", 0.1]),
    "resnet20": (3, (1,), ["--epochs", 2, "--batch", 96, "--lr", 0.1]),
    # the rate falls to zero: at a constant rate of 0.1 the accuracy of one moment says little
    "resnet20-cosine": (3, (1, 2), ["--epochs", 2, "--batch", 96, "--lr", 0.1, "--schedule", "cosine"]),
}
# With Adam a codec trains as floats do at a lower rate (docs/accuracy.md). So each has one that is 1.6 times higher.
for rate in (0.0003, 0.001, 0.004):
    for lr in (rate, round(1.6 * rate, 5)):
        words = ["--epochs", 12, "--batch", 32, "--optimizer", "adamw", "--lr", lr]
        MODELS[f"transformer-adamw-{lr}"] = (4, (1, 2, 3), words)
CODECS = {
    "ddp": "ddp",
    "none": "none",
    "ternary": "ternary:skip=last",
    "gspar": "gspar:eps=1",
    "topk": "topk:ratio=0.05,scope=layer,refresh=100,over=0",
}
QUARTER = {"topk-quarter": "topk:ratio=0.25,scope=layer,refresh=100,over=0"}  # for the models that lose with less
# Scripts beside this one, with PyTorch alone, and their words: Top-K with 0.05, and PowerSGD.
HOOK = "topk_hook.py"
POWERSGD = {f"powersgd-{rank}": f"powersgd_hook.py {rank}" for rank in (1, 4)}
FEEDBACK = {  # the default of gradwire.torch.attach first
    "ternary-residual": "ternary:residual=on",
    "ternary-momentum": "ternary:residual=on,momentum=0.9",
    "ternary-max": "ternary:residual=on,level=max",
    "ternary-max-momentum": "ternary:residual=on,level=max,momentum=0.9",
    "topk-global": "topk:ratio=0.01,scope=global,refresh=100,over=0.5",
    "topk-momentum": "topk:ratio=0.01,scope=global,refresh=1,over=0.5,momentum=0.9",
    "topk-bf16": "topk:ratio=0.1,scope=global,refresh=1,over=0.5,momentum=0.9,value=bf16",
    "onebit-momentum": "onebit:momentum=0.9",
}
NOT_OVER = {"topk-not-over": "topk:ratio=0.1,scope=global,refresh=1,over=0,value=bf16"}
PORTS = ports.free_ports()


def codecs_of(model):
    """{short name: specification, or a script with its words}"""
    if "adamw" in model:
        return {name: {**CODECS, **FEEDBACK, **NOT_OVER}[name] for name in ("ddp", "ternary-residual", *NOT_OVER)}
    more = {"transformer": {**QUARTER, **FEEDBACK, **POWERSGD}, "resnet20-cosine": {**QUARTER, "topk-hook": HOOK}}
    return {**CODECS, **more.get(model, {})}


def all_runs():
    return [
        (f"{model}-{name}-s{seed}", model, codec, seed)
        for model, (_, seeds, _) in MODELS.items()
        for seed in seeds
        for name, codec in codecs_of(model).items()
    ]


def run_one(args, run):
    _, key, codec, seed = run
    n, _, words = MODELS[key]
    model = key.partition("-")[0]
    folder = {"lenet": args.mnist, "resnet20": args.cifar}.get(model)
    hook = codec.split()[0].endswith(".py")
    script = (
        [str(HERE / codec.split()[0]), *codec.split()[1:]] if hook else [str(grid.ROOT / "examples/pytorch/train.py")]
    )
    command = [sys.executable, *script, "--json", "--model", model]
    command += ["--codec", "ddp" if hook else codec, "--seed", str(seed), *map(str, words)]
    command += ["--data", folder] if folder else []
    lines = [json.loads(line) for line in grid.train_torch(command, n, next(PORTS), args.timeout)[0].splitlines()]
    if not lines or not all(line["identical"] for line in lines):
        raise grid.Failed("replicas differ")
    last = lines[-1]
    return {
        "model": key,
        "codec": codec,
        "seed": seed,
        "processes": n,
        "epochs": len(lines),
        "steps": sum(line["steps"] for line in lines),
        "accuracy": last["accuracy"],
        "loss": last["loss"],
        # Nobody counts what hooks of PyTorch send.
        "times_smaller_up": last.get("times_smaller_up", "" if hook else 1),
        "times_smaller_down": last.get("times_smaller_down", "" if hook else 1),
        "hash": last["hash"],
    }


def table(rows):
    lines = [
        "PyTorch with gradwire.torch beside DistributedDataParallel's own all-reduce (ddp), at equal steps: test",
        "accuracy in percent and test loss at the end, means over seeds, and the spread of the accuracy. Replicas were",
        "the same bits after every epoch. SGD with momentum 0.9, weight decay 0.0005; adamw-R is AdamW with rate R. A",
        "run chooses by measured times how values are packed (docs/wire-format.md). So there are the fewest and the",
        "most times smaller of all seeds.",
        f"{grid.machine(rows)}; experiments/torch-training/run.py",
        "",
        f"{'model':25} {'codec':60} {'ranks':>5} {'steps':>6} {'seeds':>5} {'accuracy':>9} {'spread':>7} "
        f"{'to ddp':>7} {'loss':>8} {'to ddp, %':>9} {'up, x smaller':>14} {'down':>12}",
    ]
    by = {}
    for row in rows:
        by.setdefault((row["model"], row["codec"]), []).append(row)

    def mean(found, key):
        return statistics.mean(float(row[key]) for row in found)

    def between(found, key):
        if not found[0][key]:
            return "not counted"
        ends = [f"{end(float(row[key]) for row in found):.1f}" for end in (min, max)]
        return ends[0] if ends[0] == ends[1] else "-".join(ends)

    for model in MODELS:
        ddp = by.get((model, "ddp"))
        for codec in codecs_of(model).values():
            found = by.get((model, codec))
            if not found:
                continue
            accuracy, spread = grid.accuracy_of([{"test_accuracy": row["accuracy"]} for row in found])
            gaps = f"{'':7} {mean(found, 'loss'):8.4f} {'':9}"
            if ddp and codec != "ddp":
                # The same seeds on both sides.
                seeds = {row["seed"] for row in found} & {row["seed"] for row in ddp}
                mine, base = ([row for row in rows if row["seed"] in seeds] for rows in (found, ddp))
                if seeds:
                    gap = 100 * (mean(mine, "accuracy") - mean(base, "accuracy"))
                    loss = 100 * (mean(mine, "loss") / mean(base, "loss") - 1)
                    gaps = f"{gap:+7.2f} {mean(found, 'loss'):8.4f} {loss:+9.2f}"
            lines.append(
                f"{model:25} {codec:60} {found[0]['processes']:>5} {found[0]['steps']:>6} {len(found):5} "
                f"{accuracy:9.2f} {spread} {gaps} {between(found, 'times_smaller_up'):>14} "
                f"{between(found, 'times_smaller_down'):>12}"
            )
    return lines


def main():
    options = [
        ("--mnist", {"help": "folder with MNIST's files"}),
        ("--cifar", {"help": "folder with CIFAR-10's binary files"}),
        ("--timeout", {"type": int, "default": 3600, "help": "seconds for a run (default 3600)"}),
    ]
    return grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(), run_one, options=options)


if __name__ == "__main__":
    sys.exit(main())
