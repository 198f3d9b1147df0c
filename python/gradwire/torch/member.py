"""A member of an exchange over a link that somebody else holds. One thread at a time calls what is here."""
import ctypes
import math

from .. import _api, _library
from ..errors import Error, Status

_OUT = ctypes.byref
_OF_SCALER = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


def identity(nonfinite, scaler):
    """Returns what must be the same on all ranks, beside what the exchange compares by itself. Of a GradScaler these
    are the factor, and what moves it later. What a subclass has of its own may differ."""
    numbers = "no"
    if scaler is not None:
        state = {**(getattr(scaler, "state_dict", dict)() or {}), "scale": float(scaler.get_scale())}
        numbers = ", ".join(f"{key} {state[key]}" for key in _OF_SCALER if key in state)
    return f"binding = torch\nnonfinite = {nonfinite}\nscaler = {numbers}".encode()


def factor_of(scaler):
    """Returns the factor of a GradScaler, or 1 if there is none."""
    factor = 1.0 if scaler is None else float(scaler.get_scale())
    if not 0 < factor < math.inf:
        raise Error(Status.ARGUMENT, f"gradwire: the GradScaler's factor is {factor}, and must be a number above 0")
    return factor


class Member:
    """This rank's member of an exchange.

    tensors: [(name, elements, last_layer)] in declared order. group_of: the group of each tensor. machine_of: the
    machine of each rank. None: the link knows it.
    identity: of gw_exchange_options. first_owner: the rank that owns the first slices. Raises gradwire.Error."""

    def __init__(
        self, link, tensors, group_of, codec, machine_of, *, identity, seed, timeout_ms, threads, first_owner=0
    ):
        self.tensors = tensors
        self._lib, self._link, self._exchange, self._context = _api.library(), link, None, None
        try:
            if threads > 1:
                context = ctypes.c_void_p()
                options = _api.ContextOptions(struct_bytes=ctypes.sizeof(_api.ContextOptions), n_threads=threads)
                _library.check(self._lib.gw_context_create(_OUT(options), _OUT(context)))
                self._context = context
            declared = (_api.Tensor * len(tensors))(
                *(_api.Tensor(name.encode(), i, n, last) for i, (name, n, last) in enumerate(tensors))
            )
            options = _api.ExchangeOptions(
                struct_bytes=ctypes.sizeof(_api.ExchangeOptions),
                codec=codec.handle,
                tensors=declared,
                n_tensors=len(tensors),
                group_of=(ctypes.c_uint32 * len(tensors))(*group_of),
                link=link,
                seed=seed,
                timeout_ms=timeout_ms,
                machine_of=None if machine_of is None else (ctypes.c_uint32 * link.size)(*machine_of),
                identity=identity,
                skip_zero_gradients=True,
                first_owner=first_owner,
            )
            self._codec = codec  # the exchange borrows it
            exchange = ctypes.c_void_p()
            _library.check(self._lib.gw_exchange_create(self._context, _OUT(options), _OUT(exchange)))
            self._exchange = exchange
        except BaseException:
            self.close()
            raise
        self._result = _api.StepResult()

    def begin(self, step):
        _library.check(self._lib.gw_exchange_begin(self._exchange, step))

    def submit(self, n, numbers, addresses):
        """Submits n tensors. Two ctypes arrays hold their numbers, and the addresses of their gradients."""
        _library.check(self._lib.gw_exchange_submit_many(self._exchange, n, numbers, addresses))

    def wait(self):
        """Waits until the averages stand in the gradients, without Python's lock. Returns the same object every
        time. If it is not `committed`, a gradient was not finite, and there are no averages."""
        status = self._lib.gw_exchange_wait(self._exchange, _OUT(self._result))
        if status != Status.NONFINITE:
            _library.check(status)
        return self._result

    def scale(self, factor):
        _library.check(self._lib.gw_exchange_set(self._exchange, _api.EXCHANGE_RESCALE, factor))

    def save(self):
        """Returns what the codec keeps of all tensors on this rank, as bytes: b"" if it keeps nothing."""
        state = ctypes.create_string_buffer(self._state_bytes())
        if len(state):
            self._state_bytes(state, len(state))
        return state.raw

    def _state_bytes(self, state=None, capacity=0):
        n_bytes = ctypes.c_size_t()
        _library.check(self._lib.gw_exchange_save(self._exchange, state, capacity, ctypes.byref(n_bytes)))
        return n_bytes.value

    def check_states(self, states):
        """Raises gradwire.Error if a state has not the length of this codec's state for these tensors."""
        n_bytes = self._state_bytes()
        for state in states:
            if len(state) != n_bytes:
                raise Error(
                    Status.ARGUMENT,
                    f"the state's residuals take {len(state)} bytes, and those of {self._codec.canonical} for these "
                    f"tensors take {n_bytes}",
                )

    def load(self, states):
        """Loads this rank's own state, or the states of all ranks of a job of another size, each as bytes. If it raises
        gradwire.Error, nothing has changed."""
        self.check_states(states)
        if not states[0]:
            return
        buffers = [ctypes.create_string_buffer(state, len(state)) for state in states]
        places = (ctypes.c_void_p * len(states))(*(ctypes.addressof(b) for b in buffers))
        _library.check(self._lib.gw_exchange_load(self._exchange, places, len(states), len(states[0])))

    def close(self):
        """Ends the member, and tells the other ranks that it begins no more steps. No thread may wait in it any more.
        The link stays, because it belongs to its holder."""
        if self._exchange:
            self._lib.gw_exchange_destroy(self._exchange)
        if self._context:
            self._lib.gw_context_destroy(self._context)
        self._exchange = self._context = None
