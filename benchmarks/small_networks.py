"""Steps of small networks: a generative adversarial network, whose halves take turns, and a policy gradient."""

from itertools import pairwise

import numpy as np
from floors import Product
from models import Model, glorot, jax_cross_entropy, numpy_cross_entropy, torch_cross_entropy

import minigraph as fluid

SIZES = {"maker": (100, 256, 784), "judge": (784, 256, 1), "policy": (32, 32, 32, 32)}
ACTS = {"maker": ("relu", "tanh"), "judge": ("relu", None), "policy": ("tanh", "tanh", None)}
"""Width and activation of each layer."""


def params_of(rng, name):
    params = {}
    for i, pair in enumerate(pairwise(SIZES[name])):
        params |= {f"{name}.w{i}": glorot(rng, *pair), f"{name}.b{i}": np.zeros(pair[1], "float32")}
    return params


def products_of(name, batch):
    return [Product(batch, *pair, gradients=2 if i else 1) for i, pair in enumerate(pairwise(SIZES[name]))]


def minigraph_dense(h, name):
    for i, (size, act) in enumerate(zip(SIZES[name][1:], ACTS[name], strict=True)):
        h = fluid.layers.fc(h, size, act=act, param_attr=f"{name}.w{i}", bias_attr=f"{name}.b{i}")
    return h


def numpy_dense(p, h, name):
    """The values of the last layer, and a function from their gradient to those of the input and the parameters."""
    values = [h]
    for i, act in enumerate(ACTS[name]):
        h = h @ p[f"{name}.w{i}"] + p[f"{name}.b{i}"]
        h = np.tanh(h) if act == "tanh" else np.maximum(h, 0) if act == "relu" else h
        values.append(h)

    def backward(d):
        grads = {}
        for i, act in reversed(list(enumerate(ACTS[name]))):
            h, out = values[i : i + 2]
            d = d * (1 - out * out) if act == "tanh" else d * (out > 0) if act == "relu" else d
            grads |= {f"{name}.w{i}": h.T @ d, f"{name}.b{i}": d.sum(axis=0)}
            d = d @ p[f"{name}.w{i}"].T
        return d, grads

    return h, backward


def torch_dense(p, h, name):
    import torch

    for i, act in enumerate(ACTS[name]):
        h = torch.addmm(p[f"{name}.b{i}"], h, p[f"{name}.w{i}"])
        h = getattr(torch, act)(h) if act else h
    return h


def jax_dense(p, h, name):
    import jax

    for i, act in enumerate(ACTS[name]):
        h = h @ p[f"{name}.w{i}"] + p[f"{name}.b{i}"]
        h = getattr(jax.nn, act)(h) if act else h
    return h


def adversaries(batch=64, seed=0):
    """The turn of the discriminator and the turn of the generator."""
    rng = np.random.RandomState(seed)
    params = params_of(rng, "maker") | params_of(rng, "judge")
    feeds = {"noise": rng.standard_normal((batch, 100)).astype("float32")}
    real = rng.uniform(-1, 1, (batch, 784)).astype("float32")
    return [Discriminator(params, {"real": real, **feeds}), Generator(params, feeds)]


class Discriminator(Model):
    """Loss of the judge, ``softplus(-judge(real)) + softplus(judge(made))``: real images score high, made ones low."""

    def __init__(self, params, feeds):
        self.params, self.feeds, batch = params, feeds, len(feeds["noise"])
        self.products = [Product(batch, *pair, gradients=0) for pair in pairwise(SIZES["maker"])]
        self.products += products_of("judge", 2 * batch)

    @property
    def trained(self):
        return [name for name in self.params if name.startswith("judge")]

    def minigraph(self, feeds):
        layers = fluid.layers
        made = minigraph_dense(feeds["noise"], "maker")
        made.stop_gradient = True
        real, made = (minigraph_dense(x, "judge") for x in (feeds["real"], made))
        return layers.mean(layers.softplus(-real) + layers.softplus(made))

    def numpy(self, p, feeds):
        made = numpy_dense(p, feeds["noise"], "maker")[0]
        scores, backward = numpy_dense(p, np.concatenate([feeds["real"], made]), "judge")
        batch = len(made)
        signs = np.repeat(np.float32([[-1], [1]]), batch, axis=0)
        loss = np.logaddexp(0, signs * scores).sum() / batch
        return loss, backward(signs / (1 + np.exp(-signs * scores)) / np.float32(batch))[1]

    def torch(self, p, feeds):
        import torch
        from torch.nn.functional import softplus

        with torch.no_grad():
            made = torch_dense(p, feeds["noise"], "maker")
        real, made = (torch_dense(p, x, "judge") for x in (feeds["real"], made))
        return (softplus(-real) + softplus(made)).mean()

    def jax(self, p, feeds):
        from jax.nn import softplus

        made = jax_dense(p, feeds["noise"], "maker")
        real, made = (jax_dense(p, x, "judge") for x in (feeds["real"], made))
        return (softplus(-real) + softplus(made)).mean()


class Generator(Model):
    """``softplus(-judge(made))``: make images that are taken for real ones."""

    def __init__(self, params, feeds):
        self.params, self.feeds, batch = params, feeds, len(feeds["noise"])
        self.products = products_of("maker", batch)
        self.products += [Product(batch, *pair, gradients=1) for pair in pairwise(SIZES["judge"])]

    @property
    def trained(self):
        return [name for name in self.params if name.startswith("maker")]

    def minigraph(self, feeds):
        score = minigraph_dense(minigraph_dense(feeds["noise"], "maker"), "judge")
        return fluid.layers.mean(fluid.layers.softplus(-score))

    def numpy(self, p, feeds):
        made, backward = numpy_dense(p, feeds["noise"], "maker")
        score, backward_judge = numpy_dense(p, made, "judge")
        d = backward_judge(-1 / (1 + np.exp(score)) / np.float32(len(score)))[0]
        return np.logaddexp(0, -score).mean(), backward(d)[1]

    def torch(self, p, feeds):
        from torch.nn.functional import softplus

        return softplus(-torch_dense(p, torch_dense(p, feeds["noise"], "maker"), "judge")).mean()

    def jax(self, p, feeds):
        from jax.nn import softplus

        return softplus(-jax_dense(p, jax_dense(p, feeds["noise"], "maker"), "judge")).mean()


class Policy(Model):
    """``-return * log(probability of the action)`` of a network that sees one observation."""

    def __init__(self, seed=0):
        rng = np.random.RandomState(seed)
        self.params = params_of(rng, "policy")
        x = rng.standard_normal((1, SIZES["policy"][0])).astype("float32")
        self.feeds = {"x": x, "action": np.int64([[3]]), "gain": np.float32([[2]])}
        self.products = products_of("policy", 1)

    def minigraph(self, feeds):
        scores = minigraph_dense(feeds["x"], "policy")
        return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, feeds["action"]) * feeds["gain"])

    def numpy(self, p, feeds):
        scores, backward = numpy_dense(p, feeds["x"], "policy")
        loss, d = numpy_cross_entropy(scores, feeds["action"])
        return loss * feeds["gain"][0, 0], backward(d * feeds["gain"])[1]

    def torch(self, p, feeds):
        return torch_cross_entropy(torch_dense(p, feeds["x"], "policy"), feeds["action"]) * feeds["gain"][0, 0]

    def jax(self, p, feeds):
        return jax_cross_entropy(jax_dense(p, feeds["x"], "policy"), feeds["action"]) * feeds["gain"][0, 0]
