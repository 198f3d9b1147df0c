"""Makes the links that carry an exchange between the ranks of a process group: over TCP, over MPI, or through the
process group itself (`transport` of attach). All ranks call it together."""
import collections
import contextlib
import ctypes
import datetime
import inspect
import numbers
import re
import threading
import urllib.parse

import torch.distributed as dist

from .. import _api, _library
from ..errors import Error, Status
from .group_link import GroupLink
from .rendezvous import find_places, meet
from .waits import within

TRANSPORTS = ("tcp", "mpi", "torch")
_TAG = 1 << 20


def check_options(transport, nonfinite, timeout, seed, threads, scaler):
    """Checks these options. Returns the timeout in milliseconds, seed and threads as plain integers. Raises ValueError
    and TypeError."""
    if not isinstance(nonfinite, str) or nonfinite not in ("nan", "raise"):
        raise ValueError(f'nonfinite is {_api.shown(nonfinite)}, and must be "nan" or "raise"')
    if not isinstance(transport, str) or transport not in TRANSPORTS:
        raise ValueError(f"transport is {_api.shown(transport)}, and must be one of {', '.join(TRANSPORTS)}")
    if scaler is not None and (isinstance(scaler, type) or not callable(getattr(scaler, "get_scale", None))):
        raise TypeError(f"scaler is {_api.shown(scaler)}, and must be a GradScaler, with a method get_scale")
    if not isinstance(timeout, numbers.Real) or isinstance(timeout, bool):
        raise TypeError(f"timeout is {_api.shown(timeout)}, and must be a number of seconds")
    if not 0 < timeout <= 86400:
        raise ValueError(f"timeout is {timeout}, and must be above 0 and at most 86400 seconds")
    timeout_ms = max(1, round(1000 * float(timeout)))
    return timeout_ms, _api.in_range("seed", seed, 0, 2**64 - 1), _api.in_range("threads", threads, 1, 256)


def open_links(transport, group, n_links, most_bytes, timeout_ms, *, rendezvous=None, keys=None, uses=""):
    """Returns ([n_links links between the same ranks], the machine's number of each rank, or None if the link knows
    it). close_links destroys them. most_bytes: no message is longer. uses: what else must be the same on all ranks."""
    if transport != "tcp" and (rendezvous is not None or keys is not None):
        raise ValueError(f'rendezvous and keys are for transport="tcp", and the transport is "{transport}"')
    if rendezvous is not None:
        _api.text("rendezvous", rendezvous)
        if not re.fullmatch("[^/?&]+:[0-9]+", rendezvous):
            raise ValueError(f'rendezvous is {rendezvous!r}, and must be "HOST:PORT", where rank 0 listens')
    if keys is not None:
        keys = _api.folder("keys", keys)
        if not keys:
            raise ValueError('keys is "", and must name a folder; None: nothing is encrypted')
    wants = f'transport="{transport}" and {n_links} link{"s" * (n_links > 1)}{", with keys" * (keys is not None)}{uses}'
    machine_of = find_places(group, wants, timeout_ms)
    if transport == "tcp":
        return _tcp(group, n_links, timeout_ms, rendezvous, keys, machine_of), machine_of
    if transport == "mpi":
        what = "not all ranks have begun with MPI"
        return within(timeout_ms, what, lambda: _open("mpi:", group, n_links)), None
    own = _OwnGroup(_gloo_group(group, timeout_ms), n_links)
    make = lambda i: GroupLink(own.group, _TAG + i, most_bytes, when_done=own.leave).link()
    return _each(n_links, make), machine_of


def _each(n_links, make):
    """Returns the links that make(0), make(1), ... return. If one raises, none stays."""
    links = []
    try:
        for i in range(n_links):
            links.append(make(i))
    except BaseException:
        close_links(links)
        raise
    return links


def operations(link):
    return ctypes.cast(link.ops, ctypes.POINTER(_api.LinkOps)).contents


def close_links(links):
    for link in links:
        _api.library().gw_link_destroy(ctypes.byref(link))


def interrupt(link, why, status=Status.CLOSED):
    """Tells the other members, and ends a call that waits with an error. Any thread may call this while another
    waits."""
    _api.library().gw_link_fail(ctypes.byref(link), status, why.removeprefix("gradwire: ").encode())
    operations(link).close(link.self)


def reason(link):
    """Returns what is said of a member that failed or is gone, or "". Nothing else may travel over this link."""
    message = _api.Message()
    status = _api.library().gw_link_recv(ctypes.byref(link), 1000, ctypes.byref(message))
    return _library.last_error() if status == Status.PEER else ""


def tell(link, mine, timeout_ms):
    """Sends rank 0's bytes to all other ranks, and returns them on every rank. Nothing else may travel over this link
    meanwhile."""
    ops, lib = operations(link), _api.library()
    if link.rank > 0:
        message = _api.Message()
        while True:
            status = lib.gw_link_recv(ctypes.byref(link), timeout_ms, ctypes.byref(message))
            if status != Status.PEER or not 0 < message.sender < link.size:
                break  # another rank may go once rank 0 has told it
        _library.check(status)
        told = ctypes.string_at(message.bytes, message.n_bytes)
        lib.gw_message_free(message.bytes)
        return told
    for to in range(1, link.size):
        address = lib.gw_message_alloc(None, len(mine))
        if not address:
            raise Error(Status.MEMORY, f"no memory for a message of {len(mine)} bytes")
        ctypes.memmove(address, mine, len(mine))
        status = ops.send(link.self, to, address, len(mine), timeout_ms)
        _library.check(lib.gw_link_why(ctypes.byref(link), None, None) if status == Status.PEER else status)
    if ops.flush:  # this rank may not receive for a long time
        _library.check(ops.flush(link.self, timeout_ms))
    return mine


def _tcp(group, n_links, timeout_ms, rendezvous, keys, machine_of):
    one_machine = len(set(machine_of)) == 1
    place, held = meet(group, rendezvous, one_machine, timeout_ms)
    more = f"&keys={urllib.parse.quote(keys)}" if keys else "" if one_machine else "&insecure=1"
    with held or contextlib.nullcontext():
        return _open(f"tcp://{place}", group, n_links, f"&timeout_ms={timeout_ms}{more}")


def _open(start, group, n_links, more=""):
    """Opens links whose address begins with `start`. The ranks are those of the group."""
    address = f"{start}?rank={dist.get_rank(group)}&size={dist.get_world_size(group)}{more}"
    links = (_api.Link * n_links)()
    _library.check(_api.library().gw_link_open(None, address.encode(), None, n_links, links))
    return [_api.Link.from_buffer_copy(link) for link in links]


class _OwnGroup:
    """A group that some links share. When the last link is done with it, its connections and threads go."""

    def __init__(self, group, n_links):
        self.group, self._n_links, self._lock = group, n_links, threading.Lock()

    def leave(self):
        with self._lock:
            self._n_links -= 1
            if self._n_links > 0:
                return
            group, self.group = self.group, None
        try:
            dist.destroy_process_group(group)
        except (RuntimeError, ValueError, AssertionError):
            pass  # the program has destroyed all of its groups already


_n_groups_of = collections.Counter()  # how many groups _new_group made of these ranks
_FIRST_NUMBER = 1 << 40  # PyTorch's own numbers stay below


def _new_group(options, is_part):
    """Calls new_group. PyTorch 2.14 numbers a group of some ranks on those ranks only. The next group of the whole job
    then has other names on other ranks, and waits for ever. So a group of some ranks gets a number of ours."""
    world = getattr(dist.distributed_c10d, "_world", None)
    if not is_part or not hasattr(world, "group_count"):
        return dist.new_group(**options)
    ranks, before = tuple(options["ranks"]), world.group_count
    _n_groups_of[ranks] += 1
    world.group_count = _FIRST_NUMBER + _n_groups_of[ranks]
    try:
        return dist.new_group(**options)
    finally:
        world.group_count = before


def _gloo_group(group, timeout_ms):
    """Makes a group of the same ranks for our messages alone."""
    options = {"timeout": datetime.timedelta(milliseconds=2 * timeout_ms), "backend": "gloo"}
    size = dist.get_world_size(group)
    if size < dist.get_world_size():
        if "use_local_synchronization" not in inspect.signature(dist.new_group).parameters:
            raise Error(
                Status.UNSUPPORTED,
                'transport="torch" for some ranks of the job only needs a PyTorch whose new_group has '
                'use_local_synchronization (2.1); take transport="tcp"',
            )
        options.update(ranks=dist.get_process_group_ranks(group), use_local_synchronization=True)
    # new_group does not keep its timeout everywhere, so this one is not the first to end.
    what = "not all ranks have made a group for messages"
    own = within(timeout_ms, what, lambda: _new_group(options, size < dist.get_world_size()))
    if own.rank() != dist.get_rank(group) or own.size() != size:
        raise Error(Status.SYSTEM, 'PyTorch gave the ranks of a new group other numbers; take transport="tcp"')
    return own
