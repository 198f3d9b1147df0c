"""Finds out who this process is among those that mpirun, srun, torchrun or Kubernetes started, and where they meet.

    os.environ.update(gradwire.launcher.environment())
    torch.distributed.init_process_group("gloo")

It reads the environment, and asks PyTorch whether its store works as PyTorch wants it by default. Without PyTorch the
standard library is enough. train/members/launcher.c does the same for the tool."""
import functools
import os
import re
import typing
import zlib

# (name, number of ranks, rank, ranks on this machine). The inner ones come first: within a Slurm job, mpirun starts its
# daemons by srun. So mpirun's ranks have the SLURM_PROCID of a daemon, too.
_LAUNCHERS = (
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("mpiexec", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", None),
    ("Kubernetes", "WORLD_SIZE", "JOB_COMPLETION_INDEX", None),
)
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_FIRST_PORT, _N_PORTS, _STRIDE = 20000, 10000, 1009


def _number(said, name):
    """Returns a whole number. None: the variable is not set."""
    text = said.get(name, "")
    if text and not re.fullmatch("[0-9]{1,10}", text):
        raise ValueError(f"the environment variable {name} is {text[:40]!r}, and must be a whole number")
    return int(text) if text else None


def host(text: str, what: str) -> str:
    """Returns the name or the address of a machine. An IPv6 address loses the brackets that it may have."""
    plain = text[1:-1] if re.fullmatch(r"\[.*:.*\]", text) else text
    if not re.fullmatch(r"[^\x00-\x20\[\]/@\"'\x7f]{1,255}", plain):
        raise ValueError(f"{what} is {text[:80]!r}, and must be the name or the address of a machine")
    return plain


def _first_machine(machines):
    """Returns the first machine of a list as Slurm writes it: "node07", "node[07-12,15],login1", "a-1,a-2"."""
    return re.sub(r"\[([^-,\]]*)", r"\1", re.match(r"[^\[,]*(\[[^-,\]]*)?", machines)[0])


def _address(said, by, size, rank):
    """Returns the machine where rank 0 listens. None: nothing says it."""
    if said.get("MASTER_ADDR"):
        return host(said["MASTER_ADDR"], "MASTER_ADDR")
    name, local_size = by
    if name == "srun" and said.get("SLURM_STEP_NODELIST"):
        if rank == 0 and _number(said, "SLURM_NODEID"):
            raise ValueError(
                f"rank 0 is not on the first machine of this step ({said['SLURM_STEP_NODELIST'][:100]}), where the "
                "others would look for it; give all ranks its machine as MASTER_ADDR"
            )
        return _first_machine(said["SLURM_STEP_NODELIST"])
    if size == 1 or (local_size and _number(said, local_size) == size):
        return "127.0.0.1"
    return None


def _port(said, by):
    """Returns the port. Jobs, and steps of one job, have ports of their own. None: nothing tells jobs apart."""
    if said.get("MASTER_PORT"):
        return _number(said, "MASTER_PORT")
    job, step = _number(said, "SLURM_JOB_ID"), _number(said, "SLURM_STEP_ID")
    if by[0] == "srun" and job is not None:
        return _FIRST_PORT + (job + _STRIDE * (step or 0)) % _N_PORTS
    if by[0] == "mpirun" and said.get("PMIX_NAMESPACE"):
        return _FIRST_PORT + zlib.crc32(said["PMIX_NAMESPACE"].encode()) % _N_PORTS
    return None


@functools.lru_cache(maxsize=None)
def _store_refuses_libuv():
    """Returns whether PyTorch was built without libuv. From 2.4 on its store asks for libuv, and Debian builds without
    it. Only the store itself tells. An older PyTorch does not know the argument, and needs no other store."""
    try:
        import torch.distributed as dist

        dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False, use_libuv=True)
    except (ImportError, AttributeError, TypeError):
        return False
    except RuntimeError as error:
        return "libuv" in str(error)
    return False


def environment(said: typing.Optional[typing.Mapping[str, str]] = None) -> typing.Dict[str, str]:
    """Returns RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as PyTorch's process group wants them, and LOCAL_RANK if
    the launcher tells it. Also USE_LIBUV=0, if this PyTorch has no libuv and would ask for it. For that the call
    imports PyTorch, unless USE_LIBUV is set. What the environment has already (torchrun, `gradwire launch`) stays as it
    is.

    Raises ValueError if something is missing, is no number or contradicts something else. The text says what would be
    right. said: this is read in place of os.environ, and PyTorch is not asked."""
    asks, said = said is None, os.environ if said is None else said
    by = found = None
    for name, size_name, rank_name, local_size in _LAUNCHERS:
        size, rank = _number(said, size_name), _number(said, rank_name)
        if size is not None and rank is not None:
            by, found = (name, local_size), (size, rank, rank_name)
            break
    size, rank = _number(said, "WORLD_SIZE"), _number(said, "RANK")
    if found and rank is None and size not in (None, found[0]):
        raise ValueError(
            f"{by[0]} started {found[0]} ranks, and WORLD_SIZE is {size}; leave that out, or start as many"
        )
    # torchrun gives its own ranks to its processes, whatever started torchrun.
    if found and rank not in (None, found[1]) and size in (None, found[0]) and "TORCHELASTIC_RUN_ID" not in said:
        raise ValueError(f"RANK is {rank}, and {by[0]} says that this is rank {found[1]} ({found[2]}); unset RANK")
    if found:
        size, rank = (found[0] if size is None else size, found[1] if rank is None else rank)
    if (size is None or rank is None) and "SLURM_JOB_ID" in said and "SLURM_STEP_NUM_TASKS" not in said:
        raise ValueError("this process is no rank of the Slurm job, because srun did not start it; put srun before it")
    if size is None or rank is None:
        missing = "RANK" if rank is None else "WORLD_SIZE"
        raise ValueError(
            f"{missing} is not set, and no mpirun, srun or torchrun says it; start the ranks by one of them"
        )
    if rank >= size:
        raise ValueError(f"rank {rank} of {size} ranks is invalid; ranks are 0 to {size - 1}")
    by = by or (None, None)
    address, port = _address(said, by, size, rank), _port(said, by)
    if not address:
        raise ValueError("MASTER_ADDR is not set: the name of rank 0's machine, the same for all ranks")
    if port is None:
        raise ValueError("MASTER_PORT is not set: a free port of rank 0's machine, the same for all ranks")
    if not 0 < port < 65536:
        raise ValueError(f"MASTER_PORT is {port}; ports are 1 to 65535")
    told = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": address, "MASTER_PORT": port}
    local = [_number(said, name) for name in ("LOCAL_RANK", *_LOCAL_RANKS) if said.get(name)]
    if local:
        told["LOCAL_RANK"] = local[0]
    if asks and "USE_LIBUV" not in said and _store_refuses_libuv():
        told["USE_LIBUV"] = 0
    return {name: str(value) for name, value in told.items()}
