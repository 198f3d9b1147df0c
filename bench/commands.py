"""Runs the commands of benches and experiments. Every wait has a deadline. Standard library only."""
import contextlib
import json
import subprocess
import time

MOST_SECONDS = 24 * 3600  # that a command may take
END_SECONDS = 60  # that one has to end, once it is told to


class Failed(SystemExit):
    """If nobody catches it, the program ends and says why."""


def started(words, **more):
    return subprocess.Popen([str(word) for word in words], text=True, **more)


def run_all(commands, seconds=MOST_SECONDS, **more):
    """Runs commands at once, and returns what each printed. If one fails or is not done in time, all are killed."""
    end, processes, said = time.monotonic() + seconds, [], []
    try:
        for words in commands:
            processes.append(started(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more))
        for process in processes:
            said.append(process.communicate(timeout=max(1, end - time.monotonic())))
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {seconds} s: {' '.join(process.args)}") from None
    finally:
        for process in processes:
            process.kill()
            process.wait(END_SECONDS)
    for process, (_, errors) in zip(processes, said):
        if process.returncode:
            why = (errors.strip().splitlines() or [str(process.returncode)])[-1]
            raise Failed(f"failed: {' '.join(process.args)}: {why}")
    return [out for out, _ in said]


def run(words, seconds=MOST_SECONDS, **more):
    """Runs a command. Returns what it printed."""
    return run_all([words], seconds, **more)[0]


def tell(words, **more):
    """Runs a command that can print JSON. Returns what it means."""
    return json.loads(run([*words, "--json"], **more))


@contextlib.contextmanager
def running(words, **more):
    """Runs a command, such as a server, until the block ends."""
    process = started(words, **more)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_SECONDS)
