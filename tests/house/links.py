"""Checks documents against the tree. A link of a document leads to something: to a file, and behind a # to a heading
of it, as GitHub names headings. So does a path from the top that it names as code (NAME stands for any name). The
notebook and the change log are history, and add-a-codec.md makes files. Some document links every table and picture of
docs/ and experiments/. Usage: links.py SOURCE_DIR"""

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)]*))?\)")
OTHER_TREES = ("docs/notebook/", "CHANGELOG.md", "docs/add-a-codec.md")


def missing_paths(text, paths):
    """Returns the paths from the top that a document names as code, and that are not there."""
    tops = {path.partition("/")[0] + "/" for path in paths if "/" in path}
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)  # examples make files of their own
    named = {word for word in re.findall(r"`([\w.*/\[\]-]+)`", prose) if word.startswith(tuple(tops))}
    patterns = {word: re.sub(r"NAME|\*+", "*", word).rstrip("/") for word in named}
    # `src/base/memory` stands for memory.c and memory.h
    there = lambda pattern: fnmatch.filter(paths, pattern) or fnmatch.filter(paths, pattern + ".[ch]")
    return sorted(word for word, pattern in patterns.items() if not there(pattern))


def headings(page):
    """Returns what links to the headings of a page have behind the #."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    plain = (re.sub(r"[^\w -]", "", heading.strip().lower()) for heading in re.findall(r"^#+ (.*)", prose, re.M))
    return {heading.replace(" ", "-") for heading in plain}


def main():
    source = Path(sys.argv[1]).resolve()
    listed = subprocess.run(["git", "ls-files"], cwd=source, stdout=subprocess.PIPE, text=True, check=False)
    names = listed.stdout.splitlines()
    if not names:
        print("skipped: this is no git checkout, so what belongs to the tree is not known")
        return 77
    paths = {str(path) for name in names for path in [Path(name), *Path(name).parents]}
    complaints, linked = [], set()
    for name in names:
        page = source / name
        if not name.endswith(".md") or not page.exists():
            continue
        if not name.startswith(OTHER_TREES):
            missing = missing_paths(page.read_text(), paths)
            complaints += [f"{name} names {path}, which is not there" for path in missing]
        for link, heading in LINK.findall(page.read_text()):
            if "://" in link:
                continue
            target = (page.parent / link).resolve() if link else page
            if not target.exists():
                complaints.append(f"{name} links {link}, which is not there")
            elif heading and (target.suffix != ".md" or heading not in headings(target)):
                complaints.append(f"{name} links {link}#{heading}, and there is no such heading")
            linked.add(str(target.relative_to(source)) if target.is_relative_to(source) else link)
    for name in names:
        shown = name.endswith((".svg", ".png")) or (name.startswith("experiments/") and name.endswith(".txt"))
        # machine.txt says where a table was made. The table repeats it, so no page needs a link to it.
        if shown and name.startswith(("docs/", "experiments/")) and not name.endswith("machine.txt"):
            if name not in linked and (source / name).exists():
                complaints.append(f"{name} is in the tree, and no document links it")
    print("\n".join(complaints) or f"{len(linked)} links lead somewhere")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
