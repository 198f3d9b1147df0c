"""The build backend of the package (PEP 517 and 660), with Python's standard library alone.

The wheel needs libgradwire of its own version. If one is installed, the wheel goes without. Else it is built from the
checkout around this folder, by CMake, and goes into the wheel."""
import base64
import ctypes
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = "libgradwire.so.0"
# What a build needs: (its name, one of these programs or a condition of pkg-config, Debian's package).
PROGRAMS = (("CMake", ("cmake",), "cmake"), ("make", ("make",), "make"))
PROGRAMS += (("a C compiler", ("cc", "gcc", "clang"), "gcc"),)
PKG_CONFIG = os.environ.get("PKG_CONFIG", "pkg-config")
LIBRARIES = (("OpenSSL 3", "openssl >= 3", "libssl-dev"), ("libxxhash", "libxxhash", "libxxhash-dev"))
SUMMARY = "Makes the gradients of distributed training small on the wire, and moves them"


def _version():
    text = (HERE / "gradwire/_library.py").read_text(encoding="utf-8")
    return re.search(r'^VERSION = "([0-9.]+)"', text, re.MULTILINE).group(1)


def _is_installed():
    """True if the system has the library, in this version."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    library.gw_version.restype = ctypes.c_char_p
    return library.gw_version().decode() == _version()


def _missing():
    """Returns [(what a build needs and this machine lacks, Debian's package)]."""
    # The user chooses these. CMake itself says if they are missing.
    own = {"make": "CMAKE_GENERATOR", "a C compiler": "CC"}
    missing = [
        (what, package)
        for what, names, package in PROGRAMS
        if not os.environ.get(own.get(what, "")) and not any(map(shutil.which, names))
    ]
    if not shutil.which(PKG_CONFIG):
        return [*missing, ("pkg-config", "pkg-config"), *((what, package) for what, _, package in LIBRARIES)]
    for what, condition, package in LIBRARIES:
        if subprocess.run([PKG_CONFIG, "--exists", condition], check=False, capture_output=True).returncode:
            missing.append((what, package))
    return missing


def _build():
    """Builds the library from the checkout, and returns its bytes."""
    source = HERE.parent
    if not (source / "CMakeLists.txt").exists():
        sys.exit(
            f"{LIBRARY} {_version()} is not installed, and there is no checkout around {HERE} to build it from; "
            "install the library first (make install), or install from a checkout"
        )
    missing = _missing()
    if missing:
        sys.exit(
            f"{LIBRARY} {_version()} is not installed, and building it needs {', '.join(what for what, _ in missing)}; "
            f"on Debian: apt-get install --no-install-recommends {' '.join(package for _, package in missing)}"
        )
    with tempfile.TemporaryDirectory(prefix="gradwire-wheel-") as folder:
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DGW_BUILD_TOOL=OFF", "-DGW_BUILD_TRAIN=OFF", "-DGW_BUILD_TESTS=OFF"]
        for command in (
            ["cmake", "-S", str(source), "-B", folder, "-DGW_MPI=off", "-DGW_SQLITE=OFF", *options],
            ["cmake", "--build", folder, "--parallel", str(os.cpu_count() or 1), "--target", "gradwire"],
        ):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
        return (pathlib.Path(folder) / LIBRARY).read_bytes()


def _metadata():
    return (
        f"Metadata-Version: 2.1\nName: gradwire\nVersion: {_version()}\nSummary: {SUMMARY}\n" "Requires-Python: >=3.9\n"
    )


def _write(path, files, tag):
    """files: {name in the wheel: bytes}. Dates are fixed, so that the same files make the same wheel."""
    info = f"gradwire-{_version()}.dist-info"
    pure = "true" if tag.endswith("any") else "false"
    files = {
        **files,
        f"{info}/METADATA": _metadata().encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: gradwire\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode(),
    }
    record = io.StringIO()
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.write(f"{name},sha256={digest},{len(content)}\n")
    record.write(f"{info}/RECORD,,\n")
    files[f"{info}/RECORD"] = record.getvalue().encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if name.endswith(LIBRARY) else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)


def _finish(folder, files, tag):
    name = f"gradwire-{_version()}-{tag}.whl"
    temporary = os.path.join(folder, f".{name}.new")
    _write(temporary, files, tag)
    os.replace(temporary, os.path.join(folder, name))
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {str(p.relative_to(HERE)): p.read_bytes() for p in sorted((HERE / "gradwire").rglob("*.py"))}
    if _is_installed():
        return _finish(wheel_directory, files, "py3-none-any")
    files[f"gradwire/{LIBRARY}"] = _build()
    platform = re.sub(r"[^A-Za-z0-9_]", "_", sysconfig.get_platform())
    return _finish(wheel_directory, files, f"py3-none-{platform}")


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """For `pip install -e ./python`: takes the checkout's own files, and the library of its build folder."""
    return _finish(wheel_directory, {"gradwire.pth": f"{HERE}\n".encode()}, "py3-none-any")


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
