#!/usr/bin/env python3
"""Sizes of sparse frames: the bits of the positions beside their entropy, and what a sent element costs in all.

The gradient is Gaussian, and one element in a thousand is 50 times larger. A shorter gradient is the begin of the
longest. 'gradwire encode' encodes each, and its --json says what the frame holds. If only the number of sent elements
is known, positions need at least n*H(sent/n) bits. With gspar each element's part must be known, too. The table gives
the bits of the whole frame, with its header, for each sent element.

    bench/sparse_sizes.py [--tool build/release/gradwire] [--elements N]... [--density D]... [--codec SPEC]... [--json]
"""
import argparse
import array
import json
import pathlib
import random
import sys
import tempfile

import commands
from units import count

OUTLIER_BLOCK, OUTLIER, SIGMA = 1000, 50, 1e-3
ELEMENTS = ["64Ki", "1Mi", "16Mi"]
DENSITIES = [0.001, 0.01, 0.1]
CODECS = ["topk:refresh=1,ratio=D", "topk:refresh=1,value=bf16,ratio=D", "gspar:density=D"]
BITS = ["head_bits", "position_bits", "sign_bits", "value_bits"]


def draw(n, seed, path):
    source = random.Random(seed)
    with open(path, "wb") as file:
        for begin in range(0, n, OUTLIER_BLOCK):
            block = array.array("f", (source.gauss(0, SIGMA) for _ in range(OUTLIER_BLOCK)))
            block[source.randrange(OUTLIER_BLOCK)] *= OUTLIER
            if sys.byteorder == "big":
                block.byteswap()
            file.write(block[: n - begin].tobytes())


def measure(tool, spec, n, density, gradient, frame):
    said = commands.tell([tool, "encode", "--codec", spec, "--seed", 1, gradient, "-o", frame])
    if not said.get("position_entropy_bits"):
        sys.exit(
            "%s sends all, none, or no positions of %d elements; other densities, lengths or codecs tell something"
            % (spec, n)
        )
    return {
        "codec": spec,
        "elements": n,
        "density": density,
        "sent": said["sent"],
        "frame_bytes": said["frame_bytes"],
        **{name: said[name] for name in BITS},
        "position_entropy_bits": said["position_entropy_bits"],
        "position_excess": said["position_bits"] / said["position_entropy_bits"] - 1,
        "frame_bits_per_sent": 8 * said["frame_bytes"] / said["sent"],
    }


def show(rows):
    print(
        "%-40s %9s %9s %12s %12s %8s   %s"
        % (
            "codec",
            "elements",
            "sent",
            "positions",
            "entropy",
            "excess",
            "bits per sent element: frame = positions + signs + values + head",
        )
    )
    for row in rows:
        head, positions, signs, values = (row[name] / row["sent"] for name in BITS)
        print(
            "%-40s %9d %9d %12d %12.0f %6.2f %%   %.2f = %.2f + %.2f + %.2f + %.2f"
            % (
                row["codec"],
                row["elements"],
                row["sent"],
                row["position_bits"],
                row["position_entropy_bits"],
                100 * row["position_excess"],
                row["frame_bits_per_sent"],
                positions,
                signs,
                values,
                head,
            )
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default="build/release/gradwire")
    parser.add_argument(
        "--elements",
        type=count,
        action="append",
        metavar="N",
        help="may be given several times (default %s)" % ", ".join(ELEMENTS),
    )
    parser.add_argument("--density", action="append", metavar="D", help="the same (default 0.001, 0.01, 0.1)")
    parser.add_argument(
        "--codec",
        action="append",
        metavar="SPEC",
        help="the same; '=D' in it becomes the density (default '%s')" % "' '".join(CODECS),
    )
    parser.add_argument("--seed", type=int, default=1, help="of the gradient (default 1)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    lengths = sorted(options.elements or map(count, ELEMENTS))
    densities, codecs = options.density or DENSITIES, options.codec or CODECS

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        longest, gradient, frame = (pathlib.Path(folder) / name for name in ("longest.f32", "gradient.f32", "frame.gw"))
        print("drawing %d elements" % lengths[-1], file=sys.stderr)
        draw(lengths[-1], options.seed, longest)
        for n in lengths:
            with open(longest, "rb") as source:
                gradient.write_bytes(source.read(4 * n))
            for codec in codecs:
                for density in densities:
                    spec = codec.replace("=D", "=%s" % density)
                    print("%d elements, %s" % (n, spec), file=sys.stderr)
                    rows.append(measure(options.tool, spec, n, float(density), gradient, frame))
    if options.json:
        print(json.dumps({"seed": options.seed, "results": rows}))
    else:
        show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
