"""Lists the codecs of the library, as `gradwire codecs` does. For those who have the Python package alone:

    python3 -m gradwire.codecs
    python3 -m gradwire.codecs topk"""
import argparse
import ctypes
import itertools
import signal

from . import _api, _library


class _Option(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("key", "default_value", "values", "help")]


class _Loss(ctypes.Structure):
    _fields_ = [
        ("spec", ctypes.c_char_p),
        ("network", ctypes.c_char_p),
        ("points", ctypes.c_double),
        ("bits_up", ctypes.c_double),
        ("bits_down", ctypes.c_double),
        ("n_seeds", ctypes.c_uint32),
    ]


class _Info(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("summary", ctypes.c_char_p),
        ("source", ctypes.c_char_p),
        ("options", ctypes.POINTER(_Option)),
        ("n_options", ctypes.c_size_t),
        ("wire_id", ctypes.c_uint8),
        ("lossy", ctypes.c_bool),
        ("unbiased", ctypes.c_bool),
        ("losses", ctypes.POINTER(_Loss)),
        ("examples", ctypes.POINTER(ctypes.c_char_p)),
    ]


def codecs():
    """Returns [{name, summary, source, options: [{key, default, values, help}], examples: [specification], losses:
    [{codec, network, points_lost, bits_up, bits_down, seeds}]}]. losses: what trainings lost, in points of test
    accuracy against floats. examples: together they use all that the codec can do; the first is its name alone."""
    lib = _library.declare({"gw_codec_list": (ctypes.POINTER(_Info), [ctypes.c_size_t])})
    found = []
    while info := lib.gw_codec_list(len(found)):
        c = info.contents
        options = [
            {"key": o.key, "default": o.default_value, "values": o.values, "help": o.help}
            for o in c.options[: c.n_options]
        ]
        losses = []
        rows = map(c.losses.__getitem__, itertools.count()) if c.losses else ()
        for loss in itertools.takewhile(lambda loss: loss.spec, rows):
            figures = {"points_lost": loss.points, "bits_up": loss.bits_up, "bits_down": loss.bits_down}
            losses.append({"codec": loss.spec, "network": loss.network, **figures, "seeds": loss.n_seeds})
        examples = list(itertools.takewhile(bool, map(c.examples.__getitem__, itertools.count())))
        own = {"name": c.name, "summary": c.summary, "source": c.source, "options": options}
        found.append({**own, "examples": examples, "losses": losses})
    return _decoded(found)


def lost(codec):
    """The most that an _api.Codec lost, with just these options, in a training that codecs() knows. In points of test
    accuracy; infinity if none is known."""
    name = codec.canonical.partition(":")[0]
    rows = next(c["losses"] for c in codecs() if c["name"] == name)
    points = [r["points_lost"] for r in rows if _api.Codec(r["codec"]).canonical == codec.canonical]
    return max(points, default=float("inf"))


def _decoded(value):
    if isinstance(value, dict):
        return {key: _decoded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    return value if isinstance(value, (int, float)) else (value or b"").decode()


def listing(specs=()):
    """The text that `gradwire codecs SPECS` prints, without the line about kernels. specs: names, or specifications,
    which are checked. Raises gradwire.InvalidValue, which names the nearest."""
    names, lines = {_api.Codec(spec).canonical.partition(":")[0] for spec in specs}, []
    for codec in (c for c in codecs() if not names or c["name"] in names):
        lines += [codec["name"], *(f"    {text}" for text in (codec["summary"], codec["source"]) if text)]
        for o in codec["options"]:
            lines.append(f"    {o['key'] + '=' + o['default']:<16} {o['help']}")
            lines.append(f"    {'':<16}   {o['values']}")
        if codec["options"]:
            lines += ["    Examples:", *(f"    {spec}" for spec in codec["examples"][1:])]
        if codec["losses"]:
            lines.append("    Test accuracy beside floats, with SGD, in points; bits of an element up and down:")
        for loss in codec["losses"]:
            figures = f"{0 - loss['points_lost']:+6.2f} {loss['bits_up']:6.2f} {loss['bits_down']:6.2f}"
            seeds = f"{loss['seeds']} seed{'s' * (loss['seeds'] != 1)}"
            lines.append(f"    {figures}  {loss['network']}, {seeds}: {loss['codec']}")
        lines.append("")
    lines.append("Write NAME, or NAME:key=value,key=value,... The values above are the defaults.")
    return "\n".join([*lines, "What each codec sends, and what it costs in accuracy: docs/choosing.md."])


def _main():
    parser = argparse.ArgumentParser(
        prog="python3 -m gradwire.codecs", description="Lists the codecs, and their options with the defaults."
    )
    parser.add_argument("spec", nargs="*", help="a name, or a whole specification, which is checked; none: all codecs")
    try:
        print(listing(parser.parse_args().spec))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as `head` may go before all is written
    _main()
