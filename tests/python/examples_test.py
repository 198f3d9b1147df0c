"""Tests examples/pytorch in their small form under torchrun: they end well, replicas are identical, and the loss with a
codec is near that without. Skips if PyTorch is not installed."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import ports

PORTS = ports.free_ports()


def train(*words, processes=3):
    """The lines that the example prints as JSON."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    # Without -r and -t, Debian's torchrun 1.13 fails under Python 3.11 before it starts anything.
    command = ["torchrun", "-r", "1", "-t", "1", "--nproc_per_node", str(processes), "--master_port", str(next(PORTS))]
    command += [str(ROOT / "examples/pytorch/train.py"), "--json", *map(str, words)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=400, check=False)
    lines = [line.partition(":")[2] for line in done.stdout.splitlines() if line.startswith("[")]
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
    if not shutil.which("torchrun"):
        print("skipped: torchrun is not on PATH")
        sys.exit(77)
    unittest.main()
