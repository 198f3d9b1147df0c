"""What one rank does in torch_test.py: torch_cases.py RESULT CASE... runs cases in turn and writes {case: what it
found} as JSON. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who it is."""
import copy
import gc
import json
import os
import pickle
import signal
import sys
import threading
import time
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire
import gradwire.torch as gw
from gradwire.torch import auto as gw_auto
from gradwire.torch import sharded as gw_sharded

warnings.filterwarnings("ignore")
for name, of_mpi in [
    ("RANK", ("OMPI_COMM_WORLD_RANK", "PMI_RANK")),
    ("WORLD_SIZE", ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")),
]:
    os.environ.setdefault(name, next((os.environ[n] for n in of_mpi if n in os.environ), "0"))
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TRANSPORT = os.environ.get("TRANSPORT", "tcp")
TOPK = "topk:ratio=0.1,refresh=1"


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


def train(ddp, steps, optimizer=None, first=0):
    optimizer = optimizer or torch.optim.SGD(ddp.parameters(), 0.1, momentum=0.9)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        backward(ddp, step)
        optimizer.step()
    return optimizer


def digest(module):
    """The same number on ranks whose parameters are the same bits."""
    return sum(p.detach().contiguous().view(torch.int32).long().sum().item() for p in module.parameters())


def attached(codec, seed=0, hidden=64, ddp_options=None, transport=TRANSPORT, **options):
    ddp = DistributedDataParallel(network(seed, hidden), **(ddp_options or {}))
    return ddp, gw.attach(ddp, codec, transport=transport, **options)


# ---- what is sent is right ------------------------------------------------------------------------------------------


def local_gradients(rank, step=0):
    """What this rank's gradient is without any exchange."""
    model = network()
    backward(model, step, rank)
    return [p.grad for p in model.parameters()]


def averages_are_those_of_the_library():
    """Bit for bit what the library makes of the same gradients, for codecs without shared numbers."""
    found = {}
    for codec in ("none", "bf16", "uniform:density=0.3", "onebit", TOPK):
        ddp, compression = attached(codec)
        backward(ddp, 0)
        same = True
        for i, p in enumerate(ddp.parameters()):
            frames = [gradwire.encode(local_gradients(r)[i], codec, rank=r, step=0, id=i, seed=0) for r in range(SIZE)]
            expected = gradwire.decode(gradwire.reduce(frames))
            same = same and torch.equal(expected.view_as(p.grad), p.grad)
        found[codec] = same
        compression.close()
    return found


def replicas_stay_identical():
    found = {}
    for codec in ("none", "ternary", "ternary:skip=last", "gspar:density=0.2", TOPK, "topk:ratio=0.1,scope=global"):
        ddp, compression = attached(codec)
        train(ddp, 5)
        found[codec] = [digest(ddp), compression.stats()["times_smaller_up"], compression.stats()["steps"]]
        compression.close()
    return found


def last_layer_goes_as_float():
    """skip=last goes by parameter names: the last module's weight and bias are exact."""
    ddp, compression = attached("ternary:skip=last")
    backward(ddp, 0)
    mean = [sum(local_gradients(r)[i] for r in range(SIZE)) / SIZE for i in range(4)]
    found = [torch.allclose(p.grad, m, rtol=1e-5, atol=1e-7) for p, m in zip(ddp.parameters(), mean)]
    compression.close()
    return found


def the_hook_by_itself():
    ddp = DistributedDataParallel(network())
    other, compression = attached("ternary")
    del other
    try:
        ddp.register_comm_hook(compression, gw.hook)
        backward(ddp, 0)
        return "no error"
    except RuntimeError as error:
        return str(error)
    finally:
        compression.close()


# ---- what DDP does --------------------------------------------------------------------------------------------------


def buckets_of_all_sizes():
    """Many buckets, one bucket, views: the same bits."""
    found = []
    for options in ({}, {"bucket_cap_mb": 0.001}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        ddp, compression = attached("ternary", ddp_options=options)
        train(ddp, 4)
        found.append(digest(ddp))
        compression.close()
    return found


def accumulation():
    """no_sync sends nothing; then the sum is averaged."""
    ddp, compression = attached("none")
    with ddp.no_sync():
        backward(ddp, 0)
    steps_before = compression.stats()["steps"]
    backward(ddp, 1)
    mean = [sum(local_gradients(r, 0)[i] + local_gradients(r, 1)[i] for r in range(SIZE)) / SIZE for i in range(4)]
    same = all(torch.allclose(p.grad, m, rtol=1e-4, atol=1e-6) for p, m in zip(ddp.parameters(), mean))
    steps = compression.stats()["steps"]
    compression.close()
    return [steps_before, steps, same]


def residuals_in(state, module):
    """The residual of every tensor in the bytes of topk's state: 56 bytes come before each, a checksum after it."""
    found, at, raw = {}, 0, state["residuals"]
    for name, p in module.named_parameters():
        found[name] = raw[at + 56 : at + 56 + 4 * p.numel()].clone().view(torch.float32)
        at += 56 + 4 * p.numel() + 8
    assert at == raw.numel()
    return found


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.left, self.right = torch.nn.Linear(20, 30), torch.nn.Linear(30, 5), torch.nn.Linear(30, 5)

    def forward(self, x, branch):
        return (self.left if branch else self.right)(torch.relu(self.first(x)))


def unused_parameters():
    """A branch that no rank used keeps its residual, and its gradient stays what DDP says: none."""
    ddp = DistributedDataParallel(Branches(), find_unused_parameters=True)
    compression = gw.attach(ddp, TOPK)
    states, grads = [], []
    for step, branch in enumerate([1, 1, 0, 1]):
        for p in ddp.parameters():
            p.grad = None
        x, y = batch(step)
        torch.nn.functional.cross_entropy(ddp(x, branch), y).backward()
        grads.append([ddp.module.left.weight.grad is None, ddp.module.right.weight.grad is None])
        states.append(compression.state_dict())
    compression.close()
    parts = [residuals_in(state, ddp.module) for state in states]
    same = {name: [torch.equal(parts[i][name], parts[i + 1][name]) for i in range(3)] for name in parts[0]}
    return {"grads": grads, "kept": same}


def uneven_inputs():
    """join(): ranks that are done send zeros, which count in the average."""
    ddp, compression = attached("none")
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    with ddp.join():
        for step in range(2 + RANK):
            optimizer.zero_grad()
            backward(ddp, step)
            optimizer.step()
    found = [digest(ddp), compression.stats()["steps"]]
    compression.close()
    return found


def clipping():
    ddp, compression = attached("ternary")
    backward(ddp, 0)
    torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.01)
    norm = sum(p.grad.double().pow(2).sum() for p in ddp.parameters()).sqrt().item()
    compression.close()
    return norm


def several_models():
    """Two models in one process, by turns, as two alone."""
    alone = []
    for seed in (1, 2):
        ddp, compression = attached("ternary", seed=seed)
        train(ddp, 3)
        alone.append(digest(ddp))
        compression.close()
    pairs = [attached("ternary", seed=seed) for seed in (1, 2)]
    optimizers = [torch.optim.SGD(ddp.parameters(), 0.1, momentum=0.9) for ddp, _ in pairs]
    for step in range(3):
        for (ddp, _), optimizer in zip(pairs, optimizers):
            train(ddp, 1, optimizer, step)
    together = [digest(ddp) for ddp, _ in pairs]
    for _, compression in pairs:
        compression.close()
    return [alone, together]


def frozen_parameters():
    model = network()
    model[0].weight.requires_grad_(False)
    ddp = DistributedDataParallel(model)
    compression = gw.attach(ddp, "ternary")
    train(ddp, 2)
    names = compression.state_dict()["names"]
    compression.close()
    return [names, digest(ddp)]


class Bucket:
    """As DDP's, for element types that DDP over Gloo refuses."""

    def __init__(self, parameters, dtype):
        self._parameters = parameters
        self._buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=dtype)
        self._gradients, at = [], 0
        for p in parameters:
            self._gradients.append(self._buffer[at : at + p.numel()].view_as(p))
            at += p.numel()

    def parameters(self):
        return self._parameters

    def gradients(self):
        return self._gradients

    def buffer(self):
        return self._buffer


def halves():
    """Buckets of float16 and bfloat16 by hand: the average of the widened values, narrowed once."""
    found = {}
    for dtype in (torch.float16, torch.bfloat16):
        ddp, compression = attached("none")
        bucket = Bucket(list(ddp.parameters()), dtype)
        values = [torch.cat([g.flatten() for g in local_gradients(r)]).to(dtype) for r in range(SIZE)]
        bucket.buffer().copy_(values[RANK])
        got = gw.hook(compression, bucket).wait()
        frames = []
        at = 0
        same = True
        for i, p in enumerate(ddp.parameters()):
            parts = [v[at : at + p.numel()].float() for v in values]
            frames = [gradwire.encode(part, "none", rank=r, id=i) for r, part in enumerate(parts)]
            expected = gradwire.decode(gradwire.reduce(frames)).to(dtype)
            same = same and torch.equal(got[at : at + p.numel()], expected)
            at += p.numel()
        found[str(dtype)] = same and got.data_ptr() == bucket.buffer().data_ptr()
        compression.close()
    return found


class Scaler:
    """What attach needs of a GradScaler, which does nothing without CUDA."""

    def __init__(self):
        self.scale = 1024.0

    def get_scale(self):
        return self.scale


def gradient_scaling():
    """The factor changes in the middle; gradients divided by it are those of a run without scaling, bit for bit."""
    found = []
    for scaling in (False, True):
        scaler = Scaler() if scaling else None
        ddp, compression = attached(TOPK, scaler=scaler)
        sums = []
        for step in range(4):
            if scaling and step == 2:
                scaler.scale = 256.0
            for p in ddp.parameters():
                p.grad = None
            factor = scaler.scale if scaling else 1.0
            backward(ddp, 0, factor=factor)
            sums.append([(p.grad / factor).double().abs().sum().item() for p in ddp.parameters()])
        found.append(sums)
        compression.close()
    return found


# ---- what goes wrong ------------------------------------------------------------------------------------------------


def not_finite():
    """One rank's NaN reaches all as NaN, and the next step is as ever."""
    ddp, compression = attached(TOPK)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    before = digest(ddp)
    backward(ddp, 0, factor=float("nan") if RANK == 1 else 1.0)
    all_nan = all(p.grad.isnan().all().item() for p in ddp.parameters())
    optimizer.zero_grad()
    backward(ddp, 1)
    optimizer.step()
    finite = all(p.isfinite().all().item() for p in ddp.parameters())
    found = [all_nan, finite, digest(ddp) != before, digest(ddp), compression.stats()["dropped_steps"]]
    compression.close()
    return found


def not_finite_raises():
    ddp, compression = attached("ternary", nonfinite="raise")
    try:
        backward(ddp, 0, factor=float("inf") if RANK == 1 else 1.0)
        said = "no error"
    except RuntimeError as error:
        said = str(error)
    compression.check()
    compression.close()
    return said


def wrong_arguments():
    ddp = DistributedDataParallel(network())
    frozen = DistributedDataParallel(network())
    frozen.requires_grad_(False)
    hollow = network()
    hollow.register_parameter("hollow", torch.nn.Parameter(torch.zeros(0)))
    said = []
    for arguments in [
        (network(), "ternary", {}),
        (ddp, "ternari", {}),
        (ddp, "ternary", {"nonfinite": "stop"}),
        (ddp, "ternary", {"transport": "pigeon"}),
        (ddp, "ternary", {"timeout": 0}),
        (ddp, "auto", {"nonfinite": "raise"}),
        (ddp, "auto", {"keys": "a-folder"}),
        (ddp, "auto", {"candidates": ["ternari"]}),
        (ddp, "auto", {"candidates": "ternary"}),
        (ddp, "auto", {"candidates": ["topk:scope=global"]}),
        (ddp, "ternary", {"transport": "torch", "keys": "a-folder"}),
        (ddp, "ternary", {"timeout": float("nan")}),
        (ddp, "ternary", {"timeout": None}),
        (ddp, "ternary", {"seed": 2**64}),
        (ddp, "ternary", {"threads": -1}),
        (ddp, "ternary", {"scaler": "dynamic"}),
        (ddp, "ternary", {"keys": ""}),
        (ddp, "ternary", {"rendezvous": 29500}),
        (ddp, None, {}),
        (ddp, "ternary\0junk", {}),
        (ddp, "auto", {"candidates": None}),
        (ddp, "auto", {"candidates": [f"topk:ratio=0.{i}" for i in range(10, 80)]}),
        (frozen, "ternary", {}),
        (DistributedDataParallel(hollow, find_unused_parameters=True), "auto", {}),
    ]:
        try:
            gw.attach(arguments[0], arguments[1], **arguments[2])
            said.append("no error")
        except (TypeError, ValueError, gradwire.Error) as error:
            said.append(str(error))
    return said


class OtherNames(torch.nn.Module):
    """network()'s shapes, so that DDP itself sees no difference."""

    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(20, 64), torch.nn.Linear(64, 5)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


def what_disagrees(model, codec):
    ddp = DistributedDataParallel(model)
    try:
        with gw.attach(ddp, codec, timeout=20):
            backward(ddp, 0)
        return "no error"
    except RuntimeError as error:
        return str(error)


def codecs_that_differ():
    return what_disagrees(network(), "none" if RANK == 1 else "ternary")


def models_that_differ():
    return what_disagrees(OtherNames() if RANK == 1 else network(), "ternary")


def refuse(*_):
    raise ValueError("rank 1 has had enough")


def one_rank_raises_in_backward():
    """It goes on to its end, and the others hear who left."""
    ddp = DistributedDataParallel(network(), bucket_cap_mb=0.0001)
    compression = gw.attach(ddp, "ternary", timeout=20, transport=TRANSPORT)
    train(ddp, 3)
    x, y = batch(9)
    start = time.monotonic()
    try:
        if RANK == 1:
            ddp.module[1].register_full_backward_hook(refuse)
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
        said = "no error"
    except (RuntimeError, ValueError) as error:
        said = str(error)
    compression.close()
    return [said, time.monotonic() - start]


class Deep(torch.nn.Module):
    """Several buckets, whatever DDP's first one takes. between: what goes from the first layer to the others passes."""

    def __init__(self, first_type=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        layers = [torch.nn.Linear(20, 600, dtype=first_type), *(torch.nn.Linear(600, 600) for _ in range(3))]
        self.layers, self.between = torch.nn.ModuleList(layers), lambda x: x

    def forward(self, x):
        x = self.between(self.layers[0](x.to(self.layers[0].weight.dtype))).float()
        for layer in self.layers[1:]:
            x = layer(x)
        return x[:, :5]


class Refuse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.3)  # the thread takes what was handed over, and waits for more
        raise ValueError("rank 1 has had enough")


def one_rank_raises_between_buckets():
    """Its step can never end. It can say so, close, and leave."""
    ddp = DistributedDataParallel(Deep(), bucket_cap_mb=0.1)
    compression = gw.attach(ddp, TOPK, timeout=20, transport=TRANSPORT)
    train(ddp, 3)
    if RANK == 1:
        ddp.module.between = Refuse.apply
    said = []
    try:
        backward(ddp, 9)
    except (RuntimeError, ValueError) as error:
        said.append(str(error))
    if RANK == 1:
        compression._options["timeout_ms"] = 100
        try:
            compression.state_dict()
        except gradwire.Timeout as error:
            said.append(str(error))
    compression.close()
    return said


class Wait(Refuse):
    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.3)
        return gradient


def types_that_differ():
    """The second bucket cannot be taken, when the first one is under way."""
    module = Deep(torch.float64)
    module.between = Wait.apply
    ddp = DistributedDataParallel(module, bucket_cap_mb=0.1)
    compression = gw.attach(ddp, "ternary", timeout=20)
    try:
        backward(ddp, 0)
        return "no error"
    except RuntimeError as error:
        return str(error)
    finally:
        compression.close()


def attach_is_late():
    """Rank 1 does not attach until the others have given up."""
    ddp = DistributedDataParallel(network())
    dist.barrier()
    heard = [os.environ["FOLDER"] + f"/heard-{rank}" for rank in range(SIZE) if rank != 1]
    if RANK == 1:
        end = time.monotonic() + 120
        while not all(map(os.path.exists, heard)) and time.monotonic() < end:
            time.sleep(0.1)
        return ""
    try:
        gw.attach(ddp, "ternary", timeout=3)
        said = "no error"
    except gradwire.Timeout as error:
        said = str(error)
    with open(os.environ["FOLDER"] + f"/heard-{RANK}", "w", encoding="utf-8"):
        return said


def transports_that_differ():
    ddp = DistributedDataParallel(network())
    try:
        gw.attach(ddp, "ternary", transport="torch" if RANK == 1 else "tcp", timeout=20)
        return "no error"
    except gradwire.Error as error:
        return str(error)


def copies():
    """There is one of each. What looks like a copy would close it."""
    ddp, compression = attached("ternary")
    said = []
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        try:
            make(compression)
            said.append("no error")
        except TypeError as error:
            said.append(str(error))
    train(ddp, 2)
    compression.close()
    return said


def forks():
    """A child has no part in the links, and may not wait for threads that it does not have."""
    ddp, compression = attached("ternary")
    train(ddp, 2)
    child = os.fork()
    if child == 0:
        try:
            compression.state_dict()
        except gradwire.Error as error:
            if "forked" in str(error):
                compression.close()
                os._exit(7)
        os._exit(1)
    end = time.monotonic() + 60
    ended, status = 0, 0
    while not ended and time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.05)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    train(ddp, 2)
    compression.close()
    return [bool(ended), os.WEXITSTATUS(status), digest(ddp)]


def groups_go():
    """Threads and open files after one attach and close, and after five."""
    found = []
    for _ in range(5):
        ddp, compression = attached("ternary", transport="torch")
        train(ddp, 1)
        compression.close()
        del ddp, compression
        gc.collect()
        found.append([len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))])
    return [found[0], found[-1]]


def one_rank_is_killed():
    ddp, compression = attached("ternary", timeout=10)
    train(ddp, 3)
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        for step in range(3, 100):
            backward(ddp, step)
        said = "no error"
    except RuntimeError as error:
        said = str(error)
    try:
        compression.check()
        checked = "no error"
    except gradwire.Error as error:
        checked = str(error)
    compression.close()
    return [said, checked, time.monotonic() - start]


# ---- how the bytes travel -------------------------------------------------------------------------------------------


def transports():
    """The same bits whatever carries them. A network large enough for several groups and for bodies behind heads."""
    found = {}
    for codec in ("none", "ternary", TOPK):
        digests = []
        for transport in ("tcp", "torch", TRANSPORT):
            ddp, compression = attached(codec, hidden=60000, transport=transport)
            train(ddp, 3)
            digests.append(digest(ddp))
            compression.close()
        found[codec] = digests
    return found


def part_of_the_job():
    """A model that two of the ranks train, through a process group."""
    group = dist.new_group([0, 1])
    if RANK > 1:
        return "not in it"
    ddp = DistributedDataParallel(network(), process_group=group)
    try:
        compression = gw.attach(ddp, "none", transport="torch")
    except gradwire.Error as error:
        return str(error)
    train(ddp, 2)
    compression.close()
    return "it trains"


def goes_without_a_word():
    """The process ends with an open compression, and Python ends as ever."""
    ddp, compression = attached("ternary", transport="torch")
    train(ddp, 2)
    globals()["kept"] = (ddp, compression)
    return True


# ---- codec="auto" ---------------------------------------------------------------------------------------------------


def auto_runs(gain, later_ms):
    """Forty steps with a gain and a step's time that are not measured here. What every rank found."""
    gain_before, step_ms_before = gw_auto._GAIN, gw_auto.Auto._step_ms
    gw_auto._GAIN = gain
    gw_auto.Auto._step_ms = lambda self: 10.0 if self.chosen is None else later_ms
    try:
        ddp, compression = attached("auto", candidates=["ternary"])
        before = compression.codec
        train(ddp, 40)
        stats = compression.stats()
        choice = compression.choice
        found = [before, compression.codec, choice["codec"], stats["all_reduce_steps"], stats["steps"], digest(ddp)]
        state = compression.state_dict()
        assert len(compression._auto._ends) < 20  # no list that every step makes longer
        compression.close()
        again, resumed = attached("auto", candidates=["ternary"])
        resumed.load_state_dict(state)
        train(again, 3)
        stats = resumed.stats()
        found += [resumed.codec, stats["all_reduce_steps"], stats["steps"], digest(again)]
        resumed.close()
        return [found, choice["why"]]
    finally:
        gw_auto._GAIN, gw_auto.Auto._step_ms = gain_before, step_ms_before


def auto_takes_a_codec():
    return auto_runs(1e9, 5.0)


def auto_goes_back():
    return auto_runs(1e9, 20.0)


def auto_over_the_group():
    """What is measured may be larger than the model."""
    ddp, compression = attached("auto", candidates=["ternary"], transport="torch")
    train(ddp, 16)
    found = [compression.choice["codec"], digest(ddp)]
    compression.close()
    return found


def auto_takes_none():
    return auto_runs(0.0, 5.0)


def auto_as_it_is():
    """Whatever it takes here: all ranks take it, and stay identical."""
    ddp, compression = attached("auto")
    train(ddp, 40)
    found = [compression.choice["codec"], compression.choice.get("predicted_ms"), digest(ddp)]
    compression.close()
    return found


def auto_and_join():
    """Rank 0 is done before the choice is made."""
    ddp, compression = attached("auto")
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    with ddp.join():
        for step in range(3 if RANK == 0 else 40):
            optimizer.zero_grad()
            backward(ddp, step)
            optimizer.step()
    found = [compression.choice["codec"], digest(ddp)]
    compression.close()
    return found


# ---- for logs -------------------------------------------------------------------------------------------------------


class Writer:
    def __init__(self):
        self.written = []

    def add_scalar(self, tag, value, step):
        self.written.append([tag, float(value), step])


def logging():
    ddp, compression = attached("ternary")
    writer = Writer()
    for step in range(2):
        train(ddp, 1, first=step)
        compression.log(writer, step)
    stats = compression.stats()
    compression.close()
    up = [value for tag, value, _ in writer.written if tag == "gradwire/bytes_up"]
    return [[[tag, step] for tag, _, step in writer.written], sum(up) == stats["bytes_up"]]


def logging_to_tensorboard():
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return "not installed"
    folder = os.environ["FOLDER"] + f"/board-{RANK}"
    ddp, compression = attached("ternary")
    train(ddp, 1)
    with SummaryWriter(folder) as writer:
        compression.log(writer, 0)
    compression.close()
    return len(os.listdir(folder))


# ---- state ----------------------------------------------------------------------------------------------------------


def resume():
    """Ten steps at once, and five, saved, loaded into fresh objects, and five more: the same bits."""
    found = []
    for codec in (TOPK, "onebit", "ternary"):
        ddp, compression = attached(codec)
        train(ddp, 10)
        compression.close()
        half, half_compression = attached(codec)
        optimizer = train(half, 5)
        path = os.environ["FOLDER"] + f"/state-{RANK}.pt"
        torch.save({"model": half.module.state_dict(), "optimizer": optimizer.state_dict()}, path + ".model")
        torch.save(half_compression.state_dict(), path)
        half_compression.close()
        again, again_compression = attached(codec)
        saved = torch.load(path + ".model")
        again.module.load_state_dict(saved["model"])
        optimizer = torch.optim.SGD(again.parameters(), 0.1, momentum=0.9)
        optimizer.load_state_dict(saved["optimizer"])
        try:
            state = torch.load(path, weights_only=True)
        except TypeError:
            state = torch.load(path)
        again_compression.load_state_dict(state)
        train(again, 5, optimizer, first=5)
        found.append([digest(ddp), digest(again)])
        again_compression.close()
    return found


def save_states():
    """For another number of ranks."""
    ddp, compression = attached(TOPK)
    train(ddp, 3)
    torch.save(compression.state_dict(), os.environ["FOLDER"] + f"/of-{SIZE}-{RANK}.pt")
    compression.close()
    return True


def load_states():
    """The states of three ranks on two: the mean residual is kept."""
    states = [torch.load(os.environ["FOLDER"] + f"/of-3-{r}.pt") for r in range(3)]
    ddp, compression = attached(TOPK)
    said = []
    for wrong in (states[0], states[:2], [states[0], states[0], states[2]]):
        try:
            compression.load_state_dict(wrong)
            said.append("no error")
        except ValueError as error:
            said.append(str(error).replace(f"rank {RANK} of 2", "rank R of 2"))
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


# ---- FSDP2's hook, which this PyTorch need not have ------------------------------------------------------------------


class Unit(torch.nn.Linear):
    """Calls the hook as a unit of fully_shard does: with all its gradients as one flat tensor, which it then takes."""

    def set_all_reduce_hook(self, hook, *, stream=None):
        self.hook = hook

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
    """Bit for bit what the library makes of the same flat gradients."""
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
    """[digest, steps] of several kinds, and of one that goes on from a saved state."""
    found = {}
    for codec, dtype in (("ternary:skip=2", torch.float32), (TOPK, torch.float32), ("ternary", torch.bfloat16)):
        model, compression = sharded(codec)
        train_units(model, 6, dtype=dtype)
        found[f"{codec} {dtype}"] = [digest(model), compression.stats()["steps"]]
        compression.close()
    model, compression = sharded(TOPK)
    train_units(model, 3)
    path = os.environ["FOLDER"] + f"/sharded-{RANK}.pt"
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


def sharded_errors():
    said = []

    def tries(call, *arguments, **options):
        try:
            call(*arguments, **options)
            said.append("no error")
        except (gw.Error, TypeError, ValueError) as error:
            said.append(str(error))

    tries(gw.attach_sharded, network(), dist.group.WORLD)
    tries(gw.attach_sharded, units(), dist.group.WORLD, "auto")
    tries(gw.attach_sharded, units(), dist.group.WORLD, "ternary:skip=last")
    tries(gw.attach_sharded, torch.nn.Sequential(*(Unit(1, 1) for _ in range(65))), dist.group.WORLD)
    model, compression = sharded("ternary", nonfinite="raise")
    tries(model[0].hook, torch.full((10,), float("nan") if RANK == 1 else 1.0))
    tries(model[0].hook, torch.ones(10))
    tries(model[0].hook, torch.ones(11))
    tries(model[0].hook, torch.ones(10))
    compression.close()
    tries(model[0].hook, torch.ones(10))
    model, compression = sharded("ternary")
    output = torch.full((10,), float("nan") if RANK == 1 else 1.0)
    model[0].hook(output)
    said.append(bool(output.isnan().all()))
    if RANK == 1:
        compression.close()
    else:
        tries(model[2].hook, torch.ones(10))
        compression.close()
    return said


def hostile_states():
    """What a file may hold. All is refused before anything changes, but for what only a checksum tells."""
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
        dict(good, residuals=cut),
        of_two,
    ]:
        try:
            compression.load_state_dict(wrong)
            said.append("no error")
        except (TypeError, ValueError, gradwire.Error) as error:
            said.append(str(error))
    train(ddp, 1)
    compression.load_state_dict(good)
    train(ddp, 1)
    for call in (lambda: compression.load_state_dict(dict(good, residuals=altered)), compression.check):
        try:
            call()
            said.append("no error")
        except gradwire.Error as error:
            said.append(str(error))
    compression.close()
    return said


def hostile_choices():
    ddp, compression = attached("auto", candidates=["ternary"])
    good, said = compression.state_dict(), []
    for choice in ("x", {"groups": [0] * 4}, {"codec": "ternary", "groups": [2**32, 0, 0, 0]}):
        try:
            compression.load_state_dict(dict(good, choice=choice))
            said.append("no error")
        except gradwire.Error as error:
            said.append(str(error))
    train(ddp, 1)
    compression.close()
    return said


# ---- Python's lock --------------------------------------------------------------------------------------------------


def python_goes_on():
    """A counter on the main thread, while a step waits a second for rank 1. Its speed beside that of no step."""
    ddp, compression = attached("ternary")
    train(ddp, 2)

    def count(seconds):
        n, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            n += 1
        return n / seconds

    dist.barrier()
    shares = []
    for step in range(3):
        idle = count(1)
        dist.barrier()
        if RANK == 1:
            time.sleep(1.3)
        thread = threading.Thread(target=backward, args=(ddp, 2 + step))
        thread.start()
        time.sleep(0.1)
        shares.append(count(1) / idle)
        thread.join()
        dist.barrier()
    compression.close()
    return shares


def main():
    path, names = sys.argv[1].replace("RANK", str(RANK)), sys.argv[2:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {}
    for name in names:
        found[name] = globals()[name]()
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(found, file)
        os.replace(path + ".new", path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
