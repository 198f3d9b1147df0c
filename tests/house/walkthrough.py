"""Does what docs/add-a-codec.md says. The build compiles what `write` writes: a program, and a tool that has the codec.

    walkthrough.py write SOURCE FOLDER
    walkthrough.py run SOURCE PROGRAM [TOOL]"""
import json
import pathlib
import re
import shlex
import subprocess
import sys

# The page's commands as the test runs them: with less work, and with an answer that it can read.
LESS = {
    "codecs": ["--json"],
    "bench": ["--elements", "10K", "--runs", "2", "--json"],
    "train": ["--steps", "2", "--json"],
}


def write(source, folder):
    """Writes cut.c, registry.c and program.c."""
    files = {}
    for before, code in re.findall(r"^([^\n]*)\n\n<!-- run by \S+ -->\n\n```c\n(.*?)```", page(source), re.M | re.S):
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
    for name, code in files.items():
        (folder / pathlib.Path(name).name).write_text(code)


def page(source):
    return (source / "docs/add-a-codec.md").read_text()


def output_of(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"{words}: {done.returncode}"
    return done.stdout


def run(source, program, tool=None):
    said = output_of(program)
    assert "\ncut      elements of at least a magnitude" in said, said
    assert "\nonebit " in said, said
    if not tool:
        print("left out: the page's commands, as there is no tool")
        return
    section = re.search(r"^## 4\..*?(?=^## )", page(source), re.M | re.S)[0]
    commands = [shlex.split(words) for words in re.findall(r"`gradwire ([^`]+)`", section)]
    assert sorted(words[0] for words in commands) == sorted(LESS), commands
    has_trainer = "\n  train " in output_of(tool, "help")
    answers = {
        words[0]: json.loads(output_of(tool, *words, *LESS[words[0]]))
        for words in commands
        if words[0] != "train" or has_trainer
    }
    (codec,) = answers["codecs"]["codecs"]
    assert codec["name"] == "cut" and [option["key"] for option in codec["options"]] == ["below"], codec
    rows = answers["bench"]["results"]
    assert rows and all(row["codec"].startswith("cut") and row["memcpy_ratio"] > 0 for row in rows), rows
    if has_trainer:
        assert answers["train"]["codec"].startswith("cut:below=0.0001"), answers["train"]


if __name__ == "__main__":
    what, *paths = sys.argv[1:]
    {"write": write, "run": run}[what](*map(pathlib.Path, paths))
