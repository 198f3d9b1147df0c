"""Tests that every wait has a deadline: in attach, between the buckets of a step, in close, and for other threads."""
import threading

import torch.distributed as dist

import gradwire
import gradwire.torch as gw
from gradwire.torch import compression as gw_compression
from gradwire.torch import sharded as gw_sharded
from gradwire.torch import waits as gw_waits

from common import RANK, SIZE, attached, await_word, said_by, say, wrapped
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
