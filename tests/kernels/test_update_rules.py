"""Kernels of updates against the rules that they are written from, run as the Python functions that they are."""

import numpy as np
import pytest
from kernel_calls import calls, flat
from sampled import DETERMINISTIC, ids

from minigraph.kernels import find_kernel
from minigraph.kernels.update_kernels import LAZY, ROWS, WHOLE, Update
from minigraph.kernels.update_rules import POWERS, RULES, SINGLE

UPDATES = [s for s in DETERMINISTIC if s.op in RULES]


def by_rule(call):
    """What the rule of a call computes, where no tensors stand in for attributes and no state is left out."""
    rule = RULES[call.op.type]
    given = dict(zip(rule.inputs, call.inputs, strict=True))
    if given.get("beta1_tensor") is not None or given.get("mean_grad", True) is None or given["skip"]:
        return None
    found = rule.function(**given, **{name: call.keywords[name] for name in rule.attrs})
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("sample", UPDATES, ids=ids(UPDATES))
def test_a_kernel_has_the_bits_of_its_rule(sample):
    for dtype in ("float32", "float64"):
        for call in calls(sample, dtype):
            expected = by_rule(call)
            if expected is not None:
                for value, other in zip(flat(call()), expected, strict=False):
                    assert (value.dtype, value.tobytes()) == (other.dtype, other.tobytes())


def test_every_rule_is_compared():
    compared = {s.op for s in UPDATES if any(by_rule(call) is not None for call in calls(s, "float64"))}
    assert compared == {type for type, rule in RULES.items() if "skip" in rule.inputs}


@pytest.mark.parametrize("mode", [WHOLE, ROWS, LAZY])
def test_a_kernel_is_written_as_text(mode):
    text = Update(RULES["sgd"], mode).source
    assert ("grad = merged(xp, grad, scratch)" in text) == (mode == ROWS)
    assert ("grad = merged_or_repeated(xp, grad, scratch)" in text) == (mode == LAZY)
    assert "xp.multiply(grad, rate.reshape(1)" in text or "grad * rate.reshape(1)" in text


@pytest.mark.parametrize("type", RULES)
def test_an_element_has_no_attributes_left(type):
    rule = RULES[type]
    attrs = dict.fromkeys(rule.attrs, 0.5) | {n: True for n in ("centered", "with_decay", "use_nesterov")}
    element = rule.element(attrs)
    text = " ".join(value for _, value in element.common + element.own)
    assert not any(f"{name} " in text for name in rule.attrs if name not in rule.inputs)
    assert {name for name, _ in element.powers} == POWERS & set(rule.outputs)
    assert rule.element(attrs) is element


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_step_keeps_the_type_of_a_wider_rate(dtype):
    param, grad = np.ones(3, dtype), np.full(3, 3e-4, dtype)
    rate = np.array([0.7], np.promote_types(dtype, "float64"))
    found = find_kernel("sgd", "cpu").function(np, param, rate, grad, None)
    assert found.tobytes() == (param - grad * rate).astype(dtype).tobytes()


@pytest.mark.parametrize("type", [type for type, rule in RULES.items() if "rate" in rule.inputs])
def test_state_keeps_its_type_with_a_wider_rate(type):
    rule = RULES[type]
    left_out = {"skip", "beta1_tensor", "beta2_tensor"}
    given = {name: None if name in left_out else np.full(3, 0.5, "float32") for name in rule.inputs}
    given |= {name: np.array([0.5], "float64" if name == "rate" else "float32") for name in SINGLE & given.keys()}
    attrs = {name: 0.25 for name in rule.attrs} | {n: True for n in ("with_decay",) if n in rule.attrs}
    found = Update(rule)(np, **given, **attrs)
    assert {x.dtype.name for x in (found if isinstance(found, tuple) else (found,))} == {"float32"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ftrl_is_exactly_zero_where_nothing_was_seen(dtype):
    """Also without a penalty, where the quotient is 0 / 0, and with values that are not finite."""
    special = np.array([0, -0.0, 1e-3, 1, -1, np.inf, -np.inf, np.nan], dtype)
    grad, linear = (x.ravel() for x in np.meshgrid(special, special))
    attrs = {"l1": 0.5, "l2": 0.0, "lr_power": -0.5}
    with np.errstate(all="ignore"):
        given = np.zeros_like(grad), np.zeros_like(grad), linear, grad, np.array([0.1], dtype), None
        param, _, new = find_kernel("ftrl", "cpu").function(np, *given, **attrs)
    assert np.array_equal(param == 0, np.abs(new) <= 0.5)
    assert not np.signbit(param[param == 0]).any()
    assert np.isnan(param[np.isnan(new)]).all()
