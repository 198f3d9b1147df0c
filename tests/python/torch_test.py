"""Tests gradwire.torch: what each case in torch_cases.py must find, on processes that DDP connects over Gloo. Skips if
PyTorch is not installed."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))

import ports

LIBRARY = os.environ["GRADWIRE_LIBRARY"]
DEADLINE = 240  # seconds that cases may take on a busy machine
PORTS = ports.free_ports()


class Ranks:
    """Processes that run cases; closed whatever happens."""

    def __init__(self, cases, size, folder, environment=None):
        self.paths = [os.path.join(folder, f"result-{rank}-{time.monotonic_ns()}.json") for rank in range(size)]
        base = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "WORLD_SIZE": str(size), "FOLDER": folder}
        base.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(next(PORTS)), OMP_NUM_THREADS="1", **(environment or {}))
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(HERE / "torch_cases.py"), self.paths[rank], *cases],
                env={**base, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(size)
        ]

    def finish(self):
        """[(exit code, what it printed, what it found)] of every rank."""
        end, done = time.monotonic() + DEADLINE, []
        try:
            for process, path in zip(self.processes, self.paths):
                text = process.communicate(timeout=max(1, end - time.monotonic()))[0]
                found = pathlib.Path(path).read_text(encoding="utf-8") if os.path.exists(path) else "{}"
                done.append((process.returncode, text, json.loads(found)))
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        return done


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gradwire-torch-")
        self.addCleanup(lambda: subprocess.run(["rm", "-rf", self.folder], check=True))

    def run_cases(self, *cases, size=3, environment=None):
        """What each rank found, all of which must have ended well."""
        done = Ranks(cases, size, self.folder, environment).finish()
        for rank, (code, text, _) in enumerate(done):
            self.assertEqual(code, 0, f"rank {rank} of {cases}: {text}")
        return [found for _, _, found in done]

    def same(self, found, case):
        """All ranks found the same; returns it."""
        for other in found[1:]:
            self.assertEqual(found[0][case], other[case], case)
        return found[0][case]


class Averages(Case):
    """Benign cases share their processes: starting PyTorch takes longer than they do."""

    def test_averages(self):
        found = self.run_cases(
            "averages_are_those_of_the_library",
            "replicas_stay_identical",
            "last_layer_goes_as_float",
            "halves",
            "gradient_scaling",
        )
        for codec, same in self.same(found, "averages_are_those_of_the_library").items():
            self.assertTrue(same, codec)
        for codec in found[0]["replicas_stay_identical"]:
            digests = {rank["replicas_stay_identical"][codec][0] for rank in found}
            self.assertEqual(len(digests), 1, codec)
            self.assertEqual(found[0]["replicas_stay_identical"][codec][2], 5)
        self.assertGreater(found[0]["replicas_stay_identical"]["ternary"][1], 4)
        self.assertEqual(self.same(found, "last_layer_goes_as_float"), [False, False, True, True])
        self.assertEqual(self.same(found, "halves"), {"torch.float16": True, "torch.bfloat16": True})
        plain, scaled = self.same(found, "gradient_scaling")
        self.assertEqual(plain, scaled)

    def test_what_ddp_does(self):
        found = self.run_cases(
            "buckets_of_all_sizes",
            "accumulation",
            "unused_parameters",
            "uneven_inputs",
            "clipping",
            "several_models",
            "frozen_parameters",
            "the_hook_by_itself",
        )
        self.assertEqual(len(set(self.same(found, "buckets_of_all_sizes"))), 1)
        self.assertEqual(self.same(found, "accumulation"), [0, 1, True])
        unused = [rank["unused_parameters"] for rank in found]
        for rank in unused:
            self.assertEqual(rank["grads"], [[False, True], [False, True], [True, False], [False, True]])
            self.assertEqual(rank["kept"]["first.weight"], [False, False, False])
            self.assertEqual(rank["kept"]["left.weight"], [False, True, False])
            self.assertEqual(rank["kept"]["right.weight"], [True, False, True])
        self.assertEqual(self.same(found, "uneven_inputs")[1], 4)
        self.assertAlmostEqual(self.same(found, "clipping"), 0.01, places=5)
        alone, together = self.same(found, "several_models")
        self.assertEqual(alone, together)
        self.assertEqual(self.same(found, "frozen_parameters")[0], ["0.bias", "2.weight", "2.bias"])
        self.assertIn("were not there when", self.same(found, "the_hook_by_itself"))

    def test_state(self):
        found = self.run_cases("resume", "save_states")
        for straight, resumed in self.same(found, "resume"):
            self.assertEqual(straight, resumed)
        said, mean_kept, not_empty, step, _ = self.same(self.run_cases("load_states", size=2), "load_states")
        for ranks, text in zip(["[0]", "[0, 1]", "[0, 0, 2]"], said):
            self.assertIn(f"the state is of ranks {ranks} of 3; give this rank's own, or a list", text)
        self.assertEqual((mean_kept, not_empty, step), (True, True, 3))


class Failures(Case):
    def test_not_finite(self):
        found = self.run_cases("not_finite", "not_finite_raises", "wrong_arguments")
        all_nan, finite, moved, _, dropped = self.same(found, "not_finite")
        self.assertEqual((all_nan, finite, moved, dropped), (True, True, True, 1))
        said = self.same(found, "not_finite_raises")
        self.assertIn("on rank 1 holds a NaN or an infinity", said)
        said = self.same(found, "wrong_arguments")
        for part, text in zip(
            ["DistributedDataParallel", "did you mean 'ternary'", 'must be "nan" or "raise"', "transport", "timeout"],
            said,
        ):
            self.assertIn(part, text)

    def test_ranks_that_disagree(self):
        for case, words in [("codecs_that_differ", "codec"), ("models_that_differ", "names and sizes")]:
            found = self.run_cases(case)
            said = [rank[case] for rank in found]
            self.assertNotIn("no error", said)
            self.assertTrue(any(words in text for text in said), said)

    def test_one_rank_raises_in_backward(self):
        found = self.run_cases("one_rank_raises_in_backward")
        said = [rank["one_rank_raises_in_backward"] for rank in found]
        self.assertIn("rank 1 has had enough", said[1][0])
        for text, seconds in (said[0], said[2]):
            self.assertIn("rank 1", text)
            self.assertLess(seconds, 60)

    def test_one_rank_is_killed(self):
        done = Ranks(["one_rank_is_killed"], 3, self.folder).finish()
        self.assertEqual(done[1][0], -signal.SIGKILL)
        for rank in (0, 2):
            code, text, found = done[rank]
            self.assertTrue(found, text)
            said, checked, seconds = found["one_rank_is_killed"]
            self.assertIn("rank 1", said)
            self.assertIn("rank 1", checked)
            self.assertLess(seconds, 60)

    def test_library(self):
        for library, says in [
            (os.path.join(self.folder, "absent.so"), "install it, or name it in GRADWIRE_LIBRARY"),
            (self.other_version(), "is 0.1.0, and the library that was found is 9.9.9"),
        ]:
            done = Ranks(["clipping"], 1, self.folder, {"GRADWIRE_LIBRARY": library}).finish()
            self.assertNotEqual(done[0][0], 0)
            self.assertIn(says, done[0][1])

    def other_version(self):
        source, library = os.path.join(self.folder, "other.c"), os.path.join(self.folder, "other.so")
        with open(source, "w", encoding="utf-8") as file:
            file.write('const char *gw_version(void) { return "9.9.9"; }\n')
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
        return library


class Lock(Case):
    def test_python_goes_on(self):
        shares = self.run_cases("python_goes_on", size=2)[0]["python_goes_on"]
        print("a counter beside a step that waits:", ", ".join(f"{share:.2f}" for share in shares))
        self.assertGreater(max(shares), 0.5)  # loosely: others may use the machine


if __name__ == "__main__":
    try:
        import torch.distributed
    except ImportError:
        print("skipped: PyTorch is not installed")
        sys.exit(77)
    unittest.main()
