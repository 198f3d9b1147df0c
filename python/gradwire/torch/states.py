"""What a rank keeps between runs, in the form in which PyTorch saves it. A rank goes on with its own state; if the job
had another number of ranks, with the states of all of them."""
import math

import torch

FORMAT = 1
_KEYS = {"format", "codec", "names", "rank", "size", "seed", "step", "scale", "residuals"}


def to_tensor(state):
    """Returns the bytes as a tensor, which torch.save writes as plain data."""
    if not state:
        return torch.empty(0, dtype=torch.uint8, device="cpu")  # the program may have set another default device
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def to_bytes(tensor):
    """The other way round. torch.load may have put the tensor on another device (map_location)."""
    return tensor.cpu().numpy().tobytes()


def _check_kinds(state):
    """Checks the types of a state's fields. A state comes from a file, which may hold anything."""
    missing = sorted(_KEYS - state.keys())
    if missing:
        raise ValueError(f"the state has no {missing[0]}")
    if not isinstance(state["names"], list):
        raise ValueError(f"the state's names are {state['names']!r}, and must be a list")
    several = isinstance(state["residuals"], list)  # a state of FSDP2 has one for each unit
    for what in ("step", "residuals"):
        if isinstance(state[what], list) != several or (several and len(state[what]) != len(state["names"])):
            raise ValueError(f"the state's {what} is not for its {len(state['names'])} names")
    steps, tensors = (state["step"], state["residuals"]) if several else ([state["step"]], [state["residuals"]])
    numbers = [("rank", state["rank"]), ("size", state["size"]), *(("step", step) for step in steps)]
    for what, number in numbers:
        if type(number) is not int or not 0 <= number < 2**32:
            raise ValueError(f"the state's {what} is {number!r}, and must be a whole number from 0 up")
    if any(not isinstance(t, torch.Tensor) or t.dtype != torch.uint8 or t.dim() != 1 or t.is_meta for t in tensors):
        raise ValueError("the state's residuals are not bytes in a tensor of one dimension")
    scale = state["scale"]
    if scale is not None and not (isinstance(scale, float) and 0 < scale < math.inf):
        raise ValueError(f"the state's scale is {scale!r}, and must be a number above 0, or None")


def pick(state, rank, size, checks):
    """Returns the states that this rank loads: one, or all states of a job of another size, and then the rank begins
    with their mean. state: a dictionary, or a list of them. checks: [(what, this job's value, key in the state)].
    Raises ValueError."""
    states = list(state) if isinstance(state, (list, tuple)) else [state]
    if not states:
        raise ValueError("the list of states is empty")
    for s in states:
        if not isinstance(s, dict):
            raise TypeError(f"a state is a dictionary, and this is a {type(s).__name__}")
        if "format" not in s:
            raise ValueError("the state has no format: it is not what compression.state_dict() gave")
        if s["format"] != FORMAT:
            raise ValueError(f"the state is of format {s['format']}, and this version reads {FORMAT}")
        _check_kinds(s)
        for what, mine, key in checks:
            if mine != s[key]:
                raise ValueError(f"the {what} is {mine}, and the state was saved with {s[key]}")
    states.sort(key=lambda s: s["rank"])
    first = states[0]
    if any((s["step"], s["seed"], s["scale"]) != (first["step"], first["seed"], first["scale"]) for s in states):
        raise ValueError("the states are not of one step of one run")
    ranks, their_size = [s["rank"] for s in states], first["size"]
    are_all = len(ranks) == their_size and ranks == list(range(their_size))
    if are_all and their_size == size:
        return [states[rank]]
    if not are_all and (ranks, their_size) != ([rank], size):
        raise ValueError(
            f"this is rank {rank} of {size}, and the state is of ranks {ranks} of {their_size}; give this rank's own, "
            f"or a list of the states of all {their_size} ranks"
        )
    return states
