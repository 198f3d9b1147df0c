"""Tests gradwire.torch: what each case in torch_cases must find, on processes that DDP connects over Gloo. Skips if
PyTorch is not installed."""
import json
import os
import pathlib
import select
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
DEADLINE = 240  # so many seconds cases may take on a busy machine
PORTS = ports.free_ports()
SERVERS = []
OVER_THE_GROUP = {"TRANSPORT": "torch"}  # the process group of DDP carries the messages


def setUpModule():
    SERVERS.extend(Server() for _ in range(2))


def tearDownModule():
    for server in SERVERS:
        server.end()


class Server:
    """A process that has loaded PyTorch, which takes seconds, and forks ranks. There are two, because processes that
    start by themselves hash words differently, and so go through sets in different orders."""

    def __init__(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(HERE / "torch_cases")]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True)

    def ask(self, asked):
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def end(self):
        with self.process:  # closes the pipes. Then it ends
            pass


class Rank:
    """A process that runs cases."""

    def __init__(self, server, environment, path, cases):
        self.server, self.path = server, path
        self.process = server.ask([environment, path + ".txt", [path, *cases]])
        self.handle = os.pidfd_open(self.process)

    def ends_within(self, seconds):
        return bool(select.select([self.handle], [], [], seconds)[0])

    def end(self):
        """Kills it if it still runs. Returns (exit code, what it printed, what it found)."""
        if not self.ends_within(0):
            os.kill(self.process, signal.SIGKILL)
        os.close(self.handle)
        code, path = self.server.ask(self.process), pathlib.Path(self.path)
        text = pathlib.Path(self.path + ".txt").read_text(encoding="utf-8", errors="replace")
        return code, text, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


class Ranks:
    """The processes of a job. They are closed whatever happens. Python's own end takes longer than most cases, so it is
    left out in ranks that end well, but not in those of `whole`."""

    def __init__(self, cases, size, folder, environment=None, whole=()):
        base = {"WORLD_SIZE": str(size), "FOLDER": folder, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(next(PORTS))}
        base.update(environment or {})
        self.ranks = [
            Rank(
                SERVERS[rank % 2],
                # The OpenMPI processes of two jobs must not make the same folder at the same time.
                {
                    **base,
                    "RANK": str(rank),
                    "TMPDIR": tempfile.mkdtemp(dir=folder),
                    "END": "whole" if rank in whole else "early",
                },
                os.path.join(folder, f"result-{rank}-{time.monotonic_ns()}.json"),
                cases,
            )
            for rank in range(size)
        ]

    def finish(self):
        """Returns [(exit code, what it printed, what it found)] for every rank."""
        end = time.monotonic() + DEADLINE
        late = [i for i, rank in enumerate(self.ranks) if not rank.ends_within(max(1, end - time.monotonic()))]
        done = [rank.end() for rank in self.ranks]
        assert not late, f"ranks {late} have not ended in {DEADLINE} s: {done}"
        return done


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gradwire-torch-")
        self.addCleanup(lambda: subprocess.run(["rm", "-rf", self.folder], check=True))

    def run_cases(self, *cases, size=3, environment=None):
        """Runs cases, which must end well on all ranks. Returns what each rank found."""
        done = Ranks(cases, size, self.folder, environment).finish()
        for rank, (code, text, _) in enumerate(done):
            self.assertEqual(code, 0, f"rank {rank} of {cases}: {text}")
        return [found for _, _, found in done]

    def same(self, found, case):
        """Checks that all ranks found the same, and returns it."""
        for other in found[1:]:
            self.assertEqual(found[0][case], other[case], case)
        return found[0][case]

    def each_in(self, parts, texts):
        for part, text in zip(parts, texts, strict=True):
            self.assertIn(part, text)


class Averages(Case):
    """Cases without errors share their processes, because the start of PyTorch takes longer than they do."""

    def test_averages(self):
        found = self.run_cases(
            "averages_are_those_of_the_library",
            "replicas_stay_identical",
            "momentum_fits_the_optimizer",
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
        for difference, way in self.same(found, "momentum_fits_the_optimizer"):
            self.assertLess(difference, 1e-5)
            self.assertGreater(way, 0.1)
        self.assertEqual(self.same(found, "last_layer_goes_as_float"), [False, False, True, True])
        self.assertEqual(self.same(found, "halves"), {"torch.float16": True, "torch.bfloat16": True})
        plain, scaled = self.same(found, "gradient_scaling")
        self.assertEqual(plain, scaled)

    def test_what_ddp_does(self):
        found = self.run_cases(
            "buckets_of_all_sizes",
            "accumulation",
            "thrown_away",
            "unused_parameters",
            "uneven_inputs",
            "uneven_inputs_of_those_left",
            "clipping",
            "several_models",
            "frozen_parameters",
            "the_hook_by_itself",
        )
        self.assertEqual(len(set(self.same(found, "buckets_of_all_sizes"))), 1)
        self.assertEqual(self.same(found, "accumulation"), [0, 1, True])
        as_they_are, thrown_away, under_no_sync = self.same(found, "thrown_away")
        self.assertEqual(under_no_sync, as_they_are)
        self.assertNotEqual(thrown_away, as_they_are)
        unused = [rank["unused_parameters"] for rank in found]
        for rank in unused:
            self.assertEqual(rank["grads"], [[False, True], [False, True], [True, False], [False, True]])
            self.assertEqual(rank["kept"]["first.weight"], [False, False, False])
            self.assertEqual(rank["kept"]["left.weight"], [False, True, False])
            self.assertEqual(rank["kept"]["right.weight"], [True, False, True])
        self.assertEqual(self.same(found, "uneven_inputs")[1], 4)
        for rank in found:
            self.assertIn("join(divide_by_initial_world_size=False)", rank["uneven_inputs_of_those_left"])
        self.assertAlmostEqual(self.same(found, "clipping"), 0.01, places=5)
        alone, together = self.same(found, "several_models")
        self.assertEqual(alone, together)
        self.assertEqual(self.same(found, "frozen_parameters")[0], ["0.bias", "2.weight", "2.bias"])
        self.assertIn("4 parameters that DDP did not reduce when", self.same(found, "the_hook_by_itself"))

    def test_state(self):
        cases = ["resume", "save_states", "hostile_states", "hostile_choices"]
        cases += ["scaler_comes_and_goes", "plain_numbers", "named_codec_into_auto", "choice_without_residuals"]
        cases += ["state_beside_a_step"]
        found = self.run_cases(*cases)
        self.assertEqual(self.same(found, "state_beside_a_step"), [1, 2])
        never, went, came = self.same(found, "scaler_comes_and_goes")
        self.assertEqual((went, came), (never, never))
        self.assertEqual(self.same(found, "plain_numbers"), ["NoneType", "Tensor", "int", "list", "str"])
        for rank in found:
            for text in rank["choice_without_residuals"]:
                self.assertIn("residuals take 50 bytes", text)
        self.assertIn("give attach that codec, not auto", self.same(found, "named_codec_into_auto"))
        for straight, resumed in self.same(found, "resume"):
            self.assertEqual(straight, resumed)
        said, mean_kept, not_empty, step, _ = self.same(self.run_cases("load_states", size=2), "load_states")
        self.hostile_states(found)
        for ranks, text in zip(["[0]", "[0, 1]", "[0, 0, 2]"], said):
            self.assertIn(f"the state is of ranks {ranks} of 3; give this rank's own, or a list", text)
        self.assertEqual((mean_kept, not_empty, step), (True, True, 3))

    def hostile_states(self, found):
        parts = ["a state is a dictionary", "a state is a dictionary", "has no codec", "of 100000000; give"]
        parts += ["step is 1099511627776", "step is 'two'", "scale is 'x'", "scale is nan", "names are 4"]
        parts += ["are not bytes", "are not bytes", "are not bytes", "residuals take", "residuals take 100 bytes"]
        parts += ["checksum does not match"] * 2
        for rank in found:
            self.each_in(parts, rank["hostile_states"])
            of_choices = ["does not name a codec"] * 2 + ["groups for other tensors"] * 2
            self.each_in(of_choices, rank["hostile_choices"])


class Parameters(Case):
    """What a compression counts as the model's parameters."""

    def test_parameters(self):
        found = self.run_cases(
            "after_ddp",
            "without_the_reducer",
            "shared_names",
            "last_layers",
            "compiled_names",
            "wrapped_models",
            "types_at_attach",
            "frozen_and_needed",
            "last_bucket_without_all",
            "bucket_with_more",
        )
        every = ["0.weight", "0.bias", "2.weight", "2.bias"]
        expected = dict.fromkeys(("frozen after", "added", "used before"), every)
        expected.update({"thawed after": every[2:], "removed": ["0.weight", *every[2:], "gone.0"]})
        expected["ignored"] = ["0.weight", *every[2:]]
        self.assertEqual(self.same(found, "after_ddp"), {kind: [names, 3] for kind, names in expected.items()})
        self.assertEqual(self.same(found, "without_the_reducer"), expected["ignored"])
        embedding, head, both = ["embedding.weight"], ["head.weight"], ["head.weight", "head.bias"]
        last = ["embedding.weight", "head.bias"]
        self.assertEqual(self.same(found, "shared_names"), [embedding, head, both, last, ["body.bias"]])
        self.last_layers(self.same(found, "last_layers"))
        self.assertEqual(self.same(found, "compiled_names"), [["_orig_mod.0.bias"], ["0.bias"]])
        parts = ["no error", "is a Around, which wraps one; give attach the one within", "a communication hook already"]
        parts += ["for mixed_precision=", "the optimizer runs in backward", "naming a python_reducer"]
        parts += ["without skip_all_reduce_unused_params"]
        self.each_in(parts, self.same(found, "wrapped_models"))
        parts = ["2.weight has gradients of torch.float64", "words.weight has sparse gradients", "no error", "no error"]
        parts += ["0.weight has sparse", "2.bias has gradients of torch.complex64"]
        self.each_in(parts, self.same(found, "types_at_attach"))
        said = self.same(found, "frozen_and_needed")
        self.assertEqual(said[0], "Timeout")
        self.assertIn("gradwire: backward has handed over no gradient of 0.bias within 1000 ms", said[1])
        for rank in found:
            self.assertRegex(rank["last_bucket_without_all"][1], "^gradwire: .* none holds 0.weight, 2.bias")
            self.assertIn("holds 1669 elements, and its parameters 1664", rank["bucket_with_more"][1])

    def last_layers(self, found):
        of_one = dict.fromkeys(("plain", "shared", "behind it"), ["1.bias", "1.weight"])
        parts = ["1.parametrizations.{}.0.skew", "1.parametrizations.{}.original"]
        self.assertEqual(
            found,
            {
                **of_one,
                "tied": ["embedding.weight"],
                "weight_norm": ["1.bias", "1.weight_g", "1.weight_v"],
                "spectral_norm": ["1.bias", "1.parametrizations.weight.original"],
                "parametrized": [part.format(name) for name in ("bias", "weight") for part in parts],
                "scaled": ["1.bias", "1.scaler.weight", "1.weight"],
                "wrapped": ["1.gain", "1.inner.bias", "1.inner.weight"],
                "compiled": ["1._orig_mod.bias", "1._orig_mod.weight"],
                "alike": ["0.bias", "0.weight"],
                "compiled whole": ["_orig_mod.2.bias", "_orig_mod.2.weight"],
            },
        )


class Copies(Case):
    def test_copies(self):
        found = self.run_cases("copies", "copies_while_auto_times", "sharded_copies", "forks")
        said, same = self.same(found, "copies")
        self.assertTrue(same)
        for text in said + self.same(found, "sharded_copies"):
            self.assertIn("a copy of a compression, which is not attached", text)
        self.same(found, "copies_while_auto_times")
        self.assertEqual(self.same(found, "forks"), [7, True])


class Deadlines(Case):
    def test_deadlines(self):
        cases = ["close_is_stuck", "closed_within_the_hook", "sharded_is_busy", "attach_is_stuck"]
        cases += ["the_end_waits_once", "interrupted_call", "interrupted_twice", "sharded_closed_within_the_hook"]
        found = self.run_cases(*cases)
        for found_there in found:
            said, closed = found_there["sharded_closed_within_the_hook"]
            self.assertIn("closed", said)
            self.assertTrue(closed)
        self.assertTrue(self.same(found, "interrupted_call"))
        self.assertTrue(self.same(found, "interrupted_twice"))
        self.sharded_is_interrupted(self.run_cases("sharded_is_interrupted"))
        self.assertIn("this compression is closed", self.same(found, "closed_within_the_hook"))
        self.assertEqual(self.same(found, "the_end_waits_once"), 1)
        self.assertIn("has not ended in 0.1 s", self.same(found, "close_is_stuck"))
        said = self.same(found, "sharded_is_busy")
        self.assertIn("another thread has been in this compression for 0.1 s", said[0])
        self.assertIn("a step has not ended in 0.1 s", said[1])
        parts = ["have said where they are", "where it listens", "have made a group for messages"]
        for rank in found:
            self.each_in(parts, rank["attach_is_stuck"])

    def sharded_is_interrupted(self, found):
        for rank, (said, at_once) in enumerate(of_rank["sharded_is_interrupted"] for of_rank in found):
            parts = ["", "gradwire: KeyboardInterrupt"] if rank == 1 else ["rank 1 failed: KeyboardInterrupt"]
            self.each_in(parts, said)
            self.assertTrue(at_once)

    def test_rank_0_is_interrupted(self):
        self.assertTrue(all(found["rank_0_is_interrupted"] for found in self.run_cases("rank_0_is_interrupted")))

    def test_rank_0_does_not_attach(self):
        for rank, found in enumerate(self.run_cases("rank_0_does_not_attach")):
            if rank > 0:
                self.assertIn("rank 0 has not said that all are there within 1000 ms", found["rank_0_does_not_attach"])


class Transports(Case):
    def test_the_same_bits(self):
        found = self.run_cases("transports", "part_of_the_job", "groups_go", "auto_over_the_group")
        self.same(found, "auto_over_the_group")
        for rank in found:
            first, last = rank["groups_go"]
            self.assertEqual(first, last)
        for codec, digests in self.same(found, "transports").items():
            self.assertEqual(len(set(digests)), 1, codec)
        said = [rank["part_of_the_job"] for rank in found]
        self.assertEqual(said[0], said[1])
        self.assertTrue(said[0] == "no error" or "use_local_synchronization" in said[0], said[0])

    def test_the_group_carries_what_ddp_does(self):
        cases = ["averages_are_those_of_the_library", "unused_parameters", "uneven_inputs", "several_models"]
        cases += ["not_finite", "resume", "goes_without_a_word"]
        found = self.run_cases(*cases, environment=OVER_THE_GROUP)
        self.assertTrue(all(self.same(found, cases[0]).values()))
        alone, together = self.same(found, "several_models")
        self.assertEqual(alone, together)
        for straight, resumed in self.same(found, "resume"):
            self.assertEqual(straight, resumed)

    def test_mpi(self):
        mpiexec = os.environ.get("GRADWIRE_MPIEXEC")
        if not mpiexec or not os.path.exists(mpiexec):
            self.skipTest("mpiexec or the mpi link is not there")
        path = os.path.join(self.folder, "result-RANK.json")
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "FOLDER": self.folder, "TRANSPORT": "mpi"}
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(next(PORTS)), OMP_NUM_THREADS="1")
        cases = ["transports", "replicas_stay_identical", "several_models"]
        done = subprocess.run(
            [mpiexec, "-n", "3", sys.executable, str(HERE / "torch_cases"), path, *cases],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        found = [json.loads(pathlib.Path(path.replace("RANK", str(r))).read_text(encoding="utf-8")) for r in range(3)]
        for codec, digests in self.same(found, "transports").items():
            self.assertEqual(len(set(digests)), 1, codec)

    def test_mpi_is_absent(self):
        """MPI sees only one rank of the job, because mpirun has not started the others."""
        if "GRADWIRE_MPI_LIBRARY" not in os.environ:
            self.skipTest("the mpi link is not there")
        for code, text, _ in Ranks(["clipping"], 2, self.folder, {"TRANSPORT": "mpi"}).finish():
            self.assertNotEqual(code, 0)
            self.assertIn("MPI has 1 rank here, and the job has 2: start all of it with one mpirun or srun", text)


class Sharded(Case):
    """Units of our own call FSDP2's hook, because this PyTorch has no fully_shard."""

    def test_sharded(self):
        for environment in ({}, OVER_THE_GROUP):
            with self.subTest(environment=environment):
                self.sharded(environment)

    def sharded(self, environment):
        cases = ["sharded_averages", "sharded_training", "sharded_scaling", "sharded_states", "sharded_errors"]
        found = self.run_cases(*cases, "sharded_on_one_rank", environment=environment)
        parts = ["no scale", "no scale", "no scale", "ValueError: no scale", "", "KeyboardInterrupt"]
        self.each_in(parts, found[1]["sharded_on_one_rank"])
        for rank in (0, 2):
            parts = [f"rank 1 failed: {why}" for why in ("no scale", "ValueError: no scale", "KeyboardInterrupt")]
            self.each_in(parts, found[rank]["sharded_on_one_rank"])
        steps, late = self.same(found, "sharded_states")
        self.assertEqual(steps, [2, 1])
        self.assertIn("load a state before the first backward", late)
        self.assertTrue(all(self.same(found, "sharded_averages").values()), found[0])
        self.assertEqual(*self.same(found, "sharded_scaling"))
        kinds, (resumed, same, n_bytes) = self.same(found, "sharded_training")
        self.assertEqual({steps for _, steps in kinds.values()}, {12})
        self.assertEqual(len({d for d, _ in kinds.values()}), 3)
        self.assertEqual((resumed, same), (kinds["topk:ratio=0.1,refresh=1,scope=layer,over=0 torch.float32"][0], True))
        self.assertGreater(n_bytes, 4 * (64 * 20 + 5 * 64))
        for rank in (0, 2):
            self.assertIn("rank 1", found[rank]["sharded_errors"].pop())
        said = self.same(found, "sharded_errors")
        parts = [
            "this is the class Unit",
            "this is None",
            "call fully_shard on it first",
            "name a codec",
            "no last layer",
            "skip=9 fits no name here (0, 2)",
        ]
        parts += ["65 units", "1.weight is in no unit of fully_shard", "has an all-reduce hook already"]
        parts += ["get_group()", "pass it as optimizer=", "and has 0.8 and 0"]
        parts += ["no error"] * 8
        parts += ["after each backward that averages, and 3 of the last 8 had none", "the GradScaler's factor is 0.0"]
        parts += ["on rank 1 holds a NaN"]
        parts += ["no error", "had 10 elements, and now has 11", "had 10 elements", "had 10 elements"]
        self.each_in(parts, said[:-1])
        self.assertTrue(said[-1])


class FullySharded(Case):
    """PyTorch's own fully_shard, with two replicas and with three."""

    def test_two_replicas(self):
        self.fully_sharded(4)

    def test_three_replicas(self):
        self.fully_sharded(6)

    def fully_sharded(self, size):
        found = self.run_cases("fsdp_training", "fsdp_stats", "fsdp_errors", size=size)
        kinds = self.same(found, "fsdp_training")
        if kinds is None:
            self.skipTest("this PyTorch has no fully_shard with an all-reduce hook (2.7)")
        for kind, hsdp in (("none", "HSDP"), ("micro", "HSDP micro"), ("clip", "HSDP clip")):
            if size == 4:  # the sum of three floats depends on their order
                self.assertEqual(kinds[kind][0], kinds[hsdp][0], kind)
            for ours, theirs in zip(kinds[kind][0], kinds[hsdp][0], strict=True):
                self.assertAlmostEqual(ours, theirs, places=5, msg=kind)
        self.assertEqual(
            {kind: steps for kind, (_, steps) in kinds.items() if steps},
            {"none": 8, "micro": 4, "clip": 8, "ternary": 8, "topk": 8, "resumed": 4},
        )
        self.assertEqual(kinds["resumed"][0], kinds["topk"][0])
        self.assertEqual(len({tuple(kinds[kind][0]) for kind in ("none", "ternary", "topk")}), 3)
        for rank in found:
            self.assertEqual(rank["fsdp_stats"], [None, True])
        replicated, sharded, ignored, goes_on, all_nan, unused, as_zeros, n_left, kept = self.same(found, "fsdp_errors")
        self.assertEqual(ignored[1:], ["no error"] * 2)
        self.assertRegex(goes_on[0], "on rank 0 holds a NaN")
        self.assertEqual(goes_on[1:], [2, True, *["gradwire: this compression is closed"] * 2])
        self.assertRegex(ignored[0], "2.bias is in no unit .* ignored_params")
        self.assertIn("is replicated over the ranks of `replicas` already (HSDP)", replicated)
        self.assertIn("is sharded over ranks of `replicas`", sharded)
        self.assertEqual((all_nan, as_zeros, n_left), (True, True, 0))
        self.assertRegex(unused, "root's gradient has .* of all parameters that train .*; freeze what")
        self.assertIn("gradients wait for a backward that averages them", kept)


class Auto(Case):
    def test_auto(self):
        cases = ["auto_takes_a_codec", "auto_goes_back", "auto_takes_none", "auto_as_it_is", "auto_and_join"]
        cases += ["auto_sees_a_schedule", "auto_sees_backwards_without_steps", "adam_is_noticed"]
        cases += ["optimizers_that_cannot_be_asked", "others_than_sgd", "one_of_two_is_given", "another_optimizer"]
        cases += ["nobody_reads_what_it_says", "adam_within_another", "others_free_their_own"]
        found = self.run_cases(*cases, "auto_knows_accuracy")
        unknown, sgd, adam = self.same(found, "auto_knows_accuracy")
        self.assertEqual([sgd, adam], [unknown, ["bf16"]])
        self.assertFalse(any("momentum" in spec for spec in unknown))
        self.assertGreater(len(unknown), 1)
        # The all-reduce makes 5 + 9 steps. 3 + 9 more, and one, tell how long the codec's steps take.
        expected = {
            "auto_takes_a_codec": [14, 26, 0, 3],
            "auto_goes_back": [26, 14, 3, 0],
            "auto_takes_none": [39, 1, 3, 0],
        }
        for case, values in expected.items():
            for rank in found:
                got = rank[case][0]
                self.assertEqual([got[i] for i in (3, 4, 7, 8)], values, case)
                self.assertEqual(got, found[0][case][0], case)
                self.assertEqual(got[0], "auto")
                takes = case == "auto_takes_a_codec"
                self.assertIn(got[2], ["none", "ternary"] if takes else [None])
                self.assertEqual([got[1].split(":")[0], got[6].split(":")[0]], [got[2] or "none"] * 2)
        self.assertIn("auto takes ", found[0]["auto_takes_a_codec"][1])
        self.assertIn("went back", found[2]["auto_goes_back"][1])
        self.assertNotIn("auto takes", found[2]["auto_goes_back"][1])
        self.assertIn("auto takes DDP's own all-reduce", found[1]["auto_takes_none"][1])
        self.same(found, "auto_as_it_is")
        self.assertEqual(self.same(found, "auto_sees_a_schedule"), ["none"])
        self.assertEqual(self.same(found, "auto_sees_backwards_without_steps"), ["none"])
        for rank, (said, compared) in enumerate(of_rank["adam_is_noticed"] for of_rank in found):
            self.assertEqual([text.count("with AdamW, ternary can train") for text in said], [rank == 0, 0, 0, 0])
            self.assertEqual(sorted(compared), ["bf16", "none"])
        for rank, of_rank in enumerate(found):
            self.assertEqual(of_rank["optimizers_that_cannot_be_asked"], [5, int(rank == 0)])
            self.assertEqual([of_rank["adam_within_another"], of_rank["another_optimizer"]], [int(rank == 0)] * 2)
            names, only_bf16, refused, n_said = of_rank["others_than_sgd"]
            self.assertEqual(names, [None] * 5 + ["Adam", "Rprop", "LBFGS", "LARS", "SignSGD"])
            self.assertEqual(only_bf16, [name is not None for name in names])
            self.assertIn("fits torch.optim.SGD only, and this is LARS", refused)
            self.assertEqual(n_said, int(rank == 0))
            self.assertEqual(of_rank["one_of_two_is_given"], [int(rank == 0), ["bf16", "none"], None])
        self.assertEqual(self.same(found, "others_free_their_own"), [["other"], ["Adam"]])
        self.assertEqual(self.same(found, "nobody_reads_what_it_says"), [True] * 4)
        self.same(found, "auto_and_join")

    def test_no_python_on_other_threads(self):
        for rank, found in enumerate(self.run_cases("auto_runs_no_python_on_other_threads")):
            names, said = found["auto_runs_no_python_on_other_threads"]
            self.assertEqual(names, ["gradwire"])
            if rank != 1:
                self.assertEqual(said.count("DDP's own all-reduce failed, or took more than 1000 ms"), 1, said)
                self.assertIn("give attach a longer timeout=", said)

    def test_one_rank_ends(self):
        for found in self.run_cases("auto_and_one_rank_ends"):
            self.assertIn(r"ended with ValueError: rank 1 has had enough of \udcff", found["auto_and_one_rank_ends"])

    def test_times(self):
        """Seconds 1 and 3 of each step have the gradients, and second 10 its end."""
        self.assertEqual(self.run_cases("auto_times")[0]["auto_times"], [[1000.0, [2000.0, 0.0]], 10000.0])


class Logs(Case):
    def test_logs(self):
        tags, sums_match = self.run_cases("logging", "logging_to_tensorboard")[0]["logging"]
        self.assertTrue(sums_match)
        names = ["bytes_up", "bytes_down", "dense_bytes", "encode_seconds", "wait_seconds"]
        names += ["times_smaller_up", "times_smaller_down", "dropped_steps"]
        self.assertEqual(tags, [[f"gradwire/{name}", step] for step in range(2) for name in names])


class Failures(Case):
    def test_not_finite(self):
        found = self.run_cases(
            "not_finite",
            "not_finite_raises",
            "wrong_arguments",
            "a_schedule_moves_the_momentum",
            "steps_without_the_optimizer",
        )
        said = self.same(found, "steps_without_the_optimizer")
        self.assertRegex(said[0], "step 5: .* each backward that averages, and 3 of the last 6 had none; to add up")
        self.assertEqual(said[1:-1], ["no error"] * 5)
        self.assertRegex(said[-1], "step 3: .* 3 of the last 4 had none")
        self.assertIn("and has 0.85 and 0", self.same(found, "a_schedule_moves_the_momentum"))
        all_nan, finite, moved, _, dropped = self.same(found, "not_finite")
        self.assertEqual((all_nan, finite, moved, dropped), (True, True, True, 1))
        self.assertIn("on rank 1 holds a NaN or an infinity", self.same(found, "not_finite_raises"))
        parts = [
            "DistributedDataParallel",
            "did you mean 'ternary'",
            'must be "nan" or "raise"',
            "transport",
            "timeout",
        ]
        parts += ['knows no nonfinite="raise"', "knows no keys", "did you mean 'ternary'"]
        parts += ["must be a list", "all tensors at once", 'are for transport="tcp"']
        parts += ["timeout is nan", "timeout is None", "seed is 18446744073709551616", "threads is -1", "get_scale"]
        parts += ['keys is ""', "no/keys", "rendezvous is 29500", "a codec is None", "character of code 0"]
        parts += ["must be a list", "optimizer is 'sgd'", "pass it as optimizer="]
        parts += ["fits torch.optim.SGD only, and this is Adam", "and has 0.8 and 0"]
        parts += ["and has 0.9 and 0.5", "output=velocity, so the optimizer must have momentum 0 "]
        parts += ["does not have 2.weight", "and has 0 and 0"]
        parts += ["64 are the most", "skip=2.wieght fits no name here (0.weight, 0.bias, 2.weight, 2.bias)"]
        parts += ["several names are joined by +", "ternary: skip=2.wieght fits no name"]
        parts += ["candidates are what", "hollow, which has no elements"]
        parts += ["scaler is the class Scaler, no object of it", "optimizer is the class SGD, no object of it"]
        parts += ["optimizer is [SGD ( Parameter Group 0", "this is the class DistributedDataParallel, no object"]
        parts += ["a codec is array(", "a character that UTF-8 has not", "must be a list", "transport is array("]
        parts += ["keys is 5, and must be the name of a folder", 'must be "HOST:PORT"', 'must be "HOST:PORT"']
        parts += ["seed is True, and must be a whole number", "a whole number from 1 to 256", "timeout is True"]
        *said, ms_60, ms_100, of_hook = self.same(found, "wrong_arguments")
        self.each_in(parts, said)
        self.assertEqual([text for text in said if "\n" in text], [])
        self.assertEqual([ms_60, ms_100], [60000, 100000])
        self.assertIn("the hook's state is None, and must be what gradwire.torch.attach returns", of_hook)

    def test_ranks_that_disagree(self):
        cases = [("codecs_that_differ", "codec"), ("models_that_differ", "names and sizes")]
        cases += [("models_that_differ", "in the same order"), ("models_in_another_order", "in the same order")]
        cases += [("nonfinite_that_differs", "nonfinite"), ("scalers_that_differ", "scaler")]
        cases += [("factors_that_differ", "scale 512.0")]
        for case, words in cases:
            found = self.run_cases(case)
            said = [rank[case] for rank in found]
            self.assertNotIn("no error", said)
            self.assertTrue(any(words in text for text in said), said)

    def test_one_rank_raises_in_backward(self):
        for environment in ({}, OVER_THE_GROUP):
            found = self.run_cases("one_rank_raises_in_backward", environment=environment)
            said = [rank["one_rank_raises_in_backward"] for rank in found]
            self.assertIn("rank 1 has had enough", said[1][0])
            for text, seconds in (said[0], said[2]):
                self.assertIn("rank 1", text)
                self.assertLess(seconds, 60)

    def others_than_1(self, case, code, **options):
        """Runs a case on each carrier. Rank 1's program must end with this code. Yields what the other ranks found."""
        for environment in ({}, OVER_THE_GROUP):
            done = Ranks([case], 3, self.folder, environment, **options).finish()
            self.assertEqual(done[1][0], code, done[1][1])
            for _, text, found in (done[0], done[2]):
                self.assertTrue(found, text)
                yield found[case]

    def test_one_rank_ends_between_steps(self):
        """The other ranks hear at once why. attach's timeout is a minute."""
        for said, seconds in self.others_than_1("one_rank_ends_between_steps", 1):
            self.assertIn("its program ended with ValueError: rank 1 has had enough", said)
            self.assertLess(seconds, 30)

    def test_one_rank_ends_well(self):
        """The other ranks hear at once who has ended, although nothing failed there."""
        for case in ("one_rank_has_fewer_batches", "one_rank_forgets_its_compression"):
            for said in self.others_than_1(case, 0, whole=[1]):
                self.assertIn("rank 1 has ended its exchange", said)

    def test_one_rank_raises_between_buckets(self):
        for environment in ({}, OVER_THE_GROUP):
            found = self.run_cases("one_rank_raises_between_buckets", environment=environment)
            said = [rank["one_rank_raises_between_buckets"] for rank in found]
            self.assertIn("rank 1 has had enough", said[1][0])
            self.assertIn("a step has been under way for 0.1 s", said[1][1])
            for rank in (0, 2):
                self.assertIn("rank 1", said[rank][0])

    def test_transports_that_differ(self):
        for rank in self.run_cases("transports_that_differ", "candidates_that_differ", "keys_that_differ"):
            self.assertIn('and rank 1 with transport="torch" and 1 link', rank["transports_that_differ"])
            self.assertIn("and rank 1 with transport=\"tcp\" and 1 link, with keys", rank["keys_that_differ"])
            self.assertIn("links to choose from bf16, f16, and rank 1 with", rank["candidates_that_differ"])

    def test_one_rank_is_interrupted(self):
        for environment in ({}, OVER_THE_GROUP):
            for rank, found in enumerate(self.run_cases("one_rank_is_interrupted", environment=environment)):
                said = "gradwire: KeyboardInterrupt" if rank == 1 else "rank 1 failed: KeyboardInterrupt"
                self.assertIn(said, found["one_rank_is_interrupted"])

    def test_one_rank_is_silent(self):
        """Rank 0 does something else for longer than the timeout. The error names what the program can do."""
        for environment in ({}, OVER_THE_GROUP):
            for rank in self.run_cases("one_rank_is_silent", environment=environment):
                self.assertRegex(rank["one_rank_is_silent"], " 1000 ms; .* give attach a longer timeout=")

    def test_attach_is_late(self):
        found = self.run_cases("attach_is_late")
        self.assertIn("not all ranks have attached within 3000 ms", found[0]["attach_is_late"])
        self.assertIn("Ranks 1 failed", found[0]["attach_is_late"])
        self.assertIn("not all ranks have attached", found[2]["attach_is_late"])

    def test_one_rank_is_killed(self):
        for said, checked, seconds in self.others_than_1("one_rank_is_killed", -signal.SIGKILL):
            self.assertIn("rank 1", said)
            self.assertIn("rank 1", checked)
            self.assertLess(seconds, 60)

    def test_one_rank_is_stopped(self):
        """When Python ends, no thread may wait in Gloo: if it came back then, the process would abort."""
        ranks = Ranks(["one_rank_is_stopped"], 2, self.folder, whole=[0, 1])
        try:
            closed, end = os.path.join(self.folder, "closed-tcp-1"), time.monotonic() + DEADLINE
            while not os.path.exists(closed) and time.monotonic() < end and not ranks.ranks[1].ends_within(0):
                time.sleep(0.01)
            waits = os.path.exists(closed) and not ranks.ranks[1].ends_within(2)
        finally:
            os.kill(ranks.ranks[0].process, signal.SIGCONT)
            done = ranks.finish()
        self.assertTrue(waits, done)
        for code, text, _ in done:
            self.assertEqual(code, 0, text)
        self.assertIn("waits at most 30 s until rank 0 has answered its farewell", done[1][1])

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
        self.assertGreater(max(shares), 0.5)  # a loose limit, because other programs may use the machine


if __name__ == "__main__":
    try:
        import torch.distributed
    except ImportError:
        print("skipped: PyTorch is not installed")
        sys.exit(77)
    unittest.main()
