#!/usr/bin/env python3
"""Tests that README's lines for the parameter server print what they say, with what `make run` builds.

    tests/cli/pserver_readme_test.py TOOL"""
import re
import shlex
import subprocess
import sys

from pserver_common import SOURCE, TOOL, Server, check


def main():
    part = (SOURCE / "README.md").read_text().split("\n## A parameter server", 1)[1]
    serve, work = [re.sub("^    ", "", block, flags=re.M) for block in re.findall(r"(?:^    .*\n)+", part, re.M)[:2]]
    words = serve.split()
    check(words[:2] == ["build/release/gradwire", "server"], f"the first line starts a server: {serve}")
    page = subprocess.run([str(TOOL), "server", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    check("127.0.0.1:29700)\n" in page, "the server's default address is the one on README")
    targets = re.search(r"\nrun:.*?--target ([^\n]*)\n", (SOURCE / "Makefile").read_text(), re.S).group(1).split()
    check("gradwire" in targets and "gradwire_tool" in targets, f"make run builds library and tool, not {targets}")
    server = Server(*words[2:])
    # Another Python earlier on PATH may lack numpy.
    work = work.replace("127.0.0.1:29700", server.address).replace("python3", shlex.quote(sys.executable), 1)
    done = subprocess.run(["bash", "-c", work], cwd=SOURCE, stdout=subprocess.PIPE, text=True, timeout=240, check=True)
    check(done.stdout == "[ 1.5 -2.   0. ]\n", f"the mean is printed, not {done.stdout!r}")
    server.end()
    print("README's lines for the parameter server work")
    return 0


if __name__ == "__main__":
    sys.exit(main())
