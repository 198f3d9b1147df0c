"""Checks that every public function is explained on a page that Doxygen makes from the headers, in HTML and as a manual
page.

    tests/house/api_pages.py BUILD_DIR SOURCE_DIR

It is skipped if Doxygen is not installed."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

# gw_link_open finds these by name in the library of the mpi link (src/link/mpi/world.h).
FOUND_BY_NAME = {"gw_link_mpi_end", "gw_link_mpi_world"}


def main():
    build, source = map(pathlib.Path, sys.argv[1:])
    if not (build / "Doxyfile").exists():
        print("skipped: Doxygen is not installed")
        return 77
    with tempfile.TemporaryDirectory(prefix="gradwire-pages-") as folder:
        options = f"OUTPUT_DIRECTORY={folder}\nGENERATE_XML=YES\nWARN_AS_ERROR=FAIL_ON_WARNINGS\n"
        done = subprocess.run(
            ["doxygen", "-"], input=(build / "Doxyfile").read_text() + options, text=True, stderr=subprocess.PIPE
        )
        if done.returncode:
            print(done.stderr)
            return 1
        return look(pathlib.Path(folder), source)


def look(folder, source):
    headers = "".join(path.read_text() for path in (source / "include/gradwire").glob("*.h"))
    declared = set(re.findall(r"^GW_API [^;(]*?\b(gw_\w+)\(|^(?!GW_API)(gw_\w+)\(", headers, re.MULTILINE))
    declared = {name for names in declared for name in names if name}
    lists = (source / "packaging/debian").glob("*.symbols")
    listed = {name for path in lists for name in re.findall(r"^ (gw_\w+)@", path.read_text(), re.MULTILINE)}
    faults = [f"{name}: exported, and in no public header" for name in sorted(listed - declared - FOUND_BY_NAME)]
    explained = set()
    for path in (folder / "xml").glob("*.xml"):
        for member in xml.parse(path).iter("memberdef"):
            words = " ".join(member.find("briefdescription").itertext()) + " ".join(
                member.find("detaileddescription").itertext()
            )
            if member.get("kind") == "function" and len(words.split()) >= 3:
                explained.add(member.findtext("name"))
    if shutil.which("mandoc"):
        pages = [str(p) for p in (folder / "man/man3").glob("g[rw]*.3") if not p.read_text().startswith(".so")]
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "error", *pages], text=True, stdout=subprocess.PIPE)
        faults += lint.stdout.splitlines()
    first = (folder / "html/index.html").read_text()
    for path in (source / "include/gradwire").glob("*.h"):
        group = "gradwire" if path.stem == "gradwire" else f"gradwire_{path.stem}"
        if path.stem != "gradwire" and f'href="group__{group.replace("_", "__")}.html"' not in first:
            faults.append(f"{path.name}: the first page has no link to it")
    html = "".join(path.read_text() for path in (folder / "html").glob("group__*.html"))
    for name in sorted(declared):
        if name not in explained:
            faults.append(f"{name}: no comment stands above it, or above the functions that it follows directly")
        if not (folder / f"man/man3/{name}.3").exists() or f">{name}</a>" not in html.replace("&#160;", ""):
            faults.append(f"{name}: Doxygen made no page of it; docs/api/filter.py says which comments it takes")
    print("\n".join(faults) or f"{len(declared)} functions are explained")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
