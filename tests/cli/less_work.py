"""Stands in for the tool when blocks_test.py runs the commands of the documents: less_work.py TOOL WORDS. A training
makes a few steps with small data, and a server runs in the background. Without these changes the commands are the
reader's."""
import os
import pathlib
import shutil
import subprocess
import sys
import time


def smaller(words):
    """The same command with less work. Of an option that comes twice the last one counts."""
    words = [os.environ["PICTURES"] if word in ("digits", "/data/mnist") else word for word in words]
    if "train" in words:
        resumes = "--resume" in words
        for option in {"--epochs", "--steps"} & set(words):
            at = words.index(option)
            del words[at : at + 2]
        words += ["--steps", "3" if resumes else "2"]
        if not resumes and "--data" not in words:
            words += ["--data", os.environ["PICTURES"]]
        if not resumes:
            words += ["--batch", "4"]
    if "--checkpoint-every" in words:
        words += ["--checkpoint-every", "1"]
    if words[:1] == ["probe"]:
        words += "--runs 1 --workers 2 --codec ternary".split()
    if words[:2] == ["keys", "new"]:
        shutil.rmtree(words[2], ignore_errors=True)  # the page's earlier blocks have used keys
    if words[:2] == ["bench", "codec"]:
        words += "--elements 65536 --runs 1".split()
    return words


def serve(tool, words):
    """Starts a server, and returns as soon as it listens."""
    if "--listen" not in words:
        words += ["--listen", f"127.0.0.1:{os.environ['SERVER_PORT']}"]
    log = pathlib.Path(f"server-{os.getpid()}.log")
    with open(log, "w") as file:
        server = subprocess.Popen([tool, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    while "listening address=" not in log.read_text() and server.poll() is None:
        time.sleep(0.01)
    if server.returncode is not None:
        sys.exit(log.read_text())


if __name__ == "__main__":
    command, arguments = sys.argv[1], smaller(sys.argv[2:])
    if arguments[:1] == ["server"]:
        serve(command, arguments)
    else:
        os.execv(command, [command, *arguments])
