#!/usr/bin/env python3
"""Makes a site of README, docs/, the tool's help and the pages of the C functions (`make docs`, if they are there).

    scripts/site.py [--tool build/release/gradwire] [--c-pages build/release/docs/html] [-o build/site]

Pages are copied with the files that they link, each in its place, so that links lead where they led. A link that leads
nowhere fails. The site loads nothing from elsewhere. Needs mkdocs and its theme material (Debian's packages mkdocs and
mkdocs-material)."""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s#]+)")


def indent_lists(text):
    """Python-Markdown wants four spaces before what belongs to an item of a list. Our pages have two."""
    lines, in_list = [], False
    for line in text.splitlines():
        if line and not line.startswith(" "):
            in_list = bool(re.match(r"(-|\d+\.) ", line))
        spaces = len(line) - len(line.lstrip(" "))
        lines.append(" " * spaces + line if in_list else line)
    return "\n".join(lines) + "\n"


def copy_pages(folder):
    """Returns the names of the pages."""
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=SOURCE, check=True, stdout=subprocess.PIPE, text=True)
    names = tracked.stdout.splitlines()
    for name in names:
        text = (SOURCE / name).read_text()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(indent_lists(text))
        for link in LINK.findall(text):
            target = (SOURCE / name).parent.joinpath(link).resolve()
            if "://" not in link and target.suffix != ".md" and target.is_file():
                copy = folder / target.relative_to(SOURCE)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(target, copy)
    return names


def write_commands(folder, tool):
    """Writes a page with the help of each command. Returns [(title, name of the page)]."""

    def help_of(*words):
        return subprocess.run([tool, "help", *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    pages = []
    for command in set(re.findall(r"^  ([a-z]+) ", help_of(), re.M)) - {"help"}:
        title, name = f"gradwire {command}", f"commands/{command}.md"
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"# {title}\n\n```text\n{help_of(command)}```\n")
        pages.append((title, name))
    return sorted(pages)


def navigation(folder, names, commands, has_c_pages):
    """The pages in the order in which README links them, then the others, then those of the notebook."""
    first = LINK.findall((SOURCE / "README.md").read_text())
    names = sorted(names, key=lambda name: (first.index(name) if name in first else len(first), name))
    groups = {"Manual": [], "On several machines": [], "Notebook": []}
    for name in names:
        if name != "README.md":
            group = {"docs/clusters": "On several machines", "docs/notebook": "Notebook"}.get(
                str(pathlib.Path(name).parent), "Manual"
            )
            title = re.search(r"^# (.*)$", (folder / name).read_text(), re.M)[1]
            groups[group].append({title: name})
    menu = [{"Gradwire": "README.md"}, *({title: pages} for title, pages in groups.items())]
    menu.append({"Commands": [{title: name} for title, name in commands]})
    return menu + ([{"C functions": "c/index.html"}] if has_c_pages else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=SOURCE / "build/release/gradwire", type=pathlib.Path)
    parser.add_argument("--c-pages", default=SOURCE / "build/release/docs/html", type=pathlib.Path)
    parser.add_argument("-o", dest="out", default=SOURCE / "build/site", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gradwire-site-") as temporary:
        folder = pathlib.Path(temporary) / "pages"
        names, commands = copy_pages(folder), write_commands(folder, args.tool)
        has_c_pages = (args.c_pages / "index.html").exists()
        if has_c_pages:
            shutil.copytree(args.c_pages, folder / "c")
        settings = {
            "site_name": "Gradwire",
            "docs_dir": str(folder),
            "use_directory_urls": False,  # so that a browser can open the files
            "theme": {"name": "material", "font": False},
            "plugins": ["search"],
            "markdown_extensions": ["tables", "fenced_code", {"toc": {"toc_depth": 3}}],
            "nav": navigation(folder, names, commands, has_c_pages),
        }
        config = pathlib.Path(temporary) / "mkdocs.yml"
        config.write_text(json.dumps(settings))  # JSON is YAML
        words = ["mkdocs", "build", "--strict", "--quiet", "--config-file", config, "--site-dir", args.out.resolve()]
        if subprocess.run(words).returncode:
            return 1
    print(args.out / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
