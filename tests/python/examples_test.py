"""Tests examples/pytorch in their small form. They end well, replicas are identical, and the loss with a
codec is near that without one. Skips if PyTorch is not installed. Skips the test of imagenet.py if torchvision is not
installed."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import ports

PORTS = ports.free_ports()


def run(example, *words, processes=3):
    """Runs an example, each rank by hand. Returns how rank 0 ended, and the lines that it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    environment.update(WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(next(PORTS)))
    command = [sys.executable, str(ROOT / "examples/pytorch" / example), *map(str, words)]
    others = [
        subprocess.Popen(command, env={**environment, "RANK": str(rank)}, stdout=subprocess.DEVNULL)
        for rank in range(1, processes)
    ]
    try:
        done = subprocess.run(
            command, env={**environment, "RANK": "0"}, text=True, capture_output=True, timeout=400, check=False
        )
        for other in others:
            assert other.wait(60) == 0 or done.returncode, "rank 0 ended well, and another rank did not"
    finally:
        for other in others:
            other.kill()
            other.wait(10)  # it was killed
    return done, done.stdout.splitlines()


def train(*words, processes=3):
    """Runs train.py. Returns the lines that it prints as JSON."""
    done, lines = run("train.py", "--json", *words, processes=processes)
    return done, [json.loads(line) for line in lines if line.startswith("{")]


class Examples(unittest.TestCase):
    def check(self, *words, codecs, within):
        losses = {}
        for codec in ("ddp", *codecs):
            done, lines = train(*words, "--codec", codec)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(all(line["identical"] for line in lines))
            losses[codec] = lines[-1]["loss"]
        for codec in codecs:
            self.assertLess(losses[codec], losses["ddp"] + within, losses)

    def test_lenet(self):
        self.check("--model", "lenet", "--data", "drawn", "--batch", 48, codecs=["none", "ternary"], within=0.05)

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
                done, lines = run("imagenet.py", *words, "--save", folder, processes=2)
                self.assertEqual(done.returncode, 0, done.stderr)
                ends.append(lines[-1].partition("hash ")[2])
                for path in pathlib.Path(folder).glob("epoch-2*"):
                    path.unlink()
            self.assertEqual(len(ends[0]), 16)
            self.assertEqual(*ends)
            self.assertFalse(any("epoch 1," in line for line in lines), "the first epoch was not repeated")
            (pathlib.Path(folder) / "empty").mkdir()
            done, _ = run("imagenet.py", "--data", folder + "/empty", processes=1)
            self.assertIn("or drawn", done.stderr)

    def test_what_is_wrong_is_said(self):
        for words, says in [
            (["--model", "lenet"], "--data DIR is missing"),
            (["--model", "lenet", "--data", "/nonexistent"], "there is no train-images-idx3-ubyte"),
            (["--model", "lenet", "--data", "drawn", "--codec", "ternari"], "did you mean 'ternary'"),
        ]:
            done, _ = train(*words, processes=1)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)


if __name__ == "__main__":
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
