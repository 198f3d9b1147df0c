"""Tests gradwire.launcher: what mpirun, srun, torchrun and Kubernetes say, and what must be refused. It also asks the
real mpirun of OpenMPI and of MPICH, if they are installed."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import gradwire.launcher
import openmpi
from gradwire.launcher import environment

SRUN = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "n[1-2]"}
SRUN.update(SLURM_PROCID="3", SLURM_NODEID="1", SLURM_LOCALID="0", SLURM_NTASKS="4")
OPENMPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
OPENMPI.update(OMPI_COMM_WORLD_LOCAL_SIZE="4", PMIX_NAMESPACE="1092419585")
HYDRA = {"PMI_SIZE": "4", "PMI_RANK": "2", "MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "2"}
POD = {"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "job-0.ranks", "MASTER_PORT": "29500"}
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "29400"}
TORCHRUN["TORCHELASTIC_RUN_ID"] = "none"


def found(**said):
    """Returns (rank, size, place, local rank)."""
    told = environment(said)
    return told["RANK"], told["WORLD_SIZE"], f"{told['MASTER_ADDR']}:{told['MASTER_PORT']}", told.get("LOCAL_RANK")


class Launcher(unittest.TestCase):
    def test_brackets_of_addresses(self):
        """An IPv6 address may have brackets, and PyTorch gets it without them."""
        for said, told in (("::1", "::1"), ("[::1]", "::1"), ("[fe80::1%eth0]", "fe80::1%eth0"), ("n7", "n7")):
            self.assertEqual(environment({**TORCHRUN, "MASTER_ADDR": said})["MASTER_ADDR"], told)
        for wrong in ("[::1", "[n7]", "[[::1]]", "a b", "you@n7", "n7/", "a" * 256):
            with self.assertRaisesRegex(ValueError, "MASTER_ADDR is .* the name or the address of a machine"):
                environment({**TORCHRUN, "MASTER_ADDR": wrong})

    def test_srun(self):
        self.assertEqual(found(**SRUN), ("3", "4", "n1:20007", "0"))
        self.assertEqual(found(**{**SRUN, "SLURM_STEP_ID": "2"}), ("3", "4", "n1:22025", "0"))
        self.assertEqual(found(**SRUN, MASTER_PORT="29500", MASTER_ADDR="n2"), ("3", "4", "n2:29500", "0"))
        self.assertEqual(found(**SRUN, WORLD_SIZE="4"), ("3", "4", "n1:20007", "0"))
        for machines, first in (("node07", "node07"), ("node[07-12,15],login1", "node07"), ("a-1,a-2", "a-1")):
            self.assertEqual(found(**{**SRUN, "SLURM_STEP_NODELIST": machines})[2], f"{first}:20007")

    def test_mpirun(self):
        rank, size, place, local = found(**OPENMPI)
        self.assertEqual((rank, size, local), ("1", "4", "1"))
        self.assertRegex(place, r"^127\.0\.0\.1:2\d{4}$")
        self.assertNotEqual(found(**{**OPENMPI, "PMIX_NAMESPACE": "1092419586"})[2], place)
        self.assertEqual(found(**HYDRA, MASTER_PORT="29500"), ("2", "4", "127.0.0.1:29500", "2"))
        # In a Slurm job, mpirun's ranks also have the numbers of a daemon's step.
        within = {**SRUN, **OPENMPI, "MASTER_ADDR": "n1"}
        self.assertEqual(found(**within), ("1", "4", f"n1:{place.partition(':')[2]}", "1"))

    def test_others(self):
        self.assertEqual(found(**TORCHRUN), ("5", "8", "h:29400", "1"))
        self.assertEqual(found(**{**SRUN, **TORCHRUN}), ("5", "8", "h:29400", "1"))
        self.assertEqual(found(**POD), ("2", "4", "job-0.ranks:29500", None))

    def test_refused(self):
        several = {**OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        arbitrary = {**SRUN, "SLURM_PROCID": "0"}
        for said, says in (
            ({}, "RANK is not set"),
            ({"RANK": "1"}, "WORLD_SIZE is not set"),
            ({"RANK": "4", "WORLD_SIZE": "4"}, "ranks are 0 to 3"),
            ({"RANK": "-1", "WORLD_SIZE": "4"}, "RANK is '-1', and must be a whole number"),
            ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR is not set"),
            ({**POD, "MASTER_PORT": ""}, "MASTER_PORT is not set"),
            ({**POD, "MASTER_PORT": "70000"}, "ports are 1 to 65535"),
            ({**SRUN, "WORLD_SIZE": "2"}, "srun started 4 ranks, and WORLD_SIZE is 2"),
            ({**SRUN, "RANK": "0", "WORLD_SIZE": "4"}, "srun says that this is rank 3 (SLURM_PROCID)"),
            ({**SRUN, "RANK": "0"}, "srun says that this is rank 3 (SLURM_PROCID)"),
            (arbitrary, "not on the first machine of this step (n[1-2])"),
            (several, "MASTER_ADDR is not set"),
            (HYDRA, "MASTER_PORT is not set"),
            ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "put srun before it"),
        ):
            with self.assertRaises(ValueError, msg=said) as raised:
                environment(said)
            self.assertIn(says, str(raised.exception))

    def test_store_without_libuv(self):
        """If PyTorch has no libuv, the store gets no order to use it. What is set stays, and `said` asks nobody."""

        def told(raises, **more):
            distributed = types.SimpleNamespace(TCPStore=unittest.mock.Mock(side_effect=raises))
            modules = {"torch": types.SimpleNamespace(distributed=distributed), "torch.distributed": distributed}
            gradwire.launcher._store_refuses_libuv.cache_clear()
            with unittest.mock.patch.dict(sys.modules, modules):
                with unittest.mock.patch.dict(os.environ, {**TORCHRUN, **more}, clear=True):
                    here, given = environment(), environment(os.environ)
            self.assertNotIn("USE_LIBUV", given)
            return here.get("USE_LIBUV"), distributed.TCPStore.call_count

        self.addCleanup(gradwire.launcher._store_refuses_libuv.cache_clear)
        refused = RuntimeError("use_libuv was requested but PyTorch was build without libuv support")
        self.assertEqual(told(refused), ("0", 1))
        self.assertEqual(told(refused, USE_LIBUV="1"), (None, 0))
        self.assertEqual(told(RuntimeError("no address")), (None, 1))
        self.assertEqual(told(TypeError("incompatible constructor arguments")), (None, 1))
        self.assertEqual(told(None), (None, 1))

    def test_real_mpirun(self):
        """All ranks of a job find the same place, and each finds its own rank."""
        code = "import json; from gradwire.launcher import environment; print(json.dumps(environment()))"
        for name, more in (("mpirun.openmpi", {}), ("mpirun.mpich", {"MASTER_PORT": "29500"})):
            if not shutil.which(name):
                continue
            says = {**os.environ, **openmpi.ENVIRONMENT, "PYTHONPATH": str(ROOT / "python"), "USE_LIBUV": "0", **more}
            words = [name, "-n", "3", sys.executable, "-c", code]
            done = subprocess.run(words, env=says, stdout=subprocess.PIPE, text=True, timeout=100, check=True)
            told = [json.loads(line) for line in re.findall("{[^}]*}", done.stdout)]  # lines may be joined
            self.assertEqual(sorted(rank["RANK"] for rank in told), ["0", "1", "2"])
            self.assertEqual({rank["WORLD_SIZE"] for rank in told}, {"3"})
            self.assertEqual(len({(rank["MASTER_ADDR"], rank["MASTER_PORT"]) for rank in told}), 1)


if __name__ == "__main__":
    unittest.main()
