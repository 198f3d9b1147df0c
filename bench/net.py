"""Makes several hosts on one machine: network namespaces, which a bridge joins, with shaped links. Needs root. Standard
library only."""
import contextlib
import errno
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

PREFIX = "gwbench"
NETWORK = "10.77.0"
# tbf needs a bucket that holds what the card hands over at once. These buckets were measured to give 94 % of the rate
# and more. Real cards have no bucket at all. With 512 KB at 100 Mbit/s, whole steps of a small network passed at once.
SHAPES = {
    "100mbit": "burst 48kb latency 100ms",
    "1gbit": "burst 128kb latency 20ms",
    "10gbit": "burst 4mb latency 20ms",
}


def sh(line, check=True):
    done = subprocess.run(line, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode:
        raise SystemExit(f"{line}: {done.stdout.strip() or f'status {done.returncode}'}")
    return done.stdout


def address(host):
    return f"{NETWORK}.{host + 1}"


def namespace(host):
    return f"{PREFIX}-{address(host)}"


def remove(hosts):
    for host in range(hosts):
        sh(f"ip netns pids {namespace(host)} 2>/dev/null | xargs -r kill -9", check=False)
        # The kernel removes a namespace's links some time after the namespace. If they are removed by name, they are
        # gone at once.
        sh(f"ip link del {PREFIX}v{host} 2>/dev/null", check=False)
        sh(f"ip netns del {namespace(host)} 2>/dev/null", check=False)
    sh(f"ip link del {PREFIX}0 2>/dev/null", check=False)


@contextlib.contextmanager
def congestion(control):
    """Sets how TCP shares a full link, which new namespaces inherit. The setting is put back at the end. None: it stays
    as this machine has it."""
    if control is None:
        yield
        return
    name = "net.ipv4.tcp_congestion_control"
    before = sh(f"sysctl -n {name}").strip()
    sh(f"sysctl -qw {name}={control}")
    try:
        yield
    finally:
        sh(f"sysctl -qw {name}={before}")


@contextlib.contextmanager
def turn():
    """One program of this machine at a time makes networks: they have the same names, and the next one begins by
    removing what is left of the last, with its processes. The sign is a socket's name, which chroots share, and which
    the kernel frees when the program ends, however it ends."""
    begin, told = time.monotonic(), False
    with socket.socket(socket.AF_UNIX) as sign:
        while True:
            try:
                sign.bind(f"\0{PREFIX}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            if time.monotonic() > begin + 600:
                raise SystemExit("another program has had this machine's test networks for ten minutes; wait for it")
            if not told:
                print("waiting: another program has this machine's test networks", file=sys.stderr, flush=True)
            told = True
            time.sleep(0.2)
        yield


@contextlib.contextmanager
def signals_wait():
    """SIGINT and SIGTERM wait, so that nothing half made or half removed stays behind. The context manager that this
    gives lets them through: inside it, the first one ends the program as an exception. (`timeout` sends its signal
    twice.)"""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    came, passes = [], False

    def end():
        nonlocal passes
        passes = False
        raise SystemExit(128 + came[0])

    def note(number, _):
        came.append(number)
        if passes:
            end()

    @contextlib.contextmanager
    def let_through():
        nonlocal passes
        passes = True
        try:
            if came:
                end()
            yield
        finally:
            passes = False

    for number in before:
        signal.signal(number, note)
    try:
        yield let_through
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        end()


def inside(host):
    """The words before a command that is to run in the namespace of a host. `ip netns exec` and `ip -n` would also
    mount /sys anew, which fails in a chroot."""
    return ["nsenter", f"--net=/run/netns/{namespace(host)}"]


def give_address(host):
    ip = " ".join(inside(host)) + " ip"
    sh(f"{ip} addr add {address(host)}/24 dev e0 && {ip} link set e0 up && {ip} link set lo up")


@contextlib.contextmanager
def network(hosts, control="cubic"):
    """Makes `hosts` namespaces with addresses of their own on one bridge. They are removed at the end, also after an
    error, SIGINT or SIGTERM. TCP's congestion control is cubic, Linux's own choice, whatever this machine is set to.
    None keeps this machine's."""
    with turn(), signals_wait() as let_through:
        try:
            remove(hosts)
            sh(f"ip link add {PREFIX}0 type bridge && ip link set {PREFIX}0 up")
            for host in range(hosts):
                ns, outer = namespace(host), f"{PREFIX}v{host}"
                with congestion(control):
                    sh(f"ip netns add {ns}")
                sh(f"ip link add {outer} type veth peer name e0 netns {ns}")
                sh(f"ip link set {outer} master {PREFIX}0 up")
                give_address(host)
            with let_through():
                yield
        finally:
            remove(hosts)


def shape(hosts, rate):
    """Limits what every host sends and what it receives. None: there is no limit."""
    for host in range(hosts):
        for tc, device in ((" ".join([*inside(host), "tc"]), "e0"), ("tc", f"{PREFIX}v{host}")):
            sh(f"{tc} qdisc del dev {device} root 2>/dev/null", check=False)
            if rate:
                sh(f"{tc} qdisc add dev {device} root tbf rate {rate} {SHAPES[rate]}")


def sent_bytes(hosts):
    """How many bytes all hosts have sent so far, with TCP's and Ethernet's headers. The interfaces count them."""
    said = (sh(" ".join([*inside(host), "ip -json -statistics link show dev e0"])) for host in range(hosts))
    return sum(json.loads(text)[0]["stats64"]["tx"]["bytes"] for text in said)


def shell_script(folder):
    """Makes a program SCRIPT HOST LINE that runs a command line in the namespace of the host with that address, as ssh
    would. It drops options before the host, so that mpirun can use it, too."""
    path = pathlib.Path(folder) / "netns-shell"
    path.write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1\nshift\n'
        f'exec nsenter --net=/run/netns/{PREFIX}-$host sh -c "$*"\n'
    )
    path.chmod(0o755)
    return path


def may_make_networks():
    trial = (
        f"ip netns add {PREFIX}-trial && ip link add {PREFIX}t type veth peer name e0 netns {PREFIX}-trial && "
        f"nsenter --net=/run/netns/{PREFIX}-trial ip link set e0 up && "
        f"tc qdisc add dev {PREFIX}t root tbf rate 1gbit {SHAPES['1gbit']}"
    )
    undo = f"ip link del {PREFIX}t; ip netns del {PREFIX}-trial"
    if os.geteuid() != 0:
        return False
    with turn():
        done = not subprocess.run(trial, shell=True, stderr=subprocess.DEVNULL).returncode
        subprocess.run(undo, shell=True, stderr=subprocess.DEVNULL)
    return done


def need_root():
    """Ends the program with status 77, which means "skipped" for a test, if namespaces cannot be made."""
    if not may_make_networks():
        print("skipped: this makes network namespaces, which needs root and iproute2", file=sys.stderr)
        sys.exit(77)


def launch(tool, hosts, folder, words, keys=None):
    """The command line of `gradwire launch` over the namespaces, with one worker in each. keys: a folder of keys, to
    encrypt with."""
    names = pathlib.Path(folder) / "hosts"
    names.write_text("".join(f"{address(host)}\n" for host in range(hosts)))
    return [
        str(tool),
        "launch",
        "--hosts",
        str(names),
        "--ssh",
        str(shell_script(folder)),
        "--",
        *map(str, words),
        *(["--keys", str(keys)] if keys else ["--insecure"]),
    ]
