"""Networks on sequences: a transformer block, an LSTM language model, word vectors; see training.py."""

import numpy as np
from floors import Product
from models import Model, glorot, jax_cross_entropy, torch_cross_entropy

import minigraph as fluid

EPSILON = 1e-5


class Transformer(Model):
    """One block of an encoder: attention and two layers on each position, each added to its input and normalized."""

    def __init__(self, batch=8, length=128, width=256, heads=4, seed=0):
        rng = np.random.RandomState(seed)
        self.width, self.heads, self.scale = width, heads, (width // heads) ** -0.5
        sizes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
        self.params = {}
        for name, size in sizes.items():
            self.params |= {name: glorot(rng, *size), f"{name}.b": np.zeros(size[1], "float32")}
        for name in ("norm0", "norm1"):
            self.params |= {name: np.ones(width, "float32"), f"{name}.b": np.zeros(width, "float32")}
        self.feeds = {name: rng.standard_normal((batch, length, width)).astype("float32") for name in ("x", "y")}
        rows, apart, depth = batch * length, batch * heads, width // heads
        self.products = [
            Product(rows, *sizes["qkv"], gradients=1),
            Product(length, depth, length, apart=apart),
            Product(length, length, depth, apart=apart),
            *(Product(rows, *sizes[name]) for name in ("out", "up", "down")),
        ]

    def minigraph(self, feeds):
        layers, width = fluid.layers, self.width

        def dense(x, size, name, act=None):
            return layers.fc(x, size, num_flatten_dims=2, act=act, param_attr=name, bias_attr=f"{name}.b")

        def heads(x):
            return layers.transpose(layers.reshape(x, [0, 0, self.heads, width // self.heads]), [0, 2, 1, 3])

        def norm(x, name):
            return layers.layer_norm(x, begin_norm_axis=2, epsilon=EPSILON, param_attr=name, bias_attr=f"{name}.b")

        x = feeds["x"]
        q, k, v = (heads(part) for part in layers.split(dense(x, 3 * width, "qkv"), 3, dim=2))
        weights = layers.softmax(layers.matmul(q, k, transpose_y=True, alpha=self.scale))
        found = layers.transpose(layers.matmul(weights, v), [0, 2, 1, 3])
        x = norm(x + dense(layers.reshape(found, [0, 0, width]), width, "out"), "norm0")
        x = norm(x + dense(dense(x, 4 * width, "up", "relu"), width, "down"), "norm1")
        return layers.mean(layers.square_error_cost(x, feeds["y"]))

    def torch(self, p, feeds):
        import torch
        import torch.nn.functional as F

        def heads(x):
            return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

        def dense(x, name):
            return torch.addmm(p[f"{name}.b"], x.flatten(0, 1), p[name]).unflatten(0, x.shape[:2])

        def norm(x, name):
            return F.layer_norm(x, x.shape[2:], p[name], p[f"{name}.b"], EPSILON)

        x = feeds["x"]
        q, k, v = (heads(part) for part in dense(x, "qkv").chunk(3, dim=2))
        found = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = norm(x + dense(found, "out"), "norm0")
        x = norm(x + dense(F.relu(dense(x, "up")), "down"), "norm1")
        return F.mse_loss(x, feeds["y"])

    def jax(self, p, feeds):
        import jax
        import jax.numpy as jnp

        def heads(x):
            return x.reshape(*x.shape[:2], self.heads, -1)

        def dense(x, name):
            return x @ p[name] + p[f"{name}.b"]

        def norm(x, name):
            x = x - x.mean(axis=2, keepdims=True)
            return x * jax.lax.rsqrt((x * x).mean(axis=2, keepdims=True) + EPSILON) * p[name] + p[f"{name}.b"]

        x = feeds["x"]
        q, k, v = (heads(part) for part in jnp.split(dense(x, "qkv"), 3, axis=2))
        x = norm(x + dense(jax.nn.dot_product_attention(q, k, v).reshape(x.shape), "out"), "norm0")
        x = norm(x + dense(jax.nn.relu(dense(x, "up")), "down"), "norm1")
        return jnp.mean((x - feeds["y"]) ** 2)


class LanguageModel(Model):
    """Word vectors, layers of LSTM over the steps, and a layer that scores each word as the next one."""

    def __init__(self, steps=20, batch=20, width=650, words=10_000, depth=2, seed=0):
        rng = np.random.RandomState(seed)
        self.steps, self.width, self.words, self.depth = steps, width, words, depth

        def uniform(*shape):
            return rng.uniform(-0.05, 0.05, shape).astype("float32")

        self.params = {"table": uniform(words, width)}
        for i in range(depth):
            self.params |= {f"w{i}": uniform(width, 4 * width), f"u{i}": uniform(width, 4 * width)}
            self.params[f"b{i}"] = np.zeros(4 * width, "float32")
        self.params |= {"v": uniform(width, words), "c": np.zeros(words, "float32")}
        self.transposed_in_torch = [f"{name}{i}" for name in "wu" for i in range(depth)]
        letters = rng.randint(0, words, (steps + 1, batch)).astype("int64")
        self.feeds = {"ids": letters[:-1], "y": letters[1:].reshape(-1, 1), "h": np.zeros((batch, width), "float32")}
        self.products = [
            *[Product(steps * batch, width, 4 * width)] * depth,
            *[Product(batch, width, 4 * width, steps=steps)] * depth,
            Product(steps * batch, width, words),
        ]

    def minigraph(self, feeds):
        layers, width = fluid.layers, self.width
        x = fluid.embedding(feeds["ids"], [self.words, width], param_attr="table")
        for i in range(self.depth):
            h = c = feeds["h"]
            x = layers.fc(x, 4 * width, num_flatten_dims=2, param_attr=f"w{i}", bias_attr=f"b{i}")
            states = []
            for x_t in layers.unstack(x, num=self.steps):
                gates = x_t + layers.fc(h, 4 * width, param_attr=f"u{i}", bias_attr=False)
                enter, forget, new, leave = layers.split(gates, 4, dim=1)
                c = layers.sigmoid(forget) * c + layers.sigmoid(enter) * layers.tanh(new)
                h = layers.sigmoid(leave) * layers.tanh(c)
                states.append(h)
            x = layers.stack(states)
        scores = layers.fc(layers.reshape(x, [-1, width]), self.words, param_attr="v", bias_attr="c")
        return layers.mean(layers.softmax_with_cross_entropy(scores, feeds["y"]))

    def torch(self, p, feeds):
        import torch

        x = torch.nn.functional.embedding(feeds["ids"], p["table"])
        state = torch.stack([feeds["h"]] * self.depth)
        zeros = torch.zeros(4 * self.width, device=x.device)
        weights = [w for i in range(self.depth) for w in (p[f"w{i}"], p[f"u{i}"], p[f"b{i}"], zeros)]
        x = torch.lstm(x, (state, state), weights, True, self.depth, 0.0, True, False, False)[0]
        return torch_cross_entropy(torch.addmm(p["c"], x.flatten(0, 1), p["v"]), feeds["y"])

    def jax(self, p, feeds):
        import jax
        import jax.numpy as jnp

        x = p["table"][feeds["ids"]]
        for i in range(self.depth):

            def step(state, x_t, u=p[f"u{i}"]):
                h, c = state
                enter, forget, new, leave = jnp.split(x_t + h @ u, 4, axis=1)
                c = jax.nn.sigmoid(forget) * c + jax.nn.sigmoid(enter) * jnp.tanh(new)
                h = jax.nn.sigmoid(leave) * jnp.tanh(c)
                return (h, c), h

            x = jax.lax.scan(step, (feeds["h"], feeds["h"]), x @ p[f"w{i}"] + p[f"b{i}"])[1]
        return jax_cross_entropy(x.reshape(-1, self.width) @ p["v"] + p["c"], feeds["y"])


class WordVectors(Model):
    """Word2vec: skip-grams with negative samples, on two tables of which a batch looks up a few rows."""

    def __init__(self, words=100_000, width=128, batch=256, samples=5, seed=0):
        rng = np.random.RandomState(seed)
        self.words, self.width = words, width
        self.params = {name: rng.uniform(-0.5, 0.5, (words, width)).astype("float32") for name in ("from", "to")}
        shapes = {"word": (batch, 1), "others": (batch, 1 + samples)}
        self.feeds = {name: rng.randint(0, words, shape).astype("int64") for name, shape in shapes.items()}
        self.feeds["y"] = np.repeat([[1] + [0] * samples], batch, axis=0).astype("float32")
        self.tables = {"from": "word", "to": "others"}

    def minigraph(self, feeds):
        layers = fluid.layers

        def rows(name):
            ids = feeds[self.tables[name]]
            return fluid.embedding(ids, [self.words, self.width], is_sparse=True, param_attr=name)

        scores = layers.squeeze(layers.matmul(rows("from"), rows("to"), transpose_y=True), [1])
        return layers.mean(layers.sigmoid_cross_entropy_with_logits(scores, feeds["y"]))

    def numpy(self, p, feeds):
        word, others = p["from"][feeds["word"]], p["to"][feeds["others"]]
        x, y = (word * others).sum(axis=2), feeds["y"]
        loss = (np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))).mean()
        d = (1 / (1 + np.exp(-x)) - y)[..., None] / np.float32(x.size)
        return loss, {"from": (d * others).sum(axis=1, keepdims=True), "to": d * word}

    def torch(self, p, feeds):
        from torch.nn.functional import binary_cross_entropy_with_logits, embedding

        word, others = (embedding(feeds[ids], p[name], sparse=True) for name, ids in self.tables.items())
        return binary_cross_entropy_with_logits((word @ others.mT)[:, 0], feeds["y"])

    def jax(self, p, feeds):
        import optax

        scores = (p["from"] @ p["to"].mT)[:, 0]
        return optax.sigmoid_binary_cross_entropy(scores, feeds["y"]).mean()
