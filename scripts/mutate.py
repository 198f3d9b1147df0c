#!/usr/bin/env python3
"""Makes random one-token changes in a folder's C sources, one at a time, and looks whether the folder's tests notice.

    scripts/mutate.py src/link/tcp [--changes 40] [--seed 1] [--tests REGEX] [--keep FILE]

A change that no test notices is a survivor: it changes nothing, or only speed, or a test is missing. Survivors are
printed as they are found, and listed at the end. The work is done on a copy in build/mutate, so the checkout stays as
it is. The same seed makes the same changes.

The tests are those beside the sources; --tests names others by ctest's regular expression."""
import argparse
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "build/mutate"
TIMEOUT_S = 120  # of all tests of one change; without a change they take much less

# A token, and what may stand in its place.
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
    """[(offset, token, replacement)] of all changes of a file."""
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
    """Exit status, None if it took longer."""
    try:
        return subprocess.run(
            words, cwd=COPY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=timeout
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def make_copy(build):
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    for name in files.decode().split("\0"):
        source, target = ROOT / name, COPY / "source" / name
        if not name or not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copyfile(source, target)
            shutil.copymode(source, target)
    options = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -UNDEBUG"]
    words = ["cmake", "-G", "Ninja", "-S", "source", "-B", "build", "-DGW_BUILD_TESTS=ON", *options]
    if run(words) != 0 or run(build) != 0:
        sys.exit(f"the sources in {COPY} could not be built; try {' '.join(words)} there")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--changes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", help="default: those beside the sources")
    parser.add_argument("--keep", help="a file that the survivors are written to")
    args = parser.parse_args()
    folder = pathlib.Path(args.folder)
    sources = sorted(p for p in (ROOT / folder).rglob("*.c") if not p.name.endswith("_test.c"))
    names = sorted(p.stem for p in (ROOT / folder).rglob("*_test.c"))
    if not sources or not (names or args.tests):
        sys.exit(f"{folder} has no sources, or no tests beside them; name tests with --tests")
    tests = args.tests or f"^({'|'.join(names)})$"
    COPY.mkdir(parents=True, exist_ok=True)
    print(f"building a copy in {COPY}", file=sys.stderr)
    # The folder's tests alone are linked anew; what --tests names may need everything.
    build = ["cmake", "--build", "build", *([] if args.tests else ["--target", *names])]
    make_copy(build)
    ctest = ["ctest", "--test-dir", "build", "-R", tests, "--stop-on-failure", "-j", "2"]
    if run(ctest) != 0:
        sys.exit(f"the tests {tests} fail without any change")
    choice = random.Random(args.seed)
    all_places = [(p, *place) for p in sources for place in places(p)]
    picked = choice.sample(all_places, min(args.changes, len(all_places)))
    noticed, unbuilt, survivors, start = 0, 0, [], time.monotonic()
    for i, (path, at, old, new) in enumerate(picked, 1):
        name = path.relative_to(ROOT)
        target, text = COPY / "source" / name, path.read_text()
        target.write_text(text[:at] + new + text[at + len(old) :])
        line = text.count("\n", 0, at) + 1
        what = f"{name}:{line}: '{old}' becomes '{new}': {text.splitlines()[line - 1].strip()}"
        if run(build) != 0:
            unbuilt += 1
        elif run(ctest, TIMEOUT_S) == 0:
            survivors.append(what)
            print(f"survived: {what}", flush=True)
        else:
            noticed += 1
        target.write_text(text)
        left = (time.monotonic() - start) / i * (len(picked) - i)
        print(f"\r[{i}/{len(picked)}] {noticed} noticed, {len(survivors)} survived; about {left / 60:.0f} min left ",
              end="", file=sys.stderr, flush=True)  # fmt: skip
    print(file=sys.stderr)
    print(f"{folder}, seed {args.seed}: {len(picked)} changes, {unbuilt} of which do not compile; the tests noticed "
          f"{noticed}, and {len(survivors)} survived")  # fmt: skip
    if args.keep:
        pathlib.Path(args.keep).write_text("".join(f"{line}\n" for line in survivors))
    return 0


if __name__ == "__main__":
    sys.exit(main())
