"""A link of callbacks (gradwire/link.h): messages travel through a process group of PyTorch, with Gloo.

A message is a head of fixed size, and behind it the bytes that did not fit into the head. For each other rank a thread
receives. One more thread waits until messages have been sent, because Gloo reads them until then. All members of a
group make the same number of links over it, each with a tag of its own."""
import atexit
import collections
import ctypes
import datetime
import queue
import struct
import threading
import time
import weakref

import torch

from .. import _api, _library
from ..errors import Status
from .notices import say
from .waits import END_S, join_at_end

_HEAD = struct.Struct("<QQ")  # kind, bytes
_HEAD_BYTES = 4096
_INLINE = _HEAD_BYTES - _HEAD.size  # a message with so many bytes fits into its head
_DATA, _BYE = range(2)
# If Gloo gives up a wait, the group breaks. So the threads wait as long as the connection stands, and the calls that
# need them have deadlines of their own.
_AGES = datetime.timedelta(days=300)
_LEAVE_S = 2.0  # how long destroy waits for what is still under way


def _view(address, n_bytes):
    """Returns the bytes at an address as a tensor, which does not own them."""
    return torch.frombuffer((ctypes.c_char * n_bytes).from_address(address), dtype=torch.uint8)


def _head(kind, n_bytes):
    head = torch.zeros(_HEAD_BYTES, dtype=torch.uint8, device="cpu")
    _HEAD.pack_into(head.numpy(), 0, kind, n_bytes)
    return head


class GroupLink:
    """A link over a process group.

    group: a process group over Gloo. tag: this link's tag, below 2^31.
    most_bytes: no message is longer. If a head claims more, the link refuses before it takes memory. context: messages
    take their memory from it, or it is None. when_done: is called when the link needs the group no more."""

    def __init__(self, group, tag, most_bytes, context=None, when_done=None):
        self._lib = _api.library()
        self._group, self._tag, self._most_bytes, self._context = group, tag, most_bytes, context
        self._when_done = when_done
        self.rank, self.size = group.rank(), group.size()
        self._peers = [r for r in range(self.size) if r != self.rank]
        self._changed = threading.Condition()
        # Used under self._changed's lock:
        self._inbox = collections.deque()  # (sender, address, bytes)
        self._closed = False
        self._gone = {}  # a sentence for each rank that is gone: how it went
        self._untold = collections.deque()  # those of them that recv has not reported
        # With these locks, messages to one rank keep their order, and none follows a farewell.
        self._sending = {r: threading.Lock() for r in self._peers}
        self._said_bye = set()
        self._ops = _api.LinkOps(
            b"torch",
            _api.LinkOps.SEND(self._guard(self._send)),
            _api.LinkOps.SEND_ALL(self._guard(self._send_all)),
            _api.LinkOps.FLUSH(),  # Gloo's threads send by themselves
            _api.LinkOps.RECV(self._guard(self._recv)),
            _api.LinkOps.END(self._guard(self._close)),
            _api.LinkOps.END(self._guard(self._destroy)),
        )
        self._sent = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._await_sent, name="gradwire-sent", daemon=True)
        self._receivers = [
            threading.Thread(target=self._receive, args=(peer,), name=f"gradwire-from-{peer}", daemon=True)
            for peer in self._peers
        ]
        for thread in [self._sender, *self._receivers]:
            thread.start()

    def link(self):
        """Returns the link as C sees it. It holds this object. Keep it until destroy has returned."""
        link = _api.Link(ops=ctypes.addressof(self._ops), self=id(self), rank=self.rank, size=self.size)
        link.owner = self
        return link

    # ---- what the exchange calls -------------------------------------------------------------------------------

    @staticmethod
    def _guard(function):
        """Turns an exception into a status, because an exception cannot go through C."""

        def call(_, *arguments):
            try:
                return function(*arguments)
            except BaseException as error:
                return _library.fail(Status.SYSTEM, f"the process group's link: {type(error).__name__}: {error}")

        return call

    def _send(self, to, address, n_bytes, _):
        if to >= self.size:
            self._lib.gw_message_free(address)
            return _library.fail(Status.ARGUMENT, f"rank {self.rank} sent to rank {to}; ranks are 0 to {self.size - 1}")
        return self._send_to([to], address, n_bytes)

    def _send_all(self, address, n_bytes, _):
        return self._send_to(self._peers, address, n_bytes)

    def _send_to(self, ranks, address, n_bytes):
        """Sends a message to these ranks. It owns the message, also if it fails."""
        with self._changed:
            status = self._refusal(ranks)
            if status == 0 and ranks == [self.rank]:
                self._inbox.append((self.rank, address, n_bytes))
                self._changed.notify()
                return 0
        if status < 0:
            self._lib.gw_message_free(address)
            return status
        tensors = [_head(_DATA, n_bytes)]
        if n_bytes > _INLINE:
            tensors.append(_view(address, n_bytes))
        else:
            ctypes.memmove(tensors[0].data_ptr() + _HEAD.size, address, n_bytes)
        return self._post(ranks, tensors, address)

    def _refusal(self, ranks):
        if self._closed:
            return _library.fail(Status.CLOSED, f"rank {self.rank} sent on a link that it has closed")
        for to in ranks:
            if to in self._gone and to != self.rank:
                return _library.fail(Status.PEER, self._gone[to])
        return 0

    def _post(self, ranks, tensors, address=None, last=False):
        """Hands tensors to Gloo for these ranks. When they have left, the message at `address` is freed. last: nothing
        follows."""
        works, status = [], 0
        for to in ranks:
            with self._sending[to]:
                if to in self._said_bye:
                    status = status or self._refusal([to])
                    continue
                if last:
                    self._said_bye.add(to)
                try:
                    works += [self._group.send([tensor], to, self._tag) for tensor in tensors]
                except RuntimeError as error:
                    self._note_broken(to, error)
                    status = self._refusal([to])
        self._sent.put((works, tensors, address))
        return status

    def _recv(self, timeout_ms, message):
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._untold or self._closed, timeout_ms / 1000)
            if self._closed:
                return _library.fail(Status.CLOSED, f"rank {self.rank} received on a link that it has closed")
            if self._inbox:
                message[0].sender, message[0].bytes, message[0].n_bytes = self._inbox.popleft()
                return 0
            if self._untold:
                message[0].sender = self._untold.popleft()
                return _library.fail(Status.PEER, self._gone[message[0].sender])
        return _library.fail(Status.TIMEOUT, f"rank {self.rank} got no message within {timeout_ms} ms")

    def _close(self):
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            self._drop_inbox()
        for peer in self._peers:
            self._say_bye(peer)

    def _say_bye(self, peer):
        self._post([peer], [_head(_BYE, 0)], last=True)

    def _destroy(self):
        """Waits until the other ranks have answered the farewell, and all that was sent has left. As with every destroy
        function, gw_last_error() stays as it is."""
        sentence = _library.last_error()
        self._close()
        deadline = time.monotonic() + _LEAVE_S
        for thread in self._receivers:
            thread.join(max(0, deadline - time.monotonic()))
        self._sent.put(None)  # behind all that was handed to Gloo
        self._sender.join(max(0, deadline - time.monotonic()))
        with self._changed:
            self._drop_inbox()
        if any(thread.is_alive() for thread in self._threads()):
            _unended.add(self)  # Gloo must outlive a thread that still waits in it
        elif self._when_done:
            self._group = None
            self._when_done()
        _library.fail(Status.OK, sentence)

    def _threads(self):
        return [self._sender, *self._receivers]

    def _silent(self):
        return [peer for peer, thread in zip(self._peers, self._receivers) if thread.is_alive()]

    def _drop_inbox(self):
        while self._inbox:
            self._lib.gw_message_free(self._inbox.popleft()[1])

    # ---- threads -----------------------------------------------------------------------------------------------

    def _await_sent(self):
        for works, _, address in iter(self._sent.get, None):
            for work in works:
                try:
                    work.wait(_AGES)
                except RuntimeError:
                    pass  # the thread that receives from that rank notices it, too
            if address:
                self._lib.gw_message_free(address)

    def _receive(self, peer):
        head = torch.empty(_HEAD_BYTES, dtype=torch.uint8, device="cpu")
        try:
            while self._take(peer, head):
                pass
        except RuntimeError as error:
            self._note_broken(peer, error)

    def _take(self, peer, head):
        """Takes one message. False: none follows."""
        self._group.recv([head], peer, self._tag).wait(_AGES)
        kind, n_bytes = _HEAD.unpack_from(head.numpy())
        if kind == _BYE:
            self._note(peer, f"rank {peer} left the link")
            self._say_bye(peer)  # nothing follows, so the peer's thread that receives from this rank can end
            return False
        if kind != _DATA or n_bytes > self._most_bytes:
            self._note(peer, f"rank {peer} failed: it sent what is no message, or {n_bytes} bytes; none is longer than "
                             f"{self._most_bytes}")  # fmt: skip
            return False
        return self._take_bytes(peer, head, n_bytes)

    def _take_bytes(self, peer, head, n_bytes):
        with self._changed:
            # If the link is closed, its context may be gone. Messages that still come are taken all the same, so that
            # their senders can go on.
            address = None if self._closed else self._lib.gw_message_alloc(self._context, n_bytes)
            dropped = self._closed
        whole = False
        try:
            if n_bytes > _INLINE:
                body = _view(address, n_bytes) if address else torch.empty(n_bytes, dtype=torch.uint8, device="cpu")
                self._group.recv([body], peer, self._tag).wait(_AGES)
            elif address:
                ctypes.memmove(address, head.data_ptr() + _HEAD.size, n_bytes)
            whole = True
        finally:
            with self._changed:
                if address and whole and not self._closed:
                    self._inbox.append((peer, address, n_bytes))
                elif address:
                    self._lib.gw_message_free(address)
                self._changed.notify_all()
        if not address and not dropped:
            self._note(self.rank, f"rank {self.rank} failed: no memory for a message of {n_bytes} bytes")
        return True

    def _note(self, peer, sentence):
        with self._changed:
            if peer not in self._gone:
                self._gone[peer] = sentence
                self._untold.append(peer)
            self._changed.notify_all()

    def _note_broken(self, peer, error):
        """Notes that Gloo has lost a rank. If the rank itself has left, that stays."""
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        self._note(peer, f"rank {peer} failed: its connection ended ({first})")


_unended = weakref.WeakSet()  # destroyed links. Their threads still wait for ranks that are slow


@atexit.register
def _end_all():
    """Waits once more. If a thread comes back from Gloo while Python ends, the process aborts. Python calls this after
    what was registered later, so links that the program did not close have been destroyed."""
    links = list(_unended)
    silent = sorted({peer for link in links for peer in link._silent()})
    if silent:
        ranks = ", ".join(map(str, silent))
        say(f"gradwire: this program ends, and waits at most {END_S:.0f} s until rank {ranks} has answered "
            "its farewell")  # fmt: skip
    join_at_end([thread for link in links for thread in link._threads()])
