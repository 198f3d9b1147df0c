"""What the experiments share: a grid of trainings that can be interrupted at any time and goes on where it was.

results.tsv has a line for every finished run. A run whose line is there is not repeated. table.txt is made anew from
results.tsv after every run. Standard library only."""
import argparse
import concurrent.futures
import csv
import datetime
import decimal
import fnmatch
import os
import pathlib
import platform
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from commands import Failed, run_all, running, tell

lock = threading.Lock()


def this_machine():
    name = platform.processor()
    try:
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} cores"


def machine(rows=()):
    """Says on which machine a table was measured, and when: the machines and dates of its rows. If there are no rows,
    it is this machine, today."""
    machines = sorted({row["machine"] for row in rows}) or [this_machine()]
    dates = sorted({row["date"] for row in rows}) or [datetime.date.today().isoformat()]
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"machine: {' and '.join(machines)}; {when}"


# How many significant digits a column of floats has, by its kind. Runs of one kind differ in the third or fourth digit
# of losses, shares, times and bits, so four are enough for what is measured or predicted.
MEASURED, SET = 4, 6
DIGITS = dict.fromkeys(("lr", "lambda", "scale", "ratio", "setting", "dropout", "weight_decay"), SET)
DIGITS |= {"bits_a_step": 6, "loss": 6, "nonzero_share": 5, "step_ms": 6}  # tables print so much of these


def figure(value, digits=MEASURED):
    """Returns a float as text without an exponent, and anything else as it is."""
    return format(decimal.Decimal(f"{value:.{digits}g}"), "f") if isinstance(value, float) else str(value)


def cell(column, value):
    """Returns what results.tsv has of a value."""
    return figure(value, DIGITS.get(column, MEASURED))


class Grid:
    """columns: those of results.tsv. The first is the run's name. Date and machine follow the last. table(rows) returns
    the lines of table.txt."""

    def __init__(self, here, columns, table):
        self.results, self.table = here / "results.tsv", here / "table.txt"
        self.columns, self.lines = [*columns, "date", "machine"], table

    def rows(self):
        if not self.results.exists():
            return []
        with self.results.open(newline="") as file:
            reader = csv.DictReader(file, delimiter="\t")
            if reader.fieldnames != self.columns:
                sys.exit(f"{self.results} has other columns than this script writes; move it away to begin anew")
            return list(reader)

    def add(self, row):
        with lock:
            new = not self.results.exists()
            with self.results.open("a") as out:
                if new:
                    out.write("\t".join(self.columns) + "\n")
                out.write("\t".join(cell(c, row[c]) for c in self.columns) + "\n")
                out.flush()
                os.fsync(out.fileno())
            self.write_table()

    def write_table(self):
        temporary = self.table.with_suffix(".new")
        temporary.write_text("\n".join(self.lines(self.rows())) + "\n")
        temporary.replace(self.table)

    def main(self, doc, runs, run_one, needs_data=True, options=None):
        """Makes the runs that are not done yet. runs: tuples that begin with the run's name. run_one(args, run) returns
        the row, or raises Failed. options: [(name, argparse's keywords)] in place of --data and --tool."""
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        for name, words in options or [
            ("--data", {"help": "folder with the data's files"}),
            ("--tool", {"default": str(ROOT / "build/release/gradwire")}),
        ]:
            parser.add_argument(name, **words)
        parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
        parser.add_argument("--only", default="*", help="runs whose name matches, e.g. 'n4-*'")
        parser.add_argument("--table", action="store_true", help="only make table.txt anew")
        args = parser.parse_args()
        if args.table:
            self.write_table()
            return 0
        if needs_data and not options and not args.data:
            parser.error("--data is needed")
        done = {row[self.columns[0]] for row in self.rows()}
        todo = [r for r in runs if r[0] not in done and fnmatch.fnmatch(r[0], args.only)]
        print(f"{len(done)} runs done, {len(todo)} to do", file=sys.stderr)
        start, failed = time.monotonic(), 0

        def one(run):
            try:
                row = run_one(args, run)
            except Failed as why:
                return f"{run[0]}: {why}", 1
            when = {"date": datetime.date.today().isoformat(), "machine": this_machine()}
            self.add({self.columns[0]: run[0], **row, **when})
            return f"{run[0]}: done", 0

        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            pending = [pool.submit(one, run) for run in todo]
            for i, future in enumerate(concurrent.futures.as_completed(pending), 1):
                text, bad = future.result()
                failed += bad
                left = (time.monotonic() - start) / i * (len(todo) - i)
                print(f"[{i}/{len(todo)}] {text}; about {left / 60:.0f} min left", file=sys.stderr, flush=True)
        return 1 if failed else 0


def put_between(text, begin, end, new):
    """Returns a page with another text between two marks. Each mark is a line of its own."""
    before, _, rest = text.partition(f"{begin}\n")
    _, found, after = rest.partition(f"{end}\n")
    if not found:
        sys.exit(f"the page has no place for what is made: a line {begin} and a line {end}")
    return f"{before}{begin}\n{new}{end}\n{after}"


def take_scale():
    """Takes --scale X out of the command line. None: it is not there."""
    if "--scale" not in sys.argv:
        return None
    at = sys.argv.index("--scale")
    scale = float(sys.argv[at + 1])
    del sys.argv[at : at + 2]
    return scale


def accuracy_of(rows):
    """Returns the test accuracy of these runs in percent: the mean, and a text of seven characters with the spread."""
    accuracies = [100 * float(row["test_accuracy"]) for row in rows]
    spread = f"{max(accuracies) - min(accuracies):7.2f}" if len(rows) > 1 else f"{'':7}"
    return statistics.mean(accuracies), spread


def train_torch(command, n, port, timeout):
    """Runs n processes of PyTorch that find each other at a port. Returns what each printed. timeout: seconds."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    environment.update(WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    return run_all([["env", f"RANK={rank}", *command] for rank in range(n)], timeout, env=environment)


def train(args, *words):
    """Runs `gradwire train`. Returns the summary. Replicas must be identical."""
    summary = tell([args.tool, "train", *words])
    if not summary["replicas_identical"]:
        raise Failed("replicas differ")
    return summary
