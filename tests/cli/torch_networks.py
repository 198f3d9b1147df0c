"""The trainer's networks with batch norm in PyTorch. In each function p has the tensors, by the names that `gradwire
export` gives them."""
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
