"""Tests examples/pytorch in their small form. They end well, replicas are identical, and the loss with a
codec is near that without one. Skips if PyTorch is not installed. Skips the test of imagenet.py if torchvision is not
installed."""
import json
import multiprocessing
import os
import pathlib
import runpy
import sys
import tempfile
import unittest
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import ports

PORTS = ports.free_ports()
FORKS = multiprocessing.get_context("fork")


def be_a_rank(words, environment, told):
    """Runs an example in this process, which was forked: the first process has loaded PyTorch already."""
    os.environ.update(environment)
    for file, descriptor in zip(told, (1, 2)):
        os.dup2(file.fileno(), descriptor)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def run(example, *words, processes=3):
    """Runs an example, each rank by hand. Returns rank 0's exit status, the lines that it printed, and its errors."""
    environment = dict(WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(next(PORTS)))
    command = [str(ROOT / "examples/pytorch" / example), *map(str, words)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors, open(os.devnull, "w") as nowhere:
        ranks = [
            FORKS.Process(
                target=be_a_rank, args=(command, {**environment, "RANK": str(rank)}, (nowhere if rank else out, errors))
            )
            for rank in range(processes)
        ]
        try:
            for rank in ranks:
                rank.start()
            ranks[0].join(400)
            for rank in ranks:
                rank.join(60)
            codes = [rank.exitcode for rank in ranks]
        finally:
            for rank in filter(lambda one: one.is_alive(), ranks):
                rank.kill()
                rank.join(10)
        for file in (out, errors):
            file.seek(0)
        told, said = out.read().splitlines(), errors.read()
    assert codes[0] or codes == [0] * processes, f"rank 0 ended well, and another rank did not: {codes} {said}"
    return codes[0], told, said


def train(*words, processes=3):
    """Runs train.py. Returns what run does, with the lines that it prints as JSON."""
    code, lines, said = run("train.py", "--json", *words, processes=processes)
    return code, [json.loads(line) for line in lines if line.startswith("{")], said


class Examples(unittest.TestCase):
    def check(self, *words, codecs, within):
        losses = {}
        for codec in ("ddp", *codecs):
            code, lines, said = train(*words, "--codec", codec)
            self.assertEqual(code, 0, said)
            self.assertTrue(all(line["identical"] for line in lines))
            losses[codec] = lines[-1]["loss"]
        for codec in codecs:
            self.assertLess(losses[codec], losses["ddp"] + within, losses)

    def test_lenet(self):
        # So long and so slowly that all end near 0. After one epoch at 0.02, DDP by itself ended at 0.66 and at 0.75.
        words = ["--model", "lenet", "--data", "drawn", "--batch", 48, "--lr", 0.01, "--epochs", 2]
        self.check(*words, codecs=["none", "ternary"], within=0.05)

    def test_resnet20(self):
        words = ["--model", "resnet20", "--data", "drawn", "--batch", 12, "--steps", 4]
        self.check(*words, codecs=["topk:ratio=0.1"], within=1.0)

    def test_transformer(self):
        words = ["--model", "transformer", "--batch", 48, "--steps", 30]
        self.check(*words, codecs=["gspar:density=0.2"], within=0.1)

    def test_imagenet(self):
        """Trains two epochs at once. Then trains the second one again, from the state after the first: the bits are the
        same."""
        if not torchvision:
            self.skipTest("torchvision is not installed")
        words = ["--net", "googlenet", "--data", "drawn", "--pixels", 32, "--batch", 8, "--steps", 1, "--epochs", 2]
        with tempfile.TemporaryDirectory(prefix="gradwire-imagenet-") as folder:
            ends = []
            for _ in range(2):
                code, lines, said = run("imagenet.py", *words, "--save", folder, processes=2)
                self.assertEqual(code, 0, said)
                ends.append(lines[-1].partition("hash ")[2])
                for path in pathlib.Path(folder).glob("epoch-2*"):
                    path.unlink()
            self.assertEqual(len(ends[0]), 16)
            self.assertEqual(*ends)
            self.assertFalse(any("epoch 1," in line for line in lines), "the first epoch was not repeated")
            (pathlib.Path(folder) / "empty").mkdir()
            self.assertIn("or drawn", run("imagenet.py", "--data", folder + "/empty", processes=1)[2])
            said = run("imagenet.py", *words[:6], "--batch", 5001, processes=1)[2]
            self.assertIn("larger than the training set, of 5000, so no step is made", said)

    def test_what_is_wrong_is_said(self):
        for words, says in [
            (["--model", "lenet"], "--data DIR is missing"),
            (["--model", "lenet", "--data", "/nonexistent"], "there is no train-images-idx3-ubyte"),
            (["--model", "lenet", "--data", "drawn", "--codec", "ternari"], "did you mean 'ternary'"),
            (["--data", "drawn", "--steps", -1], "--steps is -1, and must be 1 or more"),
            (["--data", "drawn", "--steps", 0], "--steps is 0, and must be 1 or more"),
            (["--data", "drawn", "--batch", -4], "--batch is -4, and must be 1 or more"),
            (["--data", "drawn", "--lr", "nan"], "--lr is nan, and must be a finite number above 0"),
            (["--data", "drawn", "--batch", 2001], "larger than the training set, of 2000, so no step is made"),
        ]:
            code, _, said = train(*words, processes=1)
            self.assertNotEqual(code, 0)
            self.assertIn(says, said)

    def test_every_process_has_a_picture(self):
        self.assertIn("and there are 2", train("--data", "drawn", "--batch", 1, processes=2)[2])


if __name__ == "__main__":
    # PyTorch reads the first when it is loaded.
    os.environ.update(OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    sys.path.insert(0, str(ROOT / "python"))
    warnings.simplefilter("ignore")
    try:
        import torch.distributed
    except ImportError:
        print("skipped: PyTorch is not installed")
        sys.exit(77)
    try:
        import torchvision
    except ImportError:
        torchvision = None
    unittest.main()
