"""A step of training of a large table of which each batch looks up a few rows, by each engine with sparse gradients."""

from functools import partial

import numpy as np
from models import glorot, labels, numpy_cross_entropy, torch_cross_entropy

import minigraph as fluid

HEIGHTS = (1_000, 1_000_000)
WIDTH, BATCH, RATE = 64, 256, 0.1
OPTIMIZERS = ("sgd", "adagrad", "lazy adam")


class Lookup:
    """Rows of a table, and a layer that classifies them."""

    def __init__(self, height):
        rng = np.random.RandomState(0)
        self.height, self.weight, self.bias = height, glorot(rng, WIDTH, 10), np.zeros(10, "float32")
        self.feeds = {"ids": rng.randint(0, height, BATCH).astype("int64"), "y": labels(rng, BATCH)}

    def table(self):
        """The start values, made anew for each engine that writes over them."""
        return np.random.RandomState(1).standard_normal((self.height, WIDTH)).astype("float32")


def makers(height, optimizer):
    model = Lookup(height)
    engines = {
        "minigraph": partial(by_minigraph, model, optimizer, is_sparse=True),
        "numpy": partial(by_numpy, model, optimizer),
        "torch": partial(by_torch, model, optimizer),
    }
    if optimizer == "lazy adam":
        del engines["torch"]  # whose bias correction is another one than fluid's
    return engines


def dense_makers(height):
    """For comparison: what the step costs with a dense gradient."""
    return {"minigraph": partial(by_minigraph, Lookup(height), "sgd", is_sparse=False)}


def by_minigraph(model, optimizer, is_sparse):
    main, startup = fluid.Program(), fluid.Program()
    make = {
        "sgd": fluid.optimizer.SGD,
        "adagrad": partial(fluid.optimizer.Adagrad, epsilon=1e-10),
        "lazy adam": partial(fluid.optimizer.Adam, lazy_mode=True),
    }[optimizer]
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, y = fluid.data("ids", [None], "int64"), fluid.data("y", [None, 1], "int64")
        found = fluid.embedding(ids, [model.height, WIDTH], is_sparse=is_sparse, param_attr="table")
        logits = fluid.layers.fc(found, 10, param_attr="w", bias_attr="b")
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, y))
        make(RATE).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace(), jit=False), fluid.Scope()
    exe.run(startup, scope=scope)
    for name, value in {"table": model.table(), "w": model.weight, "b": model.bias}.items():
        scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())
    return lambda: exe.run(main, feed=model.feeds, fetch_list=[loss], scope=scope)


def by_numpy(model, optimizer):
    table, weight, bias = model.table(), model.weight.copy(), model.bias.copy()
    ids, y = model.feeds["ids"], model.feeds["y"]
    state = [[np.zeros_like(p), np.zeros_like(p)] for p in (table, weight, bias)]
    rate, steps = np.float32(RATE), 0

    def update(param, moments, at, grad, ahead=0):
        """Rows of the table have their power of beta one step ahead, as in fluid."""
        if optimizer == "sgd":
            param[at] -= rate * grad
        elif optimizer == "adagrad":
            moments[0][at] += grad * grad
            param[at] -= rate * grad / (np.sqrt(moments[0][at]) + np.float32(1e-10))
        else:
            m = moments[0][at] * np.float32(0.9) + np.float32(0.1) * grad
            v = moments[1][at] * np.float32(0.999) + np.float32(0.001) * grad * grad
            moments[0][at], moments[1][at] = m, v
            size = np.float32(RATE * (1 - 0.999 ** (steps + ahead)) ** 0.5 / (1 - 0.9 ** (steps + ahead)))
            param[at] -= size * m / (np.sqrt(v) + np.float32(1e-8))

    def step():
        nonlocal steps
        steps += 1
        found = table[ids]
        loss, d = numpy_cross_entropy(found @ weight + bias, y)
        rows, at = np.unique(ids, return_inverse=True)
        d_found, gradient = d @ weight.T, np.zeros((len(rows), WIDTH), "float32")
        np.add.at(gradient, at, d_found)
        update(weight, state[1], slice(None), found.T @ d)
        update(bias, state[2], slice(None), d.sum(axis=0))
        update(table, state[0], rows, gradient, ahead=1)
        return loss

    return step


def by_torch(model, optimizer):
    import torch

    table, weight, bias = (
        torch.nn.Parameter(torch.from_numpy(p.copy())) for p in (model.table(), model.weight, model.bias)
    )
    make = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}[optimizer]
    updates = make([table, weight, bias], RATE)

    def step():
        ids, y = torch.from_numpy(model.feeds["ids"]), torch.from_numpy(model.feeds["y"])
        updates.zero_grad()
        found = torch.nn.functional.embedding(ids, table, sparse=True)
        loss = torch_cross_entropy(torch.addmm(bias, found, weight), y)
        loss.backward()
        updates.step()
        return loss.item()

    return step
