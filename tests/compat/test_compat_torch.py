"""`minigraph.compat.torch` against what PyTorch 2.13 was recorded doing, and against exact arithmetic."""

import math
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from golden_clip import Case, Results, by_definition, cases, check, differences
from hypothesis import given
from hypothesis import strategies as st
from together import check_all

import minigraph as fluid
import minigraph.compat.torch as torch
from minigraph.errors import ClipError, ExecutionError, ProgramError, WrongTypeError

pytestmark = pytest.mark.numbers

ROOT = Path(__file__).resolve().parents[2]
UTILS = torch.nn.utils
INF, NAN = math.inf, math.nan


def parameter(grad, dtype="float32"):
    """A parameter with this gradient, or one of two elements with none."""
    if grad is None:
        return fluid.create_parameter([2], "float32")
    grad = np.asarray(grad, dtype)
    param = fluid.create_parameter(list(grad.shape), grad.dtype)
    param.grad = fluid.to_tensor(grad)
    return param


def parameters(*grads, dtype="float32"):
    return [parameter(grad, dtype) for grad in grads]


def values(params):
    return [None if param.grad is None else param.grad.numpy() for param in params]


def clip(case: Case, function=None) -> Results:
    """What the case's function, or one in its stead, makes of the case's gradients."""
    params = [parameter(None) if a is None else parameter(a, a.dtype) for a in case.inputs]
    total = (function or getattr(UTILS, case.name))(params, **case.args)
    results: Results = {f"out_{i:02}": grad for i, grad in enumerate(values(params))}
    return results if total is None else {**results, "total_norm": np.asarray(float(total))}


# Recorded


@pytest.mark.slow
def test_a_case_gives_what_torch_gave_or_what_its_definition_says():
    check_all(lambda case: check(case, clip), {case.id: case for case in cases("torch")})


# PyTorch 2.13: order, total norm, and the first element of the gradients, clipped to 1.
OTHER_ORDERS = [
    ([[[1.0, -2.0], [0.5, 3.0]], [4.0, 0.0, -1.0]], 0, 2.0, 0.4999997615814209),
    ([[3.0, 4.0]], 0, 1.0, 2.999997138977051),
    ([[], [1.0, 2.0]], 0, 1.0, None),
    ([[INF, 1.0], [2.0]], 0, 2.0, INF),
    ([[NAN, 1.0], [2.0]], 0, 2.0, NAN),
    ([[0.0, 0.0], [0.0]], 0, 0.0, 0.0),
    ([[3.0, 4.0]], -1, 1.7142857142857142, 1.7499990463256836),
    ([[1.0, -2.0], [4.0, 0.0]], -1, 0.0, 1.0),
    ([[INF, 1.0], [2.0]], -1, 0.6666666666666666, INF),
    ([[NAN, 1.0], [2.0]], -1, NAN, NAN),
    ([[1e-30, 2e-30]], -1, 6.666666666666667e-31, 1e-30),
    ([[3.0, 4.0]], -2, 2.4, 1.2499994039535522),
    ([[3.0, 4.0]], -INF, 3.0, 0.9999996423721313),
    ([[INF, 1.0], [2.0]], -INF, 1.0, INF),
    ([[1e30, 2e30]], -INF, 1e30, 1.0),
]


@pytest.mark.parametrize(("grads", "order", "norm", "first"), OTHER_ORDERS)
def test_orders_of_zero_and_below_give_what_torch_gave(grads, order, norm, first):
    params = parameters(*grads)
    total = UTILS.clip_grad_norm_(params, 1.0, order)
    np.testing.assert_allclose(total.item(), norm, rtol=3e-6)
    if first is not None:
        np.testing.assert_allclose(values(params)[0].flat[0], first, rtol=3e-6)


def test_a_negative_order_takes_gradients_of_rank_0():
    params = parameters(3.0, [6.0])
    assert UTILS.clip_grad_norm_(params, 4.0, -1).item() == pytest.approx(2.0, rel=1e-6)
    assert values(params)[0] == np.float32(3.0)


@pytest.mark.parametrize("order", [INF, -1, -INF])
def test_an_empty_gradient_has_no_norm_of_these_orders(order):
    with pytest.raises(RuntimeError, match="on an empty tensor because the operation does not have an identity"):
        UTILS.get_total_norm(parameters([], [1.0])[1:] + [fluid.to_tensor(np.zeros((0, 2)))], order)


# Exact arithmetic

numbers = st.floats(-(2.0**100), 2.0**100, width=32)


@pytest.mark.slow
@given(
    st.lists(st.lists(numbers, max_size=4), min_size=1, max_size=3),
    st.floats(0, 1e6),
    st.sampled_from([0.5, 1.0, 2.0, 3.0]),
)
def test_any_gradients_are_clipped_as_exact_arithmetic_says(grads, max_norm, order):
    inputs = tuple(np.array(grad, np.float32) for grad in grads)
    arguments = {"max_norm": max_norm, "norm_type": order}
    case = Case("drawn", "torch", "torch.nn.utils.clip_grad_norm_", arguments, "drawn", inputs, len(inputs))
    assert not differences(case, clip(case), by_definition(case))


@pytest.mark.parametrize(("value", "dtype", "count"), [(3e38, "float32", 4), (1e308, "float64", 9)])
def test_a_norm_that_its_type_cannot_hold_is_infinite_but_clips_rightly(value, dtype, count):
    param = parameter([value] * count, dtype)
    assert UTILS.clip_grad_norm_(param, 0.01).item() == INF
    np.testing.assert_allclose(param.grad.numpy(), [0.01 / math.sqrt(count)] * count, rtol=1e-6)


def test_a_norm_of_float16_is_not_bound_to_its_range():
    param = parameter([60000.0] * 2500, "float16")
    assert UTILS.clip_grad_norm_(param, 1.0).item() == 60000 * 50
    np.testing.assert_allclose(param.grad.numpy(), 0.02, rtol=1e-3)


def test_a_small_factor_costs_no_digits():
    param = parameter([3e37, -1.2345678e38])
    UTILS.clip_grads_with_norm_(param, 1e-3, 1e37)
    np.testing.assert_allclose(param.grad.numpy(), [3e-3, -1.2345678e-2], rtol=1e-7)


def test_the_addend_of_torch_counts_at_the_threshold_and_below_1e_6():
    at_threshold, tiny = parameter([3.0, 4.0], "float64"), parameter([3e-7, 4e-7], "float64")
    UTILS.clip_grad_norm_(at_threshold, 5.0)
    np.testing.assert_allclose(at_threshold.grad.numpy(), np.array([3.0, 4.0]) * 5 / (5 + 1e-6), rtol=1e-14)
    UTILS.clip_grad_norm_(tiny, 1e-7)
    np.testing.assert_allclose(tiny.grad.numpy(), np.array([2e-8, 8e-8 / 3]), rtol=1e-14)  # 1e-7 / 1.5e-6 of it


# In place


def test_the_gradient_stays_the_same_object_and_keeps_its_type():
    params = [parameter([3.0] * 5, dtype) for dtype in ("float16", "float32", "float64")]
    grads = [param.grad for param in params]
    total = UTILS.clip_grad_norm_(params, 1.0)
    UTILS.clip_grad_value_(params, 0.2)
    assert all(param.grad is grad for param, grad in zip(params, grads, strict=True))
    assert [grad.numpy().dtype.name for grad in grads] == ["float16", "float32", "float64"]
    assert [grad.numpy()[0] for grad in grads] == [np.float16(0.2), np.float32(0.2), 0.2]
    assert total.numpy().dtype == np.float64
    assert total.stop_gradient


def test_gradients_of_a_model_are_clipped_between_backward_and_update():
    with fluid.dygraph.guard():
        model = fluid.dygraph.Linear(2, 1)
        before = model.weight.numpy()
        x = fluid.dygraph.to_variable(np.array([[3.0, 4.0]], "float32"))
        fluid.layers.reduce_sum(model(x)).backward()
        norm = UTILS.clip_grad_norm_(model.parameters(), 1.0)
        fluid.optimizer.SGD(1.0, parameter_list=model.parameters()).minimize(fluid.layers.reduce_sum(model.weight))
    factor = 1 / (math.sqrt(26) + 1e-6)
    assert norm.item() == pytest.approx(math.sqrt(26))
    np.testing.assert_allclose(before - model.weight.numpy(), np.array([[3.0], [4.0]]) * factor, rtol=1e-5)


def test_parameters_without_a_gradient_are_skipped():
    params = parameters(None, [3.0, 4.0], None)
    assert UTILS.clip_grad_norm_(params, 10.0).item() == 5.0
    UTILS.clip_grad_value_(params, 3.5)
    assert [grad if grad is None else grad.tolist() for grad in values(params)] == [None, [3.0, 3.5], None]


@pytest.mark.parametrize("wrap", [iter, lambda params: (param for param in params), tuple, lambda params: params[0]])
def test_parameters_may_come_in_any_form(wrap):
    params = parameters([3.0, 4.0])
    assert UTILS.clip_grad_norm_(wrap(params), 1.0).item() == 5.0
    np.testing.assert_allclose(values(params)[0], [0.6, 0.8], rtol=1e-6)
    UTILS.clip_grad_value_(wrap(params), 0.5)
    assert values(params)[0].tolist() == [0.5, 0.5]


def test_an_exhausted_iterator_is_pointed_out():
    params = iter(parameters([3.0, 4.0]))
    UTILS.clip_grad_norm_(params, 1.0)
    with pytest.warns(UserWarning, match="`parameters` is an empty generator, no gradient clipping will occur"):
        assert UTILS.clip_grad_norm_(params, 1.0).item() == 0.0


@pytest.mark.parametrize("params", [[], [None], [None, None]])
def test_nothing_to_clip_has_norm_0(params):
    params = parameters(*params)
    assert UTILS.clip_grad_norm_(params, 1.0, error_if_nonfinite=True).item() == 0.0
    UTILS.clip_grad_value_(params, 1.0)
    assert all(param.grad is None for param in params)


def test_a_parameter_given_twice_counts_twice_and_is_scaled_once():
    param = parameter([3.0, 4.0])
    assert UTILS.clip_grad_norm_([param, param], 1.0).item() == pytest.approx(math.sqrt(50))
    np.testing.assert_allclose(param.grad.numpy(), np.array([3.0, 4.0]) / math.sqrt(50), rtol=1e-6)


def test_the_parts_make_the_whole():
    whole, parts = parameters([3.0, 4.0], [[12.0]]), parameters([3.0, 4.0], [[12.0]])
    total = UTILS.get_total_norm([param.grad for param in parts])
    assert [grad.tolist() for grad in values(parts)] == [[3.0, 4.0], [[12.0]]]
    UTILS.clip_grads_with_norm_(parts, 2.0, total)
    assert UTILS.clip_grad_norm_(whole, 2.0).item() == total.item() == 13.0
    for one, other in zip(values(whole), values(parts), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-7)


def test_clipping_appends_nothing_to_the_program_being_built():
    params = parameters([3.0, 4.0])
    with fluid.program_guard(fluid.Program()):
        UTILS.clip_grad_norm_(params, 1.0)
        UTILS.clip_grad_norm_(params, 0.1, -1)
        UTILS.clip_grad_value_(params, 0.01)
        assert not fluid.default_main_program().global_block().ops


def test_bounds_of_zero_and_infinity():
    params = parameters([3.0, -4.0, NAN, INF], [3.0, -4.0, NAN, INF])
    UTILS.clip_grad_value_(params[0], 0)
    UTILS.clip_grad_value_(params[1], INF)
    np.testing.assert_array_equal(values(params), [[0.0, 0.0, NAN, 0.0], [3.0, -4.0, NAN, INF]])


# Errors


@pytest.mark.parametrize("grad", [[NAN, 1.0], [INF], [1e30, 2e30]])
def test_error_if_nonfinite_says_what_torch_says_and_changes_nothing(grad):
    params = parameters([1.0], grad)
    message = (
        "The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped. To "
        "disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
    )
    with pytest.raises(RuntimeError) as error:
        UTILS.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert isinstance(error.value, ExecutionError)
    assert error.value.message == message
    (detail,) = error.value.details
    assert detail.startswith(f"{params[1].grad.name}: ")
    np.testing.assert_array_equal(values(params)[1], np.float32(grad))


def test_error_if_nonfinite_lets_pass_what_torch_can_compute():
    params = parameters([1e19], [1e30], dtype="float64")
    assert UTILS.clip_grad_norm_(params, 1.0, 2, error_if_nonfinite=True).item() == pytest.approx(1e30)
    assert UTILS.get_total_norm(parameter([1e30]), 1, error_if_nonfinite=True).item() == pytest.approx(0.0, abs=10)


@pytest.mark.parametrize(("order", "total"), [(-1, 2.0), (-2, 2.0), (-INF, 2.0)])
def test_a_negative_order_leaves_the_total_finite_beside_an_infinite_gradient(order, total):
    params = parameters([INF], [2.0])
    assert UTILS.get_total_norm([p.grad for p in params], order, error_if_nonfinite=True).item() == total
    assert UTILS.clip_grad_norm_(params, 1.0, order, error_if_nonfinite=True).item() == total
    with pytest.raises(ExecutionError, match="is non-finite"):
        UTILS.clip_grad_norm_(parameters([INF], [INF]), 1.0, order, error_if_nonfinite=True)


@pytest.mark.parametrize("threshold", [-1.0, NAN])
def test_thresholds_without_a_meaning_are_refused(threshold):
    param = parameter([3.0, 4.0])
    for clipping in (UTILS.clip_grad_norm_, UTILS.clip_grad_value_):
        with pytest.raises(ClipError, match="must not be negative or NaN"):
            clipping(param, threshold)
    with pytest.raises(ClipError, match="must not be negative or NaN"):
        UTILS.clip_grads_with_norm_(param, threshold, 5.0)
    with pytest.raises(ClipError, match="order of a norm must not be NaN"):
        UTILS.clip_grad_norm_(param, 1.0, NAN)
    assert param.grad.numpy().tolist() == [3.0, 4.0]


@pytest.mark.parametrize("given", [3, "weights", [1.0], {"w": 1}, None])
def test_what_is_no_tensor_is_refused(given):
    with pytest.raises(WrongTypeError, match="tensor"):
        UTILS.clip_grad_norm_(given, 1.0)


def test_a_variable_of_a_program_is_refused():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [2])
    with pytest.raises(WrongTypeError, match="no tensor of the imperative mode"):
        UTILS.clip_grad_value_([x], 1.0)


def test_a_threshold_must_be_a_number():
    param = parameter([3.0, 4.0])
    assert UTILS.clip_grad_norm_(param, "1.0", "inf").item() == 4.0
    with pytest.raises(WrongTypeError, match="max_norm must be a number"):
        UTILS.clip_grad_norm_(param, None)


def test_the_old_name_warns_and_does_the_same():
    param = parameter([3.0, 4.0])
    with pytest.warns(FutureWarning, match=r"`torch.nn.utils.clip_grad_norm` is now deprecated in favor of") as warned:
        assert UTILS.clip_grad_norm(param, 1.0).item() == 5.0
    assert warned[0].filename == __file__
    np.testing.assert_allclose(param.grad.numpy(), [0.6, 0.8], rtol=1e-6)


# Around it


@pytest.mark.slow
def test_it_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import minigraph.compat.torch as t; t.nn.utils.clip_grad_norm_"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_data_is_the_tensor_without_its_history():
    param = parameter([3.0, 4.0])
    data = param.grad.data
    assert data.mul_(0.5) is data
    assert param.grad.numpy().tolist() == data.numpy().tolist() == [1.5, 2.0]
    assert param.grad.data.mul_(fluid.to_tensor(2.0)).norm(2).item() == 5.0
    assert [param.grad.norm(order).item() for order in ("fro", 1, INF)] == [5.0, 7.0, 4.0]
    weight = fluid.create_parameter([2], "float32")
    assert (weight.data * 2.0).stop_gradient
    assert not (weight * 2.0).stop_gradient
    with pytest.raises(ProgramError, match="cannot become"):
        fluid.to_tensor([2.0]).mul_(fluid.to_tensor([1.0, 2.0]))


def test_tensors_of_one_element_compare():
    small, large = fluid.to_tensor([1.0]), fluid.to_tensor([2.0])
    assert small < large
    assert small <= 1
    assert max([small, large]) is large
    assert not small > np.float32(1.5)
    assert large <= 3
    assert not small >= large


@pytest.fixture(scope="module")
def page():
    """The function on the page, as the example has it."""
    return runpy.run_path(str(ROOT / "examples" / "torch_clip_grad_norm.py"))["clip_grad_norm_"]


ORDINARY = (
    "mixed",
    "many",
    "one",
    "single",
    "exact",
    "none",
    "zero_and_some",
    "zeros",
    "tiny",
    "huge",
    "f64",
    "scalar",
)


@pytest.mark.slow
def test_the_function_on_the_page_does_the_same(page):
    def check_page(case):
        assert not differences(case, clip(case, page), by_definition(case))

    ordinary = [case for case in cases("torch", "clip_grad_norm_") if case.set in ORDINARY and len(case.args) == 2]
    check_all(check_page, {case.id: case for case in ordinary})


@pytest.mark.gpu
def test_gradients_are_clipped_on_a_gpu_too(cuda_place):
    with fluid.dygraph.guard(cuda_place):
        for case in cases("torch"):
            check(case, clip)
