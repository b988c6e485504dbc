"""Networks on images with batch normalization: written once, on a few functions that each engine has its own of."""

from functools import partial

import numpy as np
from floors import Product
from models import Model, glorot, jax_cross_entropy, torch_cross_entropy

import minigraph as fluid

EPSILON, KEPT = 1e-5, 0.9
"""Term of the variance; share of the old running statistics that a step keeps."""


class ImageNet(Model):
    """A network that classifies images; `network` says it with the functions of `ops`, an engine's or `Shapes`."""

    classes = 1000

    def __init__(self, batch=8, size=64, seed=0):
        rng = np.random.RandomState(seed)
        self.params, self.state, self.products = {}, {}, []
        self.network(Shapes(self, rng), (batch, 3, size, size))
        x = rng.uniform(-1, 1, (batch, 3, size, size)).astype("float32")
        self.feeds = {"x": x, "y": rng.randint(0, self.classes, (batch, 1)).astype("int64")}

    def minigraph(self, feeds):
        scores = self.network(InMinigraph(), feeds["x"])
        return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, feeds["y"]))

    def torch(self, p, feeds):
        return torch_cross_entropy(self.network(InTorch(p), feeds["x"]), feeds["y"])

    def jax(self, p, feeds):
        ops = InJax(p)
        return jax_cross_entropy(self.network(ops, feeds["x"]), feeds["y"]), ops.state


class ResNet18(ImageNet):
    def network(self, ops, x):
        def conv(x, name, filters, size, stride=1):
            return ops.norm(ops.conv(x, name, filters, size, stride), name)

        x = ops.max_pool(ops.relu(conv(x, "conv", 64, 7, 2)))
        channels = 64
        for stage, width in enumerate((64, 128, 256, 512)):
            for block in range(2):
                name, stride = f"s{stage}b{block}", 2 if stage and not block else 1
                h = ops.relu(conv(x, f"{name}c0", width, 3, stride))
                h = conv(h, f"{name}c1", width, 3)
                x = ops.relu(ops.add(conv(x, f"{name}c2", width, 1, stride) if channels != width else x, h))
                channels = width
        return ops.linear(ops.mean_pool(x), "fc", self.classes)


class MobileNet(ImageNet):
    """The first version: convolutions of each channel by itself, and products over the channels."""

    def network(self, ops, x):
        x = ops.relu(ops.norm(ops.conv(x, "conv", 32, 3, 2), "conv"))
        channels = 32
        widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
        for i, (width, stride) in enumerate(zip(widths, (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1), strict=True)):
            x = ops.relu(ops.norm(ops.conv(x, f"deep{i}", channels, 3, stride, channels), f"deep{i}"))
            x = ops.relu(ops.norm(ops.conv(x, f"point{i}", width, 1), f"point{i}"))
            channels = width
        return ops.linear(ops.mean_pool(x), "fc", self.classes)


class Shapes:
    """Only shapes pass through the network, and the model gets its parameters, state and products."""

    def __init__(self, model, rng):
        self.model, self.rng = model, rng

    def conv(self, shape, name, filters, size, stride=1, groups=1):
        batch, channels, height, width = shape
        self.model.params[name] = glorot(self.rng, filters, channels // groups, size, size)
        height, width = -(-height // stride), -(-width // stride)
        if groups == 1:
            self.model.products.append(
                Product(batch * height * width, channels * size * size, filters, gradients=1 if name == "conv" else 2)
            )
        return batch, filters, height, width

    def norm(self, shape, name):
        for what, value in {"scale": 1, "shift": 0}.items():
            self.model.params[f"{name}.{what}"] = np.full(shape[1], value, "float32")
        for what, value in {"mean": 0, "variance": 1}.items():
            self.model.state[f"{name}.{what}"] = np.full(shape[1], value, "float32")
        return shape

    def relu(self, shape):
        return shape

    def add(self, shape, other):
        assert shape == other
        return shape

    def max_pool(self, shape):
        return *shape[:2], shape[2] // 2, shape[3] // 2

    def mean_pool(self, shape):
        return shape[:2]

    def linear(self, shape, name, size):
        self.model.params |= {name: glorot(self.rng, shape[1], size), f"{name}.b": np.zeros(size, "float32")}
        self.model.products.append(Product(*shape, size))
        return shape[0], size


class InMinigraph:
    relu = staticmethod(fluid.layers.relu)
    add = staticmethod(fluid.layers.elementwise_add)
    max_pool = staticmethod(partial(fluid.layers.pool2d, pool_size=3, pool_stride=2, pool_padding=1))
    mean_pool = staticmethod(partial(fluid.layers.pool2d, pool_type="avg", global_pooling=True))

    def conv(self, x, name, filters, size, stride=1, groups=1):
        return fluid.layers.conv2d(
            x, filters, size, stride, size // 2, groups=groups, param_attr=name, bias_attr=False, use_cudnn=groups == 1
        )

    def norm(self, x, name):
        names = {"param_attr": "scale", "bias_attr": "shift", "moving_mean_name": "mean"}
        words = {key: f"{name}.{what}" for key, what in {**names, "moving_variance_name": "variance"}.items()}
        return fluid.layers.batch_norm(x, momentum=KEPT, epsilon=EPSILON, **words)

    def linear(self, x, name, size):
        return fluid.layers.fc(x, size, param_attr=name, bias_attr=f"{name}.b")


class InTorch:
    def __init__(self, params):
        import torch

        self.params, self.torch, self.functions = params, torch, torch.nn.functional
        self.relu, self.add = torch.relu, torch.add

    def conv(self, x, name, filters, size, stride=1, groups=1):
        return self.functions.conv2d(x, self.params[name], None, stride, size // 2, groups=groups)

    def norm(self, x, name):
        mean, variance, scale, shift = (self.params[f"{name}.{w}"] for w in ("mean", "variance", "scale", "shift"))
        return self.functions.batch_norm(x, mean, variance, scale, shift, True, 1 - KEPT, EPSILON)

    def max_pool(self, x):
        return self.functions.max_pool2d(x, 3, 2, 1)

    def mean_pool(self, x):
        return x.mean(dim=(2, 3))

    def linear(self, x, name, size):
        return self.torch.addmm(self.params[f"{name}.b"], x, self.params[name])


class InJax:
    """`state` collects the running statistics after the step."""

    def __init__(self, params):
        import jax

        self.params, self.state, self.lax, self.relu, self.add = params, {}, jax.lax, jax.nn.relu, jax.numpy.add

    def conv(self, x, name, filters, size, stride=1, groups=1):
        padding = [(size // 2, size // 2)] * 2
        words = {"dimension_numbers": ("NCHW", "OIHW", "NCHW"), "feature_group_count": groups}
        return self.lax.conv_general_dilated(x, self.params[name], (stride, stride), padding, **words)

    def norm(self, x, name):
        mean = x.mean(axis=(0, 2, 3))
        variance = (x * x).mean(axis=(0, 2, 3)) - mean * mean
        for what, new in {f"{name}.mean": mean, f"{name}.variance": variance}.items():
            self.state[what] = KEPT * self.params[what] + (1 - KEPT) * self.lax.stop_gradient(new)
        factor = self.params[f"{name}.scale"] * self.lax.rsqrt(variance + EPSILON)
        return x * factor[:, None, None] + (self.params[f"{name}.shift"] - mean * factor)[:, None, None]

    def max_pool(self, x):
        windows = {"window_dimensions": (1, 1, 3, 3), "window_strides": (1, 1, 2, 2)}
        return self.lax.reduce_window(x, -np.inf, self.lax.max, padding=[(0, 0), (0, 0), (1, 1), (1, 1)], **windows)

    def mean_pool(self, x):
        return x.mean(axis=(2, 3))

    def linear(self, x, name, size):
        return x @ self.params[name] + self.params[f"{name}.b"]
