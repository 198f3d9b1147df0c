#!/usr/bin/env python3
"""When does compression pay? For eight networks, six bandwidths and four codecs, by `gradwire advise`.

    sudo experiments/when-it-pays/run.py [--tool build/release/gradwire]
    sudo experiments/when-it-pays/run.py --check
    experiments/when-it-pays/run.py --draw

`gradwire probe` measures a profile of each network over four network namespaces of 1 Gbit/s: what each codec costs, and
how exchanges of this network's tensors go. How long backward takes is a GTX 1080's for the ImageNet networks (as
`gradwire predict` has it), assumed for the CIFAR-10 networks, and measured here for LeNet and the perceptron. Then the
link's milliseconds a byte are set to each bandwidth, and `gradwire advise` compares the codecs. So all but 1 Gbit/s is
predicted. results.tsv has a line for each cell and codec; table.txt and pays.svg are made from it. The profiles are
kept in profiles/.

--check replays cells whose bandwidth can be shaped: the codec that was predicted to be the best, and floats, measured
by turns; checked.txt has predicted and measured speed-ups. Standard library only."""
import argparse
import csv
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(HERE.parent)]
import commands
import exchange_net
import grid
import net

HOSTS = 4
# How many samples one worker trains in a second, and in a step.
SPEEDS = {
    "alexnet": (690, 128),
    "googlenet": (292, 64),
    "vgg-a": (140, 32),
    "resnet50": (104, 32),
    "vgg16": (1400, 32),
    "resnet20": (6000, 32),
}
MEASURED = {"lenet": 64, "mlp:784-2048-2048-10": 64}  # the trainer runs these networks here, with one worker alone
CODECS = ["none", "bf16", "ternary", "gspar:density=0.01", "topk:ratio=0.01,scope=layer,refresh=100,over=0"]
BANDWIDTHS = {
    "100 Mbit/s": 1e8,
    "300 Mbit/s": 3e8,
    "1 Gbit/s": 1e9,
    "3 Gbit/s": 3e9,
    "10 Gbit/s": 1e10,
    "25 Gbit/s": 2.5e10,
}
CHECKED = {
    "100mbit": ["resnet20", "lenet"],
    "1gbit": ["googlenet", "resnet50", "vgg16", "resnet20", "lenet", "mlp:784-2048-2048-10"],
    "10gbit": ["googlenet", "resnet50", "vgg16", "resnet20", "lenet", "mlp:784-2048-2048-10"],
}
COLUMNS = ["network", "bandwidth", "codec", "step_ms", "speedup"]


def layers_alone(args, name, batch, folder):
    """Makes a file of a network's times. They are measured while nothing else runs here."""
    path = pathlib.Path(folder) / "alone.json"
    words = ["probe", "--net", name, "--batch", batch, "--workers", 2, "--runs", 9, "--codec", "none", "-o", path]
    commands.run([args.tool, *words])
    profile = json.loads(path.read_text())
    table = pathlib.Path(folder) / "layers.json"
    table.write_text(json.dumps({key: profile[key] for key in ("forward_ms", "layers")}))
    return table


def probe(args, name, folder):
    path = profile_path(name)
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        return path
    exchange_net.note(f"probe: {name}")
    codecs = [word for codec in CODECS for word in ("--codec", codec)]
    if name in MEASURED:
        whose = ["--layers", layers_alone(args, name, MEASURED[name], folder)]
    else:
        images, batch = SPEEDS[name]
        whose = ["--net", name, "--images-per-second", images, "--batch", batch]
    words = ["probe", *whose, *codecs, "--runs", 5, "--timeout", 300, "-o", path]
    commands.run(net.launch(args.tool, HOSTS, folder, words))
    return path


def measure(args):
    rows = []
    with tempfile.TemporaryDirectory(prefix="gradwire-pays-") as folder, net.network(HOSTS):
        net.shape(HOSTS, "1gbit")
        for name in [*SPEEDS, *MEASURED]:
            profile = json.loads(probe(args, name, folder).read_text())
            here = profile["link"]["ms_per_byte"]
            for bandwidth, bits in BANDWIDTHS.items():
                profile["link"]["ms_per_byte"] = here * 1e9 / bits  # it was measured at 1 Gbit/s, less headers
                path = pathlib.Path(folder) / "there.json"
                path.write_text(json.dumps(profile))
                for row in commands.tell([args.tool, "advise", "--profile", path])["codecs"]:
                    figures = [grid.figure(row[key]) for key in ("step_ms", "speedup")]
                    rows.append([name, bandwidth, row["codec"], *figures])
    with (HERE / "results.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows([COLUMNS, *rows])
    (HERE / "machine.txt").write_text(exchange_net.machine() + "\n")


def profile_path(name):
    return HERE / "profiles" / f"{name.replace(':', '-')}.json"


def check(args, cells):
    """Replays the best codec and floats of some cells."""
    lines = [
        "experiments/when-it-pays/run.py --check",
        exchange_net.machine(),
        "Speed-up over floats of the codec that was predicted to be the best: as predicted from a profile of 1 Gbit/s,",
        "and as measured by replaying steps over a link of the bandwidth, medians of 5 steps by turns.",
        "",
        f"{'network':22}{'bandwidth':12}{'codec':20}{'predicted':>10}{'measured':>10}   step, ms: predicted, measured",
    ]
    same = n = 0
    with tempfile.TemporaryDirectory(prefix="gradwire-pays-") as folder, net.network(HOSTS):
        for rate, names in CHECKED.items():
            net.shape(HOSTS, rate)
            bandwidth = rate.replace("mbit", " Mbit/s").replace("gbit", " Gbit/s")
            for name in names:
                exchange_net.note(f"check: {name} at {bandwidth}")
                codecs = [codec for codec in cells[name, bandwidth] if codec != "none"]
                codec = min(codecs, key=lambda one: cells[name, bandwidth][one][0])
                words = ["bench", "exchange", "--profile", profile_path(name), "--codec", "none", "--codec", codec]
                words += ["--runs", 5, "--timeout", 300]
                rows = commands.tell(net.launch(args.tool, HOSTS, folder, words))["results"]
                step_ms, predicted = cells[name, bandwidth][codec]
                measured = rows[0]["seconds"] / rows[1]["seconds"]
                same += (predicted > 1) == (measured > 1)
                n += 1
                lines.append(
                    f"{name:22}{bandwidth:12}{codec:20}{predicted:10.2f}{measured:10.2f}   {step_ms:9.1f} "
                    f"{1e3 * rows[1]['seconds']:9.1f}"
                )
    lines += ["", f"Whether the codec pays was predicted right in {same} of {n} cells."]
    (HERE / "checked.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def read():
    """Returns {(network, bandwidth): {codec: (step_ms, speedup)}}."""
    cells = {}
    with (HERE / "results.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            cell = cells.setdefault((row["network"], row["bandwidth"]), {})
            cell[row["codec"]] = (float(row["step_ms"]), float(row["speedup"]))
    return cells


def best(cell):
    """Returns the codec with the shortest step. If that saves less than a hundredth, it returns none."""
    codec = min(cell, key=lambda name: cell[name][0])
    return (codec, cell[codec][1]) if cell[codec][1] > 1.01 else ("none", 1.0)


def write_table(cells, machine):
    names = list(dict.fromkeys(name for name, _ in cells))
    lines = [
        "experiments/when-it-pays/run.py",
        machine,
        "The codec with the shortest step, and how many times shorter it is than with floats, each with its exact",
        "plan; four members. none: no codec saves more than a hundredth. Predicted from profiles of 1 Gbit/s.",
        "",
        f"{'':22}" + "".join(f"{bandwidth:>20}" for bandwidth in BANDWIDTHS),
    ]
    for name in names:
        words = []
        for bandwidth in BANDWIDTHS:
            codec, speedup = best(cells[name, bandwidth])
            words.append("none" if codec == "none" else f"{codec.split(':')[0]} {speedup:.2f}")
        lines.append(f"{name:22}" + "".join(f"{word:>20}" for word in words))
    for codec in CODECS[1:]:
        lines += ["", f"{codec}: times shorter than with floats"]
        for name in names:
            speedups = "".join(f"{cells[name, bandwidth][codec][1]:20.2f}" for bandwidth in BANDWIDTHS)
            lines.append(f"{name:22}{speedups}")
    (HERE / "table.txt").write_text("\n".join(lines) + "\n")
    return names


def shade(speedup):
    """Returns a colour: white at 1, and a strong green from 10 on. Black text can be read on all of them."""
    part = min(1.0, max(0.0, (speedup - 1) / 9)) ** 0.5
    return "#" + "".join(f"{round(255 + part * (end - 255)):02x}" for end in (102, 194, 165))


def draw(cells, names, machine):
    left, top, wide, high = 170, 70, 112, 42
    width, height = left + wide * len(BANDWIDTHS) + 20, top + high * len(names) + 44
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-label="Which codec makes the shortest step, by network and bandwidth">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        '<text x="20" y="30" font-size="17" font-weight="bold" fill="#1f2328">'
        'The fastest codec, and how many times shorter a step of four workers gets</text>',
    ]
    for i, bandwidth in enumerate(BANDWIDTHS):
        x = left + i * wide + wide / 2
        svg.append(f'<text x="{x}" y="{top - 12}" text-anchor="middle" fill="#1f2328">{bandwidth}</text>')
    for j, name in enumerate(names):
        y = top + j * high
        svg.append(f'<text x="{left - 10}" y="{y + 26}" text-anchor="end" fill="#1f2328">{name}</text>')
        for i, bandwidth in enumerate(BANDWIDTHS):
            codec, speedup = best(cells[name, bandwidth])
            x = left + i * wide
            words = "none" if codec == "none" else f"{codec.split(':')[0]} {speedup:.1f}x"
            svg += [
                f'<rect x="{x + 1}" y="{y + 1}" width="{wide - 2}" height="{high - 2}" rx="3" fill="{shade(speedup)}" '
                f'stroke="#d0d7de"/>',
                f'<text x="{x + wide / 2}" y="{y + 26}" text-anchor="middle" fill="#1f2328">{words}</text>',
            ]
    svg.append(
        f'<text x="20" y="{height - 14}" font-size="12" fill="#59636e">Predicted by gradwire advise; codecs were '
        f'measured on {machine}</text>'
    )
    (HERE / "pays.svg").write_text("\n".join([*svg, "</svg>"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(ROOT / "build/release/gradwire"))
    parser.add_argument("--draw", action="store_true", help="measure nothing: make the table and the chart anew")
    parser.add_argument("--check", action="store_true", help="replay some cells of the table that is there")
    args = parser.parse_args()
    if args.check:
        net.need_root()
        args.tool = str(pathlib.Path(args.tool).resolve())
        check(args, read())
        return 0
    if not args.draw:
        net.need_root()
        args.tool = str(pathlib.Path(args.tool).resolve())
        measure(args)
    machine = (HERE / "machine.txt").read_text().strip()
    cells = read()
    draw(cells, write_table(cells, machine), machine)
    print((HERE / "table.txt").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
