"""Connects DistributedDataParallel's buckets with the exchange. It knows the place of each tensor in a bucket, has the
thread that owns the exchange, and saves the state between runs.

DDP calls the hook for every bucket, on a thread of its own. The hook only puts (tensors, addresses, future) into a
queue. The thread takes them out, hands them to the exchange, waits for it without Python's lock, and completes the
futures: then the buckets hold the averages. A step ends when every parameter has been handed over."""
import atexit
import ctypes
import os
import queue
import sys
import threading
import weakref

import torch

from .. import _api
from ..errors import Error, Status, Timeout
from .group_link import join_at_end
from .links import interrupt, operations
from .member import Member
from .states import FORMAT, pick, to_tensor
from .totals import Totals

_GROUP_BYTES = 4 << 20  # parameters that travel together, as float32
DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # what gradients may be


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


def declare(parameters):
    """Returns [(name, elements, last_layer)]. The last layer is the parameters of the last module."""
    last = parameters[-1][0].rpartition(".")[0]
    return [(name, p.numel(), name.rpartition(".")[0] == last) for name, p in parameters]


def check_skip(spec, tensors, kind="parameter"):
    """Raises if a name in skip= fits no parameter. Such a name is a mistake, and without an error a layer would be
    compressed against the user's wish. kind: what the tensors are called."""
    unmatched = _api.Codec(spec).unmatched(tensors)
    if unmatched:
        names = [name for name, _, _ in tensors]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise ValueError(
            f"{spec}: skip={unmatched[0]} fits no {kind} of this model ({shown}); several names are joined by +"
        )


class _Layout:
    """Which tensors a bucket holds, and where they lie. 16-bit floats are widened into `staging`, float32."""

    def __init__(self, numbers, buffer, gradients):
        self.n, self.numbers, self.offsets = len(numbers), (ctypes.c_uint32 * len(numbers))(*numbers), []
        for gradient in gradients:
            offset = gradient.storage_offset() - buffer.storage_offset()
            if gradient.storage().data_ptr() != buffer.storage().data_ptr() or not gradient.is_contiguous():
                raise Error(Status.ARGUMENT, "a gradient does not lie in one piece in its bucket")
            self.offsets.append(offset)
        # The exchange takes float32 in the host's memory.
        self.staging = None
        if buffer.dtype != torch.float32 or buffer.is_cuda:
            self.staging = torch.empty(buffer.numel(), dtype=torch.float32, pin_memory=buffer.is_cuda)
        self._at, self._addresses = None, None

    def addresses(self, base):
        if base != self._at:
            self._at = base
            self._addresses = (ctypes.c_void_p * self.n)(*(base + 4 * offset for offset in self.offsets))
        return self._addresses


class _Bucket:
    """A bucket on its way from the hook to the thread and back."""

    def __init__(self, layout, buffer, scale):
        self.layout, self.buffer, self.scale = layout, buffer, scale
        self.copied = None
        devices = [buffer.device] if buffer.is_cuda else None
        self.future = torch.futures.Future(devices=devices) if devices else torch.futures.Future()

    def floats(self):
        return self.buffer if self.layout.staging is None else self.layout.staging

    def bring(self):
        """Copies the bucket to where the exchange reads it. The hook's thread calls this. With CUDA, the copy is made
        in the thread's stream."""
        if self.layout.staging is not None:
            self.layout.staging.copy_(self.buffer, non_blocking=self.buffer.is_cuda)
            if self.buffer.is_cuda:
                self.copied = torch.cuda.Event()
                self.copied.record()

    def finish(self):
        """Is called when the averages stand in floats()."""
        if self.layout.staging is not None:
            self.buffer.copy_(self.layout.staging)
        self.future.set_result(self.buffer)


class Compression:
    """Averages gradients over a process group, compressed. gradwire.torch.attach makes it. It is the hook's state.

    codec: the canonical specification; "auto" until the choice is made, and "none" if that is DDP's own all-reduce.
    choice: None, or what codec="auto" has chosen: {"codec" (None: DDP's own all-reduce), "groups" (of each parameter),
    "why", "all_reduce_ms", "predicted_ms", "measured_ms"}. rank, size: those in the group."""

    def __init__(self, parameters, codec, auto, links, machine_of, *, nonfinite, scaler, seed, timeout_ms, threads):
        """links: close() closes them. codec: an _api.Codec; or it is None, and auto is an auto.Auto."""
        self._parameters = parameters  # kept, so that no other object gets their identities
        self._number_of = {id(p): i for i, (_, p) in enumerate(parameters)}
        self._tensors = declare(parameters)
        self._nonfinite, self._scaler, self._scale = nonfinite, scaler, None
        self._seed = seed
        self._links, self.rank, self.size = links, links[0].rank, links[0].size
        self._options = {"seed": seed, "timeout_ms": timeout_ms, "threads": threads}
        self._machine_of = machine_of
        self._layouts = {}
        self._queue = queue.SimpleQueue()
        self._step, self._totals, self._error = 0, Totals(), None
        self._idle = threading.Condition()
        self._n_buckets_open = 0
        self._auto, self._member, self._is_closed = auto, None, False
        self._process = os.getpid()
        if auto is None:
            self._make_member(codec, _groups(self._tensors, _GROUP_BYTES))
        self._thread = threading.Thread(target=_serve, args=(weakref.ref(self), self._queue), name="gradwire")
        self._thread.daemon = True
        self._thread.start()
        _threads.add(self._thread)
        still_open.add(self)

    def _make_member(self, codec, group_of):
        self._member = Member(self._links[0], self._tensors, group_of, codec, self._machine_of, **self._options)
        self._canonical = codec.canonical

    # ---- the hook's side

    def submit(self, bucket) -> torch.futures.Future:
        """Takes a bucket (torch.distributed.GradBucket). The future gives the same buffer with the averages. Errors
        come through the future, too: after an exception in a hook, DDP's next backward fails in DDP itself."""
        try:
            self.check()
        except Error as error:
            return _failed(error)
        try:
            if self._auto and self._auto.passing:
                return self._auto.all_reduce(bucket)
            buffer = bucket.buffer()
            layout = self._layout(bucket, buffer)
            item = _Bucket(layout, buffer, None if self._scaler is None else float(self._scaler.get_scale()))
            item.bring()
        except Exception as error:
            self._end(error)
            return _failed(self._error)
        with self._idle:
            self._n_buckets_open += 1
        self._queue.put(item)
        return item.future

    def _layout(self, bucket, buffer):
        parameters = bucket.parameters()
        key = (buffer.dtype, buffer.device, tuple(map(id, parameters)))
        layout = self._layouts.get(key)
        if layout is None:
            if buffer.is_sparse or buffer.dtype not in DTYPES:
                what = "sparse" if buffer.is_sparse else str(buffer.dtype)
                raise Error(Status.UNSUPPORTED, f"gradients are {what}; Gradwire takes float32, float16 and bfloat16")
            unknown = [i for i, p in enumerate(parameters) if id(p) not in self._number_of]
            if unknown:
                raise Error(
                    Status.ARGUMENT,
                    f"{len(unknown)} parameters of a bucket were not there when gradwire.torch.attach was called",
                )
            numbers = [self._number_of[id(p)] for p in parameters]
            if sum(known.n for known in self._layouts.values()) >= len(self._tensors):
                self._layouts.clear()  # DDP has rebuilt its buckets
            layout = self._layouts[key] = _Layout(numbers, buffer, bucket.gradients())
        return layout

    # ---- the thread's side

    def _run_step(self, first):
        """Takes the buckets of a step. `first` is the first of them. Returns them, and the step's result."""
        items, n_tensors, item = [], 0, first
        try:
            if self._auto:
                if self._auto.undecided():
                    self._auto.choose()
                if self._member is None:
                    self._make_member(self._auto.codec(), self._auto.chosen["groups"])
                self._auto.begin_step()
            if first.scale is not None:
                if self._scale is not None and first.scale != self._scale:
                    self._member.scale(first.scale / self._scale)
                self._scale = first.scale
            self._member.begin(self._step)
            while True:
                items.append(item)
                if item.copied is not None:
                    item.copied.synchronize()
                self._member.submit(item.layout.n, item.layout.numbers, item.layout.addresses(item.floats().data_ptr()))
                n_tensors += item.layout.n
                if n_tensors == len(self._tensors):
                    break
                item = self._queue.get()
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

    def _serve_step(self, first):
        items, result = [first], None
        try:
            if self._error is not None:
                first.future.set_exception(self._error)
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
            status, why = getattr(error, "status", Status.SYSTEM), str(error)
            if not isinstance(error, Error):
                why = f"{type(error).__name__}: {why}"
            self._error = Error(status, f"gradwire: {why}" if "gradwire" not in why else why)
            self._queue.put(_ENDED)  # the thread may wait for the rest of a step
            for link in () if told else self._links:
                interrupt(link, why, status)
        for item in items:
            item.future.set_exception(self._error)

    def _settled(self, n_items):
        with self._idle:
            self._n_buckets_open -= n_items
            self._idle.notify_all()

    # ---- for the program

    def check(self):
        """Raises the error that ended the exchange, if one did."""
        if self._error is not None:
            raise Error(self._error.status, str(self._error))
        if self._is_closed:
            raise Error(Status.ORDER, "gradwire: this compression is closed")
        if os.getpid() != self._process:
            raise Error(Status.ORDER, "gradwire: this compression belongs to the process that forked this one")

    def _wait_until_idle(self):
        self.check()
        seconds = self._options["timeout_ms"] / 1000
        with self._idle:
            is_idle = self._idle.wait_for(lambda: self._n_buckets_open == 0 or self._error is not None, seconds)
        self.check()
        if not is_idle:
            raise Timeout(
                Status.TIMEOUT,
                f"gradwire: a step has been under way for {seconds:g} s: call this between steps; if backward raised, "
                "the step never ends",
            )

    @property
    def codec(self):
        if self._auto:
            return self._auto.codec().canonical if self._auto.chosen else "auto"
        return self._canonical

    @property
    def choice(self):
        return dict(self._auto.chosen) if self._auto and self._auto.chosen else None

    def stats(self) -> dict:
        """Returns sums over this rank's steps: steps, dropped_steps, bytes_up, bytes_down, dense_bytes (float32 by the
        same route), times_smaller_up, times_smaller_down, encode_seconds, wait_seconds (how long the thread waited
        after the last gradient). With codec="auto" also all_reduce_steps: how many steps DDP's own all-reduce made.
        These are in no other number."""
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
        self._wait_until_idle()
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
            "scale": self._scale,
            "residuals": to_tensor(state),
        }

    def load_state_dict(self, state) -> None:
        """Goes on where state_dict() was taken. `state`: this rank's own dictionary. If the state is of a job of
        another size, it is a list of the dictionaries of all ranks of that job. Every rank then begins with the mean
        residual. Call this before the first step, on all ranks."""
        self._wait_until_idle()
        checks = [("seed", self._seed, "seed"), ("parameters", [name for name, _, _ in self._tensors], "names")]
        if self.codec != "auto":
            checks.insert(0, ("codec", self.codec, "codec"))
        states = pick(state, self.rank, self.size, checks)
        first = states[0]
        residuals = [s["residuals"].numpy().tobytes() for s in states]
        if self._auto and first.get("choice") and self._auto.chosen is None:
            self._auto.adopt(first["choice"], why="as in the state that was loaded")
            self._auto.passing = first["choice"]["codec"] is None
            if not self._auto.passing:
                self._make_member(self._auto.codec(), self._auto.chosen["groups"])
        if self._member:
            self._member.check_states(residuals)
            try:
                self._member.load(residuals)
            except Error as error:  # some tensors may have their residuals already
                self._end(error)
                raise
        self._step, self._scale = first["step"], first["scale"]

    def close(self) -> None:
        """Ends the exchange. The other ranks hear of it: at once if a step is under way, else when they begin another
        step. A second call does nothing."""
        thread, self._thread = self._thread, None
        # A forked process does not have the thread, and must not close the links.
        if thread is None or os.getpid() != self._process:
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
        if thread is not threading.current_thread():
            thread.join()
        self._is_closed = True
        if self._auto:
            self._auto.stop_timing()
        if self._member:
            self._member.leave()
            self._member.close()
        for link in self._links:
            operations(link).destroy(link.self)

    def __del__(self):
        if getattr(self, "_thread", None):
            self.close()

    def __reduce__(self):
        raise TypeError("a compression cannot be copied or pickled; keep its state_dict()")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        self.end(error)
        self.close()

    def end(self, error):
        """If error is an exception that ended this rank's program, this tells the other ranks. Else they would
        wait."""
        is_open = not self._is_closed and self._process == os.getpid()
        if isinstance(error, Exception) and self._error is None and is_open:
            self._end(Error(Status.SYSTEM, f"its program ended with {type(error).__name__}: {error}"))


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
        compression.end(error)
        compression.close()
    # If the program dropped a compression while a step ended, its own thread closes it. If Python ended meanwhile, the
    # thread would die in the middle, or the process would abort.
    join_at_end(list(_threads))
