"""Builds what docs/add-a-codec.md says, beside the library that is built, and runs its program.

    walkthrough.py SOURCE LIBRARY.a COMPILER LINKED..."""
import pathlib
import re
import subprocess
import sys
import tempfile

source, library, compiler = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
text = (source / "docs/add-a-codec.md").read_text()
blocks = re.findall(r"^([^\n]*)\n\n```c\n(.*?)```", text, re.M | re.S)
files = {}
for before, code in blocks:
    named = re.fullmatch(r"`(\S+)`:", before)
    behind = re.fullmatch(r"In `(\S+)`, behind `(\S+)`:", before)
    if named:
        files[named[1]] = code
    elif behind:
        old = files.get(behind[1]) or (source / behind[1]).read_text()
        assert old.count(f"    {behind[2]}") == 1, behind[2]
        files[behind[1]] = old.replace(f"    {behind[2]}", f"    {behind[2]} \\\n    {code.strip()}")
    else:
        files["program.c"] = code
assert len(files) == 3, sorted(files)

with tempfile.TemporaryDirectory() as folder:
    paths = []
    for name, code in files.items():
        paths.append(pathlib.Path(folder) / pathlib.Path(name).name)
        paths[-1].write_text(code)
    program = pathlib.Path(folder) / "program"
    # This table of records comes first, so the linker takes it, and not the library's own.
    flags = ["-std=gnu17", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", f"-I{source}/src", f"-I{source}/include"]
    subprocess.run([compiler, *flags, *paths, "-o", program, library, *sys.argv[4:]], check=True)
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.returncode
    assert "\ncut      elements of at least a magnitude" in done.stdout, done.stdout
    assert "\nonebit " in done.stdout, done.stdout
