#!/usr/bin/env python3
"""Makes random one-token changes in a folder's C sources, one at a time, and looks whether the folder's tests notice.

    scripts/mutate.py src/link/tcp [--changes 40] [--seed 1] [--tests REGEX] [--others REGEX] [--keep FILE] [--jobs 2]
    scripts/mutate.py src/link/tcp --at tcp.c:60 --at wire.c:179      # every change of these lines instead

A change that no test notices is a survivor: it changes nothing, or only speed, or a test is missing. Survivors are
printed as they are found, and so are changes with which the tests take too long: most of them hang, but look at these
too. The work is done on a copy in build/mutate, so the checkout stays as it is. The same seed makes the same changes.
Files that this machine's build leaves out are left alone. A change of which the compiler makes the same code, as in
another processor's kernels, changes nothing.

The tests are those beside the sources, with every instruction set; --tests names others by ctest's regular expression.
Those with the label "fast" run first, and the others only if these noticed nothing. With --others, a change that these
tests let pass is tried once more with the tests of other folders whose names match."""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "build/mutate"
TIMEOUT_S = 120  # for all tests of one change; or it is four times what they take without a change

# A token, and the tokens that may take its place.
CHANGES = {
    "<": ["<=", ">"],
    "<=": ["<", ">"],
    ">": [">=", "<"],
    ">=": [">", "<"],
    "==": ["!="],
    "!=": ["=="],
    "&&": ["||"],
    "||": ["&&"],
    "+": ["-"],
    "-": ["+"],
    "++": ["--"],
    "--": ["++"],
    "+=": ["-="],
    "-=": ["+="],
    "!": [""],
    "true": ["false"],
    "false": ["true"],
    "continue": ["break"],
    "break": ["continue"],
}
TOKEN = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*"  # not changed
    r"|(?P<word>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<sign><<=|>>=|<<|>>|->|\+\+|--|&&|\|\||[-+*/%&|^=<>!]=|[-+!<>])",
    re.S | re.M,
)


def places(path):
    """Returns [(offset, token, replacement)] for all changes of a file."""
    found, text = [], path.read_text()
    for match in TOKEN.finditer(text):
        token = match.group()
        if match.lastgroup == "number" and re.fullmatch(r"\d+[uUlL]*", token):
            digits = re.match(r"\d+", token).group()
            found.append((match.start(), token, str(int(digits) + 1) + token[len(digits) :]))
        elif match.lastgroup in ("word", "sign"):
            found += [(match.start(), token, new) for new in CHANGES.get(token, [])]
    return found


def run(words, timeout=None):
    """Runs a command. Returns its exit status. None: it took longer. Then all that it started is ended, too."""
    process = subprocess.Popen(
        words, cwd=COPY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:
            end_session(process.pid)
            process.wait()


def end_session(session):
    """Ends all processes of a session. A test has a process group of its own, but it is in ctest's session."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass


def make_copy():
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    for left in (COPY / "source").rglob("*"):  # files of an earlier copy
        if left.is_file() and str(left.relative_to(COPY / "source")) not in files:
            left.unlink()
    for name in files:
        source, target = ROOT / name, COPY / "source" / name
        if not name or not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copyfile(source, target)
            shutil.copymode(source, target)
    options = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -UNDEBUG"]
    options.append("-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    words = ["cmake", "-G", "Ninja", "-S", "source", "-B", "build", "-DGW_BUILD_TESTS=ON", *options]
    if run(words) != 0:
        sys.exit(f"the sources in {COPY} could not be configured; try {' '.join(words)} there")


def targets(tests):
    """Returns options of cmake --build for the tests that a regular expression names. There are none if one of the
    tests is no program of its own."""
    words = ["ctest", "--test-dir", "build", "-N", "-R", tests]
    said = subprocess.run(words, cwd=COPY, stdout=subprocess.PIPE, text=True)
    found = {name.split("@")[0] for name in re.findall(r"Test +#\d+: (\S+)", said.stdout)}
    programs = {p.stem for p in ROOT.glob("*/**/*_test.c")}
    return ["--target", *sorted(found)] if found and found <= programs else []


def is_at(folder, place, lines):
    path, at = place[0], place[1]
    return f"{path.relative_to(ROOT / folder)}:{path.read_text().count(chr(10), 0, at) + 1}" in lines


def objects():
    """Returns {source: object} for all sources of the checkout that the copy's build compiles. Sources have the
    checkout's names."""
    commands = json.loads((COPY / "build/compile_commands.json").read_text())
    here, found = (COPY / "source").resolve(), {}
    for c in commands:
        if here not in pathlib.Path(c["file"]).parents:
            continue  # the build has made this source itself
        made = COPY / "build" / re.search(r" -o (\S+)", c["command"]).group(1)
        found.setdefault(ROOT / pathlib.Path(c["file"]).relative_to(here), made)
    return found


def tell(tests, jobs, timeout=None):
    """Runs the tests of the copy. Returns passed, failed, or hung if they take longer."""
    begin = time.monotonic()
    for label in ("fast", "slow"):
        left = timeout and max(1, timeout - (time.monotonic() - begin))
        words = ["ctest", "--test-dir", "build", "-R", tests, "-L", label, "--stop-on-failure", "-j", str(jobs)]
        status = run(words, left)
        if status != 0:
            return "hung" if status is None else "failed"
    return "passed"


def main():
    global COPY
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--changes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="no further change is begun after so long")
    parser.add_argument("--tests", help="default: those beside the sources")
    parser.add_argument("--others", help="a regular expression: tests of other folders that may notice too")
    parser.add_argument("--at", action="append", help="FILE:LINE, FILE below the folder; all changes there")
    parser.add_argument("--keep", help="a file that the survivors are written to")
    parser.add_argument("--copy", default=COPY, help="where to work, if two run side by side (default build/mutate)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers and tests at a time (default 2)")
    args = parser.parse_args()
    COPY = pathlib.Path(args.copy).resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # this exit passes through run(), which ends what it started
    folder = pathlib.Path(args.folder).resolve()
    if not folder.is_relative_to(ROOT):
        sys.exit(f"{args.folder} is not in {ROOT}")
    folder = folder.relative_to(ROOT)
    if args.changes < 1:
        parser.error("--changes must be 1 or more")
    for place in args.at or []:
        path, _, line = place.rpartition(":")
        if not line.isdigit() or not (ROOT / folder / path).is_file():
            parser.error(f"--at {place}: it must be FILE:LINE, and FILE must be in {folder}")
    sources = sorted(p for p in (ROOT / folder).rglob("*.c") if not p.name.endswith("_test.c"))
    names = sorted(p.stem for p in (ROOT / folder).rglob("*_test.c"))
    if not sources or not (names or args.tests):
        sys.exit(f"{folder} has no sources, or no tests beside them; name tests with --tests")
    tests = args.tests or f"^({'|'.join(names)})(@.*)?$"
    COPY.mkdir(parents=True, exist_ok=True)
    print(f"building a copy in {COPY}", file=sys.stderr)
    make_copy()
    compile_tests = ["cmake", "--build", "build", "-j", str(args.jobs)]
    build = [*compile_tests, *targets(tests)]
    if run(build) != 0:
        sys.exit(f"the sources in {COPY} could not be built; try {' '.join(build)} there")
    begin = time.monotonic()
    if tell(tests, args.jobs) != "passed":
        sys.exit(f"the tests {tests} fail without any change")
    timeout = max(TIMEOUT_S, 4 * (time.monotonic() - begin))
    build_others = args.others and [*compile_tests, *targets(args.others)]
    if args.others and (run(build_others) != 0 or tell(args.others, args.jobs) != "passed"):
        sys.exit(f"the tests {args.others} fail without any change")
    object_of = objects()
    sources = [p for p in sources if p in object_of]
    unchanged = {}  # what the compiler makes of a file as it is
    choice = random.Random(args.seed)
    all_places = [(p, *place) for p in sources for place in places(p)]
    picked = choice.sample(all_places, min(args.changes, len(all_places)))
    if args.at:
        picked = [place for place in all_places if is_at(folder, place, args.at)]
    if not picked:
        sys.exit("there is nothing to change at these places")
    counts, survivors, start = collections.Counter(), [], time.monotonic()
    for path, at, old, new in picked:
        if args.minutes is not None and time.monotonic() - start > 60 * args.minutes:
            break
        target, text, made = COPY / "source" / path.relative_to(ROOT), path.read_text(), object_of[path]
        if path not in unchanged:
            unchanged[path] = made.read_bytes() if made.exists() else None
        target.write_text(text[:at] + new + text[at + len(old) :])
        line = text.count("\n", 0, at) + 1
        what = f"{path.relative_to(ROOT)}:{line}: '{old}' becomes '{new}': {text.splitlines()[line - 1].strip()}"
        if run(build) != 0:
            outcome = "not compiled"
        elif unchanged[path] and made.read_bytes() == unchanged[path]:
            outcome = "same code"
        else:
            outcome = {"passed": "survived", "failed": "noticed", "hung": "hung"}[tell(tests, args.jobs, timeout)]
        if outcome == "survived" and args.others:
            run(build_others)
            outcome = "survived" if tell(args.others, args.jobs, 4 * timeout) == "passed" else "noticed elsewhere"
        if outcome not in ("not compiled", "noticed"):
            print(f"{outcome}: {what}", flush=True)
        if outcome == "survived":
            survivors.append(what)
        target.write_text(text)
        counts[outcome] += 1
        n = counts.total()
        left = (time.monotonic() - start) / n * (len(picked) - n)
        print(f"\r[{n}/{len(picked)}] {counts['noticed']} noticed, {len(survivors)} survived; about {left / 60:.0f} "
              "min left ", end="", file=sys.stderr, flush=True)  # fmt: skip
    print(file=sys.stderr)
    print(f"seed {args.seed}; " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())))
    noticed = counts["noticed"] + counts["noticed elsewhere"] + counts["hung"]
    print(f"{counts.total()} changes, {noticed} noticed, {len(survivors)} not")
    if args.keep:
        pathlib.Path(args.keep).write_text("".join(f"{line}\n" for line in survivors))
    return 0


if __name__ == "__main__":
    sys.exit(main())
