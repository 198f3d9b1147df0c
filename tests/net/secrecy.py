#!/usr/bin/env python3
"""Looks for a gradient in the packets of a run, with tcpdump. Without keys it is there in clear; with keys it is not.

    sudo tests/net/secrecy.py TOOL

Two network namespaces have a worker each. The codec is none, and there is one step. Every worker saves its gradient,
and the test searches for pieces of 32 bytes of it in all packets."""
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))
import net

HOSTS, PIECE = 2, 32


def pieces_of(path):
    """Returns pieces of the saved gradient. Pieces of mostly equal bytes are left out, because zeros are everywhere."""
    data = path.read_bytes()[4096:-8]
    pieces = {data[at : at + PIECE] for at in range(0, len(data) - PIECE, PIECE)}
    return [piece for piece in pieces if len(set(piece)) > PIECE // 2]


def seen_in_clear(tool, folder, extra):
    """Returns how many pieces of the gradients the packets hold, of how many, and the hash of the parameters."""
    folder.mkdir()
    dump = folder / "packets"
    tcpdump = subprocess.Popen(
        [*net.inside(0), "tcpdump", "-i", "e0", "-s", "0", "-B", "65536", "-w", str(dump), "tcp"],
        stderr=subprocess.PIPE,
        text=True,
    )
    said = ""
    while "listening on" not in said:
        line = tcpdump.stderr.readline()
        if not line:
            raise SystemExit(f"{said}tcpdump ended")
        said += line
    words = [
        "train",
        "--net",
        "mlp:784-64-10",
        "--data",
        "digits",
        "--batch",
        16,
        "--steps",
        1,
        "--codec",
        "none",
        "--save-gradients",
        folder / "gradient",
        "--save-at",
        0,
        *extra,
    ]
    done = subprocess.run(
        net.launch(tool, HOSTS, folder, words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    size = -1
    while size != dump.stat().st_size:  # wait until tcpdump has written all that it has seen
        size = dump.stat().st_size
        time.sleep(1)
    tcpdump.send_signal(signal.SIGINT)
    tcpdump.communicate()
    if done.returncode:
        raise SystemExit(f"{done.stderr}\ntraining failed")
    packets = dump.read_bytes()
    pieces = [piece for rank in range(HOSTS) for piece in pieces_of(folder / f"gradient.rank-{rank}.gwp")]
    return sum(piece in packets for piece in pieces), len(pieces), len(packets)


def main():
    net.need_root()
    if not shutil.which("tcpdump"):
        print("skipped: this needs tcpdump")
        return 77
    tool = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="gradwire-secrecy-") as folder, net.network(HOSTS):
        folder = pathlib.Path(folder)
        subprocess.run([tool, "keys", "new", str(folder / "keys")], check=True, stderr=subprocess.DEVNULL)
        open_found, open_all, open_bytes = seen_in_clear(tool, folder / "open", [])
        found, pieces, n_bytes = seen_in_clear(tool, folder / "keyed", ["--keys", folder / "keys"])
    print(
        f"without keys {open_found} of {open_all} pieces of the gradients are in {open_bytes} bytes of packets, "
        f"with keys {found} of {pieces} in {n_bytes}"
    )
    return 0 if open_found > open_all // 4 and found == 0 and n_bytes > open_bytes // 2 else 1


if __name__ == "__main__":
    sys.exit(main())
