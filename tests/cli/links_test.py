"""Tests that one seed gives one hash of parameters, whatever joins the workers: threads, MPI's ranks, or processes over
TCP. Also tests launchers, what links refuse, and how runs over links end. The tests of exchanges compare every codec
over every link, without the tool."""

import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
import time

import harness
from harness import PORTS

# The frames are small ones, so that the test can compare bytes. What auto takes depends on time.
NET = ["--net", "mlp:784-40-10", "--data", harness.PICTURES]
RUN = [*NET, *"--wire small --batch 28 --steps 8 --seed 5".split()]
ENDLESS = [*NET, "--steps", 1000000]
SVRG = "--net logreg --data uneven:n=256,d=64 --optimizer svrg --lr 0.1 --schedule const --batch 16 --steps 40"
MPI = {**harness.MPI, "OMPI_MCA_btl": "self,vader,tcp"}
SHELL = '#!/bin/sh\necho "$1" >> "$(dirname "$0")/seen"\nexport GRADWIRE_MACHINE=$1\nshift\n$BESIDE\nexec sh -c "$*"\n'


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@harness.needs_trainer
class Links(harness.Case):
    def summary(self, words, environment=None):
        done = self.run_program(*words, "--json", env=environment)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        summary = json.loads(done.stdout)
        self.assertTrue(summary["replicas_identical"])
        return summary

    def here(self, n, *words):
        return self.summary([harness.TOOL, "train", *words, "--workers", n])

    def launched(self, n, *words):
        return self.summary([harness.TOOL, "launch", "-n", n, "--", "train", *words])

    def members(self, *words, port=None):
        """The words of a member of two over tcp, which lacks its rank."""
        place = f"127.0.0.1:{port or next(PORTS)}"
        return ["train", "--link", "tcp", "--workers", 2, "--rendezvous", place, *words]

    # ---- mpi ----

    def test_mpi(self):
        """Without --link, mpirun's ranks are one run. With --link local they are not, and the tool says so."""
        mpirun = shutil.which("mpirun")
        alone = self.run_tool("train", "--link", "mpi", *RUN, env=MPI)
        if not mpirun or "did not load" in alone.stderr:
            self.skipTest("there is no MPI")
        # Whoever names the link wants workers, so one that is alone must be asked for.
        self.assertEqual(alone.returncode, 2, alone.stderr)
        self.assertIn("put mpirun -n N before the command, or give --workers 1", alone.stderr)
        alone = self.summary([harness.TOOL, "train", "--link", "mpi", "--workers", 1, *RUN], MPI)
        self.assertEqual(alone["parameter_hash"], self.here(1, *RUN)["parameter_hash"])
        for n, words in [
            (4, [*RUN, "--codec", "topk:ratio=0.05,refresh=3", "--plan", "single", "--ema", 0.9]),
            (3, [*SVRG.split(), "--codec", "gspar:density=0.1", "--wire", "small"]),
        ]:
            run, local = self.summary([mpirun, "-n", n, harness.TOOL, "train", *words], MPI), self.here(n, *words)
            for key in ["parameter_hash", "bytes_up", "bytes_down", "train_loss", "workers"]:
                self.assertEqual(run[key], local[key], f"{key}, {n} workers, {words}")
        said = self.run_program(mpirun, "-n", 2, harness.TOOL, "train", *RUN, "--link", "local", env=MPI).stderr
        self.assertEqual(said.count("mpirun started 2 ranks, and --link is local"), 1, said)
        bench = "bench exchange --elements 1000 --runs 1 --codec ternary --json".split()
        found = json.loads(self.run_program(mpirun, "-n", 2, harness.TOOL, *bench, env=MPI).stdout)
        self.assertEqual((found["workers"], found["link"]), (2, "mpi"))
        # The launcher is that of another MPI, so each rank would be a world of its own.
        other = {**MPI, "PMI_SIZE": "2", "PMI_RANK": "0"}
        for link in [[], ["--link", "mpi"]]:
            says = "mpiexec started 2 ranks, and MPI sees this one alone"
            self.said("train", *RUN, *link, env=other, status=2, says=says)
        # If ranks end together because the user wants it, their MPI job ends in good order.
        words, env = [mpirun, "-n", 2, harness.TOOL], {**os.environ, **MPI}
        job = self.start("train", *ENDLESS, "--out", self.path("run"), program=words, env=env)
        self.wait_for_steps(job, self.path("run"))
        for rank in self.run_program("pgrep", "-P", job.pid).stdout.split():
            os.kill(int(rank), signal.SIGINT)
        said = self.ended(job, 1)
        self.assertEqual((said.count("as asked"), "MPI_ABORT" in said), (2, False), said)

    # ---- launchers ----

    def test_started_by_others(self):
        """launcher_test has the variables of every launcher. Here the commands heed them."""
        srun = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}
        for words in (["train", *RUN], "bench exchange --elements 100 --runs 1".split()):
            self.said(*words, env=srun, status=2, says=["srun started 4 ranks", "tcp", "--link local"])
        self.said("train", *RUN, "--link", "local", env=srun)
        self.said("train", "--link", "tcp", env={"WORLD_SIZE": "2", "RANK": "x"}, status=2, says="RANK is")
        self.need_tcp()  # a process that is told where to meet joins the others
        meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(next(PORTS))}
        other = self.start("train", *RUN, env={**os.environ, **meeting, "RANK": "1"})
        words = [harness.TOOL, "train", *RUN]
        self.assertEqual(self.summary(words, {**meeting, "RANK": "0"})["workers"], 2)
        self.ended(other, 0)

    def hosts(self, text):
        """Writes a file of hosts and a remote shell that notes its host and runs the line. Returns launch's words."""
        shell = self.write_bytes("shell", SHELL.encode())
        os.chmod(shell, 0o755)
        hosts = self.write_bytes("hosts", text.encode())
        return [harness.TOOL, "launch", "--hosts", hosts, "--ssh", shell, "--port", next(PORTS), "--", "train"]

    def test_launch_on_hosts(self):
        """A remote shell is a program that gets a host and a command line. Here it only runs the line. Windows' editors
        write a mark and \\r; an IPv6 address may have brackets, and a user stands before it. Workers of one machine add
        up first, if --flat does not say otherwise."""
        self.need_tcp()
        words, runs = [*RUN, "--codec", "topk:ratio=0.05"], []
        for more in ([], ["--flat"]):
            launch = self.hosts("\ufeff127.0.0.1 2 # two here\r\n# more\r\n\r\n  me@[::1]\tslots=1 # here")
            runs.append(self.summary([*launch, *words, *more]))
        self.assertEqual(set(self.read_bytes("seen").split()), {b"127.0.0.1", b"me@::1"})
        there, flat, here = *runs, self.here(3, *words)
        self.assertEqual({run["parameter_hash"] for run in (there, flat)}, {here["parameter_hash"]})
        self.assertEqual(flat["bytes_up"], here["bytes_up"])
        self.assertNotEqual(there["bytes_up"] + there["bytes_down"], here["bytes_up"] + here["bytes_down"])
        self.refused(2, "launch", "-n", 5, *launch[2:4], "--", "train", says="room for 3")

    def test_hosts_that_are_none(self):
        os.mkfifo(self.path("pipe"))  # nobody writes there: to open it would wait
        rows = [("pipe", "no regular file"), (".", "cannot read"), ("none", "cannot read")]
        wrong = ["a\rb 2\r", "a # b\rc", "[::1 2", "a 2 3", "a slots=", "a +2", "a 0", "@b", "-oProxyCommand=x"]
        for i, line in enumerate([*wrong, "a" * 2000, ""]):
            self.write_bytes(f"hosts-{i}", (f"ok 1\n{line}\n" if line else "# nothing\n").encode())
            rows.append((f"hosts-{i}", "line 2" if line else "names no host"))
        rows = [([self.path(name), "--", "train"], says) for name, says in rows]
        self.each_refused(1, "launch", "--hosts", rows)
        self.refused(1, "train", "--net", "logreg", "--data", self.path("pipe"), says="a pipe, and must be a file")

    def test_a_process_that_a_remote_shell_leaves(self):
        """It holds the pipe of its worker. The launcher does not wait for it."""
        self.need_tcp()
        held, hold = os.pipe()  # what the shell leaves ends when this test closes its end
        beside = {**os.environ, "BESIDE": f"eval cat <&{held} >&2 &"}
        words = self.hosts("127.0.0.1 2\n")
        run = self.start(*RUN, program=words, env=beside, pass_fds=[held], stderr=subprocess.DEVNULL)
        try:
            self.assertEqual(run.wait(60), 0)
        finally:
            os.close(hold)
            os.close(held)

    def test_what_a_remote_shell_says(self):
        """docker exec and kubectl exec say nothing if the worker was killed. Another machine may say anything: what the
        launcher prints of it moves no cursor, and forges no line."""
        self.need_tcp()
        says = rb"printf 'a\033[31mb\tc\r\nd\a\000\302\233e\342\202\254' >&2"
        told = ["[rank 1] a\\x1b[31mb c\n", "[rank 1] d\\x07 \\xc2\\x9be\u20ac\n"]
        of_rank_1 = b'case "$2" in *RANK=1*) ' + says + b";; esac\nexit 1"
        for host, shell, told in [("node", b"exit 137", "rank 0 ended with status 137"), ("node 2", of_rank_1, told)]:
            words = self.hosts(host + "\n")
            self.write_bytes("shell", b"#!/bin/sh\n" + shell + b"\n")
            self.assertNotIn("\x1b", self.said(*words[1:], *RUN, status=1, says=told))

    def test_nobody_reads_what_the_launcher_says(self):
        """It waits for its reader. A second signal waits for nobody, and no worker is left."""
        words = self.hosts("node 2\n")
        self.write_bytes("shell", b'#!/bin/sh\ncase "$2" in *RANK=1*) exec yes >&2;; esac\nexec sleep 1000\n')
        (ours, its), (ended, lives) = os.pipe(), os.pipe()
        run = self.start(*words[1:], *RUN, stderr=its, pass_fds=[lives])
        os.close(its)
        os.close(lives)
        in_pipe = lambda: struct.unpack("i", fcntl.ioctl(ours, termios.FIONREAD, bytes(4)))[0]
        self.wait_until(run, lambda: in_pipe() > 60000, "a full pipe")
        time.sleep(0.5)
        run.terminate()
        time.sleep(2.1)
        run.terminate()
        self.assertEqual(run.wait(60), -signal.SIGTERM)
        self.assertTrue(select.select([ended], [], [], 60)[0], "workers live")
        os.close(ended)
        os.close(ours)

    def test_the_launcher_holds_the_port(self):
        """No other program gets rank 0's port before rank 0 listens there, nor after it has ended. No worker outlives
        its launcher: they hold a pipe, and so its end tells of theirs. child_test has every moment of that."""
        self.need_tcp()
        ended, lives = os.pipe()
        words = ["launch", "-n", 2, "--", "train", *ENDLESS, "--out", self.path("run")]
        run = self.start(*words, stderr=subprocess.DEVNULL, pass_fds=[lives])
        os.close(lives)
        self.wait_for_steps(run, self.path("run"))
        rank_0 = int(self.run_program("pgrep", "-P", run.pid).stdout.split()[0])
        with open(f"/proc/{rank_0}/environ") as variables:
            place = ("127.0.0.1", int(re.search(r"\0MASTER_PORT=(\d+)\0", variables.read())[1]))
        harness.stop(run.pid)
        os.kill(rank_0, signal.SIGKILL)
        self.wait_until(run, lambda: not listens(place[1]), "the end of rank 0")
        with socket.socket() as other, self.assertRaisesRegex(OSError, "in use"):
            other.bind(place)
        run.kill()
        self.assertTrue(select.select([ended], [], [], 60)[0], "workers live")
        os.close(ended)

    # ---- what a run keeps and decides ----

    def test_the_wire_choice(self):
        """wire_choice_test has what the choice changes, and train_test choices that depend on no time. auto tries both
        within these steps, and the run tells of it."""
        self.need_tcp()
        words = [*NET, *"--codec ternary --steps 24".split()]
        run = self.launched(3, *words, "--wire", "auto", "--out", self.path("run"))
        self.assertEqual(run["parameter_hash"], self.here(3, *words)["parameter_hash"])
        found, lines = run["wire"], self.lines_of("run/metrics.jsonl")
        self.assertEqual({line["wire"] for line in lines}, {"small", "fast"})
        self.assertEqual(found["fast_steps"], sum(line["wire"] == "fast" for line in lines))
        compared = [line for line in lines if "wire_stands" in line]
        self.assertEqual((found["comparisons"], found["comparisons"] > 0), (len(compared), True))
        for field in ["stands", "small_ms", "fast_ms"]:
            self.assertEqual(found[field], compared[-1]["wire_" + field])
        self.assertIn(f"{found['small_ms']:.2f} ms with small, {found['fast_ms']:.2f} ms with fast", found["why"])

    def test_bench_exchange(self):
        """The bench takes the tensors of built-in networks. A column compares with none, wherever none stands."""
        bench = "bench exchange --runs 1 --codec ternary --codec none".split()
        report = self.ok_json(*bench, "--net", "resnet20", "--workers", 2)
        self.assertEqual((report["tensors"], report["elements"]), (59, 269722))
        self.refused(2, *bench, "--net", "resnet-20", says=["no network 'resnet-20'", "mean 'resnet20'?", "vgg-a"])
        said = self.said(*bench, *"--elements 1000 --workers 2".split())
        self.assertEqual(len(re.findall(r"^(?:none|ternary).* [0-9]+ +[0-9.]+$", said, re.M)), 2, said)
        self.need_tcp()
        rows = self.ok_json("launch", "-n", 3, "--", *bench, "--elements", 100000)["results"]
        self.assertEqual([row["wire_has_choice"] for row in rows], [True, False])
        self.assertGreater(min(rows[0]["wire_small_seconds"], rows[0]["wire_fast_seconds"]), 0)
        self.assertTrue(all(row["averages_identical"] for row in rows))

    def test_resume_over_tcp(self):
        """Rank 0 keeps the folder of a run. The other ranks get by message what they need to go on, also if the number
        of workers is another. A worker's state may be more than the system keeps of a connection."""
        self.need_tcp()
        run = [*NET, *"--batch 28 --seed 5 --codec topk:ratio=0.05,refresh=3 --ema 0.9 --schedule const".split()]
        whole = self.here(3, *run, "--steps", 12)["parameter_hash"]
        run += ["--checkpoint-every", 6, "--steps"]
        self.launched(3, *run, 6, "--out", self.path("run"))
        for name in ("four", "threads"):
            shutil.copytree(self.path("run"), self.path(name))
        self.assertEqual(self.launched(3, *run, 12, "--resume", self.path("run"))["parameter_hash"], whole)
        self.assertEqual(self.here(3, *run, 12, "--resume", self.path("threads"))["parameter_hash"], whole)
        self.assertNotEqual(self.launched(4, *run, 12, "--resume", self.path("four"))["parameter_hash"], whole)
        large = ["--net", "mlp:784-4500-10", *NET[2:], "--batch", 8, "--steps", 2, "--codec", "ternary:residual=on"]
        self.launched(2, *large, "--checkpoint-every", 1, "--out", self.path("large"))

    def test_what_rank_0_decides(self):
        """The other ranks make checkpoints because rank 0 does. One with other options is refused: control_test has
        that, and here is how both end. A folder that rank 0 cannot go on with keeps what it had."""
        self.need_tcp()
        words, out = self.members(*RUN, "--codec", "topk:ratio=0.1"), self.path("run")
        other = self.start(*words, "--rank", 1)
        self.said(*words, "--rank", 0, "--out", out, "--checkpoint-every", 4)
        self.ended(other, 0)
        before = self.contents("run")
        self.assertIn("checkpoint-00000004.rank-1-of-2.gws", before)
        words, says = self.members(*RUN, "--codec"), "--codec is bf16, and rank 0 has topk:ratio=0.1"
        other = self.start(*words, "bf16", "--rank", 1)
        words += ["topk:ratio=0.1", "--rank", 0, "--steps", 12, "--resume", out]
        self.said(*words, status=1, says=f"rank 1 failed: {says}")
        self.ended(other, 2, says)
        self.assertTrue(self.contents("run") == before, os.listdir(out))

    def test_keys(self):
        """tcp_keys_test and net_keys_test have strangers, and folders that are wrong."""
        self.need_tcp()
        keys, svrg = self.path("keys"), [*SVRG.split(), "--codec", "gspar:density=0.1"]
        self.ok("keys", "new", keys)
        self.refused(1, "keys", "new", keys, says="key")
        self.refused(2, "keys", "old", keys, says="keys new DIR")
        run = self.launched(3, *svrg, "--keys", keys)
        self.assertEqual(run["parameter_hash"], self.here(3, *svrg)["parameter_hash"])
        bench = "launch -n 2 -- bench exchange --elements 1000 --runs 1 --codec ternary --keys".split()
        self.assertTrue(self.ok_json(*bench, keys)["results"][0]["averages_identical"])
        os.chmod(os.path.join(keys, "gradwire.pem"), 0o644)
        self.refused(1, *self.members(*RUN), "--rank", 0, "--keys", keys, says="gradwire.pem")

    # ---- ends ----

    def test_killed_worker_is_named(self):
        """net_kill has more moments, and workers that are stopped. Here the launcher must leave no worker, and one
        that is stopped must get to say what it knows."""
        self.need_tcp()
        out = self.path("run")
        words = ["launch", "-n", 3, "--", "train", *ENDLESS, "--timeout", 20, "--out", out]
        run = self.start(*words, start_new_session=True)
        self.wait_for_steps(run, out)
        children = self.run_program("pgrep", "-P", run.pid).stdout.split()
        self.assertEqual(len(children), 3)
        harness.stop(int(children[2]))
        os.kill(int(children[1]), signal.SIGKILL)
        says = run.communicate(timeout=100)[1]
        self.assertNotEqual(run.returncode, 0)
        told = re.findall(r"^(?:\[rank 2\] )?gradwire train:.*", says, re.M)
        self.assertEqual({line[:5] for line in told}, {"gradw", "[rank"}, says)
        self.assertTrue(all("rank 1" in line for line in told), says)
        self.assertFalse([pid for pid in children if os.path.exists(f"/proc/{pid}")], "a worker is left")

    def test_interrupt_ends_all(self):
        self.need_tcp()
        for number in (signal.SIGINT, signal.SIGHUP):
            out = self.path(number.name)
            words = [*ENDLESS, "--out", out, "--checkpoint-every", 1000000]
            run = self.start("launch", "-n", 3, "--", "train", *words)
            self.wait_for_steps(run, out)
            harness.stop(int(self.run_program("pgrep", "-P", run.pid).stdout.split()[1]))
            run.send_signal(number)
            self.ended(run, 1, "as asked")
            saved = [name for name in os.listdir(out) if re.match("checkpoint-.*gwp$", name)]
            self.assertEqual(len(saved), 1, os.listdir(out))

    def test_stopped_while_members_meet(self):
        """tcp_meeting_test has members that come late, or twice. Here nobody says anything to rank 1."""
        self.need_tcp()
        with socket.create_server(("127.0.0.1", 0)) as rank_0:
            free, port = next(PORTS), rank_0.getsockname()[1]
            for rank, place, came in [
                (0, free, lambda: listens(free)),
                (1, port, lambda: select.select([rank_0], [], [], 0)[0]),
            ]:
                alone = self.start(*self.members("--rank", rank, "--timeout", 200, *NET, port=place))
                self.wait_until(alone, came, f"rank {rank} does not come to the meeting")
                alone.terminate()
                self.ended(alone, 1, "stopped, as asked")

    # ---- wrong use ----

    def test_wrong_use(self):
        """members_test has more options that do not fit their link."""
        train = ["launch", "-n", "2", "--", "train"]
        page = self.ok("train", "--help")
        self.assertRegex(page, r"--link local\|tcp\|mpi\|servers\n")
        self.assertRegex(page, r"--rank R? +tcp, servers: ")
        rows = [
            ("train --link local --rank 0", "--rank is for --link tcp and servers, and --link is local\n"),
            ("train --link pigeon", ["pigeon", "local, tcp, mpi and servers\n"]),
            ("probe --link pigeon -o p", ["pigeon", "local, tcp and mpi\n"]),
            ("train --link tcp --workers 2 --rank 0 --rendezvous 0.0.0.0:1", "insecure"),
            ("launch -- train", "-n N"),
            ("launch -n 2", "a command"),
            ("launch -n 2 -- codecs", "has no workers"),
            ([*train, "--workers", "3"], "tells every worker its --workers"),
            ([*train[:3], "--ssh", " ", *train[3:]], "--ssh names no command"),
            ([*train[:3], "--ssh", "s" + " x" * 60, *train[3:]], "more than 60 words"),
            ([*train[:3], "--ssh", "s" * 1024, *train[3:]], "more than 1023 bytes"),
        ]
        for link in ("mpi", "local", "servers", "pigeon"):
            rows.append(([*train, f"--link={link}"], f"workers that meet over tcp, and --link is {link}\n"))
        self.each_refused(2, [*rows, ([*train, "--link", "mpi"], "--link is mpi\n")])


if __name__ == "__main__":
    harness.main()
