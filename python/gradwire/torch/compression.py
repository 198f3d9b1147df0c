"""Connects DistributedDataParallel's buckets with the exchange. It knows the place of each tensor in a bucket, has the
thread that owns the exchange, and saves the state between runs.

DDP calls the hook for every bucket, on a thread of its own. The hook only puts (tensors, addresses, future) into a
queue. The thread takes them out, hands them to the exchange, waits for it without Python's lock, and completes the
futures: then the buckets hold the averages. A step ends when every parameter has been handed over."""
import atexit
import contextlib
import copy
import queue
import sys
import threading
import weakref

import torch

from .._owner import OfOneProcess
from ..errors import Error, Status, Timeout
from .buckets import Bucket, Layout, Passed
from .copies import Copy
from .fits import Fit, Pace, has_momentum, why_not
from .links import close_links, interrupt
from .member import Member, factor_of, identity
from .notices import say
from .parameters import DTYPES
from .states import FORMAT, pick, to_bytes, to_tensor
from .totals import Totals
from .waits import END_S, as_error, join_at_end, with_name

_GROUP_BYTES = 4 << 20  # parameters that travel together, as float32


def _groups(tensors, group_bytes):
    """Returns the group of each tensor. A group holds neighbours in the order in which backward gives gradients, the
    last tensor first."""
    group_of, group, n_bytes = [0] * len(tensors), 0, 0
    for i in reversed(range(len(tensors))):
        if n_bytes and n_bytes + 4 * tensors[i][1] > group_bytes:
            group, n_bytes = group + 1, 0
        group_of[i] = group
        n_bytes += 4 * tensors[i][1]
    return group_of


def _failed(error):
    future = torch.futures.Future()
    future.set_exception(error)
    return future


class Compression(OfOneProcess):
    """Averages gradients over a process group, compressed. gradwire.torch.attach makes it. It is the hook's state.

    codec: the canonical specification; "auto" until the choice is made, and "none" if that is DDP's own all-reduce.
    choice: None, or what codec="auto" has chosen: {"codec" (None: DDP's own all-reduce), "groups" (of each parameter),
    "why", "all_reduce_ms", "predicted_ms", "measured_ms"}. rank, size: those in the group."""

    def __init__(
        self,
        parameters,
        tensors,
        codec,
        auto,
        links,
        machine_of,
        *,
        nonfinite,
        optimizer,
        scaler,
        seed,
        timeout_ms,
        threads,
        ddp,
    ):
        """tensors: what parameters.declare() returned for the parameters. links: close() closes them. codec: an
        _api.Codec; or it is None, and auto is an auto.Auto. ddp: a weak reference, because DDP keeps this object."""
        super().__init__()
        self._parameters = parameters  # kept, so that no other object gets their identities
        self._number_of = {id(p): i for i, p in enumerate(parameters)}
        self._tensors, self._ddp = tensors, ddp
        self._nonfinite, self._scaler, self._scale = nonfinite, scaler, None
        self._optimizer, self._fit = optimizer, Fit()
        self._pace, self._was_dropped = auto.pace if auto else Pace(optimizer), False
        self._seed = seed
        self._links, self.rank, self.size = links, links[0].rank, links[0].size
        said, self._seconds = identity(nonfinite, scaler), timeout_ms / 1000
        self._options = {"identity": said, "seed": seed, "timeout_ms": timeout_ms, "threads": threads}
        self._machine_of = machine_of
        self._layouts = {}
        self._queue = queue.SimpleQueue()
        self._step, self._totals, self._error = 0, Totals(), None
        self._idle = threading.Condition()
        self._n_buckets_open = 0
        self._auto, self._member, self._is_closed = auto, None, False
        if auto is None:
            self._make_member(codec, _groups(self._tensors, _GROUP_BYTES))
        thread = threading.Thread(target=_serve, args=(weakref.ref(self), self._queue), name="gradwire", daemon=True)
        try:
            thread.start()
        except BaseException:
            if self._member:
                self._member.close()  # before the links
            raise
        self._thread = thread
        _threads.add(thread)
        still_open.add(self)

    def _make_member(self, codec, group_of):
        self._member = Member(self._links[0], self._tensors, group_of, codec, self._machine_of, **self._options)
        self._codec, self._canonical = codec, codec.canonical

    # ---- the hook's side

    def submit(self, bucket) -> torch.futures.Future:
        """Takes a bucket (torch.distributed.GradBucket). The future gives the same buffer with the averages. Errors
        come through the future, too: after an exception in a hook, DDP's next backward fails in DDP itself."""
        try:
            self.check()
        except Error as error:
            return _failed(error)
        try:
            ddp = self._ddp()
            joins = getattr(getattr(ddp, "_join_config", None), "enable", False)
            if joins and not getattr(ddp, "_divide_by_initial_world_size", True):
                raise Error(
                    Status.UNSUPPORTED,
                    "join(divide_by_initial_world_size=False) asks for averages over the ranks that still train, and "
                    "Gradwire's are over all ranks; leave it out",
                )
            buffer = bucket.buffer()
            layout = self._layout(bucket, buffer)
            if self._auto and self._auto.passing:
                item = self._auto.all_reduce(bucket)
            else:
                item = Bucket(layout, buffer, bucket.is_last(), factor_of(self._scaler))
                item.bring()
        except BaseException as error:  # also Ctrl-C
            self._end(error)
            return _failed(self._error)
        with self._idle:
            self._n_buckets_open += 1
        self._queue.put(item)
        if self._thread is None:  # close() came meanwhile: a handler of a signal, or another thread, called it
            self._refuse_the_rest()
        return item.future

    def _refuse_the_rest(self):
        """Ends the buckets in the queue, which the thread may not take out any more."""
        rest = []
        with contextlib.suppress(queue.Empty):
            while True:
                rest.append(self._queue.get_nowait())
        self._queue.put(None)  # in case the thread's own one was among them
        error = self._error or Error(Status.ORDER, "gradwire: this compression is closed")
        for item in rest:
            if item not in (None, _ENDED):
                item.future.set_exception(error)
                self._settled(1)

    def _layout(self, bucket, buffer):
        parameters = bucket.parameters()
        key = (buffer.dtype, buffer.device, tuple(map(id, parameters)))
        layout = self._layouts.get(key)
        if layout is None:
            if buffer.is_sparse or buffer.dtype not in DTYPES:
                what = "sparse" if buffer.is_sparse else str(buffer.dtype)
                raise Error(Status.UNSUPPORTED, f"gradients are {what}; Gradwire takes float32, float16 and bfloat16")
            unknown = [str(list(p.shape)) for p in parameters if id(p) not in self._number_of]
            if unknown:
                raise Error(
                    Status.ARGUMENT,
                    f"a bucket holds {len(unknown)} parameters that DDP did not reduce when gradwire.torch.attach was "
                    f"called, of shape {', '.join(unknown[:8])}{', ...' * (len(unknown) > 8)}. Does another model "
                    "use this compression? Each needs its own attach",
                )
            numbers = [self._number_of[id(p)] for p in parameters]
            if sum(known.n for known in self._layouts.values()) >= len(self._tensors):
                self._layouts.clear()  # DDP has rebuilt its buckets
            sizes = [self._tensors[i][1] for i in numbers]
            layout = self._layouts[key] = Layout(numbers, sizes, buffer, bucket.gradients())
        return layout

    # ---- the thread's side

    def _run_step(self, first):
        """Takes the buckets of a step. `first` is the first of them. Returns them, and the step's result."""
        items, missing, item = [], set(range(len(self._tensors))), first
        try:
            if self._auto:
                if self._auto.undecided():
                    self._auto.choose()
                if self._member is None:
                    self._make_member(self._auto.codec(), self._auto.chosen["groups"])
                self._auto.begin_step()
            if self.rank == 0:
                self._fit.look(self._codec, self._parameters, self._optimizer)
            if why := why_not(self._codec, self._optimizer):
                raise Error(Status.ARGUMENT, why)  # a schedule has changed the optimizer's momentum
            # A GradScaler leaves out a step and lowers its factor. A rank that has joined hands over zeros.
            is_lower = self._scale is not None and first.scale < self._scale
            excuse = lambda: self._was_dropped or is_lower or first.is_zero()
            if has_momentum(self._codec) and (why := self._pace.why_not(excuse)):
                raise Error(Status.ARGUMENT, why)
            if self._scale is not None and first.scale != self._scale:
                self._member.scale(first.scale / self._scale)
            self._scale = first.scale
            self._member.begin(self._step)
            while True:
                items.append(item)
                if item.copied is not None:
                    item.copied.synchronize()
                self._member.submit(item.layout.n, item.layout.numbers, item.layout.addresses(item.floats().data_ptr()))
                missing.difference_update(item.layout.numbers)
                if not missing:
                    break
                if item.is_last:
                    raise Error(
                        Status.ARGUMENT,
                        f"DDP has handed over all of its buckets, and none holds {self._names(missing)}",
                    )
                item = self._next(missing)
                if item is None:  # close() in the middle of a step
                    self._queue.put(None)  # the thread's loop has to see the end, too
                    raise Error(Status.CLOSED, "this rank closed its compression in the middle of a step")
                if item is _ENDED:
                    raise self._error
            return items, self._member.wait()
        except Exception as error:  # even after a defect, backward must not wait for ever
            items = items or [first]
            # If another rank is the cause, the exchange has told all who must know. Some may still end an earlier step.
            told = self._member is not None and isinstance(error, Error) and error.status == Status.PEER
            self._end(error, items, told)
            return items, None

    def _next(self, missing):
        """Returns the next bucket of a step."""
        try:
            return self._queue.get(timeout=self._seconds)
        except queue.Empty:
            raise Timeout(
                Status.TIMEOUT,
                f"backward has handed over no gradient of {self._names(missing)} within {self._options['timeout_ms']} "
                "ms after others; if a rank does not use them, DDP needs find_unused_parameters=True",
            ) from None

    def _names(self, numbers):
        names = [self._tensors[i][0] for i in sorted(numbers)]
        return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")

    def _serve_step(self, first):
        items, result = [first], None
        try:
            if self._error is not None:
                first.future.set_exception(self._error)
            elif isinstance(first, Passed):
                self._auto.finish(first)
            else:
                items, result = self._run_step(first)
            if result is not None:
                self._finish(items, result)
        except BaseException as error:
            self._end(error, [item for item in items if not item.future.done()])
        self._settled(len(items))

    def _finish(self, items, result):
        self._step += 1
        self._totals.add(result)
        self._was_dropped = not result.committed
        if self._auto:
            self._auto.end_step()
        bad = None if result.committed else self._refusal(result)
        for item in items:
            if bad is None:
                item.finish()
            elif self._nonfinite == "raise":
                item.future.set_exception(bad)
            else:
                item.floats().fill_(float("nan"))
                item.finish()

    def _refusal(self, result):
        name = self._tensors[result.bad_tensor][0]
        return Error(
            Status.NONFINITE, f"gradwire: the gradient of {name} on rank {result.bad_rank} holds a NaN or an infinity"
        )

    def _end(self, error, items=(), told=False):
        """Ends the exchange: no step follows. All that wait hear why, also on the other ranks, unless they were told.
        Any thread may call this."""
        if self._error is None:
            self._error = as_error(error, self._options["timeout_ms"], len(still_open) > 1)
            self._queue.put(_ENDED)  # the thread may wait for the rest of a step
            for link in () if told else self._links:
                interrupt(link, str(self._error), self._error.status)
        for item in items:
            item.future.set_exception(self._error)

    def _settled(self, n_items):
        with self._idle:
            self._n_buckets_open -= n_items
            self._idle.notify_all()

    # ---- for the program

    def check(self):
        """Raises the error that ended the exchange, if one did."""
        self.check_process()
        if self._error is not None:
            raise type(self._error)(self._error.status, str(self._error))
        if self._is_closed:
            raise Error(Status.ORDER, "gradwire: this compression is closed")

    @contextlib.contextmanager
    def _between_steps(self):
        """Waits until no step is under way. If another thread begins one meanwhile, its hook waits."""
        self.check()
        with self._idle:
            is_idle = self._idle.wait_for(lambda: self._n_buckets_open == 0 or self._error is not None, self._seconds)
            self.check()
            if not is_idle:
                raise Timeout(
                    Status.TIMEOUT,
                    f"gradwire: a step has been under way for {self._seconds:g} s: call this between steps; if "
                    "backward raised, the step never ends",
                )
            yield

    @property
    def codec(self):
        if self._auto:
            return self._auto.codec().canonical if self._auto.chosen else "auto"
        return self._canonical

    @property
    def choice(self):
        return copy.deepcopy(self._auto.chosen) if self._auto and self._auto.chosen else None

    def stats(self) -> dict:
        """Returns sums over this rank's steps: steps, dropped_steps, bytes_up, bytes_down, dense_bytes (float32 by the
        same route), times_smaller_up, times_smaller_down (None: nothing went that way), encode_seconds, wait_seconds
        (how long the thread waited after the last gradient). With codec="auto" also all_reduce_steps: how many steps
        DDP's own all-reduce made. These are in no other number."""
        sums = self._totals.stats()
        if self._auto:
            sums["all_reduce_steps"] = self._auto.n_passed
        return sums

    def log(self, writer, step: int, prefix: str = "gradwire/") -> None:
        """Writes to TensorBoard what the last step took: the scalars bytes_up, bytes_down, dense_bytes,
        times_smaller_up, times_smaller_down, encode_seconds and wait_seconds, and dropped_steps so far. writer: a
        SummaryWriter of torch.utils.tensorboard, or any object with its add_scalar(tag, value, step). Call this on one
        rank, after backward."""
        self._totals.log(writer, step, prefix)

    def state_dict(self) -> dict:
        """Returns what this rank keeps between steps: plain values and one uint8 tensor. Every rank saves its own."""
        with self._between_steps():
            state = self._member.save() if self._member and not (self._auto and self._auto.passing) else b""
            return {
                "format": FORMAT,
                "codec": self.codec,
                "choice": {"codec": self.choice["codec"], "groups": self.choice["groups"]} if self.choice else None,
                "names": [name for name, _, _ in self._tensors],
                "rank": self.rank,
                "size": self.size,
                "seed": self._seed,
                "step": self._step,
                "scale": None if self._scaler is None else self._scale,
                "residuals": to_tensor(state),
            }

    def load_state_dict(self, state) -> None:
        """Goes on where state_dict() was taken. `state`: this rank's own dictionary. If the state is of a job of
        another size, it is a list of the dictionaries of all ranks of that job. Every rank then begins with the mean
        residual. Call this before the first step, on all ranks."""
        with self._between_steps():
            self._load(state)

    def _load(self, state):
        checks = [("seed", self._seed, "seed"), ("parameters", [name for name, _, _ in self._tensors], "names")]
        if self.codec != "auto":
            checks.insert(0, ("codec", self.codec, "codec"))
        states = pick(state, self.rank, self.size, checks)
        first = states[0]
        if self.codec == "auto" and first["codec"] != "auto" and not first.get("choice"):
            raise ValueError(f"the state was saved with the codec {first['codec']}; give attach that codec, not auto")
        residuals, is_new = [to_bytes(s["residuals"]) for s in states], False
        if self._auto and first.get("choice") and self._auto.chosen is None:
            self._auto.adopt(first["choice"], why="as in the state that was loaded")
            self._auto.passing = first["choice"]["codec"] is None
            if not self._auto.passing:
                self._make_member(self._auto.codec(), self._auto.chosen["groups"])
                is_new = True  # if this state is refused now, nothing may go on with its choice alone
        if self._member:
            if not is_new:
                self._member.check_states(residuals)
            try:
                self._member.load(residuals)
            except Error as error:  # the other ranks may have loaded theirs
                self._end(error)
                raise
        self._step, self._scale = first["step"], first["scale"] or 1.0  # None: there was no scaler

    def close(self) -> None:
        """Ends the exchange. The other ranks hear of it: at once if a step is under way, else when they begin another
        step. A second call does nothing."""
        thread, self._thread = self._thread, None
        # A forked process does not have the thread, and must not close the links.
        if thread is None or not self.is_of_this_process():
            return
        still_open.discard(self)
        self._queue.put(None)
        with self._idle:
            under_way = self._n_buckets_open > 0 and self._error is None
        if under_way and thread is not threading.current_thread():
            thread.join(timeout=0.2)
            if thread.is_alive():
                for link in self._links:
                    interrupt(link, "it closed in the middle of a step")
        self._is_closed = True
        if thread is not threading.current_thread():
            seconds = max(END_S, self._seconds)
            thread.join(seconds)
            if thread.is_alive():  # it may be in the links, so they stay
                raise Timeout(
                    Status.TIMEOUT, f"gradwire: the thread of this compression has not ended in {seconds:g} s"
                )
        if self._auto:
            self._auto.stop_timing()
        self._pace.end()
        if self._member:
            self._member.close()
        close_links(self._links)

    def __del__(self):
        if getattr(self, "_thread", None):
            self.close()

    def __reduce__(self):
        return Copy, ()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        self.end(error)
        self.close()

    def end(self, error):
        """If error is an exception that ended this rank's program, this tells the other ranks. Else they would
        wait."""
        is_open = not self._is_closed and self.is_of_this_process()
        if isinstance(error, (Exception, KeyboardInterrupt)) and self._error is None and is_open:
            self._end(Error(Status.SYSTEM, f"its program ended with {with_name(error)}"))


still_open = weakref.WeakSet()  # these are closed when Python ends
_threads = weakref.WeakSet()  # those of all compressions
_ENDED = object()  # in the queue: an error has ended the exchange


def _serve(reference, items):
    """The thread's function. It holds no reference between steps, so that Python can delete a compression that nobody
    uses."""
    for first in iter(items.get, None):
        compression = reference()
        if compression is None:
            return
        if first is not _ENDED:
            compression._serve_step(first)
        del compression, first


@atexit.register
def _close_all():
    # In sys.last_value Python keeps the error that ended the program. At a prompt, it is the user's last error.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for compression in list(still_open):
        try:
            compression.end(error)
            compression.close()
        except Error as failure:
            say(failure)
    # If the program dropped a compression while a step ended, its own thread closes it. If Python ended meanwhile, the
    # thread would die in the middle, or the process would abort.
    join_at_end(list(_threads))
