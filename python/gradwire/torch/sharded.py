"""FSDP2 reduces gradients within each replica. This averages them over replicas, through fully_shard's all-reduce hook.

fully_shard calls the hook with a unit's gradients, one flat tensor, when they have been reduced and scattered within
the replica. It uses the tensor as soon as the hook returns. So every unit is an exchange of its own, and the hook waits
for it."""
import contextlib
import ctypes
import functools
import math
import threading

import torch
import torch.distributed as dist

from .. import _api
from .._owner import OfOneProcess
from ..errors import Error, Status, Timeout
from .compression import still_open
from .copies import Copy
from .fits import Fit, Pace, check_optimizer, has_momentum, why_not
from .links import check_options, close_links, interrupt, open_links
from .member import Member, factor_of, identity
from .parameters import DTYPES
from .states import FORMAT, pick, to_bytes, to_tensor
from .totals import Totals
from .waits import END_S, as_error, heard, with_name

_MOST_UNITS = 64  # tcp makes at most so many links between the same members
_SEEDS_APART = 0x9E3779B97F4A7C15  # units draw from seeds of their own


_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module")  # torch.compile and checkpoints put these into names


def find_units(model):
    """Returns [(name, module)] of the modules on which fully_shard was called. Names are those without wrappers."""
    plain = lambda name: ".".join(part for part in name.split(".") if part not in _WRAPPERS)
    # The type is asked, because a wrapper passes on what its module has.
    return [(plain(name) or "root", m) for name, m in model.named_modules() if hasattr(type(m), "set_all_reduce_hook")]


def _check_meshes(model, replicas):
    """Raises ValueError if FSDP2 itself works over ranks of `replicas`, by what the parameters say of their mesh."""
    ranks = set(dist.get_process_group_ranks(replicas)) if hasattr(dist, "get_process_group_ranks") else set()
    for name, p in model.named_parameters():
        for at, placement in enumerate(getattr(p, "placements", ())):
            over = ranks.intersection(dist.get_process_group_ranks(p.device_mesh.get_group(at)))
            if len(over) < 2:
                continue
            if placement.is_replicate():
                raise ValueError(
                    f"gradwire: {name} is replicated over the ranks of `replicas` already (HSDP), so PyTorch would "
                    "average its gradient in float first; call fully_shard with the mesh of one replica, "
                    'as in mesh=mesh["shards"]'
                )
            raise ValueError(
                f"gradwire: {name} is sharded over ranks of `replicas`, so these hold different parts of it; "
                "`replicas` is the group of the ranks that hold the same shard, one in each replica"
            )


def _groups(module):
    """Returns FSDP2's own state of a unit. Nothing else says what the functions below ask."""
    state = getattr(module, "_get_fsdp_state", lambda: None)()
    return getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]


def _check_units(model, units):
    """Raises ValueError if a parameter that trains is in no unit: nobody would average its gradient."""
    of_units = [p for _, module in units for group in _groups(module) for p in getattr(group, "fsdp_params", ())]
    # After a forward the whole parameters may stand in the model, in place of the shards.
    known = [q for p in of_units for q in (p.sharded_param, getattr(p, "_unsharded_param", None))]
    reduced = set(map(id, known or (p for _, module in units for p in module.parameters())))
    outside = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in reduced]
    if outside:
        raise ValueError(
            f"gradwire: {outside[0]} is in no unit of fully_shard, or among its ignored_params, so nobody would "
            "average its gradient, and replicas would differ; call fully_shard on the model itself as well, or freeze "
            "the parameter"
        )


def _all_reduces(module):
    """Returns what set_requires_all_reduce said last."""
    return all(getattr(group, "all_reduce_grads", True) for group in _groups(module))


def _n_needed(module):
    """Returns how many elements a unit's gradient has if all parameters that train have got one, or 0."""
    of_unit = [p for group in _groups(module) for p in getattr(group, "fsdp_params", ())]
    return sum(p.padded_sharded_param_size.numel() for p in of_unit if p.sharded_param.requires_grad)


def _check_hooks(units):
    """Raises ValueError if a unit has a hook already, which would be lost. That of a closed compression may go."""
    for name, module in units:
        for hook in (getattr(group, "_all_reduce_hook", None) for group in _groups(module)):
            is_ours = isinstance(hook, functools.partial) and hook.func is _hook
            if hook is not None and not (is_ours and hook.args[0]._is_closed):
                raise ValueError(
                    f"gradwire: {name} has an all-reduce hook already, and FSDP2 takes only one; close the compression "
                    "that is attached, or register no other hook"
                )


def attach_sharded(
    model: torch.nn.Module,
    replicas: dist.ProcessGroup,
    codec: str = "ternary:residual=on",
    *,
    optimizer: torch.optim.Optimizer = None,
    scaler=None,
    transport: str = "tcp",
    nonfinite: str = "nan",
    keys: str = None,
    rendezvous: str = None,
    seed: int = 0,
    timeout: float = 60.0,
    threads: int = 1,
) -> "ShardedCompression":
    """Makes replicas of a model of FSDP2 average their gradients through Gradwire. All ranks call it.

    model: fully_shard was called on it, or on parts that have all parameters which train, with a mesh of one
    dimension: the ranks of one replica.
    replicas: the ranks that hold the same shard as this rank, one in each replica. codec: a specification. skip= takes
    names of units ("root" for the model itself), and not "last". The rest is as in gradwire.torch.attach. With "tcp",
    rank 0 of `replicas` needs an address of its own. So every such group calls with another rendezvous, or with none.

    Raises gradwire.Error; ValueError and TypeError for wrong arguments."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"attach_sharded takes a model of FSDP2, and this is {_api.shown(model)}")
    units = find_units(model)
    if not units:
        raise TypeError(
            "no part of this model takes an all-reduce hook: call fully_shard on it first, in a PyTorch that has it "
            "(2.7); for DistributedDataParallel use gradwire.torch.attach"
        )
    if not isinstance(replicas, dist.ProcessGroup):
        raise TypeError(
            f"replicas is {_api.shown(replicas)}, and must be a process group that this rank is in; of a mesh it is "
            'mesh["replicas"].get_group()'
        )
    _check_hooks(units)
    _check_units(model, units)
    _check_meshes(model, replicas)
    if _api.text("a codec", codec) == b"auto":
        raise ValueError('codec="auto" times DistributedDataParallel\'s all-reduce; name a codec for sharded models')
    if transport == "tcp" and len(units) > _MOST_UNITS:
        raise ValueError(
            f'{len(units)} units are sharded, and transport="tcp" takes {_MOST_UNITS} at most; call fully_shard on '
            'larger parts, or take transport="torch"'
        )
    parsed = _api.Codec(codec)
    check_optimizer([parsed], optimizer, [*model.named_parameters()])
    in_float = [_api.library().gw_codec_leaves_float(parsed.handle, _api.Tensor(b"", 0, 1, last)) for last in (0, 1)]
    if in_float == [False, True]:
        raise ValueError(f"{codec}: a unit of FSDP2 is no last layer; name the units that skip= leaves in float")
    parsed.check_skip([(name, 1, False) for name, _ in units])
    timeout_ms, seed, threads = check_options(transport, nonfinite, timeout, seed, threads, scaler)
    n_elements = sum(p.numel() for p in model.parameters())
    most_bytes = (1 << 20) + dist.get_world_size(replicas) * (8 * n_elements + 4096)
    links, machine_of = open_links(
        transport, replicas, len(units), most_bytes, timeout_ms, rendezvous=rendezvous, keys=keys
    )
    try:
        return ShardedCompression(
            units,
            parsed,
            links,
            machine_of,
            nonfinite=nonfinite,
            optimizer=optimizer,
            scaler=scaler,
            seed=seed,
            timeout_ms=timeout_ms,
            threads=threads,
        )
    except BaseException:
        close_links(links)
        raise


def _hook(compression, unit, output):
    """The hook of a unit. It is no method, so that a copy of the model takes a copy of the compression."""
    try:
        compression.average(unit, output)
    except Exception as error:  # not Ctrl-C: that must not wait for the rest of backward
        _raise_at_the_end(error)
        output.fill_(float("nan"))


def _raise_at_the_end(error):
    """Raises the error when backward ends. If a hook raises, FSDP2 does not end its step: a program that goes on would
    get gradients that nobody averaged, without a word."""

    def end():
        raise error

    queue = torch.autograd.Variable._execution_engine.queue_callback
    try:
        queue(lambda: queue(end))  # behind what other models have queued
    except RuntimeError:  # there is no backward
        raise error from None


class ShardedCompression(OfOneProcess):
    """Averages gradients over replicas, compressed. gradwire.torch.attach_sharded makes it.

    codec: the canonical specification. rank, size: those in the group of replicas."""

    _is_closed = True  # until everything is there

    def __init__(self, units, codec, links, machine_of, *, nonfinite, optimizer, scaler, seed, timeout_ms, threads):
        """links: one for each unit. close() closes them."""
        super().__init__()
        self._names, self._modules = [name for name, _ in units], [module for _, module in units]
        self._kept_back = [None] * len(units)  # what waits for a backward that all-reduces
        self._codec, self.codec = codec, codec.canonical
        self._links, self.rank, self.size = links, links[0].rank, links[0].size
        self._nonfinite, self._seed, self._machine_of = nonfinite, seed, machine_of
        self._optimizer, self._fit = optimizer, Fit()
        self._scaler, self._scale, self._loaded_scale = scaler, None, None
        self._pace, self._n_exchanges, self._drop = Pace(optimizer), 0, -math.inf
        self._options = {"identity": identity(nonfinite, scaler), "timeout_ms": timeout_ms, "threads": threads}
        self._members, self._staging, self._steps = [None] * len(units), [None] * len(units), [0] * len(units)
        self._to_load = [None] * len(units)
        self._totals, self._error = Totals(), None
        self._lock, self._holder, self._closes_late = threading.Lock(), None, False
        for i, (_, module) in enumerate(units):
            module.set_all_reduce_hook(functools.partial(_hook, self, i))
        self._is_closed = False
        still_open.add(self)

    @contextlib.contextmanager
    def _busy(self):
        """Only one call at a time uses the exchanges, and each of them ends at its own deadline."""
        self.check()
        seconds = max(END_S, self._options["timeout_ms"] / 1000)
        if not self._lock.acquire(timeout=seconds):
            raise Timeout(Status.TIMEOUT, f"gradwire: another thread has been in this compression for {seconds:g} s")
        self._holder = threading.get_ident()
        try:
            self.check()
            yield
        finally:
            self._holder = None
            if self._closes_late:
                self._free()
            self._lock.release()

    def average(self, unit, output):
        """What the hook does. output: the unit's flat gradient on this rank. It becomes the average over the
        replicas."""
        with self._busy():
            try:
                self._exchange(unit, output)
            except BaseException as error:  # also Ctrl-C
                if getattr(error, "status", None) == Status.NONFINITE:
                    raise
                self._end(error)
                if isinstance(error, Error):
                    raise self._error from None
                raise

    def _end(self, error):
        """Ends the exchange, and tells the other replicas."""
        if self._error is not None:
            return
        self._error = as_error(error, self._options["timeout_ms"], len(still_open) > 1)
        # If another rank is the cause, the exchange has told all who must know.
        for link in () if self._error.status == Status.PEER else self._links:
            interrupt(link, str(self._error), self._error.status)

    def _exchange(self, unit, output):
        name, needed = self._names[unit], _n_needed(self._modules[unit])
        if output.numel() < needed:  # of those that have none, replicas may not have the same
            raise Error(
                Status.ARGUMENT,
                f"gradwire: {name}'s gradient has {output.numel()} elements, and that of all parameters that train has "
                f"{needed}: FSDP2 leaves out what a backward does not use; freeze what no backward uses, and call "
                "set_reduce_scatter_unused_params(True) for the rest (from PyTorch 2.14 on)",
            )
        if not _all_reduces(self._modules[unit]):  # set_requires_all_reduce(False): this backward adds up only
            before = self._kept_back[unit]
            self._kept_back[unit] = output.clone() if before is None else before.add_(output)
            output.zero_()
            return
        if self._kept_back[unit] is not None:
            output.add_(self._kept_back[unit])
            self._kept_back[unit] = None
        if why := why_not(self._codec, self._optimizer):
            raise Error(Status.ARGUMENT, why)  # a schedule has changed the optimizer's momentum
        # If a unit has a NaN, a program leaves out the step of all.
        was_dropped = lambda: self._n_exchanges - self._drop <= 2 * len(self._names)
        if has_momentum(self._codec) and (why := self._pace.why_not(was_dropped, unit)):
            raise Error(Status.ARGUMENT, why)
        if self.rank == 0:
            self._fit.look(self._codec, (p for m in self._modules for p in m.parameters()), self._optimizer)
        if output.dtype not in DTYPES or not output.is_contiguous():
            raise Error(
                Status.UNSUPPORTED,
                f"gradwire: the gradient of {name} is {output.dtype}, and must be float32, float16 or bfloat16 in one "
                "piece",
            )
        self._follow_scaler()
        floats = output
        if output.dtype != torch.float32 or output.is_cuda:
            floats = self._staged(unit, output)
        member = self._member(unit, output.numel())
        member.begin(self._steps[unit])
        member.submit(1, (ctypes.c_uint32 * 1)(0), (ctypes.c_void_p * 1)(floats.data_ptr()))
        result = heard(member.wait, self._end)
        self._steps[unit] += 1
        self._totals.add(result)
        self._n_exchanges += 1
        if not result.committed:
            self._drop = self._n_exchanges
            if self._nonfinite == "raise":
                rank = result.bad_rank
                raise Error(
                    Status.NONFINITE, f"gradwire: the gradient of {name} on rank {rank} holds a NaN or an infinity"
                )
            output.fill_(float("nan"))
        elif floats is not output:
            output.copy_(floats, non_blocking=output.is_cuda)

    def _follow_scaler(self):
        """Brings the residuals of all units to the GradScaler's factor. No other unit is in an exchange now."""
        scale = factor_of(self._scaler)
        if scale != self._scale:
            for member in filter(None, self._members):
                member.scale(scale / self._scale)
            self._scale = scale

    def _staged(self, unit, output):
        """Returns the gradient as float32 in the host's memory."""
        if self._staging[unit] is None or self._staging[unit].numel() != output.numel():
            self._staging[unit] = torch.empty(
                output.numel(), dtype=torch.float32, device="cpu", pin_memory=output.is_cuda
            )
        self._staging[unit].copy_(output.view(-1), non_blocking=output.is_cuda)
        if output.is_cuda:
            torch.cuda.current_stream(output.device).synchronize()
        return self._staging[unit]

    def _member(self, unit, n_elements):
        """Returns the member of the unit's exchange. It is made when the first gradient is here, because only then its
        length is known."""
        member = self._members[unit]
        if member is None:
            seed = (self._seed + unit * _SEEDS_APART) % 2**64
            tensors = [(self._names[unit], n_elements, False)]
            member = self._members[unit] = Member(
                self._links[unit],
                tensors,
                [0],
                self._codec,
                self._machine_of,
                seed=seed,
                first_owner=unit % self.size,  # else rank 0 would own all short units
                **self._options,
            )
            if self._to_load[unit] is not None and any(self._to_load[unit]):  # else it had had no gradient
                member.load(self._to_load[unit])
                if self._scale != self._loaded_scale:
                    member.scale(self._scale / self._loaded_scale)
                self._to_load[unit] = None
        name, before, _ = member.tensors[0]
        if before != n_elements:
            raise Error(
                Status.ARGUMENT,
                f"gradwire: {name}'s gradient had {before} elements, and now has {n_elements}; if parameters are "
                "frozen or thawed, close this compression and attach another",
            )
        return member

    def check(self):
        """Raises the error that ended the exchange, if one did."""
        self.check_process()
        if self._error is not None:
            raise type(self._error)(self._error.status, str(self._error))
        if self._is_closed:
            raise Error(Status.ORDER, "gradwire: this compression is closed")

    def stats(self) -> dict:
        """Like Compression.stats(). A step here is a step of one unit. So one backward makes as many steps as there are
        units."""
        return self._totals.stats()

    def log(self, writer, step: int, prefix: str = "gradwire/") -> None:
        """Like Compression.log(), for the last unit that was averaged."""
        self._totals.log(writer, step, prefix)

    def state_dict(self) -> dict:
        """Returns what this rank keeps between steps: plain values and uint8 tensors. Every rank saves its own."""
        with self._busy():
            if any(kept is not None for kept in self._kept_back):
                raise Error(
                    Status.ORDER,
                    "gradwire: gradients wait for a backward that averages them (set_requires_all_reduce); call this "
                    "after that backward",
                )
            return {
                "format": FORMAT,
                "codec": self.codec,
                "names": self._names,
                "rank": self.rank,
                "size": self.size,
                "seed": self._seed,
                "step": list(self._steps),
                "scale": None if self._scaler is None else self._scale,
                "residuals": [to_tensor(self._kept(unit)) for unit in range(len(self._names))],
            }

    def _kept(self, unit):
        loaded = self._to_load[unit]
        if loaded is None:
            return self._members[unit].save() if self._members[unit] else b""
        if len(loaded) > 1 or (loaded[0] and self._scale != self._loaded_scale):
            name = self._names[unit]
            raise Error(Status.ORDER, f"gradwire: {name} has had no gradient yet, and its residual comes with one")
        return loaded[0]

    def load_state_dict(self, state) -> None:
        """Like Compression.load_state_dict(). The residuals of a unit are checked at its first gradient, so this raises
        gradwire.Error if a unit has had one."""
        with self._busy():
            if any(self._members):
                raise Error(
                    Status.ORDER,
                    "gradwire: gradients have been averaged already; load a state before the first backward",
                )
            checks = [("codec", self.codec, "codec"), ("seed", self._seed, "seed"), ("units", self._names, "names")]
            states = pick(state, self.rank, self.size, checks)
            self._steps = list(states[0]["step"])
            self._scale = self._loaded_scale = states[0]["scale"] or 1.0  # None: there was no scaler
            self._to_load = [[to_bytes(s["residuals"][u]) for s in states] for u in range(len(self._names))]

    def close(self) -> None:
        """Ends the exchange. The other replicas hear of it: at once if a step is under way, else when they begin
        another step. A second call does nothing."""
        # A forked process does not have the threads, and must not close the links.
        if self._is_closed or not self.is_of_this_process():
            return
        self._is_closed = True
        still_open.discard(self)
        if self._holder == threading.get_ident():  # a signal's handler calls this within a step, which then ends
            self._closes_late = True
            for link in self._links:
                interrupt(link, "it closed in the middle of a step")
            return
        if not self._lock.acquire(timeout=0.2):
            for link in self._links:
                interrupt(link, "it closed in the middle of a step")
            if not self._lock.acquire(timeout=END_S):  # a thread may be in the links, so they stay
                raise Timeout(Status.TIMEOUT, f"gradwire: a step has not ended in {END_S:g} s after its links closed")
        self._free()
        self._lock.release()

    def _free(self):
        self._pace.end()
        for member in filter(None, self._members):
            member.close()
        close_links(self._links)

    def __del__(self):
        self.close()

    def __reduce__(self):
        return Copy, ()

    def end(self, error):
        """Like Compression.end(): tells the other replicas."""
        is_open = not self._is_closed and self.is_of_this_process()
        if isinstance(error, (Exception, KeyboardInterrupt)) and self._error is None and is_open:
            for link in self._links:
                interrupt(link, f"its program ended with {with_name(error)}")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        self.end(error)
        self.close()
