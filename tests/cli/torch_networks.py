"""The trainer's CIFAR-10 networks in PyTorch. In each function p has the tensors, by the names that `gradwire export`
gives them."""
import torch.nn.functional as f


def normed(p, suffix, x, training, stride=1):
    """A convolution, and batch norm behind it."""
    x = f.conv2d(x, p[f"conv{suffix}.weight"], None, stride, 1)
    name, kept = f"norm{suffix}", (None, None)
    if not training:
        kept = (p[f"{name}.running_mean"].detach(), p[f"{name}.running_var"].detach())
    return f.batch_norm(x, *kept, p[f"{name}.weight"], p[f"{name}.bias"], training=training)


def resnet20(p, x, training):
    x = f.relu(normed(p, "1", x, training))
    for stage in (2, 3, 4):
        for block in (1, 2, 3):
            narrows = stage > 2 and block == 1
            y = f.relu(normed(p, f"{stage}.{block}.1", x, training, 2 if narrows else 1))
            y = normed(p, f"{stage}.{block}.2", y, training)
            if narrows:
                x = x[:, :, ::2, ::2]
                x = f.pad(x, (0, 0, 0, 0, 0, y.shape[1] - x.shape[1]))
            x = f.relu(x + y)
    x = f.avg_pool2d(x, 8).flatten(1)
    return f.linear(x, p["fc.weight"], p["fc.bias"])


def vgg16(p, x, training):
    for stage, n in enumerate((2, 2, 3, 3, 3), 1):
        for i in range(1, n + 1):
            x = f.relu(normed(p, f"{stage}.{i}", x, training))
        x = f.max_pool2d(x, 2)
    return f.linear(x.flatten(1), p["fc.weight"], p["fc.bias"])


def cifarnet(p, x, _):
    def pool(x):
        return f.max_pool2d(x, 3, 2, ceil_mode=True)

    def lrn(x):
        return f.local_response_norm(x, 9, 0.001, 0.75, 1)

    x = lrn(pool(f.relu(f.conv2d(x, p["conv1.weight"], p["conv1.bias"], 1, 2))))
    x = pool(lrn(f.relu(f.conv2d(x, p["conv2.weight"], p["conv2.bias"], 1, 2)))).flatten(1)
    x = f.relu(f.linear(x, p["fc3.weight"], p["fc3.bias"]))
    x = f.relu(f.linear(x, p["fc4.weight"], p["fc4.bias"]))
    return f.linear(x, p["softmax.weight"], p["softmax.bias"])


def alexnet(p, x, _):
    """alexnet-small, without dropout."""
    for i, pad in enumerate((2, 2, 1, 1, 1), 1):
        x = f.relu(f.conv2d(x, p[f"conv{i}.weight"], p[f"conv{i}.bias"], 1, pad))
        if i in (1, 2, 5):
            x = f.max_pool2d(x, 3, 2, ceil_mode=True)
    x = x.flatten(1)
    for i in (6, 7):
        x = f.relu(f.linear(x, p[f"fc{i}.weight"], p[f"fc{i}.bias"]))
    return f.linear(x, p["fc8.weight"], p["fc8.bias"])
