"""The snippets of Paddle 2's guide to gradient clipping, each followed by one training step that shows what it does.

The import line is changed, and two slips of the guide are corrected: a full-width comma in ``nn.Linear(10, 10，...)``,
and ``ClipGradByGloabalNorm``.
"""

import numpy as np

import minigraph as paddle


def train(title, linear, sdg):
    """One step on a loss with large gradients; prints and returns norms before the clip and of the update."""
    before = [param.numpy() for param in linear.parameters()]
    loss = (linear(paddle.ones([4, 10])) * paddle.arange(1, 11, dtype="float32")).sum()
    loss.backward()
    sdg.step()
    print(title)
    found = {}
    for param, old in zip(linear.parameters(), before, strict=True):
        grad, update = param.grad.numpy(), (old - param.numpy()) / 0.1
        name = "weight" if param is linear.weight else "bias"
        print(f"  {name}: norm {np.linalg.norm(grad):.3f} -> {np.linalg.norm(update):.3f}")
        found[name] = grad, update
    sdg.clear_grad()
    return found


# 1. Clipping to a range of values

linear = paddle.nn.Linear(10, 10)
clip = paddle.nn.ClipGradByValue(min=-1, max=1)
sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
value_all = train("by value, all parameters:", linear, sdg)

linear = paddle.nn.Linear(10, 10, bias_attr=paddle.ParamAttr(need_clip=False))
sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
value_weight = train("by value, only the weight:", linear, sdg)

# 2. Clipping by the L2 norm

linear = paddle.nn.Linear(10, 10)
clip = paddle.nn.ClipGradByNorm(clip_norm=1.0)
sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
norm_all = train("by norm, all parameters:", linear, sdg)

linear = paddle.nn.Linear(10, 10, weight_attr=paddle.ParamAttr(need_clip=False))
sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
norm_bias = train("by norm, only the bias:", linear, sdg)

# 3. Clipping by the global L2 norm

linear = paddle.nn.Linear(10, 10)
clip = paddle.nn.ClipGradByGlobalNorm(clip_norm=1.0)
sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
global_all = train("by global norm, all parameters:", linear, sdg)

linear = paddle.nn.Linear(10, 10, weight_attr=paddle.ParamAttr(need_clip=False))
sdg = paddle.optimizer.SGD(learning_rate=0.1, parameters=linear.parameters(), grad_clip=clip)
global_bias = train("by global norm, only the bias:", linear, sdg)
