"""Update rules over vectors, written over in place; each number goes through the roundings of the shared kernels.

Learning rates and powers of beta come as vectors of one element. `shrink` is what a clip multiplies the gradient with,
or 1. What is constant comes twice where the kernels round it twice: `keep` and ``fresh = 1 - keep``.

State that fades away, such as a mean of gradients that are all 0 now, becomes 0 below `tiny` and so does not stay among
the subnormal numbers, with which processors take several times as long.
"""

import numpy as np


def sgd(param, grad, rate, shrink):
    step = rate[0]
    for i in range(param.size):
        param[i] = param[i] - grad[i] * shrink * step


def momentum(param, grad, velocity, rate, shrink, mu, tiny):
    step, zero = rate[0], param.dtype.type(0)
    for i in range(param.size):
        v = velocity[i] * mu + grad[i] * shrink
        v = v if not abs(v) < tiny else zero
        velocity[i] = v
        param[i] = param[i] - v * step


def nesterov(param, grad, velocity, rate, shrink, mu, tiny):
    step, zero = rate[0], param.dtype.type(0)
    for i in range(param.size):
        g = grad[i] * shrink
        v = velocity[i] * mu + g
        v = v if not abs(v) < tiny else zero
        velocity[i] = v
        param[i] = param[i] - (v * mu + g) * step


def adam(
    param, grad, moment1, moment2, rate, beta1_pow, beta2_pow,
    shrink, keep1, fresh1, keep2, fresh2, epsilon, tiny,
):  # fmt: skip
    one, zero = param.dtype.type(1), param.dtype.type(0)
    step = rate[0] * np.sqrt(one - beta2_pow[0]) / (one - beta1_pow[0])
    for i in range(param.size):
        g = grad[i] * shrink
        m = moment1[i] * keep1 + g * fresh1
        v = moment2[i] * keep2 + g * g * fresh2
        m = m if not abs(m) < tiny else zero
        v = v if not abs(v) < tiny else zero
        moment1[i] = m
        moment2[i] = v
        param[i] = param[i] - m / (np.sqrt(v) + epsilon) * step


def adamw(
    param, grad, moment1, moment2, rate, beta1_pow, beta2_pow,
    shrink, keep1, fresh1, keep2, fresh2, epsilon, coeff, ratio, tiny,
):  # fmt: skip
    one, zero = param.dtype.type(1), param.dtype.type(0)
    step, root = rate[0] * ratio, np.sqrt(one - beta2_pow[0])
    small, shrunk = epsilon * root, one - step * coeff
    step = step * root / (one - beta1_pow[0])
    for i in range(param.size):
        g = grad[i] * shrink
        m = moment1[i] * keep1 + g * fresh1
        v = moment2[i] * keep2 + g * g * fresh2
        m = m if not abs(m) < tiny else zero
        v = v if not abs(v) < tiny else zero
        moment1[i] = m
        moment2[i] = v
        param[i] = param[i] * shrunk - m / (np.sqrt(v) + small) * step


def adamax(param, grad, moment, inf_norm, rate, beta1_pow, shrink, keep1, fresh1, keep2, epsilon):
    step = rate[0] / (param.dtype.type(1) - beta1_pow[0])
    for i in range(param.size):
        g = grad[i] * shrink
        m = moment[i] * keep1 + g * fresh1
        size, old = abs(g), inf_norm[i] * keep2 + epsilon
        # As NumPy's maximum, which keeps NaN.
        largest = size if size >= old or size != size else old
        moment[i] = m
        inf_norm[i] = largest
        param[i] = param[i] - m / largest * step


def adagrad(param, grad, moment, rate, shrink, epsilon):
    step = rate[0]
    for i in range(param.size):
        g = grad[i] * shrink
        v = moment[i] + g * g
        moment[i] = v
        param[i] = param[i] - g / (np.sqrt(v) + epsilon) * step


def decayed_adagrad(param, grad, moment, rate, shrink, keep, fresh, epsilon):
    step = rate[0]
    for i in range(param.size):
        g = grad[i] * shrink
        v = moment[i] * keep + g * g * fresh
        moment[i] = v
        param[i] = param[i] - g / (np.sqrt(v) + epsilon) * step


def adadelta(param, grad, squared_grad, squared_update, shrink, keep, fresh, epsilon):
    for i in range(param.size):
        g = grad[i] * shrink
        v = squared_grad[i] * keep + g * g * fresh
        below = v + epsilon
        step = np.sqrt((squared_update[i] + epsilon) / below) * g
        u = squared_update[i] * keep + step * step * fresh
        squared_grad[i] = v
        squared_update[i] = u
        param[i] = param[i] - np.sqrt((u + epsilon) / below) * g


def rmsprop(param, grad, mean_square, moment, rate, shrink, keep, fresh, epsilon, momentum, tiny):
    step, zero = rate[0], param.dtype.type(0)
    for i in range(param.size):
        g = grad[i] * shrink
        v = mean_square[i] * keep + g * g * fresh
        m = moment[i] * momentum + g / np.sqrt(v + epsilon) * step
        v = v if not abs(v) < tiny else zero
        m = m if not abs(m) < tiny else zero
        mean_square[i] = v
        moment[i] = m
        param[i] = param[i] - m


def centered_rmsprop(param, grad, mean_square, mean_grad, moment, rate, shrink, keep, fresh, epsilon, momentum, tiny):
    step, zero = rate[0], param.dtype.type(0)
    for i in range(param.size):
        g = grad[i] * shrink
        v = mean_square[i] * keep + g * g * fresh
        mean = mean_grad[i] * keep + g * fresh
        spread = v - mean * mean
        # A variance, which rounding may have made negative.
        spread = spread if spread >= zero or spread != spread else zero
        m = moment[i] * momentum + g / np.sqrt(spread + epsilon) * step
        v = v if not abs(v) < tiny else zero
        mean = mean if not abs(mean) < tiny else zero
        m = m if not abs(m) < tiny else zero
        mean_square[i] = v
        mean_grad[i] = mean
        moment[i] = m
        param[i] = param[i] - m


def lamb_step(param, grad, moment1, moment2, step, shrink, keep1, fresh1, keep2, fresh2, epsilon, decay, tiny):
    zero = param.dtype.type(0)
    for i in range(param.size):
        g = grad[i] * shrink
        m = moment1[i] * keep1 + g * fresh1
        v = moment2[i] * keep2 + g * g * fresh2
        m = m if not abs(m) < tiny else zero
        v = v if not abs(v) < tiny else zero
        moment1[i] = m
        moment2[i] = v
        step[i] = m / (np.sqrt(v) + epsilon) + param[i] * decay
