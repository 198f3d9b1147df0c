#!/usr/bin/env python3
"""Tests the parameter server's status page from outside: its numbers, Prometheus' format, hostile requests, hostile
names, a browser.

    tests/cli/pserver_status_test.py TOOL"""
import contextlib
import ctypes
import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from pserver_common import PATIENCE, PORTS, SOURCE, ask, check, fails, numpy, refused, serving, tool, until

import gradwire.pserver as ps

HOSTILE = '<img src=x onerror="document.title=\'taken\'">&<script>document.title="taken"</script>'
SOON = 8  # seconds for an answer that takes milliseconds; the page gives silent clients more time

# ---- Prometheus' text format 0.0.4 ------------------------------------------------------------------------------

FAMILY = re.compile(r"# HELP (\S+) \S.*\n# TYPE \1 (counter|gauge|histogram)\n((?:[^#\s].*\n)*)")
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
SAMPLE = re.compile(rf"([a-z_]+)(?:\{{((?:{LABEL},?)*)\}})? ([0-9.]+(?:e[+-]?\d+)?)")
OURS = re.compile("gradwire_pserver_|gradwire_build_info$|process_")


def parse_metrics(text):
    """Returns {(name, labels): value}. Each family must have HELP, then TYPE, then all its samples, once."""
    values, families = {}, FAMILY.findall(text)
    check("".join(found.group() for found in FAMILY.finditer(text)) == text, f"there are families alone: {text}")
    check(len({name for name, _, _ in families}) == len(families) > 10, "a family comes once")
    for name, kind, lines in families:
        check(OURS.match(name) and (kind == "counter") == name.endswith("_total"), f"counters alone end so: {name}")
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        for line in lines.splitlines():
            sample = SAMPLE.fullmatch(line)
            check(sample and sample[1] in [name + end for end in ends], f"a sample of {name}, not negative: {line}")
            series = sample[1], tuple(sorted(re.findall(LABEL, sample[2] or "")))
            check(series not in values, f"a series comes once: {line}")
            values[series] = float(sample[5])
        if kind == "histogram":
            bounds = [(float(labels[0][1]), n) for (series, labels), n in values.items() if series == f"{name}_bucket"]
            counts = [n for _, n in bounds]
            check(bounds == sorted(bounds) and counts == sorted(counts), f"{name}: classes grow")
            check(bounds[-1] == (float("inf"), values[f"{name}_count", ()]), f"{name}: the last class has all")
    return values


def one(values, name, **labels):
    return values["gradwire_pserver_" + name, tuple(sorted(labels.items()))]


def expect(page, text):
    """Waits until the numbers are as expected, and returns them. Each is a word: NAME=NUMBER, or NAME/LABEL=NUMBER."""
    expected = {}
    for name, number in (word.split("=") for word in text.split()):
        name, *value = name.split("/")
        label = "operation" if name == "requests_total" else "rank"
        expected[f"gradwire_pserver_{name}", tuple((label, v) for v in value)] = int(number)

    def holds():
        status, headers, body = ask(page, "/metrics")
        check((status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8"), headers)
        values = parse_metrics(body.decode())
        return values if all(values.get(key) == n for key, n in expected.items()) else None

    return until(holds, f"the numbers are {expected}")


# ---- numbers ------------------------------------------------------------------------------------------------------


def numbers():
    with serving("--workers", "3", "--max-clients", "7", "--metrics", "0") as (address, (server,)):
        page, status = server.page, lambda: json.loads(ask(server.page, "/status.json")[2])
        soon = lambda seconds: abs(seconds - time.time()) < 3600
        check(page[0] == "127.0.0.1", "a port alone is one of this machine's own address")
        expect(page, "clients=0 workers=3 workers_connected=0 keys=0 rounds_total=0 bytes_in_total=0")
        clients = [ps.Client(address, rank=rank, timeout=20) for rank in (0, 1, ps.READER)]
        clients[0].init_parameter("y", [2, 3], "int64")
        for client in clients:
            client.init_parameter("x", [1000], "float32")
        clients[0].push_parameter("y", numpy.ones((2, 3), numpy.int64))
        for client in clients[:2]:
            client.push_parameter("x", numpy.ones(1000))
        refused(lambda: clients[1].pull_parameter("nowhere", "max"), "")
        text = """requests_total/hello=3 requests_total/init=4 requests_total/push=3 requests_total/pull=1
            requests_total/invalid=0 worker_pushes_total/0=2 worker_pushes_total/1=1 worker_connected/0=1
            worker_connected/1=1 worker_connected/2=0 worker_missing_rounds/0=0 worker_missing_rounds/1=1
            worker_missing_rounds/2=2 keys=2 kept_bytes=8048 rounds_total=0 refused_total=1 waiting_requests=0
            push_seconds_count=3 pull_seconds_count=0 round_seconds_count=0 readers=1 clients=3 workers_connected=2
            max_clients=7 max_keys=1048576 max_key_bytes=1073741824"""
        values, said = expect(page, text), status()
        check(8048 < one(values, "bytes_in_total") < 12000, "bytes of values and of heads")
        check(0 < one(values, "bytes_out_total") < 2000, "bytes of heads")
        check(soon(one(values, "worker_connected_since_seconds", rank="1", address="127.0.0.1")), "since when")
        check(one(values, "max_bytes") > 1 << 30, "a default of memory")
        check(one(values, "info", address=address, mode="sync", staleness="0") == 1, "which server it is")
        version = tool("--version").stdout.split()[1]
        check(values["gradwire_build_info", (("version", version),)] == 1, "the version that runs")
        check([said["server"][name] for name in ("address", "mode", "version")] == [address, "sync", version], said)
        away = [(a["rank"], a["presence"], a["gone"]) for a in said["away"]]
        check(away == [(2, "away", 0)] and (said["slowest"], said["workers_connected"]) == (2, 2), said)
        members = [(m["rank"], m["address"], m.get("pushes"), soon(m["since"])) for m in said["members"]]
        local = "127.0.0.1"
        check(members == [(0, local, 2, True), (1, local, 1, True), (None, local, None, True)], said)
        x = {"name": "x", "type": "float32", "shape": [1000], "rounds": 0, "bytes": 8000, "missing": 1}
        y = {"name": "y", "type": "int64", "shape": [2, 3], "rounds": 0, "bytes": 48, "missing": 2}
        check(sorted(said["first_keys"], key=lambda key: key["name"]) == [x, y], said)
        # The third worker comes, and its pull waits.
        with ps.Client(address, rank=2, timeout=20) as third:
            third.init_parameter("y", [2, 3], "int64")
            third.push_parameter("y", numpy.ones((2, 3), numpy.int64))
            waiting = threading.Thread(target=third.pull_parameter, args=["y", "sum"])
            waiting.start()
            expect(page, "worker_missing_rounds/2=1 waiting_requests=1 workers_connected=3")
            clients[1].init_parameter("y", [2, 3], "int64")
            clients[1].push_parameter("y", numpy.ones((2, 3), numpy.int64))
            waiting.join(PATIENCE)
        text = """requests_total/bye=1 waiting_requests=0 rounds_total=1 workers_connected=2 push_seconds_count=5
            pull_seconds_count=1 round_seconds_count=1"""  # the times of what waited, too
        before = expect(page, text)
        # The round is in the history once its step of time is over.
        until(lambda: sum(status()["history"]["rounds"]) == 1, "a history")
        check(soon(status()["away"][0]["gone"]), "since when rank 2 is gone")
        for k in range(150):
            clients[0].init_parameter(f"key {k}", [], "uint8")
        clients[2].close()
        after = expect(page, "keys=152 clients=2")
        check(all(after[key] >= n for key, n in before.items() if key[0].endswith("_total")), "counters only grow")
        check(len(status()["first_keys"]) == 100, "the first hundred keys are listed")
        # The numbers that Prometheus' clients have of every process.
        of = lambda name: after["process_" + name, ()]
        check(1 << 20 < of("resident_memory_bytes") < of("virtual_memory_bytes"), "memory")
        check(0 < of("cpu_seconds_total") < 3600 and soon(of("start_time_seconds")), "processor time, and the start")
        check(3 < of("open_fds") < of("max_fds"), "descriptors")
        prometheus("metrics", input=ask(page, "/metrics")[2])


def prometheus(*words, **options):
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", *words], check=True, **options)
    else:
        print(f"left out: promtool check {words[0]}")


def alerts():
    """The rules for alerts use only metrics that there are."""
    file = SOURCE / "packaging/gradwire-alerts.yml"
    rules = file.read_text()
    names = set(re.findall(r"\b(?:gradwire|process)_\w+", rules))
    check(len(names) > 10 and rules.count("alert:") == rules.count("expr:"), f"there are rules: {names}")
    with tempfile.TemporaryDirectory() as folder:
        with serving("--workers", "1", "--metrics", "0", "--snapshot", folder) as (address, (server,)):
            with ps.Client(address, rank=0, timeout=20):
                there = {name for name, _ in expect(server.page, "workers_connected=1")}
    check(names <= there, f"the rules use metrics that there are not: {names - there}")
    prometheus("rules", file)


# ---- requests -----------------------------------------------------------------------------------------------------


def answers(page):
    status, headers, body = ask(page, "/")
    check(status == 200 and headers["Content-Type"].startswith("text/html"), headers)
    check("default-src 'none'" in headers["Content-Security-Policy"], headers)
    outside = re.findall(r"(?:src|href)\s*=\s*[\"'](?!data:,)|https?://", body.decode())
    check(not outside, f"the page needs nothing from elsewhere: {outside}")
    check(b"innerHTML" not in body and b"document.write" not in body, "the page sets text, not markup")
    for path in ("/", "/metrics", "/status.json", "/health"):
        status, headers, body = ask(page, path, "HEAD")
        check(status == 200 and body == b"" and int(headers["Content-Length"]) > 0, f"HEAD {path}: {status}")
        check(headers["X-Content-Type-Options"] == "nosniff", headers)


def hostile_requests(page):
    """libmicrohttpd reads the requests, and has tests of its own."""
    for method in ("POST", "DELETE", "BREW"):
        status, headers, _ = ask(page, "/metrics", method, b"x" * 1000)
        check(status == 405 and headers["Allow"] == "GET, HEAD", f"{method} is not answered: {status}")
    for path in ("/metricsx", "/../etc/passwd", "/%2e%2e/etc/passwd", "//", "/metrics/", "/a%00/", "/" + "a" * 5000):
        status, _, body = ask(page, path)
        check(status in (400, 404) and b"root:" not in body, f"{path[:20]}: {status}")
    with contextlib.suppress(ConnectionError, http.client.HTTPException):
        check(ask(page, "/health", headers={"X": "y" * 100_000})[0] >= 400, "a head of 100,000 bytes is not answered")
    check(ask(page, "/health")[::2] == (200, b"ok\n"), "the page is there after all that")


def half_request(page):
    s = socket.socket()
    s.settimeout(0.2)  # if the queue of the system is full, nobody answers
    with contextlib.suppress(OSError):
        s.connect(page)
        s.sendall(b"GET /metr")
    return s


def many_connections(address, page):
    """Half requests do not take all places of the page, neither silent ones nor those that send a byte now and then and
    come again. It answers other clients meanwhile, and so does the server."""
    held = [half_request(page) for _ in range(200)]
    with ps.Client(address, rank=0, timeout=20) as client:
        client.init_parameter("beside", [1], "float32")
        for step in range(1000):
            if step % 100 == 0:
                check(ask(page, "/health", timeout=SOON)[0] == 200, "the page answers beside 200 half requests")
                client.push_parameter("beside", [step])
                check(client.pull_parameter("beside", "max") == step, "the server answers, too")
            at = step % len(held)
            try:
                held[at].sendall(b"x")
            except OSError:
                held[at].close()
                held[at] = half_request(page)
    held[-1].close()
    held[-1] = half_request(page)  # it has a place, and nobody takes that away
    held[-1].settimeout(PATIENCE)
    with contextlib.suppress(ConnectionError):
        check(held[-1].recv(1 << 16).split(b" ")[1:2] in ([], [b"408"]), "the page ends a half request after some time")
    # A client that asks keeps its connection, while others come that say nothing.
    browser = http.client.HTTPConnection(*page, timeout=PATIENCE)
    for _ in range(20):
        browser.request("GET", "/health")
        check(browser.getresponse().read() == b"ok\n", "a connection that asks again and again is answered")
        held += [half_request(page) for _ in range(10)]
    for s in [*held, browser]:
        s.close()


def hostile_names(client, page):
    client.init_parameter(HOSTILE, [1], "float32")
    wild = b"\xff\xfe<b>\xc3("
    client._wait(ps._INIT, wild, options=ps._KeyOptions(struct_bytes=ctypes.sizeof(ps._KeyOptions), type=1))
    expect(page, "keys=3")
    _, headers, body = ask(page, "/status.json")
    check(headers["Content-Type"] == "application/json" and not set(b"<>&") & set(body), "nothing there is markup")
    check([key["name"] for key in json.loads(body)["first_keys"]] == ["beside", HOSTILE, r"\xff\xfe<b>\xc3("], body)
    check(b"<img" not in ask(page, "/metrics")[2] and b"onerror" not in ask(page, "/")[2], "names are nowhere else")


def browser(address, page):
    """Draws the page in a browser. Checks what it says, that its console is empty, and that no name became markup."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not program:
        print("left out: no Chromium to draw the page")
        return
    with tempfile.TemporaryDirectory() as folder:
        words = [program, *"--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage".split()]
        words += ["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"]
        words += [f"--user-data-dir={folder}", f"http://{page[0]}:{page[1]}/"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line or "Uncaught" in line]
    check(done.returncode == 0 and not console, console or done.stderr[-2000:])
    title = f"<title>{address} - Gradwire server</title>"
    parts = [">live<", "beside", "127.0.0.1", "&lt;img src=x", title, f"{address}, mode sync, version "]
    lacks = [part for part in parts if part not in done.stdout]
    check(not lacks and "<img" not in done.stdout, f"the page lacks {lacks}: {done.stdout}")


# ---- addresses ----------------------------------------------------------------------------------------------------


def addresses():
    """A second server's page is refused at the port of the first, however the two addresses overlap. The port is free
    for the next server at once, whatever is left of old connections. net_address_test has wrong addresses."""
    base = ["--workers", "1", "--insecure", "--metrics"]
    words = ["server", "--listen", "127.0.0.1:0", *base]
    fails([*words, ""], "--metrics is empty")
    fails("server --listen 127.0.0.1:0 --workers 1 --metrics 0.0.0.0:0".split(), "is not a loopback address")
    pairs = [("127.0.0.1", "0.0.0.0"), ("[::]", "127.0.0.1"), ("0.0.0.0", "[::]")]
    for first, second in pairs if socket.has_dualstack_ipv6() else pairs[:1]:
        with serving(*base, f"{first}:{next(PORTS)}") as (_, (server,)):
            host, port = server.page
            fails([*words, f"{second}:{port}"], f"cannot listen at {second}:{port}", "another program listens there")
            held = http.client.HTTPConnection(host, port, timeout=PATIENCE)
            held.request("GET", "/health")
            check(held.getresponse().read() == b"ok\n", f"the page at {first}, with a connection that stays open")
        with serving(*base, f"{first}:{port}"):
            held.close()


def main():
    absent = tool(*"server --workers 1 --listen 127.0.0.1:0 --metrics nowhere".split())
    if "this build has no" in absent.stderr:
        check(absent.returncode == 1, absent.stderr)
        print("skipped: this build has no status page")
        return 77
    numbers()
    with serving("--workers", "1", "--metrics", "127.0.0.1:0") as (address, (server,)):
        answers(server.page)
        check(json.loads(ask(server.page, "/status.json")[2])["server"]["max_clients"] > 1024, "all workers find room")
        hostile_requests(server.page)
        many_connections(address, server.page)
        with ps.Client(address, rank=0, timeout=20) as client:
            hostile_names(client, server.page)
            browser(address, server.page)
    alerts()
    addresses()
    print("the status page answers as it must")
    return 0


if __name__ == "__main__":
    sys.exit(main())
