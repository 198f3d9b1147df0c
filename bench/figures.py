"""Makes the tables of docs/performance.md from what bench/all.py measured. Each stands between two marks."""
import decimal
import pathlib
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "experiments"))

import grid

RATES = {"100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s", "10gbit": "10 Gbit/s", "none": "no limit"}

TABLES = {}


def table(*parts):
    """Says of which parts a function makes a table: it yields rows of cells, the head first. Or it yields sentences."""

    def note(function):
        TABLES[function.__name__.replace("_", "-")] = (parts, function)
        return function

    return note


def short(value, factor=1, digits=3):
    """Returns so many digits of a figure, or a name as code. A short whole number stays as it is."""
    if value.isdigit() and len(value) <= digits and factor == 1:
        return value
    try:
        return format(decimal.Decimal(f"{float(value) * factor:#.{digits}g}"), "f")
    except ValueError:
        return f"`{value}`" if value.islower() and " " not in value else value


def listing(rows, columns):
    """A line for each row. columns: {head: (column, factor, digits)}"""
    yield list(columns)
    for row in rows:
        yield [short(row[column], *how) for column, *how in columns.values()]


def pivot(rows, by, over, heads, column, *how):
    """Returns the heads of columns, and {name: cells}. heads: {value of `over`: head}"""
    cells = {}
    for row in rows:
        cells.setdefault(row[by], {})[row[over]] = short(row[column], *how)
    return list(heads.values()), {name: [of.get(value, "") for value in heads] for name, of in cells.items()}


def joined(title, *pivots):
    """A line for each name of the first pivot."""
    yield [title, *(head for heads, _ in pivots for head in heads)]
    for name in pivots[0][1]:
        yield [short(name), *(cell for heads, cells in pivots for cell in cells.get(name, [""] * len(heads)))]


@table("exchange-slow", "exchange")
def gains(slow, fast):
    seconds = {(row["method"], row["rate"]): float(row["seconds"]) for row in [*slow, *fast]}
    times = [seconds["Gloo, ring", rate] / seconds["ternary", rate] for rate in RATES if rate != "none"]
    faster = [short(str(n), 1, 2) for n in times]
    yield (
        "**What it gains.** Four hosts with half a processor core each average VGG16's gradients with `ternary` "
        f"{faster[0]} times faster than Gloo's ring over 100 Mbit/s, {faster[1]} times over 1 Gbit/s, and {faster[2]} "
        "times over 10 Gbit/s ([Exchanges](#exchanges-among-four-hosts))."
    )


@table("codecs")
def codecs(rows):
    operations = {name: name.replace("_", " ") for name in ("encode", "decode", "reduce", "decode_average")}
    bits = {"encode": "bits pushed", "reduce": "bits of the average"}
    times = pivot(rows, "codec", "operation", operations, "memcpy_ratio", 1, 2)
    return joined("memcpys", times, pivot(rows, "codec", "operation", bits, "bits_per_element"))


@table("topk")
def topk(rows):
    names = {"memcpy": "memcpy, ms", "selection": "selection", "step": "step", "torch": "`torch.topk`"}
    columns = {"ratio": ("ratio", 1, 1)}
    columns |= {head: (f"processor_{name}_seconds", 1e3) for name, head in names.items()}
    columns |= {f"{n} is faster by": (f"processor_{n}_times_faster", 1, 2) for n in ("selection", "step")}
    return listing(rows, columns)


@table("sizes")
def sizes(rows):
    columns = {"density": ("density", 1, 1), "": ("codec",), "positions above entropy, %": ("position_excess", 100, 2)}
    return listing(rows, {**columns, "bits of the frame for an element that is sent": ("frame_bits_per_sent",)})


@table("exchange", "exchange-slow", "exchange-keys")
def exchange(fast, slow, keys):
    heads = {rate: head for rate, head in RATES.items() if rate != "none"}
    keys = [{**row, "rate": "keys"} for row in keys if row["bytes_up"]]  # without the rings, which have no keys
    times = pivot([*fast, *slow, *keys], "method", "rate", {**heads, "keys": "10 Gbit/s, keys"}, "seconds", 1e3)
    sent = [
        pivot(fast, "method", "rate", {"1gbit": f"{way}, MB (1 Gbit/s)"}, f"bytes_{way}", 1e-6)
        for way in ("up", "down")
    ]
    return joined("ms", times, *sent)


@table("training")
def training(rows):
    columns = {"LeNet": ("rate",), "": ("codec",), "ms a step": ("step_ms",), "compute": ("compute_ms",)}
    rows = [{**row, "rate": RATES[row["rate"]]} for row in rows]
    return listing(rows, {**columns, "codec": ("encode_ms",), "waiting": ("wait_ms",)})


@table("ddp")
def ddp(rows):
    heads = {rate: head for rate, head in RATES.items() if rate != "10gbit"}
    n_bytes = {rate: f"MB, {heads[rate]}" for rate in ("100mbit", "none")}
    times = pivot(rows, "method", "rate", heads, "seconds", 1e3)
    return joined("ms a step", times, pivot(rows, "method", "rate", n_bytes, "bytes", 1e-6))


@table("ddp-until", "ddp-until-slow")
def ddp_until(fast, slow):
    pivots = []
    for rate in ("100mbit", "1gbit"):
        figures = {f"{RATES[rate]}, s": ("seconds",), "steps": ("steps", 1, 4), "MB a step": ("bytes", 1e-6)}
        pivots += [pivot([*fast, *slow], "method", "rate", {rate: head}, *how) for head, how in figures.items()]
    return joined("", *pivots)


@table("latency")
def latency(rows):
    rows = [{**row, "case": f"tensors {row['tensors']}, members {row['members']}"} for row in rows]
    return joined("p50, us", pivot(rows, "method", "case", {row["case"]: row["case"] for row in rows}, "p50_us"))


@table("pserver")
def pserver(rows):
    columns = {"": ("name",), "operations a second": ("server_operations_per_second",), "of the echo": ("ratio", 1, 2)}
    columns |= {"p50, us": ("server_p50_us",), "p99, us": ("server_p99_us",)}
    return listing(rows, {**columns, "KB of memory for a client": ("server_server_kb_per_client",)})


def about_all(results):
    """Says where and when all was measured. One commit and one machine: figures of others cannot be compared."""
    known = [about for about, _ in results.values()]
    for key in ("commit", "machine", "kernel", "compiler", "kernels"):
        if len({one[key] for one in known}) > 1:
            sys.exit(f"not all results have the same {key}; sudo bench/all.py measures the others anew")
    one, when = known[0], " to ".join(sorted({min(a["date"] for a in known), max(a["date"] for a in known)}))
    minutes = sum(int(one["seconds"]) for one in known) / 60
    older = [f"`{name}`" for name, (parts, _) in TABLES.items() if not all(part in results for part in parts)]
    rest = (
        f" Not measured there, so that their tables are of other days and machines: {', '.join(older)}."
        if older
        else ""
    )
    return (
        f"Measured by `sudo bench/all.py` at commit {one['commit'][:10]}, {when}, in {minutes:.0f} minutes: "
        f"{one['machine']}, {one['kernel']}, {one['compiler']}, kernels for {one['kernels']}.{rest}"
    )


def wrapped(text):
    return "\n".join(textwrap.wrap(text, 120, break_on_hyphens=False, break_long_words=False))


def page(text, results):
    """Returns the page with all tables that can be made of the results: {part: (about, rows)}."""
    made = {"about": wrapped(about_all(results)) + "\n"} if results else {}
    for name, (parts, function) in TABLES.items():
        if not all(part in results for part in parts):
            continue
        head, *lines = function(*(results[part][1] for part in parts))
        if isinstance(head, str):
            made[name] = wrapped(head) + "\n"
            continue
        rows = (f"| {' | '.join(cells)} |\n" for cells in lines)
        made[name] = f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n{''.join(rows)}"
    for name, new in made.items():
        text = grid.put_between(text, f"<!-- bench/all.py: {name} -->", "<!-- end -->", new)
    return text
