"""Brings the members of a process group together: finds the address of rank 0, and the ranks that share a machine. Only
public calls of the group are used."""
import datetime
import os
import random
import socket

import torch.distributed as dist

from .. import launcher
from ..errors import Error, Status, Timeout
from .waits import hint, within

# These are below the ports that the system gives out to connections.
_PORTS = range(21000, 32000)
_TRIES = 100
_MORE_MS = 10000


def _place():
    """Returns what ranks have in common if they reach each other over loopback: the boot, and the network namespace."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip(), os.stat("/proc/self/ns/net").st_ino


def _hold_port(host):
    """Returns a socket that holds a port which nobody else has. Until it is closed no other rank 0 takes that port. But
    as it does not listen, and has SO_REUSEADDR once it is bound, this rank can listen there."""
    family = socket.getaddrinfo(host, None)[0][0]
    for _ in range(_TRIES):
        held = socket.socket(family)
        try:
            held.bind((host, random.SystemRandom().choice(_PORTS)))
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return held
        except OSError:
            held.close()
    raise Error(
        Status.SYSTEM, f"no port from {_PORTS[0]} to {_PORTS[-1]} can be used at {host}; name one with rendezvous="
    )


def _address(one_machine):
    """Returns the address where the others reach rank 0. torchrun and other launchers give it in MASTER_ADDR."""
    if one_machine:
        return "127.0.0.1"
    said = os.environ.get("MASTER_ADDR")
    host = launcher.host(said, "MASTER_ADDR") if said else socket.gethostname()
    try:
        with socket.socket(socket.getaddrinfo(host, None)[0][0]) as probe:
            probe.bind((host, 0))
        return host
    except OSError as error:
        raise Error(
            Status.SYSTEM,
            f'rank 0 cannot listen at {host} ({error}); name its address with rendezvous="HOST:PORT", the same on all '
            "ranks",
        ) from None


def find_places(group, wants, timeout_ms):
    """Returns the machine's number of each rank: the lowest rank there. All ranks call this. `wants` says in words what
    they want, which must be the same on all ranks."""
    # The group's own deadline may be half an hour. Other backends have no such barrier.
    if dist.get_backend(group) == "gloo":
        deadline = datetime.timedelta(milliseconds=timeout_ms)
        barrier = lambda: dist.monitored_barrier(group, deadline, wait_all_ranks=True)
        try:
            # Only on rank 0 it keeps to its deadline, and then says who is missing.
            more_ms = _MORE_MS if dist.get_rank(group) == 0 else 0
            within(timeout_ms + more_ms, "rank 0 has not said that all are there", barrier)
        except RuntimeError as error:
            said = str(error).strip().splitlines()[0].removeprefix("gradwire: ")
            why = hint(f"not all ranks have attached within {timeout_ms} ms, or one has ended: {said}", timeout_ms)
            raise Timeout(Status.TIMEOUT, f"gradwire: {why}") from None
    told = [None] * dist.get_world_size(group)
    within(
        timeout_ms,
        "not all ranks have said where they are",
        lambda: dist.all_gather_object(told, (_place(), wants), group=group),
    )
    for rank, (_, other) in enumerate(told):
        if other != told[0][1]:
            raise Error(
                Status.ARGUMENT,
                f"rank 0 attaches with {told[0][1]}, and rank {rank} with {other}: all ranks attach with the same "
                "arguments",
            )
    places = [place for place, _ in told]
    return [places.index(place) for place in places]


def meet(group, rendezvous, one_machine, timeout_ms):
    """All ranks call this. Returns the place where they reach rank 0, "HOST:PORT"; and at rank 0 the socket that holds
    it, to be closed when rank 0 listens there, or None."""
    return within(
        timeout_ms,
        "rank 0 has not told all ranks where it listens",
        lambda: _tell_place(group, rendezvous, one_machine),
    )


def _tell_place(group, rendezvous, one_machine):
    told, held = [None], None
    if dist.get_rank(group) == 0:
        try:
            if rendezvous is None:
                host = _address(one_machine)
                held = _hold_port(host)
                told = [(f"[{host}]" if ":" in host else host) + f":{held.getsockname()[1]}"]
            else:
                told = [rendezvous]
        except Exception as error:  # if rank 0 finds no address, the others must not wait for one
            told = [error]
    dist.broadcast_object_list(told, src=_global_rank(group, 0), group=group)
    if isinstance(told[0], Exception):
        raise told[0]
    return told[0], held


def _global_rank(group, rank):
    """Returns the rank's number in the whole world, which broadcast_object_list takes."""
    for name in ("get_global_rank", "_get_global_rank"):  # PyTorch 1.13 has only the second, in distributed_c10d
        find = getattr(dist, name, None) or getattr(dist.distributed_c10d, name, None)
        if find:
            return find(group, rank) if group is not None and group is not dist.group.WORLD else rank
    return rank
