"""codec="auto": leaves the first steps to DDP's own all-reduce, times them, measures link and codecs, and chooses a
codec. After some steps with it, it checks that they are really shorter. If not, it goes back to the all-reduce."""
import ctypes
import datetime
import functools
import json
import statistics
import time

import torch.distributed as dist

from .. import _api, _library
from ..codecs import lost
from ..errors import Error, Status
from .buckets import Passed
from .fits import Pace, has_momentum, not_linear, trains_badly, why_not
from .links import reason, tell
from .notices import say

# What auto chooses from, if the caller names nothing: none, and those of these that are known to lose at most so many
# points of accuracy.
_CANDIDATES = ("bf16", "ternary:residual=on", "topk:ratio=0.01,scope=global,refresh=100,over=0.5")
_MOST_LOST = 0.3
_WARM_UP, _TIMED = 5, 9  # steps; DDP rebuilds its buckets in the first steps
_SETTLE = 3  # steps of a new codec that are not timed
_GAIN = 0.97  # auto takes a codec if its predicted step is shorter than so much of the all-reduce's, and of "none"'s
_LEAST_ELEMENTS = 1 << 20
MOST_PROBE_BYTES = 16 << 20  # so much a probe's messages and groups may take on each rank, however small the model is
_MOST_EXACT = 400  # for more tensors the exact plan may take minutes, while all ranks wait

# Buckets whose all-reduce has not ended well. If it failed, they stay here for good. Else Gloo's thread would be the
# last to drop a buffer, and need Python's lock for that. destroy_process_group of PyTorch 2.6 has the lock, and waits
# for that thread.
_under_way = set()


def candidates_for(optimizer):
    """The optimizer: None if it is not known. If it is not linear as SGD is, only bf16 is a candidate: the others train
    more slowly, or not at all (docs/accuracy.md)."""
    if optimizer is not None and not_linear((), optimizer):
        return ["bf16"]
    return [spec for spec in _CANDIDATES if lost(_api.Codec(spec)) <= _MOST_LOST]


def start_all_reduce(group, buffer):
    return dist.all_reduce(buffer.div_(group.size()), group=group, async_op=True)


class Auto:
    """The part of one rank. `passing`: buckets go to DDP's own all-reduce."""

    def __init__(self, parameters, tensors, candidates, optimizer, group, links, timeout_ms, are_defaults=True):
        """are_defaults: the caller named no candidates. Those that train badly with the optimizer are left out."""
        if len(tensors) > _api.PLAN_MAX_LAYERS:
            most = _api.PLAN_MAX_LAYERS
            raise Error(
                Status.ARGUMENT, f'codec="auto" plans for {most} parameters at most, and there are {len(tensors)}'
            )
        empty = [name for name, n, _ in tensors if n == 0]
        if empty:
            raise Error(Status.ARGUMENT, f'codec="auto" cannot plan for {empty[0]}, which has no elements')
        self.codecs = {spec: _api.Codec(spec) for spec in ("none", *candidates)}
        if len(self.codecs) > _api.PLAN_MAX_CODECS:
            most = _api.PLAN_MAX_CODECS
            raise Error(Status.ARGUMENT, f"{len(self.codecs)} codecs are to be measured; {most} are the most")
        for spec, codec in self.codecs.items():
            if _api.library().gw_codec_traits_of(codec.handle).one_group:
                raise Error(
                    Status.ARGUMENT,
                    f"{spec} decides for all tensors at once: they are one group, and auto plans groups",
                )
        self._tensors, self._links, self._timeout_ms, self._group = tensors, links, timeout_ms, group
        self._optimizer, self._parameters, self._are_defaults = optimizer, parameters, are_defaults
        self.pace, self._lacks_steps = Pace(optimizer), False
        self._watches = any(has_momentum(codec) for codec in self.codecs.values())
        self.passing, self.chosen, self._verdict_due = True, None, False
        self._is_first, self._ready, self._steps, self._ends = True, {}, [], []
        self.n_passed = 0
        # What was frozen after DDP was made is reduced, and gets no gradient.
        self._hooks = [
            p.register_hook(functools.partial(self._note, i)) for i, p in enumerate(parameters) if p.requires_grad
        ]

    # ---- while DDP's own all-reduce runs -----------------------------------------------------------------------

    def _note(self, tensor, _):
        self._ready[tensor] = time.perf_counter()

    def all_reduce(self, bucket):
        """Starts DDP's own all-reduce of a bucket. Returns what finish() ends."""
        passed = Passed(start_all_reduce(self._group, bucket.buffer()), bucket.buffer())
        _under_way.add(passed)
        times = self.chosen is None
        if times and self._is_first:
            self._ends.append(0.0)
        self._is_first = bucket.is_last()
        if bucket.is_last():
            self.n_passed += 1
            if times:
                self._note_step()
        return passed

    def _note_step(self):
        if self._watches:
            self._lacks_steps = self.pace.why_not(lambda: False, "auto") is not None
        ready, self._ready = self._ready, {}
        if len(self._ends) > 1 and ready:
            self._steps.append((self._ends[-2], ready))
        if self.n_passed == _WARM_UP + _TIMED:
            self.passing = False  # the next step begins with the choice, on all ranks

    def finish(self, passed):
        """Waits for a bucket. The compression's own thread calls this. If Gloo's thread ran Python to end a future, as
        it does for PyTorch's own hooks of Python, the process would abort if Python ended just then."""
        try:
            passed.work.wait(datetime.timedelta(milliseconds=self._timeout_ms))
        except RuntimeError as error:
            why = f"DDP's own all-reduce failed, or took more than {self._timeout_ms} ms: "
            told = reason(self._links[1]) or str(error)
            raise Error(Status.PEER, told if why in told else why + told) from None
        _under_way.discard(passed)
        if self._ends and self.chosen is None:
            self._ends[-1] = time.perf_counter()  # the latest of the step's buckets ends it
        passed.future.set_result(passed.buffer)

    # ---- the choice --------------------------------------------------------------------------------------------

    def undecided(self):
        return not self.passing and self.chosen is None

    def choose(self):
        """Chooses. All ranks call this, between two steps. Sets `chosen` to rank 0's choice: {"codec": None (the
        all-reduce) or a specification, "groups": the group of each tensor, ...}."""
        begin = time.perf_counter()
        self.stop_timing()
        if self._links[0].size == 1:
            self.adopt(
                {"codec": None, "groups": [0] * len(self._tensors), "why": "one rank has nobody to exchange with"}
            )
            return
        costs = (_api.ProfileCodec * len(self.codecs))()
        profile = self._profile(costs)
        rank = self._links[0].rank
        mine = self._decide(profile, time.perf_counter() - begin) if rank == 0 else None
        self.adopt(json.loads(tell(self._links[1], json.dumps(mine).encode(), self._timeout_ms)))
        if rank == 0:
            say(f"gradwire: {self.chosen['why']}")

    def adopt(self, chosen, **more):
        """Goes on with a choice that was made before, or that comes from another rank."""
        if not isinstance(chosen, dict) or "codec" not in chosen:
            raise Error(Status.FRAME_MISMATCH, "auto's choice does not name a codec")
        groups = chosen.get("groups")
        if chosen["codec"] not in (None, *self.codecs):
            known = ", ".join(self.codecs)
            raise Error(Status.FRAME_MISMATCH, f"auto's choice was {chosen['codec']}, and the candidates are {known}")
        n = len(self._tensors)
        if (
            not isinstance(groups, list)
            or [type(g) for g in groups] != [int] * n
            or set(groups) != set(range(len(set(groups))))  # they are numbered without gaps
        ):
            raise Error(Status.FRAME_MISMATCH, f"auto's choice has groups for other tensors than these {n}")
        self.stop_timing()
        self.chosen = {**chosen, **more}
        self.passing = False
        self._verdict_due = chosen["codec"] is not None and "all_reduce_ms" in chosen
        self._ends.clear()

    def codec(self):
        """The codec with which an exchange is made. It is none if the choice is the all-reduce: this step is under way
        already, so the exchange makes it."""
        return self.codecs[self.chosen["codec"] or "none"]

    def stop_timing(self):
        for handle in self._hooks:
            handle.remove()
        self._hooks = []

    def _profile(self, costs):
        n = len(self._tensors)
        layers = (_api.ProfileLayer * n)(*(_api.ProfileLayer(name.encode(), m, 0) for name, m, _ in self._tensors))
        handles = (ctypes.c_void_p * len(self.codecs))(*(codec.handle for codec in self.codecs.values()))
        options = _api.ProbeOptions(
            struct_bytes=ctypes.sizeof(_api.ProbeOptions),
            exchange=self._links[0],
            meeting=self._links[1],
            codecs=handles,
            n_codecs=len(handles),
            layers=layers,
            n_layers=n,
            runs=1,
            most_elements=max(_LEAST_ELEMENTS, sum(m for _, m, _ in self._tensors)),
            timeout_ms=self._timeout_ms,
        )
        link = _api.ProfileLink()
        _library.check(_api.library().gw_probe_measure(None, ctypes.byref(options), ctypes.byref(link), costs))
        forward_ms, backward_ms = self._times()
        for layer, ms in zip(layers, backward_ms):
            layer.backward_ms = ms
        return _api.Profile(
            struct_bytes=ctypes.sizeof(_api.Profile),
            forward_ms=forward_ms,
            layers=layers,
            n_layers=n,
            link=link,
            codecs=costs,
            n_codecs=len(costs),
        )

    def _times(self):
        """Returns medians over the timed steps, in milliseconds: from the end of a step to the first gradient of the
        next, and from each gradient to the one before it in the network. Gradients that came in another order count as
        one."""
        forward, backward = [0.0], [[0.0] * len(self._tensors)]  # a rank that has joined computes nothing
        if self._steps:
            forward, backward = [], []
        for end, ready in self._steps[-_TIMED:]:
            last = min(ready.values())
            forward.append(1e3 * (last - end))
            times = [0.0] * len(self._tensors)
            for i in reversed(range(len(self._tensors))):
                at = max(last, ready.get(i, last))
                times[i], last = 1e3 * (at - last), at
            backward.append(times)
        return max(0.0, statistics.median(forward)), [statistics.median(column) for column in zip(*backward)]

    def _decide(self, profile, seconds):
        """Makes the choice, on rank 0."""
        all_reduce_ms = self._step_ms()
        plans, n = [], len(self._tensors)
        method = _api.MERGE_EXACT if n <= _MOST_EXACT else _api.MERGE_PAPER
        for k, (spec, codec) in enumerate(self.codecs.items()):
            if why_not(codec, self._optimizer):
                continue  # since attach, a schedule has changed the momentum
            if self._lacks_steps and has_momentum(codec):
                continue
            if self._are_defaults and trains_badly(codec, self._parameters, self._optimizer):
                continue  # attach did not know the optimizer
            groups, n_groups, ms = (ctypes.c_uint32 * n)(), ctypes.c_uint32(), ctypes.c_double()
            _library.check(
                _api.library().gw_plan_merge(
                    None,
                    ctypes.byref(profile),
                    k,
                    _api.COMPRESS_BESIDE,
                    method,
                    0,
                    groups,
                    ctypes.byref(n_groups),
                    ctypes.byref(ms),
                )
            )
            plans.append((ms.value, spec, list(groups), n_groups.value))
        exact, best = plans[0], min(plans)  # the first is "none"
        best_ms, spec, groups, n_groups = best if best[0] < _GAIN * exact[0] else exact
        takes = best_ms < _GAIN * all_reduce_ms
        predicted = ", ".join(f"{name} {ms:.1f}" for ms, name, _, _ in plans)
        what = f"{spec}, {n_groups} group{'s' * (n_groups != 1)}" if takes else "DDP's own all-reduce"
        return {
            "codec": spec if takes else None,
            "groups": groups,
            "all_reduce_ms": all_reduce_ms,
            "predicted_ms": {name: ms for ms, name, _, _ in plans},
            "why": f"auto takes {what}. A step takes {all_reduce_ms:.1f} ms with the all-reduce; predicted: {predicted}"
            f". Timed in {_TIMED} steps and measured in {seconds:.1f} s.",
        }

    def _step_ms(self):
        ends = self._ends[-_TIMED - 1 :]
        return 1e3 * statistics.median(b - a for a, b in zip(ends, ends[1:]))

    # ---- afterwards --------------------------------------------------------------------------------------------

    def begin_step(self):
        """Is called before a step of the exchange. After some steps rank 0 says how long they take. If they take longer
        than the all-reduce's, all ranks go back to the all-reduce together."""
        if not self._verdict_due or len(self._ends) < _SETTLE + _TIMED + 1:
            return
        self._verdict_due = False
        mine = json.dumps(self._step_ms()).encode()
        measured_ms = json.loads(tell(self._links[1], mine, self._timeout_ms))
        before_ms = self.chosen["all_reduce_ms"]
        self.chosen["measured_ms"] = measured_ms
        if measured_ms > before_ms:
            before = self.chosen["why"].replace("auto takes", "auto took", 1)
            self.chosen["why"] = (
                f"auto went back to DDP's own all-reduce: steps with {self.chosen['codec']} took {measured_ms:.1f} ms. "
                f"Before that, {before}"
            )
            self.chosen["codec"] = None
            if self._links[0].rank == 0:
                say(f"gradwire: {self.chosen['why']}")

    def end_step(self):
        """Is called after a step of the exchange. From the next step on, buckets may go to the all-reduce."""
        self.passing = self.chosen["codec"] is None
        if self._verdict_due:
            self._ends.append(time.perf_counter())
