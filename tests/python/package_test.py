"""Tests that `pip install ./python` works without a network in a fresh environment, and that the package then finds the
library that it brought. Skips if Debian's python3-venv is not installed."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

try:
    import ensurepip
    import venv
except ImportError:
    print("skipped: python3-venv is not installed")
    sys.exit(77)


def files_of_the_checkout():
    return sorted(str(p) for p in (ROOT / "python").rglob("*") if "__pycache__" not in p.parts)


class Package(unittest.TestCase):
    def test_pip_install(self):
        before = files_of_the_checkout()
        with tempfile.TemporaryDirectory(prefix="gradwire-package-") as folder:
            venv.create(folder, with_pip=True, system_site_packages=True)
            python = os.path.join(folder, "bin/python")
            environment = {k: v for k, v in os.environ.items() if k not in ("GRADWIRE_LIBRARY", "PYTHONPATH")}

            def run(*command):
                done = subprocess.run(
                    [python, *command], cwd=folder, env=environment, text=True, capture_output=True, check=False
                )
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                return done.stdout.strip()

            run("-m", "pip", "install", "--no-index", "--quiet", str(ROOT / "python"))
            place = run("-c", "import gradwire._library as l; print(l.load()._name, l.VERSION)")
            name, version = place.split()
            self.assertTrue(name == "libgradwire.so.0" or name.startswith(folder), name)
            self.assertEqual(version, run("-c", "import importlib.metadata as m; print(m.version('gradwire'))"))
            listed = run("-c", "import gradwire, os; print(sorted(os.listdir(os.path.dirname(gradwire.__file__))))")
            self.assertIn("'torch'", listed)
        self.assertEqual(files_of_the_checkout(), before, "building left files in the checkout")

    def test_what_building_needs(self):
        """On a machine that has only Python, one sentence names all that is missing."""
        with tempfile.TemporaryDirectory(prefix="gradwire-package-") as folder:
            script = "import build_wheel; build_wheel._is_installed = lambda: False; build_wheel.build_wheel('.')"
            environment = {k: v for k, v in os.environ.items() if k not in ("CC", "CMAKE_GENERATOR", "PKG_CONFIG")}
            environment.update(PATH=folder, PYTHONPATH=str(ROOT / "python"), PYTHONDONTWRITEBYTECODE="1")
            done = subprocess.run(
                [sys.executable, "-c", script], cwd=folder, env=environment, text=True, capture_output=True, check=False
            )
        self.assertEqual(done.returncode, 1)
        self.assertIn("needs CMake, make, a C compiler, pkg-config, OpenSSL 3, libxxhash;", done.stderr)
        packages = "cmake make gcc pkg-config libssl-dev libxxhash-dev\n"
        self.assertTrue(done.stderr.endswith(f"apt-get install --no-install-recommends {packages}"), done.stderr)


if __name__ == "__main__":
    assert ensurepip
    unittest.main()
