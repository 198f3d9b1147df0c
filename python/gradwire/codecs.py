"""Lists the codecs of the library, as `gradwire codecs` does. For those who have the Python package alone:

    python3 -m gradwire.codecs
    python3 -m gradwire.codecs topk"""
import argparse
import ctypes

from . import _api, _library


class _Option(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("key", "default_value", "values", "help")]


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
    ]


def codecs():
    """Returns [{name, summary, source, options: [{key, default, values, help}]}]."""
    lib = _library.declare({"gw_codec_list": (ctypes.POINTER(_Info), [ctypes.c_size_t])})
    found = []
    while info := lib.gw_codec_list(len(found)):
        c = info.contents
        options = [
            {"key": o.key, "default": o.default_value, "values": o.values, "help": o.help}
            for o in c.options[: c.n_options]
        ]
        found.append({"name": c.name, "summary": c.summary, "source": c.source, "options": options})
    return _decoded(found)


def _decoded(value):
    if isinstance(value, dict):
        return {key: _decoded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    return (value or b"").decode()


def listing(specs=()):
    """The text that `gradwire codecs SPECS` prints, without the line about kernels. specs: names, or specifications,
    which are checked. Raises gradwire.InvalidValue, which names the nearest."""
    names, lines = {_api.Codec(spec).canonical.partition(":")[0] for spec in specs}, []
    for codec in (c for c in codecs() if not names or c["name"] in names):
        lines += [codec["name"], *(f"    {text}" for text in (codec["summary"], codec["source"]) if text)]
        for o in codec["options"]:
            lines.append(f"    {o['key'] + '=' + o['default']:<16} {o['help']}")
            lines.append(f"    {'':<16}   {o['values']}")
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
    _main()
