"""Checks documents against the tree. A link of a document leads to something. Some document links every table and
picture of docs/ and experiments/. Usage: links.py SOURCE_DIR"""

import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def main():
    source = Path(sys.argv[1]).resolve()
    listed = subprocess.run(["git", "ls-files"], cwd=source, stdout=subprocess.PIPE, text=True, check=False)
    names = listed.stdout.splitlines()
    if not names:
        print("skipped: this is no git checkout, so what belongs to the tree is not known")
        return 77
    complaints, linked = [], set()
    for name in names:
        page = source / name
        if not name.endswith(".md") or not page.exists():
            continue
        for link in LINK.findall(page.read_text()):
            if "://" in link:
                continue
            target = (page.parent / link).resolve()
            if not target.exists():
                complaints.append(f"{name} links {link}, which is not there")
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
