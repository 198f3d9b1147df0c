"""Tests what stands for a compression in a copy of its model, in a file, and in a forked process."""
import atexit
import copy
import gc
import io
import os
import pickle
import select
import signal

import torch
import torch.distributed as dist

import gradwire
import gradwire.torch as gw

from common import attached, backward, digest, said_by, train
from sharded import sharded, train_units


def saved(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def copies():
    """PyTorch 2 keeps its hooks in the model. So a copy of the model, and a model in a file, hold what stands for the
    compression. The compression itself goes on, and the copy can have one of its own."""
    ddp, compression = attached("ternary")
    ddp._comm_hooks = [(gw.hook, compression)]
    train(ddp, 2)
    said, digests = [], []
    for again in (copy.deepcopy(ddp), saved(ddp)):
        hook, stands = again._comm_hooks[0]
        calls = (lambda: stands.stats(), lambda: stands.codec, lambda: hook(stands, None))
        said += [said_by(gradwire.Error, call) for call in calls]
        dist.barrier()
        with gw.attach(again, "ternary") as own:
            own.load_state_dict(compression.state_dict())
            train(again, 2, first=2)
        digests.append(digest(again))
    for make in (
        copy.copy,
        copy.deepcopy,
        lambda c: copy.deepcopy(copy.deepcopy(c)),
        lambda c: pickle.loads(pickle.dumps(c)),
    ):
        said.append(said_by(gradwire.Error, lambda: make(compression).check()))
    train(ddp, 2, first=2)
    compression.close()
    return [said, len({digest(ddp), *digests}) == 1]


def copies_while_auto_times():
    """auto's hooks on parameters stay with the model that it times."""
    ddp, compression = attached("auto")
    train(ddp, 1)
    again = copy.deepcopy(ddp)
    backward(again, 1)
    train(ddp, 1)
    compression.close()
    return digest(ddp)


def sharded_copies():
    model, compression = sharded("none")
    again = copy.deepcopy(model)
    said = [said_by(gradwire.Error, unit.hook, torch.ones(10)) for unit in (again[0], saved(model)[2])]
    train_units(model, 1)
    compression.close()
    return said


def forks():
    """A forked child has no part in links and threads. There a call raises, and all that ends a compression does
    nothing. PyTorch itself cannot end in a forked process, so the child runs the handlers of Python's end and leaves.
    """
    ddp, first = attached("ternary")
    other, second = attached("ternary", transport="torch")
    model, third = sharded("none")
    train(ddp, 2)
    train(other, 2)
    train_units(model, 1)
    all_three = [first, second, third]
    with third._lock:  # another thread may be in it when the process forks
        child = os.fork()
        if child == 0:
            calls = [c for each in all_three for c in (each.check, each.state_dict, lambda: each.load_state_dict({}))]
            calls += [lambda: third.average(0, torch.ones(10)), lambda: gw.hook(first, None).wait()]
            raised = ["forked" in said_by(gradwire.Error, call) for call in calls]
            for each in all_three:
                each.end(ValueError("that the others must not hear"))
                each.close()
            del first, second, third, all_three, each, ddp, other, model, calls
            gc.collect()
            atexit._run_exitfuncs()
            os._exit(7 if all(raised) else 1)
    if not select.select([os.pidfd_open(child)], [], [], 60)[0]:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    train(ddp, 2)
    train(other, 2)
    train_units(model, 1)
    for compression in all_three:
        compression.close()
    return [code, digest(ddp) == digest(other)]
