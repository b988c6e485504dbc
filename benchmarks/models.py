"""The networks that are trained, each in the language of every engine; see training.py."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from floors import Product

import minigraph as fluid


class Model:
    """Base of the models: parameters, feeds and sizes, as dicts by name; subclasses add the loss for each engine.

    ``params`` are the start values of the parameters and ``feeds`` the arrays of the batch. ``state`` are the start
    values of what the loss updates by the way, such as running statistics. ``tables`` has the parameters of which a
    step looks up and changes a few rows, with the feeds that have the numbers of the rows.
    """

    params: Mapping[str, np.ndarray]
    feeds: Mapping[str, np.ndarray]
    state: Mapping[str, np.ndarray] = MappingProxyType({})
    tables: Mapping[str, str] = MappingProxyType({})
    transposed_in_torch: Sequence[str] = ()
    products: Sequence[Product] = ()

    @property
    def trained(self):
        """Names of the parameters that the step changes."""
        return list(self.params)

    def bytes_touched(self, arrays):
        """Bytes of the feeds, plus `arrays` times the bytes of the parameters and rows that the step changes."""
        looked_up = {name: self.feeds[ids].size * self.params[name].shape[1] for name, ids in self.tables.items()}
        changed = sum(looked_up.get(name, self.params[name].size) for name in self.trained)
        return 4 * changed * arrays + sum(array.nbytes for array in self.feeds.values())


def glorot(rng, *shape):
    fan_in, fan_out = (np.prod(shape[1:]), shape[0]) if len(shape) == 4 else shape
    limit = np.sqrt(6 / (fan_in + fan_out))
    return rng.uniform(-limit, limit, shape).astype("float32")


def labels(rng, batch):
    return rng.randint(0, 10, (batch, 1)).astype("int64")


def numpy_cross_entropy(logits, y):
    """Mean loss and its gradient with respect to the logits."""
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    rows = np.arange(len(p))
    loss = -np.log(p[rows, y[:, 0]]).mean()
    p[rows, y[:, 0]] -= 1
    p /= np.float32(len(p))
    return loss, p


def torch_cross_entropy(logits, y):
    import torch

    return torch.nn.functional.cross_entropy(logits, y[:, 0])


def jax_cross_entropy(logits, y):
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(logits, y[:, 0]).mean()


class Perceptron(Model):
    """Fully connected layers with one activation between them and softmax at the end."""

    def __init__(self, sizes, batch, activation="relu", seed=0):
        rng = np.random.RandomState(seed)
        self.activation, self.depth = activation, len(sizes) - 1
        self.params = {}
        for i, (rows, columns) in enumerate(pairwise(sizes)):
            self.params[f"w{i}"] = glorot(rng, rows, columns)
            self.params[f"b{i}"] = np.zeros(columns, "float32")
        x = rng.uniform(-1, 1, (batch, sizes[0])).astype("float32")
        self.feeds = {"x": x, "y": labels(rng, batch)}
        self.products = [Product(batch, *pair, gradients=2 if i else 1) for i, pair in enumerate(pairwise(sizes))]

    def minigraph(self, feeds):
        h = feeds["x"]
        for i in range(self.depth):
            act = self.activation if i < self.depth - 1 else "softmax"
            size = self.params[f"b{i}"].size
            h = fluid.layers.fc(h, size, act=act, param_attr=f"w{i}", bias_attr=f"b{i}")
        return fluid.layers.mean(fluid.layers.cross_entropy(h, feeds["y"]))

    def numpy(self, p, feeds):
        tanh = self.activation == "tanh"
        inputs, h = [], feeds["x"]
        for i in range(self.depth):
            inputs.append(h)
            h = h @ p[f"w{i}"] + p[f"b{i}"]
            if i < self.depth - 1:
                h = np.tanh(h) if tanh else np.maximum(h, 0)
        loss, d = numpy_cross_entropy(h, feeds["y"])
        grads = {}
        for i in reversed(range(self.depth)):
            h = inputs[i]
            grads[f"w{i}"], grads[f"b{i}"] = h.T @ d, d.sum(axis=0)
            if i:
                d = (d @ p[f"w{i}"].T) * (1 - h * h if tanh else h > 0)
        return loss, grads

    def torch(self, p, feeds):
        import torch

        act, h = getattr(torch, self.activation), feeds["x"]
        for i in range(self.depth):
            h = torch.addmm(p[f"b{i}"], h, p[f"w{i}"])
            h = act(h) if i < self.depth - 1 else h
        return torch_cross_entropy(h, feeds["y"])

    def jax(self, p, feeds):
        import jax

        act, h = getattr(jax.nn, self.activation), feeds["x"]
        for i in range(self.depth):
            h = h @ p[f"w{i}"] + p[f"b{i}"]
            h = act(h) if i < self.depth - 1 else h
        return jax_cross_entropy(h, feeds["y"])


class Recurrent(Model):
    """``h = tanh(x_t @ w + h @ u + b)`` unrolled, then a layer that classifies the last state."""

    def __init__(self, steps=50, inputs=32, hidden=64, batch=32, seed=0):
        rng = np.random.RandomState(seed)
        self.steps, self.hidden = steps, hidden
        self.params = {
            "w": glorot(rng, inputs, hidden),
            "u": glorot(rng, hidden, hidden),
            "b": np.zeros(hidden, "float32"),
            "v": glorot(rng, hidden, 10),
            "c": np.zeros(10, "float32"),
        }
        self.feeds = {f"x{t}": rng.uniform(-1, 1, (batch, inputs)).astype("float32") for t in range(steps)}
        self.feeds |= {"h": np.zeros((batch, hidden), "float32"), "y": labels(rng, batch)}
        self.products = [
            Product(steps * batch, inputs, hidden, gradients=1),
            Product(batch, hidden, hidden, steps=steps),
            Product(batch, hidden, 10),
        ]

    def minigraph(self, feeds):
        h = feeds["h"]
        for t in range(self.steps):
            x = fluid.layers.fc(feeds[f"x{t}"], self.hidden, param_attr="w", bias_attr=False)
            h = fluid.layers.fc(h, self.hidden, param_attr="u", bias_attr="b")
            h = fluid.layers.tanh(fluid.layers.elementwise_add(x, h))
        logits = fluid.layers.fc(h, 10, param_attr="v", bias_attr="c")
        return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, feeds["y"]))

    def numpy(self, p, feeds):
        states = [feeds["h"]]
        for t in range(self.steps):
            states.append(np.tanh(feeds[f"x{t}"] @ p["w"] + states[-1] @ p["u"] + p["b"]))
        loss, d = numpy_cross_entropy(states[-1] @ p["v"] + p["c"], feeds["y"])
        grads = {name: np.zeros_like(value) for name, value in p.items()}
        grads["v"], grads["c"] = states[-1].T @ d, d.sum(axis=0)
        d = d @ p["v"].T
        for t in reversed(range(self.steps)):
            d = d * (1 - states[t + 1] * states[t + 1])
            grads["w"] += feeds[f"x{t}"].T @ d
            grads["u"] += states[t].T @ d
            grads["b"] += d.sum(axis=0)
            d = d @ p["u"].T
        return loss, grads

    def torch(self, p, feeds):
        import torch

        h = feeds["h"]
        for t in range(self.steps):
            h = torch.tanh(feeds[f"x{t}"] @ p["w"] + torch.addmm(p["b"], h, p["u"]))
        return torch_cross_entropy(torch.addmm(p["c"], h, p["v"]), feeds["y"])

    def jax(self, p, feeds):
        import jax.numpy as jnp

        h = feeds["h"]
        for t in range(self.steps):
            h = jnp.tanh(feeds[f"x{t}"] @ p["w"] + h @ p["u"] + p["b"])
        return jax_cross_entropy(h @ p["v"] + p["c"], feeds["y"])


class LeNet(Model):
    """Two convolutions of 5 x 5 with max pooling, three fully connected layers, relu between them."""

    def __init__(self, batch=64, seed=0):
        rng = np.random.RandomState(seed)
        self.params = {
            "k0": glorot(rng, 6, 1, 5, 5), "a0": np.zeros(6, "float32"),
            "k1": glorot(rng, 16, 6, 5, 5), "a1": np.zeros(16, "float32"),
            "w0": glorot(rng, 400, 120), "b0": np.zeros(120, "float32"),
            "w1": glorot(rng, 120, 84), "b1": np.zeros(84, "float32"),
            "w2": glorot(rng, 84, 10), "b2": np.zeros(10, "float32"),
        }  # fmt: skip
        self.feeds = {"x": rng.uniform(-1, 1, (batch, 1, 28, 28)).astype("float32"), "y": labels(rng, batch)}
        self.products = [
            Product(batch * 28 * 28, 25, 6, gradients=1),
            Product(batch * 10 * 10, 150, 16),
            *(Product(batch, *pair) for pair in pairwise((400, 120, 84, 10))),
        ]

    def minigraph(self, feeds):
        layers = fluid.layers
        h = layers.conv2d(feeds["x"], 6, 5, padding=2, param_attr="k0", bias_attr="a0", act="relu")
        h = layers.pool2d(h, 2, "max", 2)
        h = layers.conv2d(h, 16, 5, param_attr="k1", bias_attr="a1", act="relu")
        h = layers.pool2d(h, 2, "max", 2)
        h = layers.fc(h, 120, param_attr="w0", bias_attr="b0", act="relu")
        h = layers.fc(h, 84, param_attr="w1", bias_attr="b1", act="relu")
        h = layers.fc(h, 10, param_attr="w2", bias_attr="b2")
        return layers.mean(layers.softmax_with_cross_entropy(h, feeds["y"]))

    def numpy(self, p, feeds):
        x = np.pad(feeds["x"], ((0, 0), (0, 0), (2, 2), (2, 2)))
        columns0, z0 = numpy_conv(x, p["k0"], p["a0"])
        h0, winner0 = numpy_pool(np.maximum(z0, 0))
        columns1, z1 = numpy_conv(h0, p["k1"], p["a1"])
        h1, winner1 = numpy_pool(np.maximum(z1, 0))
        f0 = h1.reshape(len(x), -1)
        f1 = np.maximum(f0 @ p["w0"] + p["b0"], 0)
        f2 = np.maximum(f1 @ p["w1"] + p["b1"], 0)
        loss, d = numpy_cross_entropy(f2 @ p["w2"] + p["b2"], feeds["y"])
        grads = {"w2": f2.T @ d, "b2": d.sum(axis=0)}
        d = (d @ p["w2"].T) * (f2 > 0)
        grads |= {"w1": f1.T @ d, "b1": d.sum(axis=0)}
        d = (d @ p["w1"].T) * (f1 > 0)
        grads |= {"w0": f0.T @ d, "b0": d.sum(axis=0)}
        d = (d @ p["w0"].T).reshape(h1.shape)
        d = numpy_pool_grad(d, winner1) * (z1 > 0)
        grads["k1"], grads["a1"] = numpy_filter_grad(columns1, d, p["k1"])
        d = numpy_pool_grad(numpy_input_grad(d, p["k1"], h0.shape), winner0) * (z0 > 0)
        grads["k0"], grads["a0"] = numpy_filter_grad(columns0, d, p["k0"])
        return loss, grads

    def torch(self, p, feeds):
        import torch
        import torch.nn.functional as F

        h = F.max_pool2d(F.relu(F.conv2d(feeds["x"], p["k0"], p["a0"], padding=2)), 2)
        h = F.max_pool2d(F.relu(F.conv2d(h, p["k1"], p["a1"])), 2).flatten(1)
        h = F.relu(torch.addmm(p["b0"], h, p["w0"]))
        h = F.relu(torch.addmm(p["b1"], h, p["w1"]))
        return torch_cross_entropy(torch.addmm(p["b2"], h, p["w2"]), feeds["y"])

    def jax(self, p, feeds):
        import jax

        def conv(x, kernel, bias, padding):
            return jax.lax.conv(x, kernel, (1, 1), padding) + bias[:, None, None]

        def pool(x):
            return jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

        relu = jax.nn.relu
        h = pool(relu(conv(feeds["x"], p["k0"], p["a0"], "SAME")))
        h = pool(relu(conv(h, p["k1"], p["a1"], "VALID")))
        h = h.reshape(len(h), -1)
        h = relu(h @ p["w0"] + p["b0"])
        h = relu(h @ p["w1"] + p["b1"])
        return jax_cross_entropy(h @ p["w2"] + p["b2"], feeds["y"])


def numpy_conv(x, kernel, bias):
    """Windows of `x` as the rows of a matrix, and the convolution, which is a product with it."""
    filters, channels, size, _ = kernel.shape
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))
    batch, _, height, width = windows.shape[:4]
    columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(batch * height * width, channels * size * size)
    out = columns @ kernel.reshape(filters, -1).T + bias
    return columns, out.reshape(batch, height, width, filters).transpose(0, 3, 1, 2)


def numpy_filter_grad(columns, d, kernel):
    rows = d.transpose(0, 2, 3, 1).reshape(-1, len(kernel))
    return (rows.T @ columns).reshape(kernel.shape), rows.sum(axis=0)


def numpy_input_grad(d, kernel, shape):
    batch, filters, height, width = d.shape
    size = kernel.shape[2]
    columns = d.transpose(0, 2, 3, 1).reshape(-1, filters) @ kernel.reshape(filters, -1)
    columns = columns.reshape(batch, height, width, shape[1], size, size)
    out = np.zeros(shape, "float32")
    for i in range(size):
        for j in range(size):
            out[:, :, i : i + height, j : j + width] += columns[..., i, j].transpose(0, 3, 1, 2)
    return out


def numpy_pool(x):
    """The maximum of each 2 x 2 window, and which of its elements that is."""
    batch, channels, height, width = x.shape
    windows = x.reshape(batch, channels, height // 2, 2, width // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    windows = windows.reshape(batch, channels, height // 2, width // 2, 4)
    winner = windows.argmax(axis=-1)[..., None]
    return np.take_along_axis(windows, winner, axis=-1)[..., 0], winner


def numpy_pool_grad(d, winner):
    batch, channels, height, width = d.shape
    windows = np.zeros((batch, channels, height, width, 4), "float32")
    np.put_along_axis(windows, winner, d[..., None], axis=-1)
    windows = windows.reshape(batch, channels, height, width, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    return windows.reshape(batch, channels, height * 2, width * 2)
