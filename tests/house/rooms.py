"""Compares docs/design.md with the tree. It must name every folder at the top and every folder within src, train, tool
and bench. Every file and folder that it names must be there. Usage: rooms.py SOURCE_DIR

A heading such as "Codecs: src/codec" says where a section is at home. A name in such a section belongs to that folder
or to one within it. With a slash it may also be a path from the top, from src or from include."""

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

PAGE = "docs/design.md"
WITHIN = ("src", "train", "tool", "bench")
FILE = re.compile(r"\.(c|h|py|sh|md|html|css|js)$")


def tree(source):
    """Returns the paths of the tracked files that are there, and of all folders that hold one."""
    listed = subprocess.run(["git", "ls-files"], cwd=source, stdout=subprocess.PIPE, text=True, check=False)
    files = {name for name in listed.stdout.splitlines() if (source / name).exists()}
    folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    return files, folders


def sections(text, folders):
    """Yields (home, text) of every section, beginning with the heading. home: "" if the heading names no folder."""
    for part in re.split(r"^(?=## )", text, flags=re.M):
        words = part.split("\n", 1)[0].split()
        yield next((word for word in words if word in folders), ""), part


def names_in(part):
    """Yields what looks like a path: in a heading, or as code, or with a slash in bold type."""
    for heading in re.findall(r"^##.*", part, re.M):
        yield from (word for word in heading.split() if "/" in word)
    prose = re.sub(r"^```.*?^```", "", part, flags=re.M | re.S)  # not drawings
    for text in [*re.findall(r"`([^`]+)`", prose), *re.findall(r"\*\*([\w/-]+/)\*\*", prose)]:
        for word in re.split(r"[\s,]+", text):
            if re.fullmatch(r"[\w.*/-]+", word) and ("/" in word or FILE.search(word)):
                yield word


def find(name, home, paths):
    """Returns the paths that a name can mean. It may hold a *, and NAME stands for any name."""
    pattern = re.sub(r"NAME|\*", "*", name.rstrip("/"))
    wanted = [f"{home}/{pattern}", f"{home}/*/{pattern}"] if home else [pattern, f"*/{pattern}"]
    if "/" in name:
        wanted += [pattern, f"src/{pattern}", f"include/{pattern}"]
    return {path for path in paths for one in wanted if fnmatch.fnmatchcase(path, one)}


def main():
    source = Path(sys.argv[1]).resolve()
    files, folders = tree(source)
    if not files:
        print("skipped: this is no git checkout, so what belongs to the tree is not known")
        return 77
    complaints, named = [], set()
    for home, part in sections((source / PAGE).read_text(), folders):
        for name in names_in(part):
            found = find(name, home, folders if name.endswith("/") else files | folders)
            if not found:
                complaints.append(f"{PAGE} names {name}, which is not in {home or 'the tree'}")
            if "/" in name:
                named |= found | {str(parent) for path in found for parent in Path(path).parents}
    for folder in sorted(folders - named):
        if "/" not in folder or folder.startswith(tuple(f"{top}/" for top in WITHIN)):
            complaints.append(f"{PAGE} does not name the folder {folder}/")
    print("\n".join(complaints) or f"{PAGE} names {len(named & folders)} folders, and all are there")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
