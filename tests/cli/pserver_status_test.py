#!/usr/bin/env python3
"""Tests the parameter server's status page from outside: its numbers, Prometheus' format, hostile requests, hostile
names, a browser.

    tests/cli/pserver_status_test.py TOOL"""
import contextlib
import ctypes
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from pserver_common import SOURCE, TOOL, check, check_lines, numpy

HOSTILE = '<img src=x onerror="document.title=\'taken\'">&<script>document.title="taken"</script>'
PATIENCE = 30  # seconds within which numbers must have come
SOON = 8  # seconds for an answer that takes milliseconds; the page gives silent clients more time


@contextlib.contextmanager
def server(*options):
    process = subprocess.Popen(
        [str(TOOL), "server", "--listen", "127.0.0.1:0", *options], stderr=subprocess.PIPE, text=True, errors="replace"
    )
    first = process.stderr.readline()
    if " keeping folder=" in first:
        first = process.stderr.readline()
    address = re.search(r"listening address=(\S+)", first)
    page = re.search(r"showing status=http://(\S+):(\d+)/", process.stderr.readline())
    check(address and page, "the log says where the server listens and where its page is")
    try:
        yield address.group(1), (page.group(1), int(page.group(2)))
        process.send_signal(signal.SIGTERM)
        log = process.communicate(timeout=20)[1]
        check(process.returncode == 0, f"the server ends with {process.returncode}:\n{log}")
        check_lines(log)
        check("\ufffd" not in log, f"the log is UTF-8, whatever the names are:\n{log}")
    finally:
        process.kill()
        process.wait()


def ask(page, path, method="GET", body=None, headers={}, timeout=20):
    connection = http.client.HTTPConnection(*page, timeout=timeout)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


# ---- Prometheus' text format 0.0.4 ------------------------------------------------------------------------------

SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)*)\})?'
    r" (-?[0-9.]+(?:e[+-]?\d+)?|NaN|[+-]Inf)"
)
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')


def parse_metrics(text):
    """Returns {(name, labels): value}. Each family must have HELP, then TYPE, then all its samples, once."""
    check(text.endswith("\n") and "\n\n" not in text and "\r" not in text, "lines end with one line feed")
    values, types, current, helped = {}, {}, None, None
    for line in text.splitlines():
        words = line.split(" ", 3)
        if words[:2] == ["#", "HELP"]:
            check(len(words) == 4 and words[3] and words[2] not in types, f"one help for a family: {line}")
            helped = words[2]
        elif words[:2] == ["#", "TYPE"]:
            check(
                len(words) == 4
                and words[2] == helped
                and words[2] not in types
                and words[3] in ("counter", "gauge", "histogram"),
                f"a type after its help: {line}",
            )
            check(
                re.match("gradwire_pserver_|gradwire_build_info$|process_", words[2])
                and (words[3] == "counter") == words[2].endswith("_total"),
                f"a counter's name, and no other, ends in _total: {line}",
            )
            current = words[2]
            types[current] = words[3]
        else:
            sample = SAMPLE.fullmatch(line)
            ends = ("_bucket", "_sum", "_count") if types.get(current) == "histogram" else ("",)
            check(
                sample and sample.group(1) in [f"{current}{end}" for end in ends],
                f"a sample of the family before it: {line}",
            )
            name, labels = sample.group(1), tuple(sorted(LABEL.findall(sample.group(2) or "")))
            check((name, labels) not in values, f"a series comes once: {line}")
            values[name, labels] = float(sample.group(3))
            check(values[name, labels] >= 0, f"counts are not negative: {line}")
    check(len(types) > 10, "there are families")
    for name in (name for name, type in types.items() if type == "histogram"):
        bounds = [(float(labels[0][1]), n) for (series, labels), n in values.items() if series == f"{name}_bucket"]
        check(
            bounds == sorted(bounds) and [n for _, n in bounds] == sorted(n for _, n in bounds), f"{name}: classes grow"
        )
        check(bounds[-1] == (float("inf"), values[f"{name}_count", ()]), f"{name}: the last class has all")
    return values


def metrics(page):
    status, headers, body = ask(page, "/metrics")
    check(
        status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", f"{status} {headers}"
    )
    return parse_metrics(body.decode())


def one(values, name, **labels):
    return values["gradwire_pserver_" + name, tuple(sorted(labels.items()))]


def until(page, expected):
    """Waits until the numbers are as expected, and returns them. expected: {(name, (label, value)...): number}."""
    end = time.monotonic() + PATIENCE
    while True:
        values = metrics(page)
        wrong = {
            key: values.get(("gradwire_pserver_" + key[0], key[1:]))
            for key, number in expected.items()
            if values.get(("gradwire_pserver_" + key[0], key[1:])) != number
        }
        if not wrong:
            return values
        check(time.monotonic() < end, f"numbers are {wrong}, and must be {expected}")
        time.sleep(0.1)


# ---- tests --------------------------------------------------------------------------------------------------------


def numbers(ps):
    options = ["--workers", "3", "--max-clients", "7", "--metrics", "0"]
    with server(*options) as (address, page):
        check(page[0] == "127.0.0.1", "a port alone is one of this machine's own address")
        until(
            page,
            {
                ("clients",): 0,
                ("workers",): 3,
                ("workers_connected",): 0,
                ("keys",): 0,
                ("rounds_total",): 0,
                ("bytes_in_total",): 0,
            },
        )
        clients = [ps.Client(address, rank=rank, timeout=20) for rank in (0, 1)] + [
            ps.Client(address, rank=ps.READER, timeout=20)
        ]
        until(page, {("clients",): 3, ("workers_connected",): 2, ("requests_total", ("operation", "hello")): 3})
        clients[0].init_parameter(key="x", shape=[1000], type="float32")
        clients[0].init_parameter(key="y", shape=[2, 3], type="int64")
        for client in clients[1:]:
            client.init_parameter(key="x", shape=[1000], type="float32")
        clients[0].push_parameter(key="x", value=numpy.ones(1000, numpy.float32))
        clients[0].push_parameter(key="y", value=numpy.ones((2, 3), numpy.int64))
        clients[1].push_parameter(key="x", value=numpy.ones(1000, numpy.float32))
        try:
            clients[1].pull_parameter(key="nowhere", reduce_method="max")
            check(False, "a key that is not there is refused")
        except RuntimeError:
            pass
        values = until(
            page,
            {
                ("keys",): 2,
                ("kept_bytes",): 8048,
                ("rounds_total",): 0,
                ("refused_total",): 1,
                ("waiting_requests",): 0,
                ("requests_total", ("operation", "init")): 4,
                ("requests_total", ("operation", "push")): 3,
                ("requests_total", ("operation", "pull")): 1,
                ("requests_total", ("operation", "invalid")): 0,
                ("worker_pushes_total", ("rank", "0")): 2,
                ("worker_pushes_total", ("rank", "1")): 1,
                ("worker_missing_rounds", ("rank", "0")): 0,
                ("worker_missing_rounds", ("rank", "1")): 1,
                ("worker_missing_rounds", ("rank", "2")): 2,
            },
        )
        check(
            8048 < one(values, "bytes_in_total") < 12000 and 0 < one(values, "bytes_out_total") < 2000,
            "bytes of values and of heads",
        )
        check(
            [one(values, f"{what}_seconds_count") for what in ("push", "pull", "round")] == [3, 0, 0],
            "times of what was done: the pull was refused",
        )
        check(
            {labels: n for (name, labels), n in values.items() if name == "gradwire_pserver_worker_connected"}
            == {(("rank", "0"),): 1, (("rank", "1"),): 1, (("rank", "2"),): 0},
            "who is connected",
        )
        since = one(values, "worker_connected_since_seconds", rank="1", address="127.0.0.1")
        check(abs(since - time.time()) < 3600 and one(values, "readers") == 1, "since when, and how many readers")
        check(
            [one(values, f"max_{what}") for what in ("clients", "keys", "key_bytes")] == [7, 1 << 20, 1 << 30]
            and one(values, "max_bytes") > 1 << 30,
            "the limits: those that were given, and the defaults",
        )
        check(one(values, "info", address=address, mode="sync", staleness="0") == 1, "which server it is")
        version = subprocess.run([str(TOOL), "--version"], stdout=subprocess.PIPE, text=True).stdout.split()[1]
        check(values["gradwire_build_info", (("version", version),)] == 1, "the version that runs")
        status = json.loads(ask(page, "/status.json")[2])
        check(status["away"][0]["gone"] == 0, f"rank 2 has not come yet: {status}")
        check(
            status["slowest"] == 2
            and [(a["rank"], a["presence"]) for a in status["away"]] == [(2, "away")]
            and status["workers_connected"] == 2,
            status,
        )
        check(
            [(m["rank"], m["address"], m.get("pushes")) for m in status["members"]]
            == [(0, "127.0.0.1", 2), (1, "127.0.0.1", 1), (None, "127.0.0.1", None)],
            status,
        )
        check(all(abs(m["since"] - time.time()) < 3600 for m in status["members"]), status)
        check(
            status["first_keys"]
            == [
                {"name": "x", "type": "float32", "shape": [1000], "rounds": 0, "bytes": 8000, "missing": 1},
                {"name": "y", "type": "int64", "shape": [2, 3], "rounds": 0, "bytes": 48, "missing": 2},
            ],
            status,
        )
        # The third worker comes, and the requests that waited go on.
        waiting = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import sys; sys.path.insert(0, {str(SOURCE / 'python')!r})\nimport gradwire.pserver as ps\n"
                f"client = ps.Client('{address}', rank=2)\nclient.init_parameter(key='y', shape=[2, 3], type='int64')\n"
                "client.push_parameter(key='y', value=[[1, 1, 1], [1, 1, 1]])\n"
                "client.pull_parameter(key='y', reduce_method='sum')\n",
            ]
        )
        until(page, {("waiting_requests",): 1, ("workers_connected",): 3, ("worker_missing_rounds", ("rank", "2")): 1})
        clients[1].init_parameter(key="y", shape=[2, 3], type="int64")
        clients[1].push_parameter(key="y", value=numpy.ones((2, 3), numpy.int64))
        check(waiting.wait(timeout=60) == 0, "the one who waited is answered")
        before = until(
            page,
            {
                ("waiting_requests",): 0,
                ("rounds_total",): 1,
                ("workers_connected",): 2,
                ("requests_total", ("operation", "bye")): 1,
            },
        )
        check(
            [one(before, f"{what}_seconds_count") for what in ("push", "pull", "round")] == [5, 1, 1],
            f"times of what waited, too: {before}",
        )
        status = json.loads(ask(page, "/status.json")[2])
        check(abs(status["away"][0]["gone"] - time.time()) < 3600, f"since when rank 2 is gone: {status}")
        end = time.monotonic() + PATIENCE
        while sum(status["history"]["rounds"]) != 1:  # the round is in the history once its step of time is over
            check(time.monotonic() < end, f"the history has the round: {status}")
            time.sleep(0.1)
            status = json.loads(ask(page, "/status.json")[2])
        check(
            (status["server"]["address"], status["server"]["mode"], status["server"]["version"])
            == (address, "sync", version),
            status,
        )
        for k in range(150):
            clients[0].init_parameter(key=f"key {k}", shape=[], type="uint8")
        clients[2].close()
        after = until(page, {("keys",): 152, ("clients",): 2})
        check(
            all(after[key] >= value for key, value in before.items() if key[0].endswith("_total")), "counters only grow"
        )
        check(one(after, "seconds_since_start") > one(before, "seconds_since_start"), "time goes on")
        check(len(json.loads(ask(page, "/status.json")[2])["first_keys"]) == 100, "the first hundred keys are listed")
        process(after)
        lint(page)


def process(values):
    """The numbers that Prometheus' clients have of every process."""
    check(
        1 << 20 < values["process_resident_memory_bytes", ()] < values["process_virtual_memory_bytes", ()],
        "memory",
    )
    check(0 < values["process_cpu_seconds_total", ()] < 3600, "processor time")
    check(3 < values["process_open_fds", ()] < values["process_max_fds", ()], "descriptors")
    check(abs(values["process_start_time_seconds", ()] - time.time()) < 3600, "when it began")


def lint(page):
    if not shutil.which("promtool"):
        print("left out: promtool is not installed")
        return
    done = subprocess.run(["promtool", "check", "metrics"], input=ask(page, "/metrics")[2], capture_output=True)
    check(done.returncode == 0, done.stderr.decode() + done.stdout.decode())


def alerts(page):
    """The rules for alerts use only metrics that there are."""
    file = SOURCE / "packaging/gradwire-alerts.yml"
    rules = file.read_text()
    names = set(re.findall(r"\b(?:gradwire|process)_\w+", rules))
    check(len(names) > 10 and rules.count("alert:") == rules.count("expr:"), f"there are rules: {names}")
    there = {name for name, _ in metrics(page)}
    check(names <= there, f"the rules use metrics that there are not: {names - there}")
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "rules", file], check=True)


def answers(page):
    status, headers, body = ask(page, "/health")
    check((status, body) == (200, b"ok\n"), f"/health: {status} {body}")
    status, headers, body = ask(page, "/")
    check(
        status == 200
        and headers["Content-Type"].startswith("text/html")
        and "default-src 'none'" in headers["Content-Security-Policy"],
        headers,
    )
    html = body.decode()
    check(
        not re.search(r"(src|href)\s*=\s*[\"'](?!data:,)", html) and "http://" not in html and "https://" not in html,
        "the page needs nothing from elsewhere",
    )
    check("innerHTML" not in html and "document.write" not in html, "the page sets text, not markup")
    for path in ("/", "/metrics", "/status.json", "/health"):
        status, headers, body = ask(page, path, "HEAD")
        check(
            status == 200
            and body == b""
            and int(headers["Content-Length"]) > 0
            and headers["X-Content-Type-Options"] == "nosniff",
            f"HEAD {path}: {status}",
        )


def hostile_requests(page):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"):
        status, headers, _ = ask(page, "/metrics", method, b"x" * 1000)
        check(status == 405 and headers["Allow"] == "GET, HEAD", f"{method} is not answered: {status}")
    for path in ("/metricsx", "/../etc/passwd", "/%2e%2e/etc/passwd", "//", "/metrics/", "/a%00/", "/" + "a" * 5000):
        status, _, body = ask(page, path)
        check(status in (400, 404) and b"root:" not in body, f"{path[:20]}: {status}")
    for path in ("/" + "a" * 100_000, "/?" + "a" * 100_000):
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            check(ask(page, path)[0] >= 400, "a path of 100,000 bytes is not answered")
    with contextlib.suppress(ConnectionError, http.client.HTTPException):
        check(ask(page, "/health", headers={"X": "y" * 100_000})[0] >= 400, "nor is such a head")
    for bytes in (
        b"\0" * 1000,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GWPQ" + os.urandom(500),
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"GET /health HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    ):
        with socket.create_connection(page, timeout=20) as s, contextlib.suppress(ConnectionError):
            s.sendall(bytes)
            s.shutdown(socket.SHUT_WR)
            while s.recv(65536):
                pass
    check(ask(page, "/health")[0] == 200, "the page is there after all that")


def half_request(page):
    s = socket.socket()
    s.settimeout(0.2)  # if the queue of the system is full, nobody answers
    with contextlib.suppress(OSError):
        s.connect(page)
        s.sendall(b"GET /metr")
    return s


@contextlib.contextmanager
def half_requests(page, n, trickle):
    """Opens n connections that have sent half a request. trickle: they send one more byte now and then, and come again
    if the page has closed them."""
    held, stop = [half_request(page) for _ in range(n)], threading.Event()

    def go_on():
        while trickle and not stop.is_set():
            for i, s in enumerate(held):
                try:
                    s.sendall(b"x")
                except OSError:
                    s.close()
                    held[i] = half_request(page)
                if stop.wait(0.001):
                    break

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield held
    finally:
        stop.set()
        thread.join()
        for s in held:
            s.close()


def many_connections(ps, address, page):
    """Half requests do not take all places of the page: it answers other clients meanwhile. The server goes on, too."""
    for trickle in (False, True):
        with half_requests(page, 200, trickle) as held, ps.Client(address, rank=0, timeout=20) as client:
            for _ in range(10):
                try:
                    status = ask(page, "/health", timeout=SOON)[0]
                except OSError as error:
                    status = error
                check(status == 200, f"/health beside 200 half requests, trickle {trickle}: {status}")
            client.init_parameter(key="beside", shape=[1], type="float32")
            for step in range(100):
                client.push_parameter(key="beside", value=[step])
                check(client.pull_parameter(key="beside", reduce_method="max") == step, "the server serves beside that")
            if not trickle:  # the clients hold their connections, but the page ends half a request after some time
                held[-1].settimeout(PATIENCE)
                check(held[-1].recv(1 << 16).split(b" ")[1:2] in ([], [b"408"]), "a half request is ended")
    # A client that asks keeps its connection, while others come that say nothing.
    browser = http.client.HTTPConnection(*page, timeout=PATIENCE)
    silent = []
    for _ in range(20):
        browser.request("GET", "/health")
        check(browser.getresponse().read() == b"ok\n", "a connection that asks again and again is answered")
        silent += [half_request(page) for _ in range(10)]
    for s in [*silent, browser]:
        s.close()


def hostile_names(ps, client, page):
    client.init_parameter(key=HOSTILE, shape=[1], type="float32")
    wild = b"\xff\xfe<b>\xc3("
    client._wait(ps._INIT, wild, options=ps._KeyOptions(struct_bytes=ctypes.sizeof(ps._KeyOptions), type=1))
    until(page, {("keys",): 3})
    status, headers, body = ask(page, "/status.json")
    check(
        headers["Content-Type"] == "application/json" and not set(b"<>&") & set(body), "nothing in the answer is markup"
    )
    check([key["name"] for key in json.loads(body)["first_keys"]] == ["beside", HOSTILE, "??<b>?("], body)
    check(b"<img" not in ask(page, "/metrics")[2] and b"onerror" not in ask(page, "/")[2], "names are nowhere else")


def browser(address, page):
    """Draws the page in a browser. Checks what it says, that its console is empty, and that no name became markup."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not program:
        print("left out: no Chromium to draw the page")
        return
    for scheme in ("light", "dark"):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [
                    program,
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                    f"--user-data-dir={folder}",
                    *(["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []),
                    "--enable-logging=stderr",
                    "--virtual-time-budget=5000",
                    "--dump-dom",
                    f"http://{page[0]}:{page[1]}/",
                ],
                capture_output=True,
                text=True,
                timeout=240,
            )
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line or "Uncaught" in line]
        check(done.returncode == 0 and not console, f"{scheme}: {console or done.stderr[-2000:]}")
        check(
            ">live<" in done.stdout and "beside" in done.stdout and "127.0.0.1" in done.stdout,
            f"{scheme}: the page shows what there is: {done.stdout}",
        )
        check(
            "&lt;img src=x" in done.stdout
            and "<img" not in done.stdout
            and f"<title>{address} - Gradwire server</title>" in done.stdout
            and f"{address}, mode sync, version " in done.stdout,
            f"{scheme}: {done.stdout}",
        )


def wrong_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for options, said in (
            (["--metrics", "0.0.0.0:0"], "is not a loopback address"),
            (["--metrics", "nowhere"], "HOST:PORT"),
            (["--metrics", "99999"], "65535"),
            (["--metrics", ""], "--metrics is empty"),
            (["--metrics", f"127.0.0.1:{taken.getsockname()[1]}"], "cannot listen at 127.0.0.1:"),
        ):
            done = subprocess.run(
                [str(TOOL), "server", "--workers", "1", "--listen", "127.0.0.1:0", *options],
                stderr=subprocess.PIPE,
                text=True,
                timeout=20,
            )
            check(done.returncode in (1, 2) and said in done.stderr, f"{options}: {done.returncode} {done.stderr}")
    for where in ("0.0.0.0:0", "[::]:0", "[::1]:0"):
        if "::" in where and not has_ipv6():
            print("left out: this machine has no IPv6")
            continue
        with server("--workers", "1", "--metrics", where, *([] if "1" in where else ["--insecure"])) as (_, page):
            check(ask((page[0].strip("[]"), page[1]), "/health")[0] == 200, f"the page at {where}")


def one_page_a_port():
    """A second server's page is refused at the port of the first, however the two addresses overlap."""
    pairs = [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0")]
    if has_ipv6():
        pairs += [("[::1]", "[::1]"), ("[::]", "[::1]"), ("[::1]", "[::]"), ("[::]", "127.0.0.1"), ("0.0.0.0", "[::]")]
    for first, second in pairs:
        with server("--workers", "1", "--insecure", "--metrics", f"{first}:0") as (_, page):
            port = page[1]
            done = subprocess.run(
                [str(TOOL), "server", "--workers", "1", "--listen", "127.0.0.1:0", "--insecure"]
                + ["--metrics", f"{second}:{port}"],
                stderr=subprocess.PIPE,
                text=True,
                timeout=20,
            )
            check(
                done.returncode == 1
                and f"cannot listen at {second}:{port}" in done.stderr
                and "another program listens there" in done.stderr,
                f"{second} beside {first}: {done.returncode} {done.stderr}",
            )
            held = http.client.HTTPConnection(page[0].strip("[]"), port, timeout=PATIENCE)
            held.request("GET", "/health")
            check(held.getresponse().read() == b"ok\n", "a connection that is open when the server ends")
        with server("--workers", "1", "--insecure", "--metrics", f"{first}:{port}"):
            held.close()  # the port is free for the next server at once, whatever is left of old connections


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as s:
        s.bind(("::1", 0))
        return True
    return False


def main():
    absent = subprocess.run(
        [str(TOOL), "server", "--workers", "1", "--listen", "127.0.0.1:0", "--metrics", "nowhere"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=20,
    )
    if "this build has no" in absent.stderr:
        check(absent.returncode == 1, absent.stderr)
        print("skipped: this build has no status page")
        return 77
    import gradwire.pserver as ps

    numbers(ps)
    with server("--workers", "1", "--metrics", "127.0.0.1:0") as (address, page):
        answers(page)
        hostile_requests(page)
        many_connections(ps, address, page)
        with ps.Client(address, rank=0, timeout=20) as client:
            hostile_names(ps, client, page)
            browser(address, page)
    with tempfile.TemporaryDirectory() as folder:
        with server("--workers", "1", "--metrics", "0", "--snapshot", folder) as (address, page):
            with ps.Client(address, rank=0, timeout=20):
                until(page, {("workers_connected",): 1})
                alerts(page)
    wrong_use()
    one_page_a_port()
    print("the status page answers as it must")
    return 0


if __name__ == "__main__":
    sys.exit(main())
