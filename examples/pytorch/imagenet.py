#!/usr/bin/env python3
"""Trains torchvision's AlexNet, GoogLeNet, VGG-11 or ResNet-50 with ternary gradients, with TernGrad's settings.

    torchrun -r 1 -t 1 --nproc_per_node 4 examples/pytorch/imagenet.py --net alexnet --data /data/imagenet --save run
    torchrun -r 1 -t 1 --nproc_per_node 2 examples/pytorch/imagenet.py --net resnet50 --data drawn --pixels 64 --steps 5

--data is a folder with train/CLASS/*.jpeg and val/CLASS/*.jpeg, or `drawn`: pictures of ten classes that need no files.
TernGrad trains with less dropout, less weight decay and the last layer in float, since ternary gradients regularise by
themselves; `--codec ddp` takes the usual settings and DistributedDataParallel by itself. --save FOLDER writes what a
run needs to go on after every epoch, and goes on from there if it is called again: the model and optimizer once, and
what the codec keeps for each rank. Needs torchvision."""
import argparse
import os
import pathlib
import sys
import time

import gradwire.launcher
import torch
import torch.distributed as dist
import torchvision
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import transforms

# The rate for a batch of 256, then dropout and weight decay: as usual, and with ternary gradients. For AlexNet and
# GoogLeNet these are the numbers of TernGrad, tables 2 and 3. The paper trains neither of the others.
SETTINGS = {
    "alexnet": (0.01, (0.5, 5e-4), (0.2, 5e-4)),
    "googlenet": (0.04, (0.2, 4e-5), (0.08, 1e-5)),
    "vgg11": (0.01, (0.5, 5e-4), (0.2, 2.5e-4)),
    "resnet50": (0.1, (None, 1e-4), (None, 5e-5)),
}
MOMENTUM, POWER = 0.9, 0.5  # the rate falls like (1 - t/T)^0.5


class Drawn(Dataset):
    """Noise over ten fixed pictures."""

    def __init__(self, n, pixels):
        generator = torch.Generator().manual_seed(1)
        self.centres, self.n, self.pixels = torch.randn(10, 3, 8, 8, generator=generator), n, pixels

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        label = i % 10
        picture = F.interpolate(self.centres[label][None], self.pixels)[0]
        return picture + torch.randn(picture.shape, generator=torch.Generator().manual_seed(i)), label


def load(args):
    """Returns (training set, test set, number of classes)."""
    if args.data == "drawn":
        return Drawn(5000, args.pixels), Drawn(100, args.pixels), 10
    normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    end = [transforms.ToTensor(), normalize]
    train = [transforms.RandomResizedCrop(args.pixels), transforms.RandomHorizontalFlip(), *end]
    test = [transforms.Resize(args.pixels * 8 // 7), transforms.CenterCrop(args.pixels), *end]
    try:
        sets = [
            torchvision.datasets.ImageFolder(os.path.join(args.data, part), transforms.Compose(steps))
            for part, steps in (("train", train), ("val", test))
        ]
    except FileNotFoundError as error:
        sys.exit(f"{error}; --data takes a folder with train/CLASS/ and val/CLASS/, or drawn")
    return *sets, len(sets[0].classes)


def make(net, classes, dropout):
    options = {"num_classes": classes}
    if net == "googlenet":
        options.update(aux_logits=False, init_weights=True)
    if dropout is not None:
        options["dropout"] = dropout
    return getattr(torchvision.models, net)(**options)


def top1(model, data, batch):
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(data, batch))
    model.train()
    return right / len(data)


def digest(model):
    """A number that depends on the bits of all parameters."""
    return sum(p.detach().view(torch.int32).long().sum().item() for p in model.parameters())


class Saved:
    """A folder from which a run can go on. A file gets its name when it is complete. So it is whole, or not there."""

    def __init__(self, folder, rank):
        self.folder, self.rank = pathlib.Path(folder), rank

    def _files(self, epoch):
        return self.folder / f"epoch-{epoch}.pt", self.folder / f"epoch-{epoch}-rank-{self.rank}.pt"

    def write(self, epoch, module, optimizer, compression):
        self.folder.mkdir(parents=True, exist_ok=True)
        of_all, of_rank = self._files(epoch)
        if compression:
            self._put(compression.state_dict(), of_rank)
        dist.barrier()  # so the shared file names an epoch whose other files are there
        if self.rank == 0:
            self._put({"model": module.state_dict(), "optimizer": optimizer.state_dict()}, of_all)
        dist.barrier()

    @staticmethod
    def _put(state, path):
        torch.save(state, f"{path}.new")
        os.replace(f"{path}.new", path)

    def read(self, epochs, module, optimizer, compression):
        """Returns how many epochs are done."""
        for epoch in range(epochs, 0, -1):
            of_all, of_rank = self._files(epoch)
            if of_all.exists():
                state = torch.load(of_all, map_location="cpu")
                module.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
                if compression:
                    compression.load_state_dict(torch.load(of_rank))
                return epoch
        return 0


def train(args):
    rank, size = dist.get_rank(), dist.get_world_size()
    rate, usual, ternary = SETTINGS[args.net]
    dropout, decay = usual if args.codec == "ddp" else ternary
    torch.manual_seed(args.seed)
    train_set, test_set, classes = load(args)
    module = make(args.net, classes, dropout)
    ddp, compression = DistributedDataParallel(module), None
    optimizer = torch.optim.SGD(ddp.parameters(), rate * args.batch / 256, momentum=MOMENTUM, weight_decay=decay)
    if args.codec != "ddp":
        import gradwire.torch as gw

        compression = gw.attach(ddp, args.codec, optimizer=optimizer, seed=args.seed)
    saved = Saved(args.save, rank) if args.save else None
    done = saved.read(args.epochs, module, optimizer, compression) if saved else 0
    sampler = DistributedSampler(train_set, size, rank, seed=args.seed, drop_last=True)
    loader = DataLoader(train_set, args.batch // size, sampler=sampler, num_workers=args.loaders, drop_last=True)
    n_steps = min(args.steps or len(loader), len(loader))
    if n_steps < 1:
        sys.exit(f"--batch {args.batch} is larger than the training set, of {len(train_set)}, so no step is made")
    for epoch in range(done, args.epochs):
        sampler.set_epoch(epoch)
        torch.manual_seed(args.seed + 1000 * epoch + rank)  # so dropout goes on as if there had been no pause
        begin = time.perf_counter()
        for step, (x, y) in zip(range(n_steps), loader):
            left = 1 - (epoch * n_steps + step) / (args.epochs * n_steps)
            for group in optimizer.param_groups:
                group["lr"] = rate * args.batch / 256 * left**POWER
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(x), y)
            loss.backward()
            optimizer.step()
            if rank == 0 and (step % 20 == 0 or step + 1 == n_steps):
                speed = (step + 1) * args.batch / (time.perf_counter() - begin)
                print(f"epoch {epoch + 1}, step {step + 1} of {n_steps}: loss {loss.item():.4f}, {speed:.1f} images/s")
        digests = [None] * size
        dist.all_gather_object(digests, digest(module))
        if len(set(digests)) > 1:
            sys.exit(f"replicas differ: {digests}")
        if saved:
            saved.write(epoch + 1, module, optimizer, compression)
        if rank == 0:
            smaller = ""
            if compression:
                stats = compression.stats()
                ratios = [(way, stats[f"times_smaller_{way}"]) for way in ("up", "down")]
                smaller = "".join(f", {ratio:.1f} times smaller {way}" for way, ratio in ratios if ratio is not None)
            print(
                f"epoch {epoch + 1}: top-1 {100 * top1(module, test_set, args.batch):.2f} %, replicas identical"
                f"{smaller}, hash {digests[0] & (2**64 - 1):016x}",
                flush=True,
            )
    if compression:
        compression.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=SETTINGS, default="alexnet")
    parser.add_argument("--data", required=True, help="folder with train/ and val/, or drawn")
    parser.add_argument("--codec", default="ternary:residual=on", help="(default ternary:residual=on), auto, or ddp")
    parser.add_argument("--batch", type=int, default=256, help="of all processes together (default 256)")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, help="steps of an epoch (default: the whole training set)")
    parser.add_argument("--pixels", type=int, default=224, help="width and height (default 224)")
    parser.add_argument(
        "--loaders", type=int, default=0, help="processes that read pictures, for each rank (default 0)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", metavar="FOLDER", help="write the run there after every epoch, or go on from there")
    args = parser.parse_args()
    for option in ("epochs", "batch", "steps"):
        if (value := getattr(args, option)) is not None and value < 1:
            parser.error(f"--{option} is {value}, and must be 1 or more")
    try:
        os.environ.update(gradwire.launcher.environment())
    except ValueError as error:
        sys.exit(f"who this rank is cannot be found: {error}")
    dist.init_process_group("gloo")
    # oneDNN 3 counts wrong on a machine that does not say how large its caches are.
    if "MKL-DNN v3" in torch.__config__.show() and not os.path.exists("/sys/devices/system/cpu/cpu0/cache"):
        torch.backends.mkldnn.set_flags(False)
    if args.batch < dist.get_world_size():
        sys.exit(f"--batch {args.batch} is for all processes together, and there are {dist.get_world_size()}")
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
