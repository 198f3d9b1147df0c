#!/usr/bin/env python3
"""Trains over a bad network: one packet in a hundred is lost, or every packet takes 5 ms. The parameters must be those
of a run on threads.

    sudo tests/net/weather.py TOOL [--steps 200] [--loss] [--delay]      (without either: both)

Four network namespaces have a worker each. Loss is an nft rule that drops incoming packets at random. Delay is a relay:
every namespace has a TUN device in place of a card, and what goes in at one comes out at another 5 ms later."""
import argparse
import contextlib
import fcntl
import heapq
import json
import os
import pathlib
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))
import net

HOSTS, DELAY, LOSS = 4, 0.005, 100
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000


@contextlib.contextmanager
def lossy_network():
    with net.network(HOSTS):
        for host in range(HOSTS):
            net.sh(
                " ".join(net.inside(host)) + " nft 'add table inet weather; "
                f"add chain inet weather in {{ type filter hook input priority 0; }}; "
                f"add rule inet weather in iifname e0 numgen random mod {LOSS} == 0 counter drop'"
            )
        yield
        lost = [
            int(net.sh(" ".join([*net.inside(host), "nft list chain inet weather in"])).split("packets ")[1].split()[0])
            for host in range(HOSTS)
        ]
        print(f"{sum(lost)} packets were lost", flush=True)
        if not sum(lost):
            raise SystemExit("no packet was lost: this test shows nothing")


def relay(devices, stop):
    """Hands every packet on to the device of its host, DELAY seconds later."""
    waiting, count = [], 0
    while not stop.is_set():
        left = max(0, waiting[0][0] - time.monotonic()) if waiting else 0.2
        for device in select.select(devices, [], [], left)[0]:
            packet = os.read(device, 65536)
            host = packet[19] - 1 if packet[0] >> 4 == 4 else -1  # the last byte of the IPv4 address to which it goes
            if 0 <= host < HOSTS:
                heapq.heappush(waiting, (time.monotonic() + DELAY, count, host, packet))
                count += 1
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, host, packet = heapq.heappop(waiting)
            os.write(devices[host], packet)


@contextlib.contextmanager
def slow_network():
    devices, stop = [], threading.Event()
    thread = threading.Thread(target=relay, args=(devices, stop))
    with net.turn(), net.signals_wait() as let_through:
        try:
            net.remove(HOSTS)
            for host in range(HOSTS):
                ns, name = net.namespace(host), f"{net.PREFIX}t{host}"
                device = os.open("/dev/net/tun", os.O_RDWR)
                devices.append(device)
                fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH14x", name.encode(), IFF_TUN | IFF_NO_PI))
                net.sh(f"ip netns add {ns} && ip link set {name} netns {ns}")
                net.sh(" ".join([*net.inside(host), f"ip link set {name} name e0"]))
                net.give_address(host)
            thread.start()
            with let_through():
                yield
        finally:
            stop.set()
            if thread.is_alive():
                thread.join()
            for device in devices:
                os.close(device)
            net.remove(HOSTS)


def summary(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stderr}\ntraining failed")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--loss", action="store_true")
    parser.add_argument("--delay", action="store_true")
    args = parser.parse_args()
    net.need_root()
    if not shutil.which("nft") or not os.path.exists("/dev/net/tun"):
        print("skipped: this needs nft and /dev/net/tun")
        return 77
    tool = str(pathlib.Path(args.tool).resolve())
    words = [
        "train",
        "--net",
        "mlp:784-16-10",
        "--data",
        "digits",
        "--batch",
        8,
        "--steps",
        args.steps,
        "--codec",
        "ternary",
        "--json",
        "--timeout",
        120,
    ]
    expected = summary([tool, *words, "--workers", HOSTS])
    wrong = 0
    for name, wanted, network in (("loss", args.loss, lossy_network), ("delay", args.delay, slow_network)):
        if (args.loss or args.delay) and not wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="gradwire-weather-") as folder, network():
            s = summary(net.launch(tool, HOSTS, folder, words))
        same = s["parameter_hash"] == expected["parameter_hash"]
        wrong += not same
        print(
            f"{name}: {args.steps} steps of {s['step_ms']:.1f} ms (threads: {expected['step_ms']:.1f}); parameters "
            f"{'as on threads' if same else 'ARE OTHERS'}",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
