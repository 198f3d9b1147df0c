"""Draws small data sets in the forms of CIFAR-10 and MNIST. Only the standard library is needed."""
import os
import random
import struct

SIDE = 32


def write_cifar(folder, per_file=4, n_test=12, seed=1):
    """Writes six small files in CIFAR-10's form. Each class has a colour, so there is something to learn."""
    os.makedirs(folder, exist_ok=True)
    r = random.Random(seed)
    for name, n in [*((f"data_batch_{i}.bin", per_file) for i in range(1, 6)), ("test_batch.bin", n_test)]:
        with open(os.path.join(folder, name), "wb") as file:
            for _ in range(n):
                label = r.randrange(10)
                middle = [40 + 17 * (label * k % 10) for k in (1, 3, 7)]
                pixels = (min(255, max(0, int(r.gauss(m, 40)))) for m in middle for _ in range(SIDE * SIDE))
                file.write(bytes([label, *pixels]))


def write_mnist(folder, seed):
    """Writes 600 pictures of noise to train with and 100 to test with, in MNIST's form. The tool reads them in no time.
    To draw its own digits takes it longer than a short training."""
    draw = random.Random(seed)
    os.makedirs(folder, exist_ok=True)
    for name, n in [("train", 600), ("t10k", 100)]:
        with open(os.path.join(folder, name + "-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, n, 28, 28) + draw.randbytes(n * 784))
        with open(os.path.join(folder, name + "-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">II", 0x801, n) + bytes(draw.randrange(10) for _ in range(n)))
