"""Tests what goes wrong: gradients that are not finite, wrong arguments, and ranks that disagree, raise, are late or
die."""
import contextlib
import gc
import os
import pathlib
import signal
import threading
import time

import numpy
import torch
import torch.distributed as dist

import gradwire
import gradwire.torch as gw
from gradwire import _api
from gradwire.torch import buckets as gw_buckets
from gradwire.torch.fits import check_optimizer

from common import FOLDER, RANK, TOPK, attached, attached_with, await_word, backward, digest, network
from common import TRANSPORT, said_by, say, sgd, train, wait_until, wrapped
from ddp import Scaler


def not_finite():
    """A NaN of one rank reaches all ranks as NaN. The next step is as usual."""
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
    said = said_by(RuntimeError, backward, ddp, 0, factor=float("inf") if RANK == 1 else 1.0)
    compression.check()
    compression.close()
    return said


def wrong_arguments():
    frozen = network()
    frozen[0].requires_grad_(False)  # so nobody need move it
    check_optimizer([_api.Codec("topk:momentum=0.9")], sgd(frozen[2].parameters()), [*frozen.named_parameters()])
    ddp, hollow = wrapped(), network()
    hollow.register_parameter("hollow", torch.nn.Parameter(torch.zeros(0)))
    cases = [
        (network(), "ternary", {}),
        (ddp, "ternari", {}),
        (ddp, "ternary", {"nonfinite": "stop"}),
        (ddp, "ternary", {"transport": "pigeon"}),
        (ddp, "ternary", {"timeout": 0}),
        (ddp, "auto", {"nonfinite": "raise"}),
        (ddp, "auto", {"keys": "a-folder"}),
        (ddp, "auto", {"candidates": ["ternari"]}),
        (ddp, "auto", {"candidates": "ternary"}),
        (ddp, "auto", {"candidates": ["topk:scope=global,refresh=1"]}),
        (ddp, "ternary", {"transport": "torch", "keys": "a-folder"}),
        (ddp, "ternary", {"timeout": float("nan")}),
        (ddp, "ternary", {"timeout": None}),
        (ddp, "ternary", {"seed": 2**64}),
        (ddp, "ternary", {"threads": -1}),
        (ddp, "ternary", {"scaler": "dynamic"}),
        (ddp, "ternary", {"keys": ""}),
        (ddp, "ternary", {"keys": b"no/keys\xff"}),
        (ddp, "ternary", {"rendezvous": 29500}),
        (ddp, None, {}),
        (ddp, "ternary\0junk", {}),
        (ddp, "auto", {"candidates": 7}),
        (ddp, "ternary", {"optimizer": "sgd"}),
        (ddp, "topk:momentum=0.9", {}),
        (ddp, "topk:momentum=0.9", {"optimizer": torch.optim.Adam(ddp.parameters())}),
        (ddp, "topk:momentum=0.9", {"optimizer": torch.optim.SGD(ddp.parameters(), 0.1, momentum=0.8)}),
        (ddp, "topk:momentum=0.9", {"optimizer": torch.optim.SGD(ddp.parameters(), 0.1, 0.9, dampening=0.5)}),
        (ddp, "topk:momentum=0.9,output=velocity", {"optimizer": torch.optim.SGD(ddp.parameters(), 0.1, 0.9)}),
        (ddp, "topk:momentum=0.9", {"optimizer": torch.optim.SGD([*ddp.parameters()][:2], 0.1, momentum=0.9)}),
        (ddp, "auto", {"candidates": ["onebit:momentum=0.9"], "optimizer": torch.optim.SGD(ddp.parameters(), 0.1)}),
        (ddp, "auto", {"candidates": [f"topk:ratio=0.{i}" for i in range(10, 80)]}),
        (ddp, "ternary:skip=0.*+2.wieght", {}),
        (ddp, "ternary:skip=2.weight;2.bias", {}),
        (ddp, "auto", {"candidates": ["none", "ternary:skip=2.wieght"]}),
        (ddp, "ternary", {"candidates": ["ternary"]}),
        (wrapped(hollow, find_unused_parameters=True), "auto", {}),
        (ddp, "ternary", {"scaler": Scaler}),
        (ddp, "ternary", {"optimizer": torch.optim.SGD}),
        (ddp, "ternary", {"optimizer": [sgd(ddp.parameters())]}),
        (torch.nn.parallel.DistributedDataParallel, "ternary", {}),
        (ddp, numpy.array(["auto", "ternary"]), {}),
        (ddp, "tern\udcff", {}),
        (ddp, "auto", {"candidates": b"ternary"}),
        (ddp, "ternary", {"transport": numpy.array(["tcp", "mpi"])}),
        (ddp, "ternary", {"keys": 5}),
        (ddp, "ternary", {"rendezvous": "tcp://node7:29500"}),
        (ddp, "ternary", {"rendezvous": "node7:29500?rank=0"}),
        (ddp, "ternary", {"seed": True}),
        (ddp, "ternary", {"threads": numpy.bool_(True)}),
        (ddp, "ternary", {"timeout": True}),
    ]
    kinds = (TypeError, ValueError, gradwire.Error)
    said = [said_by(kinds, gw.attach, model, codec, **options) for model, codec, options in cases]
    # In these types a thousand times as much has no room.
    for seconds in (numpy.int8(60), numpy.float16(100)):
        with gw.attach(wrapped(), "none", transport=TRANSPORT, timeout=seconds) as compression:
            said.append(compression._options["timeout_ms"])
            dist.barrier()
    return [*said, said_by(kinds, gw.hook, None, None)]


class OtherNames(torch.nn.Module):
    """Has the shapes of network(), so that DDP itself sees no difference."""

    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(20, 64), torch.nn.Linear(64, 5)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


def a_schedule_moves_the_momentum():
    """As OneCycleLR does."""
    ddp, optimizer, compression = attached_with("onebit:momentum=0.9")
    with compression:
        train(ddp, 2, optimizer)
        dist.barrier()  # a failure ends a step that another rank still ends
        optimizer.param_groups[0]["momentum"] = 0.85
        return said_by(RuntimeError, backward, ddp, 2)


def steps_without_the_optimizer():
    """Returns what backward says if only every second one has a step: as it is; under no_sync; when no step came after
    a NaN; if two steps of eight are left out; if one rank has joined; if the program has its own name for step; and if
    another optimizer without momentum makes all steps."""
    said = []
    for kind in ("as it is", "no_sync", "nan", "left out", "joined", "own name", "another"):
        ddp, optimizer, compression = attached_with("onebit:momentum=0.9")
        make_step = sgd(ddp.parameters(), 0.0).step if kind == "another" else optimizer.step
        with compression:
            with ddp.join(enable=kind == "joined"):
                try:
                    for step in range(1 if kind == "joined" and RANK == 1 else 10):
                        is_odd = step % 2 == 1
                        if kind in ("as it is", "another"):
                            dist.barrier()  # a failure ends a step that another rank still ends
                        with ddp.no_sync() if kind == "no_sync" and not is_odd else contextlib.nullcontext():
                            if is_odd and kind == "nan":
                                optimizer.zero_grad()
                            backward(ddp, step, factor=float("nan") if kind == "nan" and not is_odd else 1.0)
                        if kind in ("own name", "another"):
                            make_step()
                            optimizer.zero_grad()
                        elif is_odd or kind == "joined" or (kind == "left out" and step not in (2, 4)):
                            optimizer.step()
                            optimizer.zero_grad()
                    said.append("no error")
                except RuntimeError as error:
                    said.append(f"step {step}: {error}")
            dist.barrier()
        assert "step" not in vars(optimizer)
    return said


def what_disagrees(model, codec, **options):
    def one_step():
        ddp, compression = attached(codec, model, timeout=20, **options)
        with compression:
            backward(ddp, 0)

    return said_by(RuntimeError, one_step)


def codecs_that_differ():
    return what_disagrees(network(), "none" if RANK == 1 else "ternary")


def nonfinite_that_differs():
    return what_disagrees(network(), "ternary", nonfinite="raise" if RANK == 1 else "nan")


def scalers_that_differ():
    return what_disagrees(network(), "ternary", scaler=Scaler() if RANK == 1 else None)


def factors_that_differ():
    scaler = Scaler()
    scaler.scale = 512.0 if RANK == 1 else 1024.0
    return what_disagrees(network(), "ternary", scaler=scaler)


def models_that_differ():
    return what_disagrees(OtherNames() if RANK == 1 else network(), "ternary")


def models_in_another_order():
    """The models are alike, so nobody can see which is which."""
    models = [wrapped(), wrapped()]
    with contextlib.ExitStack() as opened:
        for ddp in reversed(models) if RANK == 1 else models:
            opened.enter_context(gw.attach(ddp, "ternary", transport=TRANSPORT, timeout=2))
        return said_by(RuntimeError, lambda: [backward(ddp, 0) for ddp in models])


def refuse(*_):
    raise ValueError("rank 1 has had enough")


def one_rank_raises_in_backward():
    """The rank goes on to its end. The other ranks hear which rank left."""
    ddp, compression = attached("ternary", ddp_options={"bucket_cap_mb": 0.0001}, timeout=20)
    train(ddp, 3)
    dist.barrier()  # a failure ends a step that another rank still ends
    if RANK == 1:
        ddp.module[1].register_full_backward_hook(refuse)
    start = time.monotonic()
    said = said_by((RuntimeError, ValueError), backward, ddp, 9)
    compression.close()
    return [said, time.monotonic() - start]


class Deep(torch.nn.Module):
    """A network of several buckets, whatever DDP's first one takes. What goes from the first layer to the others passes
    through `between`."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layers = [torch.nn.Linear(20, 600), *(torch.nn.Linear(600, 600) for _ in range(3))]
        self.layers, self.between = torch.nn.ModuleList(layers), lambda x: x

    def forward(self, x):
        x = self.between(self.layers[0](x))
        for layer in self.layers[1:]:
            x = layer(x)
        return x[:, :5]


class Refuse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.3)  # meanwhile the thread takes the first bucket, and waits for more
        raise ValueError("rank 1 has had enough")


def one_rank_raises_between_buckets():
    """The step of that rank can never end. The rank can say so, close, and leave."""
    ddp, compression = attached(TOPK, Deep(), {"bucket_cap_mb": 0.1}, timeout=20)
    train(ddp, 3)
    dist.barrier()  # a failure ends a step that another rank still ends
    if RANK == 1:
        ddp.module.between = Refuse.apply
    said = [said_by((RuntimeError, ValueError), backward, ddp, 9)]
    if RANK == 1:
        compression._seconds = 0.1
        said.append(said_by(gradwire.Timeout, compression.state_dict))
    compression.close()
    return said


def attach_is_late():
    """Rank 1 does not attach until the others have given up."""
    ddp = wrapped()
    dist.barrier()
    if RANK == 1:
        await_word("heard", of=[0, 2])
        return ""
    said = said_by(gradwire.Timeout, gw.attach, ddp, "ternary", timeout=3)
    say("heard")
    return said


def transports_that_differ():
    transport = "torch" if RANK == 1 else "tcp"
    return said_by(gradwire.Error, attached, "ternary", transport=transport, timeout=20)


def keys_that_differ():
    return said_by(gradwire.Error, attached, "ternary", keys=FOLDER if RANK == 1 else None, timeout=20)


def candidates_that_differ():
    candidates = ["bf16"] if RANK == 1 else ["bf16", "f16"]
    return said_by(gradwire.Error, attached, "auto", candidates=candidates, timeout=20)


def groups_go():
    """Counts threads and open files after one attach and close, and after five."""
    found = []
    for _ in range(5):
        ddp, compression = attached("ternary", transport="torch")
        train(ddp, 1)
        compression.close()
        del ddp, compression
        gc.collect()
        found.append([len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))])
    return [found[0], found[-1]]


def one_rank_ends_between_steps():
    """Nobody catches the error of that rank's program, and the program closes nothing itself."""
    ddp, compression = attached("ternary")
    start = time.monotonic()
    said = said_by(RuntimeError, train, ddp, 3 if RANK == 1 else 103)
    if RANK == 1:
        raise ValueError("rank 1 has had enough")
    compression.close()
    return [said, time.monotonic() - start]


def slowed(function, seconds):
    """Returns the function, which takes so much longer on all threads but the main one."""

    def slow(self, *arguments):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(seconds)
        return function(self, *arguments)

    return slow


def one_rank_forgets_its_compression():
    """The thread still has the step when rank 1 drops the compression. So the thread closes it, while Python ends."""
    ddp, compression = attached("ternary", timeout=600)
    train(ddp, 2)
    if RANK == 1:
        for owner, name, seconds in [(type(compression), "_settled", 0.5), (type(compression._member), "close", 2)]:
            setattr(owner, name, slowed(getattr(owner, name), seconds))
        train(ddp, 1, first=2)
        del ddp, compression
        gc.collect()
        time.sleep(1)
        return None
    train(ddp, 1, first=2)
    return said_by(RuntimeError, train, ddp, 1, first=3)


def one_rank_has_fewer_batches():
    """Its program ends well."""
    ddp, compression = attached("ternary", timeout=600)
    train(ddp, 3)
    if RANK == 1:
        return None
    return said_by(RuntimeError, train, ddp, 1, first=3)


def one_rank_is_stopped():
    """Rank 1's program ends meanwhile. The test wakes rank 0 up again."""
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    ddp, compression = attached("ternary", transport="torch")
    train(ddp, 3)
    if RANK == 0:
        await_word("trained", of=[1])  # Gloo's threads may still send what rank 1 waits for in its last step
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        say("trained")
        wait_until(lambda: ") T " in pathlib.Path(f"/proc/{pids[0]}/stat").read_text(encoding="utf-8"))
        compression.close()
        say("closed")


def interrupt(*_):
    raise KeyboardInterrupt


def one_rank_is_interrupted():
    """Ctrl-C comes within the hook, and the program goes on to do something else."""
    ddp, compression = attached("ternary", timeout=600)
    train(ddp, 3)
    dist.barrier()  # a failure ends a step that another rank still ends
    if RANK == 1:
        bring, gw_buckets.Bucket.bring = gw_buckets.Bucket.bring, interrupt
        said = said_by(RuntimeError, train, ddp, 1)
        gw_buckets.Bucket.bring = bring
        await_word("heard", of=[0, 2])
    else:
        said = said_by(RuntimeError, train, ddp, 1)
        say("heard")
    compression.close()
    return said


def one_rank_is_silent():
    """Rank 0 does something else until the others have given up."""
    ddp, compression = attached("ternary", timeout=1)
    if RANK == 0:
        await_word("heard", of=[1, 2])
    said = said_by(RuntimeError, train, ddp, 1)
    say("heard")
    compression.close()
    return said


def one_rank_is_killed():
    ddp, compression = attached("ternary", timeout=10)
    start = time.monotonic()
    said = said_by(RuntimeError, train, ddp, 3 if RANK == 1 else 100)
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)  # others may still wait for what it has not sent of its last step
    checked = said_by(gradwire.Error, compression.check)
    compression.close()
    return [said, checked, time.monotonic() - start]
