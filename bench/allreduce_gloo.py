"""One member of Gloo's ring all-reduce over a flat float32 tensor, through PyTorch. Rank 0 prints the seconds of each
run, which are those of the slowest member. bench/exchange_net.py runs this in every network namespace:

    allreduce_gloo.py RANK SIZE HOST:PORT ELEMENTS RUNS
"""
import datetime
import json
import sys
import time

import torch
import torch.distributed as dist

rank, size, place, elements, runs = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
dist.init_process_group(
    "gloo", init_method=f"tcp://{place}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=600)
)
torch.manual_seed(rank)
gradient = torch.randn(elements)
seconds = []
for run in range(runs + 1):  # the first run warms up
    work = gradient.clone()
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(work)
    work /= size
    took = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    if run > 0:
        seconds.append(took.item())
if rank == 0:
    print(json.dumps(seconds))
