"""The snippets of Paddle 2's guide to gradient clipping, each followed by one update; takes well under a second.

Only the import line differs from the guide, but for two slips that are corrected: a full-width comma in
``nn.Linear(10, 10，...)``, and ``ClipGradByGloabalNorm``. Printed are the norms of the gradients and of what the updates
took, clipped where the guide says so.
"""
# ruff: noqa
# fmt: off

import minigraph as paddle

import numpy as np


def train(title, linear, sdg):
    """One update on a loss with large gradients; prints norms, returns gradients and updates over 0.1 by parameter."""
    loss = (linear(paddle.ones([4, 10])) * paddle.arange(1, 11, dtype="float32")).sum()
    loss.backward()
    before = [(param.grad.numpy(), param.numpy()) for param in linear.parameters()]
    sdg.step()
    found = {}
    print(title)
    for name, param, (grad, old) in zip(("weight", "bias"), linear.parameters(), before):
        update = (old - param.numpy()) / 0.1
        print("  %s: %.3f -> %.3f" % (name, np.linalg.norm(grad), np.linalg.norm(update)))
        found[name] = grad, update
    sdg.clear_grad()
    return found


def main():
    """The guide's three ways, for all parameters and for some; returns what `train` found, by title."""
    found = {}

    def follow(title):
        found[title] = train(title, linear, sdg)

    # 1. Clipping to a range of values. All parameters (the default):

    linear = paddle.nn.Linear(10, 10)
    clip = paddle.nn.ClipGradByValue(min=-1, max=1)
    sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
    follow("by value, all parameters")

    # Some parameters, here the weight only:

    linear = paddle.nn.Linear(10, 10, bias_attr=paddle.ParamAttr(need_clip=False))
    sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
    follow("by value, only the weight")

    # 2. Clipping by the L2 norm. All parameters:

    linear = paddle.nn.Linear(10, 10)
    clip = paddle.nn.ClipGradByNorm(clip_norm=1.0)
    sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
    follow("by norm, all parameters")

    # The bias only:

    linear = paddle.nn.Linear(10, 10, weight_attr=paddle.ParamAttr(need_clip=False))
    sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
    follow("by norm, only the bias")

    # 3. Clipping by the global L2 norm. All parameters:

    linear = paddle.nn.Linear(10, 10)
    clip = paddle.nn.ClipGradByGlobalNorm(clip_norm=1.0)
    sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
    follow("by global norm, all parameters")

    # The bias only:

    linear = paddle.nn.Linear(10, 10, weight_attr=paddle.ParamAttr(need_clip=False))
    sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
    follow("by global norm, only the bias")
    return found


if __name__ == "__main__":
    main()
