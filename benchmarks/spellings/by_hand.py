"""Updates and clips that are written out in several spellings."""

import minigraph as fluid
from minigraph import layers

from .formulas import LOSS
from .pieces import _updated
from .tasks import Apart, Task, differs_by


def _number(value):
    return layers.fill_constant([1], "float32", value)


def _state(name, shape, value=0.0):
    return layers.create_global_var(list(shape), value, "float32", persistable=True, name=name)


# Gradient descent


def _each(update):
    def updates(loss):
        for p, g in fluid.backward.append_backward(loss):
            update(p, g)

    return _updated(updates)


DESCENT = Task(
    LOSS.feed,
    {
        "operators": _each(lambda p, g: layers.assign(p - 0.1 * g, p)),
        "scale": _each(lambda p, g: layers.assign(layers.elementwise_sub(p, layers.scale(g, 0.1)), p)),
        "added": _each(lambda p, g: layers.assign(layers.elementwise_add(p, g * -0.1), p)),
        "sums": _each(lambda p, g: layers.sums([p, layers.scale(g, -0.1)], out=p)),
        "optimizer": _updated(lambda loss: fluid.optimizer.SGD(0.1).minimize(loss)),
    },
    apart={"optimizer": Apart("has its rate in a variable", differs_by([], ["fill_constant"]))},
    optimizer=None,
)

# Momentum


def _with_velocity(update):
    return _each(lambda p, g: update(p, g, _state(f"{p.name}_velocity", p.shape)))


def _from_state(p, g, v):
    layers.assign(v * 0.9 + g, v)
    layers.assign(p - 0.1 * v, p)


def _from_value(p, g, v):
    new = g + 0.9 * v
    layers.assign(p - 0.1 * new, p)
    layers.assign(new, v)


def _by_layers(p, g, v):
    new = layers.elementwise_add(layers.scale(v, 0.9), g)
    layers.assign(new, v)
    layers.assign(layers.elementwise_sub(p, layers.scale(new, 0.1)), p)


def _by_sums(p, g, v):
    layers.sums([layers.scale(v, 0.9), g], out=v)
    layers.sums([p, layers.scale(v, -0.1)], out=p)


MOMENTUM = Task(
    LOSS.feed,
    {
        "state": _with_velocity(_from_state),
        "value": _with_velocity(_from_value),
        "layers": _with_velocity(_by_layers),
        "sums": _with_velocity(_by_sums),
        "optimizer": _updated(lambda loss: fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)),
    },
    apart={"optimizer": Apart("has its rate in a variable", differs_by([], ["fill_constant"]))},
    optimizer=None,
)

# Adam


def _with_moments(update):
    return _each(lambda p, g: update(p, g, _state(f"{p.name}_m", p.shape), _state(f"{p.name}_v", p.shape)))


def _powers(p=None):
    return [_state(f"{p.name if p else ''}_{beta}", [1], beta) for beta in (0.9, 0.999)]


def _faded(powers):
    for power, beta in zip(powers, (0.9, 0.999), strict=True):
        layers.assign(power * beta, power)


def _by_rate(p, g, m, v, powers):
    rate = 0.01 * layers.sqrt(1 - powers[1]) / (1 - powers[0])
    layers.assign(m * 0.9 + g * 0.1, m)
    layers.assign(v * 0.999 + layers.square(g) * 0.001, v)
    layers.assign(p - rate * m / (layers.sqrt(v) + 1e-8), p)


def _by_estimates(p, g, m, v):
    powers = _powers(p)
    new_m, new_v = 0.1 * g + 0.9 * m, 0.001 * (g * g) + 0.999 * v
    step = (new_m / (1 - powers[0])) / (layers.sqrt(new_v / (1 - powers[1])) + 1e-8)
    layers.assign(p - 0.01 * step, p)
    layers.assign(new_m, m)
    layers.assign(new_v, v)
    _faded(powers)


def _with_own_powers(p, g, m, v):
    powers = _powers(p)
    _by_rate(p, g, m, v, powers)
    _faded(powers)


def _by_layers_each(p, g, m, v):
    powers = _powers(p)
    _by_rate(p, g, m, v, powers)
    for power, beta in zip(powers, (0.9, 0.999), strict=True):
        layers.assign(layers.elementwise_mul(power, _number(beta)), power)


def _with_shared_powers(loss):
    powers = _powers()
    for p, g in fluid.backward.append_backward(loss):
        _by_rate(p, g, _state(f"{p.name}_m", p.shape), _state(f"{p.name}_v", p.shape), powers)
    _faded(powers)


ADAM = Task(
    LOSS.feed,
    {
        "powers of each": _with_moments(_with_own_powers),
        "estimates": _with_moments(_by_estimates),
        "products with constants": _with_moments(_by_layers_each),
        "shared powers": _updated(_with_shared_powers),
        "optimizer": _updated(lambda loss: fluid.optimizer.Adam(0.01).minimize(loss)),
    },
    apart={
        "estimates": Apart("has a factor that becomes a rate", differs_by(["fill_constant"])),
        "shared powers": Apart(
            "computes the rate once, in front of the group",
            differs_by(["scale"] * 5 + ["sqrt", "elementwise_div"], ["merged_elementwise"] * 2),
        ),
        "optimizer": Apart("is one operator", differs_by(["merged_adam"], ["merged_elementwise"] * 3)),
    },
    optimizer=None,
)

# RMSProp with a velocity


def _rms(update):
    return _each(lambda p, g: update(p, g, _state(f"{p.name}_s", p.shape), _state(f"{p.name}_v", p.shape)))


def _rms_from_state(p, g, s, v):
    layers.assign(0.95 * s + 0.05 * layers.square(g), s)
    layers.assign(0.9 * v + 0.01 * g / layers.sqrt(s + 1e-6), v)
    layers.assign(p - v, p)


def _rms_from_values(p, g, s, v):
    new_s = s * 0.95 + g * g * 0.05
    new_v = v * 0.9 + g * 0.01 / layers.sqrt(new_s + 1e-6)
    layers.assign(new_s, s)
    layers.assign(p - new_v, p)
    layers.assign(new_v, v)


def _rms_by_layers(p, g, s, v):
    layers.assign(layers.elementwise_add(layers.scale(s, 0.95), layers.scale(layers.square(g), 0.05)), s)
    step = layers.elementwise_div(layers.scale(g, 0.01), layers.pow(layers.scale(s, 1.0, 1e-6), 0.5))
    layers.assign(layers.elementwise_add(layers.scale(v, 0.9), step), v)
    layers.assign(layers.elementwise_sub(p, v), p)


def _rms_by_sums(p, g, s, v):
    layers.sums([0.95 * s, 0.05 * (g * g)], out=s)
    layers.sums([0.9 * v, layers.elementwise_div(g * 0.01, layers.sqrt(s + 1e-6))], out=v)
    layers.sums([p, v * -1.0], out=p)


RMSPROP = Task(
    LOSS.feed,
    {
        "state": _rms(_rms_from_state),
        "values": _rms(_rms_from_values),
        "layers": _rms(_rms_by_layers),
        "sums": _rms(_rms_by_sums),
        "optimizer": _updated(lambda loss: fluid.optimizer.RMSProp(0.01, momentum=0.9).minimize(loss)),
    },
    apart={
        "sums": Apart("descends at a rate of one", differs_by(["fill_constant"])),
        "optimizer": Apart("is one operator", differs_by(["merged_rmsprop"], ["merged_elementwise"])),
    },
    optimizer=None,
)

# Gradients of several batches


def _accumulated(add):
    def updates(loss):
        optimizer, found = fluid.optimizer.SGD(0.1), []
        for p, g in optimizer.backward(loss):
            total = _state(f"{p.name}_sum", p.shape)
            add(total, g)
            found.append((p, layers.scale(total, 0.25)))
        optimizer.apply_gradients(found)

    return _updated(updates)


ACCUMULATION = Task(
    LOSS.feed,
    {
        "operator": _accumulated(lambda a, g: layers.assign(a + g, a)),
        "elementwise_add": _accumulated(lambda a, g: layers.assign(layers.elementwise_add(g, a), a)),
        "sums": _accumulated(lambda a, g: layers.assign(layers.sums([a, g]), a)),
        "sums to the state": _accumulated(lambda a, g: layers.sums([a, g], out=a)),
    },
    optimizer=None,
)

# Clips by value


def _clipped(clip):
    def updates(loss):
        optimizer = fluid.optimizer.SGD(0.1)
        optimizer.apply_gradients([(p, clip(g)) for p, g in optimizer.backward(loss)])

    return _updated(updates)


def _by_strategy(loss):
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByValue(0.01)).minimize(loss)


_BY_BOUNDS = Apart("has the bounds in variables", differs_by(["fill_constant"] * 2))

CLIP_BY_VALUE = Task(
    LOSS.feed,
    {
        "clip": _clipped(lambda g: layers.clip(g, -0.01, 0.01)),
        "strategy": _updated(_by_strategy),
        "least of": _clipped(
            lambda g: layers.elementwise_max(layers.elementwise_min(g, _number(0.01)), _number(-0.01))
        ),
        "greatest of": _clipped(
            lambda g: layers.elementwise_min(layers.elementwise_max(g, _number(-0.01)), _number(0.01))
        ),
    },
    apart=dict.fromkeys(("least of", "greatest of"), _BY_BOUNDS),
    optimizer=None,
)

# Clips by global norm


def _by_norm(clip):
    def updates(loss):
        optimizer = fluid.optimizer.SGD(0.1)
        pairs = optimizer.backward(loss)
        found = clip([g for _, g in pairs])
        optimizer.apply_gradients([(p, g) for (p, _), g in zip(pairs, found, strict=True)])

    return _updated(updates)


def _norm_of(square_sums):
    return layers.sqrt(layers.sums(square_sums))


def _square_sum(g):
    return layers.reduce_sum(layers.square(g))


def _limited(grads, norm):
    factor = layers.elementwise_div(_number(0.5), layers.elementwise_max(norm, _number(0.5)))
    return [layers.elementwise_mul(g, factor) for g in grads]


def _by_least_factor(grads):
    norm = _norm_of([layers.reduce_sum(g * g) for g in grads])
    factor = layers.elementwise_min(0.5 / norm, _number(1.0))
    return [g * factor for g in grads]


def _by_joined(grads):
    whole = layers.concat([layers.reshape(g, [-1]) for g in grads])
    return _limited(grads, layers.pow(layers.reduce_sum(layers.square(whole)), 0.5))


def _by_operators(grads):
    total = sum([_square_sum(g) for g in grads[1:]], _square_sum(grads[0]))
    return [g * (0.5 / layers.elementwise_max(layers.sqrt(total), _number(0.5))) for g in grads]


def _with_addend(grads):
    factor = layers.elementwise_min(0.5 / (_norm_of(list(map(_square_sum, grads))) + 1e-6), _number(1.0))
    return [g * factor for g in grads]


def _by_choice(grads):
    norm = _norm_of(list(map(_square_sum, grads)))
    return [g * layers.cond(norm > _number(0.5), lambda: 0.5 / norm, lambda: _number(1.0)) for g in grads]


def _divided(grads):
    excess = layers.elementwise_max(_norm_of(list(map(_square_sum, grads))) / 0.5, _number(1.0))
    return [layers.elementwise_div(g, excess) for g in grads]


def _by_global_norm(loss):
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)).minimize(loss)


GLOBAL_NORM = Task(
    LOSS.feed,
    {
        "strategy": _updated(_by_global_norm),
        "maximum": _by_norm(lambda grads: _limited(grads, _norm_of(list(map(_square_sum, grads))))),
        "least factor": _by_norm(_by_least_factor),
        "joined": _by_norm(_by_joined),
        "operators": _by_norm(_by_operators),
        "stacked": _by_norm(
            lambda grads: _limited(grads, layers.sqrt(layers.reduce_sum(layers.stack(list(map(_square_sum, grads))))))
        ),
        "norms": _by_norm(
            lambda grads: _limited(grads, _norm_of([layers.square(layers.sqrt(_square_sum(g))) for g in grads]))
        ),
        "cond": _by_norm(_by_choice),
        "divided": _by_norm(_divided),
        "addend": _by_norm(_with_addend),
    },
    apart={
        "addend": Apart(
            "divides by the norm and a number",
            differs_by(
                [*["fill_constant"] * 2, "scale", "elementwise_div", "elementwise_min", "merged_elementwise"],
                ["merged_sgd"],
            ),
        )
    },
    optimizer=None,
)

# Rates that rise first

WARM_UP, RATE = 1000, 0.1


def _at_rate(rate):
    def update(loss):
        step = layers.cast(layers.autoincreased_step_counter(), "float32")
        fluid.optimizer.SGD(rate(step)).minimize(loss)

    return _updated(update)


def _rising(step):
    return step * (RATE / WARM_UP)


def _by_switch(step):
    rate = _state("rate", [1])
    with layers.Switch() as switch:
        with switch.case(step < _number(WARM_UP)):
            layers.assign(_rising(step), rate)
        with switch.default():
            layers.assign(_number(RATE), rate)
    return rate


def _by_cases(step):
    cases = [(step < _number(WARM_UP), lambda: _rising(step))]
    return layers.case(cases, default=lambda: _number(RATE))


def _by_mask(step):
    is_early = layers.cast(step < _number(WARM_UP), "float32")
    return is_early * _rising(step) + (1.0 - is_early) * RATE


WARMING_UP = Task(
    LOSS.feed,
    {
        "Switch": _at_rate(_by_switch),
        "cond": _at_rate(
            lambda step: layers.cond(step < _number(WARM_UP), lambda: _rising(step), lambda: _number(RATE))
        ),
        "case": _at_rate(_by_cases),
        "layer": _updated(
            lambda loss: fluid.optimizer.SGD(layers.linear_lr_warmup(RATE, WARM_UP, 0.0, RATE)).minimize(loss)
        ),
        "least": _at_rate(lambda step: layers.elementwise_min(_rising(step), _number(RATE))),
        "mask": _at_rate(_by_mask),
    },
    apart={
        "least": Apart("needs no condition", differs_by(["elementwise_min"], ["less_than", "where", "fill_constant"])),
        "mask": Apart(
            "adds products with a mask",
            differs_by(["cast", "elementwise_mul", "elementwise_add", "scale", "scale"], ["where", "fill_constant"]),
        ),
    },
    optimizer=None,
)
