"""Makes the site of `make site`, and checks it: it has every document and command, and loads nothing from elsewhere.

    tests/house/site.py TOOL SOURCE_DIR

It is skipped if mkdocs or its theme is not installed."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def main():
    tool, source = map(pathlib.Path, sys.argv[1:])
    has_mkdocs = shutil.which("mkdocs")
    if (
        not has_mkdocs
        or "material" not in subprocess.run([has_mkdocs, "build", "--help"], capture_output=True, text=True).stdout
    ):
        print("skipped: mkdocs or its theme material is not installed")
        return 77
    if not (source / ".git").exists():
        print("skipped: this is no git checkout, so what belongs to the tree is not known")
        return 77
    with tempfile.TemporaryDirectory(prefix="gradwire-site-") as folder:
        site = pathlib.Path(folder)
        subprocess.run([source / "scripts/site.py", "--tool", tool, "-o", site], check=True, stdout=subprocess.DEVNULL)
        wanted = [page.relative_to(source).with_suffix(".html") for page in source.glob("docs/**/*.md")]
        wanted = [page.with_stem("index") if page.stem == "README" else page for page in wanted]
        wanted += map(pathlib.Path, ("index.html", "commands/codecs.html", "commands/server.html"))
        faults = [f"{page} is missing" for page in wanted if not (site / page).exists()]
        for page in site.glob("**/*.html"):
            for url in re.findall(
                r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?:[^"]*)', page.read_text()
            ):
                faults.append(f"{page.relative_to(site)} loads {url}")
        print("\n".join(faults) or f"{len(wanted)} pages")
        return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
