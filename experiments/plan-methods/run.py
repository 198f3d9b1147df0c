#!/usr/bin/env python3
"""How far the methods of merging are from the exact plan, on four networks, three bandwidths and two codecs.

    experiments/plan-methods/run.py [--tool build/release/gradwire]

Nothing is measured: `gradwire plan` computes the steps from the profiles of experiments/when-it-pays, with the link's
milliseconds a byte set to each bandwidth. table.txt has the result. Standard library only."""
import argparse
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import commands

PROFILES = HERE.parent / "when-it-pays" / "profiles"
NETWORKS = ["resnet20", "vgg16", "resnet50", "googlenet"]
BANDWIDTHS = {"100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "10 Gbit/s": 1e10}
CODECS = ["ternary", "topk:ratio=0.01,scope=layer,refresh=100,over=0"]
METHODS = ["paper", "none", "single", "fixed:25MiB"]
MEASURED_AT = 1e9  # bits a second, at which the profiles were measured


def plan(tool, path, codec, method):
    return commands.tell([tool, "plan", "--profile", path, "--codec", codec, "--method", method])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(ROOT / "build/release/gradwire"))
    args = parser.parse_args()
    lines = [
        "experiments/plan-methods/run.py",
        (HERE.parent / "when-it-pays" / "machine.txt").read_text().strip(),
        "exact: milliseconds of the step and number of groups; the others: by how much their step is longer.",
        "",
        f"{'network':12}{'bandwidth':14}{'codec':18}{'exact, ms':>12}{'groups':>8}"
        + "".join(f"{m:>13}" for m in METHODS),
    ]
    with tempfile.TemporaryDirectory(prefix="gradwire-plans-") as folder:
        for network in NETWORKS:
            profile = json.loads((PROFILES / f"{network}.json").read_text())
            here = profile["link"]["ms_per_byte"]
            for bandwidth, bits in BANDWIDTHS.items():
                profile["link"]["ms_per_byte"] = here * MEASURED_AT / bits
                path = pathlib.Path(folder) / "profile.json"
                path.write_text(json.dumps(profile))
                for codec in CODECS:
                    exact = plan(args.tool, path, codec, "exact")
                    steps = [plan(args.tool, path, codec, method)["step_ms"] for method in METHODS]
                    words = "".join(f"{100 * (step / exact['step_ms'] - 1):12.1f}%" for step in steps)
                    line = f"{network:12}{bandwidth:14}{codec:18}{exact['step_ms']:12.2f}{len(exact['groups']):8}"
                    lines.append(line + words)
    (HERE / "table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
