"""What tests of the parameter server from outside share: the tool, the library that the Python client loads, and check."""
import os
import pathlib
import sys

try:
    import numpy
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

TOOL = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ.setdefault("GRADWIRE_LIBRARY", str(TOOL.parent / "libgradwire.so"))
os.environ["PYTHONPATH"] = str(SOURCE / "python")
sys.path.insert(0, str(SOURCE / "python"))


def check(holds, what):
    if not holds:
        raise SystemExit(f"failed: {what}")
