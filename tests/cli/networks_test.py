#!/usr/bin/env python3
"""Tests the CIFAR-10 networks from outside: gradients of batch norm beside PyTorch's, resume, data sets that are wrong.
Without PyTorch and NumPy their test is skipped."""
import math
import os
import shutil
import unittest

import harness
import pictures

try:
    import numpy
    import torch
    import torch_networks
except ImportError:
    torch = None

DATA = os.path.join(harness.PICTURES, "cifar")
pictures.write_cifar(DATA, per_file=8)


@harness.needs_trainer
@harness.needs_quick_convolutions
class Networks(harness.Case):
    def train(self, *words):
        return self.ok_json("train", "--data", DATA, *words)

    def test_resume_is_exact(self):
        """With batch norm's statistics, dropout, crops and adam's moments, two steps give the same as one and one
        more. Three workers go on with the statistics of two: they take the average, which the checkpoint has. The hash
        does not depend on the plan or the link."""
        words = "--net resnet20 --codec ternary --batch 6 --steps 2 --plan".split()
        here = self.train(*words, "none", "--workers", 2)
        launched = self.ok_json("launch", "-n", 2, "--", "train", "--data", DATA, *words, "single")
        self.assertEqual(here["parameter_hash"], launched["parameter_hash"])
        for net, codec, optimizer in [
            ("resnet20", "topk:ratio=0.05,refresh=3", "momentum"),
            ("alexnet-small", "ternary", "adam"),
            ("cifarnet", "onebit", "sgd"),
        ]:
            run, words = self.path(net), ["--net", net, "--codec", codec, "--optimizer", optimizer]
            words += "--schedule const --lr 0.001 --workers 2 --batch 6".split()
            whole = self.train(*words, "--steps", 2)
            self.train(*words, "--steps", 1, "--checkpoint-every", 1, "--out", run)
            three = shutil.copytree(run, self.path(f"three-{net}"))
            parts = self.ok_json("train", "--steps", 2, "--resume", run)
            for what in ("parameter_hash", "replicas_identical", "test_accuracy"):
                self.assertEqual(whole[what], parts[what], net)
            if net == "resnet20":
                after = self.ok_json("train", "--resume", three, "--workers", 3, "--steps", 2)
                self.assertEqual((after["replicas_identical"], after["resumed_from"]), (True, 1))
        self.assertAlmostEqual(self.ok_json("eval", "--from", run)["test_accuracy"], parts["test_accuracy"], 12)

    def test_eval_takes_the_transform_of_the_checkpoint(self):
        out = self.path("run")
        words = "--net resnet20 --batch 4 --transform crop=32,whiten --steps 1 --checkpoint-every 1".split()
        self.train(*words, "--out", out)
        last = os.path.join(out, "checkpoint-00000001.gwp")
        alone = ["eval", "--from", shutil.copy(last, self.path("alone.gwp")), "--data", DATA]
        within = self.ok_json("eval", "--from", last)
        self.assertEqual(self.ok_json(*alone)["test_loss"], within["test_loss"])
        self.assertNotEqual(self.ok_json(*alone, "--transform", "normalize")["test_loss"], within["test_loss"])

    def test_wrong_use(self):
        """forms_test and transform_test have folders, pictures and transforms that are wrong."""
        cut = shutil.copytree(DATA, self.path("cifar"))
        os.truncate(os.path.join(cut, "data_batch_3.bin"), 3072)
        words = "train --net resnet20 --steps 1 --batch 2 --data".split()
        self.refused(1, *words, cut, says=["data_batch_3.bin", "cut short"])
        rows = [
            ("--link servers --servers 127.0.0.1:1 --workers 2 --rank 0", "batch norm"),
            ("--transform miror", "did you mean 'mirror'?"),
            ("--transform crop=24", "takes 3072 values"),
        ]
        self.each_refused(2, *words, DATA, rows)
        rows = [("0.001", "leaves no epoch for the last drop"), ("0", "above 0"), ("1.5", "at most 1")]
        self.each_refused(2, "train", "--data", DATA, "--recipe", "dlgs-resnet20", "--scale", rows)
        self.refused(2, "train", "--recipe", "terngrad-lenet", "--steps", 1, says="needs --data DIR")


@unittest.skipUnless(torch, "PyTorch and NumPy are not installed")
@harness.needs_trainer
@harness.needs_quick_convolutions
class BesidePyTorch(harness.Case):
    """Compares gradients and losses, which the trainer shows. They tell as much as logits."""

    def batch(self, names):
        records = [numpy.fromfile(os.path.join(DATA, name), numpy.uint8).reshape(-1, 1 + 3072) for name in names]
        records = torch.tensor(numpy.concatenate(records))
        return records[:, 1:].reshape(-1, 3, pictures.SIDE, pictures.SIDE).float(), records[:, 0].long()

    def tensors(self, run):
        files = self.ok_json("export", "--from", run, "-o", f"{run}-npy")["files"]
        return {os.path.basename(f)[: -len(".npy")]: torch.tensor(numpy.load(f)) for f in files}

    def test_networks(self):
        """model_test compares the other networks with a plain reference. Both sides compute in float32. A value near 0
        may pass a maximum on one side only. Then gradients behind it differ by a little: one such value in the middle
        of vgg16 is a hundredth of the tensors before it. If a layer is wrong, the difference is as long as the
        tensor."""
        pixels, labels = self.batch([f"data_batch_{i}.bin" for i in range(1, 6)])
        test_pixels, test_labels = self.batch(["test_batch.bin"])
        mean, deviation = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), unbiased=False, keepdim=True)
        pixels, test_pixels = (pixels - mean) / deviation, (test_pixels - mean) / deviation
        cross_entropy = torch.nn.functional.cross_entropy
        for net, model in [("resnet20", torch_networks.resnet20), ("vgg16:0.25", torch_networks.vgg16)]:
            words = ["train", "--net", net, "--data", DATA, "--batch", len(labels), "--transform", "normalize"]

            # After four steps the network has learned something. The test loss depends on the statistics of all
            # batches.
            run = self.path(f"trained-{net}")
            self.ok(*words, "--steps", 4, "--lr", 0.05, "--out", run)
            trained = self.tensors(run)
            wanted = cross_entropy(model(trained, test_pixels, False), test_labels).item()
            for name in (name for name in trained if name.endswith(".running_mean")):
                self.assertGreater(trained[name].norm().item(), 0, "no batch left its statistics")
            evaluated = self.ok_json("eval", "--from", run)
            self.assertAlmostEqual(evaluated["test_loss"], wanted, delta=1e-4 * wanted, msg=net)
            self.assertGreater(abs(wanted - math.log(10)), 0.005, net)

            # The gradient of the first step.
            run, gradient = self.path(f"first-{net}"), self.path(f"gradient-{net}")
            words += ["--weight-decay", 0, "--out", run, "--save-gradients", gradient, "--save-at", 0]
            summary = self.ok_json(*words, "--steps", 1, "--lr", 0)
            p = {name: t.requires_grad_() for name, t in self.tensors(run).items()}
            loss = cross_entropy(model(p, pixels, True), labels)
            loss.backward()
            self.assertAlmostEqual(summary["train_loss"], loss.item(), delta=1e-4, msg=net)
            gradients = self.tensors(gradient + ".rank-0.gwp").items()
            gradients = [(name, got, p[name].grad) for name, got in gradients if ".running_" not in name]
            for i, (name, got, want) in enumerate(gradients):
                apart = ((got - want).norm() / (want.norm() + 1e-12)).item()
                last = i >= len(gradients) - 2  # no maximum stands between the last layer and the loss
                self.assertLess(apart, 1e-5 if last else 0.05, f"{net}: {name}")


if __name__ == "__main__":
    harness.main()
