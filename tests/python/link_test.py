"""Tests the link that goes through PyTorch's process groups with what every link must do (link_conformance.h). All
ranks live in this process, each with a Gloo group of its own. Skips if PyTorch is not installed."""
import ctypes
import datetime
import os
import pathlib
import socket
import sys
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python"))

MOST_BYTES = 64 << 20
ARGUMENT, SYSTEM = -1, -80


class Factory(ctypes.Structure):
    CREATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("create", CREATE),
        ("max_ranks", ctypes.c_uint32),
        ("news_travel", ctypes.c_bool),
        ("of_python", ctypes.c_bool),
    ]


def groups(size):
    """Makes a process group for each rank, all in this process."""
    store, made = dist.HashStore(), [None] * size
    # The constructor that takes a timeout is not used. Before PyTorch 2.6 it adds its new object to a list without
    # Python's lock, and threads that do so at the same time break the list (PyTorch's issue 143593).
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = datetime.timedelta(days=300)

    def make(rank):
        made[rank] = dist.ProcessGroupGloo(store, rank, size, options)

    threads = [threading.Thread(target=make, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


class Kept:
    """Keeps objects to which C still points, until the test ends."""

    links = []


def create(context, size, out):
    if size == 0 or size > 1024 or not out:
        return ARGUMENT
    try:
        for rank, group in enumerate(groups(size)):
            link = GroupLink(group, 7, MOST_BYTES, context).link()
            Kept.links.append(link)
            ctypes.memmove(out + rank * ctypes.sizeof(link), ctypes.byref(link), ctypes.sizeof(link))
    except BaseException as error:
        print(f"create: {error}", file=sys.stderr)
        return SYSTEM
    return 0


class Conformance(unittest.TestCase):
    def test_what_every_link_must_do(self):
        suite = ctypes.CDLL(os.environ["GRADWIRE_CONFORMANCE"])
        factory = Factory(b"torch", Factory.CREATE(create), 6, True, True)
        self.assertEqual(suite.link_conformance_of(ctypes.byref(factory)), 0)


class Hostile(unittest.TestCase):
    """Sends what a rank of another version, or a broken one, could send."""

    def setUp(self):
        self.groups = groups(2)
        self.link = GroupLink(self.groups[0], 7, 1000).link()
        self.ops = links.operations(self.link)

    def tearDown(self):
        self.groups[1] = None
        self.ops.destroy(self.link.self)

    def recv(self, timeout_ms=20000):
        message = _api.Message()
        status = self.ops.recv(self.link.self, timeout_ms, ctypes.byref(message))
        return status, message, _library.load().gw_last_error().decode()

    def say(self, *head):
        tensor = group_link._head(*head)
        self.groups[1].send([tensor], 0, 7).wait()

    def test_a_message_longer_than_any(self):
        self.say(0, 1 << 60)
        status, _, says = self.recv()
        self.assertEqual(status, -61)
        self.assertIn("rank 1 failed: it sent what is no message, or 1152921504606846976 bytes; none is longer", says)

    def test_another_kind(self):
        self.say(77, 5)
        self.assertIn("what is no message", self.recv()[2])

    def test_the_connection_ends(self):
        self.groups[1] = None
        status, _, says = self.recv()
        self.assertEqual(status, -61)
        self.assertIn("rank 1 failed: its connection ended", says)


class Rendezvous(unittest.TestCase):
    def test_a_held_port(self):
        """Nobody else gets it, and rank 0 can listen there, as the tcp link does."""
        with rendezvous._hold_port("127.0.0.1") as held, socket.socket() as other, socket.socket() as rank_0:
            place = held.getsockname()
            self.assertRaisesRegex(OSError, "in use", other.bind, place)
            rank_0.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            rank_0.bind(place)
            rank_0.listen()


if __name__ == "__main__":
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        print("skipped: PyTorch is not installed")
        sys.exit(77)
    from gradwire import _api, _library
    from gradwire.torch import group_link, links, rendezvous
    from gradwire.torch.group_link import GroupLink

    unittest.main()
