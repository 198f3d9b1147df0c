"""Runs OpenMPI on a test machine."""
import json
import os
import shutil
import subprocess

# Root may run it, and there may be more ranks than cores. 4 and 5 have words of their own for the latter.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
OVER_TCP = "--mca btl tcp,self --mca pml ob1".split()
OVER_E0 = "--mca btl_tcp_if_include e0 --mca oob_tcp_if_include e0".split()  # the interface of bench/net.py
TRIES = 4
SECONDS = 1800


def run(before, words):
    """Returns what the program printed, as JSON. None: OpenMPI is not installed. before: the words before mpirun.
    OpenMPI 4.1.4's own daemons crash in some of the runs over several hosts, as they begin. So a run that fails is made
    again; if all fail, this raises SystemExit."""
    mpirun = shutil.which("mpirun.openmpi")
    if not mpirun:
        return None
    command = [str(word) for word in [*before, mpirun, *words]]
    for _ in range(TRIES):
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **ENVIRONMENT}, timeout=SECONDS
        )
        if done.returncode == 0:
            return json.loads(done.stdout)
    raise SystemExit(f"OpenMPI failed {TRIES} times: {' '.join(command)}\n{done.stderr}")
