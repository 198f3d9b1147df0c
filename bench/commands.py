"""Runs the commands of benches and experiments. Every wait has a deadline. Standard library only."""
import contextlib
import json
import os
import subprocess
import tempfile
import time

MOST_SECONDS = 24 * 3600  # that a command may take
RANKS_SECONDS = 1800  # that ranks may take who only exchange
END_SECONDS = 60  # that one has to end, once it is told to
LOOK_SECONDS = 0.02  # between two looks whether they are done


class Failed(SystemExit):
    """If nobody catches it, the program ends and says why."""


def started(words, **more):
    return subprocess.Popen([str(word) for word in words], text=True, **more)


def status_of(process):
    """The exit status; None: it still runs. At its end process.megabytes is the most memory that it had."""
    if process.returncode is None:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode, process.megabytes = os.waitstatus_to_exitcode(status), usage.ru_maxrss / 1024
    return process.returncode


def run_measured(commands, seconds=MOST_SECONDS, **more):
    """Runs commands at once. Returns what each printed, and the most memory that it had in MB. If one fails or is not
    done in time, all are killed. Files take what they print, because one that writes to a pipe waits for who reads
    it."""
    end, processes = time.monotonic() + seconds, []
    with contextlib.ExitStack() as files:
        try:
            for words in commands:
                out, errors = (files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
                processes.append((started(words, stdout=out, stderr=errors, **more), out, errors))
            while None in (states := [status_of(process) for process, _, _ in processes]) and not any(states):
                if time.monotonic() > end:
                    raise Failed(f"not done after {seconds} s: {' '.join(processes[0][0].args)}")
                time.sleep(LOOK_SECONDS)
            failed = [each for each in processes if each[0].returncode]
        finally:
            for process, _, _ in processes:
                process.kill()
                process.wait(END_SECONDS)
        for process, _, errors in failed:
            errors.seek(0)
            why = (errors.read().strip().splitlines() or [str(process.returncode)])[-1]
            raise Failed(f"failed: {' '.join(process.args)}: {why}")
        for _, out, _ in processes:
            out.seek(0)
        return [(out.read(), process.megabytes) for process, out, _ in processes]


def run_all(commands, seconds=MOST_SECONDS, **more):
    """As run_measured, but returns only what each printed."""
    return [printed for printed, _ in run_measured(commands, seconds, **more)]


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
