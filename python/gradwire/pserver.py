"""A client of the parameter server (gradwire server), PaddlePaddle/Paddle#6599:

    client = Client("127.0.0.1:29700", rank=0)
    client.init_parameter(key="max_abs_grad", shape=[1], type="float32")
    client.push_parameter(key="max_abs_grad", value=[0.5])
    largest = client.pull_parameter(key="max_abs_grad", reduce_method="max")      # a numpy array

Types: float32, float16, bfloat16, int32, int64, uint8, frame. methods() names the reduce methods; what each does is in
gradwire/pserver.h. numpy has no bfloat16: such keys take and give float32, rounded here to nearest even."""
import contextlib
import ctypes
import math
import sys
import threading
import warnings

import numpy

from . import _api, _arrays, _library
from ._owner import OfOneProcess
from .errors import Error, Status, Timeout

READER = 0xFFFFFFFF
MAX_DIMS = 8

_DTYPES = {
    "float32": numpy.float32,
    "float16": numpy.float16,
    "bfloat16": numpy.uint16,
    "int32": numpy.int32,
    "int64": numpy.int64,
    "uint8": numpy.uint8,
    "frame": numpy.uint8,
}


class _Shape(ctypes.Structure):
    _fields_ = [("n_dims", ctypes.c_uint32), ("dims", ctypes.c_uint64 * MAX_DIMS)]


class _Value(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("shape", _Shape),
        ("round", ctypes.c_uint64),
        ("n_pushes", ctypes.c_uint32),
        ("bytes", ctypes.c_void_p),
        ("n_bytes", ctypes.c_size_t),
        ("hold", ctypes.c_void_p),
    ]


class _Key:
    """A key as this client has initialised it."""

    def __init__(self, type, shape, options):
        self.type, self.shape, self.options = type, shape, options
        self.doubtful = False


class _KeyOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("shape", _Shape),
        ("optimizer", ctypes.c_char_p),
        ("values", ctypes.c_void_p),
    ]


class _Call(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("key", ctypes.c_char_p),
        ("options", ctypes.POINTER(_KeyOptions)),
        ("bytes", ctypes.c_void_p),
        ("n_bytes", ctypes.c_size_t),
        ("version", ctypes.c_uint64),
        ("method", ctypes.c_int),
        ("scale_key", ctypes.c_char_p),
        ("rate", ctypes.c_double),
    ]


_INIT, _PUSH, _PULL, _PUT, _GET = range(1, 6)
_IN_MEMORY = 0  # GW_PS_NOTICE_IN_MEMORY


class _Options(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("servers", ctypes.c_char_p),
        ("rank", ctypes.c_uint32),
        ("keys", ctypes.c_char_p),
        ("timeout_ms", ctypes.c_uint32),
        ("joins", ctypes.c_bool),
        ("connect_ms", ctypes.c_uint32),
        ("no_wait", ctypes.c_bool),
    ]


_MOST_MS, _MOST_VERSION, _MOST_DIM = 2**32 - 1, 2**64 - 1, 2**63 - 1
_NO_RATE = sys.float_info.min  # 0 in the float32 of the server; the 0 of a message means the key's own rate
_SLICE_MS = 200  # so long the library waits in one go. In between Python hears signals, such as Ctrl-C
_lib = None


def _library_now():
    global _lib
    if _lib is None:
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        signatures = {
            "gw_ps_type_name": (text, [ctypes.c_int]),
            "gw_ps_method_name": (text, [ctypes.c_int]),
            "gw_ps_client_create": (ctypes.c_int, [pointer, ctypes.POINTER(_Options), ctypes.POINTER(pointer)]),
            "gw_ps_client_meet": (ctypes.c_int, [pointer, ctypes.c_uint32]),
            "gw_ps_client_destroy": (None, [pointer]),
            "gw_ps_begin": (ctypes.c_int, [pointer, ctypes.POINTER(_Call), ctypes.POINTER(ctypes.c_uint64)]),
            "gw_ps_wait": (ctypes.c_int, [pointer, ctypes.c_uint64, ctypes.c_uint32, ctypes.POINTER(_Value)]),
            "gw_ps_cancel": (None, [pointer, ctypes.c_uint64]),
            "gw_ps_take_notice": (ctypes.c_bool, [pointer, ctypes.c_int]),
            "gw_ps_value_free": (None, [ctypes.POINTER(_Value)]),
        }
        _lib = _library.declare(signatures)
    return _lib


def _words(name_of):
    """Returns all names that the library numbers from 1 on."""
    names = []
    while name := name_of(len(names) + 1):
        names.append(name.decode())
    return names


def methods():
    """Returns the names of the reduce methods, as the library has them."""
    return _words(_library_now().gw_ps_method_name)


def _number(name_of, word, what):
    names, right = _words(name_of), ", ".join(_words(name_of))
    if not isinstance(word, str):
        raise TypeError(f"{what} is {_api.shown(word)}; right are {right}")
    if _api.text(what, word).decode() not in names:
        raise ValueError(f"{what} is {word!r}; right are {right}")
    return names.index(word) + 1


def _milliseconds(seconds, what):
    seconds = _real(seconds, what)
    if not seconds > 0:
        raise ValueError(f"{what} is {seconds}; it must be more than 0 seconds")
    return int(min(max(1, seconds * 1000), _MOST_MS))


def _real(number, what):
    try:
        if isinstance(number, (str, bytes, bytearray, bool, numpy.bool_)):
            raise TypeError
        real = float(number)
    except OverflowError:
        real = math.inf
    except Exception:  # arrays and tensors raise others
        raise TypeError(f"{what} is {_api.shown(number)}; it must be a number") from None
    if not math.isfinite(real):
        raise ValueError(f"{what} is {number!r}; it must be a finite number")
    return real


def _dims(shape):
    """Returns the shape as a list. An integer stands for a shape of one dimension."""
    if numpy.iterable(shape) and not isinstance(shape, (list, tuple, range, numpy.ndarray)):
        raise TypeError(f"shape is {_api.shown(shape)}; it must be an integer, or a list of them")
    dims = list(shape) if numpy.iterable(shape) else [shape]
    if len(dims) > MAX_DIMS:
        raise ValueError(f"shape is {dims}, of {len(dims)} dimensions; {MAX_DIMS} are possible")
    return [_api.in_range(f"dimension {d} of the shape", n, 0, _MOST_DIM) for d, n in enumerate(dims)]


def _fitting(array, wanted, key, type):
    """Returns the array in the key's type. Floats are rounded. Integers are never changed, floats are never cut to
    integers, and no finite number becomes infinite."""
    if array.dtype == wanted:
        return array
    with numpy.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(wanted)
    if array.dtype.kind == wanted.kind == "f":
        _check_finite(array, cast, key, type)
    elif not _is_exact(array, cast):
        raise _changed(key, type, array)
    return cast


def _changed(key, type, array):
    return TypeError(f'"{key}" holds {type}, and {array.dtype} values would be changed by that')


def _is_exact(array, cast):
    """True if no number was changed. Sign and way back must be the same: numpy compares some types as float64."""
    with numpy.errstate(over="ignore", invalid="ignore"):
        back = cast.astype(array.dtype)
    fits = True
    if array.dtype.kind == "f":  # processors differ in what becomes of a float that no integer can hold
        limits = numpy.iinfo(cast.dtype)
        fits = ((array >= float(limits.min)) & (array < float(limits.max) + 1)).all()
    return bool(fits) and numpy.array_equal(array, back) and numpy.array_equal(array < 0, cast < 0)


def _check_finite(array, rounded, key, type):
    if not numpy.array_equal(numpy.isinf(array), numpy.isinf(rounded)):
        raise ValueError(f'"{key}" holds {type}, and a value of the {array.dtype} array is too large for that')


def _to_bfloat16(value):
    bits = numpy.ascontiguousarray(value, dtype=numpy.float32).view(numpy.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return numpy.where(numpy.isnan(bits.view(numpy.float32)), 0x7FC0, rounded).astype(numpy.uint16)


def _from_bfloat16(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


class Client(OfOneProcess):
    """One worker. With rank=READER it is a client that only pulls.

    `servers`: "HOST:PORT", several with commas between. `keys`: this client's folder (`gradwire keys new DIR --client
    NAME --of SERVERDIR`). `timeout`: a call gives up after so many seconds, or 2 seconds later if a server is there and
    says nothing. `connect_timeout`: a new client gives up after so many seconds if nobody is at an address. If a client
    may start before its server, give it as much as `timeout`.

    Calls of several threads wait for each other, but close() ends a call that waits. Ctrl-C ends it, too, and you can
    go on using the client. The server forgets the request, unless it has done it already. Before its next push the
    client asks the server whether it took the interrupted one. If a signal's handler closes the client, or makes a call
    of its own, the call that waits in that thread ends with an error, too.

    If a server with a snapshot folder cannot write there, the call that hears of it gives a RuntimeWarning.

    After a fork the client works only in the process that made it. In the other one its calls raise gradwire.Error, and
    its end does nothing."""

    def __init__(self, servers, rank, keys=None, timeout=60.0, connect_timeout=3.0):
        super().__init__()
        self._lib, self._lock, self._keys = _library_now(), threading.RLock(), {}
        self._client, self._request, self._sent = ctypes.c_void_p(), ctypes.c_uint64(), None
        self._is_closing = False
        options = _Options(
            struct_bytes=ctypes.sizeof(_Options),
            servers=_api.text("servers", servers),
            rank=_api.in_range("rank", rank, 0, READER),
            keys=None if keys is None else _api.folder("keys", keys),
            timeout_ms=_milliseconds(timeout, "timeout"),
            connect_ms=_milliseconds(connect_timeout, "connect_timeout"),
            no_wait=True,
        )
        _library.check(self._lib.gw_ps_client_create(None, ctypes.byref(options), ctypes.byref(self._client)))
        try:
            while _library.check(self._lib.gw_ps_client_meet(self._client, _SLICE_MS)) == Status.NOT_YET:
                pass
        except BaseException:
            self.close()
            raise

    def _wait(self, kind, key, value=None, **fields):
        """Begins a call, and waits for its answer in slices. `value`: takes the answer. Arrays among the fields hold
        what is sent. INIT ignores `bytes`, and sends what its options point to."""
        self._give_up()  # a second Ctrl-C may have left a call
        self._sent = fields
        call = _Call(struct_bytes=ctypes.sizeof(_Call), kind=kind, key=key)
        for name, field in fields.items():
            if isinstance(field, numpy.ndarray):
                call.n_bytes, field = field.nbytes, field.ctypes.data
            setattr(call, name, ctypes.pointer(field) if isinstance(field, _KeyOptions) else field)
        out = None if value is None else ctypes.byref(value)
        try:
            _library.check(self._lib.gw_ps_begin(self._open(), ctypes.byref(call), ctypes.byref(self._request)))
            while _library.check(self._lib.gw_ps_wait(self._open(), self._request, _SLICE_MS, out)) == Status.NOT_YET:
                pass
            self._request.value, self._sent = 0, None
        except BaseException:
            self._give_up()
            if value is not None:
                self._lib.gw_ps_value_free(out)
            raise
        if self._lib.gw_ps_take_notice(self._client, _IN_MEMORY):
            warnings.warn(
                "gradwire: a server cannot write its snapshot folder. What it has acknowledged since is in its memory "
                "only, and is lost if it is killed now; its log and its page say why",
                RuntimeWarning,
                stacklevel=3,
            )

    def _give_up(self):
        """Gives up the call that is under way, if there is one. Its arrays must stay until then, because the library
        sends from them."""
        if self._request.value and self._client:
            self._lib.gw_ps_cancel(self._client, self._request)
        self._request.value, self._sent = 0, None

    def init_parameter(self, key, shape, type, optimizer=None, value=None):
        """Makes the key. If several clients make the same key, it is made once. The server refuses if the key is there
        with another shape, type or optimizer.

        With an optimizer ("sgd", "momentum:lr=0.1,momentum=0.9", "adam:lr=0.001") pushes are gradients. They move
        parameters on the server, which pull_parameter(key, "parameters") gets. The parameters begin with the value of
        the first client that gives one; other clients may give None. Pushes and pulls wait until the value is there.
        """
        name, number = _api.text("key", key), _number(self._lib.gw_ps_type_name, type, "type")
        shape = _dims(shape)
        if optimizer is None and value is not None:
            raise ValueError(f'"{key}" has a first value and no optimizer; without one, push_parameter gives values')
        options = _KeyOptions(
            struct_bytes=ctypes.sizeof(_KeyOptions),
            type=number,
            shape=_Shape(len(shape), (ctypes.c_uint64 * MAX_DIMS)(*shape)),
            optimizer=None if optimizer is None else _api.text("optimizer", optimizer),
        )
        first = None
        if value is not None:
            what = f'the first value of "{key}"'
            first = _fitting(_arrays.numbers(value, what), numpy.dtype(numpy.float32), key, "float32")
            _arrays.check_shape(first, shape, what)
            options.values = first.ctypes.data
        with self._turn():
            self._wait(_INIT, name, options=options, bytes=first)
            options.values = None
            self._keys[key] = _Key(type, shape, options)

    def _array(self, key, value):
        """Returns the value as an array of the key's type."""
        known, what = self._keys.get(key), f'the value for "{key}"'
        type = known.type if known else None
        given = _arrays.numbers(value, what, "uint8" if type == "frame" else None)
        if not known or type == "frame":
            return given
        array = _fitting(given, numpy.dtype(numpy.float32 if type == "bfloat16" else _DTYPES[type]), key, type)
        _arrays.check_shape(array, known.shape, what)
        if type != "bfloat16":
            return array
        bits = _to_bfloat16(array)
        _check_finite(array, _from_bfloat16(bits), key, type)
        if given.dtype.kind != "f" and not numpy.array_equal(_from_bfloat16(bits), array):
            raise _changed(key, type, given)
        return bits

    def push_parameter(self, key, value, rate=None):
        """Pushes this worker's next value: numbers of the key's shape, as an array, a PyTorch tensor or lists. For a
        frame they are its bytes. rate: the learning rate, if the key has an optimizer. None: the key's own rate."""
        name = _api.text("key", key)
        rate = 0.0 if rate is None else _real(rate, "rate") or _NO_RATE
        with self._turn():
            array, known = self._array(key, value), self._keys.get(key)
            if known and rate and not known.options.optimizer:
                raise ValueError(f'"{key}" has no optimizer, and so no learning rate')
            if known and known.doubtful:  # the server may have taken the last push or not, so ask it
                self._wait(_INIT, name, options=known.options)
                known.doubtful = False
            try:
                self._wait(_PUSH, name, bytes=array, rate=rate)
            except BaseException:
                if known:
                    known.doubtful = True
                raise

    def pull_parameter(self, key, reduce_method, scale_key=None, counted=False):
        """Returns the reduced pushes of the workers in the round of this worker's last push: a numpy array, or bytes
        for a frame. counted: returns a pair, that and how many pushes it is made of (of parts on several servers the
        fewest). These are fewer than the workers if the server leaves workers out (`--missing continue`, `--backup`),
        or does not wait (the modes stale and async)."""
        name, scale = _api.text("key", key), None if scale_key is None else _api.text("scale_key", scale_key)
        method = _number(self._lib.gw_ps_method_name, reduce_method, "reduce_method")
        value = _Value()
        with self._turn():
            self._wait(_PULL, name, value, method=method, scale_key=scale)
        n_pushes, result = value.n_pushes, self._taken(value)
        return (result, n_pushes) if counted else result

    def put(self, key, value, version):
        """Leaves a value for others to get, at a key of a plain type that this client has initialised. It belongs to no
        round. It is ignored if a value of this or a higher version is there."""
        name, version = _api.text("key", key), _api.in_range("version", version, 0, _MOST_VERSION)
        with self._turn():
            array = self._array(key, value)
            self._wait(_PUT, name, bytes=array, version=version)

    def get(self, key, least=0):
        """Waits until a value of version `least` or higher was put at the key. Returns it and its version."""
        name, least = _api.text("key", key), _api.in_range("least", least, 0, _MOST_VERSION)
        value = _Value()
        with self._turn():
            self._wait(_GET, name, value, version=least)
        version = value.round
        return self._taken(value), version

    def _taken(self, value):
        """Returns the value as an array, or as bytes if it is frames. Frees the library's memory."""
        try:
            data = ctypes.string_at(value.bytes, value.n_bytes)
            type = self._lib.gw_ps_type_name(value.type).decode()
            if type == "frame":
                return data
            array = numpy.frombuffer(data, dtype=_DTYPES[type])
            array = _from_bfloat16(array) if type == "bfloat16" else array.copy()
            shape = list(value.shape.dims[: value.shape.n_dims])
            return array.reshape(shape) if array.size == math.prod(shape) else array
        finally:
            self._lib.gw_ps_value_free(ctypes.byref(value))

    @contextlib.contextmanager
    def _turn(self):
        """Waits until no other thread makes a call. The process comes first: a fork may copy a lock that is taken."""
        self.check_process()
        with self._lock:
            yield

    def close(self):
        """Leaves in good order. If another thread waits in a call, that call ends with an error."""
        if not self.is_of_this_process():
            return
        self._is_closing = True
        with self._lock:
            client, self._client = self._client, None
            if client:
                self._lib.gw_ps_client_destroy(client)

    def _open(self):
        if self._is_closing or not self._client:
            raise ValueError("this client is closed")
        return self._client

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_client", None):
            self.close()
