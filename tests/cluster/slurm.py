#!/usr/bin/env python3
"""Runs a command in a throw-away Slurm: a controller and three nodes of eight processors each on this machine.

    sudo tests/cluster/slurm.py srun -N2 -n4 --mpi=pmix build/release/gradwire train --link mpi

Everything lives in namespaces of its own: processes, network, host names, /run, /dev/shm. Each node has an address and
a name (n1, n2, n3; the command runs on n0, the controller's). So nothing can meet what runs on this machine, and when
the command ends, or is killed, the kernel removes all of it. Exits with the command's status; with 77 and the reason if
this machine lacks something."""
import os
import pathlib
import shutil
import subprocess
import sys
import time

HOME = pathlib.Path("/run/slurm")  # in a /run of this program's own
HOST_NAME = pathlib.Path("/proc/sys/kernel/hostname")  # the name of the namespace's host
NODES = ["n1", "n2", "n3"]
ADDRESSES = {f"n{i}": f"10.77.0.{i + 1}" for i in range(4)}
PROGRAMS = ["unshare", "nsenter", "ip", "munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo"]
READY_SECONDS = 60

# Two partitions share the nodes. Jobs of `urgent` put jobs of `all` back into the queue.
CONFIGURATION = """ClusterName=throwaway
SlurmctldHost=n0
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={home}/munge.socket
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
TmpFS={home}/tmp-%n
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ReturnToService=2
KillWait=20
NodeName=n[1-3] CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=2
"""


def sh(line):
    done = subprocess.run(line, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{line}: {done.stdout.strip() or f'status {done.returncode}'}")
    return done.stdout


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def make_network():
    """Makes a bridge, on which the controller is n0, and a network namespace for each node."""
    hosts = pathlib.Path("/etc/hosts").read_text() + "".join(f"{a} {name}\n" for name, a in ADDRESSES.items())
    (HOME / "hosts").write_text(hosts)
    sh(f"mount --bind {HOME}/hosts /etc/hosts")
    sh(f"ip link set lo up && ip link add br0 type bridge && ip addr add {ADDRESSES['n0']}/24 dev br0")
    sh("ip link set br0 up")
    for node in NODES:
        sh(f"ip netns add {node} && ip link add of-{node} type veth peer name e0 netns {node}")
        sh(f"ip link set of-{node} master br0 up")
        ip = f"nsenter --net=/run/netns/{node} ip"
        sh(f"{ip} addr add {ADDRESSES[node]}/24 dev e0 && {ip} link set e0 up && {ip} link set lo up")


def start_daemons():
    key = HOME / "munge.key"
    key.touch(0o400)
    key.write_bytes(os.urandom(128))
    files = {"socket": "munge.socket", "key-file": "munge.key", "log-file": "munge.log", "seed-file": "munge.seed"}
    files["pid-file"] = "munge.pid"
    sh("munged " + " ".join(f"--{option}={HOME / name}" for option, name in files.items()))
    (HOME / "slurm.conf").write_text(CONFIGURATION.format(home=HOME))
    (HOME / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # so that Slurm looks for none; it uses none
    os.environ["SLURM_CONF"] = str(HOME / "slurm.conf")
    # Slurm's other fence lets ranks out of MPI_Init too early, and OpenMPI crashes (docs/clusters/srun.md).
    os.environ["SLURM_PMIX_FENCE"] = "ring"
    sh("slurmctld")
    for node in NODES:
        (HOME / f"tmp-{node}").mkdir()
        (HOME / f"spool-{node}").mkdir()
        # This needs nsenter: `ip netns exec` would hide the control groups, which slurmd looks for.
        inside = f"echo {node} >{HOST_NAME} && exec slurmd"
        sh(f"nsenter --net=/run/netns/{node} unshare --uts sh -c '{inside}'")


def wait_for_nodes():
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        done = subprocess.run(["sinfo", "-h", "-p", "all", "-o", "%t %D"], stdout=subprocess.PIPE, text=True)
        if done.stdout.strip() == f"idle {len(NODES)}":
            return
        time.sleep(0.1)
    for log in sorted(HOME.glob("*.log")):
        print(f"{log.name}:\n{log.read_text()[-2000:]}")
    sys.exit(f"Slurm's nodes were not ready within {READY_SECONDS} s")


def inside(command):
    """The first process of the new namespaces. When it ends, all others end."""
    for place in ("/run", "/dev/shm"):
        sh(f"mount -t tmpfs -o mode=1777 none {place}")
    os.makedirs("/run/netns")
    for folder in (HOME, HOME / "state", HOME / "tmp"):
        folder.mkdir(mode=0o755)
    os.environ["TMPDIR"] = str(HOME / "tmp")
    HOST_NAME.write_text("n0")
    make_network()
    start_daemons()
    wait_for_nodes()
    return subprocess.run(command).returncode


def main(command):
    if command[:1] == ["--inside"]:
        sys.exit(inside(command[1:]))
    if not command:
        sys.exit(__doc__)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        skip(f"there is no {', '.join(missing)} (Debian: slurm-wlm, iproute2)")
    if os.getuid() != 0:
        skip("a throw-away Slurm needs root, for its namespaces")
    kinds = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    kinds += ["--net", "--uts", "--ipc"]
    if subprocess.run(["unshare", *kinds, "true"], stderr=subprocess.DEVNULL).returncode:
        skip("this machine lets nobody make namespaces")
    os.execvp("unshare", ["unshare", *kinds, sys.executable, os.path.abspath(__file__), "--inside", *command])


if __name__ == "__main__":
    main(sys.argv[1:])
