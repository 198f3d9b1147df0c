"""Runs the cases of torch_test.py on one rank: torch_cases RESULT CASE... writes {case: what it found} as JSON. RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which rank this is. Without arguments it forks ranks, as its input asks."""
import atexit
import gc
import json
import os
import sys

import torch
import torch.distributed as dist


def serve():
    """Forks a rank for every line [environment, file that takes what it prints, arguments], and prints its process. For
    a line with a process, prints how it ended. Returns in ranks."""
    atexit.register(end_early)  # this handler comes last, as it is registered first
    import gradwire.torch  # noqa: F401  so that ranks need not load it

    torch.optim.SGD([torch.zeros(1)], 0.1)  # the first optimizer of a process loads half of PyTorch
    gc.freeze()  # or a rank's first collection copies all of it
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1])
        else:
            answer = os.fork()
        if answer == 0 and isinstance(asked, list):
            environment, path, sys.argv[1:] = asked
            os.environ.update(environment, RANK_PROCESS=str(os.getpid()))
            with open(path, "wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            return
        print(answer, flush=True)
    sys.exit()


def end_early():
    """Leaves out that Python frees all of PyTorch. In a process that a case has forked, it does nothing."""
    in_rank = os.environ.get("RANK_PROCESS") == str(os.getpid())
    if in_rank and os.environ["END"] == "early" and not hasattr(sys, "last_value"):
        sys.stdout.flush()
        os._exit(0)


def main():
    # These look at the environment while they are imported.
    import averages, choice, copies, ddp, deadlines, errors, fully_sharded, links, reduced, sharded, state

    path, names = sys.argv[1].replace("RANK", os.environ["RANK"]), sys.argv[2:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dist.barrier()  # a case may exchange nothing. Then rank 0 would end, and its store, while others still come
    found = {}
    for name in names:
        rooms = (averages, choice, copies, ddp, deadlines, errors, fully_sharded, links, reduced, sharded, state)
        room = next(room for room in rooms if hasattr(room, name))
        found[name] = getattr(room, name)()
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(found, file)
        os.replace(path + ".new", path)
    dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve()
    main()
