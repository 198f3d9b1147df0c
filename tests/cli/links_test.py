"""Tests that one seed gives one hash of parameters, whatever joins the workers: threads, MPI's ranks, or processes over
TCP. Also tests what launchers and links refuse, and how runs over links end."""

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
import threading
import time

import harness
from harness import PORTS

# The frames are small ones, so that the test can compare bytes. What auto takes depends on time.
NET = ["--net", "mlp:784-40-10", "--data", harness.PICTURES]
RUN = [*NET, *"--wire small --batch 28 --steps 8 --seed 5".split()]
ENDLESS = [*NET, "--steps", 1000000]
SVRG = "--net logreg --data uneven:n=256,d=64 --optimizer svrg --lr 0.1 --schedule const --batch 16 --steps 40"
SAME = ["parameter_hash", "bytes_up", "bytes_down", "dense_bytes", "train_loss", "test_accuracy", "workers"]
MPI = {**harness.MPI, "OMPI_MCA_btl": "self,vader,tcp"}
SHELL = '#!/bin/sh\necho "$1" >> "$(dirname "$0")/seen"\nexport GRADWIRE_MACHINE=$1\nshift\n$BESIDE\nexec sh -c "$*"\n'


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@harness.needs_trainer
class Links(harness.Case):
    local = {}  # summaries of runs on threads

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

    def compare(self, run):
        """Checks that runs have the same hash and bytes as on threads. `run` makes a run. The tests of exchanges
        compare every codec over every link, without the tool."""
        for n, words in [
            (1, [*RUN, "--codec", "ternary"]),
            (4, [*RUN, "--codec", "ternary", "--plan", "single", "--ema", 0.9]),
            (3, [*RUN, "--codec", "topk:ratio=0.05,refresh=3"]),
            (3, [*SVRG.split(), "--codec", "gspar:density=0.1", "--wire", "small"]),
        ]:
            if str(words) not in self.local:
                self.local[str(words)] = self.here(n, *words)
            local, other = self.local[str(words)], run(n, words)
            for key in SAME:
                self.assertEqual(other.get(key), local.get(key), f"{key}, {n} workers, {words}")

    def test_tcp_is_local(self):
        self.need_tcp()
        self.compare(lambda n, words: self.launched(n, *words))

    # ---- mpi ----

    def need_mpi(self):
        """Returns where mpirun is. Skips the test if there is none, or no mpi link in this build. Whoever names the
        link wants workers, so one that is alone must be asked for."""
        mpirun = shutil.which("mpirun")
        alone = self.run_tool("train", "--link", "mpi", *RUN, env=MPI)
        if not mpirun or "did not load" in alone.stderr:
            self.skipTest("there is no MPI")
        self.assertEqual(alone.returncode, 2, alone.stderr)
        self.assertIn("put mpirun -n N before the command, or give --workers 1", alone.stderr)
        return mpirun

    def test_mpi_is_local(self):
        """Without --link, mpirun's ranks are one run. With --link local they are not, and the tool says so."""
        mpirun = self.need_mpi()
        alone = [harness.TOOL, "train", "--link", "mpi", "--workers", 1]
        self.compare(
            lambda n, words: self.summary(
                [*([mpirun, "-n", n, harness.TOOL, "train"] if n > 1 else alone), *words], MPI
            )
        )
        bench = [mpirun, "-n", 2, harness.TOOL, *"bench exchange --elements 1000 --runs 1 --json".split()]
        found = json.loads(self.run_program(*bench, env=MPI).stdout)
        self.assertEqual((found["workers"], found["link"]), (2, "mpi"))
        done = self.run_program(mpirun, "-n", 2, harness.TOOL, "train", *RUN, "--link", "local", env=MPI)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("mpirun started 2 ranks, and --link is local"), 1, done.stderr)
        # The launcher is that of another MPI, so each rank would be a world of its own.
        other = {**MPI, "PMI_SIZE": "2", "PMI_RANK": "0"}
        for link in [[], ["--link", "mpi"]]:
            says = "mpiexec started 2 ranks, and MPI sees this one alone"
            self.said("train", *RUN, *link, env=other, status=2, says=says)

    def test_stopped_under_mpirun(self):
        """If ranks end together because the user wants it, their MPI job ends in good order."""
        mpirun = self.need_mpi()
        job = self.start(
            "train", "--link", "mpi", *ENDLESS, program=(mpirun, "-n", 2, harness.TOOL), env={**os.environ, **MPI}
        )
        watchdog = threading.Timer(120, job.kill)
        watchdog.start()
        self.addCleanup(watchdog.cancel)
        while "step 1/" not in (line := job.stderr.readline()):
            self.assertTrue(line, "the job ended before its first step")
        for rank in self.run_program("pgrep", "-P", job.pid).stdout.split():
            os.kill(int(rank), signal.SIGINT)
        said = self.ended(job, 1)
        self.assertEqual(said.count("as asked"), 2, said)
        self.assertNotIn("MPI_ABORT", said)

    # ---- launchers ----

    def test_started_by_others(self):
        """launcher_test has the variables of every launcher. Here the commands heed them."""
        srun = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}
        for words in (["train", *RUN], "bench exchange --elements 100 --runs 1".split()):
            self.said(*words, env=srun, status=2, says=["srun started 4 ranks", "tcp", "--link local"])
        self.said("train", *RUN, "--link", "local", env=srun)
        # A script under sbatch is no rank.
        script = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_NODEID": "0"}
        self.assertNotIn("ranks", self.said("train", *RUN, env=script))
        # A process that is told where to meet joins the others.
        self.need_tcp()
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
        """A remote shell is a program that gets a host and a command line. Here it only runs the line."""
        self.need_tcp()
        for codec in ("topk:ratio=0.05", "none"):
            words = [*RUN, "--codec", codec]
            here = self.here(3, *words)
            there = self.summary([*self.hosts("127.0.0.1 2 # two here\nlocalhost\n"), *words])
            flat = self.summary([*self.hosts("127.0.0.1 2\nlocalhost\n"), *words, "--flat"])
            self.assertEqual(there["parameter_hash"], here["parameter_hash"])
            self.assertEqual((flat["parameter_hash"], flat["bytes_up"]), (here["parameter_hash"], here["bytes_up"]))
            both = [run["bytes_up"] + run["bytes_down"] for run in (there, here)]
            self.assertNotEqual(*both, "nothing was added up first")
        self.assertEqual(set(self.read_bytes("seen").split()), {b"127.0.0.1", b"localhost"})

    def test_hosts_as_people_write_them(self):
        """Windows' editors write a mark and \\r; an IPv6 address may have brackets, and a user stands before it."""
        self.need_tcp()
        if not socket.has_ipv6:
            self.skipTest("no IPv6")
        words = self.hosts("\ufeff[::1] 2\r\n# more\r\n\r\n  me@[::1]\tslots=1 # here\r\nlocalhost")
        self.assertEqual(self.summary([*words, *RUN])["workers"], 4)
        self.assertEqual(sorted(self.read_bytes("seen").split()), [b"::1", b"::1", b"localhost", b"me@::1"])
        wrong = ["a\rb 2\r", "a # b\rc", "[::1 2", "[node] 2", "a/b", "a 2 3", "a b c", "a slots=", "a 0x2", "a +2"]
        for line in [*wrong, "a 0", "@b", "-oProxyCommand=x", "a" * 2000]:
            self.hosts(f"ok 1\n{line}\n")
            self.refused(1, "launch", "--hosts", self.path("hosts"), "--", "train", says="line 2")
        os.mkfifo(self.path("pipe"))  # nobody writes there: to open it would wait
        self.refused(1, "launch", "--hosts", self.path("pipe"), "--", "train", says="no regular file")
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
        for host, shell, told in [
            ("node", b"exit 137", "rank 0 ended with status 137"),
            ("node 2", b'case "$2" in *RANK=1*) ' + says + b";; esac\nexit 1", "[rank 1] a\\x1b[31mb c\n"),
        ]:
            words = self.hosts(host + "\n")
            self.write_bytes("shell", b"#!/bin/sh\n" + shell + b"\n")
            said = self.said(*words[1:], *RUN, status=1, says=told)
        self.assertIn("[rank 1] d\\x07 \\xc2\\x9be\u20ac\n", said)
        self.assertNotIn("\x1b", said)

    def test_no_worker_outlives_its_launcher(self):
        """child_test has every moment. The workers hold a pipe, and so its end tells of theirs."""
        self.need_tcp()
        (ended, lives), out = os.pipe(), self.path("run")
        words = ["launch", "-n", 2, "--", "train", *ENDLESS, "--out", out]
        run = self.start(*words, stderr=subprocess.DEVNULL, pass_fds=[lives])
        os.close(lives)
        self.wait_for_steps(run, out)
        run.kill()
        self.assertTrue(select.select([ended], [], [], 60)[0], "workers live")
        os.close(ended)

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
        """No other program gets rank 0's port before rank 0 listens there, nor after it has ended."""
        self.need_tcp()
        run = self.start("launch", "-n", 1, "--", "train", *ENDLESS, stderr=subprocess.DEVNULL)
        children = f"/proc/{run.pid}/task/{run.pid}/children"

        def environment():
            with open(children) as pids, open(f"/proc/{(pids.read().split() or [run.pid])[0]}/environ") as variables:
                return dict(v.split("=", 1) for v in variables.read().split("\0") if "=" in v)

        self.wait_until(run, lambda: "MASTER_PORT" in environment(), "the worker")
        place = ("127.0.0.1", int(environment()["MASTER_PORT"]))
        harness.stop(run.pid)
        try:
            with open(children) as pids:
                os.kill(int(pids.read()), signal.SIGKILL)
            self.wait_until(run, lambda: not listens(place[1]), "the end of rank 0")
            with socket.socket() as other, self.assertRaisesRegex(OSError, "in use"):
                other.bind(place)
        finally:
            run.send_signal(signal.SIGCONT)

    # ---- what a run keeps and decides ----

    def test_the_wire_choice(self):
        """wire_choice_test has what the choice changes. auto tries both within these steps, and the run tells of it."""
        self.need_tcp()
        runs = {}
        for wire in ["small", "fast", "auto"]:
            words = [*NET, *"--codec ternary --steps 24 --overwrite --wire".split(), wire, "--out", self.path("run")]
            runs[wire] = self.launched(3, *words)
            self.assertEqual(runs[wire]["wire"]["asked"], wire)
            self.assertEqual(runs[wire]["parameter_hash"], runs["small"]["parameter_hash"])
            lines = self.lines_of("run/metrics.jsonl")
            self.assertEqual({line["wire"] for line in lines}, {"small", "fast"} if wire == "auto" else {wire})
            self.assertEqual(runs[wire]["wire"]["fast_steps"], sum(line["wire"] == "fast" for line in lines))
        self.assertTrue(runs["small"]["bytes_up"] < runs["auto"]["bytes_up"] < runs["fast"]["bytes_up"])
        found, compared = runs["auto"]["wire"], [line for line in lines if "wire_stands" in line]
        self.assertEqual((found["comparisons"], found["comparisons"] > 0), (len(compared), True))
        for field in ["stands", "small_ms", "fast_ms"]:
            self.assertEqual(found[field], compared[-1]["wire_" + field])
        self.assertIn(f"{found['small_ms']:.2f} ms with small, {found['fast_ms']:.2f} ms with fast", found["why"])
        words = "launch -n 3 -- bench exchange --runs 1 --elements 100000 --codec ternary --codec none".split()
        ternary, none = self.ok_json(*words)["results"]
        self.assertEqual([(row["wire_has_choice"]) for row in (ternary, none)], [True, False])
        self.assertGreater(min(ternary["wire_small_seconds"], ternary["wire_fast_seconds"]), 0)
        self.refused(2, *words[4:], "--wire", "tiny", says="--wire is \"tiny\"")

    def test_bench_exchange(self):
        """The bench takes the tensors of built-in networks. A column compares with none, wherever none stands."""
        bench = "bench exchange --runs 1".split()
        report = self.ok_json(*bench, "--codec", "ternary:skip=last", "--net", "resnet20", "--workers", 2)
        self.assertEqual((report["tensors"], report["elements"]), (59, 269722))
        self.assertTrue(all(row["averages_identical"] for row in report["results"]))
        page = " ".join(self.ok(*bench[:2], "--help").split())
        names = ["alexnet", "googlenet", "vgg-a", "vgg16", "vgg16-imagenet", "resnet20", "resnet50"]
        self.refused(2, *bench, "--net", "resnet-20", says=["no network 'resnet-20'", "mean 'resnet20'?", *names])
        self.assertTrue(all(f" {name} (" in page for name in names), page)
        for codecs in (["none", "bf16"], ["bf16", "none"]):
            words = ["--elements", 1000, "--workers", 2, "--codec", codecs[0], "--codec", codecs[1]]
            said = self.said(*bench, *words)
            self.assertEqual(len(re.findall(r"^(?:none|bf16).* [0-9]+ +[0-9.]+$", said, re.M)), 2, said)

    def test_resume_over_tcp(self):
        """Rank 0 keeps the folder of a run. The other ranks get by message what they need to go on, also if the number
        of workers is another."""
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

    def test_checkpoints_of_large_states(self):
        """A worker's state of 14 MB is more than the system keeps of a connection, so rank 0 must take it."""
        self.need_tcp()
        large = ["--net", "mlp:784-4500-10", *NET[2:], "--batch", 8, "--steps", 2, "--codec", "ternary:residual=on"]
        self.launched(2, *large, "--checkpoint-every", 1, "--out", self.path("run"))

    def test_what_rank_0_decides(self):
        """The other ranks make checkpoints because rank 0 does. One with other options is refused."""
        self.need_tcp()
        words = self.members(*RUN, "--codec", "topk:ratio=0.1")
        other = self.start(*words, "--rank", 1)
        self.said(*words, "--rank", 0, "--out", self.path("run"), "--checkpoint-every", 4)
        self.ended(other, 0)
        self.assertIn("checkpoint-00000004.rank-1-of-2.gws", os.listdir(self.path("run")))
        words, says = self.members(*RUN), "--codec is bf16, and rank 0 has none"
        other = self.start(*words, "--rank", 1, "--codec", "bf16")
        self.said(*words, "--rank", 0, "--codec", "none", status=1, says=f"rank 1 failed: {says}")
        self.ended(other, 2, says)

    def test_keys(self):
        """tcp_keys_test and net_keys_test have strangers, and folders that are wrong."""
        self.need_tcp()
        keys, saved = self.path("keys"), self.path("gradient")
        self.ok("keys", "new", keys)
        self.refused(1, "keys", "new", keys, says="key")
        self.refused(2, "keys", "old", keys, says="keys new DIR")
        plain = self.here(2, *RUN, "--save-gradients", saved, "--save-at", 3)
        self.assertEqual(plain["parameter_hash"], self.launched(2, *RUN, "--keys", keys)["parameter_hash"])
        bench = ["bench", "exchange", "--gradients", saved, "--runs", 1, "--codec", "ternary"]
        self.assertTrue(self.ok_json("launch", "-n", 2, "--", *bench)["results"][0]["averages_identical"])
        os.chmod(os.path.join(keys, "gradwire.pem"), 0o644)
        self.refused(1, *self.members(*RUN), "--rank", 0, "--keys", keys, says="gradwire.pem")
        words = "train --link tcp --workers 2 --rank 0 --rendezvous 0.0.0.0:1".split()
        self.refused(2, *words, *RUN, says="insecure")

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
            children = self.run_program("pgrep", "-P", run.pid).stdout.split()
            harness.stop(int(children[1]))
            run.send_signal(number)
            self.ended(run, 1, "as asked")
            saved = [name for name in os.listdir(out) if re.match("checkpoint-.*gwp$", name)]
            self.assertEqual(len(saved), 1, os.listdir(out))

    def test_nohup_is_heeded(self):
        """If hangups were ignored when the program was started, they stay ignored: the run makes more steps."""
        self.need_tcp()
        for launch in ([], ["launch", "-n", 2, "--"]):
            out = self.path(f"run-{len(launch)}")
            words = [*launch, "train", *ENDLESS, "--out", out]
            run = self.start(*words, program=("nohup", harness.TOOL), stdout=subprocess.DEVNULL)
            self.wait_for_steps(run, out)
            run.send_signal(signal.SIGHUP)
            lines = os.path.join(out, "metrics.jsonl.partial")
            before = os.path.getsize(lines)
            self.wait_until(run, lambda: os.path.getsize(lines) > before + 20000, "it does not go on")
            run.send_signal(signal.SIGINT)
            self.ended(run, 1, "as asked")

    def test_stopped_while_members_meet(self):
        """tcp_meeting_test has members that come late, or twice."""
        self.need_tcp()
        for rank in (0, 1):
            with socket.socket() as rank_0:  # rank 1 takes this for rank 0; it accepts nobody, so it says nothing
                rank_0.bind(("127.0.0.1", 0))
                port = rank_0.getsockname()[1]
                if rank == 0:
                    rank_0.close()
                else:
                    rank_0.listen()
                    rank_0.setblocking(False)
                words = self.members("--rank", rank, "--timeout", 200, *NET, port=port)
                alone, came = self.start(*words), f"rank {rank} does not come to the meeting"
                self.wait_until(alone, lambda: select.select([rank_0], [], [], 0)[0] if rank else listens(port), came)
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
            ("train --link servers --rank 0", "--servers"),
            ("train --link local --rank 0", "--rank is for --link tcp and servers, and --link is local\n"),
            ("train --link pigeon", ["pigeon", "local, tcp, mpi and servers\n"]),
            (["probe", "--link", "pigeon", "-o", self.path("p")], ["pigeon", "local, tcp and mpi\n"]),
            ("bench exchange --link servers", "members never meet"),
            ("launch -- train", "-n N"),
            ("launch -n 2", "a command"),
            ("launch -n 2 -- codecs", "has no workers"),
            ([*train, "--workers", "3"], "tells every worker its --workers"),
            ([*train[:3], "--ssh", " ", *train[3:]], "--ssh names no command"),
            ([*train[:3], "--ssh", "s" + " x" * 60, *train[3:]], "more than 60 words"),
            ([*train[:3], "--ssh", "s" * 1024, *train[3:]], "more than 1023 bytes"),
        ]
        for link in ("mpi", "local", "servers", "pigeon"):
            says = f"workers that meet over tcp, and --link is {link}\n"
            rows += [([*train, f"--link={link}"], says), ([*train, "--link", link], says)]
        self.each_refused(2, rows)
        for path in (self.folder, self.path("none")):
            self.refused(1, "launch", "--hosts", path, "--", "train", says="cannot read")
        hosts = self.write_bytes("hosts", b"# nothing\n")
        self.refused(1, "launch", "--hosts", hosts, "--", "train", says="names no host")
        self.write_bytes("hosts", b"a 2\nb slots=1\n")
        self.refused(2, "launch", "-n", "4", "--hosts", hosts, "--", "train", says="room for 3")
        self.said("train", "--link", "tcp", env={"WORLD_SIZE": "2", "RANK": "x"}, status=2, says="RANK is")


if __name__ == "__main__":
    harness.main()
