"""A client of the parameter server (gradwire server), PaddlePaddle/Paddle#6599:

    client = Client("127.0.0.1:29700", rank=0)
    client.init_parameter(key="max_abs_grad", shape=[1], type="float32")
    client.push_parameter(key="max_abs_grad", value=[0.5])
    largest = client.pull_parameter(key="max_abs_grad", reduce_method="max")      # a numpy array

Types: float32, float16, bfloat16, int32, int64, uint8, frame. Reduce methods: max, min, sum, mean, latest, decode_sum, decode_average,
parameters; what each does is in gradwire/pserver.h. numpy has no bfloat16: such keys take and give float32, rounded here to nearest even."""
import ctypes
import operator
import threading

import numpy

from . import _library

READER = 0xFFFFFFFF
MAX_DIMS = 8

_DTYPES = {"float32": numpy.float32, "float16": numpy.float16, "bfloat16": numpy.uint16, "int32": numpy.int32, "int64": numpy.int64,
           "uint8": numpy.uint8, "frame": numpy.uint8}


class Error(RuntimeError):
    """A call failed; the text says what is wrong and what would be right. `status` is the library's number."""

    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status = status


class Timeout(Error):
    """A deadline passed; the text names the workers or the server that were waited for."""


class _Shape(ctypes.Structure):
    _fields_ = [("n_dims", ctypes.c_uint32), ("dims", ctypes.c_uint64 * MAX_DIMS)]


class _Value(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("shape", _Shape), ("round", ctypes.c_uint64), ("n_pushes", ctypes.c_uint32),
                ("bytes", ctypes.c_void_p), ("n_bytes", ctypes.c_size_t), ("hold", ctypes.c_void_p)]


class _Options(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("servers", ctypes.c_char_p), ("rank", ctypes.c_uint32), ("keys", ctypes.c_char_p),
                ("timeout_ms", ctypes.c_uint32), ("joins", ctypes.c_bool)]


_TIMEOUT = -60
_MOST_MS, _MOST_VERSION = 2**32 - 1, 2**64 - 1
_lib = None


def _library_now():
    global _lib
    if _lib is None:
        lib = _library.load()
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        signatures = {
            "gw_last_error": (text, []),
            "gw_ps_type_name": (text, [ctypes.c_int]),
            "gw_ps_type_parse": (ctypes.c_bool, [text, ctypes.POINTER(ctypes.c_int)]),
            "gw_ps_method_parse": (ctypes.c_bool, [text, ctypes.POINTER(ctypes.c_int)]),
            "gw_ps_client_create": (ctypes.c_int, [pointer, ctypes.POINTER(_Options), ctypes.POINTER(pointer)]),
            "gw_ps_client_destroy": (None, [pointer]),
            "gw_ps_init_parameter": (ctypes.c_int, [pointer, text, ctypes.c_int, ctypes.POINTER(_Shape)]),
            "gw_ps_init_optimized": (ctypes.c_int, [pointer, text, ctypes.c_int, ctypes.POINTER(_Shape), text, pointer]),
            "gw_ps_set_rate": (ctypes.c_int, [pointer, ctypes.c_double]),
            "gw_ps_push_parameter": (ctypes.c_int, [pointer, text, pointer, ctypes.c_size_t]),
            "gw_ps_pull_parameter": (ctypes.c_int, [pointer, text, ctypes.c_int, text, ctypes.POINTER(_Value)]),
            "gw_ps_put_parameter": (ctypes.c_int, [pointer, text, ctypes.c_uint64, pointer, ctypes.c_size_t]),
            "gw_ps_get_parameter": (ctypes.c_int, [pointer, text, ctypes.c_uint64, ctypes.POINTER(_Value)]),
            "gw_ps_is_in_memory_only": (ctypes.c_bool, [pointer]),
            "gw_ps_value_free": (None, [ctypes.POINTER(_Value)]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        _lib = lib
    return _lib


def _check(status):
    if status < 0:
        sentence = _library_now().gw_last_error().decode(errors="replace")
        raise (Timeout if status == _TIMEOUT else Error)(status, sentence)


def _number(parse, word, what, known):
    number = ctypes.c_int()
    if not parse(str(word).encode(), ctypes.byref(number)):
        raise ValueError(f"{what} is {word!r}; right are {known}")
    return number.value


def _text(key):
    if "\0" in key:
        raise ValueError(f"a key's name holds a NUL character: {key!r}")
    return key.encode()


def _whole(number, most, what):
    """ctypes would wrap one that does not fit."""
    number = operator.index(number)
    if not 0 <= number <= most:
        raise ValueError(f"{what} is {number}; it must be from 0 to {most}")
    return number


def _to_bfloat16(value):
    bits = numpy.ascontiguousarray(value, dtype=numpy.float32).view(numpy.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return numpy.where(numpy.isnan(bits.view(numpy.float32)), 0x7FC0, rounded).astype(numpy.uint16)


def _from_bfloat16(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


class Client:
    """One worker, or with rank=READER somebody who only pulls. `servers`: "HOST:PORT", several with commas between; `keys`: a folder of
    `gradwire keys new`; `timeout`: seconds after which a call gives up. Calls of several threads wait for each other."""

    def __init__(self, servers, rank, keys=None, timeout=60.0):
        self._lib, self._lock, self._types = _library_now(), threading.Lock(), {}
        self._client = ctypes.c_void_p()
        options = _Options(ctypes.sizeof(_Options), str(servers).encode(), _whole(rank, READER, "rank"), None if keys is None else str(keys).encode(),
                           int(min(max(1, timeout * 1000), _MOST_MS)))
        _check(self._lib.gw_ps_client_create(None, ctypes.byref(options), ctypes.byref(self._client)))

    def init_parameter(self, key, shape, type, optimizer=None, value=None):
        """Makes the key; the same from several clients is one initialisation. Refused where it is there with another shape, type or optimizer.

        With an optimizer ("sgd", "momentum:lr=0.1,momentum=0.9", "adam:lr=0.001") pushes are gradients, which move parameters on the server
        that pull_parameter(key, "parameters") gets. They begin with the first client's value, which may be None elsewhere: until it is there
        pushes and pulls wait."""
        number = _number(self._lib.gw_ps_type_parse, type, "type", ", ".join(_DTYPES))
        shape = [int(n) for n in (shape if numpy.iterable(shape) else [shape])]
        if len(shape) > MAX_DIMS or any(n < 0 for n in shape):
            raise ValueError(f"shape is {shape}; it has up to {MAX_DIMS} dimensions of 1 or more")
        given = _Shape(len(shape), (ctypes.c_uint64 * MAX_DIMS)(*shape))
        if optimizer is None and value is not None:
            raise ValueError(f"\"{key}\" has a first value and no optimizer; without one, push_parameter brings values")
        first = None if value is None else numpy.ascontiguousarray(value, dtype=numpy.float32)
        if first is not None and first.size != numpy.prod(shape, dtype=numpy.int64):
            raise ValueError(f"\"{key}\" has shape {shape}, and the value {list(first.shape)}")
        with self._lock:
            if optimizer is None:
                _check(self._lib.gw_ps_init_parameter(self._open(), _text(key), number, ctypes.byref(given)))
            else:
                _check(self._lib.gw_ps_init_optimized(self._open(), _text(key), number, ctypes.byref(given), str(optimizer).encode(),
                                                      None if first is None else first.ctypes.data))
            self._types[key] = type, shape

    def _array(self, key, value):
        """The value as the key's type has it."""
        type, shape = self._types.get(key, (None, None))
        if type == "frame" or type is None and isinstance(value, (bytes, bytearray, memoryview)):
            return numpy.frombuffer(value, dtype=numpy.uint8)
        array = numpy.asarray(value)
        wanted = numpy.float32 if type == "bfloat16" else _DTYPES.get(type, array.dtype)
        # Floats are rounded to the key's; integers are never wrapped, nor floats cut to integers.
        rounds = numpy.issubdtype(wanted, numpy.floating) and numpy.can_cast(array.dtype, wanted, "same_kind")
        if array.dtype != wanted and not rounds and not numpy.array_equal(array, array.astype(wanted)):
            raise TypeError(f"\"{key}\" holds {type}, and {array.dtype} values would be changed by that")
        array = numpy.ascontiguousarray(array, dtype=wanted)
        if shape is not None and array.size != numpy.prod(shape, dtype=numpy.int64):
            raise ValueError(f"\"{key}\" has shape {shape}, and the value {list(array.shape)}")
        return _to_bfloat16(array) if type == "bfloat16" else array

    def push_parameter(self, key, value, rate=0.0):
        """Pushes this worker's next value: an array of the key's shape, or what numpy makes one of; for a frame its bytes. rate: the learning
        rate, where the key has an optimizer; 0: the key's own."""
        with self._lock:
            array = self._array(key, value)
            _check(self._lib.gw_ps_set_rate(self._open(), rate))
            _check(self._lib.gw_ps_push_parameter(self._open(), _text(key), array.ctypes.data, array.nbytes))

    def pull_parameter(self, key, reduce_method, scale_key=None):
        """The pushes of all workers in the round of this worker's last push, reduced: a numpy array, or bytes for a frame."""
        method = _number(self._lib.gw_ps_method_parse, reduce_method, "reduce_method", "max, min, sum, mean, latest, decode_sum, decode_average, parameters")
        value = _Value()
        with self._lock:
            _check(self._lib.gw_ps_pull_parameter(self._open(), _text(key), method, None if scale_key is None else _text(scale_key),
                                                  ctypes.byref(value)))
        return self._taken(value)

    def put_parameter(self, key, value, version):
        """Puts a value that is no round's at an initialised key, for others to get; one of a lower version than what is there is not looked at."""
        with self._lock:
            array = self._array(key, value)
            _check(self._lib.gw_ps_put_parameter(self._open(), _text(key), _whole(version, _MOST_VERSION, "version"), array.ctypes.data, array.nbytes))

    def get_parameter(self, key, least=0):
        """What was put at the key, and its version, once that is `least` or higher."""
        value = _Value()
        with self._lock:
            _check(self._lib.gw_ps_get_parameter(self._open(), _text(key), _whole(least, _MOST_VERSION, "least"), ctypes.byref(value)))
        version = value.round
        return self._taken(value), version

    def in_memory_only(self):
        """Whether, since the last call, a server with a snapshot folder has said that it cannot write there: what it acknowledged is lost if it
        is killed before it can."""
        with self._lock:
            return self._lib.gw_ps_is_in_memory_only(self._open())

    def _taken(self, value):
        """The array, or of frames the bytes, and frees the library's own."""
        try:
            data = ctypes.string_at(value.bytes, value.n_bytes)
            type = self._lib.gw_ps_type_name(value.type).decode()
            if type == "frame":
                return data
            array = numpy.frombuffer(data, dtype=_DTYPES[type])
            array = _from_bfloat16(array) if type == "bfloat16" else array.copy()
            shape = list(value.shape.dims[:value.shape.n_dims])
            return array.reshape(shape) if array.size == numpy.prod(shape, dtype=numpy.int64) else array
        finally:
            self._lib.gw_ps_value_free(ctypes.byref(value))

    def close(self):
        """Leaves in good order."""
        with self._lock:
            client, self._client = self._client, None
            if client:
                self._lib.gw_ps_client_destroy(client)

    def _open(self):
        if not self._client:
            raise ValueError("this client is closed")
        return self._client

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_client", None):
            self.close()
