"""Compresses what PyTorch's DistributedDataParallel averages:

    import gradwire.torch as gw
    model = DistributedDataParallel(model)
    compression = gw.attach(model)

Everything else stays as it was: optimizer, schedule, saving of the model, gradient accumulation (no_sync). If the
program clips gradients to a norm, that norm must be larger (docs/accuracy.md, "Other optimizers, and clipping"). If it
throws gradients away, as a GAN does, it must make them under no_sync (docs/pytorch.md, "What holds")."""
import collections.abc
import weakref

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .. import _api
from ..errors import Error, Timeout
from .auto import MOST_PROBE_BYTES, Auto, candidates_for
from .compression import Compression
from .fits import check_optimizer
from .links import check_options, close_links, open_links
from .parameters import declare, find_parameters
from .sharded import ShardedCompression, attach_sharded
from .wrapped import check_hooks, find_ddp, second_hook

__all__ = ["attach", "attach_sharded", "hook", "Compression", "ShardedCompression", "Error", "Timeout"]


def hook(state: Compression, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook that attach registers: ddp.register_comm_hook(compression, gradwire.torch.hook)."""
    submit = getattr(state, "submit", None)
    if submit is None:
        raise TypeError(
            f"gradwire: the hook's state is {_api.shown(state)}, and must be what gradwire.torch.attach returns, which "
            "registers this hook itself"
        )
    return submit(bucket)


def attach(
    ddp: DistributedDataParallel,
    codec: str = "ternary:residual=on",
    *,
    optimizer: torch.optim.Optimizer = None,
    scaler=None,
    transport: str = "tcp",
    nonfinite: str = "nan",
    keys: str = None,
    rendezvous: str = None,
    candidates=None,
    seed: int = 0,
    timeout: float = 60.0,
    threads: int = 1,
) -> Compression:
    """Makes ddp average its gradients through Gradwire. All ranks call it, with the same arguments.

    ddp: the model, also if torch.compile has wrapped it. DDP may have no communication hook yet.
    codec: a specification (`python3 -m gradwire.codecs` lists them). The default rounds, and what a step does not send
    waits for later steps: that takes 8 bytes of memory for a parameter. With another optimizer than SGD it can train
    more slowly than floats, or not at all, and rank 0 says so in the first step (docs/accuracy.md). skip= takes names
    of parameters, as the model's named_parameters() gives them; each must fit one. A shared parameter has several
    names, and any will do.
    Or "auto": DDP's own all-reduce makes some steps, which are timed. Link and codecs are measured for some seconds.
    Then auto takes the codec with the shortest predicted step, if that step is shorter than the all-reduce's.
    compression.choice says what it took, and why.
    docs/choosing.md has what each codec sends, up and down, and what it costs in accuracy.

    optimizer: what moves the parameters, or some of them. A codec with momentum= needs it, and must fit it in every
    step. Each backward that averages then needs an optimizer.step().

    candidates: auto chooses from these, from none and from the all-reduce. None: from codecs that lost at most 0.3
    points of accuracy in trainings with SGD (docs/choosing.md). If the optimizer is no SGD, from bf16. If you do not
    give the optimizer, it is looked for when auto chooses.

    transport: "tcp" (connections of Gradwire's own), "mpi" (the job runs under mpirun or srun), or "torch" (through a
    process group of PyTorch over Gloo). keys: tcp, a folder of `gradwire keys new`, which encrypts; None: nothing is
    encrypted, as in the process group itself. rendezvous: tcp, "HOST:PORT" of rank 0, if it cannot be found.

    scaler: the GradScaler in use, so that residuals follow its factor. nonfinite: what happens if a rank's gradient
    holds a NaN or an infinity. "nan" fills all gradients on all ranks with NaN, and a GradScaler then skips the step.
    "raise" raises on all ranks. seed: the seed of random draws. timeout: a rank that is silent for so many seconds has
    failed, also one that does not attach. threads: how many threads the codec has, 1 to 256.

    Raises gradwire.Error; ValueError and TypeError for wrong arguments."""
    ddp = find_ddp(ddp)
    check_hooks(ddp)
    timeout_ms, seed, threads = check_options(transport, nonfinite, timeout, seed, threads, scaler)
    _api.text("a codec", codec)
    are_defaults = candidates is None
    if codec != "auto" and not are_defaults:
        raise ValueError('candidates are what codec="auto" chooses from; this codec is named')
    everything = find_parameters(ddp)
    reduced = [(p.names[0], p.tensor) for p in everything if p.is_reduced]
    if are_defaults:
        candidates = candidates_for(optimizer)
    elif isinstance(candidates, (str, bytes)) or not isinstance(candidates, collections.abc.Iterable):
        raise TypeError(f"candidates is {_api.shown(candidates)}, and must be a list of specifications")
    candidates = list(candidates)
    if codec == "auto" and (nonfinite == "raise" or keys is not None):
        what = 'nonfinite="raise"' if nonfinite == "raise" else "keys"
        raise ValueError(f'codec="auto" may leave steps to DDP\'s own all-reduce, which knows no {what}; name a codec')
    parsed = None if codec == "auto" else _api.Codec(codec)
    check_optimizer([parsed] if parsed else [_api.Codec(spec) for spec in candidates], optimizer, reduced)
    tensors = declare(everything, candidates if codec == "auto" else [codec])
    parameters = [tensor for _, tensor in reduced]
    # The longest message: an owner's frames of all ranks, if every machine has many ranks.
    size = dist.get_world_size(ddp.process_group)
    most_bytes, n_links, uses = (1 << 20) + size * sum(8 * n + 4096 for _, n, _ in tensors), 1, ""
    if not parsed:
        most_bytes += size * MOST_PROBE_BYTES
        n_links, uses = 2, f" to choose from {', '.join(candidates)}"
    links, machine_of = open_links(
        transport, ddp.process_group, n_links, most_bytes, timeout_ms, rendezvous=rendezvous, keys=keys, uses=uses
    )
    auto = None
    try:
        auto = (
            None
            if parsed
            else Auto(parameters, tensors, candidates, optimizer, ddp.process_group, links, timeout_ms, are_defaults)
        )
        compression = Compression(
            parameters,
            tensors,
            parsed,
            auto,
            links,
            machine_of,
            nonfinite=nonfinite,
            optimizer=optimizer,
            scaler=scaler,
            seed=seed,
            timeout_ms=timeout_ms,
            threads=threads,
            ddp=weakref.ref(ddp),
        )
    except BaseException:
        if auto:
            auto.stop_timing()
        close_links(links)
        raise
    try:
        ddp.register_comm_hook(compression, hook)
    except BaseException as error:
        compression.close()
        if isinstance(error, RuntimeError) and "only be called once" in str(error):
            raise second_hook(ddp) from None
        raise
    return compression
