"""What --json of a bench prints: its rows, as one JSON object on standard output. What people read goes to standard
error then."""
import contextlib
import json
import sys


@contextlib.contextmanager
def printed(as_json):
    """Gives a list for the rows. They are printed at the end, if that is wanted."""
    rows = []
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        yield rows
    if as_json:
        print(json.dumps({"results": rows}))


def option(parser):
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
