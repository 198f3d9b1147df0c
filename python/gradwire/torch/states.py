"""What a rank keeps between runs: as PyTorch saves it, and whose it goes on with: its own, or those of all ranks of a
job of another size."""
import torch

FORMAT = 1


def to_tensor(state):
    """bytes as a tensor, which torch.save writes as plain data."""
    return torch.frombuffer(bytearray(state), dtype=torch.uint8) if state else torch.empty(0, dtype=torch.uint8)


def pick(state, rank, size, checks):
    """The states that this rank loads: one, or all of a job of another size, whose mean it begins with. state: a
    dictionary, or a list of them. checks: [(what, this job's value, key in the state)]. Raises ValueError."""
    states = [state] if isinstance(state, dict) else sorted(state, key=lambda s: s["rank"])
    if not states:
        raise ValueError("the list of states is empty")
    for s in states:
        if s.get("format") != FORMAT:
            raise ValueError(f"the state is of format {s.get('format')}, and this version reads {FORMAT}")
        for what, mine, key in checks:
            if mine != s[key]:
                raise ValueError(f"the {what} is {mine}, and the state was saved with {s[key]}")
    first = states[0]
    if any((s["step"], s["seed"], s["scale"]) != (first["step"], first["seed"], first["scale"]) for s in states):
        raise ValueError("the states are not of one step of one run")
    ranks, their_size = [s["rank"] for s in states], first["size"]
    if ranks == list(range(their_size)) and their_size == size:
        return [states[rank]]
    if ranks != list(range(their_size)) and (ranks, their_size) != ([rank], size):
        raise ValueError(
            f"this is rank {rank} of {size}, and the state is of ranks {ranks} of {their_size}; give this rank's own, "
            f"or a list of the states of all {their_size} ranks"
        )
    return states
