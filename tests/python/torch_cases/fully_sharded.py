"""Tests attach_sharded with PyTorch's own fully_shard (from 2.7 on). Ranks 0 to 2R-1 are R replicas of two shards."""
import io

import torch
import torch.distributed as dist

import gradwire.torch as gw

from common import RANK, SIZE, TOPK, TRANSPORT, backward, network, said_by

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    HAS_IT = hasattr(FSDPModule, "set_all_reduce_hook")
except (ImportError, ValueError):  # 1.13 cannot import fsdp under Python 3.11
    HAS_IT = False


def mesh():
    return init_device_mesh("cpu", (SIZE // 2, 2), mesh_dim_names=("replicas", "shards"))


def model_on(mesh_of_model):
    model = network()
    for unit in (model[0], model[2], model):
        fully_shard(unit, mesh=mesh_of_model)
    return model


def attached(codec, **options):
    of_all = mesh()
    model = model_on(of_all["shards"])
    return model, gw.attach_sharded(model, of_all["replicas"].get_group(), codec, transport=TRANSPORT, **options)


def whole(model):
    """Returns all parameters as one list of numbers, the same on all ranks if replicas are identical."""
    return torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()]).tolist()


def train(model, steps, first=0, micro=1, clip=None):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        for part in range(micro):
            if micro > 1:
                model.set_requires_all_reduce(part == micro - 1)
            backward(model, step * micro + part)
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model


def fsdp_training():
    """Returns {kind: (parameters, steps)}."""
    if not HAS_IT:
        return None
    found = {"HSDP": [whole(train(model_on(mesh()), 4)), 0]}
    found["HSDP micro"] = [whole(train(model_on(mesh()), 2, micro=3)), 0]
    found["HSDP clip"] = [whole(train(model_on(mesh()), 4, clip=0.1)), 0]
    for kind, codec, options in (
        ("none", "none", {}),
        ("micro", "none", {"micro": 3}),
        ("clip", "none", {"clip": 0.1}),
        ("ternary", "ternary:skip=2", {}),
        ("topk", TOPK, {}),
    ):
        model, compression = attached(codec)
        train(model, 2 if kind == "micro" else 4, **options)
        found[kind] = [whole(model), compression.stats()["steps"]]
        compression.close()
    model, compression = attached(TOPK)
    train(model, 2)
    file = io.BytesIO()
    torch.save(compression.state_dict(), file)
    file.seek(0)
    compression.close()
    replicas = mesh()["replicas"].get_group()
    with gw.attach_sharded(model, replicas, TOPK, transport=TRANSPORT) as compression:
        compression.load_state_dict(torch.load(file))
        train(model, 2, first=2)
        found["resumed"] = [whole(model), compression.stats()["steps"]]
    return found


def fsdp_stats():
    """Returns how many times smaller than float32 is what this rank sent, before it sent anything, and whether it sent
    any of units that are too short to be cut."""
    if not HAS_IT:
        return None
    model, compression = attached("none")
    ratio = compression.stats()["times_smaller_up"]
    train(model, 1)
    n_bytes = compression.stats()["bytes_up"]
    compression.close()
    return [ratio, n_bytes > 0]


class Branches(torch.nn.Module):
    """Two layers, and each backward needs one of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right, self.goes_left = torch.nn.Linear(20, 5), torch.nn.Linear(20, 5), True

    def forward(self, x):
        return self.left(x) if self.goes_left else self.right(x)


def unused(as_zeros):
    """The replicas use different parameters of a unit. as_zeros: FSDP2 is told to take zeros for the others. Returns
    what is said, or whether both replicas have the same gradients."""
    of_all, model = mesh(), Branches()
    fully_shard(model, mesh=of_all["shards"])
    model.goes_left = RANK < 2
    if as_zeros and not hasattr(model, "set_reduce_scatter_unused_params"):
        return True
    if as_zeros:
        model.set_reduce_scatter_unused_params(True)
    with gw.attach_sharded(model, of_all["replicas"].get_group(), "none", transport=TRANSPORT):
        said = said_by(gw.Error, backward, model, 0)
        if not as_zeros:
            return said
        mine = torch.cat([p.grad.full_tensor().flatten() for p in model.parameters()])
        all_of_them = [torch.empty_like(mine) for _ in range(SIZE)]
        dist.all_gather(all_of_them, mine)
        return all(torch.equal(mine, other) and other.all() for other in all_of_them)


def ignored():
    """Returns what is said of a parameter that fully_shard ignores: if it trains, if it is frozen, and of a model whose
    parameters stand whole in it after a forward."""
    of_all, said = mesh(), []
    for kind in ("trains", "frozen", "whole"):
        model = network()
        model[2].bias.requires_grad_(kind == "trains")
        fully_shard(model, mesh=of_all["shards"], ignored_params=set() if kind == "whole" else {model[2].bias})
        if kind == "whole":
            model(torch.ones(1, 20))
        tries = lambda: gw.attach_sharded(model, of_all["replicas"].get_group(), transport=TRANSPORT).close()
        said.append(said_by(ValueError, tries))
    return said


def goes_on():
    """The program catches what a backward raises, of this model and of another one, and goes on. Returns what is said,
    how many units were averaged after that, and whether the other one got its shards of gradients; then what is said of
    a compression that is closed."""
    model, compression = attached("none", nonfinite="raise")
    other, x = model_on(mesh()["shards"]), torch.ones(8, 20)
    both = lambda factor: (other(x).sum() + factor * model(x).sum()).backward()
    said = [said_by(gw.Error, both, float("nan") if RANK == 0 else 1.0)]
    before = compression.stats()["steps"]
    model.zero_grad(), other.zero_grad()
    both(1.0)
    said += [compression.stats()["steps"] - before, all(hasattr(p.grad, "to_local") for p in other.parameters())]
    dist.barrier()
    compression.close()
    return said + [said_by(gw.Error, backward, model, step) for step in (2, 3)]


def fsdp_errors():
    """Returns what is said of wrong meshes, and whether a NaN of one rank reaches all."""
    if not HAS_IT:
        return None
    said, of_all = [], mesh()
    replicas, shards = of_all["replicas"].get_group(), of_all["shards"].get_group()
    for model, group in ((model_on(of_all), replicas), (model_on(of_all["shards"]), shards)):
        said.append(said_by(ValueError, gw.attach_sharded, model, group, "none", transport=TRANSPORT))
    said += [ignored(), goes_on()]
    model, compression = attached("ternary")
    backward(model, 0, factor=float("nan") if RANK == 0 else 1.0)
    said.append(all(p.grad.to_local().isnan().all().item() for p in model.parameters()))
    said += [unused(False), unused(True)]
    model.zero_grad()
    model.set_requires_all_reduce(False)
    backward(model, 1)
    said.append(sum(p.grad.to_local().count_nonzero().item() for p in model.parameters()))
    said.append(said_by(gw.Error, compression.state_dict))
    compression.close()
    return said
