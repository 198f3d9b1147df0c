"""Tests how the bytes travel: transports, a part of the job, links that go without a word."""
import torch.distributed as dist

import gradwire

from common import RANK, TOPK, TRANSPORT, attached, digest, network, said_by, train


def transports():
    """All transports give the same bits. The network is large enough for several groups, and for messages with a body
    behind the head."""
    found = {}
    for codec in ("none", "ternary", TOPK):
        digests = []
        for transport in sorted({"tcp", "torch", TRANSPORT}):
            ddp, compression = attached(codec, network(hidden=60000), transport=transport)
            train(ddp, 3)
            digests.append(digest(ddp))
            compression.close()
        found[codec] = digests
    return found


def part_of_the_job():
    """Two of the ranks train a model, through a process group of their own."""
    group = dist.new_group([0, 1])
    if RANK > 1:
        return "not in it"

    def trains():
        ddp, compression = attached("none", ddp_options={"process_group": group}, transport="torch")
        with compression:
            train(ddp, 2)

    return said_by(gradwire.Error, trains)


def goes_without_a_word():
    """The process ends with an open compression. Python ends as usual."""
    ddp, compression = attached("ternary", transport="torch")
    train(ddp, 2)
    globals()["kept"] = (ddp, compression)
    return True
