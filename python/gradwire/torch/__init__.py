"""Compresses what PyTorch's DistributedDataParallel averages:

    import gradwire.torch as gw
    model = DistributedDataParallel(model)
    compression = gw.attach(model, "ternary:skip=last")

Everything else stays as it was: optimizer, schedule, saving of the model, gradient accumulation (no_sync), clipping."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..errors import Error, Timeout
from .compression import Compression
from .member import Member
from .rendezvous import meet

__all__ = ["attach", "hook", "Compression", "Error", "Timeout"]


def hook(state: Compression, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook under attach: ddp.register_comm_hook(compression, gradwire.torch.hook)."""
    return state.submit(bucket)


def attach(
    ddp: DistributedDataParallel,
    codec: str = "ternary",
    *,
    scaler=None,
    transport: str = "tcp",
    nonfinite: str = "nan",
    keys: str = None,
    rendezvous: str = None,
    seed: int = 0,
    timeout: float = 60.0,
    threads: int = 1,
) -> Compression:
    """Makes ddp average its gradients through Gradwire. All ranks call it, with the same arguments.

    codec: a specification (`gradwire codecs` lists them); layers in skip= go by parameter name. scaler: the GradScaler
    in use, so that residuals follow its factor. transport: "tcp". nonfinite: what happens if a rank's gradient holds a
    NaN or an infinity: "nan" fills all gradients on all ranks with NaN (a GradScaler then skips the step), "raise"
    raises on all ranks. keys: a folder of `gradwire keys new`, which encrypts; None: nothing is encrypted, as in the
    process group itself. rendezvous: "HOST:PORT" of rank 0, if it cannot be found. seed: of random draws. timeout:
    seconds after which a silent rank has failed. threads: codec threads.

    Raises gradwire.Error; ValueError and TypeError for wrong arguments."""
    if not isinstance(ddp, DistributedDataParallel):
        raise TypeError(f"attach takes a DistributedDataParallel model, and this is a {type(ddp).__name__}")
    if nonfinite not in ("nan", "raise"):
        raise ValueError(f'nonfinite is {nonfinite!r}, and must be "nan" or "raise"')
    if transport != "tcp":
        raise ValueError(f'transport is {transport!r}, and must be "tcp"')
    if not 0 < timeout <= 86400:
        raise ValueError(f"timeout is {timeout}, and must be above 0 and at most 86400 seconds")
    ignored = set(getattr(ddp, "parameters_to_ignore", ()))
    parameters = [(n, p) for n, p in ddp.module.named_parameters() if p.requires_grad and n not in ignored]
    group = ddp.process_group
    rank, size = dist.get_rank(group), dist.get_world_size(group)

    def connect(tensors, group_of, parsed):
        place, machine_of, one_machine = meet(group, rendezvous)
        return Member.over_tcp(
            rank,
            size,
            place,
            keys,
            one_machine,
            tensors,
            group_of,
            parsed,
            machine_of,
            seed=seed,
            timeout_ms=max(1, round(1000 * timeout)),
            identity="binding = torch",
            threads=threads,
        )

    compression = Compression(parameters, group, codec, connect=connect, nonfinite=nonfinite, scaler=scaler, seed=seed)
    ddp.register_comm_hook(compression, hook)
    return compression
