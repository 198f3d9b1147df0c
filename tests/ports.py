"""Finds ports at which a test's servers can listen."""
import itertools
import os
import socket


def may_listen(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("", port))
        except OSError:
            return False
        return True


def free_ports(n=1):
    """Yields without end the first of n ports next to each other that are free on this machine. All are below 32768.
    The kernel gives higher ports to connections. So any process's connection could take one before a server listens
    there."""
    begin = os.getpid() * 7
    for i in itertools.count():
        first = 21000 + (begin + i * n) % (11000 - n)
        if all(may_listen(first + k) for k in range(n)):
            yield first
