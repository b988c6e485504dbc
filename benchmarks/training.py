"""One training step by each engine, for a model that says its loss in the language of each.

A model has ``params`` and ``feeds``, dicts of arrays by name, and the methods

- ``minigraph(feeds)``: layers on the variables that are fed; parameters by their names,
- ``numpy(params, feeds)``: the loss and a dict of gradients, by hand,
- ``torch(params, feeds)`` and ``jax(params, feeds)``: the loss.

Every step begins with NumPy arrays, because that is what a reader of data delivers, and ends with a loss to print.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

import minigraph as fluid


@dataclass(frozen=True)
class Recipe:
    """How to train; without `max_norm` gradients are not clipped."""

    optimizer: str = "sgd"
    rate: float = 0.01
    max_norm: float | None = 1.0


def makers(model, recipe, device="cpu"):
    """For each engine a function that prepares the training on a device and returns its step."""
    return {name: partial(make, model, recipe) for name, make in _by_engine(STEPS, device).items()}


def gradient_makers(model, max_norm, device="cpu"):
    """The same for loss and gradients, each gradient clipped by its norm, without an update."""
    return {name: partial(make, model, max_norm) for name, make in _by_engine(GRADIENTS, device).items()}


def _by_engine(engines, device):
    minigraph, numpy, torch, jax = engines
    if device == "cpu":
        own = {"minigraph": {"jit": False}, "minigraph+jit": {"jit": True}}
        by_hand = {"numpy": numpy}
    else:
        own = {"minigraph": {}, "minigraph-launches": {"cuda_graph": False}}
        by_hand = {}
    place = fluid.CPUPlace() if device == "cpu" else fluid.CUDAPlace(0)
    return {
        **{
            name: partial(minigraph, make_executor=partial(fluid.Executor, place, **words))
            for name, words in own.items()
        },
        **by_hand,
        "torch": partial(torch, compiled=False, device=device),
        "torch.compile": partial(torch, compiled=True, device=device),
        "jax": jax,
    }


# minigraph


def minigraph_session(model, finish, make_executor):
    """A function that runs the model's program; `finish` appends to it and returns what to fetch."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        feeds = {n: fluid.data(n, [None, *a.shape[1:]], str(a.dtype)) for n, a in model.feeds.items()}
        fetches = finish(model.minigraph(feeds))
    exe, scope = make_executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    for name, value in model.params.items():
        scope.find_var(name).get_tensor().set(value.copy(), exe.place)
    return lambda: exe.run(main, feed=model.feeds, fetch_list=fetches, scope=scope)


def minigraph_step(model, recipe, make_executor):
    clip = fluid.clip.GradientClipByGlobalNorm(recipe.max_norm) if recipe.max_norm is not None else None
    optimizer = {
        "sgd": fluid.optimizer.SGD,
        "momentum": partial(fluid.optimizer.Momentum, momentum=0.9),
        "adam": fluid.optimizer.Adam,
    }[recipe.optimizer](learning_rate=recipe.rate, grad_clip=clip)

    def finish(loss):
        optimizer.minimize(loss)
        return [loss]

    return minigraph_session(model, finish, make_executor)


def minigraph_gradients(model, max_norm, make_executor):
    def finish(loss):
        pairs = fluid.clip.GradientClipByNorm(max_norm)(fluid.append_backward(loss))
        clipped = {param.name: grad for param, grad in pairs}
        return [loss, *(clipped[name] for name in model.params)]

    return minigraph_session(model, finish, make_executor)


# NumPy by hand


def numpy_step(model, recipe):
    params = {name: value.copy() for name, value in model.params.items()}
    first = {name: np.zeros_like(value) for name, value in params.items()}
    second = {name: np.zeros_like(value) for name, value in params.items()}
    rate, steps = np.float32(recipe.rate), 0

    def sgd(name, grad):
        params[name] -= rate * grad

    def momentum(name, grad):
        first[name] *= np.float32(0.9)
        first[name] += grad
        params[name] -= rate * first[name]

    def adam(name, grad):
        m, v = first[name], second[name]
        m += np.float32(0.1) * (grad - m)
        v += np.float32(0.001) * (grad * grad - v)
        size = np.float32(recipe.rate * (1 - 0.999**steps) ** 0.5 / (1 - 0.9**steps))
        params[name] -= size * m / (np.sqrt(v) + np.float32(1e-8))

    update = {"sgd": sgd, "momentum": momentum, "adam": adam}[recipe.optimizer]

    def step():
        nonlocal steps
        steps += 1
        loss, grads = model.numpy(params, model.feeds)
        if recipe.max_norm is not None:
            norm = np.sqrt(sum(float(np.vdot(grad, grad)) for grad in grads.values()))
            factor = np.float32(recipe.max_norm / max(norm, recipe.max_norm))
            for grad in grads.values():
                grad *= factor
        for name, grad in grads.items():
            update(name, grad)
        return loss

    return step


def numpy_gradients(model, max_norm):
    limit = np.float32(max_norm)

    def clipped(grad):
        norm = np.sqrt(np.vdot(grad, grad))
        return grad * (limit / norm) if norm > limit else grad

    def step():
        loss, grads = model.numpy(model.params, model.feeds)
        return [loss, *(clipped(grads[name]) for name in model.params)]

    return step


# PyTorch


def torch_step(model, recipe, compiled, device):
    import torch

    params = {name: torch.from_numpy(value.copy()).to(device).requires_grad_() for name, value in model.params.items()}
    weights = list(params.values())
    optimizer = {
        "sgd": torch.optim.SGD,
        "momentum": partial(torch.optim.SGD, momentum=0.9),
        "adam": torch.optim.Adam,
    }[recipe.optimizer](weights, lr=recipe.rate)
    loss_of = model.torch

    def update():
        if recipe.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(weights, recipe.max_norm)
        optimizer.step()

    if compiled:
        loss_of, update = torch.compile(loss_of), torch.compile(update)

    def step():
        optimizer.zero_grad()
        loss = loss_of(params, {name: torch.from_numpy(array).to(device) for name, array in model.feeds.items()})
        loss.backward()
        update()
        return loss.item()

    return step


def torch_gradients(model, max_norm, compiled, device):
    import torch

    params = {name: torch.from_numpy(value.copy()).to(device).requires_grad_() for name, value in model.params.items()}
    weights = list(params.values())
    loss_of = model.torch

    def clip(grads):
        return [grad * (max_norm / grad.norm()).clamp(max=1.0) for grad in grads]

    if compiled:
        loss_of, clip = torch.compile(loss_of), torch.compile(clip)

    def step():
        loss = loss_of(params, {name: torch.from_numpy(array).to(device) for name, array in model.feeds.items()})
        grads = clip(torch.autograd.grad(loss, weights))
        return [loss.item(), *(grad.cpu().numpy() for grad in grads)]

    return step


# JAX


def jax_step(model, recipe):
    import jax
    import optax

    jax.config.update("jax_default_matmul_precision", "highest")  # as the others multiply, on a GPU too

    update = {
        "sgd": optax.sgd,
        "momentum": partial(optax.sgd, momentum=0.9),
        "adam": optax.adam,
    }[recipe.optimizer](recipe.rate)
    if recipe.max_norm is not None:
        update = optax.chain(optax.clip_by_global_norm(recipe.max_norm), update)
    params = {name: jax.numpy.array(value) for name, value in model.params.items()}
    state = update.init(params)

    @partial(jax.jit, donate_argnums=(0, 1))
    def train(params, state, feeds):
        loss, grads = jax.value_and_grad(model.jax)(params, feeds)
        changes, state = update.update(grads, state, params)
        return optax.apply_updates(params, changes), state, loss

    def step():
        nonlocal params, state
        params, state, loss = train(params, state, model.feeds)
        return float(loss)

    return step


def jax_gradients(model, max_norm):
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")

    @jax.jit
    def gradients(params, feeds):
        loss, grads = jax.value_and_grad(model.jax)(params, feeds)
        return loss, {
            n: g * jax.numpy.minimum(1.0, max_norm / jax.numpy.linalg.norm(g.ravel())) for n, g in grads.items()
        }

    params = {name: jax.numpy.array(value) for name, value in model.params.items()}

    def step():
        loss, grads = gradients(params, model.feeds)
        return [float(loss), *(np.asarray(grads[name]) for name in model.params)]

    return step


STEPS = (minigraph_step, numpy_step, torch_step, jax_step)
GRADIENTS = (minigraph_gradients, numpy_gradients, torch_gradients, jax_gradients)
