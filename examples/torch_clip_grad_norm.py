"""The function on a page about PyTorch's ``clip_grad_norm_``, run on minigraph's tensors; takes well under a second.

The page shows how an early PyTorch wrote it. It is copied here as it stands there; only import lines differ. Beside it
runs `minigraph.compat.torch`, which does what PyTorch does today: both find the same norms and leave the same gradients.
"""
# ruff: noqa
# fmt: off

import numpy as np

import minigraph as fluid
import minigraph.compat.torch as torch
from minigraph.compat.torch import inf


def clip_grad_norm_(parameters, max_norm, norm_type=2):
    r"""Clips gradient norm of an iterable of parameters.
    The norm is computed over all gradients together, as if they were
    concatenated into a single vector. Gradients are modified in-place.
    Arguments:
        parameters (Iterable[Tensor] or Tensor): an iterable of Tensors or a
            single Tensor that will have gradients normalized
        max_norm (float or int): max norm of the gradients
        norm_type (float or int): type of the used p-norm. Can be ``'inf'`` for
            infinity norm.
    Returns:
        Total norm of the parameters (viewed as a single vector).
    """
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    #第一步
    parameters = list(filter(lambda p: p.grad is not None, parameters))
    max_norm = float(max_norm)
    norm_type = float(norm_type)
    if norm_type == inf:
        total_norm = max(p.grad.data.abs().max() for p in parameters)
    else:
        total_norm = 0
        for p in parameters:
            #第二步
            param_norm = p.grad.data.norm(norm_type)
            #第三步
            total_norm += param_norm.item() ** norm_type
        total_norm = total_norm ** (1. / norm_type)
    clip_coef = max_norm / (total_norm + 1e-6)
    if clip_coef < 1:
        for p in parameters:
            p.grad.data.mul_(clip_coef)
    return total_norm


def make_model():
    """Two layers, with the same weights in every run."""
    rng = np.random.default_rng(3)
    model = fluid.dygraph.Sequential(fluid.dygraph.Linear(4, 8, act="tanh"), fluid.dygraph.Linear(8, 1))
    for param in model.parameters():
        param.set_value(rng.normal(scale=0.8, size=param.shape).astype("float32"))
    return model


def backward(model):
    """The loss of a fixed batch, after its gradients have been found."""
    rng = np.random.default_rng(4)
    x = fluid.dygraph.to_variable(rng.normal(size=(16, 4)).astype("float32"))
    y = fluid.dygraph.to_variable(rng.normal(scale=5.0, size=(16, 1)).astype("float32"))
    model.clear_gradients()
    loss = fluid.layers.mean(fluid.layers.square_error_cost(model(x), y))
    loss.backward()
    return loss


def compare(norm_type):
    """The total norm, and the norm after clipping to 1: of the page's function, and of minigraph's."""
    found = []
    for clip in (clip_grad_norm_, torch.nn.utils.clip_grad_norm_):
        model = make_model()
        backward(model)
        total_norm = clip(model.parameters(), 1.0, norm_type)
        clipped = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()], norm_type)
        found.append((float(total_norm), float(clipped)))
    return found


def train(clip, steps=40):
    """Losses and total norms of a training that clips to 1."""
    model = make_model()
    optimizer = fluid.optimizer.SGD(learning_rate=0.2, parameter_list=model.parameters())
    for _ in range(steps):
        loss = backward(model)
        total_norm = clip(model.parameters(), 1.0)
        optimizer.minimize(loss)
        yield loss.item(), float(total_norm)


def main():
    """Print and return what both functions do for several norms, and a training with the page's function."""
    with fluid.dygraph.guard():
        print("norm type   total norm: page, minigraph   after clipping to 1: page, minigraph")
        norms = {norm_type: compare(norm_type) for norm_type in (0.5, 1, 2, 3, inf)}
        for norm_type, (page, ours) in norms.items():
            print(f"{norm_type:9} {page[0]:18.5f} {ours[0]:10.5f} {page[1]:23.5f} {ours[1]:10.5f}")

        print("\ntraining with clip_grad_norm_(parameters, 1.0)")
        history = list(train(clip_grad_norm_))
        for step in (1, 2, 5, 10, 20, 40):
            loss, total_norm = history[step - 1]
            print(f"step {step:2}: loss {loss:8.4f}, norm of the gradients {total_norm:8.4f}")
    return norms, history


if __name__ == "__main__":
    main()
