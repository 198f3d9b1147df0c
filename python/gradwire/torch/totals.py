"""Adds up what the steps of an exchange cost: for stats() and for TensorBoard."""

# These numbers of a step's result are summed up.
_SUMMED = ("bytes_up", "bytes_down", "dense_bytes", "encode_seconds", "wait_seconds")


def _with_ratios(figures):
    """Adds the ratios. None: this rank sent nothing that way, because it owns all of it or made no step."""
    figures = dict(figures)
    for way in ("up", "down"):
        n_bytes = figures[f"bytes_{way}"]
        figures[f"times_smaller_{way}"] = figures["dense_bytes"] / n_bytes if n_bytes else None
    return figures


class Totals:
    """The sums of one rank."""

    def __init__(self):
        self._sums = dict.fromkeys(["steps", "dropped_steps", *_SUMMED], 0)
        self._last = dict.fromkeys(_SUMMED, 0)

    def add(self, result):
        """Adds the result of a step, an _api.StepResult."""
        self._sums["steps"] += 1
        self._sums["dropped_steps"] += not result.committed
        for name in _SUMMED:
            self._last[name] = getattr(result, name)
            self._sums[name] += self._last[name]

    def stats(self):
        return _with_ratios(self._sums)

    def log(self, writer, step, prefix):
        for name, value in {**_with_ratios(self._last), "dropped_steps": self._sums["dropped_steps"]}.items():
            if value is not None:
                writer.add_scalar(prefix + name, value, step)
