"""Holds the format of the sources: 120 columns, a first sentence in every file, which files are executable,
clang-format and black.

    tests/house/format.py [FOLDER]

Looks at the files that git tracks, so it is skipped outside a checkout. If clang-format 14 or black is missing, it says
so and checks the rest: other versions lay out the same code in another way."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

COLUMNS = 120
SOURCES = (".c", ".h")
# These files keep to the limit of columns. Tables of results and golden files are data, and need not.
TEXTS = (*SOURCES, ".py", ".sh", ".md", ".1", ".cmake", ".html", ".css", ".js", ".service", ".in", ".supp")
NAMES = ("Makefile", "CMakeLists.txt", ".clang-format", "run")


def tracked(folder):
    """Returns the paths of the tracked files that are still there."""
    try:
        listing = subprocess.run(["git", "-C", folder, "ls-files", "-z"], stdout=subprocess.PIPE, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        print("skipped: this is no git checkout, or git is not installed")
        sys.exit(77)
    paths = (folder / name for name in listing.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file()]


def long_lines(path, text):
    return [
        f"{path}:{number}: {len(line)} columns; {COLUMNS} are the most"
        for number, line in enumerate(text.split("\n"), 1)
        if len(line) > COLUMNS
    ]


def first_sentence(path, text):
    """Checks that a source begins with a comment of at least three words. A script has its #! line before that, and a
    page its doctype: with anything before the doctype, browsers use the rules of old pages."""
    body = re.sub(r"\A(#!|<!DOCTYPE html>).*\n", "", text)
    opening = {
        ".c": r"/\*",
        ".h": r"/\*",
        ".html": "<!--",
        ".css": r"/\*",
        ".js": r"/\*",
        ".py": r'(?:"""|#)',
        ".sh": "#",
    }.get(path.suffix, "#")
    if re.match(opening + r"\s*\w+\W+\w+\W+\w+", body):
        return []
    return [f"{path}:1: begin the file with a comment: a sentence that says what the file is for"]


def formatter(command, version, paths):
    """Returns what a formatter would change. If it has not the version that made the sources, this returns nothing."""
    if not shutil.which(command[0]):
        print(f"left out: {command[0]} is not installed")
        return []
    said = subprocess.run([command[0], "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()
    if not re.search(version, said):
        print(f"left out: {said}; the sources are laid out by version {version}")
        return []
    done = subprocess.run([*command, *paths], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not done.returncode:
        return []
    lines = [
        line for line in done.stdout.split("\n") if re.search(r"error:|would reformat /|would reformat \S+\.py", line)
    ]
    return [*(lines or [done.stdout]), "`make format` puts that right"]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    paths = tracked(folder)
    faults = []
    for path in paths:
        if path.suffix in TEXTS or path.name in NAMES:
            text = path.read_text()
            faults += long_lines(path.relative_to(folder), text)
            if text.startswith("#!") != os.access(path, os.X_OK):
                faults.append(f"{path.relative_to(folder)}: a file may be executed if it begins with #!, else not")
            if path.suffix in (*SOURCES, ".html", ".css", ".js", ".py", ".sh", ".supp"):
                faults += first_sentence(path.relative_to(folder), text)
    sources = [str(path) for path in paths if path.suffix in SOURCES]
    faults += formatter(["clang-format", "--dry-run", "-Werror"], r"version 14\.", sources)
    scripts = [str(path) for path in paths if path.suffix == ".py"]
    faults += formatter(["black", "--check", "--config", str(folder / "pyproject.toml")], r"black, 23\.", scripts)
    print("\n".join(faults) or f"{len(paths)} files looked at")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
