"""The clip comparison against gradients worked out here, in NumPy and float64."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import minigraph as fluid
from minigraph import comparison
from minigraph.clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from minigraph.comparison import Change, Changes, change, clip_text, compare, cosine, l2_norm, parse_clip
from minigraph.errors import ClipError, DataError, NotFoundError
from minigraph.ir import Role

SEED, SIZE, COUNT = 7, 32, 4
PARAMETERS = ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0", "fc_2.w_0", "fc_2.b_0"]
SMALL, HUGE = 1e-3, 1e6  # below and above every norm here


def run(*clips, **options):
    return compare(clips, **{"batches": COUNT, "batch_size": SIZE, "seed": SEED, **options})


@pytest.fixture(scope="module")
def scope():
    """Start values, made by a run of the startup program of this test's own."""
    with fluid.unique_name.guard():
        network = comparison.build_network(SEED)
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(network.startup, scope=scope)
    return scope


@pytest.fixture(scope="module")
def params(scope):
    return [np.array(scope.find_var(name).get_tensor()).astype(np.float64) for name in PARAMETERS]


@pytest.fixture(scope="module")
def batches():
    samples = list(fluid.dataset.digits.train(28)())
    random.seed(SEED)
    random.shuffle(samples)
    rows = [samples[start : start + SIZE] for start in range(0, COUNT * SIZE, SIZE)]
    return [(np.stack([image for image, _ in batch]), np.array([label for _, label in batch])) for batch in rows]


def loss_and_gradients(params, images, labels):
    """Mean cross entropy of the network and its gradients: the chain rule by hand."""
    w1, b1, w2, b2, w3, b3 = params
    x = images.astype(np.float64)
    before1 = x @ w1 + b1
    hidden1 = np.maximum(before1, 0)
    before2 = hidden1 @ w2 + b2
    hidden2 = np.maximum(before2, 0)
    logits = hidden2 @ w3 + b3
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).mean()

    d_logits = probabilities.copy()
    d_logits[rows, labels] -= 1
    d_logits /= len(labels)
    d_before2 = (d_logits @ w3.T) * (before2 > 0)
    d_before1 = (d_before2 @ w2.T) * (before1 > 0)
    by_layer = [(x, d_before1), (hidden1, d_before2), (hidden2, d_logits)]
    return loss, [grad for inputs, d_out in by_layer for grad in (inputs.T @ d_out, d_out.sum(axis=0))]


@pytest.fixture(scope="module")
def expected(params, batches):
    """Loss and gradients of each batch."""
    return [loss_and_gradients(params, *batch) for batch in batches]


def flat(grads):
    return np.concatenate([grad.ravel() for grad in grads])


# The numbers


def test_norms_before_clipping_are_those_of_the_networks_gradients(expected):
    result = run(GradientClipByNorm(SMALL))
    [clip] = result.clips
    assert [param.name for param in clip.parameters] == PARAMETERS
    assert [batch.loss for batch in result.batches] == pytest.approx([loss for loss, _ in expected], rel=1e-5)
    for index, param in enumerate(clip.parameters):
        norms = [np.linalg.norm(grads[index]) for _, grads in expected]
        assert [change.norm_before for change in param.batches] == pytest.approx(norms, rel=1e-5)
        assert param.shape == expected[0][1][index].shape
    norms = [np.linalg.norm(flat(grads)) for _, grads in expected]
    assert [change.norm_before for change in clip.total.batches] == pytest.approx(norms, rel=1e-5)


def by_norm(grads, limit):
    return [grad * min(1.0, limit / np.linalg.norm(grad)) for grad in grads]


def by_global_norm(grads, limit):
    return [grad * min(1.0, limit / np.linalg.norm(flat(grads))) for grad in grads]


def by_value(grads, limit):
    return [np.clip(grad, -limit, limit) for grad in grads]


FORMULAS = [
    (GradientClipByNorm, by_norm, 0.5),
    (GradientClipByNorm, by_norm, SMALL),
    (GradientClipByGlobalNorm, by_global_norm, 1.0),
    (GradientClipByValue, by_value, 0.05),
]


@pytest.mark.parametrize(("strategy", "formula", "limit"), FORMULAS)
def test_norms_after_clipping_are_those_of_the_formula(expected, strategy, formula, limit):
    [clip] = run(strategy(limit)).clips
    for number, (_, grads) in enumerate(expected):
        clipped = formula(grads, limit)
        for param, before, after in zip(clip.parameters, grads, clipped, strict=True):
            found = param.batches[number]
            assert found.norm_after == pytest.approx(np.linalg.norm(after), rel=1e-5)
            assert found.factor == pytest.approx(np.linalg.norm(after) / np.linalg.norm(before), rel=1e-5)
            assert found.cosine == pytest.approx(cosine(before, after), abs=1e-6)
        assert clip.total.batches[number].norm_after == pytest.approx(np.linalg.norm(flat(clipped)), rel=1e-5)


@pytest.mark.parametrize(("strategy", "formula", "limit"), FORMULAS)
def test_the_clone_computes_the_formula_element_by_element(scope, batches, expected, strategy, formula, limit):
    [clip] = run(strategy(limit)).clips
    names = [op.output("Out")[0] for op in list(clip.program.global_block().ops)[-len(PARAMETERS) :]]
    for (images, labels), (_, grads) in zip(batches, expected, strict=True):
        feed = {"x": images, "y": labels[:, None]}
        found = fluid.Executor(fluid.CPUPlace()).run(clip.program, feed=feed, fetch_list=names, scope=scope)
        for array, clipped in zip(found, formula(grads, limit), strict=True):
            np.testing.assert_allclose(array, clipped, rtol=1e-3, atol=1e-6 * np.abs(clipped).max())


@pytest.mark.parametrize("strategy", [GradientClipByNorm, GradientClipByGlobalNorm, GradientClipByValue])
def test_a_threshold_above_everything_changes_nothing(strategy):
    [clip] = run(strategy(HUGE)).clips
    for changes in (*clip.parameters, clip.total):
        assert all(found.factor == 1 and not found.clipped for found in changes.batches)
        assert (changes.mean_factor, changes.share_clipped) == (1, 0)
        assert changes.mean_norm_before == changes.mean_norm_after
        assert changes.mean_cosine == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("strategy", [GradientClipByNorm, GradientClipByGlobalNorm])
def test_a_threshold_below_everything_is_the_norm_afterwards(strategy):
    [clip] = run(strategy(SMALL)).clips
    assert all(param.share_clipped == 1 for param in clip.parameters)
    afterwards = [clip.total] if strategy is GradientClipByGlobalNorm else clip.parameters
    assert [changes.mean_norm_after for changes in afterwards] == pytest.approx([SMALL] * len(afterwards), rel=1e-5)


# The experiment


def numbers(clip):
    return clip.parameters, clip.total


def operators(program):
    """All there is to the operators but their name scopes, which are counted by the process."""
    return [(op.type, op.inputs, op.outputs, op.attrs, op.role, op.role_vars) for op in program.global_block().ops]


def test_several_clips_at_once_are_as_each_on_its_own():
    clips = [GradientClipByNorm(0.2), GradientClipByNorm(0.5), GradientClipByGlobalNorm(1.0), GradientClipByValue(0.05)]
    together = run(*clips).clips
    for clip, found in zip(clips, together, strict=True):
        [alone] = run(clip).clips
        assert found.clip is clip
        assert numbers(found) == numbers(alone)
        assert operators(found.program) == operators(alone.program)


def test_a_clone_differs_from_the_unclipped_program_by_its_clips_operators():
    result = run(GradientClipByNorm(2.0), GradientClipByGlobalNorm(1.0), batches=1)
    unclipped = operators(result.program)
    for clip in result.clips:
        ops = operators(clip.program)
        assert ops[: len(unclipped)] == unclipped
        assert all(role & Role.CLIP for *_, role, _ in ops[len(unclipped) :])
        assert len(ops) > len(unclipped)


def test_equal_seeds_give_equal_results_and_others_do_not():
    results = [run(GradientClipByNorm(0.5), seed=seed) for seed in (SEED, SEED, SEED + 1)]
    first, again, other = [(result.batches, numbers(result.clips[0])) for result in results]
    assert first == again
    assert first != other


def test_all_batches_see_the_start_values_unless_there_is_a_learning_rate(params, batches):
    still = run(GradientClipByNorm(0.5))
    moved = run(GradientClipByNorm(0.5), learning_rate=0.1)
    assert still.batches[0] == moved.batches[0]
    assert still.clips[0].total.batches[0] == moved.clips[0].total.batches[0]
    for batch, found in zip(batches, moved.batches, strict=True):
        loss, grads = loss_and_gradients(params, *batch)
        assert found.loss == pytest.approx(loss, rel=1e-4)
        params = [param - 0.1 * grad for param, grad in zip(params, grads, strict=True)]


def test_training_lowers_the_loss():
    result = run(GradientClipByNorm(0.5), batches=24, batch_size=128, learning_rate=0.05)
    assert result.batches[-1].loss < 0.7 * result.batches[0].loss


def test_the_data_are_read_again_when_they_end():
    samples = [(np.full(784, value / 10, np.float32), value) for value in range(5)]
    result = run(GradientClipByNorm(0.5), reader=lambda: samples, batches=5, batch_size=2)
    assert [batch.size for batch in result.batches] == [2, 2, 1, 2, 2]


def test_on_batch_is_called_after_each_batch():
    calls = []
    run(GradientClipByNorm(0.5), on_batch=lambda: calls.append(len(calls)))
    assert calls == [0, 1, 2, 3]


def test_a_comparison_leaves_no_trace():
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    before = str(main), str(startup), random.getstate(), list(fluid.global_scope().local_var_names())
    name = fluid.unique_name.generate("trace")
    run(GradientClipByNorm(0.5), learning_rate=0.1, batches=1)
    assert before == (str(main), str(startup), random.getstate(), list(fluid.global_scope().local_var_names()))
    assert fluid.unique_name.generate("trace") == f"trace_{int(name.rpartition('_')[2]) + 1}"


def test_a_comparison_without_clips_is_the_unclipped_program_alone():
    result = run()
    assert result.clips == ()
    assert len(result.batches) == COUNT


@pytest.mark.parametrize(
    "options",
    [{"batches": 0}, {"batch_size": 0}, {"seed": 0}, {"learning_rate": 0.0}, {"learning_rate": math.nan}],
)
def test_a_number_out_of_range_is_an_error(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        run(GradientClipByNorm(0.5), **options)


def test_a_reader_without_samples_is_an_error():
    with pytest.raises(DataError, match="no samples"):
        run(GradientClipByNorm(0.5), reader=lambda: [])


@pytest.mark.gpu
@pytest.mark.skipif(not fluid.is_compiled_with_cuda(), reason="needs CuPy and a CUDA device")
def test_a_gpu_gives_the_same_numbers():
    clips = [GradientClipByNorm(0.5), GradientClipByGlobalNorm(1.0), GradientClipByValue(0.05)]
    cpu, gpu = run(*clips), run(*clips, place=fluid.CUDAPlace(0))
    for one, other in zip(cpu.clips, gpu.clips, strict=True):
        for a, b in zip((*one.parameters, one.total), (*other.parameters, other.total), strict=True):
            assert a.mean_norm_before == pytest.approx(b.mean_norm_before, rel=1e-4)
            assert a.mean_norm_after == pytest.approx(b.mean_norm_after, rel=1e-4)
            assert a.share_clipped == b.share_clipped


# Norms and factors

finite_arrays = arrays.arrays(np.float64, st.integers(0, 20), elements=st.floats(-100, 100, allow_subnormal=False))


@given(finite_arrays)
def test_l2_norm_is_numpys(array):
    assert l2_norm(array) == pytest.approx(np.linalg.norm(array), rel=1e-12, abs=1e-150)


@given(finite_arrays, st.integers(-900, 900))
def test_l2_norm_scales_with_its_argument(array, exponent):
    scaled = np.ldexp(array, exponent)
    if np.array_equal(np.ldexp(scaled, -exponent), array):  # nothing was lost on the way
        assert l2_norm(scaled) == pytest.approx(math.ldexp(l2_norm(array), exponent), rel=1e-12)


def test_l2_norm_of_what_is_not_finite_shows_it():
    assert l2_norm(np.array([1.0, np.inf])) == math.inf
    assert math.isnan(l2_norm(np.array([1.0, np.nan])))
    assert l2_norm(np.full(4, 1e38, np.float32)) == pytest.approx(2e38)


def test_cosine_tells_directions_apart():
    assert cosine(np.array([1e300, 0.0]), np.array([1e-300, 0.0])) == 1
    assert cosine(np.array([1.0, 0.0]), np.array([0.0, 3.0])) == 0
    assert cosine(np.array([1.0, 1.0]), np.array([-2.0, -2.0])) == pytest.approx(-1)
    assert math.isnan(cosine(np.zeros(2), np.ones(2)))
    assert math.isnan(cosine(np.array([np.inf, 1.0]), np.ones(2)))


def test_a_zero_gradient_has_factor_one_as_long_as_it_stays_zero():
    zero = np.zeros(3, np.float32)
    assert change(zero, zero).factor == 1
    assert not change(zero, zero).clipped
    assert change(zero, zero + 1).factor == math.inf


def test_nan_stays_visible_and_does_not_count_as_clipped():
    broken = np.array([np.nan, 1.0])
    assert math.isnan(change(broken, broken).factor)
    assert not change(broken, broken).clipped


def test_means_are_over_batches_and_leave_out_undefined_cosines():
    changes = Changes((Change(4.0, 1.0, True, 0.5), Change(2.0, 2.0, False, math.nan)))
    assert (changes.mean_norm_before, changes.mean_norm_after) == (3, 1.5)
    assert (changes.mean_factor, changes.share_clipped, changes.mean_cosine) == (0.625, 0.5, 0.5)
    assert math.isnan(Changes((Change(0.0, 0.0, False, math.nan),)).mean_cosine)


# Clips as text


@pytest.mark.parametrize(
    ("text", "clip"),
    [
        ("norm=2", GradientClipByNorm(2.0)),
        ("global_norm=1e-3", GradientClipByGlobalNorm(1e-3)),
        ("value=0.1", GradientClipByValue(0.1)),
        ("value=-0.05:0.1", GradientClipByValue(max=0.1, min=-0.05)),
    ],
)
def test_clips_are_parsed(text, clip):
    assert parse_clip(text) == clip


positive = st.floats(min_value=1e-30, max_value=1e30)


@given(
    st.builds(GradientClipByNorm, positive)
    | st.builds(GradientClipByGlobalNorm, positive)
    | st.builds(GradientClipByValue, positive)
    | st.builds(lambda low, width: GradientClipByValue(max=low + width, min=low), st.floats(-10, 10), st.floats(1, 10))
)
def test_printing_and_parsing_clips_are_inverse(clip):
    assert parse_clip(clip_text(clip)) == clip


def test_a_clip_of_another_kind_prints_as_in_a_program():
    assert clip_text(GradientClipByGlobalNorm(1.0)) == "global_norm=1"

    class Custom(GradientClipByNorm):
        pass

    assert clip_text(Custom(2.0)) == "Custom(clip_norm=2.0)"


@pytest.mark.parametrize(
    "text",
    ["norm", "norm=", "norm=two", "norm=0", "norm=-1", "norm=nan", "global_norm=inf", "value=0", "value=0.1:-0.1",
     "value=:", "value=1:", "value=nan:1", "norm=1:2"],
)  # fmt: skip
def test_a_threshold_that_makes_no_sense_is_an_error(text):
    with pytest.raises(ClipError):
        parse_clip(text)


def test_a_misspelt_kind_is_an_error_that_suggests_the_right_one():
    with pytest.raises(NotFoundError, match="Did you mean norm"):
        parse_clip("nrom=2")
    with pytest.raises(NotFoundError, match="The kinds are norm, global_norm, value"):
        parse_clip("xyz=2")
