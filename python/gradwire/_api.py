"""The C API (include/gradwire) for ctypes: structures, and the arguments and results of functions. The fields are in
the order of the headers. tests/python/frames_test.py compares the sizes with the compiler's."""
import ctypes
import functools
import operator
import os

from . import _library
from ._owner import Owner
from .errors import Error

POINTER, TEXT, STATUS, SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
OUT = ctypes.POINTER(ctypes.c_void_p)  # a place where a call puts a pointer


class ContextOptions(ctypes.Structure):
    _fields_ = [("struct_bytes", SIZE), ("allocator", POINTER), ("n_threads", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", TEXT), ("id", ctypes.c_uint32), ("n_elems", ctypes.c_uint64), ("last_layer", ctypes.c_bool)]


class CodecTraits(ctypes.Structure):
    _fields_ = [
        ("name", TEXT),
        ("canonical", TEXT),
        ("lossy", ctypes.c_bool),
        ("unbiased", ctypes.c_bool),
        ("is_global", ctypes.c_bool),
        ("one_group", ctypes.c_bool),
        ("momentum", ctypes.c_double),
        ("velocity", ctypes.c_bool),
    ]


class EncoderTraits(ctypes.Structure):
    _fields_ = [("n_shared", ctypes.c_uint64), ("slice_align", ctypes.c_uint64), ("state_bytes", SIZE)]


class Draw(ctypes.Structure):
    _fields_ = [("seed", ctypes.c_uint64), ("rank", ctypes.c_uint32), ("step", ctypes.c_uint32)]


class FrameInfo(ctypes.Structure):
    _fields_ = [
        ("codec", TEXT),
        ("code", TEXT),
        ("average", ctypes.c_bool),
        ("fast", ctypes.c_bool),
        ("always_finite", ctypes.c_bool),
        ("workers", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("tensor_id", ctypes.c_uint32),
        ("step", ctypes.c_uint32),
        ("begin", ctypes.c_uint64),
        ("n_elems", ctypes.c_uint64),
        ("bucket", ctypes.c_uint64),
        ("n_scalers", ctypes.c_uint64),
        ("frame_bytes", SIZE),
        ("payload_bytes", SIZE),
    ]


class Link(ctypes.Structure):
    _fields_ = [
        ("ops", POINTER),
        ("self", POINTER),
        ("rank", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("machine_of", POINTER),
    ]


class Message(ctypes.Structure):
    _fields_ = [("sender", ctypes.c_uint32), ("bytes", POINTER), ("n_bytes", SIZE)]


class LinkOps(ctypes.Structure):
    SEND = ctypes.CFUNCTYPE(STATUS, POINTER, ctypes.c_uint32, POINTER, SIZE, ctypes.c_uint32)
    SEND_ALL = ctypes.CFUNCTYPE(STATUS, POINTER, POINTER, SIZE, ctypes.c_uint32)
    FLUSH = ctypes.CFUNCTYPE(STATUS, POINTER, ctypes.c_uint32)
    RECV = ctypes.CFUNCTYPE(STATUS, POINTER, ctypes.c_uint32, ctypes.POINTER(Message))
    END = ctypes.CFUNCTYPE(None, POINTER)
    _fields_ = [
        ("name", TEXT),
        ("send", SEND),
        ("send_all", SEND_ALL),
        ("flush", FLUSH),
        ("recv", RECV),
        ("close", END),
        ("destroy", END),
    ]


class ExchangeOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", SIZE),
        ("codec", POINTER),
        ("tensors", ctypes.POINTER(Tensor)),
        ("n_tensors", ctypes.c_uint32),
        ("group_of", ctypes.POINTER(ctypes.c_uint32)),
        ("link", Link),
        ("servers", POINTER),
        ("seed", ctypes.c_uint64),
        ("timeout_ms", ctypes.c_uint32),
        ("machine_of", ctypes.POINTER(ctypes.c_uint32)),
        ("identity", TEXT),
        ("server_optimizer", TEXT),
        ("wire", ctypes.c_int),
        ("skip_zero_gradients", ctypes.c_bool),
        ("first_owner", ctypes.c_uint32),
    ]


class StepResult(ctypes.Structure):
    _fields_ = [
        ("committed", ctypes.c_bool),
        ("bad_tensor", ctypes.c_uint32),
        ("bad_rank", ctypes.c_uint32),
        ("bytes_up", ctypes.c_uint64),
        ("bytes_down", ctypes.c_uint64),
        ("dense_bytes", ctypes.c_uint64),
        ("nonzeros", ctypes.c_uint64),
        ("elements", ctypes.c_uint64),
        ("encode_seconds", ctypes.c_double),
        ("wait_seconds", ctypes.c_double),
        ("bytes_between_machines_up", ctypes.c_uint64),
        ("bytes_between_machines_down", ctypes.c_uint64),
        ("messages", ctypes.c_uint64),
        ("bound_gap", ctypes.c_double),
        ("wire", ctypes.c_int),
    ]


class ProfileLayer(ctypes.Structure):
    _fields_ = [("name", TEXT), ("n_elems", ctypes.c_uint64), ("backward_ms", ctypes.c_double)]


class ProfileCodec(ctypes.Structure):
    _fields_ = [
        ("spec", TEXT),
        ("compress_ms_fixed", ctypes.c_double),
        ("compress_ms_per_element", ctypes.c_double),
        ("decompress_ms_per_element", ctypes.c_double),
        ("bytes_per_element", ctypes.c_double),
        ("measure_ms_fixed", ctypes.c_double),
        ("measure_ms_per_element", ctypes.c_double),
        ("busy_ms_per_element", ctypes.c_double),
    ]


class ProfileLink(ctypes.Structure):
    _fields_ = [
        ("alpha_ms", ctypes.c_double),
        ("ms_per_byte", ctypes.c_double),
        ("latency_ms", ctypes.c_double),
        ("run_elements", ctypes.c_uint64),
        ("members", ctypes.c_uint32),
    ]


class Profile(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", SIZE),
        ("forward_ms", ctypes.c_double),
        ("layers", ctypes.POINTER(ProfileLayer)),
        ("n_layers", ctypes.c_uint32),
        ("link", ProfileLink),
        ("codecs", ctypes.POINTER(ProfileCodec)),
        ("n_codecs", ctypes.c_uint32),
    ]


class ProbeOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", SIZE),
        ("exchange", Link),
        ("meeting", Link),
        ("codecs", ctypes.POINTER(POINTER)),
        ("n_codecs", ctypes.c_uint32),
        ("layers", ctypes.POINTER(ProfileLayer)),
        ("n_layers", ctypes.c_uint32),
        ("runs", ctypes.c_uint32),
        ("most_elements", ctypes.c_uint64),
        ("timeout_ms", ctypes.c_uint32),
        ("stop", POINTER),
        ("stop_user", POINTER),
    ]


EXCHANGE_RESCALE = 3
COMPRESS_BESIDE, MERGE_EXACT, MERGE_PAPER, PLAN_MAX_LAYERS = 2, 1, 2, 2048
PLAN_MAX_CODECS = 64

_COUNTED = ctypes.POINTER(ctypes.c_uint32)
_SIZES = ctypes.POINTER(SIZE)

_SIGNATURES = {
    "gw_codec_parse": (STATUS, [POINTER, TEXT, OUT]),
    "gw_codec_destroy": (None, [POINTER]),
    "gw_codec_traits_of": (CodecTraits, [POINTER]),
    "gw_codec_check_skip": (STATUS, [POINTER, ctypes.POINTER(Tensor), ctypes.c_uint32]),
    "gw_codec_leaves_float": (ctypes.c_bool, [POINTER, ctypes.POINTER(Tensor)]),
    "gw_encoder_create": (STATUS, [POINTER, POINTER, ctypes.POINTER(Tensor), OUT]),
    "gw_encoder_destroy": (None, [POINTER]),
    "gw_encoder_traits_of": (EncoderTraits, [POINTER]),
    "gw_encoder_measure": (STATUS, [POINTER, POINTER, POINTER, SIZE, POINTER]),
    "gw_encoder_bound": (SIZE, [POINTER, ctypes.c_uint64]),
    "gw_encoder_measure_encode": (
        STATUS,
        [POINTER, POINTER, POINTER, ctypes.POINTER(Draw), POINTER, SIZE, _SIZES, POINTER],
    ),
    "gw_frame_parse": (STATUS, [POINTER, SIZE, ctypes.POINTER(FrameInfo)]),
    "gw_frame_scaler": (ctypes.c_float, [POINTER, SIZE, ctypes.c_uint64]),
    "gw_frame_symbols": (
        STATUS,
        [POINTER, POINTER, SIZE, POINTER, SIZE, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_double)],
    ),
    "gw_decode": (STATUS, [POINTER, POINTER, SIZE, POINTER, ctypes.c_uint64]),
    "gw_reduce_bound": (SIZE, [ctypes.POINTER(POINTER), _SIZES, ctypes.c_uint32]),
    "gw_reduce": (STATUS, [POINTER, ctypes.POINTER(POINTER), _SIZES, ctypes.c_uint32, POINTER, POINTER, SIZE, _SIZES]),
    "gw_context_create": (STATUS, [ctypes.POINTER(ContextOptions), OUT]),
    "gw_context_destroy": (None, [POINTER]),
    "gw_link_open": (STATUS, [POINTER, TEXT, POINTER, ctypes.c_uint32, ctypes.POINTER(Link)]),
    "gw_link_destroy": (None, [ctypes.POINTER(Link)]),
    "gw_link_fail": (None, [ctypes.POINTER(Link), STATUS, TEXT]),
    "gw_link_recv": (STATUS, [ctypes.POINTER(Link), ctypes.c_uint32, ctypes.POINTER(Message)]),
    "gw_link_why": (STATUS, [ctypes.POINTER(Link), POINTER, POINTER]),
    "gw_status_text": (TEXT, [STATUS]),
    "gw_message_alloc": (POINTER, [POINTER, SIZE]),
    "gw_message_free": (None, [POINTER]),
    "gw_probe_measure": (
        STATUS,
        [POINTER, ctypes.POINTER(ProbeOptions), ctypes.POINTER(ProfileLink), ctypes.POINTER(ProfileCodec)],
    ),
    "gw_plan_merge": (
        STATUS,
        [
            POINTER,
            ctypes.POINTER(Profile),
            ctypes.c_uint32,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_uint64,
            _COUNTED,
            _COUNTED,
            ctypes.POINTER(ctypes.c_double),
        ],
    ),
    "gw_exchange_create": (STATUS, [POINTER, ctypes.POINTER(ExchangeOptions), OUT]),
    "gw_exchange_destroy": (None, [POINTER]),
    "gw_exchange_begin": (STATUS, [POINTER, ctypes.c_uint32]),
    "gw_exchange_submit_many": (STATUS, [POINTER, ctypes.c_uint32, _COUNTED, ctypes.POINTER(POINTER)]),
    "gw_exchange_wait": (STATUS, [POINTER, ctypes.POINTER(StepResult)]),
    "gw_exchange_set": (STATUS, [POINTER, ctypes.c_int, ctypes.c_double]),
    "gw_exchange_save": (STATUS, [POINTER, POINTER, SIZE, _SIZES]),
    "gw_exchange_load": (STATUS, [POINTER, ctypes.POINTER(POINTER), ctypes.c_uint32, SIZE]),
}


@functools.lru_cache(maxsize=None)
def library():
    """libgradwire with all of these declared."""
    return _library.declare(_SIGNATURES)


def shown(thing):
    """Returns a wrong argument as a sentence shows it: in one short line."""
    line = f"the class {thing.__name__}, no object of it" if isinstance(thing, type) else " ".join(repr(thing).split())
    return line if len(line) <= 100 else f"{line[:97]}..."


def in_range(what, number, least, most):
    """Checks a number, because ctypes would cut off what does not fit. Returns it. Raises TypeError and ValueError."""
    try:
        if type(number).__name__ in ("bool", "bool_"):  # Python's, or numpy's
            raise TypeError
        number = operator.index(number)
    except TypeError:
        raise TypeError(f"{what} is {shown(number)}, and must be a whole number from {least} to {most}") from None
    if not least <= number <= most:
        raise ValueError(f"{what} is {number}, and must be {least} to {most}")
    return number


def text(what, given, errors="strict"):
    """Returns the text as C takes it. errors: "surrogateescape" for names of files, which may be of any bytes. Raises
    TypeError and ValueError."""
    if not isinstance(given, str):
        raise TypeError(f"{what} is {shown(given)}, and must be a string")
    if "\0" in given:
        raise ValueError(f"{what} is {given!r}, and has a character of code 0")
    try:
        return given.encode(errors=errors)
    except UnicodeEncodeError:
        raise ValueError(f"{what} is {given!r}, and has a character that UTF-8 has not") from None


def folder(what, given):
    """Returns the name of a folder as C takes it. Raises TypeError and ValueError."""
    if not isinstance(given, (str, bytes, os.PathLike)):
        raise TypeError(f"{what} is {shown(given)}, and must be the name of a folder")
    return text(what, os.fsdecode(given), "surrogateescape")


class Codec(Owner):
    """A parsed specification. If it is wrong, this raises gradwire.Error, which says what would be right. It also
    raises TypeError and ValueError."""

    handle = None

    def __init__(self, spec: str):
        self.handle = POINTER()
        _library.check(library().gw_codec_parse(None, text("a codec", spec), ctypes.byref(self.handle)))
        self._destroy = library().gw_codec_destroy  # when Python ends, the module's own names may go first
        self.canonical = library().gw_codec_traits_of(self.handle).canonical.decode()

    def __del__(self):
        if getattr(self, "_destroy", None):
            self._destroy(self.handle)
            self.handle = self._destroy = None

    def leaves_float(self, name, n_elements, last_layer):
        """True if the codec leaves such a tensor in float, because of skip= or min=."""
        tensor = Tensor(name.encode(), 0, n_elements, last_layer)
        return library().gw_codec_leaves_float(self.handle, ctypes.byref(tensor))

    def check_skip(self, tensors):
        """Raises ValueError if a name in skip= fits none of tensors: [(name, elements, last_layer)]. Such a name is a
        mistake, and without an error a layer would be compressed against the user's wish."""
        declared = (Tensor * len(tensors))(
            *(Tensor(name.encode(), i, n, last) for i, (name, n, last) in enumerate(tensors))
        )
        try:
            _library.check(library().gw_codec_check_skip(self.handle, declared, len(tensors)))
        except Error as error:
            raise ValueError(str(error)) from None
