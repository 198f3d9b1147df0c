#!/usr/bin/env python3
"""Measures all figures of docs/performance.md, at one commit on one machine, by running the other benches.

    sudo bench/all.py [--data DIR] [--only PART] [--out DIR] [--dirty]
    bench/all.py --list
    bench/all.py --page | --check

Each part is the command of a bench. Its rows go into a file of --out, below what they were measured with. A part that
this commit has there is not measured again, so an interrupted run goes on where it was. --page writes the tables of
docs/performance.md from the files; --check fails if the page says something else. A table stays as it is until its
parts are measured. --dirty measures in spite of changes without a commit. The machine should do nothing else meanwhile.

Needs root, for network namespaces, PyTorch for /usr/bin/python3, and MNIST's files in --data."""
import argparse
import contextlib
import csv
import ctypes
import datetime
import fnmatch
import json
import os
import pathlib
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "experiments"))

import figures
import grid
import net

PAGE, TOOL = grid.ROOT / "docs/performance.md", "build/release/gradwire"
# Texts are no part of what is measured.
SOURCES = ["--", ".", ":!*.md", ":!bench/results"]
GRACE = 30  # seconds that a bench has to remove its networks, if it is ended
MOST_HOSTS = 8
BUSY = 0.5  # load
PR_SET_CHILD_SUBREAPER = 36  # of prctl
EXCHANGE = "bench/exchange_net.py --json --nets vgg16"
CODECS = "none bf16 ternary ternary:residual=on topk gspar:density=0.01"
TRAINING = "float32 fp16 powersgd-1 powersgd-4"
HOOKS = "ternary:residual=on ternary:residual=on,momentum=0.9 topk topk:refresh=1,momentum=0.9 gspar:density=0.01"

# name: about how many seconds it takes, and the command. MNIST stands for the folder of --data.
PARTS = {
    "codecs": (
        120,
        f"{TOOL} bench codec --json --runs 5 --codec none --codec bf16 --codec ternary --codec ternary:residual=on "
        "--codec ternary:code=mask,pull=packed,entropy=off --codec topk --codec gspar --codec gspar:share=on "
        "--codec gspar:density=0.01",
    ),
    "topk": (60, "/usr/bin/python3 bench/topk_vs_torch.py --json --runs 3"),
    "sizes": (10, "bench/sparse_sizes.py --json --elements 1Mi"),
    "exchange": (180, f"{EXCHANGE} --rates 1gbit,10gbit --runs 5 --codecs {CODECS}"),
    "exchange-slow": (180, f"{EXCHANGE} --rates 100mbit --runs 3 --codecs ternary topk gspar:density=0.01"),
    "exchange-keys": (60, f"{EXCHANGE} --rates 10gbit --runs 5 --keys --codecs none ternary"),
    "latency": (90, "bench/latency.py --json --namespaces 0 --sizes 2,4 --models 1:1,200:1 --steps 300 --rounds 3"),
    "pserver": (
        120,
        "build/release/pserver_load --json --rows small,many,large --operations 1000 --large-mib 64 --runs 3",
    ),
    "training": (90, "bench/train_net.py --json --data MNIST --nets lenet --codecs none ternary --no-goals"),
    "ddp": (240, f"bench/ddp.py --json --models mlp --rounds 2 --methods {TRAINING} {HOOKS}"),
    "ddp-until": (420, f"bench/ddp.py --json --until 94 --data MNIST --rates 1gbit --methods {TRAINING} {HOOKS}"),
    "ddp-until-slow": (
        420,
        f"bench/ddp.py --json --until 94 --data MNIST --rates 100mbit --methods powersgd-1 powersgd-4 {HOOKS}",
    ),
}


def kill_children():
    """Kills what a bench left behind. This process is a subreaper: orphans become its children."""
    listing = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := listing.read_text().split():
        for pid in map(int, pids):
            os.kill(pid, signal.SIGKILL)
            end = time.monotonic() + GRACE
            while os.waitpid(pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > end:
                    raise grid.Failed(f"process {pid} does not die")
                time.sleep(0.01)


def run(command, data, seconds):
    """Returns what a bench printed, or raises grid.Failed. Neither processes nor networks of it stay."""
    words = [data if word == "MNIST" else word for word in shlex.split(command)]
    with net.signals_wait() as let_through, tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            words, cwd=grid.ROOT, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True
        )
        try:
            with let_through():
                out = child.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            raise grid.Failed(f"took longer than {seconds} s")
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGTERM)
                    child.wait(GRACE)
            try:
                kill_children()
            finally:
                net.remove(MOST_HOSTS)
        if child.returncode:
            said.seek(0)
            raise grid.Failed("failed:\n" + "".join(said.readlines()[-20:]))
    return out


def flat(value, name=""):
    """Yields (column, cell) of a row that may have objects in it. Of a list of runs it is the median."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{name}_{key}" if name else key)
    else:
        value = statistics.median(value) if isinstance(value, list) else value
        yield name, "" if value is None else grid.figure(value, 6)


def git(*words):
    return subprocess.run(["git", *words], cwd=grid.ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def build():
    """Brings the build up to date, as the user who called sudo. Returns what the tool says of itself."""
    for words in (["cmake", "--preset", "release"], ["cmake", "--build", "--preset", "release"]):
        user = int(os.environ.get("SUDO_UID", os.getuid()))
        subprocess.run(words, cwd=grid.ROOT, check=True, stdout=sys.stderr, user=user)
    lines = subprocess.run([TOOL, "--version"], cwd=grid.ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(line.split(None, 1) for line in lines.splitlines())


def store(file, about, rows):
    columns = list(dict.fromkeys(column for row in rows for column in row))
    temporary = file.with_suffix(".new")
    with temporary.open("w", newline="") as out:
        out.writelines(f"{key}: {value}\n" for key, value in about.items())
        out.write("\n")
        table = csv.DictWriter(out, columns, restval="", delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    temporary.replace(file)


def load(folder):
    """Returns {part: (about, rows)} of all parts that are measured."""
    found = {}
    for name in PARTS:
        with contextlib.suppress(FileNotFoundError):
            head, _, table = (folder / f"{name}.txt").read_text().partition("\n\n")
            about = dict(line.split(": ", 1) for line in head.splitlines())
            found[name] = about, list(csv.DictReader(table.splitlines(), delimiter="\t"))
    return found


def measure(args):
    if changes := git("status", "--porcelain", *SOURCES):
        if not args.dirty:
            sys.exit(f"a figure needs a commit that it belongs to; commit these, or take --dirty:\n{changes}")
    net.need_root()
    if os.getloadavg()[0] > BUSY:
        print(f"other work runs here (load {os.getloadavg()[0]:.1f}), which makes times longer", file=sys.stderr)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    args.out.mkdir(parents=True, exist_ok=True)
    tool, commit = build(), git("rev-parse", "HEAD").strip() + (" with changes" if changes else "")
    done = [name for name, (about, _) in load(args.out).items() if about["commit"] == commit and not changes]
    todo = [name for name in PARTS if fnmatch.fnmatch(name, args.only) and name not in done]
    if not fnmatch.filter(PARTS, args.only):
        sys.exit(f"no part fits --only {args.only}; --list has them")
    if not args.data and any("MNIST" in PARTS[name][1] for name in todo):
        sys.exit("--data is needed: the folder with MNIST's files")
    failed = 0
    for i, name in enumerate(todo):
        seconds, command = PARTS[name]
        left = sum(PARTS[other][0] for other in todo[i:])
        print(f"[{i + 1}/{len(todo)}] {name}; about {left / 60:.0f} min left", file=sys.stderr, flush=True)
        begin, busy = time.monotonic(), os.getloadavg()[0]
        try:
            told = json.loads(run(command, os.path.abspath(args.data or ""), 3 * seconds + 60))
        except (grid.Failed, ValueError) as why:
            print(f"{name}: {why}", file=sys.stderr, flush=True)
            failed += 1
            continue
        about = {"command": command, "commit": commit, "date": datetime.date.today().isoformat()}
        about |= {"seconds": round(time.monotonic() - begin), "load before": f"{busy:.1f}"}
        about |= {"machine": grid.this_machine(), "kernel": f"Linux {platform.release().split('-')[0]}"}
        about |= {key: tool[key] for key in ("compiler", "kernels")}
        told = {"results": told} if isinstance(told, list) else told
        shared = {key: value for key, value in told.items() if key != "results"}
        store(args.out / f"{name}.txt", about, [dict(flat({**shared, **row})) for row in told["results"]])
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with MNIST's files")
    parser.add_argument("--only", default="*", help="parts whose name matches, e.g. 'exchange*'")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--dirty", action="store_true", help="measure in spite of changes without a commit")
    parser.add_argument("--list", action="store_true", help="only say what the parts are, and which are measured")
    parser.add_argument("--page", action="store_true", help="only write the tables of docs/performance.md")
    parser.add_argument("--check", action="store_true", help="fail if the page has other tables")
    args = parser.parse_args()
    results = load(args.out)
    if args.list:
        for name, (seconds, command) in PARTS.items():
            state = f"measured at {results[name][0]['commit'][:10]}" if name in results else "not measured"
            print(f"{name}: about {seconds} s, {state}\n    {command}")
        return 0
    if args.page or args.check:
        old = PAGE.read_text()
        new = figures.page(old, results)
        if args.page:
            PAGE.write_text(new)
        elif old != new:
            sys.exit(f"{PAGE} says something else than {args.out}: run bench/all.py --page")
        print(f"{len(results)} of {len(PARTS)} parts are measured")
        return 0
    return measure(args)


if __name__ == "__main__":
    sys.exit(main())
