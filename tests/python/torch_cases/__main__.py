"""Runs the cases of torch_test.py on one rank: torch_cases RESULT CASE... writes {case: what it found} as JSON. RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which rank this is."""
import json
import os
import sys

import torch
import torch.distributed as dist

import averages, choice, copies, ddp, deadlines, errors, fully_sharded, links, reduced, sharded, state
from common import RANK


def main():
    path, names = sys.argv[1].replace("RANK", str(RANK)), sys.argv[2:]
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
    main()
