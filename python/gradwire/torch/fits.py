"""Says whether a codec fits the optimizer: its momentum=, and whether it trains as floats do."""
import collections
import functools
import gc
import inspect
import re
import types

import torch

from .. import _api
from .notices import say

# What waits in a residual moves the parameters of SGD later, and no less: SGD is linear in the gradients. Others divide
# by a norm or the root of a mean square, take signs, or compare gradients. What a codec sends has a larger norm, more
# zeros, and the residuals of steps before. By name, because others than PyTorch make optimizers, too.
_LINEAR = re.compile("^(?!.*sign).*sgd", re.IGNORECASE)
# Of these it was tried what helps.
_DIVIDES = re.compile("adam|adagrad|adadelta|adafactor|rmsprop|lamb", re.IGNORECASE)
_ONLY_ROUNDS = ("none", "bf16", "f16")
# A program may leave out a step now and then. What goes wrong by that fades.
_WATCHED, _MOST_LATE = 8, 2  # exchanges


def has_momentum(codec):
    return _api.library().gw_codec_traits_of(codec.handle).momentum > 0


def why_not(codec, optimizer, named=()):
    """Returns why momentum= of the codec does not fit, or None. codec: an _api.Codec. optimizer: None if it is not
    known; then no momentum= fits. named: [(name, parameter)] that it must move, if they are not frozen."""
    traits = _api.library().gw_codec_traits_of(codec.handle)
    if not has_momentum(codec):
        return None
    if optimizer is None:
        return f"{codec.canonical}: a codec with momentum= must fit the optimizer; pass it as optimizer="
    kind = type(optimizer).__name__
    if not isinstance(optimizer, torch.optim.SGD) or _name_if_not_linear(optimizer, None):
        return f"{codec.canonical.partition(':')[0]} with momentum= fits torch.optim.SGD only, and this is {kind}"
    wanted = 0.0 if traits.velocity else traits.momentum
    for group in optimizer.param_groups:
        # Momentum that a schedule computes may have another last place.
        if not abs(group["momentum"] - wanted) < 1e-6 or group["dampening"] != 0:
            output = ",output=velocity" if traits.velocity else ""
            return (
                f"the codec has momentum={traits.momentum:g}{output}, so the optimizer must have momentum {wanted:g} "
                f"and dampening 0, and has {group['momentum']:g} and {group['dampening']:g}"
            )
    moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if others := [name for name, p in named if p.requires_grad and id(p) not in moved]:
        return (
            "a codec with momentum= needs an optimizer that moves all parameters, and this one does not have "
            f"{others[0]}; name a codec without momentum=, or freeze what nobody moves"
        )
    return None


class Pace:
    """Watches that the optimizer makes a step after each exchange, as momentum= supposes. Else what velocities leave
    behind adds up, and training runs away."""

    def __init__(self, optimizer):
        self._optimizer, self._n_steps, self._seen = optimizer, 0, {}
        self._before = self._counting = None  # what the optimizer itself has as step

    def why_not(self, excuse, unit=0):
        """Is called before each exchange of a unit. Returns why the steps so far do not fit a codec with momentum=, or
        None. excuse() is asked if none came after the last exchange: it says whether that was right."""
        if self._counting is None:
            self._count()
        moves = self._n_steps + sum(1 + tensor._version for tensor in self._moving())
        moves_before, late = self._seen.get(unit, (None, collections.deque(maxlen=_WATCHED)))
        late.append(moves == moves_before and not excuse())
        self._seen[unit] = (moves, late)
        if sum(late) <= _MOST_LATE:
            return None
        return (
            f"a codec with momentum= needs an optimizer.step() after each backward that averages, and {sum(late)} of "
            f"the last {len(late)} had none; to add up the gradients of several backwards, make all but the last one "
            "under no_sync() (FSDP2: after set_requires_all_reduce(False)), or name a codec without momentum="
        )

    def _count(self):
        """Counts calls of step(), because fused kernels leave no trace in a tensor. PyTorch's own hooks of a step are
        lost once torch.compile has been used."""
        self._before, inner = vars(self._optimizer).get("step"), self._optimizer.step

        @functools.wraps(inner)
        def step(_, *args, **options):
            result = inner(*args, **options)
            self._n_steps += 1
            return result

        self._optimizer.step = self._counting = types.MethodType(step, self._optimizer)  # schedules want a method

    def _moving(self):
        """Returns the tensors that a step changes, also if the program had taken step before it was counted: momenta,
        which nobody else changes, if the optimizer has momentum. Its first step makes them."""
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        if not any(group["momentum"] for group in self._optimizer.param_groups):
            return parameters
        momenta = [self._optimizer.state[p].get("momentum_buffer") for p in parameters if p in self._optimizer.state]
        return [m for m in momenta if m is not None]

    def end(self):
        if self._counting is not None and vars(self._optimizer).get("step") is self._counting:
            if self._before is None:
                del self._optimizer.step  # what its class has shows again
            else:
                self._optimizer.step = self._before


def _name_if_not_linear(optimizer, moved):
    """Returns the optimizer's name if it is not linear in the gradients, and moves one of these parameters, known by
    their identities (None: any), else None. An optimizer that nobody gave us may be half made, or of any class. If it
    cannot be asked, it does not count."""
    try:
        inner = getattr(optimizer, "optim", None)  # of ZeroRedundancyOptimizer and PostLocalSGDOptimizer
        if isinstance(inner, torch.optim.Optimizer):
            optimizer = inner
        kind = type(optimizer)
        steps = [inspect.unwrap(c.step) for c in (kind, torch.optim.SGD, torch.optim.ASGD)]  # PyTorch wraps them anew
        if steps[0] in steps[1:] or _LINEAR.search(kind.__name__):
            return None
        moves = moved is None or any(id(p) in moved for group in optimizer.param_groups for p in group["params"])
        return kind.__name__ if moves else None
    except Exception:
        return None


def not_linear(parameters, optimizer):
    """Returns the name of an optimizer that moves these parameters and is not linear in the gradients, or None. For
    what the optimizer does not move, or everything if it is None, all optimizers of the process are looked at."""
    moved = set(map(id, parameters))
    if optimizer is not None:
        if name := _name_if_not_linear(optimizer, None):
            return name
        # check_optimizer says later that it is no optimizer.
        moved.difference_update(id(p) for group in getattr(optimizer, "param_groups", ()) for p in group["params"])
    return next(filter(None, (_name_if_not_linear(o, moved) for o in _optimizers())), None) if moved else None


def _optimizers():
    """Returns the optimizers of the process. An object refers to its class. Who asks for all objects holds them, and
    frees on this thread what others let go meanwhile: models, or a compression. isinstance would run code of objects
    that only pretend to have a class."""
    classes = [torch.optim.Optimizer]
    for kind in classes:
        classes += [c for c in type.__subclasses__(kind) if all(c is not known for known in classes)]
    return [o for o in gc.get_referrers(*classes) if any(type(o) is kind for kind in classes)]


def trains_badly(codec, parameters, optimizer):
    """Returns the name of the optimizer with which the codec can train more slowly than floats, or worse, or None."""
    return None if codec.canonical in _ONLY_ROUNDS else not_linear(parameters, optimizer)


class Fit:
    """Says once that a codec can train badly. In the first step the optimizer is there, and later the program may take
    another one. To look for it takes time. So this is done before steps 0, 1, 2, 4, 8 and so on."""

    def __init__(self):
        self._n_steps, self._has_said = 0, False

    def look(self, codec, parameters, optimizer):
        is_due = not self._has_said and self._n_steps & (self._n_steps - 1) == 0
        self._n_steps += 1
        if is_due and (name := trains_badly(codec, parameters, optimizer)):
            _say_that_bad(codec.canonical.partition(":")[0], name)
            self._has_said = True


def _say_that_bad(kind, name):
    if _DIVIDES.search(name):
        say(
            f"gradwire: with {name}, {kind} can train more slowly than floats at the same rate. 1.6 times the rate "
            "made up for that with ternary:residual=on; topk:ratio=0.1,refresh=1,over=0,value=bf16 lost less "
            '(docs/accuracy.md, "Adam")'
        )
    else:
        say(
            f"gradwire: {name} is not linear in the gradients, as SGD is. With {kind} it can train more slowly than "
            'floats, or not at all, as LBFGS does; bf16 trains as floats do (docs/accuracy.md, "Other optimizers")'
        )


def check_optimizer(codecs, optimizer, named):
    """Raises TypeError if it is no optimizer, and ValueError if a codec does not fit. codecs: [_api.Codec]. named: as
    in why_not."""
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer is {_api.shown(optimizer)}, and must be an optimizer of PyTorch")
    for codec in codecs:
        if why := why_not(codec, optimizer, named):
            raise ValueError(f"gradwire: {why}")
