#!/usr/bin/env python3
"""README's first figure: how long a training step takes over 100 Mbit/s, 1 Gbit/s and 10 Gbit/s, with each codec.

    sudo experiments/step-over-networks/run.py --data DIR [--tool build/release/gradwire] [--runs 3]
    experiments/step-over-networks/run.py --draw

Four network namespaces on one machine, a worker in each, train a fully connected network of 20 million parameters on
MNIST. Every run trains with all codecs in turn; a figure is the median of the runs. results.tsv has one line a run,
table.txt the medians, step.svg draws them. --draw makes the last two anew from results.tsv. Standard library only."""
import argparse
import csv
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(HERE.parent)]
import exchange_net
import grid
import net
import train_net

OPTIONS = train_net.NETS["mlp"][0]
RATES = {"100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s", "10gbit": "10 Gbit/s"}
STEPS = {"100mbit": 4, "1gbit": 10, "10gbit": 16}
CODECS = {"none": "float32", "ternary": "ternary", "gspar:density=0.01": "gspar, 1 %"}
COLUMNS = ["rate", "codec", "run", "step_ms", "compute_ms", "replicas_identical"]
COLOURS = {"none": "#8c959f", "ternary": "#0969da", "gspar:density=0.01": "#1a7f64"}


def measure(args):
    rows = []
    with tempfile.TemporaryDirectory(prefix="gradwire-net-") as folder, net.network(train_net.HOSTS):
        for rate in RATES:
            net.shape(train_net.HOSTS, rate)
            for run in range(args.runs):
                for codec in CODECS:
                    s = train_net.train_over(args.tool, folder, OPTIONS, args.data, codec, STEPS[rate])
                    row = {"rate": rate, "codec": codec, "run": run, **{name: s[name] for name in COLUMNS[3:]}}
                    rows.append({name: grid.cell(name, value) for name, value in row.items()})
                    exchange_net.note(f"{rate}, run {run + 1} of {args.runs}, {codec}: {s['step_ms']:.0f} ms a step")
    with (HERE / "results.tsv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (HERE / "machine.txt").write_text(exchange_net.machine() + "\n")


def medians():
    with (HERE / "results.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {
        (rate, codec): statistics.median(
            float(row["step_ms"]) for row in rows if (row["rate"], row["codec"]) == (rate, codec)
        )
        for rate in RATES
        for codec in CODECS
    }


def write_table(ms, machine):
    lines = [
        "experiments/step-over-networks/run.py",
        machine,
        f"gradwire train {' '.join(OPTIONS)}: milliseconds a step, four hosts with a worker each; medians.",
        "",
        f"{'':12}" + "".join(f"{codec:>22}" for codec in CODECS),
    ]
    for rate, name in RATES.items():
        plain = ms[rate, "none"]
        cells = "".join(f"{ms[rate, codec]:12.1f} {plain / ms[rate, codec]:6.2f} x" + " " for codec in CODECS)
        lines.append(f"{name:12}{cells}".rstrip())
    (HERE / "table.txt").write_text("\n".join(lines) + "\n")


def seconds(milliseconds):
    return f"{milliseconds / 1e3:.1f} s" if milliseconds >= 1e4 else f"{milliseconds / 1e3:.2f} s"


def draw(ms, machine):
    """Draws a panel for each network. Bars of a panel have the same scale, so each panel shows what a user there
    gains."""
    width, panel, bar, top, label, full = 900, 290, 34, 92, 84, 130
    height = top + len(CODECS) * bar + 46
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="14" role="img" aria-label="Seconds of a training step with and without compression">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        '<text x="20" y="30" font-size="17" font-weight="bold" fill="#1f2328">'
        'One training step of four workers: 20 million parameters, with and without compression</text>',
    ]
    for i, (rate, name) in enumerate(RATES.items()):
        x, longest = 20 + i * panel, max(ms[rate, codec] for codec in CODECS)
        gain = ms[rate, "none"] / ms[rate, "ternary"]
        words = f"ternary {gain:.1f} times faster" if gain >= 1.05 else "ternary as long as float32"
        words = words if gain > 0.95 else f"ternary {1 / gain:.1f} times slower"
        svg.append(f'<text x="{x}" y="60" font-weight="bold" fill="#1f2328">{name}</text>')
        svg.append(f'<text x="{x}" y="79" font-size="13" fill="#59636e">{words}</text>')
        for j, (codec, title) in enumerate(CODECS.items()):
            y, length = top + j * bar, max(2.0, full * ms[rate, codec] / longest)
            svg += [
                f'<text x="{x}" y="{y + 18}" font-size="13" fill="#1f2328">{title}</text>',
                f'<rect x="{x + label}" y="{y + 2}" width="{length:.1f}" height="{bar - 10}" rx="3" '
                f'fill="{COLOURS[codec]}"/>',
                f'<text x="{x + label + length + 6:.1f}" y="{y + 18}" font-size="13" fill="#1f2328">'
                f'{seconds(ms[rate, codec])}</text>',
            ]
    svg.append(
        f'<text x="20" y="{height - 14}" font-size="12" fill="#59636e">Measured: four network namespaces share two '
        f'cores, so computing takes long. {machine}</text>'
    )
    (HERE / "step.svg").write_text("\n".join([*svg, "</svg>"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with MNIST's files")
    parser.add_argument("--tool", default=str(ROOT / "build/release/gradwire"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--draw", action="store_true", help="measure nothing: make the table and the chart anew")
    args = parser.parse_args()
    if not args.draw:
        if not args.data:
            parser.error("--data DIR is needed: the folder with MNIST's files")
        args.tool, args.data = (str(pathlib.Path(path).resolve()) for path in (args.tool, args.data))
        net.need_root()
        measure(args)
    machine = (HERE / "machine.txt").read_text().strip()
    ms = medians()
    write_table(ms, machine)
    draw(ms, machine)
    print((HERE / "table.txt").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
