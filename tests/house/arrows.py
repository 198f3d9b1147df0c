"""Checks who uses whom. A file includes only what its room may use. No headers include each other in a circle, and no
files call each other in a circle. Usage: arrows.py SOURCE_DIR BUILD_DIR"""

import re
import subprocess
import sys
from pathlib import Path

# What each room may include beside itself. A name is a path below src or train, as #include lines have it, or a path
# from the top for the tool. A file's room is the longest name that fits its path. Tests may use any room.
ROOMS = {
    "base": set(),
    "wire": {"base"},
    "codec": {"base", "wire"},
    "codec/gspar": {"base", "codec", "codec/sparse", "wire"},
    "codec/topk": {"base", "codec", "codec/sparse", "wire"},
    "codec/uniform": {"base", "codec", "codec/sparse", "wire"},
    "src/net": {"base", "wire"},
    "link": {"base"},
    "link/tcp": {"base", "link", "src/net", "wire"},
    "owner": {"base", "codec", "wire"},
    "optimizer": {"base"},
    "exchange": {"base", "codec", "link", "owner", "pserver/client", "pserver/protocol", "wire"},
    "pserver": {"base"},
    "pserver/protocol": {"base", "wire"},
    "pserver/store": {"base", "codec", "optimizer", "pserver/protocol", "wire"},
    "pserver/folder": {"base", "optimizer", "pserver/protocol", "pserver/store", "wire"},
    "pserver/server": {"base", "pserver/folder", "pserver/protocol", "pserver/store", "src/net", "wire"},
    "pserver/client": {"base", "pserver/protocol", "src/net", "wire"},
    "plan": {"base"},
    "probe": {"base", "codec", "exchange", "link", "plan", "wire"},
    # the trainer
    "data": {"base"},
    "net": {"base", "data", "probe"},
    "members": {"base", "link"},
    "disk": {"base", "codec", "data", "net", "wire"},
    "run": {"base", "data", "disk", "members", "net", "optimizer", "plan", "probe", "wire"},
    # the tool. Of the library's rooms it may use what docs/design.md names, and nothing else
    "tool": {"base", "codec", "members", "plan", "predict", "status", "probe", "pserver/protocol"},
    "tool/predict": {"base", "predict"},
    "tool/trainer": {"base", "codec", "data", "disk", "members", "net", "plan", "probe", "report", "run"},
    "tool/report": {"base", "disk", "report"},
    "tool/status": {"base", "pserver/server", "src/net", "status"},
}
NO_ROOM = ""  # headers in no room: three that the trainer's rooms share, such as types.h, and those of the tool


SOCKETS = Path(__file__).resolve().parents[2] / "src"  # its net/ is another room than the trainer's net/


def room_of(path):
    if path.startswith("net/") and (SOCKETS / path).exists():
        return "src/net"
    fitting = [room for room in ROOMS if path.startswith(room + "/")]
    return max(fitting, key=len) if fitting else path.rpartition("/")[0]


def includes(source):
    """Returns {file: the inner headers that it includes} for every file that is no test."""
    found = {}
    for top, base in (("src", source / "src"), ("train", source / "train"), ("tool", source)):
        for path in sorted((source / top).rglob("*.[ch]")):
            name = str(path.relative_to(base))
            if not re.search(r"_test\.c$|(^|/)test_\w+\.h$", name):
                found[name] = re.findall(r'^#include "([^"]+)"', path.read_text(), re.M)
    return found


def calls(source, build):
    """Returns {file: the files whose functions it calls} for all that was compiled. A table may name its entries, as
    the table of codecs does, and an entry may call the table's file. So data do not count."""
    objects = {}  # by file; a file may be compiled several times, for several programs
    for path in sorted((build / "CMakeFiles").rglob("*.c.o")):
        name = re.search(r"\.dir/(.*)\.o$", str(path)).group(1)
        if re.match("(src|train|tool)/", name) and not name.endswith("_test.c") and (source / name).exists():
            objects.setdefault(name, path)
    if not objects:
        return {}
    said = subprocess.run(["nm", "-A", *map(str, objects.values())], check=True, stdout=subprocess.PIPE, text=True)
    file_of = {str(path): name for name, path in objects.items()}
    owner, wants = {}, {}
    for line in said.stdout.splitlines():
        path, rest = line.split(":", 1)
        *_, kind, symbol = rest.split()
        if kind == "U":
            wants.setdefault(file_of[path], set()).add(symbol)
        elif kind in "TWi":
            owner[symbol] = file_of[path]
    return {name: {owner[s] for s in symbols if owner.get(s, name) != name} for name, symbols in wants.items()}


def circle(uses):
    """Finds one circle of a graph. None: there is none."""
    state = {}

    def walk(node, way):
        state[node] = "open"
        for other in sorted(uses.get(node, ())):
            if state.get(other) == "open":
                return [*way[way.index(other) :], other]
            if other not in state and (found := walk(other, [*way, other])):
                return found
        state[node] = "done"
        return None

    for node in sorted(uses):
        if node not in state and (found := walk(node, [node])):
            return found
    return None


def main():
    source, build = Path(sys.argv[1]), Path(sys.argv[2])
    complaints = []
    uses = includes(source)
    if not uses:
        complaints.append(f"{source} has no file to look at")
    for name, headers in uses.items():
        room = room_of(name)
        if room != NO_ROOM and room not in ROOMS:
            complaints.append(f"{name} is in a room that the table of this test does not have")
        for header in headers:
            if room_of(header) not in {room, *ROOMS.get(room, ROOMS), NO_ROOM}:
                may = ", ".join(sorted(ROOMS[room])) or "nothing"
                complaints.append(f"{name} includes {header}: {room} may use {may} only")

    def whole(name, header):
        """A header of the tool is named as it lies beside the file, or in tool/."""
        near = [f"{name.rpartition('/')[0]}/{header}", f"tool/{header}"] if name.startswith("tool/") else []
        return next((path for path in near if path in uses), header)

    among = {name: [whole(name, h) for h in headers] for name, headers in uses.items() if name.endswith(".h")}
    if found := circle(among):
        complaints.append("these include each other in a circle: " + " -> ".join(found))
    called = calls(source, build)
    if not called:
        complaints.append(f"{build} holds no compiled file")
    if found := circle(called):
        complaints.append("these call each other in a circle: " + " -> ".join(found))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
