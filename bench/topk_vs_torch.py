#!/usr/bin/env python3
"""Exact selection of the largest magnitudes: topk's beside torch.topk, on the same numbers in the same process.

The gradient is Gaussian, and one element in a thousand is 50 times larger. Two public calls are timed:
    selection   gw_encoder_measure of topk:ratio=R,scope=layer,refresh=1: exactly k elements of gradient plus residual
                are selected and the new residual is written. It does more than torch.topk, which has no residual to
                read and write.
    step        gw_encoder_measure_encode: the selection, and the frame of it
torch.topk (sorted=False) gets magnitudes that were made beforehand. memcpy, ours and torch's take turns. Medians are
compared, also those of processor time, because other processes lengthen wall time. Both must select the same
magnitudes. Exits 77 if torch is missing, and 1 if selections differ.

    bench/topk_vs_torch.py [--library build/release/libgradwire.so] [--elements 64Mi] [--ratio R]... [--runs 5] [--json]
"""
import argparse
import ctypes
import json
import math
import os
import platform
import statistics
import sys
import time
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

from units import count

OUTLIER_SHARE, OUTLIER, SIGMA = 0.001, 50, 1e-3


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("id", c_uint32), ("n_elems", c_uint64), ("last_layer", c_bool)]


class Draw(Structure):
    _fields_ = [("seed", c_uint64), ("rank", c_uint32), ("step", c_uint32)]


def load(path):
    try:
        library = ctypes.CDLL(os.path.abspath(path))
    except OSError as error:
        sys.exit("%s; 'cmake --build --preset release' makes the library, --library says where it is" % error)
    encoder = [c_void_p, c_void_p]
    for name, arguments, result in [
        ("gw_last_error", [], c_char_p),
        ("gw_codec_parse", [c_void_p, c_char_p, POINTER(c_void_p)], c_int),
        ("gw_codec_destroy", [c_void_p], None),
        ("gw_encoder_create", [c_void_p, c_void_p, POINTER(Tensor), POINTER(c_void_p)], c_int),
        ("gw_encoder_destroy", [c_void_p], None),
        ("gw_encoder_bound", [c_void_p, c_uint64], c_size_t),
        ("gw_encoder_measure", encoder + [c_void_p, c_size_t, c_void_p], c_int),
        (
            "gw_encoder_measure_encode",
            encoder + [c_void_p, POINTER(Draw), c_void_p, c_size_t, POINTER(c_size_t), c_void_p],
            c_int,
        ),
        ("gw_decode", [c_void_p, c_void_p, c_size_t, c_void_p, c_uint64], c_int),
    ]:
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library


class TopK:
    """The encoder of one tensor. No step is ever committed. So the residual stays zero, and every call selects from g
    itself. The encoder reads the residual, and writes the next one, all the same."""

    def __init__(self, library, ratio, n):
        self.library, self.n, self.frame_bytes = library, n, c_size_t()
        self.codec, self.encoder = c_void_p(), c_void_p()
        # Without a context there is one thread, the caller's.
        self.check(
            library.gw_codec_parse(
                None, b"topk:scope=layer,refresh=1,over=0,ratio=%s" % repr(ratio).encode(), byref(self.codec)
            )
        )
        tensor = Tensor(b"gradient", 0, n, False)
        self.check(library.gw_encoder_create(None, self.codec, byref(tensor), byref(self.encoder)))
        self.frame = ctypes.create_string_buffer(library.gw_encoder_bound(self.encoder, n))

    def check(self, status):
        if status < 0:
            sys.exit(self.library.gw_last_error().decode())

    def select(self, g):
        self.check(self.library.gw_encoder_measure(self.encoder, g, None, 0, None))

    def step(self, g):
        self.check(
            self.library.gw_encoder_measure_encode(
                self.encoder, g, None, byref(Draw(1, 0, 0)), self.frame, len(self.frame), byref(self.frame_bytes), None
            )
        )

    def decode(self, out):
        self.check(self.library.gw_decode(None, self.frame, self.frame_bytes, out, self.n))

    def close(self):
        self.library.gw_encoder_destroy(self.encoder)
        self.library.gw_codec_destroy(self.codec)


def timed(call):
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def same_selection(torch, g, decoded, largest):
    """True if k elements of g were sent, with the magnitudes that torch selects. Among equal magnitudes, any element is
    right."""
    sent = decoded.nonzero().squeeze(1)
    values = decoded[sent]
    return torch.equal(values, g[sent]) and torch.equal(values.abs().sort()[0], largest.sort()[0])


def measure(torch, topk, g, copy, magnitudes, k, runs, progress):
    address, copied = g.data_ptr(), copy.data_ptr()
    n_bytes = 4 * g.numel()
    largest = []
    calls = {
        "memcpy": lambda: ctypes.memmove(copied, address, n_bytes),
        "selection": lambda: topk.select(address),
        "step": lambda: topk.step(address),
        "torch": lambda: largest.append(torch.topk(magnitudes, k, sorted=False)[0]),
    }
    samples = {name: [] for name in calls}
    for run in range(-1, runs):  # round -1 touches all memory, and does not count
        largest.clear()
        for name, call in calls.items():
            sample = timed(call)
            if run >= 0:
                samples[name].append(sample)
                progress(name, sample)
    topk.decode(copied)
    if not same_selection(torch, g, copy, largest[0]):
        sys.exit("topk and torch.topk selected different magnitudes, k = %d" % k)
    row = {"k": k}
    for i, clock in enumerate(["wall", "processor"]):
        seconds = {name: statistics.median(sample[i] for sample in both) for name, both in samples.items()}
        row[clock] = {
            **{name + "_seconds": value for name, value in seconds.items()},
            **{name + "_times_faster": seconds["torch"] / seconds[name] for name in ("selection", "step")},
        }
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default="build/release/libgradwire.so")
    parser.add_argument("--elements", type=count, default="64Mi", metavar="N")
    parser.add_argument(
        "--ratio",
        type=float,
        action="append",
        metavar="R",
        help="may be given several times (default 0.001, 0.01 and 0.1)",
    )
    parser.add_argument("--runs", type=count, default=5, metavar="R", help="of which medians are taken (default 5)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    ratios = options.ratio or [0.001, 0.01, 0.1]
    if not all(0 < ratio <= 1 for ratio in ratios):
        parser.error("a ratio is above 0 and at most 1")
    try:
        import torch
    except ImportError:
        print(
            "skipped: this Python has no torch (Debian: apt-get install python3-torch, run with /usr/bin/python3)",
            file=sys.stderr,
        )
        return 77

    library = load(options.library)
    load_before = os.getloadavg()[0]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    n = options.elements
    g = torch.randn(n) * SIGMA
    g[torch.randint(n, (int(n * OUTLIER_SHARE),))] *= OUTLIER
    magnitudes, copy = g.abs(), torch.empty(n)

    rows = []
    for ratio in ratios:
        topk = TopK(library, ratio, n)
        k = min(n, math.ceil(ratio * n))
        row = measure(
            torch,
            topk,
            g,
            copy,
            magnitudes,
            k,
            options.runs,
            lambda name, sample: print(
                "ratio %g: %s %.1f ms (processor %.1f)" % (ratio, name, 1e3 * sample[0], 1e3 * sample[1]),
                file=sys.stderr,
            ),
        )
        topk.close()
        rows.append({"ratio": ratio, **row})

    if options.json:
        print(
            json.dumps(
                {
                    "machine": platform.processor() or platform.machine(),
                    "torch": torch.__version__,
                    "threads": 1,
                    "elements": n,
                    "runs": options.runs,
                    "load_average": load_before,
                    "results": rows,
                }
            )
        )
        return 0
    print(
        "%d elements, one thread, medians of %d runs, torch %s; load average before: %.1f\n"
        % (n, options.runs, torch.__version__, load_before)
    )
    print(
        "%8s %-9s %9s %12s %9s %9s   %s"
        % ("ratio", "ms", "memcpy", "selection", "step", "torch", "times faster: selection, step")
    )
    for row in rows:
        for clock in "wall", "processor":
            times = row[clock]
            print(
                "%8g %-9s %9.1f %12.1f %9.1f %9.1f   %23.0f %5.0f"
                % (
                    row["ratio"],
                    clock,
                    *(1e3 * times[name + "_seconds"] for name in ("memcpy", "selection", "step", "torch")),
                    times["selection_times_faster"],
                    times["step_times_faster"],
                )
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
