#!/usr/bin/env python3
"""Tests the CIFAR-10 networks from outside: gradients beside PyTorch's, resume, data sets that are wrong.

    networks_test.py build/release/gradwire

The test draws its pictures. It uses PyTorch and NumPy if they are there. Without them it skips their test."""
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
        more. Three workers go on with the statistics of two: they take the average, which the checkpoint has."""
        for net, codec, optimizer in [
            ("resnet20", "topk:ratio=0.05,refresh=3", "momentum"),
            ("alexnet-small", "ternary", "adam"),
            ("cifarnet", "onebit", "sgd"),
        ]:
            words = ["--net", net, "--codec", codec, "--optimizer", optimizer]
            words += "--schedule const --lr 0.001 --workers 2 --batch 6 --checkpoint-every 1 --overwrite".split()
            whole = self.train(*words, "--steps", 2, "--out", self.path("whole"))
            self.train(*words, "--steps", 1, "--out", self.path("parts"))
            three = shutil.copytree(self.path("parts"), self.path(f"three-{net}"))
            parts = self.ok_json("train", "--steps", 2, "--resume", self.path("parts"))
            self.assertEqual(whole["parameter_hash"], parts["parameter_hash"], net)
            self.assertTrue(whole["replicas_identical"])
            self.assertEqual(whole["test_accuracy"], parts["test_accuracy"])
            if net == "resnet20":
                after = self.ok_json("train", "--resume", three, "--workers", 3, "--steps", 2)
                self.assertEqual((after["replicas_identical"], after["resumed_from"]), (True, 1))
        evaluated = self.ok_json("eval", "--from", self.path("parts"))
        self.assertAlmostEqual(evaluated["test_accuracy"], parts["test_accuracy"], 12)

    def test_hash_does_not_depend_on_the_plan_or_the_link(self):
        words = "--net resnet20 --codec ternary --batch 6 --steps 2 --plan".split()
        here = self.train(*words, "none", "--workers", 2)
        launched = self.ok_json("launch", "-n", 2, "--", "train", "--data", DATA, *words, "single")
        self.assertEqual(here["parameter_hash"], launched["parameter_hash"])

    def test_eval_takes_the_transform_of_the_checkpoint(self):
        out = self.path("run")
        words = "--net resnet20 --batch 4 --transform crop=32,whiten --steps 1 --checkpoint-every 1".split()
        self.train(*words, "--out", out)
        alone = shutil.copy(os.path.join(out, "checkpoint-00000001.gwp"), self.path("alone.gwp"))
        within = self.ok_json("eval", "--from", os.path.join(out, "checkpoint-00000001.gwp"))
        by_itself = self.ok_json("eval", "--from", alone, "--data", DATA)
        self.assertEqual(by_itself["test_loss"], within["test_loss"])
        other = self.ok_json("eval", "--from", alone, "--data", DATA, "--transform", "normalize")
        self.assertNotEqual(other["test_loss"], within["test_loss"])

    def test_wrong_data(self):
        """forms_test has folders that hold several data sets or none, and transform_test pictures that are wrong."""
        words = "train --net resnet20 --steps 1 --batch 2 --data".split()
        self.refused(1, *words, self.path("empty"), says="there is no file")
        data = shutil.copytree(DATA, self.path("cifar"))
        name = os.path.join(data, "data_batch_3.bin")
        self.write_bytes(name, self.read_bytes(name)[:-1])
        self.refused(1, *words, data, says=["data_batch_3.bin", "cut short"])
        os.remove(name)
        self.refused(1, *words, data, says=["data_batch_3.bin", "CIFAR-10"])
        os.mkfifo(name)
        self.refused(1, *words, data, says=["data_batch_3.bin", "a pipe"])

    def test_wrong_words(self):
        """transform_test has more transforms that are not legal."""
        train = ["train", "--data", DATA]
        servers = "--net resnet20 --link servers --servers 127.0.0.1:1 --workers 2 --rank 0".split()
        self.refused(2, *train, *servers, says="batch norm")
        self.refused(2, "train", "--recipe", "terngrad-lenet", "--steps", 1, says="needs --data DIR")
        recipe = [*train, "--recipe", "dlgs-resnet20", "--scale"]
        self.refused(2, *recipe, "0.001", says="leaves no epoch for the last drop")
        self.each_refused(2, *recipe, [(scale, "above 0 and at most 1") for scale in ["0", "-1", "1.5"]])
        words = [*train, *"--net resnet20 --steps 1 --batch 2 --transform".split()]
        self.refused(2, *words, "", says="--transform is empty")
        rows = [
            ("pad=4", "needs a crop"),
            ("crop=33", "does not fit"),
            ("crop=32.5", "crop=32.5 is not legal"),
            ("mirror,mirror", "'mirror' is given twice"),
            ("brightness=nan", "brightness=nan is not legal"),
            ("whiten,normalize", "exclude"),
            ("mirror,", "an option is empty"),
            ("miror", "did you mean 'mirror'?"),
            ("crop=0x20", "crop=0x20 is not legal"),
            ("scale,mirror", "scale stands alone"),
            ("crop=24", "takes 3072 values"),
        ]
        self.each_refused(2, *words, rows)
        rows = self.write_bytes("rows", b"1 1:1\n-1 2:1\n")
        words = ["train", "--net", "logreg", "--data", rows, "--steps", 1, "--batch", 2, "--transform", "mirror"]
        self.refused(2, *words, says="for pictures")


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

    def whiten(self, pixels):
        """Cuts out the middle of 24x24, and gives each picture mean 0 and variance 1."""
        middle = pixels[:, :, 4:28, 4:28]
        flat = middle.flatten(1)
        return ((flat - flat.mean(1, keepdim=True)) / flat.std(1, unbiased=False, keepdim=True)).view(middle.shape)

    def test_networks(self):
        """Both sides compute in float32. A value near 0 may pass a maximum on one side only. Then gradients behind it
        differ by a little: one such value in the middle of vgg16 is a hundredth of the tensors before it. If a layer is
        wrong, the difference is as long as the tensor. CifarNet's training crops are drawn, so only its test loss is
        compared."""
        pixels, labels = self.batch([f"data_batch_{i}.bin" for i in range(1, 6)])
        test_pixels, test_labels = self.batch(["test_batch.bin"])
        mean, deviation = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), unbiased=False, keepdim=True)
        cross_entropy = torch.nn.functional.cross_entropy
        for net, model, transform in [
            ("resnet20", torch_networks.resnet20, "normalize"),
            ("vgg16:0.25", torch_networks.vgg16, "normalize"),
            ("alexnet-small:0", torch_networks.alexnet, "normalize"),
            ("cifarnet", torch_networks.cifarnet, "crop=24,whiten"),
        ]:
            words = ["train", "--net", net, "--data", DATA, "--batch", len(labels), "--transform", transform]

            # Four steps, so that the network has learned something. The test compares the test loss, which depends on
            # the statistics of all batches.
            run = self.path(f"trained-{net}")
            self.ok(*words, "--steps", 4, "--lr", 0.05, "--out", run)
            test = self.whiten(test_pixels) if net == "cifarnet" else (test_pixels - mean) / deviation
            trained = self.tensors(run)
            wanted = cross_entropy(model(trained, test, False), test_labels).item()
            for name in (name for name in trained if name.endswith(".running_mean")):
                self.assertGreater(trained[name].norm().item(), 0, "no batch left its statistics")
            evaluated = self.ok_json("eval", "--from", run)
            self.assertAlmostEqual(evaluated["test_loss"], wanted, delta=1e-4 * wanted, msg=net)
            self.assertGreater(abs(wanted - math.log(10)), 0.005, net)
            if net == "cifarnet":
                continue

            # Compare the gradient of the first step.
            run, gradient = self.path(f"first-{net}"), self.path(f"gradient-{net}")
            words += ["--weight-decay", 0, "--out", run, "--save-gradients", gradient, "--save-at", 0]
            summary = self.ok_json(*words, "--steps", 1, "--lr", 0)
            p = {name: t.requires_grad_() for name, t in self.tensors(run).items()}
            loss = cross_entropy(model(p, (pixels - mean) / deviation, True), labels)
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
