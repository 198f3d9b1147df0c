"""Draws small data sets in CIFAR-10's form. Only the standard library is needed."""
import os
import random

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
