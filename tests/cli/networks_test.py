#!/usr/bin/env python3
"""Tests the CIFAR-10 networks from outside: gradients beside PyTorch's, resume, data sets that are wrong.

    networks_test.py build/release/gradwire

The test draws its pictures. It uses PyTorch and NumPy if they are there. Without them it skips their test."""
import json
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


@harness.needs_trainer
@harness.needs_quick_convolutions
class Networks(harness.Case):
    def setUp(self):
        super().setUp()
        self.data = self.path("cifar")
        pictures.write_cifar(self.data)

    def train(self, *words):
        return json.loads(self.ok("train", "--data", self.data, "--json", *words))

    def test_resume_is_exact(self):
        """With batch norm's statistics, dropout, crops and adam's moments, four steps give the same as two and two
        more."""
        for net, codec, optimizer in [
            ("resnet20", "topk:ratio=0.05,refresh=3", "momentum"),
            ("alexnet-small", "ternary", "adam"),
            ("cifarnet", "onebit", "sgd"),
        ]:
            words = ["--net", net, "--codec", codec, "--optimizer", optimizer, "--schedule", "const", "--lr", 0.001]
            words += ["--workers", 2, "--batch", 6, "--checkpoint-every", 2]
            whole = self.train(*words, "--steps", 4, "--out", self.path("whole"), "--overwrite")
            self.train(*words, "--steps", 2, "--out", self.path("parts"), "--overwrite")
            words = ["--steps", 4, "--resume", self.path("parts")]
            parts = json.loads(self.ok("train", "--json", *words))
            self.assertEqual(whole["parameter_hash"], parts["parameter_hash"], net)
            self.assertTrue(whole["replicas_identical"])
            self.assertEqual(whole["test_accuracy"], parts["test_accuracy"])
            evaluated = json.loads(self.ok("eval", "--from", self.path("parts"), "--json"))
            self.assertAlmostEqual(evaluated["test_accuracy"], parts["test_accuracy"], 12)

    def test_resume_onto_other_workers(self):
        """Three workers go on with the statistics of two: they take the average, which the checkpoint has."""
        words = ["--net", "resnet20", "--codec", "topk:ratio=0.05", "--schedule", "const", "--lr", 0.001, "--batch", 6]
        words += ["--checkpoint-every", 2, "--out", self.path("run")]
        self.train(*words, "--workers", 2, "--steps", 2)
        before = json.loads(self.ok("eval", "--from", self.path("run"), "--json"))
        go_on = ["train", "--json", "--resume", self.path("run"), "--workers", 3, "--steps", 3, "--lr", 0.001]
        after = json.loads(self.ok(*go_on))
        self.assertTrue(after["replicas_identical"])
        self.assertEqual(after["resumed_from"], 2)
        self.assertEqual(before["step"], 2)

    def test_hash_does_not_depend_on_the_plan_or_the_link(self):
        words = ["--net", "resnet20", "--codec", "ternary", "--workers", 2, "--batch", 6, "--steps", 3]
        hashes = {self.train(*words, "--plan", plan)["parameter_hash"] for plan in ("none", "single", "fixed:100000")}
        launched = ["launch", "-n", 2, "--", "train", "--data", self.data, "--json", *words[:4], *words[6:]]
        hashes.add(json.loads(self.ok(*launched))["parameter_hash"])
        self.assertEqual(len(hashes), 1)

    def test_servers_that_come_and_go_have_no_batch_norm(self):
        words = ["--net", "resnet20", "--link", "servers", "--servers", "127.0.0.1:1", "--workers", 2, "--rank", 0]
        self.refused(2, "train", "--data", self.data, *words, says="batch norm")

    def test_wrong_data(self):
        words = ["train", "--net", "resnet20", "--steps", 1, "--batch", 2, "--data"]
        self.refused(1, *words, self.path("empty"), says="there is no file")
        os.makedirs(self.path("empty"))
        self.refused(1, *words, self.path("empty"), says=["neither MNIST", "nor CIFAR-10"])
        name = os.path.join(self.data, "data_batch_3.bin")
        with open(name, "rb") as file:
            good = file.read()
        for bad, said in [
            (good[:-1], "cut short"),
            (b"", "cut short"),
            (b"\x0a" + good[1:], "label 10 of picture 0"),
        ]:
            with open(name, "wb") as file:
                file.write(bad)
            self.refused(1, *words, self.data, says=["data_batch_3.bin", said])
        os.remove(name)
        self.refused(1, *words, self.data, says=["data_batch_3.bin", "CIFAR-10"])
        os.mkfifo(name)
        self.refused(1, *words, self.data, says=["data_batch_3.bin", "a pipe"])
        os.remove(name)
        with open(name, "wb") as file:
            file.write(good)
        with open(os.path.join(self.data, "train-images-idx3-ubyte"), "wb") as file:
            file.write(b"")
        self.refused(2, *words, self.data, says="it must hold one data set")

    def test_eval_takes_the_transform_of_the_checkpoint(self):
        out = self.path("run")
        words = ["--net", "resnet20", "--data", self.data, "--batch", 4, "--transform", "crop=32,whiten"]
        self.ok("train", *words, "--steps", 2, "--checkpoint-every", 1, "--out", out)
        alone = shutil.copy(os.path.join(out, "checkpoint-00000001.gwp"), self.path("alone.gwp"))
        within = self.ok_json("eval", "--from", os.path.join(out, "checkpoint-00000001.gwp"))
        by_itself = self.ok_json("eval", "--from", alone, "--data", self.data)
        self.assertEqual(by_itself["test_loss"], within["test_loss"])
        other = self.ok_json("eval", "--from", alone, "--data", self.data, "--transform", "normalize")
        self.assertNotEqual(other["test_loss"], within["test_loss"])

    def test_recipes(self):
        self.refused(2, "train", "--recipe", "terngrad-lenet", "--steps", 1, says="needs --data DIR")
        words = ["train", "--recipe", "dlgs-resnet20", "--data", self.data, "--scale"]
        self.refused(2, *words, "0.001", says="leaves no epoch for the last drop")
        for scale in ["0", "-1", "1.5"]:
            self.refused(2, *words, scale, says="above 0 and at most 1")

    def test_wrong_transforms(self):
        words = ["train", "--net", "resnet20", "--data", self.data, "--steps", 1, "--batch", 2, "--transform"]
        for text, said in [
            ("", "--transform is empty"),
            ("pad", "pad is not legal"),
            ("pad=0,crop=32", "pad=0 is not legal"),
            ("pad=4", "needs a crop"),
            ("crop=33", "does not fit"),
            ("crop=32.5", "crop=32.5 is not legal"),
            ("mirror=1", "mirror=1 is not legal"),
            ("mirror,mirror", "'mirror' is given twice"),
            ("brightness=300", "brightness=300 is not legal"),
            ("brightness=nan", "brightness=nan is not legal"),
            ("contrast=1", "contrast=1 is not legal"),
            ("contrast=2:1", "contrast=2:1 is not legal"),
            ("whiten,normalize", "exclude"),
            ("mirror,", "an option is empty"),
            ("miror", "did you mean 'mirror'?"),
            ("contrast=0:0", "contrast=0:0 is not legal"),
            ("crop=0x20", "crop=0x20 is not legal"),
            ("crop=3.2e1", "crop=3.2e1 is not legal"),
            ("scale,mirror", "scale stands alone"),
            ("crop=32,scale", "scale stands alone"),
            ("crop=24", "takes 3072 values"),
        ]:
            self.refused(2, *words, text, says=said)
        rows = self.path("rows")
        with open(rows, "w") as file:
            file.write("1 1:1\n-1 2:1\n")
        words = ["train", "--net", "logreg", "--data", rows, "--steps", 1, "--batch", 2, "--transform", "mirror"]
        self.refused(2, *words, says="for pictures")


@unittest.skipUnless(torch, "PyTorch and NumPy are not installed")
@harness.needs_trainer
@harness.needs_quick_convolutions
class BesidePyTorch(harness.Case):
    """Compares gradients and losses, which the trainer shows. They tell as much as logits."""

    def batch(self, folder, names):
        pixels, labels = [], []
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                records = numpy.frombuffer(file.read(), numpy.uint8).reshape(-1, 1 + 3 * pictures.SIDE * pictures.SIDE)
            labels.append(records[:, 0])
            pixels.append(records[:, 1:].reshape(-1, 3, pictures.SIDE, pictures.SIDE))
        return torch.tensor(numpy.concatenate(pixels)).float(), torch.tensor(numpy.concatenate(labels)).long()

    def tensors(self, run):
        folder = self.path("npy")
        files = json.loads(self.ok("export", "--from", run, "-o", folder, "--json"))["files"]
        return {os.path.basename(f)[: -len(".npy")]: torch.tensor(numpy.load(f)) for f in files}

    def whiten(self, pixels):
        """Cuts out the middle of 24x24, and gives each picture mean 0 and variance 1."""
        middle = pixels[:, :, 4:28, 4:28]
        flat = middle.flatten(1)
        return ((flat - flat.mean(1, keepdim=True)) / flat.std(1, unbiased=False, keepdim=True)).view(middle.shape)

    def test_networks(self):
        """Both sides compute in float32. A value near 0 may pass a maximum on one side only. Then gradients behind it
        differ by a little. Over a whole tensor that stays below a hundredth. If a layer is wrong, the difference is as
        long as the tensor. CifarNet's training crops are drawn, so only its test loss is compared."""
        data = self.path("cifar")
        pictures.write_cifar(data, per_file=8)
        pixels, labels = self.batch(data, [f"data_batch_{i}.bin" for i in range(1, 6)])
        test_pixels, test_labels = self.batch(data, ["test_batch.bin"])
        mean, deviation = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), unbiased=False, keepdim=True)
        for net, model, transform in [
            ("resnet20", torch_networks.resnet20, "normalize"),
            ("vgg16:0.25", torch_networks.vgg16, "normalize"),
            ("alexnet-small:0", torch_networks.alexnet, "normalize"),
            ("cifarnet", torch_networks.cifarnet, "crop=24,whiten"),
        ]:
            cross_entropy = torch.nn.functional.cross_entropy
            words = ["train", "--net", net, "--data", data, "--batch", len(labels), "--transform", transform, "--json"]

            # Four steps, so that the network has learned something. The test compares the test loss, which depends on
            # the statistics of all batches.
            run = self.path(f"trained-{net}")
            self.ok(*words, "--steps", 4, "--lr", 0.05, "--out", run)
            test = self.whiten(test_pixels) if net == "cifarnet" else (test_pixels - mean) / deviation
            trained = self.tensors(run)
            wanted = cross_entropy(model(trained, test, False), test_labels).item()
            for name in (name for name in trained if name.endswith(".running_mean")):
                self.assertGreater(trained[name].norm().item(), 0, "no batch left its statistics")
            evaluated = json.loads(self.ok("eval", "--from", run, "--json"))
            self.assertAlmostEqual(evaluated["test_loss"], wanted, delta=1e-4 * wanted, msg=net)
            self.assertGreater(abs(wanted - math.log(10)), 0.005, net)
            if net == "cifarnet":
                continue

            # Compare the gradient of the first step.
            run, gradient = self.path(f"first-{net}"), self.path(f"gradient-{net}")
            words += ["--weight-decay", 0, "--out", run, "--save-gradients", gradient, "--save-at", 0]
            summary = json.loads(self.ok(*words, "--steps", 1, "--lr", 0))
            p = {name: t.requires_grad_() for name, t in self.tensors(run).items()}
            loss = cross_entropy(model(p, (pixels - mean) / deviation, True), labels)
            loss.backward()
            self.assertAlmostEqual(summary["train_loss"], loss.item(), delta=1e-4, msg=net)
            for name, got in self.tensors(gradient + ".rank-0.gwp").items():
                if ".running_" in name:
                    continue
                want = p[name].grad
                apart = ((got - want).norm() / (want.norm() + 1e-12)).item()
                self.assertLess(apart, 0.01, f"{net}: {name}")


if __name__ == "__main__":
    harness.main()
