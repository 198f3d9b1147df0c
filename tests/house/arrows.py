"""Checks #include lines against the order of rooms: a room uses only rooms below it, and no files use each other in a
circle. Usage: arrows.py SOURCE_DIR"""

import re
import sys
from pathlib import Path

# What each room may use beside itself. A file's room is the longest name that fits its path. Tests may use any room.
ROOMS = {
    "zmq": {"base"},
    "link/tcp": {"base", "link", "wire", "zmq"},
    "pserver/protocol": {"base", "wire"},
    "pserver/store": {"base", "codec", "optimizer", "pserver/protocol", "wire"},
    "pserver/keep": {"base", "optimizer", "pserver/protocol", "pserver/store", "wire"},
    "pserver/server": {"base", "pserver/keep", "pserver/protocol", "pserver/store", "wire", "zmq"},
    "pserver/client": {"base", "pserver/protocol", "wire", "zmq"},
}


def room_of(path):
    fitting = [room for room in ROOMS if path.startswith(room + "/")]
    return max(fitting, key=len) if fitting else path.rpartition("/")[0]


def includes(source):
    """Returns {file: the inner headers that it includes} for every file of a room."""
    found = {}
    for room in ROOMS:
        for path in sorted((source / room).rglob("*.[ch]")):
            name = str(path.relative_to(source))
            if not re.search(r"_test\.c$|/test_\w+\.h$", name):
                found[name] = re.findall(r'^#include "([^"]+)"', path.read_text(), re.M)
    return found


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
    source = Path(sys.argv[1]) / "src"
    complaints = []
    uses = {}  # a header counts as one with the .c file of the same name
    for name, headers in includes(source).items():
        room = room_of(name)
        for header in headers:
            if room_of(header) not in {room, *ROOMS[room]}:
                complaints.append(f"src/{name} includes {header}: {room} may use {', '.join(sorted(ROOMS[room]))} only")
            if header[:-2] != name[:-2]:
                uses.setdefault(name[:-2], set()).add(header[:-2])
    if not uses:
        complaints.append("there is no file to look at")
    if found := circle(uses):
        complaints.append("these use each other in a circle: " + " -> ".join(found))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
