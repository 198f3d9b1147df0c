#!/usr/bin/env python3
"""DistributedDataParallel by itself, with PyTorch's own compression hooks, and with Gradwire: seconds and bytes a step.

    sudo bench/ddp.py [--rates 100mbit,1gbit,none] [--models mlp,alexnet,resnet50,tiny] [--hosts 4] [--rounds 3]
                      [--methods NAME ...] [--json] [-o table.txt]
    sudo bench/ddp.py --until 97 --data DIR [--rates 100mbit] [--methods NAME ...] [-o table.txt]

Each host is a process in a network namespace of its own; tbf limits what it sends and receives. All methods run by
turns in the same processes. A step is forward, backward and what hooks do; the optimizer is left out, which is the same
for all. mlp is 784-2048-2048-10 with batches of 16 a host. alexnet and resnet50 have the parameters of these networks,
and gradients that are drawn in place of computed ones: two cores for four hosts would measure convolutions. tiny has
200 tensors of 64 elements. Bytes are those of the interfaces' counters, of all hosts together. `none` is no limit: the
hosts still talk through namespaces.

--until A trains the mlp on MNIST (in DIR), 64 pictures a host and step, until A percent of the test set are right, and
says how long that took: all steps, with the optimizer, without the looks at the test set (every 25 steps). What auto
measures is part of its time. Needs python3-torch."""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
METHODS = ["float32", "fp16", "powersgd-1", "powersgd-4", "none", "ternary", "ternary:residual=on,momentum=0.9"]
METHODS += ["topk", "topk:refresh=1,momentum=0.9", "gspar:density=0.01"]
METHODS += ["auto"]
LOOK, MOST_STEPS, RATE = 25, 1000, 0.05  # for --until
STEPS = {"mlp": {"100mbit": 4, "1gbit": 10, "none": 10}, "alexnet": {"100mbit": 3, "1gbit": 3, "none": 5}}
STEPS.update(resnet50=STEPS["alexnet"], tiny={"100mbit": 50, "1gbit": 100, "none": 200})
WARM_UP = {"tiny": 30, "auto": 32}  # others: 2. auto chooses after 14 steps, and checks its choice after 12 more
PORT = 29490
SILENCE = 1800  # seconds that a method may take


# ---- a host ----------------------------------------------------------------------------------------------------------


def shapes_of(model):
    """The parameters' shapes, first layer first. Convolutions have (maps, the rest): PowerSGD takes matrices."""
    if model == "tiny":
        return [(64,)] * 200
    if model == "alexnet":
        layers = [(96, 363), (256, 1200), (384, 2304), (384, 1728), (256, 1728), (4096, 9216), (4096, 4096)]
        return [shape for maps, rest in [*layers, (1000, 4096)] for shape in ((maps, rest), (maps,))]
    shapes, maps = [(64, 3 * 49), (64,), (64,)], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convs = [(width, maps), (width, 9 * width), (4 * width, width)]
            if block == 0:
                convs.append((4 * width, maps))
            for conv in convs:
                shapes += [conv, (conv[0],), (conv[0],)]
            maps = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def make(torch, model, seed):
    """Returns (module, function that gives a loss)."""
    torch.manual_seed(seed)
    if model == "mlp":
        module = torch.nn.Sequential(
            torch.nn.Linear(784, 2048),
            torch.nn.ReLU(),
            torch.nn.Linear(2048, 2048),
            torch.nn.ReLU(),
            torch.nn.Linear(2048, 10),
        )
        x, y = torch.randn(16, 784), torch.randint(0, 10, (16,))
        return module, lambda ddp: torch.nn.functional.cross_entropy(ddp(x), y)

    class Sized(torch.nn.Module):
        """A module in which the gradient of each parameter is a drawn tensor."""

        def __init__(self):
            super().__init__()
            shapes = shapes_of(model)
            self.parts = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes])
            self.drawn = [torch.randn(shape).flatten() for shape in shapes]

        def forward(self, _):
            return sum(torch.dot(p.flatten(), g) for p, g in zip(self.parts, self.drawn))

    return Sized(), lambda ddp: ddp(None)


def attach(ddp, method, optimizer):
    """Attaches a method to ddp. Returns a function that ends it."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if method == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif method.startswith("powersgd"):
        state = powerSGD_hook.PowerSGDState(None, int(method[-1]), start_powerSGD_iter=2, min_compression_rate=0.5)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif method != "float32":
        import gradwire.torch

        return gradwire.torch.attach(ddp, method, optimizer=optimizer).close
    return lambda: None


def sent():
    """Bytes that this host has sent. /sys would show the interfaces of the machine."""
    with open("/proc/net/dev", encoding="ascii") as file:
        return next(int(line.split()[9]) for line in file if line.split()[0] == "e0:")


def train_until(torch, job, method, ddp, optimizer):
    """Trains until enough test pictures are classified right. Rank 0 prints how long it took."""
    import torch.distributed as dist

    sys.path.insert(0, str(HERE.parent / "examples/pytorch"))
    import train

    (pictures, labels), test = train.mnist(job["data"])
    pictures, test = pictures.flatten(1), (test[0].flatten(1), test[1])
    generator = torch.Generator().manual_seed(job["rank"])
    seconds, accuracy, steps, before = 0.0, 0.0, 0, sent()
    while accuracy < job["until"] / 100 and steps < MOST_STEPS:
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(LOOK):
            mine = torch.randint(0, len(pictures), (64,), generator=generator)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(ddp(pictures[mine]), labels[mine]).backward()
            optimizer.step()
        dist.barrier()
        seconds += time.perf_counter() - begin
        steps += LOOK
        told = [train.evaluate(ddp.module, test)[0] if job["rank"] == 0 else None]
        dist.broadcast_object_list(told)
        accuracy = told[0]
        if job["rank"] == 0:
            print(f"{method}: {steps} steps, {seconds:.1f} s, {100 * accuracy:.2f} %", file=sys.stderr, flush=True)
    found = [None] * job["hosts"]
    dist.all_gather_object(found, sent() - before)
    if job["rank"] == 0:
        row = {
            "method": method,
            "seconds": [seconds],
            "bytes": sum(found) / steps,
            "steps": steps,
            "accuracy": accuracy,
        }
        print(json.dumps(row), flush=True)


def host(job):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=job["rank"], world_size=job["hosts"])
    first_bucket = dist._DEFAULT_FIRST_BUCKET_BYTES
    for _ in range(job["rounds"]):
        for method in job["methods"]:
            module, loss = make(torch, job["model"], 0)
            # powerSGD_hook runs with one bucket only. With more, its ranks wait for each other for ever over Gloo.
            one_bucket = method.startswith("powersgd")
            cap = 10000 if one_bucket else 25
            dist._DEFAULT_FIRST_BUCKET_BYTES = cap << 20 if one_bucket else first_bucket
            ddp = DistributedDataParallel(module, bucket_cap_mb=cap)
            optimizer = torch.optim.SGD(ddp.parameters(), RATE, momentum=0.9)
            close = attach(ddp, method, optimizer)
            if job["until"]:
                train_until(torch, job, method, ddp, optimizer)
                close()
                continue
            times = []
            warm_up = max(job["warm_up"], WARM_UP["auto"] if method == "auto" else 0)
            for step in range(warm_up + job["steps"]):
                if step == warm_up:
                    dist.barrier()
                    before = sent()
                start = time.perf_counter()
                loss(ddp).backward()
                times.append(time.perf_counter() - start)
                optimizer.step()  # not timed; codecs with momentum refuse to go on without it
                optimizer.zero_grad(set_to_none=True)
            dist.barrier()
            found = [None] * job["hosts"]
            dist.all_gather_object(found, (times[warm_up:], sent() - before))
            close()
            if job["rank"] == 0:
                slowest = [max(step) for step in zip(*(t for t, _ in found))]
                row = {"method": method, "seconds": slowest, "bytes": sum(n for _, n in found) / job["steps"]}
                print(json.dumps(row), flush=True)
            del ddp, module
    dist.destroy_process_group()


# ---- all of them -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def deadline(processes, seconds):
    """Kills the processes once so many seconds have passed since the last call of what it gives."""
    timer = None

    def end():
        for p in processes:
            p.kill()

    def heard():
        nonlocal timer
        if timer:
            timer.cancel()
        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()

    heard()
    try:
        yield heard
    finally:
        timer.cancel()


def measure(net, args, model, rate):
    """Returns {method: row}. Without --until a row has the median, the least and the most of a step's seconds."""
    job = {"model": model, "hosts": args.hosts, "rounds": args.rounds, "methods": args.methods}
    job.update(steps=STEPS[model][rate], warm_up=WARM_UP.get(model, 2), until=args.until, data=args.data)
    processes = []
    try:
        for rank in range(args.hosts):
            environment = {
                **os.environ,
                "MASTER_ADDR": net.address(0),
                "MASTER_PORT": str(PORT),
                "OMP_NUM_THREADS": "1",
            }
            environment.update(GLOO_SOCKET_IFNAME="e0", GW_BENCH_JOB=json.dumps({**job, "rank": rank}))
            command = [*net.inside(rank), "/usr/bin/python3", str(HERE / "ddp.py")]
            out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            processes.append(subprocess.Popen(command, env=environment, stdout=out, text=True))
        rows = []
        with deadline(processes, SILENCE) as heard:
            for line in processes[0].stdout:
                heard()
                rows.append(json.loads(line))
                print(f"{model}, {rate}: {rows[-1]['method']} done", file=sys.stderr, flush=True)
        if any(p.wait(60) for p in processes):
            raise SystemExit(f"a host failed, or no method ended within {SILENCE} s: {model} at {rate}")
    finally:
        for p in processes:
            p.kill()
            p.wait(60)
    found = {}
    if args.until:
        return {row["method"]: {**row, "seconds": row["seconds"][0]} for row in rows}
    for method in args.methods:
        mine = [row for row in rows if row["method"] == method]
        seconds = [statistics.median(row["seconds"]) for row in mine]
        found[method] = {**mine[-1], "seconds": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}
    return found


STEP_HEAD = (
    f"{'model':9} {'rate':8} {'method':20} {'ms a step':>10} {'least':>9} {'most':>9} {'MB a step':>10} "
    f"{'float32 / it':>12} {'bytes':>7}"
)
UNTIL_HEAD = (
    f"{'rate':8} {'method':20} {'seconds':>9} {'steps':>6} {'reached, %':>10} {'ms a step':>10} {'MB a step':>10} "
    f"{'float32 / it':>12}"
)


def step_lines(model, rate, found):
    base = found.get("float32")
    for method, row in found.items():
        ratios = f"{base['seconds'] / row['seconds']:12.2f} {base['bytes'] / row['bytes']:7.1f}" if base else ""
        yield (
            f"{model:9} {rate:8} {method:20} {1e3 * row['seconds']:10.1f} {1e3 * row['least']:9.1f} "
            f"{1e3 * row['most']:9.1f} {row['bytes'] / 1e6:10.2f} {ratios}"
        )


def until_lines(rate, found):
    base = found.get("float32")
    for method, row in found.items():
        seconds = row["seconds"]
        yield (
            f"{rate:8} {method:20} {seconds:9.1f} {row['steps']:6} {100 * row['accuracy']:10.2f} "
            f"{1e3 * seconds / row['steps']:10.1f} {row['bytes'] / 1e6:10.2f} "
            + (f"{base['seconds'] / seconds:12.2f}" if base else "")
        )


def main():
    import as_json
    import net

    sys.path.insert(0, str(HERE.parent / "experiments"))
    import grid

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="100mbit,1gbit,none")
    parser.add_argument("--models", default="mlp,alexnet,resnet50,tiny")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--until", type=float, default=0, help="percent of the test set; then --rounds is 1")
    parser.add_argument("--data", help="with --until: folder with MNIST's files")
    as_json.option(parser)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    if args.until and not args.data:
        parser.error("--until needs --data")
    if args.until:
        args.models, args.rounds = "mlp", 1
    net.need_root()
    about = f"trains an mlp on MNIST to {args.until} %" if args.until else f"a step, median of {args.rounds} rounds"
    lines = [
        f"DistributedDataParallel on {args.hosts} hosts (namespaces): {about}",
        f"{grid.machine()}; bench/ddp.py",
        "",
    ]
    lines += [UNTIL_HEAD if args.until else STEP_HEAD]
    with as_json.printed(args.json) as rows, net.network(args.hosts):
        for model in args.models.split(","):
            for rate in args.rates.split(","):
                net.shape(args.hosts, None if rate == "none" else rate)
                found = measure(net, args, model, rate)
                rows += [{"model": model, "rate": rate, **row} for row in found.values()]
                for line in until_lines(rate, found) if args.until else step_lines(model, rate, found):
                    lines.append(line)
                    print(line, flush=True)
    if args.output:
        with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(args.output) or ".", delete=False) as file:
            file.write("\n".join(lines) + "\n")
        os.replace(file.name, args.output)


if __name__ == "__main__":
    if "GW_BENCH_JOB" in os.environ:
        host(json.loads(os.environ["GW_BENCH_JOB"]))
    else:
        main()
