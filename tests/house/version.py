"""Gradwire's version is in CMakeLists.txt. The headers, the Python package, the changes and Debian's changelog say
the same, and so do those who name the library by its SONAME. docs/wire-format.md has the version of the exchange's
messages.

    tests/house/version.py SOURCE_DIR"""
import pathlib
import re
import sys


def first(path, pattern):
    """Returns the groups of the first match, joined with dots."""
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit(f"{path}: nothing here looks like {pattern}")
    return ".".join(found.groups())


def main():
    root = pathlib.Path(sys.argv[1])
    cmake = root / "CMakeLists.txt"
    version = first(cmake, r"^project\(gradwire VERSION ([0-9.]+)")
    soversion = first(cmake, r"^set\(GW_SOVERSION (\d+)\)")
    soname = f"libgradwire.so.{soversion}"
    numbers = r".*".join(rf"#define GW_VERSION_{part} (\d+)" for part in ("MAJOR", "MINOR", "PATCH"))
    debian = root / "packaging/debian"
    says = [
        (root / "include/gradwire/context.h", numbers, version),
        (root / "python/gradwire/_library.py", r'^VERSION = "([^"]+)"', version),
        (root / "python/gradwire/_library.py", r'^NAME = "([^"]+)"', soname),
        (root / "src/link/load_mpi.c", r'^#define LIBRARY "([^"]+)"', f"libgradwire_mpi.so.{soversion}"),
        (root / "python/build_wheel.py", r'^LIBRARY = "([^"]+)"', soname),
        (root / "CHANGELOG.md", r"^## (\S+)", version),
        (debian / "changelog", r"\Agradwire \(([^-)]+)", version),
        (debian / "control", r"^Package: libgradwire(\d+)$", soversion),
        (debian / f"libgradwire{soversion}.symbols", r"\A(\S+) libgradwire", soname),
    ]
    messages = first(root / "src/exchange/message.h", r"^#define MESSAGE_VERSION (\d+)")
    if first(root / "docs/wire-format.md", r"version of these messages, which is (\d+)") != messages:
        sys.exit(f"docs/wire-format.md has another version of the exchange's messages than {messages}")
    faults = [
        f"{path.relative_to(root)} says {found}; CMakeLists.txt makes it {wanted}"
        for path, pattern, wanted in says
        if (found := first(path, pattern)) != wanted
    ]
    print("\n".join(faults) or f"version {version}, {soname}: all agree")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
