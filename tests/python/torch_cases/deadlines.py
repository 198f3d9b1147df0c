"""Tests that every wait has a deadline: in attach, between the buckets of a step, in close, and for other threads."""
import os
import signal
import threading
import time

import torch
import torch.distributed as dist

import gradwire
import gradwire.torch as gw
from gradwire.torch import buckets as gw_buckets
from gradwire.torch import compression as gw_compression
from gradwire.torch import sharded as gw_sharded
from gradwire.torch import waits as gw_waits

from common import RANK, SIZE, attached, await_word, backward, said_by, say, train, wrapped
from sharded import sharded


class Stuck:
    """Stands in the queue for a bucket, and holds the thread that gives it its error."""

    def __init__(self):
        self.future, self.go_on = self, threading.Event()

    def set_exception(self, _):
        self.go_on.wait(60)


def attach_is_stuck():
    """Rank 1 stands still in the middle of attach, by turns in each of the calls that need all ranks."""
    said = []
    for name in ("all_gather_object", "broadcast_object_list", "new_group"):
        group = dist.new_group()  # what stands still in one group must not reach the next case
        ddp = wrapped(process_group=group)
        before = getattr(dist, name)

        def stand_still(*_, **__):
            await_word(name, of=range(SIZE))
            raise gradwire.Error(-1, "given up")

        if RANK == 1:
            setattr(dist, name, stand_still)
        dist.barrier()
        transport = "torch" if name == "new_group" else "tcp"
        said.append(said_by(gradwire.Error, gw.attach, ddp, "none", timeout=3, transport=transport))
        setattr(dist, name, before)
        say(name)
        await_word(name, of=range(SIZE))
    return said


def rank_0_does_not_attach():
    group = dist.new_group()
    ddp, said = wrapped(process_group=group), None
    if RANK > 0:
        said = said_by(gradwire.Timeout, gw.attach, ddp, "none", timeout=1)
        say("given-up")
    await_word("given-up", of=range(1, SIZE))
    return said


def the_end_waits_once():
    """Several modules wait when Python ends, and a call of PyTorch has not come back. Returns how often it is waited
    for."""

    class Call:
        n_waits = 0

        def join(self, _):
            self.n_waits += 1

    call = Call()
    gw_waits._stuck.add(call)
    for _ in range(2):
        gw_waits.join_at_end()
    return call.n_waits


def interrupted_call():
    """Ctrl-C comes while a call of PyTorch waits. Returns whether Python's end waits for the thread of that call."""

    def interrupt(*_):
        raise KeyboardInterrupt

    before, go_on, stuck = signal.signal(signal.SIGUSR1, interrupt), threading.Event(), set(gw_waits._stuck)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    said_by(KeyboardInterrupt, gw_waits.within, 60000, "it was not interrupted", go_on.wait)
    signal.signal(signal.SIGUSR1, before)
    thread = (set(gw_waits._stuck) - stuck or {None}).pop()
    go_on.set()
    return thread is not None


def interrupted_twice():
    """Ctrl-C comes twice while another thread makes a call of the library. Returns whether that call, which uses memory
    of the caller's, is over when the caller goes on."""

    def again():
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.2)
        go_on.set()

    before, go_on, is_over = signal.signal(signal.SIGUSR1, signal.default_int_handler), threading.Event(), []
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    call = lambda: is_over.append(go_on.wait(120))
    said_by(KeyboardInterrupt, gw_waits.heard, call, lambda _: threading.Timer(0.2, again).start())
    signal.signal(signal.SIGUSR1, before)
    return is_over == [True]


def rank_0_is_interrupted():
    """Ctrl-C comes at rank 0 while it waits in attach for the others. Returns whether it hears that at once."""
    group = dist.new_group()
    ddp, start = wrapped(process_group=group), time.monotonic()
    if RANK == 0:
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        said_by((KeyboardInterrupt, gradwire.Error), gw.attach, ddp, "none", timeout=6)
        signal.signal(signal.SIGALRM, before)
        say("interrupted")
    await_word("interrupted", of=[0])
    return RANK > 0 or time.monotonic() - start < 5


def closed_within_the_hook():
    """The handler of a signal closes the compression while the hook runs. The bucket's step ends all the same."""
    ddp, compression = attached("none", timeout=20)
    train(ddp, 2)
    dist.barrier()  # a failure ends a step that another rank still ends
    bring = gw_buckets.Bucket.bring

    def close_and_bring(bucket):
        compression.close()
        bring(bucket)

    gw_buckets.Bucket.bring = close_and_bring
    said = said_by(RuntimeError, backward, ddp, 2)
    gw_buckets.Bucket.bring = bring
    return said


def sharded_closed_within_the_hook():
    """The handler of a signal closes the compression within a step. The step ends, and then the compression."""
    model, compression = sharded("none")
    model[0].hook(torch.ones(10))
    dist.barrier()  # a failure ends a step that another rank still ends
    compression._follow_scaler = compression.close
    return [said_by(gradwire.Error, model[0].hook, torch.ones(10)), compression._closes_late]


def sharded_is_interrupted():
    """Ctrl-C comes at rank 1 while the hook waits for the other ranks. Returns what is said, and whether at once."""
    model, compression = sharded("none", timeout=40)
    model[0].hook(torch.ones(10))
    dist.barrier()  # a failure ends a step that another rank still ends
    start = time.monotonic()
    if RANK == 1:
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        said = [said_by((KeyboardInterrupt, gradwire.Error), model[0].hook, torch.ones(10))]
        signal.signal(signal.SIGALRM, before)
        say("hook-interrupted")
        said.append(said_by(gradwire.Error, compression.check))
    else:
        await_word("hook-interrupted", of=[1])
        said = [said_by(gradwire.Error, model[0].hook, torch.ones(10))]
    compression.close()
    return [said, time.monotonic() - start < 30]


def close_is_stuck():
    """The thread of a compression does not come back."""
    ddp, compression = attached("none")
    stuck, seconds = Stuck(), gw_compression.END_S
    gw_compression.END_S, compression._seconds = 0.1, 0.1
    compression._error = gradwire.Error(-1, "the thread gives this to the bucket")
    compression._queue.put(stuck)
    said = said_by(gradwire.Timeout, compression.close)
    stuck.go_on.set()
    gw_compression.END_S = seconds
    return said


def sharded_is_busy():
    """Another thread is in the compression, and does not come back."""
    model, compression = sharded("none")
    seconds, gw_sharded.END_S = gw_sharded.END_S, 0.1
    compression._options["timeout_ms"] = 100
    with compression._lock:
        said = [said_by(gradwire.Timeout, call) for call in (compression.state_dict, compression.close)]
    gw_sharded.END_S = seconds
    return said
