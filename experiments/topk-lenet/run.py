#!/usr/bin/env python3
"""DLGS: LeNet on MNIST with four workers; float, global Top-K, layer-wise Top-K every step (LAGS), and with reused
thresholds.

    experiments/topk-lenet/run.py --data DIR [--tool build/release/gradwire] [--jobs 2] [--only GLOB] [--table]

results.tsv has a line for every finished run. A run whose line is there is not repeated. So the grid can be interrupted
at any time, and goes on where it was. table.txt is made anew from results.tsv after every run."""
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grid

COLUMNS = "run method ratio refresh seed steps test_accuracy bytes_up bytes_down dense_bytes encode_ms".split()
COLUMNS += "sent_to_k_mean sent_to_k_most parameter_hash".split()

WORKERS, BATCH, STEPS, SEEDS = 4, 64, 5000, (1, 2)
SAME = f"--net lenet --batch {BATCH} --steps {STEPS} --schedule poly:0.5 --weight-decay 0.0005 --plan single"
SAME += " --timeout 600"
RATIOS = (0.1, 0.01, 0.001)


def all_runs():
    runs = []
    for seed in SEEDS:
        runs.append((f"float-s{seed}", "float", 0, 0, seed, "none"))
        for ratio in RATIOS:
            runs.append(
                (
                    f"global-{ratio}-s{seed}",
                    "global Top-K",
                    ratio,
                    1,
                    seed,
                    f"topk:ratio={ratio},scope=global,refresh=1,over=0",
                )
            )
            runs.append(
                (f"lags-{ratio}-s{seed}", "LAGS", ratio, 1, seed, f"topk:ratio={ratio},scope=layer,refresh=1,over=0")
            )
            for refresh in (10, 100, 1000):
                runs.append(
                    (
                        f"dlgs{refresh}-{ratio}-s{seed}",
                        "DLGS",
                        ratio,
                        refresh,
                        seed,
                        f"topk:ratio={ratio},scope=layer,refresh={refresh},over=0",
                    )
                )
    return runs


def run_one(args, run):
    name, method, ratio, refresh, seed, spec = run
    with tempfile.TemporaryDirectory() as out:
        words = [*SAME.split(), "--data", args.data, "--workers", WORKERS, "--codec", spec, "--seed", seed]
        s = grid.train(args, *words, *"--optimizer momentum --momentum 0.9 --lr 0.01 --out".split(), out)
        steps = [json.loads(line) for line in (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()]
    # Rank 0 counts what it sends in some steps, which are spread over the run.
    drift = [step["nonzero_share"] / ratio for step in steps if ratio and step["nonzero_share"] is not None]
    return {
        **{k: s[k] for k in COLUMNS if k in s},
        "method": method,
        "ratio": ratio,
        "refresh": refresh,
        "seed": seed,
        "encode_ms": sum(step["encode_ms"] for step in steps) / len(steps),
        "sent_to_k_mean": sum(drift) / len(drift) if drift else "",
        "sent_to_k_most": max(drift) if drift else "",
    }


def table(rows):
    lines = [
        "LeNet on MNIST, 4 workers: test accuracy in percent after 5,000 steps of batch 64, momentum (DLGS)",
        f"{grid.machine(rows)}; experiments/topk-lenet/run.py",
        "codec: ms a step of measure, encode, reduce and decode on a worker's own thread.",
        "sent/k: what rank 0 sent beside k = ratio * n",
        "",
        f"{'method':14} {'ratio':>6} {'refresh':>7} {'seeds':>5} {'accuracy':>9} {'to float':>9} {'up, x smaller':>14} "
        f"{'down, x smaller':>16} {'codec':>8} {'sent/k mean':>12} {'most':>6}",
    ]
    by = {}
    for row in rows:
        by.setdefault((row["method"], float(row["ratio"]), int(row["refresh"])), []).append(row)

    def mean(found, key):
        return sum(float(row[key]) for row in found) / len(found)

    dense = by.get(("float", 0.0, 0))
    methods = ["float", "global Top-K", "LAGS", "DLGS"]
    for key in sorted(by, key=lambda k: (-k[1] if k[1] else -9, methods.index(k[0]), k[2])):
        found = by[key]
        accuracy = 100 * mean(found, "test_accuracy")
        up, down = (mean(found, "dense_bytes") / mean(found, k) for k in ("bytes_up", "bytes_down"))
        line = (
            f"{key[0]:14} {key[1] or '':>6} {key[2] or '':>7} {len(found):5} {accuracy:9.2f} "
            f"{accuracy - 100 * mean(dense, 'test_accuracy') if dense else float('nan'):+9.2f} {up:14.1f} "
            f"{down:16.1f} {mean(found, 'encode_ms'):8.2f}"
        )
        if key[1]:
            line += f" {mean(found, 'sent_to_k_mean'):12.2f} {max(float(row['sent_to_k_most']) for row in found):6.2f}"
        lines.append(line)
    return lines


if __name__ == "__main__":
    sys.exit(grid.Grid(HERE, COLUMNS, table).main(__doc__, all_runs(), run_one))
