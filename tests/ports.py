"""Finds ports at which a test's servers can listen."""
import itertools
import os
import socket

FIRST, BLOCKS, OF_ONE = 21000, 170, 64
mine = None


def bound(kind, host, port):
    """A socket bound to that port, or None."""
    s = socket.socket(socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, kind == socket.SOCK_STREAM)
    try:
        s.bind((host, port))
    except OSError:
        s.close()
        return None
    return s


def may_listen(port):
    s = bound(socket.SOCK_STREAM, "", port)
    if s:
        s.close()
    return s is not None


def own_ports():
    """The 64 ports of this process, which keeps the first one's UDP port."""
    global mine
    blocks = (FIRST + (os.getpid() + i) % BLOCKS * OF_ONE for i in range(BLOCKS))
    while mine is None:
        mine = bound(socket.SOCK_DGRAM, "127.0.0.1", next(blocks))
    return mine.getsockname()[1]


def free_ports(n=1):
    """Yields without end the first of n ports next to each other that are free on this machine. All are below 32768.
    The kernel gives higher ports to connections. So any process's connection could take one before a server listens
    there."""
    begin = own_ports()
    for i in itertools.count():
        first = begin + i * n % (OF_ONE - n + 1)
        if all(may_listen(first + k) for k in range(n)):
            yield first
