#!/usr/bin/env python3
"""Training on MNIST over four hosts with shaped links: seconds a step of every codec, where they go, and seconds to 97 %.

    sudo bench/train_net.py --data DIR [--tool build/release/gradwire] [--rates 10gbit,1gbit,100mbit] [--nets lenet,mlp]
                            [--codecs SPEC SPEC ...] [-o table.txt]

Four network namespaces on a bridge, a worker in each; tbf limits what each sends and receives. How many steps a codec needs to
97 % test accuracy is a property of the codec and not of the network (the parameters are the same, bit for bit): it is found once, on
threads of this machine, at the end of each epoch. Seconds a step are then measured over each network, and multiplied.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import exchange_net
import net

HERE = pathlib.Path(__file__).resolve().parent
HOSTS, GOAL = 4, 0.97
CODECS = ["none", "bf16", "ternary", "ternary:pull=packed,entropy=off", "gspar:density=0.01", "topk:ratio=0.01"]
NETS = {  # batch, most epochs, the same rate for all codecs
    "lenet": (["--net", "lenet", "--batch", "64", "--lr", "0.01"], 3),
    "mlp": (["--net", "mlp:784-4096-4096-10", "--batch", "128", "--lr", "0.02"], 3),
}
# Steps measured over each network: enough for a steady mean, few enough for 100 Mbit/s.
STEPS = {"lenet": {"10gbit": 200, "1gbit": 200, "100mbit": 100}, "mlp": {"10gbit": 16, "1gbit": 10, "100mbit": 5}}


def train(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        exchange_net.note(done.stderr)
        raise SystemExit("gradwire train failed")
    return json.loads(done.stdout)


def steps_to_goal(args, options, epochs, codec):
    """Steps until the test accuracy is 97 % at an epoch's end; None where it never is."""
    with tempfile.TemporaryDirectory() as out:
        train([args.tool, "train", *options, "--data", args.data, "--workers", HOSTS, "--codec", codec, "--epochs", epochs, "--schedule",
               "const", "--plan", args.plan, "--out", out, "--overwrite", "--json", "--timeout", 600])
        for line in (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines():
            step = json.loads(line)
            if step.get("test_accuracy", 0) >= GOAL:
                return step["step"] + 1
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tool", default=str(HERE.parent / "build/release/gradwire"))
    parser.add_argument("--nets", default="lenet,mlp")
    parser.add_argument("--rates", default="10gbit,1gbit,100mbit")
    parser.add_argument("--codecs", nargs="+", default=CODECS)
    parser.add_argument("--plan", default="none")
    parser.add_argument("--no-goal", action="store_true", help="leave out the seconds to 97 %%")
    parser.add_argument("-o", help="the table goes there too")
    args = parser.parse_args()
    net.need_root()
    args.tool, args.data = str(pathlib.Path(args.tool).resolve()), str(pathlib.Path(args.data).resolve())
    lines = [f"bench/train_net.py {' '.join(sys.argv[1:])}", exchange_net.machine(),
             "Means a step and worker: compute, codec (the pipeline's, beside compute), waiting. x none: speed of a step beside codec none.",
             "97 %: steps until the test accuracy is reached at an epoch's end, times seconds a step."]
    with tempfile.TemporaryDirectory(prefix="gradwire-net-") as folder, net.network(HOSTS):
        for name in args.nets.split(","):
            options, epochs = NETS[name]
            goal = {}
            for codec in args.codecs if not args.no_goal else []:
                exchange_net.note(f"{name}: steps to 97 % with {codec}")
                goal[codec] = steps_to_goal(args, options, epochs, codec)
            for rate in args.rates.split(","):
                net.shape(HOSTS, rate)
                lines += ["", f"{name} ({' '.join(options)}), {HOSTS} hosts at {rate}/s",
                          f"  {'codec':34} {'ms a step':>10} {'compute':>9} {'codec':>9} {'waiting':>9} {'x none':>7} {'steps':>6} {'s to 97 %':>10}"]
                plain = None
                for codec in args.codecs:
                    exchange_net.note(f"{name} at {rate}: {codec}")
                    words = ["train", *options, "--data", args.data, "--codec", codec, "--steps", STEPS[name][rate], "--schedule", "const",
                             "--plan", args.plan, "--json", "--timeout", 600]
                    s = train(net.launch(args.tool, HOSTS, folder, words))
                    plain = plain or s["step_ms"]
                    steps = goal.get(codec)
                    seconds = f"{steps * s['step_ms'] / 1e3:10.1f}" if steps else f"{'-':>10}"
                    lines.append(f"  {codec:34} {s['step_ms']:10.2f} {s['compute_ms']:9.2f} {s['encode_ms']:9.2f} {s['wait_ms']:9.2f} "
                                 f"{plain / s['step_ms']:7.2f} {steps or '-':>6} {seconds}")
                    print(lines[-1], flush=True)
                    if args.o:
                        pathlib.Path(args.o).write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
