"""The strategies beyond fluid's three: against optax's recorded results and exact definitions, over several steps."""

import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
from golden_clip import cases, differences, norm
from one_clip import AtOnce, InProgram, clip_everywhere, same_bits

import minigraph as fluid
from minigraph.clip import (
    AdaptiveGradientClip,
    AutoClip,
    ClipPipeline,
    GradientClipByAxisNorm,
    GradientClipByBlockRMS,
    GradientClipByGlobalNorm,
    GradientClipByGlobalPNorm,
    GradientClipByPNorm,
    GradientClipByValue,
    ZClip,
)
from minigraph.errors import ClipError

DTYPES = ["float16", "float32", "float64"]
ROUNDING = {"float16": 2e-3, "float32": 4e-7, "float64": 1e-14}


def random(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def f32(value):
    """A number as an attribute of an operator holds it."""
    return float(np.float32(value))


# What they compute, with 50 digits


def exactly(array):
    exact = np.empty(np.shape(array), object)
    exact[...] = np.frompyfunc(lambda x: Decimal(float(x)), 1, 1)(array)
    return exact


def limited(x, length, threshold):
    """`x` times ``threshold / max(length, threshold)``."""
    return x * (threshold / length) if length > threshold else x


def by_value(grads, bound):
    return [np.minimum(np.maximum(grad, -Decimal(bound)), Decimal(bound)) for grad in grads]


def by_norm(grads, threshold, p=2.0):
    return [limited(grad, norm([grad], p), Decimal(threshold)) for grad in grads]


def by_global_norm(grads, threshold, p=2.0):
    return [limited(grad, norm(grads, p), Decimal(threshold)) for grad in grads]


def by_axis_norm(grads, threshold, axes, p=2.0):
    return [by_units(grad, axes, lambda unit: limited(unit, norm([unit], p), Decimal(threshold))) for grad in grads]


def by_block_rms(grads, threshold):
    return [limited(grad, norm([grad]), Decimal(threshold) * Decimal(grad.size).sqrt()) for grad in grads]


def by_units(grad, axes, function):
    """`function` of each slice that runs over `axes`; of everything where there are no such dimensions."""
    result = grad.copy()
    axes = (
        [axis % grad.ndim for axis in axes]
        if all(-grad.ndim <= axis < grad.ndim for axis in axes)
        else range(grad.ndim)
    )
    for index in np.ndindex(*[1 if axis in axes else size for axis, size in enumerate(grad.shape)]):
        place = tuple(slice(None) if axis in axes else slice(at, at + 1) for axis, at in enumerate(index))
        result[place] = function(grad[place])
    return result


def adaptively(grads, params, clipping=0.01, eps=1e-3):
    """Unit by unit: columns of matrices, filters of convolutions, vectors as a whole."""
    results = []
    for grad, param in zip(grads, params, strict=True):
        axes = range(1, grad.ndim) if grad.ndim == 4 else [0] if grad.ndim > 1 else range(grad.ndim)
        limits = by_units(
            param, axes, lambda unit: unit * 0 + Decimal(f32(clipping)) * max(norm([unit]), Decimal(f32(eps)))
        )
        lengths = by_units(grad, axes, lambda unit: unit * 0 + norm([unit]))
        results.append(np.frompyfunc(limited, 3, 1)(grad, lengths, limits))
    return results


def exact(definition, arrays, *args, **kwargs):
    """The definition on arrays, or on pairs of lists of them, rounded to float64."""
    with localcontext(Context(prec=50)):
        given = [exactly(array) for array in arrays]
        return [np.asarray(each).astype(np.float64) for each in definition(given, *args, **kwargs)]


def assert_close(found, expected, like):
    for value, right, original in zip(found, expected, like, strict=True):
        assert (value.dtype, value.shape) == (original.dtype, original.shape)
        scale = np.abs(right).max(initial=0)
        np.testing.assert_allclose(
            value.astype("float64"),
            right,
            rtol=ROUNDING[value.dtype.name],
            atol=scale * ROUNDING[value.dtype.name] / 10,
        )


STATELESS = {
    "p": (GradientClipByPNorm(0.5, 3.0), lambda grads, _: by_norm(grads, 0.5, 3.0)),
    "p 1": (GradientClipByPNorm(2.0, 1), lambda grads, _: by_norm(grads, 2.0, 1.0)),
    "p inf": (GradientClipByPNorm(0.75, math.inf), lambda grads, _: by_norm(grads, 0.75, math.inf)),
    "global p": (GradientClipByGlobalPNorm(1.25, 1.5), lambda grads, _: by_global_norm(grads, 1.25, 1.5)),
    "global inf": (GradientClipByGlobalPNorm(0.5, math.inf), lambda grads, _: by_global_norm(grads, 0.5, math.inf)),
    "last axis": (GradientClipByAxisNorm(0.6), lambda grads, _: by_axis_norm(grads, 0.6, [-1])),
    "axis 0": (GradientClipByAxisNorm(0.6, axes=0), lambda grads, _: by_axis_norm(grads, 0.6, [0])),
    "both axes": (GradientClipByAxisNorm(0.6, axes=[0, -1], p=1.0), lambda g, _: by_axis_norm(g, 0.6, [0, -1], 1.0)),
    "axis 2": (GradientClipByAxisNorm(0.6, axes=(2,)), lambda grads, _: by_axis_norm(grads, 0.6, [2])),
    "block rms": (GradientClipByBlockRMS(0.3), lambda grads, _: by_block_rms(grads, 0.3)),
    "adaptive": (AdaptiveGradientClip(0.1, clip_final_layer=True), lambda g, p: adaptively(g, map(exactly, p), 0.1)),
    "pipeline": (
        ClipPipeline([GradientClipByValue(0.5), GradientClipByGlobalPNorm(1.5)]),
        lambda grads, _: by_global_norm(by_value(grads, 0.5), 1.5),
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STATELESS)
def test_a_strategy_computes_its_definition_in_both_modes(name, dtype):
    strategy, definition = STATELESS[name]
    shapes = [(5, 4), (4,), (3, 2, 2, 2), (2, 3, 2), (1,), (0, 3)]
    grads = [random(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]
    params = [random(*shape, seed=9 + i, dtype=dtype) for i, shape in enumerate(shapes)]
    found = clip_everywhere(strategy, grads, params)
    assert_close(found, exact(definition, grads, params), grads)
    assert any((cut != raw).any() for cut, raw in zip(found, grads, strict=True))


@pytest.mark.parametrize("threshold", [1e-60, 0.1, 1e200])
@pytest.mark.parametrize(
    "kind", [GradientClipByPNorm, GradientClipByGlobalPNorm, GradientClipByAxisNorm, GradientClipByBlockRMS]
)
def test_a_threshold_may_be_one_that_float32_does_not_hold(kind, threshold):
    grad = np.array([3.0, -4.0]) * threshold
    (found,) = clip_everywhere(kind(threshold), [grad])
    factor = math.sqrt(2) if kind is GradientClipByBlockRMS else 1.0
    np.testing.assert_allclose(found, [0.6 * factor * threshold, -0.8 * factor * threshold], rtol=1e-15)


# optax's recorded results

OPTAX = {
    "clip": lambda max_delta: GradientClipByValue(max_delta),
    "clip_by_global_norm": lambda max_norm: GradientClipByGlobalNorm(max_norm),
    "clip_by_block_rms": lambda threshold: GradientClipByBlockRMS(threshold),
    "adaptive_grad_clip": lambda clipping, eps: AdaptiveGradientClip(clipping, eps, clip_final_layer=True),
}


def is_lost(case):
    """Whether optax returned zeros for numbers whose squares add up to more than their type holds."""
    with np.errstate(over="ignore"):
        is_huge = any(
            array is not None and np.sum(array.astype("float64") ** 2) > np.finfo(array.dtype).max
            for array in case.inputs[: case.gradients]
        )
    return is_huge and case.is_finite and not any(array is not None and array.any() for array in case.results.values())


def replay(case):
    """What minigraph makes of a case, with the filters of convolutions in fluid's layout and back."""
    arrays = [array if array is None or array.ndim != 4 else array.transpose(3, 2, 0, 1) for array in case.inputs]
    grads, params = arrays[: case.gradients], arrays[case.gradients :]
    given = [grad for grad in grads if grad is not None]
    found = iter(clip_everywhere(OPTAX[case.name](**case.args), given, params or None))
    results = [None if grad is None else next(found) for grad in grads]
    return {
        f"out_{i:02}": array if array is None or array.ndim != 4 else array.transpose(2, 3, 1, 0)
        for i, array in enumerate(results)
    }


def definition_of(case):
    """The documented formula with unlimited exponents; None if an input is not finite."""
    if not case.is_finite:
        return None
    arrays = case.inputs[: case.gradients]
    some = [array.transpose(3, 2, 0, 1) if array.ndim == 4 else array for array in arrays if array is not None]
    params = [array.transpose(3, 2, 0, 1) if array.ndim == 4 else array for array in case.inputs[case.gradients :]]
    (threshold, *others) = case.args.values()
    results = {
        "clip": lambda: exact(by_value, some, threshold),
        "clip_by_global_norm": lambda: exact(by_global_norm, some, threshold),
        "clip_by_block_rms": lambda: exact(by_block_rms, some, threshold),
        "adaptive_grad_clip": lambda: exact(adaptively, some, [exactly(p) for p in params], threshold, *others),
    }[case.name]()
    found = iter(array.transpose(2, 3, 1, 0) if array.ndim == 4 else array for array in results)
    return {f"out_{i:02}": None if array is None else next(found) for i, array in enumerate(arrays)}


def recorded():
    return [case for case in cases("optax") if case.name in OPTAX and case.set != "threshold"]


@pytest.mark.parametrize("case", recorded(), ids=lambda case: case.id)
def test_what_optax_returns_is_returned(case):
    found, right = replay(case), definition_of(case)
    assert right is None or not differences(case, found, right)
    if case.name == "adaptive_grad_clip" and case.inputs[0].dtype == np.float64:
        for name, array in case.results.items():  # an attribute of an operator is a float32
            np.testing.assert_allclose(found[name], array, rtol=1e-7)
    elif not is_lost(case):
        assert not differences(case, found, case.results)


def test_optax_returns_zeros_where_squares_overflow():
    zeros = {case.id.rpartition("_")[0].removeprefix("optax_") for case in recorded() if is_lost(case)}
    assert zeros == {
        "adaptive_grad_clip_huge", "adaptive_grad_clip_huge_zero_params", "clip_by_block_rms_huge",
        "clip_by_block_rms_huge64", "clip_by_global_norm_huge", "clip_by_global_norm_huge64",
        "clip_by_global_norm_f16_overflow",
    }  # fmt: skip


@pytest.mark.parametrize("case", [c for c in cases("optax") if c.set == "threshold"], ids=lambda case: case.id)
def test_thresholds_that_make_no_sense_are_refused_where_optax_takes_them(case):
    with pytest.raises(ClipError):
        replay(case)


# Clipping by the norms of earlier steps


def steps(count, seed=0, dtype="float32"):
    """Gradients of two parameters whose length varies by powers of ten; every seventh is not finite."""
    rng = np.random.default_rng(seed)
    for step in range(count):
        pair = [rng.standard_normal((3, 2)), rng.standard_normal(4)]
        pair = [(each * 10 ** rng.uniform(-1, 1)).astype(dtype) for each in pair]
        if step % 7 == 3:
            pair[step % 2].reshape(-1)[1] = np.nan if step % 3 else np.inf
        yield pair


def exact_norm(grads):
    with localcontext(Context(prec=50)):
        return norm([exactly(grad) for grad in grads])


def is_finite(grads):
    return all(np.isfinite(grad).all() for grad in grads)


def scaled_down(grads, threshold):
    """Up to the threshold the very gradients; None asks for no comparison."""
    if threshold is None or float(exact_norm(grads)) <= threshold:
        return grads
    return [grad.astype("float64") * (threshold / float(exact_norm(grads))) for grad in grads]


class AutoClipAsDefined:
    def __init__(self, percentile, history):
        self.percentile, self.history, self.norms = percentile, history, []

    def threshold(self, grads):
        self.norms.append(exact_norm(grads))
        ordered = sorted(self.norms[-self.history :])
        position = Decimal(self.percentile) / 100 * (len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return float(ordered[low] + (ordered[high] - ordered[low]) * (position - low))


class ZClipAsDefined:
    """The paper's algorithm 1, with attributes and the epsilon as an operator holds them."""

    def __init__(self, z_threshold, alpha, warmup_steps):
        self.limit, self.alpha = Decimal(f32(z_threshold)), Decimal(f32(alpha))
        self.warmup_steps, self.warm, self.eps = warmup_steps, [], Decimal(f32(1e-6))

    def threshold(self, grads):
        now = exact_norm(grads)
        if len(self.warm) < self.warmup_steps:
            self.warm.append(now)
            self.mean = sum(self.warm) / len(self.warm)
            self.variance = sum((each - self.mean) ** 2 for each in self.warm) / len(self.warm)
            return math.inf
        deviation = self.variance.sqrt()
        z = (now - self.mean) / (deviation + self.eps)
        threshold = self.mean + self.limit**2 / z * deviation if z > self.limit else Decimal("inf")
        taken_in = min(now, threshold)
        self.mean = self.alpha * self.mean + (1 - self.alpha) * taken_in
        self.variance = self.alpha * self.variance + (1 - self.alpha) * (taken_in - self.mean) ** 2
        return float(threshold)


BY_HISTORY = {
    "autoclip": (AutoClip(), AutoClipAsDefined(10, 10_000)),
    "autoclip, median": (AutoClip(50, history=5), AutoClipAsDefined(50, 5)),
    "autoclip, ring": (AutoClip(62.5, history=3), AutoClipAsDefined(62.5, 3)),
    "autoclip, largest": (AutoClip(100, history=4), AutoClipAsDefined(100, 4)),
    "autoclip, last": (AutoClip(30, history=1), AutoClipAsDefined(30, 1)),
    "zclip": (ZClip(warmup_steps=4, z_threshold=1.0), ZClipAsDefined(1.0, 0.97, 4)),
    "zclip, no memory": (ZClip(warmup_steps=2, z_threshold=0.5, alpha=0.0), ZClipAsDefined(0.5, 0.0, 2)),
    "zclip, short": (ZClip(warmup_steps=1, alpha=0.5), ZClipAsDefined(2.5, 0.5, 1)),
}


@pytest.mark.laws
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BY_HISTORY)
def test_the_threshold_follows_the_norms_of_earlier_steps(name, dtype):
    strategy, kept = BY_HISTORY[name]
    definition = type(kept)(**{key: value for key, value in _options(strategy).items()})
    first = next(steps(1, dtype=dtype))
    modes = [
        InProgram(strategy, first),
        InProgram(strategy, first, executor=fluid.Interpreter()),
        AtOnce(strategy, first),
    ]
    clipped_steps = 0
    for grads in steps(40, dtype=dtype):
        found, *others = [mode(grads) for mode in modes]
        assert all(same_bits(other, found) for other in others)
        if not is_finite(grads):
            assert not is_finite(found)
            continue
        expected = scaled_down(grads, definition.threshold(grads))
        if expected is grads:
            assert same_bits(found, grads)
        else:
            clipped_steps += 1
            tolerance = 10 * ROUNDING[dtype]
            for value, right in zip(found, expected, strict=True):
                np.testing.assert_allclose(
                    value.astype("float64"), right, rtol=tolerance, atol=1e-6 if dtype == "float16" else 0
                )
    assert clipped_steps or name in ("autoclip, largest", "autoclip, last")


def _options(strategy):
    names = ("percentile", "history") if isinstance(strategy, AutoClip) else ("z_threshold", "alpha", "warmup_steps")
    return {name: getattr(strategy, name) for name in names}


@pytest.mark.parametrize("strategy", [AutoClip(), ZClip(warmup_steps=2)])
def test_after_gradients_of_zero_the_next_is_not_clipped_to_zero(strategy):
    modes = [InProgram(strategy, [np.zeros(2)]), AtOnce(strategy, [np.zeros(2)])]
    for grads in [[np.zeros(2)]] * 4 + [[np.array([3.0, -4.0])]]:
        for mode in modes:
            assert same_bits(mode(grads), grads)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "strategy",
    [
        GradientClipByPNorm(2.0, 3.0),
        GradientClipByGlobalPNorm(2.0, 1.0),
        GradientClipByBlockRMS(2.0),
        ClipPipeline([GradientClipByValue(3.0), GradientClipByPNorm(2.0)]),
        GradientClipByAxisNorm(2.0),
        AdaptiveGradientClip(2.0, clip_final_layer=True),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_a_number_without_dimensions_is_a_tensor_of_one_element(strategy, dtype):
    (found,) = clip_everywhere(strategy, [np.array(-6.5, dtype)])
    assert (found.shape, found.dtype, float(found)) == ((), dtype, -2.0)


def test_strategies_print_as_in_fluid():
    clip = fluid.clip
    assert [
        str(clip.GradientClipByValue(1.0)),
        str(clip.GradientClipByNorm(2)),
        str(clip.GradientClipByGlobalNorm(3)),
    ] == [
        "Gradient Clip By Value, min = -1.000000, max=1.000000",
        "Gradient Clip By Norm, clip_norm=2.000000",
        "Gradient Clip By GlobalNorm, global_norm=3.000000",
    ]
    assert str(fluid.regularizer.L2Decay(0.1)) == "L2Decay, regularization_coeff=0.100000"
    assert str(fluid.regularizer.L1Decay(0.1)) == "L1Decay, regularization_coeff=0.100000"
