#!/usr/bin/env python3
"""Tests the CIFAR-10 networks from outside: gradients beside PyTorch's, resume, data sets that are wrong.

    networks_test.py build/release/gradwire

Pictures are drawn here. PyTorch and NumPy are used if they are there; without them their test is skipped."""
import json
import math
import os
import random
import unittest

import harness

try:
    import numpy
    import torch
except ImportError:
    torch = None

SIDE = 32


def write_cifar(folder, per_file=4, n_test=12, seed=1):
    """Six small files in CIFAR-10's form. Each class has a colour, so there is something to learn."""
    os.makedirs(folder, exist_ok=True)
    r = random.Random(seed)
    for name, n in [*((f"data_batch_{i}.bin", per_file) for i in range(1, 6)), ("test_batch.bin", n_test)]:
        with open(os.path.join(folder, name), "wb") as file:
            for _ in range(n):
                label = r.randrange(10)
                middle = [40 + 17 * (label * k % 10) for k in (1, 3, 7)]
                pixels = (min(255, max(0, int(r.gauss(m, 40)))) for m in middle for _ in range(SIDE * SIDE))
                file.write(bytes([label, *pixels]))


class Networks(harness.Case):
    def setUp(self):
        super().setUp()
        self.data = self.path("cifar")
        write_cifar(self.data)

    def train(self, *words):
        return json.loads(self.ok("train", "--data", self.data, "--json", *words))

    def test_resume_is_exact(self):
        """Batch norm's statistics, dropout, crops and adam's moments: eight steps are four and four more."""
        for net, codec, optimizer in [
            ("resnet20", "none", "momentum"),
            ("resnet20", "topk:ratio=0.05,refresh=3", "adam"),
            ("alexnet-small", "ternary", "adam"),
            ("cifarnet", "onebit", "sgd"),
        ]:
            words = ["--net", net, "--codec", codec, "--optimizer", optimizer, "--schedule", "const", "--lr", 0.001]
            words += ["--workers", 2, "--batch", 6, "--checkpoint-every", 4]
            whole = self.train(*words, "--steps", 8, "--out", self.path("whole"), "--overwrite")
            self.train(*words, "--steps", 4, "--out", self.path("parts"), "--overwrite")
            words = ["--steps", 8, "--resume", self.path("parts")]
            parts = json.loads(self.ok("train", "--json", *words))
            self.assertEqual(whole["parameter_hash"], parts["parameter_hash"], net)
            self.assertTrue(whole["replicas_identical"])
            self.assertEqual(whole["test_accuracy"], parts["test_accuracy"])
            evaluated = json.loads(self.ok("eval", "--from", self.path("parts"), "--json"))
            self.assertAlmostEqual(evaluated["test_accuracy"], parts["test_accuracy"], 12)

    def test_resume_onto_other_workers(self):
        """Statistics of two workers go on with three: as the average, which the checkpoint has."""
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
        with open(name, "wb") as file:
            file.write(good)
        with open(os.path.join(self.data, "train-images-idx3-ubyte"), "wb") as file:
            file.write(b"")
        self.refused(2, *words, self.data, says="it must hold one data set")

    def test_wrong_transforms(self):
        words = ["train", "--net", "resnet20", "--data", self.data, "--steps", 1, "--batch", 2, "--transform"]
        for text, said in [
            ("", "unknown"),
            ("pad", "value"),
            ("pad=0,crop=32", "value"),
            ("pad=4", "needs a crop"),
            ("crop=33", "does not fit"),
            ("crop=32.5", "value"),
            ("mirror=1", "value"),
            ("mirror,mirror", "twice"),
            ("brightness=300", "value"),
            ("brightness=nan", "value"),
            ("contrast=1", "value"),
            ("contrast=2:1", "value"),
            ("whiten,normalize", "exclude"),
            ("mirror,", "unknown"),
            ("crop=24", "takes 3072 values"),
        ]:
            self.refused(2, *words, text, says=said)
        rows = self.path("rows")
        with open(rows, "w") as file:
            file.write("1 1:1\n-1 2:1\n")
        words = ["train", "--net", "logreg", "--data", rows, "--steps", 1, "--batch", 2, "--transform", "mirror"]
        self.refused(2, *words, says="for pictures")


@unittest.skipUnless(torch, "PyTorch and NumPy are not installed")
class BesidePyTorch(harness.Case):
    """The trainer shows gradients and losses, and these say as much as logits."""

    def batch(self, folder, names):
        pixels, labels = [], []
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                records = numpy.frombuffer(file.read(), numpy.uint8).reshape(-1, 1 + 3 * SIDE * SIDE)
            labels.append(records[:, 0])
            pixels.append(records[:, 1:].reshape(-1, 3, SIDE, SIDE))
        return torch.tensor(numpy.concatenate(pixels)).float(), torch.tensor(numpy.concatenate(labels)).long()

    def tensors(self, run):
        folder = self.path("npy")
        files = json.loads(self.ok("export", "--from", run, "-o", folder, "--json"))["files"]
        return {os.path.basename(f)[: -len(".npy")]: torch.tensor(numpy.load(f)) for f in files}

    def normed(self, p, suffix, x, stride=1):
        f = torch.nn.functional
        x = f.conv2d(x, p[f"conv{suffix}.weight"], None, stride, 1)
        name, kept = f"norm{suffix}", (None, None)
        if not self.training:
            kept = (p[f"{name}.running_mean"].detach(), p[f"{name}.running_var"].detach())
        return f.batch_norm(x, *kept, p[f"{name}.weight"], p[f"{name}.bias"], training=self.training)

    def resnet20(self, p, x):
        f = torch.nn.functional
        x = f.relu(self.normed(p, "1", x))
        for stage in (2, 3, 4):
            for block in (1, 2, 3):
                narrows = stage > 2 and block == 1
                y = f.relu(self.normed(p, f"{stage}.{block}.1", x, 2 if narrows else 1))
                y = self.normed(p, f"{stage}.{block}.2", y)
                if narrows:
                    x = x[:, :, ::2, ::2]
                    x = f.pad(x, (0, 0, 0, 0, 0, y.shape[1] - x.shape[1]))
                x = f.relu(x + y)
        x = f.avg_pool2d(x, 8).flatten(1)
        return f.linear(x, p["fc.weight"], p["fc.bias"])

    def vgg16(self, p, x):
        f = torch.nn.functional
        for stage, n in enumerate((2, 2, 3, 3, 3), 1):
            for i in range(1, n + 1):
                x = f.relu(self.normed(p, f"{stage}.{i}", x))
            x = f.max_pool2d(x, 2)
        return f.linear(x.flatten(1), p["fc.weight"], p["fc.bias"])

    def cifarnet(self, p, x):
        f = torch.nn.functional

        def pool(x):
            return f.max_pool2d(x, 3, 2, ceil_mode=True)

        def lrn(x):
            return f.local_response_norm(x, 9, 0.001, 0.75, 1)

        x = lrn(pool(f.relu(f.conv2d(x, p["conv1.weight"], p["conv1.bias"], 1, 2))))
        x = pool(lrn(f.relu(f.conv2d(x, p["conv2.weight"], p["conv2.bias"], 1, 2)))).flatten(1)
        x = f.relu(f.linear(x, p["fc3.weight"], p["fc3.bias"]))
        x = f.relu(f.linear(x, p["fc4.weight"], p["fc4.bias"]))
        return f.linear(x, p["softmax.weight"], p["softmax.bias"])

    def alexnet(self, p, x):
        f = torch.nn.functional
        for i, pad in enumerate((2, 2, 1, 1, 1), 1):
            x = f.relu(f.conv2d(x, p[f"conv{i}.weight"], p[f"conv{i}.bias"], 1, pad))
            if i in (1, 2, 5):
                x = f.max_pool2d(x, 3, 2, ceil_mode=True)
        x = x.flatten(1)
        for i in (6, 7):
            x = f.relu(f.linear(x, p[f"fc{i}.weight"], p[f"fc{i}.bias"]))
        return f.linear(x, p["fc8.weight"], p["fc8.bias"])

    def whiten(self, pixels):
        """The middle of 24x24, each picture with mean 0 and variance 1."""
        middle = pixels[:, :, 4:28, 4:28]
        flat = middle.flatten(1)
        return ((flat - flat.mean(1, keepdim=True)) / flat.std(1, unbiased=False, keepdim=True)).view(middle.shape)

    def test_networks(self):
        """float32 on both sides. A value near 0 may pass a maximum on one side only; then gradients behind it differ by
        a little. Over a whole tensor that stays below a hundredth; a wrong layer differs by its whole length.
        CifarNet's training crops are drawn, so of it the test loss is compared alone."""
        data = self.path("cifar")
        write_cifar(data, per_file=8)
        pixels, labels = self.batch(data, [f"data_batch_{i}.bin" for i in range(1, 6)])
        test_pixels, test_labels = self.batch(data, ["test_batch.bin"])
        mean, deviation = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), unbiased=False, keepdim=True)
        for net, model, transform in [
            ("resnet20", self.resnet20, "normalize"),
            ("vgg16:0.25", self.vgg16, "normalize"),
            ("alexnet-small:0", self.alexnet, "normalize"),
            ("cifarnet", self.cifarnet, "crop=24,whiten"),
        ]:
            cross_entropy = torch.nn.functional.cross_entropy
            words = ["train", "--net", net, "--data", data, "--batch", len(labels), "--transform", transform, "--json"]

            # Ten steps, after which the network says something: the test loss, with statistics of all batches.
            run, self.training = self.path(f"trained-{net}"), False
            self.ok(*words, "--steps", 10, "--lr", 0.02, "--out", run)
            test = self.whiten(test_pixels) if net == "cifarnet" else (test_pixels - mean) / deviation
            trained = self.tensors(run)
            wanted = cross_entropy(model(trained, test), test_labels).item()
            for name in (name for name in trained if name.endswith(".running_mean")):
                self.assertGreater(trained[name].norm().item(), 0, "no batch left its statistics")
            evaluated = json.loads(self.ok("eval", "--from", run, "--json"))
            self.assertAlmostEqual(evaluated["test_loss"], wanted, delta=1e-4 * wanted, msg=net)
            self.assertGreater(abs(wanted - math.log(10)), 0.005, net)
            if net == "cifarnet":
                continue

            # The first step's gradient.
            run, gradient, self.training = self.path(f"first-{net}"), self.path(f"gradient-{net}"), True
            words += ["--weight-decay", 0, "--out", run, "--save-gradients", gradient, "--save-at", 0]
            summary = json.loads(self.ok(*words, "--steps", 1, "--lr", 0))
            p = {name: t.requires_grad_() for name, t in self.tensors(run).items()}
            loss = cross_entropy(model(p, (pixels - mean) / deviation), labels)
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
