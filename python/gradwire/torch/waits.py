"""Waits that end: calls that PyTorch may not come back from get a deadline."""
import contextlib
import queue
import threading
import time
import weakref

import torch

from ..errors import Error, Status, Timeout, of_status

END_S = 30.0  # how long the end of Python waits for threads
_ORDER = "; all ranks attach their models, and call their backwards, in the same order"
_stuck = weakref.WeakSet()  # threads whose call had not come back at its deadline


def _begin(call):
    """Begins a call on a thread. Returns the thread, and a queue that gets (what the call returned, what it raised)."""
    answers = queue.SimpleQueue()
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None  # each thread has its own

    def run():
        try:
            if device is not None:
                torch.cuda.set_device(device)
            answers.put((call(), None))
        except BaseException as error:
            answers.put((None, error))

    thread = threading.Thread(target=run, name="gradwire-call", daemon=True)
    thread.start()
    return thread, answers


def within(timeout_ms, what, call):
    """Returns what call() returns, a call of PyTorch. Raises what it raises, and Timeout if it takes too long: its
    thread then stays in the call. what: what could not be done, in words."""
    thread, answers = _begin(call)
    try:
        answer, error = answers.get(timeout=timeout_ms / 1000)
    except BaseException as ended:  # also Ctrl-C
        _stuck.add(thread)
        if not isinstance(ended, queue.Empty):
            raise
        raise Timeout(Status.TIMEOUT, hint(f"gradwire: {what} within {timeout_ms} ms", timeout_ms)) from None
    if isinstance(error, RuntimeError) and not isinstance(error, Error):  # PyTorch's, if a rank has ended
        raise Error(Status.PEER, f"gradwire: {what}: {error}")
    if error is not None:
        raise error
    return answer


def heard(call, give_up):
    """Returns what call() returns, a call of the library. Ctrl-C comes to the main thread, which hears nothing while it
    is in C. So another thread makes the call there. give_up(error) makes the call end soon."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    is_over = threading.Event()

    def noted():
        try:
            return call()
        finally:
            is_over.set()

    _, answers = _begin(noted)
    try:
        answer, error = answers.get()  # the call of the library has a deadline
    except BaseException as ended:
        give_up(ended)
        end = time.monotonic() + END_S
        while not is_over.is_set() and time.monotonic() < end:  # it uses memory of the caller's
            with contextlib.suppress(BaseException):  # Ctrl-C may come once more, as torchrun sends it
                time.sleep(0.01)
        raise
    if error is not None:
        raise error
    return answer


def hint(sentence, timeout_ms):
    """Adds to a sentence of a deadline that has passed, also of another rank's, what the program can do."""
    if f" {timeout_ms} ms" in sentence and "timeout=" not in sentence:
        sentence += "; if a rank may be silent for longer (it evaluates, or saves), give attach a longer timeout="
    return sentence


def with_name(error):
    """Returns the name of an exception, and what it says. Ctrl-C says nothing. A file's name need not be UTF-8, but
    what PyTorch and other ranks are told must be."""
    said = ": ".join(filter(None, (type(error).__name__, str(error))))
    return said.encode(errors="backslashreplace").decode()


def as_error(error, timeout_ms, several):
    """Returns what has ended an exchange as an error of Gradwire, which every later call raises. several: this rank has
    attached several models."""
    status = getattr(error, "status", Status.SYSTEM)
    said = str(error) if isinstance(error, Error) else with_name(error)
    why = hint(said, timeout_ms)
    if ("names and sizes" in why or (several and why != said)) and _ORDER not in why:
        why += _ORDER
    return of_status(status)(status, why if why.startswith("gradwire: ") else f"gradwire: {why}")


def join_at_end(threads=()):
    """Waits for threads when Python ends. If one comes back from PyTorch while Python ends, the process aborts. Several
    modules call this, and calls that are stuck are waited for once."""
    deadline = time.monotonic() + END_S
    for thread in [*threads, *_stuck]:
        thread.join(max(0, deadline - time.monotonic()))
    _stuck.clear()
