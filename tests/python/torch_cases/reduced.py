"""Tests which parameters a compression counts: those that DDP reduces, known by identity and by every name."""
import types

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import weight_norm
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import register_parametrization

import gradwire.torch as gw
from gradwire.torch.parameters import find_parameters

from common import SIZE, TRANSPORT, attached, backward, network, said_by, train, wrapped
from ddp import Bucket

ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model


def after_ddp():
    """The model changes between DDP and attach. Each kind trains, and says which parameters it counts."""
    found = {}
    for kind in ("thawed after", "frozen after", "added", "removed", "ignored", "used before"):
        model = network()
        if kind == "ignored":
            ignore(model, ["0.bias"])
        model[0].requires_grad_(kind != "thawed after")
        ddp = wrapped(model, find_unused_parameters=True)
        if kind == "used before":
            train(ddp, 2)  # DDP rebuilds its buckets
        model[0].requires_grad_(kind != "frozen after")
        if kind == "added":
            model.add_module("3", torch.nn.Linear(5, 5))
        if kind == "removed":
            model[0].bias = None
        compression = gw.attach(ddp, "none", timeout=20, transport=TRANSPORT)
        train(ddp, 3)
        found[kind] = [compression.state_dict()["names"], compression.stats()["steps"]]
        compression.close()
    return found


def ended(compression):
    """Waits until an error has ended the exchange, and returns it."""
    with compression._idle:
        compression._idle.wait_for(lambda: compression._error is not None, 60)
    error = compression._error
    compression.close()
    return [type(error).__name__, str(error)]


def frozen_and_needed():
    """DDP waits in vain for the frozen parameter, and its backward returns. The step ends at its deadline."""
    ddp = wrapped()
    ddp.module[0].bias.requires_grad_(False)
    compression = gw.attach(ddp, "none", timeout=1)
    first = Bucket([p for p in ddp.parameters() if p.requires_grad], torch.float32)
    first.is_last = lambda: False
    gw.hook(compression, first)
    return ended(compression)


def without_the_reducer():
    """A reducer that does not give its buckets: what needs a gradient is counted, and the first step compares."""
    model = network()
    ignore(model, ["0.bias"])
    ddp = wrapped(model)
    reducer, ddp.reducer = ddp.reducer, object()
    try:
        names = [p.names[0] for p in find_parameters(ddp) if p.is_reduced]
    finally:
        ddp.reducer = reducer
    return names


def last_bucket_without_all():
    ddp, compression = attached("none")
    dist.barrier()  # no rank fails while another one still attaches
    gw.hook(compression, Bucket(list(ddp.parameters())[1:3], torch.float32))
    return ended(compression)


def bucket_with_more():
    """A bucket holds more than its parameters have elements."""
    ddp, compression = attached("none")
    dist.barrier()  # no rank fails while another one still attaches
    bucket = Bucket(list(ddp.parameters()), torch.float32)
    bucket.parameters = lambda: bucket._parameters[:3]
    gw.hook(compression, bucket)
    return ended(compression)


class Tied(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.body = torch.nn.Linear(20, 5), torch.nn.Linear(20, 20)
        self.head = torch.nn.Linear(20, 5, bias=bias)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(torch.tanh(self.body(x))) + self.embedding(x)


def exact(codec, model=None):
    """Returns the names of the parameters whose averages are those of float32."""
    grads = []
    for rank in range(SIZE):
        alone = model or Tied(True)
        alone.zero_grad()
        backward(alone, 0, rank)
        grads.append([p.grad.clone() for p in alone.parameters()])
    alone.zero_grad()
    ddp, compression = attached(codec, alone)
    with compression:
        backward(ddp, 0)
        names = compression.state_dict()["names"]
    means = [sum(parts) / SIZE for parts in zip(*grads)]
    same = [torch.allclose(p.grad, mean, rtol=1e-5, atol=1e-7) for p, mean in zip(ddp.parameters(), means)]
    return [name for name, is_same in zip(names, same) if is_same]


def shared_names():
    """Every name of a shared parameter finds it."""
    return [
        exact(f"ternary:skip={skip}") for skip in ("embedding.weight", "head.weight", "head.*", "last", "body.bias")
    ]


class Scaled(torch.nn.Linear):
    """A layer with a module of its own behind its weight."""

    def __init__(self):
        super().__init__(20, 5)
        self.scaler = torch.nn.PReLU()


class Wrapped(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.gain, self.inner = torch.nn.Parameter(torch.ones(1)), inner


class Compiled(torch.nn.Module):
    """Has the names that torch.compile gives."""

    def __init__(self, inner):
        super().__init__()
        self._orig_mod = inner

    def forward(self, x):
        return self._orig_mod(x)


class Symmetric(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.skew = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.skew


class Alike(torch.nn.Sequential):
    """Its modules say that they are equal. PyTorch visits one of equal modules: DDP does not reduce the inner one."""

    def __eq__(self, other):
        return isinstance(other, Alike)

    def __hash__(self):
        return 7


def last_layers():
    """Returns the parameters of the last layer, by the class of that layer."""

    def linear():
        return torch.nn.Linear(20, 5)

    parametrized = linear()
    for name in ("weight", "bias"):
        register_parametrization(parametrized, name, Symmetric())
    shared = torch.nn.Linear(20, 20)
    layers = {
        "plain": [linear()],
        "weight_norm": [weight_norm(linear())],
        "spectral_norm": [spectral_norm(linear())],
        "parametrized": [parametrized],
        "scaled": [Scaled()],
        "wrapped": [Wrapped(linear())],
        "compiled": [Compiled(linear())],
        "shared": [shared, torch.nn.ReLU(), shared],
        "behind it": [linear(), torch.nn.Softmax(1), torch.nn.Dropout()],
    }
    found = {"tied": last_of(Tied(False))}
    for kind, modules in layers.items():
        body = torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.LayerNorm(20))
        found[kind] = last_of(torch.nn.Sequential(body, *modules))
    found["alike"] = last_of(Alike(torch.nn.Linear(20, 20), Alike(linear())))
    found["compiled whole"] = last_of(Compiled(network()))
    return found


def last_of(model):
    return sorted(p.names[0] for p in find_parameters(wrapped(model)) if p.is_last)


def compiled_names():
    """A parameter of a compiled model is also found by the name that it had before."""
    return [exact(f"ternary:skip={skip}", Compiled(network())) for skip in ("_orig_mod.0.bias", "0.bias")]


class Around(torch.nn.Module):
    """Holds a model, and is none that attach knows."""

    def __init__(self, model):
        super().__init__()
        self.model = model


def tries(model):
    """Returns what attach says. No rank closes while another is still in attach, which would hear that one has left."""

    def attach_and_close():
        with gw.attach(model, "ternary", transport=TRANSPORT, timeout=20):
            dist.barrier()

    return said_by((TypeError, ValueError), attach_and_close)


def wrapped_models():
    """What torch.compile wrapped is taken. A hook that is there already is named, before any connection is made."""

    def has_hook(hook):
        ddp = wrapped()
        ddp.register_comm_hook(None, hook)
        return ddp

    mixed, in_backward, python_reducer, skips = wrapped(), wrapped(), wrapped(), wrapped()
    mixed.mixed_precision = "what DDP was given"  # from PyTorch 2.1 on DDP has this option
    in_backward.module[0].weight._in_backward_optimizers = []  # what _apply_optimizer_in_backward leaves
    python_reducer._use_python_reducer = True  # DDP sets it from PyTorch 2.3 on
    skips.skip_all_reduce_unused_params = True  # an option of DDP from PyTorch 2.8 on
    known = [Compiled(wrapped()), Around(wrapped()), has_hook(named_hook), mixed, in_backward, python_reducer, skips]
    return [tries(m) for m in known]


def named_hook(_, bucket) -> torch.futures.Future[torch.Tensor]:
    """A hook that somebody else has registered."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def types_at_attach():
    said = []
    wide, sparse, whole = network(), torch.nn.Embedding(9, 4, sparse=True), network()
    wide[2].double()
    with_sparse = torch.nn.ModuleDict({"words": sparse, "rest": network()})
    ignored = network()
    ignored[2].double()
    ignore(ignored, ["2.weight", "2.bias"])
    for model in (wide, with_sparse, whole, ignored):
        said.append(tries(wrapped(model)))
    # A sparse embedding that has had a gradient has a bucket of its own.
    ddp = wrapped(torch.nn.Sequential(torch.nn.Embedding(9, 4, sparse=True), torch.nn.Linear(4, 2)))
    ddp(torch.tensor([1])).sum().backward()
    said.append(tries(ddp))
    # PyTorch 2.14 hands over complex gradients as floats, twice as many.
    whole = wrapped()
    whole.module[2].bias = torch.nn.Parameter(torch.zeros(5, dtype=torch.complex64))
    as_floats = Bucket(list(whole.parameters()), torch.float32)
    reducer, whole.reducer = whole.reducer, types.SimpleNamespace(_get_zeros_like_grad_buckets=lambda: [as_floats])
    said.append(tries(whole))
    whole.reducer = reducer
    return said
