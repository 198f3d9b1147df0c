#!/usr/bin/env python3
"""The last rows of `make run`: LeNet's step over 100 Mbit/s and 1 Gbit/s, with float and with ternary gradients.

    scripts/run_networks.py TOOL DATA RUN_FLOAT RUN_TERNARY

Measures them with a worker in each of four network namespaces, which it makes and removes. If it may not make any, it
computes how long the bytes of the two runs take on such a link, and says that they are computed. Standard library
only."""
import json
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import net
import train_net

OPTIONS = train_net.NETS["lenet"][0]
# The bits a second of each rate, and how many steps are measured over it. Each takes a few seconds.
RATES = {"100mbit": ("100 Mbit/s", 1e8, 20), "1gbit": ("1 Gbit/s", 1e9, 60)}


def row(name, ms):
    gain = ms[0] / ms[1]
    words = f"{gain:.1f} times faster" if gain >= 1 else f"{1 / gain:.1f} times slower"
    print(f"{'over ' + name:16} {ms[0]:11.2f} ms {ms[1]:11.2f} ms   {words}", flush=True)


def measure(tool, data):
    with tempfile.TemporaryDirectory(prefix="gradwire-net-") as folder, net.network(train_net.HOSTS, control=None):
        for rate, (name, _, steps) in RATES.items():
            net.shape(train_net.HOSTS, rate)
            codecs = ("none", "ternary")
            row(name, [train_net.train_over(tool, folder, OPTIONS, data, c, steps)["step_ms"] for c in codecs])


def compute(runs):
    """Computes how long a step's bytes take. A worker sends its share of all bytes, and receives as much meanwhile."""
    for name, bits, _ in RATES.values():
        row(name, [8e3 * (s["bytes_up"] + s["bytes_down"]) / s["workers"] / s["steps"] / bits for s in runs])


def main():
    tool, data, *folders = sys.argv[1:]
    runs = [json.loads((pathlib.Path(folder) / "summary.json").read_text()) for folder in folders]
    if all(map(shutil.which, ("ip", "tc"))) and net.may_make_networks():
        print("\nA step with each worker on a host of its own (measured; four network namespaces share this machine):")
        measure(str(pathlib.Path(tool).resolve()), data if data == "digits" else str(pathlib.Path(data).resolve()))
    else:
        print("\nWhat the bytes of a step cost on a network (computed from the bytes; measuring it needs root):")
        compute(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
