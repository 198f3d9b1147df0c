"""Tests that one seed gives one hash of parameters, whatever joins the workers: threads, MPI's ranks, or processes over
TCP. Also tests what the links refuse.

With --all it tests every codec at every number of workers. Else it tests a selection, which is short."""

import hashlib
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

ALL = "--all" in sys.argv
if ALL:
    sys.argv.remove("--all")

import harness

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import ports

PORTS = ports.free_ports()
# The frames are small ones, so that the test can compare bytes. What auto takes depends on time.
WIRE = ["--wire", "small"]
RUN = ["--net", "mlp:784-40-10", "--data", harness.PICTURES, *WIRE, "--batch", "28", "--steps", "8", "--seed", "5"]
CODECS = [
    "none",
    "bf16",
    "ternary",
    "ternary:code=2bit,pull=packed",
    "ternary:code=base3,pull=packed",
    "ternary:code=mask,entropy=on",
    "ternary:entropy=on",
    "ternary:share=off",
    "ternary:scope=global",
    "gspar:eps=1",
    "gspar:density=0.05",
    "gspar:eps=1,share=on",
    "uniform:density=0.05",
    "topk:ratio=0.05,refresh=3",
    "topk:ratio=0.05,refresh=3,scope=global",
    "onebit:bucket=0",
    "ternary:residual=on,momentum=0.9",
]
SIZES = [1, 2, 3, 4, 7]
MPI = {**harness.MPI, "OMPI_MCA_btl": "self,vader,tcp"}


def chosen():
    """A few of all runs: the tests of exchanges compare every codec over every link, without the tool."""
    few = [("ternary", 1), ("ternary", 4), ("topk:ratio=0.05,refresh=3", 3)]
    return [(codec, n) for codec in CODECS for n in SIZES if ALL or (codec, n) in few]


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@harness.needs_trainer
class Links(harness.Case):
    local = {}  # summaries of runs on threads

    def summary(self, words, environment=None):
        done = subprocess.run(
            list(map(str, words)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
            env={**os.environ, **(environment or {})},
        )
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        summary = harness.json.loads(done.stdout)
        self.assertTrue(summary["replicas_identical"])
        return summary

    def launch(self, n, *words, **options):
        return subprocess.Popen(
            [harness.TOOL, "launch", "-n", str(n), "--", "train", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def wait_for_steps(self, run, out):
        """Waits until the run has written lines of metrics. Then its workers have met, and train."""
        lines = os.path.join(out, "metrics.jsonl.partial")
        self.wait_until(run, lambda: os.path.exists(lines) and os.path.getsize(lines), "no steps were done")

    def wait_until(self, run, holds, what):
        deadline = time.monotonic() + 120
        while not holds():
            if run.poll() is not None or time.monotonic() > deadline:
                run.kill()
                self.fail(f"{what}: {run.communicate()[1]}")
            time.sleep(0.01)

    def compare(self, run):
        """Checks that every chosen run has the same hash and bytes as a run on threads. `run` makes the run."""
        for codec, n in chosen():
            with self.subTest(codec=codec, workers=n):
                words = ["train", *RUN, "--codec", codec, "--json"]
                if (codec, n) not in self.local:
                    self.local[codec, n] = self.summary([harness.TOOL, *words, "--workers", n])
                local = self.local[codec, n]
                other = run(n, words)
                for key in (
                    "parameter_hash",
                    "bytes_up",
                    "bytes_down",
                    "dense_bytes",
                    "train_loss",
                    "test_accuracy",
                    "workers",
                ):
                    self.assertEqual(other[key], local[key], key)

    def test_tcp_is_local(self):
        self.need_tcp()
        self.compare(lambda n, words: self.summary([harness.TOOL, "launch", "-n", n, "--", *words]))

    def need_mpi(self):
        """Returns where mpirun is. Skips the test if there is none, or no mpi link in this build."""
        mpirun = shutil.which("mpirun")
        alone = self.run_tool("train", "--link", "mpi", *RUN, env={**os.environ, **MPI})
        if not mpirun or "did not load" in alone.stderr:
            self.skipTest("there is no MPI")
        return mpirun

    def test_mpi_is_local(self):
        mpirun = self.need_mpi()
        self.compare(lambda n, words: self.summary([mpirun, "-n", n, harness.TOOL, *words, "--link", "mpi"], MPI))

    def test_mpi_without_mpirun(self):
        """Whoever names the link wants workers, so one that is alone must be asked for."""
        self.need_mpi()
        done = self.run_tool("train", "--link", "mpi", *RUN, env={**os.environ, **MPI})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("put mpirun -n N before the command, or give --workers 1", done.stderr)
        alone = [harness.TOOL, "train", "--link", "mpi", "--workers", 1, *RUN, "--json"]
        self.assertEqual(self.summary(alone, MPI)["workers"], 1)

    def test_started_by_mpirun(self):
        """Without --link, mpirun's ranks are one run. With --link local they are not, and the tool says so."""
        mpirun = self.need_mpi()
        words = ["train", *RUN, "--json"]
        environment = {**os.environ, **MPI}
        local = self.summary([harness.TOOL, *words, "--workers", 2])
        joined = self.summary([mpirun, "-n", 2, harness.TOOL, *words], MPI)
        self.assertEqual((joined["parameter_hash"], joined["workers"]), (local["parameter_hash"], 2))
        bench = [mpirun, "-n", "2", harness.TOOL, "bench", "exchange", "--elements", "1000", "--runs", "1", "--json"]
        done = subprocess.run(bench, capture_output=True, text=True, timeout=100, env=environment)
        self.assertTrue(done.returncode == 0 and done.stdout, f"status {done.returncode}, {done.stderr}")
        found = harness.json.loads(done.stdout)
        self.assertEqual((found["workers"], found["link"]), (2, "mpi"))
        run = [mpirun, "-n", "2", harness.TOOL, "train", *RUN, "--link", "local"]
        done = subprocess.run(run, stderr=subprocess.PIPE, text=True, timeout=100, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("mpirun started 2 ranks, and --link is local"), 1, done.stderr)
        # The launcher is that of another MPI, so each rank would be a world of its own.
        other = {**environment, "PMI_SIZE": "2", "PMI_RANK": "0"}
        for link in [[], ["--link", "mpi"]]:
            done = self.run_tool("train", *RUN, *link, env=other)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("mpiexec started 2 ranks, and MPI sees this one alone", done.stderr)

    def test_stopped_under_mpirun(self):
        """If ranks end together because the user wants it, their MPI job ends in good order."""
        mpirun = self.need_mpi()
        words = ["--link", "mpi", "--net", "mlp:784-8-10", "--data", harness.PICTURES, "--steps", 10**8]
        command = [mpirun, "-n", "2", harness.TOOL, "train", *map(str, words)]
        job = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **MPI})
        self.addCleanup(job.kill)
        watchdog = threading.Timer(120, job.kill)
        watchdog.start()
        self.addCleanup(watchdog.cancel)
        said = ""
        while "step 1/" not in said:
            line = job.stderr.readline()
            self.assertTrue(line, said)
            said += line
        ranks = subprocess.run(["pgrep", "-P", str(job.pid)], stdout=subprocess.PIPE, text=True, check=True).stdout
        for rank in ranks.split():
            os.kill(int(rank), signal.SIGINT)
        said += job.communicate(timeout=60)[1]
        self.assertEqual(job.returncode, 1)
        self.assertEqual(said.count("as asked"), 2, said)
        self.assertNotIn("MPI_ABORT", said)

    def test_started_by_others(self):
        for environment, says in (
            ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, ["srun started 4 ranks", "tcp"]),
            ({"WORLD_SIZE": "2", "RANK": "0"}, ["started 2 ranks", "MASTER_ADDR"]),
        ):
            for words in (["train", *RUN], ["bench", "exchange", "--elements", "100", "--runs", "1"]):
                done = self.run_tool(*words, env={**os.environ, **environment})
                self.assertEqual(done.returncode, 2, done.stderr)
                for part in [*says, "--link local"]:
                    self.assertIn(part, done.stderr)
            done = self.run_tool("train", *RUN, "--link", "local", env={**os.environ, **environment})
            self.assertEqual(done.returncode, 0, done.stderr)
        # A script under sbatch is no rank, and neither is the one task of a step.
        script = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_NODEID": "0"}
        for more in ({}, {"SLURM_STEP_NUM_TASKS": "1"}):
            done = self.run_tool("train", *RUN, env={**os.environ, **script, **more})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("ranks", done.stderr)
        # A process that is told where to meet joins the others.
        self.need_tcp()
        meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(next(PORTS))}
        words = [harness.TOOL, "train", *map(str, RUN), "--json"]
        other = subprocess.Popen(words, env={**os.environ, **meeting, "RANK": "1"}, stderr=subprocess.DEVNULL)
        self.assertEqual(self.summary(words, {**meeting, "RANK": "0"})["workers"], 2)
        self.assertEqual(other.wait(60), 0)

    def test_svrg_and_plans(self):
        self.need_tcp()
        for words in (
            [
                "train",
                "--net",
                "logreg",
                "--data",
                "uneven:n=256,d=64",
                "--optimizer",
                "svrg",
                "--lr",
                "0.1",
                "--schedule",
                "const",
                "--batch",
                "16",
                "--steps",
                "40",
                "--codec",
                "gspar:density=0.1",
            ],
            ["train", *RUN, "--plan", "single", "--ema", "0.9", "--codec", "ternary"],
        ):
            local = self.summary([harness.TOOL, *words, "--workers", "3", "--json"])
            tcp = self.summary([harness.TOOL, "launch", "-n", "3", "--", *words, "--json"])
            self.assertEqual(tcp["parameter_hash"], local["parameter_hash"])

    def test_the_wire_choice(self):
        """The choice changes bytes, and no result. auto tries both within these steps."""
        self.need_tcp()
        run = ["train", *RUN[:4], "--codec", "ternary", "--steps", "24", "--out", self.path("run"), "--overwrite"]
        runs = {}
        for wire in ["small", "fast", "auto"]:
            runs[wire] = self.summary([harness.TOOL, "launch", "-n", "3", "--", *run, "--wire", wire, "--json"])
            self.assertEqual(runs[wire]["wire"]["asked"], wire)
            self.assertEqual(runs[wire]["parameter_hash"], runs["small"]["parameter_hash"])
            with open(self.path("run/metrics.jsonl"), encoding="utf-8") as file:
                lines = [harness.json.loads(line) for line in file]
            self.assertEqual({line["wire"] for line in lines}, {"small", "fast"} if wire == "auto" else {wire})
        self.assertLess(runs["small"]["bytes_up"], runs["auto"]["bytes_up"])
        self.assertLess(runs["auto"]["bytes_up"], runs["fast"]["bytes_up"])
        self.assertEqual([runs[wire]["wire"]["fast_steps"] for wire in ["small", "fast"]], [0, 24])
        found = runs["auto"]["wire"]
        compared = [line for line in lines if "wire_stands" in line]
        self.assertEqual(found["comparisons"], len(compared))
        self.assertGreaterEqual(len(compared), 1)
        self.assertEqual(found["fast_steps"], sum(line["wire"] == "fast" for line in lines))
        for field in ["stands", "small_ms", "fast_ms"]:
            self.assertEqual(found[field], compared[-1]["wire_" + field])
        self.assertIn(f"{found['small_ms']:.2f} ms with small, {found['fast_ms']:.2f} ms with fast", found["why"])

    def test_bench_exchange_takes_the_wire_choice(self):
        self.need_tcp()
        bench = ["bench", "exchange", "--elements", "100000", "--runs", "2", "--codec", "ternary", "--codec", "none"]
        rows = {}
        for wire in ["small", "fast", "auto"]:
            done = subprocess.run(
                [harness.TOOL, "launch", "-n", "3", "--", *bench, "--wire", wire, "--json"],
                stdout=subprocess.PIPE,
                timeout=240,
                check=True,
            )
            rows[wire], none = harness.json.loads(done.stdout)["results"]
            self.assertEqual((none["wire_has_choice"], none["wire_stands"]), (False, "small"))
            self.assertTrue(rows[wire]["wire_has_choice"])
            self.assertEqual(rows[wire]["average_hash"], rows["small"]["average_hash"])
        self.assertLess(rows["small"]["bytes_up"], rows["fast"]["bytes_up"])
        self.assertEqual([rows[wire]["wire_stands"] for wire in ["small", "fast"]], ["small", "fast"])
        self.assertGreater(min(rows["auto"]["wire_small_seconds"], rows["auto"]["wire_fast_seconds"]), 0)
        self.refused(2, *bench, "--wire", "tiny", says="--wire is \"tiny\"")

    def test_resume_over_tcp(self):
        """Rank 0 keeps the folder of a run. The other ranks get by message what they need to go on, also if the number
        of workers is another."""
        self.need_tcp()
        run = [
            "train",
            *RUN[:-4],
            "--seed",
            "5",
            "--codec",
            "topk:ratio=0.05,refresh=3",
            "--ema",
            "0.9",
            "--schedule",
            "const",
        ]
        whole = self.summary([harness.TOOL, *run, "--steps", 12, "--workers", 3, "--json"])
        half = [harness.TOOL, "launch", "-n", "3", "--", *run, "--checkpoint-every", "6", "--json"]
        self.summary([*half, "--steps", 6, "--out", self.path("run")])
        shutil.copytree(self.path("run"), self.path("four"))
        shutil.copytree(self.path("run"), self.path("threads"))
        done = self.summary([*half, "--steps", 12, "--resume", self.path("run")])
        self.assertEqual(done["parameter_hash"], whole["parameter_hash"])
        done = self.summary(
            [
                harness.TOOL,
                *run,
                "--checkpoint-every",
                6,
                "--json",
                "--workers",
                3,
                "--steps",
                12,
                "--resume",
                self.path("threads"),
            ]
        )
        self.assertEqual(done["parameter_hash"], whole["parameter_hash"])
        half[3] = "4"
        four = self.summary([*half, "--steps", 12, "--resume", self.path("four")])
        self.assertNotEqual(four["parameter_hash"], whole["parameter_hash"])

    def test_bench_of_networks(self):
        """The tensors of built-in networks are averaged. help lists these networks, and another name is refused."""
        bench = ["bench", "exchange", "--runs", 1, "--workers", 2, "--codec", "none", "--codec", "ternary:skip=last"]
        report = self.ok_json(*bench, "--net", "resnet20")
        self.assertEqual((report["tensors"], report["elements"]), (59, 269722))
        self.assertTrue(all(row["averages_identical"] for row in report["results"]))
        page = self.ok("bench", "exchange", "--help")
        names = ["alexnet", "googlenet", "vgg-a", "vgg16", "vgg16-imagenet", "resnet20", "resnet50"]
        self.refused(2, *bench, "--net", "resnet-20", says=["no network 'resnet-20'", "mean 'resnet20'?", *names])
        for name in names:
            self.assertIn(f" {name} (", " ".join(page.split()))

    def test_bench_compares_with_none_wherever_it_stands(self):
        bench = ["bench", "exchange", "--elements", 1000, "--runs", 1, "--workers", 2]
        for codecs in (["none", "bf16"], ["bf16", "none"]):
            done = self.run_tool(*bench, *(word for codec in codecs for word in ("--codec", codec)))
            rows = [line for line in done.stderr.split("\n") if line.startswith(("none", "bf16"))]
            self.assertEqual(len(rows), 2, done.stderr)
            for row in rows:
                self.assertRegex(row, r" [0-9]+ +[0-9.]+$")

    def test_options_must_agree(self):
        self.need_tcp()
        port = next(PORTS)
        words = [
            harness.TOOL,
            "train",
            "--link",
            "tcp",
            "--workers",
            "2",
            "--rendezvous",
            f"127.0.0.1:{port}",
            "--timeout",
            "20",
            *RUN,
        ]
        other = subprocess.Popen([*words, "--rank", "1", "--codec", "bf16"], stderr=subprocess.PIPE, text=True)
        first = subprocess.run(
            [*words, "--rank", "0", "--codec", "none"], stderr=subprocess.PIPE, text=True, timeout=60
        )
        sentence = other.communicate(timeout=60)[1]
        self.assertEqual(other.returncode, 2)
        self.assertIn("--codec is bf16, and rank 0 has none", sentence)
        self.assertEqual(first.returncode, 1)
        self.assertIn("rank 1 failed: --codec is bf16, and rank 0 has none", first.stderr)

    def test_keys(self):
        self.need_tcp()
        keys, others, saved = self.path("keys"), self.path("others"), self.path("gradient")
        self.ok("keys", "new", keys)
        self.refused(1, "keys", "new", keys, says="key")
        self.refused(2, "keys", "old", keys, says="keys new DIR")
        words = ["train", *RUN, "--json"]
        plain = self.summary([harness.TOOL, *words, "--workers", 2, "--save-gradients", saved, "--save-at", 3])
        keyed = self.summary([harness.TOOL, "launch", "-n", "2", "--", *words, "--keys", keys])
        self.assertEqual(plain["parameter_hash"], keyed["parameter_hash"])
        bench = self.summary_of_bench("--gradients", saved)
        self.assertTrue(bench["results"][0]["averages_identical"])

        self.ok("keys", "new", others)
        shutil.copy(os.path.join(keys, "rendezvous.crt"), os.path.join(others, "rendezvous.crt"))
        member = [
            harness.TOOL,
            "train",
            "--link",
            "tcp",
            "--workers",
            "2",
            "--rendezvous",
            f"127.0.0.1:{next(PORTS)}",
            "--timeout",
            "4",
            *RUN,
        ]
        stranger = subprocess.Popen([*member, "--rank", "1", "--keys", others], stderr=subprocess.PIPE, text=True)
        first = subprocess.run([*member, "--rank", "0", "--keys", keys], stderr=subprocess.PIPE, text=True, timeout=60)
        says = stranger.communicate(timeout=60)[1]
        with open(os.path.join(others, "gradwire.crt")) as file:
            shown = hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read())).hexdigest().upper()
        self.assertIn(f"its certificate {shown} is not in", first.stderr)
        self.assertIn("rank 1", first.stderr)
        self.assertEqual((first.returncode, stranger.returncode), (1, 1), says)
        os.chmod(os.path.join(keys, "gradwire.pem"), 0o644)
        self.refused(1, *member[1:], "--rank", "0", "--keys", keys, says="gradwire.pem")
        done = self.run_tool("train", "--link", "tcp", "--workers", 2, "--rank", 0, "--rendezvous", "0.0.0.0:1", *RUN)
        self.assertEqual(done.returncode, 2)
        self.assertIn("insecure", done.stderr)

    def summary_of_bench(self, *words):
        done = subprocess.run(
            [
                harness.TOOL,
                "launch",
                "-n",
                "2",
                "--",
                "bench",
                "exchange",
                *words,
                "--runs",
                "1",
                "--codec",
                "ternary",
                "--json",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return harness.json.loads(done.stdout)

    def test_killed_worker_is_named(self):
        self.need_tcp()
        for number in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(signal=number):
                out = self.path(number.name)
                words = [*RUN[:4], "--steps", 1000000, "--timeout", 4, "--out", out]
                run = self.launch(3, *words, start_new_session=True)
                self.wait_for_steps(run, out)
                children = subprocess.run(
                    ["pgrep", "-P", str(run.pid)], stdout=subprocess.PIPE, text=True
                ).stdout.split()
                self.assertEqual(len(children), 3)
                os.kill(int(children[1]), number)
                says = run.communicate(timeout=60)[1]
                self.assertNotEqual(run.returncode, 0)
                for line in says.splitlines():
                    if line.startswith("gradwire train:") or line.startswith("[rank 2] gradwire train:"):
                        self.assertIn("rank 1", line)
                self.assertIn("gradwire train:", says)
                self.assertIn("[rank 2] gradwire train:", says)
                for pid in children:
                    self.assertFalse(os.path.exists(f"/proc/{pid}"), "a worker is left")

    def test_interrupt_ends_all(self):
        self.need_tcp()
        for number in (signal.SIGINT, signal.SIGHUP):
            out = self.path(number.name)
            words = [*RUN[:4], "--steps", 1000000, "--out", out, "--checkpoint-every", 1000000]
            run = self.launch(3, *words)
            self.wait_for_steps(run, out)
            run.send_signal(number)
            says = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, 1, says)
            self.assertIn("as asked", says)
            saved = [name for name in os.listdir(out) if name.startswith("checkpoint-") and name.endswith(".gwp")]
            self.assertEqual(len(saved), 1, os.listdir(out))

    def test_nohup_is_heeded(self):
        """If hangups were ignored when the program was started, they stay ignored."""
        self.need_tcp()
        for n, launch in enumerate(([], ["launch", "-n", "2", "--"])):
            out = self.path(f"run-{n}")
            run = subprocess.Popen(
                ["nohup", harness.TOOL, *launch, "train", *RUN[:4], "--steps", "3000", "--out", out],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            self.wait_for_steps(run, out)
            run.send_signal(signal.SIGHUP)
            says = run.communicate(timeout=200)[1]
            self.assertEqual(run.returncode, 0, says)

    def test_late_members(self):
        """A rank that is started a second time hears at once that the job runs, and so does a second job."""
        self.need_tcp()
        out, place = self.path("run"), f"127.0.0.1:{next(PORTS)}"
        words = ["train", "--link", "tcp", "--workers", 2, "--rendezvous", place, "--timeout", 100, *RUN[:4]]
        words += ["--steps", 1000000]
        first = [*words, "--rank", 0, "--out", out]
        ranks = [
            subprocess.Popen([harness.TOOL, *map(str, member)], stderr=subprocess.PIPE, text=True)
            for member in (first, [*words, "--rank", 1])
        ]
        try:
            self.wait_for_steps(ranks[0], out)
            says = f"the job at {place} is already running, with 2 workers, since 2"
            self.refused(1, *words, "--rank", 1, says=says)
            says = f"cannot listen at {place}: a job is running at this rendezvous"
            self.refused(1, *words, "--rank", 0, says=says)
        finally:
            ranks[0].terminate()
            heard = [rank.communicate(timeout=60)[1] for rank in ranks]
        self.assertIn('refused reason="the job at', heard[0])

    def test_stopped_while_members_meet(self):
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
                words = ["--workers", "2", "--rank", str(rank), "--rendezvous", f"127.0.0.1:{port}", "--timeout", "200"]
                alone = subprocess.Popen(
                    [harness.TOOL, "train", "--link", "tcp", *words, "--net", "mlp:784-4-10"],
                    stderr=subprocess.PIPE,
                    text=True,
                )
                self.wait_until(
                    alone,
                    lambda: select.select([rank_0], [], [], 0)[0] if rank else listens(port),
                    f"rank {rank} does not come to the meeting",
                )
                alone.terminate()
                self.assertIn("stopped, as asked", alone.communicate(timeout=60)[1])
                self.assertEqual(alone.returncode, 1)

    def test_what_rank_0_decides(self):
        """The other ranks make checkpoints, and end at a NaN, because rank 0 does."""
        self.need_tcp()
        out, port = self.path("run"), next(PORTS)
        words = [
            harness.TOOL,
            "train",
            "--link",
            "tcp",
            "--workers",
            "2",
            "--rendezvous",
            f"127.0.0.1:{port}",
            "--timeout",
            "60",
            *RUN,
            "--codec",
            "topk:ratio=0.1",
        ]
        other = subprocess.Popen([*words, "--rank", "1"], stderr=subprocess.PIPE, text=True)
        first = subprocess.run(
            [*words, "--rank", "0", "--out", out, "--checkpoint-every", "4"],
            stderr=subprocess.PIPE,
            text=True,
            timeout=200,
        )
        self.assertEqual((first.returncode, other.wait(60)), (0, 0), first.stderr + other.communicate()[1])
        self.assertIn("checkpoint-00000004.rank-1-of-2.gws", os.listdir(out))

    def test_help_says_which_links_take_an_option(self):
        """Each of these options begins its help with the links that take it. Any other link refuses it."""
        values = {"--rank": ["0"], "--rendezvous": ["h:1"], "--advertise": ["h"], "--keys": ["k"], "--insecure": []}
        for command in (["train"], ["probe", "-o", self.path("p")], ["bench", "exchange"]):
            page = self.ok(*command, "--help")
            links = re.search(r"^  --link (\S+)", page, re.M)[1].split("|")
            self.assertEqual("servers" in links, command == ["train"])
            for option, value in values.items():
                takers = re.search(rf"^  {option} .*?([a-z, ]+):", page, re.M)[1].strip().split(", ")
                for link in links:
                    if link in takers:
                        said = self.refused(2, *command, "--link", link, option, *value)
                        self.assertIn(f"the link {link} needs", said, f"{command} {option}")
                    else:
                        says = f"{option} is for --link {' and '.join(takers)}, and --link is {link}\n"
                        self.refused(2, *command, "--link", link, option, *value, says=says)
                self.assertEqual([taker for taker in takers if taker not in links], [], f"{command} {option}")

    def test_wrong_use(self):
        self.refused(2, "train", "--link", "servers", "--rank", 0, says=["--servers"])
        self.refused(2, "train", "--link", "servers", "--servers", "127.0.0.1:1", says=["--rank"])
        self.refused(
            2, "train", "--link", "servers", "--servers", "127.0.0.1:1", "--rank", 3, "--workers", 3, says=["0 to 2"]
        )
        self.refused(2, "train", "--link", "pigeon", says=["pigeon", "local, tcp, mpi and servers\n"])
        self.refused(2, "probe", "--link", "pigeon", "-o", self.path("p"), says=["pigeon", "local, tcp and mpi\n"])
        self.refused(2, "bench", "exchange", "--link", "servers", says=["members never meet"])
        self.refused(2, "train", "--rank", "1", says="--link is local")
        self.refused(2, "launch", "--", "train", says="-n N")
        self.refused(2, "launch", "-n", "2", says="a command")
        self.refused(2, "launch", "-n", "2", "--", "codecs", says="has no workers")
        for link in ("mpi", "local", "servers", "pigeon"):
            for words in ([f"--link={link}"], ["--link", link]):
                says = f"workers that meet over tcp, and --link is {link}\n"
                self.refused(2, "launch", "-n", "2", "--", "train", *words, says=says)
        self.refused(2, "launch", "-n", "2", "--", "train", "--workers", "3", says="tells every worker its --workers")
        self.refused(1, "launch", "--hosts", self.folder, "--", "train", says="cannot be read")
        self.refused(1, "launch", "--hosts", self.path("none"), "--", "train", says="cannot be read")
        hosts = self.path("hosts")
        for text, says in (
            ("a b c\n", "line 1"),
            ("# nothing\n", "names no host"),
            ("a 0\n", "line 1"),
            ("-oProxyCommand=x\n", "line 1"),
        ):
            with open(hosts, "w") as file:
                file.write(text)
            self.refused(1, "launch", "--hosts", hosts, "--", "train", says=says)
        with open(hosts, "w") as file:
            file.write("a 2\nb slots=1\n")
        self.refused(2, "launch", "-n", "4", "--hosts", hosts, "--", "train", says="room for 3")
        environment = {
            key: value
            for key, value in os.environ.items()
            if key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        }
        for extra, says in (
            ({}, "--workers N"),
            ({"WORLD_SIZE": "2"}, "--rank R"),
            ({"WORLD_SIZE": "2", "RANK": "x"}, "RANK is"),
            ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, "ranks are 0 to 1"),
            ({"WORLD_SIZE": "2", "RANK": "0"}, "--rendezvous"),
        ):
            done = self.run_tool("train", "--link", "tcp", env={**environment, **extra})
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(says, done.stderr)

    def test_launch_on_hosts(self):
        """A remote shell is a program that gets a host and a command line. Here it only runs the line."""
        self.need_tcp()
        shell, hosts = self.path("shell"), self.path("hosts")
        with open(shell, "w") as file:
            file.write(
                '#!/bin/sh\necho "$1" >> "$(dirname "$0")/seen"\nexport GRADWIRE_MACHINE=$1\nshift\nexec sh -c "$*"\n'
            )
        os.chmod(shell, 0o755)
        with open(hosts, "w") as file:
            file.write("127.0.0.1 2 # two here\nlocalhost\n")
        for codec in ("ternary", "topk:ratio=0.05", "none"):
            words = ["train", *RUN, "--json", "--codec", codec]
            launch = [harness.TOOL, "launch", "--hosts", hosts, "--ssh", shell, "--port"]
            here = self.summary([harness.TOOL, *words, "--workers", 3])
            there = self.summary([*launch, next(PORTS), "--", *words])
            flat = self.summary([*launch, next(PORTS), "--", *words, "--flat"])
            self.assertEqual(there["parameter_hash"], here["parameter_hash"])
            self.assertEqual((flat["parameter_hash"], flat["bytes_up"]), (here["parameter_hash"], here["bytes_up"]))
            self.assertNotEqual(
                there["bytes_up"] + there["bytes_down"],
                here["bytes_up"] + here["bytes_down"],
                "nothing was added up first",
            )
        with open(self.path("seen")) as file:
            self.assertEqual(set(file.read().split()), {"127.0.0.1", "localhost"})

    def hosts(self, text):
        """Writes a file of hosts and a remote shell that notes its host and runs the line. Returns launch's words."""
        shell, hosts = self.path("shell"), self.path("hosts")
        with open(shell, "w") as file:
            file.write('#!/bin/sh\necho "$1" >> "$(dirname "$0")/seen"\nshift\n$BESIDE\nexec sh -c "$*"\n')
        os.chmod(shell, 0o755)
        with open(hosts, "w", newline="") as file:
            file.write(text)
        return [harness.TOOL, "launch", "--hosts", hosts, "--ssh", shell, "--port", str(next(PORTS)), "--"]

    def test_hosts_as_people_write_them(self):
        """Windows' editors write a mark and \\r; an IPv6 address may have brackets, and a user stands before it."""
        self.need_tcp()
        if not socket.has_ipv6:
            self.skipTest("no IPv6")
        words = self.hosts("\ufeff[::1] 2\r\n# more\r\n\r\n  me@[::1]\tslots=1 # here\r\nlocalhost")
        self.assertEqual(self.summary([*words, "train", *RUN, "--json"])["workers"], 4)
        with open(self.path("seen")) as file:
            self.assertEqual(sorted(file.read().split()), ["::1", "::1", "localhost", "me@::1"])
        for wrong in (
            "a\rb 2\r",
            "a # b\rc",
            "[::1 2",
            "[node] 2",
            "a/b",
            "a 2 3",
            "a slots=",
            "a 0x2",
            "a +2",
            "@b",
            "a" * 2000,
        ):
            self.hosts(f"ok 1\n{wrong}\n")
            self.refused(1, "launch", "--hosts", self.path("hosts"), "--", "train", says="line 2")

    def test_a_process_that_a_remote_shell_leaves(self):
        """It holds the pipe of its worker. The launcher does not wait for it."""
        self.need_tcp()
        words = self.hosts("127.0.0.1 2\n")
        held, hold = os.pipe()  # what the shell leaves ends when this test closes its end
        with subprocess.Popen(
            [*words, "train", *RUN, "--json"],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "BESIDE": f"eval cat <&{held} >&2 &"},
            pass_fds=[held],
        ) as run:
            try:
                self.assertEqual(run.wait(60), 0)
            finally:
                os.close(hold)
                run.kill()
        os.close(held)

    def test_no_worker_outlives_its_launcher(self):
        """Whenever the launcher is killed, its workers end. They hold a pipe, and so its end tells of theirs."""
        self.need_tcp()
        for milliseconds in range(1, 13):
            ended, lives = os.pipe()
            words = ["train", "--net", "mlp:784-4-10", "--data", harness.PICTURES, "--steps", "10000000"]
            with subprocess.Popen(
                [harness.TOOL, "launch", "-n", "2", "--", *words], stderr=subprocess.DEVNULL, pass_fds=[lives]
            ) as run:
                os.close(lives)
                time.sleep(milliseconds / 1000)
                run.kill()
            self.assertTrue(select.select([ended], [], [], 60)[0], f"workers live, {milliseconds} ms")
            os.close(ended)


if __name__ == "__main__":
    harness.main()
