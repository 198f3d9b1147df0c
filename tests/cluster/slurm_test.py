"""Runs the tool and the PyTorch plug-in under a real Slurm (slurm.py, which says when it must be skipped).

    sudo tests/cluster/slurm_test.py TOOL [TEST...]"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "cli")]
import slurm

if __name__ == "__main__" and not os.environ.get("SLURM_CONF", "").startswith(str(slurm.HOME)):
    slurm.main([sys.executable, *map(os.path.abspath, sys.argv[:2]), *sys.argv[2:]])

import harness

DEADLINE = 100
TRAIN = ["train", "--net", "mlp:784-40-10", "--data", "digits", "--codec", "ternary", "--wire", "small"]
SHORT = [*TRAIN, "--batch", "28", "--steps", "8", "--seed", "5"]
ENDLESS = [*TRAIN, "--schedule", "const", "--steps", "1000000"]
LIBRARY = os.path.join(os.path.dirname(harness.TOOL), "libgradwire.so")
ENVIRONMENT = {
    **os.environ,
    **harness.MPI,
    "OMP_NUM_THREADS": "1",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONPATH": str(ROOT / "python"),
    "GRADWIRE_LIBRARY": LIBRARY,
}


def start(*words):
    return subprocess.Popen(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


class Slurm(harness.Case):
    def setUp(self):
        super().setUp()
        if "\n  train " not in self.ok("help"):
            self.skipTest("the tool is built without the trainer")
        os.chmod(self.folder, 0o755)

    def links(self):
        """Yields (link, what srun needs for it, what the tool needs for it)."""
        said = self.ok("--version")
        if "tcp" in said.partition("links")[2]:
            yield "tcp", [], ["--link", "tcp", "--insecure"]
        if "mpi (if" in said and "pmix" in subprocess.run(["srun", "--mpi=list"], **pipes()).stdout:
            yield "mpi", ["-K", "--mpi=pmix"], ["--link", "mpi"]

    def end(self, run, status=None):
        """Returns what a command printed. Its exit status must be `status`, or any failure if that is None."""
        try:
            said, heard = run.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            subprocess.run(["scancel", "--signal=ABRT", "--user=root"], timeout=DEADLINE)  # Python says where it was
            said, heard = run.communicate(timeout=DEADLINE)
            self.fail(f"{run.args} did not end within {DEADLINE} s: {said}{heard}")
        finally:
            run.kill()
        if status is None:
            self.assertNotEqual(run.returncode, 0, said + heard)
        else:
            self.assertEqual(run.returncode, status, said + heard)
        return said, heard

    def hash_of(self, run):
        summary = harness.json.loads(self.end(run, 0)[0])
        self.assertTrue(summary["replicas_identical"])
        return summary["parameter_hash"]

    def here(self, *words, workers):
        return self.ok_json(*words, "--workers", workers)["parameter_hash"]

    def workers(self):
        """Returns {rank: pid} of the tool's tasks on all nodes."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                said = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(harness.TOOL):
                    found[next(int(word[13:]) for word in said if word.startswith(b"SLURM_PROCID="))] = int(pid)
            except (OSError, StopIteration):
                continue
        return found

    def none_are_left(self):
        end = time.monotonic() + DEADLINE
        while self.workers():
            self.assertLess(time.monotonic(), end, f"workers are left: {self.workers()}")
            time.sleep(0.05)

    def wait_until(self, run, holds):
        end = time.monotonic() + DEADLINE
        while not holds():
            if run.poll() is not None or time.monotonic() > end:
                run.kill()
                self.fail(f"the run ended, or does not go on: {run.communicate()}")
            time.sleep(0.02)

    def begin(self, kind, link, *words):
        """Starts an srun of four ranks on two nodes, and waits until it has done some steps. Returns it and its
        folder."""
        out = self.path("run")
        shutil.rmtree(out, ignore_errors=True)
        run = start("srun", "-N2", "-n4", *kind, harness.TOOL, *TRAIN, *link, "--out", out, *words)
        lines = os.path.join(out, "metrics.jsonl.partial")
        self.wait_until(run, lambda: os.path.exists(lines) and os.path.getsize(lines))
        return run, out

    def checkpoints(self, out):
        self.assertEqual([name for name in os.listdir(out) if name.endswith(".tmp")], [])
        return [name for name in os.listdir(out) if re.fullmatch(r"checkpoint-\d+\.gwp", name)]

    def test_ranks_on_several_nodes(self):
        """Two ranks on one node, and one on each of two others, give the parameters that threads give."""
        expected, tested = self.here(*SHORT, workers=4), 0
        for name, kind, link in self.links():
            with self.subTest(link=name):
                run = start("srun", "-N3", "-n4", *kind, harness.TOOL, *SHORT, *link, "--json")
                self.assertEqual(self.hash_of(run), expected)
                tested += 1
        if not tested:
            self.skipTest("the tool is built without tcp, and without an OpenMPI that this Slurm serves")

    def test_mpi_is_found(self):
        """If srun serves MPI, the tool finds it without an option."""
        for name, kind, _ in self.links():
            if name == "mpi":
                run = start("srun", "-N2", "-n2", *kind, harness.TOOL, *SHORT, "--json")
                self.assertEqual(self.hash_of(run), self.here(*SHORT, workers=2))

    def test_keys(self):
        if "tcp" not in [name for name, _, _ in self.links()]:
            self.skipTest("the tool is built without the tcp link")
        run = start("srun", "-N2", "-n2", harness.TOOL, *SHORT, "--link", "tcp")
        self.assertIn("give keys (--keys DIR)", self.end(run)[1])
        self.ok("keys", "new", self.path("keys"))
        run = start("srun", "-N2", "-n2", harness.TOOL, *SHORT, "--link", "tcp", "--keys", self.path("keys"), "--json")
        self.assertEqual(self.hash_of(run), self.here(*SHORT, workers=2))

    def test_another_number_of_workers(self):
        for name, kind, link in self.links():
            with self.subTest(link=name):
                run = start("srun", "-N2", "-n4", *kind, harness.TOOL, *SHORT, *link, "--workers", 3)
                said, heard = self.end(run)
                says = {"tcp": "srun started 4 ranks, and --workers is 3", "mpi": "--workers is 3, and MPI started 4"}
                self.assertEqual(heard.count(says[name]), 4, heard)
                self.assertNotIn("replica", said + heard)

    def test_two_steps_at_once(self):
        """Two steps of one allocation run at once. Each has the parameters that it has alone. A process that is no task
        of a step gets an error that says so."""
        if "tcp" not in [name for name, _, _ in self.links()]:
            self.skipTest("the tool is built without the tcp link")
        train = " ".join([harness.TOOL, *TRAIN, "--steps 800 --link tcp --insecure --json"])
        script = f"#!/bin/bash\n{train} 2>{self.path('no-rank')}\n"
        os.mkdir(self.path("began"))
        for seed in (1, 2):
            # A task begins when all four are there, for at most a minute.
            words = f"touch {self.path('began')}/{seed}-$SLURM_PROCID; for i in $(seq 600); do"
            words += f" [ $(ls {self.path('began')} | wc -l) = 4 ] && exec {train} --seed {seed}"
            words += f" --out {self.path('run')}-{seed}; sleep 0.1; done; exit 1"
            script += f"srun --overlap -N2 -n2 bash -c '{words}' >{self.path('step')}-{seed} 2>"
            script += f"{self.path('heard')}-{seed} &\n"
        pathlib.Path(self.path("job")).write_text(script + "wait\n")
        self.end(start("sbatch", "-W", "-N2", "-n4", "-o", self.path("job.log"), self.path("job")), 0)
        self.assertIn("put srun before the command", pathlib.Path(self.path("no-rank")).read_text())
        for seed in (1, 2):
            said, heard = (pathlib.Path(self.path(f"{name}-{seed}")).read_text() for name in ("step", "heard"))
            self.assertIn("parameter_hash", said, heard)
            expected = self.here(*TRAIN, "--steps", 800, "--seed", seed, workers=2)
            self.assertEqual(harness.json.loads(said)["parameter_hash"], expected)

    def test_a_rank_is_killed(self):
        for name, kind, link in self.links():
            with self.subTest(link=name):
                run, _ = self.begin(kind, link, "--steps", 1000000, "--timeout", 10)
                self.assertEqual(sorted(self.workers()), [0, 1, 2, 3])
                os.kill(self.workers()[2], signal.SIGKILL)
                heard = self.end(run)[1]
                self.assertRegex(heard, "srun: error: n[12]: tasks? 2: Killed")
                if name == "tcp":  # MPI ends all ranks
                    self.assertEqual(len(re.findall(r"rank 2 \(10\.77\.0\.\d:\d+\) died", heard)), 3, heard)
                self.none_are_left()

    def goes_on(self, out):
        """Returns how many steps an endless run that was stopped shall have in all, and the parameters that it has
        then."""
        names = self.checkpoints(out)
        self.assertEqual(len(names), 1)
        steps = int(re.sub(r"\D", "", names[0])) + 20
        return steps, self.here(*ENDLESS, "--steps", steps, workers=4)

    def test_scancel_saves_and_resume_goes_on(self):
        """scancel sends SIGTERM, and SIGKILL some time later. The run ends between the two, with a checkpoint."""
        for name, kind, link in self.links():
            with self.subTest(link=name):
                run, out = self.begin(kind, link, *ENDLESS[len(TRAIN) :], "--checkpoint-every", 1000000)
                self.end(start("scancel", "--name", os.path.basename(harness.TOOL)), 0)
                self.assertIn("as asked; --resume goes on from there", self.end(run)[1])
                self.none_are_left()
                steps, expected = self.goes_on(out)
                resume = ["train", *link, "--resume", out, "--steps", steps, "--json"]
                self.assertEqual(self.hash_of(start("srun", "-N3", "-n4", *kind, harness.TOOL, *resume)), expected)

    def test_preemption(self):
        """If a job is put back into the queue, it saves first. It goes on when it starts again."""
        if "tcp" not in [name for name, _, _ in self.links()]:
            self.skipTest("the tool is built without the tcp link")
        out, tcp = self.path("run"), "--link tcp --insecure --json"
        script = f"""#!/bin/bash
steps=$(ls {out}/checkpoint-*.gwp | sed -E 's/.*-0*([0-9]+).gwp/\\1/')
if [ "$steps" ]; then
    srun {harness.TOOL} train {tcp} --resume {out} --steps $((steps + 20)) >{self.path("summary")}
else
    srun {harness.TOOL} {" ".join(ENDLESS)} {tcp} --out {out} --checkpoint-every 1000000
fi
"""
        pathlib.Path(self.path("job")).write_text(script)
        job = start("sbatch", "-W", "--requeue", "-N2", "-n4", "-o", self.path("log"), self.path("job"))
        lines = os.path.join(out, "metrics.jsonl.partial")
        self.wait_until(job, lambda: os.path.exists(lines) and os.path.getsize(lines))
        self.end(start("srun", "-p", "urgent", "-N3", "--exclusive", "true"), 0)
        _, expected = self.goes_on(out)
        # Slurm would let a job wait for two minutes before it starts again.
        again = ["scontrol", "update", "JobName=job", "StartTime=now"]
        self.wait_until(job, lambda: subprocess.run(again, **pipes()).returncode == 0)
        heard = self.end(job, 0)[1]
        summary = harness.json.loads(pathlib.Path(self.path("summary")).read_text())
        self.assertEqual(summary["parameter_hash"], expected, heard)

    def test_pytorch(self):
        """The ranks of PyTorch's process group are found in the same way as the tool's."""
        if subprocess.run([sys.executable, "-c", "import torch.distributed"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("PyTorch is not installed")
        load = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
        if subprocess.run([sys.executable, "-c", load, LIBRARY], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("a sanitized library cannot be loaded into a plain Python")
        example = [sys.executable, ROOT / "examples/pytorch/train.py", "--model", "lenet", "--data", "drawn", "--json"]
        run = start("srun", "-K", "-N2", "-n3", *example, "--steps", 2, "--batch", 12)
        line = harness.json.loads(self.end(run, 0)[0].splitlines()[-1])
        self.assertTrue(line["identical"])
        self.assertEqual(line["ranks"], 3)


def pipes():
    return {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


if __name__ == "__main__":
    harness.main()
