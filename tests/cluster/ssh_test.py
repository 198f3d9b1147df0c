"""Tests `gradwire launch --hosts` over a real sshd: one of its own on the loopback, with its own keys. What ends on one
side must end on the other. It skips if there is no sshd, or if sshd does not let this user in.

    tests/cluster/ssh_test.py TOOL"""
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "cli")]

import harness
import ports

PORTS = ports.free_ports()
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
USER = pwd.getpwuid(os.getuid()).pw_name
RUN = ["train", "--net", "mlp:784-40-10", "--data", "digits", "--codec", "ternary", "--seed", "5"]
DEADLINE = 60

SERVER = """Port {port}
ListenAddress 127.0.0.1
HostKey "{folder}/host"
AuthorizedKeysFile "{folder}/user.pub"
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
SetEnv HOME=/nonexistent
"""

CLIENT = """Host *
Port {port}
IdentityFile "{folder}/user"
IdentitiesOnly yes
BatchMode yes
ConnectTimeout 20
UserKnownHostsFile "{folder}/known"
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
"""


class Ssh(harness.Case):
    """Workers start in a folder whose name must be quoted. Their home does not exist."""

    def setUp(self):
        super().setUp()
        if not SSHD or not shutil.which("ssh") or not shutil.which("ssh-keygen"):
            self.skipTest("sshd, ssh or ssh-keygen is not installed (Debian: openssh-server)")
        if "\n  train " not in self.ok("help") or "tcp" not in self.ok("--version").partition("links")[2]:
            self.skipTest("the tool is built without the trainer or without the tcp link")
        self.there = self.path("it's there")
        os.mkdir(self.there)
        self.start_server()
        self.addCleanup(self.end_workers)

    def start_server(self):
        port = next(PORTS)
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)]
            subprocess.run(words, check=True)
        key = " ".join(pathlib.Path(self.path("host.pub")).read_text().split()[:2])
        known = [f"[{host}]:{port} {key}\n" for host in ("127.0.0.1", "localhost", "127.0.0.9")]
        pathlib.Path(self.path("known")).write_text("".join(known))
        for name, text in (("sshd_config", SERVER), ("ssh_config", CLIENT)):
            pathlib.Path(self.path(name)).write_text(text.format(port=port, folder=self.folder))
        if os.getuid() == 0:  # sshd needs it; systemd would have made it. It stays, for other sshds that run now
            os.makedirs("/run/sshd", 0o755, exist_ok=True)
        log = open(self.path("sshd.log"), "w")
        self.addCleanup(log.close)
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", self.path("sshd_config")], stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        self.ssh = f"ssh -F {self.path('ssh_config')}"
        end = time.monotonic() + DEADLINE
        while True:
            done = subprocess.run([*self.ssh.split(), "127.0.0.1", "true"], capture_output=True, text=True)
            if done.returncode == 0:
                return
            if "refused" not in done.stderr or server.poll() is not None or time.monotonic() > end:
                said = pathlib.Path(self.path("sshd.log")).read_text()
                self.skipTest(f"this sshd does not let {USER} in: {(done.stderr + said).strip()}")
            time.sleep(0.05)

    def workers(self):
        """Returns {pid: rank} of the tool's processes that run in the odd folder, except launch itself."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                said = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if os.readlink(f"/proc/{pid}/cwd") == self.there and words[1:2] == [b"train"]:
                    found[int(pid)] = next(int(word[5:]) for word in said if word.startswith(b"RANK="))
            except (OSError, StopIteration):
                continue
        return found

    def end_workers(self):
        for pid in self.workers():
            os.kill(pid, signal.SIGKILL)

    def none_are_left(self):
        end = time.monotonic() + DEADLINE
        while self.workers():
            self.assertLess(time.monotonic(), end, f"workers are left: {self.workers()}")
            time.sleep(0.05)

    def launch(self, hosts, *words):
        path = self.path("hosts")
        pathlib.Path(path).write_text(hosts)
        launch = [harness.TOOL, "launch", "--hosts", path, "--port", next(PORTS), "--ssh", self.ssh, "--", *RUN, *words]
        return subprocess.Popen(
            list(map(str, launch)),
            cwd=self.there,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def endless(self):
        """Starts an endless run, and waits until it has begun."""
        words = ["--steps", 1000000, "--timeout", 10, "--out", "run", "--checkpoint-every", 1000000]
        run = self.launch("127.0.0.1 2\nlocalhost\n", *words)
        lines, end = os.path.join(self.there, "run", "metrics.jsonl.partial"), time.monotonic() + DEADLINE
        while not (os.path.exists(lines) and os.path.getsize(lines)):
            if run.poll() is not None or time.monotonic() > end:
                run.kill()
                self.fail(f"no steps were done: {run.communicate()[1]}")
            time.sleep(0.02)
        self.assertEqual(sorted(self.workers().values()), [0, 1, 2])
        return run

    def checkpoints(self):
        names = os.listdir(os.path.join(self.there, "run"))
        self.assertEqual([name for name in names if name.endswith(".tmp")], [])
        return [name for name in names if name.startswith("checkpoint-")]

    def test_it_trains_as_here(self):
        here = self.ok_json(*RUN, "--steps", 8, "--wire", "small", "--workers", 3)
        hosts = f"{USER}@127.0.0.1 2\n{USER}@localhost\n"
        said, heard = self.launch(hosts, "--steps", 8, "--wire", "small", "--json").communicate(timeout=DEADLINE)
        self.assertIn("parameter_hash", said, heard)
        self.assertEqual(harness.json.loads(said)["parameter_hash"], here["parameter_hash"])

    def test_no_way_to_a_host(self):
        """The other workers wait for one that never comes. They end all the same."""
        known = pathlib.Path(self.path("known"))
        strange = known.read_text().replace("[localhost]", "[elsewhere]")
        for host, says in (("127.0.0.9", "Connection refused"), ("localhost", "Host key verification failed")):
            known.write_text(strange)
            run = self.launch(f"127.0.0.1\n{host}\n", "--steps", 8, "--timeout", 300)
            heard = run.communicate(timeout=DEADLINE)[1]
            self.assertEqual(run.returncode, 1, heard)
            self.assertIn("[rank 1] ", heard)
            self.assertIn(says, heard)
            self.assertIn(f"rank 1: there was no connection to {host}", heard)
            self.none_are_left()

    def test_a_worker_is_killed(self):
        run = self.endless()
        os.kill(next(pid for pid, rank in self.workers().items() if rank == 1), signal.SIGKILL)
        heard = run.communicate(timeout=DEADLINE)[1]
        self.assertNotEqual(run.returncode, 0)
        for who in ("gradwire train: rank 1 ", "[rank 2] gradwire train: rank 1 ", "rank 1: there was no connection"):
            self.assertIn(who, heard)
        self.none_are_left()

    def test_an_interrupt_saves(self):
        """Ctrl-C reaches launch and its ssh processes at once."""
        run = self.endless()
        os.killpg(run.pid, signal.SIGINT)
        heard = run.communicate(timeout=DEADLINE)[1]
        self.assertEqual(run.returncode, 1, heard)
        for who in ("gradwire train:", "[rank 1] gradwire train:", "[rank 2] gradwire train:"):
            self.assertRegex(heard, rf"(?m)^{re.escape(who)} stopped after .* as asked")
        self.none_are_left()
        self.assertEqual(len(self.checkpoints()), 1)

    def test_launch_is_killed(self):
        run = self.endless()
        run.kill()
        run.communicate(timeout=DEADLINE)
        self.none_are_left()
        self.assertEqual(len(self.checkpoints()), 1)

    def test_no_standard_input(self):
        """If a remote shell hands on no standard input, the run goes on to its end all the same."""
        self.ssh += " -n"
        run = self.launch("127.0.0.1\nlocalhost\n", "--steps", 200)
        self.assertEqual((run.communicate(timeout=DEADLINE), run.returncode)[1], 0)


if __name__ == "__main__":
    harness.main()
