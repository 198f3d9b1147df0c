"""Tests codec="auto", and what is logged."""
import contextlib
import io
import os
import sys
import threading

import torch
import torch.distributed as dist
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer

import gradwire.torch as gw
from gradwire import _api
from gradwire.codecs import lost
from gradwire.torch import auto as gw_auto
from gradwire.torch.fits import not_linear, why_not

from common import FOLDER, RANK, TRANSPORT, attached, attached_with, await_word, backward, digest, network, said_by, say
from common import sgd, train, wrapped


@contextlib.contextmanager
def little_is_measured():
    """Still more than the models here have."""
    least_before, gw_auto._LEAST_ELEMENTS = gw_auto._LEAST_ELEMENTS, 1 << 16
    try:
        yield
    finally:
        gw_auto._LEAST_ELEMENTS = least_before


@little_is_measured()
def auto_runs(gain, later_ms):
    """Trains forty steps. The gain and a step's time are given. Returns what the rank found."""
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
        compression.choice["groups"].append(99)  # that changes nobody else's
        state = compression.state_dict()
        assert len(compression._auto._ends) < 20  # the list must not grow with every step
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


@little_is_measured()
def auto_over_the_group():
    """The messages that are measured may be larger than the model."""
    ddp, compression = attached("auto", candidates=["ternary"], transport="torch")
    train(ddp, 16)
    found = [compression.choice["codec"], digest(ddp)]
    compression.close()
    return found


def auto_takes_none():
    return auto_runs(0.0, 5.0)


def auto_knows_accuracy():
    """Its own candidates lost little, and fit any SGD."""
    parameters = list(network().parameters())
    optimizers = [None, sgd(parameters, 0.8), torch.optim.Adam(parameters)]
    found = [gw_auto.candidates_for(optimizer) for optimizer in optimizers]
    codecs = [_api.Codec(spec) for specs in found for spec in specs]
    assert all(lost(codec) <= 0.3 for codec in codecs)
    return found


@little_is_measured()
def adam_is_noticed():
    """attach was not told the optimizer. Returns what rank 0 says in the first step of each, and what auto compares."""
    said = []
    for codec, make in (
        ("ternary:residual=on", torch.optim.AdamW),
        ("ternary:residual=on", torch.optim.SGD),
        ("bf16", torch.optim.AdamW),
        ("f16", torch.optim.AdamW),
    ):
        ddp, compression = attached(codec)
        with compression, contextlib.redirect_stderr(io.StringIO()) as text:
            train(ddp, 2, make(ddp.parameters(), 0.001))
        said.append(text.getvalue())
    ddp, compression = attached("auto")
    with compression, contextlib.redirect_stderr(io.StringIO()):
        train(ddp, 16, torch.optim.Adam(ddp.parameters()))
        return said, list(compression.choice["predicted_ms"])


def another_optimizer():
    """The program exchanges its optimizer after three steps. Returns how often rank 0 says that."""
    ddp, compression = attached("ternary")
    with compression, contextlib.redirect_stderr(io.StringIO()) as text:
        train(ddp, 3)
        train(ddp, 7, torch.optim.AdamW(ddp.parameters(), 0.001), first=3)
    return text.getvalue().count("with AdamW, ternary")


def optimizers_that_cannot_be_asked():
    """Others in the process need not be whole, or as PyTorch makes them. The one that is there is found."""

    class Raises(torch.optim.Adam):
        param_groups = property(lambda self: 1 // 0)

        def __init__(self):
            pass

    class OfMeta(type):
        __name__ = 5

    class Nameless(torch.optim.SGD, metaclass=OfMeta):
        pass

    half = torch.optim.Adam.__new__(torch.optim.Adam)
    empty, none = (torch.optim.Adam([torch.zeros(1)]) for _ in range(2))
    empty.param_groups, none.param_groups = [{}], None
    others = [half, Raises(), empty, none, Nameless([torch.zeros(1)], 0.1)]
    ddp, compression = attached("ternary")
    with compression, contextlib.redirect_stderr(io.StringIO()) as text:
        train(ddp, 1, torch.optim.AdamW(ddp.parameters(), 0.001))
    return [len(others), text.getvalue().count("with AdamW, ternary")]


def others_free_their_own():
    """Another thread lets objects go while optimizers are looked for. Returns the threads that free them, and which
    optimizer was found."""

    class Thing:
        def __del__(self):
            freed.add(threading.current_thread().name)

    freed, done = set(), threading.Event()

    def let_go():
        while not done.is_set():
            things = [Thing() for _ in range(100)]
            things.clear()

    parameters, many = list(network().parameters()), [[] for _ in range(200_000)]
    optimizer = torch.optim.Adam(parameters)
    thread = threading.Thread(target=let_go, name="other")
    thread.start()
    try:
        found = {not_linear(parameters, None) for _ in range(20)}
    finally:
        done.set()
        thread.join(60)
    del many, optimizer
    return sorted(freed), sorted(found)


def adam_within_another():
    """Returns what is said if attach is given an optimizer that shares out the work of Adam among the ranks."""
    ddp, optimizer, compression = attached_with(
        "ternary", lambda parameters: ZeroRedundancyOptimizer(parameters, torch.optim.Adam, lr=0.001)
    )
    with compression, contextlib.redirect_stderr(io.StringIO()) as text:
        train(ddp, 1, optimizer)
    return text.getvalue().count("with Adam, ternary")


def others_than_sgd():
    """Returns which optimizers are not linear in the gradients, what auto compares for each, whether momentum= fits one
    that only inherits from SGD, and what rank 0 says of one that attach was not told."""

    class Own(torch.optim.SGD):
        pass

    class LARS(torch.optim.SGD):
        def step(self, closure=None):
            pass

    class FusedSGD(torch.optim.Optimizer):
        def step(self, closure=None):
            pass

    class SignSGD(FusedSGD):
        pass

    parameters = list(network().parameters())
    optimizers = [
        Own(parameters, 0.1),
        sgd(parameters),
        torch.optim.ASGD(parameters),
        FusedSGD(parameters, {}),
        ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=0.1),
        PostLocalSGDOptimizer(torch.optim.Adam(parameters), None),
        torch.optim.Rprop(parameters),
        torch.optim.LBFGS(parameters),
        LARS(parameters, 0.1, 0.9),
        SignSGD(parameters, {}),
    ]
    names = [not_linear((), optimizer) for optimizer in optimizers]
    only_bf16 = [gw_auto.candidates_for(optimizer) == ["bf16"] for optimizer in optimizers]
    refused = why_not(_api.Codec("topk:momentum=0.9"), LARS(parameters, 0.1, 0.9))
    del optimizers, parameters
    ddp, compression = attached("ternary")
    optimizer = torch.optim.LBFGS(ddp.parameters(), max_iter=1)
    with compression, contextlib.redirect_stderr(io.StringIO()) as text:
        optimizer.step(lambda: backward(ddp, 0))
    return names, only_bf16, refused, text.getvalue().count("LBFGS is not linear in the gradients")


@little_is_measured()
def one_of_two_is_given():
    """SGD moves one layer, and attach is given it. Adam moves the other. Returns what is said, what auto compares, and
    whether an Adam counts that moves nothing but what the SGD does."""

    def train_both(codec, steps):
        ddp = wrapped()
        first, _, last = ddp.module
        optimizer, other = sgd(first.parameters()), torch.optim.Adam(last.parameters(), 0.001)
        compression = gw.attach(ddp, codec, transport=TRANSPORT, optimizer=optimizer)
        with compression, contextlib.redirect_stderr(io.StringIO()) as text:
            for step in range(steps):
                ddp.zero_grad()
                backward(ddp, step)
                optimizer.step()
                other.step()
        return text.getvalue().count("with Adam, ternary"), compression.choice

    n_said, _ = train_both("ternary", 1)
    _, choice = train_both("auto", 16)
    parameters = list(network().parameters())
    former = torch.optim.Adam(parameters)
    return n_said, sorted(choice["predicted_ms"]), not_linear(parameters, sgd(former.param_groups[0]["params"]))


@little_is_measured()
def nobody_reads_what_it_says():
    """Standard error is a pipe without a reader, closed, an object that raises, or not there. Training goes on."""
    reading, writing = os.pipe()
    os.close(reading)
    closed = io.StringIO()
    closed.close()
    before, steps = sys.stderr, []
    for stream, codec, n in (
        (open(writing, "w", encoding="utf-8"), "ternary", 1),
        (closed, "ternary", 1),
        (object(), "auto", 16),
        (None, "ternary", 1),
    ):
        ddp, compression = attached(codec)
        sys.stderr = stream
        try:
            with compression:
                train(ddp, n, torch.optim.Adam(ddp.parameters()))
        finally:
            sys.stderr = before
        steps.append(compression.stats()["steps"] > 0)
    return steps


def auto_as_it_is():
    """auto may take anything here. All ranks take the same, and stay identical."""
    ddp, optimizer, compression = attached_with("auto")
    train(ddp, 40, optimizer)
    found = [compression.choice["codec"], compression.choice.get("predicted_ms"), digest(ddp)]
    compression.close()
    return found


@little_is_measured()
def auto_sees_a_schedule():
    """OneCycleLR may be made after attach. Returns what auto compares then."""
    ddp, optimizer, compression = attached_with("auto", candidates=["onebit:momentum=0.9"])
    with compression:
        optimizer.param_groups[0]["momentum"] = 0.85
        train(ddp, 16, optimizer)
        return list(compression.choice["predicted_ms"])


@little_is_measured()
def auto_sees_backwards_without_steps():
    ddp, optimizer, compression = attached_with("auto", candidates=["onebit:momentum=0.9"])
    with compression:
        for step in range(16):
            backward(ddp, step)
            if step % 2:
                optimizer.step()
                optimizer.zero_grad()
        return list(compression.choice["predicted_ms"])


@little_is_measured()
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


class Bucket:
    def __init__(self, is_last):
        self.is_last, self.buffer = lambda: is_last, lambda: torch.zeros(1)


class Work:
    def wait(self, _):
        return True


class Clock:
    seconds = 0.0

    @classmethod
    def perf_counter(cls):
        return cls.seconds


def auto_runs_no_python_on_other_threads():
    """While DDP's own all-reduce runs. If Gloo's threads ran some, the process would abort now and then at its end.
    Rank 1 then stands still, and the others hear it at the deadline."""
    ddp, compression = attached("auto")
    names, finish = set(), gw_auto.Auto.finish

    def noted(self, passed):
        names.add(threading.current_thread().name)
        passed.future.add_done_callback(lambda _: names.add(threading.current_thread().name))
        finish(self, passed)

    gw_auto.Auto.finish = noted
    train(ddp, 3)
    gw_auto.Auto.finish = finish
    compression._auto._timeout_ms = compression._options["timeout_ms"] = 1000
    if RANK == 1:
        await_word("heard", of=[0, 2])
    said = said_by(RuntimeError, train, ddp, 1)
    say("heard")
    compression.close()
    return [sorted(names), said]


def auto_and_one_rank_ends():
    """Rank 1 ends while DDP's own all-reduce runs, and its program goes on."""
    ddp, compression = attached("auto")
    train(ddp, 3)
    dist.barrier()
    compression._auto._timeout_ms = compression._options["timeout_ms"] = 3000
    if RANK == 1:
        compression.end(ValueError("rank 1 has had enough of \udcff"))
        say("ended")
        await_word("heard", of=[0, 2])
        return said_by(RuntimeError, train, ddp, 1)
    await_word("ended", of=[1])
    said = said_by(RuntimeError, train, ddp, 1)
    say("heard")
    return said


def auto_times():
    """In every step the first bucket is large and arrives last. Returns what auto takes the times to be."""
    parameters = [torch.nn.Parameter(torch.zeros(n)) for n in (1, 9)]
    time_before, start_before = gw_auto.time, gw_auto.start_all_reduce
    gw_auto.time, gw_auto.start_all_reduce = Clock, lambda *_: Work()
    try:
        auto = gw_auto.Auto(parameters, [("small", 1, False), ("large", 9, False)], ["ternary"], None, None, [], 1000)
        for step in range(4):
            small, large, passed = Bucket(True), Bucket(False), {}
            for tensor, bucket, seconds in ((1, large, 1.0), (0, small, 3.0)):
                Clock.seconds = 10.0 * step + seconds
                auto._note(tensor, None)
                passed[bucket] = auto.all_reduce(bucket)
            for bucket, seconds in ((small, 4.0), (large, 10.0)):
                Clock.seconds = 10.0 * step + seconds
                auto.finish(passed[bucket])
        return [auto._times(), auto._step_ms()]
    finally:
        gw_auto.time, gw_auto.start_all_reduce = time_before, start_before


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
    folder = FOLDER / f"board-{RANK}"
    ddp, compression = attached("ternary")
    train(ddp, 1)
    with SummaryWriter(folder) as writer:
        compression.log(writer, 0)
    compression.close()
    return len(os.listdir(folder))
