"""One training step by each engine, for a model that says its loss in the language of each.

A model is a `models.Model` with the methods

- ``minigraph(feeds)``: layers on the variables that are fed; parameters by their names,
- ``numpy(params, feeds)``: the loss and a dict of gradients, by hand; not every model has it,
- ``torch(params, feeds)`` and ``jax(params, feeds)``: the loss; with JAX the new state too, where there is state.

Several models that share their parameters may take turns in one step. Every step begins with NumPy arrays, because that
is what a reader of data delivers, and ends with the losses to print.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

import minigraph as fluid


@dataclass(frozen=True)
class Recipe:
    """Options of a training; without `max_norm` gradients are not clipped."""

    optimizer: str = "sgd"
    rate: float = 0.01
    max_norm: float | None = 1.0


STATES = {"sgd": 0, "momentum": 1, "adam": 2}
"""Arrays that an optimizer keeps for each parameter."""


def makers(turns, recipe, device="cpu"):
    """For each engine a function that prepares the training on a device and returns its step.

    `turns` are models that share parameters; the step runs them in order, and each updates only its own part.
    """
    engines = _by_engine(STEPS, device)
    if not all(hasattr(model, "numpy") for model in turns):
        engines.pop("numpy", None)
    return {name: partial(make, turns, recipe) for name, make in engines.items()}


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


def minigraph_sessions(turns, finish, make_executor):
    """A function that runs the programs of the models in turns; `finish` appends to one and returns what to fetch."""
    exe, scope = make_executor(), fluid.Scope()
    runs = []
    for model in turns:
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            feeds = {n: fluid.data(n, [None, *a.shape[1:]], str(a.dtype)) for n, a in model.feeds.items()}
            fetches = finish(model, model.minigraph(feeds))
        exe.run(startup, scope=scope)
        runs.append(partial(exe.run, main, feed=model.feeds, fetch_list=fetches, scope=scope))
    for name, value in turns[0].params.items():
        scope.find_var(name).get_tensor().set(value.copy(), exe.place)
    return lambda: [value for run in runs for value in run()]


def minigraph_step(turns, recipe, make_executor):
    clip = fluid.clip.GradientClipByGlobalNorm(recipe.max_norm) if recipe.max_norm is not None else None
    make = {
        "sgd": fluid.optimizer.SGD,
        "momentum": partial(fluid.optimizer.Momentum, momentum=0.9),
        "adam": fluid.optimizer.Adam,
    }[recipe.optimizer]

    def finish(model, loss):
        make(learning_rate=recipe.rate, grad_clip=clip).minimize(loss, parameter_list=model.trained)
        return [loss]

    return minigraph_sessions(turns, finish, make_executor)


def minigraph_gradients(model, max_norm, make_executor):
    def finish(model, loss):
        pairs = fluid.clip.GradientClipByNorm(max_norm)(fluid.append_backward(loss))
        clipped = {param.name: grad for param, grad in pairs}
        return [loss, *(clipped[name] for name in model.params)]

    return minigraph_sessions([model], finish, make_executor)


# NumPy by hand


def numpy_step(turns, recipe):
    params = {name: value.copy() for name, value in turns[0].params.items()}
    runs = [numpy_turn(model, params, recipe) for model in turns]
    return lambda: [run() for run in runs]


def numpy_turn(model, params, recipe):
    first = {name: np.zeros_like(params[name]) for name in model.trained}
    second = {name: np.zeros_like(params[name]) for name in model.trained}
    rate, steps = np.float32(recipe.rate), 0

    def sgd(name, grad):
        if name in model.tables:
            np.subtract.at(params[name], model.feeds[model.tables[name]], rate * grad)
        else:
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


def torch_params(model, device):
    """Its parameters, transposed where torch wants them so, and its state, which has no gradients."""
    import torch

    arrays = {name: value.T if name in model.transposed_in_torch else value for name, value in model.params.items()}
    params = {name: torch.from_numpy(array.copy()).to(device).requires_grad_() for name, array in arrays.items()}
    return params | {name: torch.from_numpy(array.copy()).to(device) for name, array in model.state.items()}


def torch_step(turns, recipe, compiled, device):
    params = torch_params(turns[0], device)
    runs = [torch_turn(model, params, recipe, compiled, device) for model in turns]
    return lambda: [loss.item() for loss in [run() for run in runs]]


def torch_turn(model, params, recipe, compiled, device):
    import torch

    weights = [params[name] for name in model.trained]
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
        loss.backward(inputs=weights)
        update()
        return loss.detach()

    return step


def torch_gradients(model, max_norm, compiled, device):
    import torch

    params = torch_params(model, device)
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


def jax_step(turns, recipe):
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")  # as the others multiply, on a GPU too
    arrays = {name: jax.numpy.array(value) for name, value in (turns[0].params | turns[0].state).items()}
    runs = [jax_turn(model, arrays, recipe) for model in turns]
    return lambda: [float(loss) for loss in [run() for run in runs]]


def jax_turn(model, arrays, recipe):
    """The step of one model, which replaces what it changes among `arrays`; rows of tables are updated by hand."""
    import jax
    import optax

    update = {
        "sgd": optax.sgd,
        "momentum": partial(optax.sgd, momentum=0.9),
        "adam": optax.adam,
    }[recipe.optimizer](recipe.rate)
    if recipe.max_norm is not None:
        update = optax.chain(optax.clip_by_global_norm(recipe.max_norm), update)
    dense = [name for name in model.trained if name not in model.tables]
    others = [name for name in arrays if name not in model.trained]
    slots = update.init({name: arrays[name] for name in dense})

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def train(params, tables, slots, others, feeds):
        def loss_of(trained):
            found = model.jax({**others, **trained}, feeds)
            return found if isinstance(found, tuple) else (found, {})

        rows = {name: table[feeds[model.tables[name]]] for name, table in tables.items()}
        (loss, state), grads = jax.value_and_grad(loss_of, has_aux=True)({**params, **rows})
        changes, slots = update.update({name: grads[name] for name in params}, slots, params)
        tables = {
            name: table.at[feeds[model.tables[name]]].add(-recipe.rate * grads[name]) for name, table in tables.items()
        }
        return {**optax.apply_updates(params, changes), **tables, **state}, slots, loss

    def step():
        nonlocal slots
        given = ({name: arrays[name] for name in names} for names in (dense, model.tables))
        new, slots, loss = train(*given, slots, {name: arrays[name] for name in others}, model.feeds)
        arrays.update(new)
        return loss

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
