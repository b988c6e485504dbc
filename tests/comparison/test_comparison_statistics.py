"""What comparisons measure of gradients: norms, factors, cosines, shares, and their summaries."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from test_comparison import angle, flat

from minigraph.comparison.statistics import GradientStatistics, Measured, Recorder, cosine, l2_norm, summarize

pytestmark = pytest.mark.numbers

finite_arrays = arrays.arrays(np.float64, st.integers(0, 20), elements=st.floats(-100, 100, allow_subnormal=False))


@pytest.mark.slow
@given(finite_arrays)
def test_l2_norm_is_numpys(array):
    assert l2_norm(array) == pytest.approx(np.linalg.norm(array), rel=1e-12, abs=1e-150)


@pytest.mark.slow
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


def recorded(*batches):
    """The statistics of each array and of all together; a batch is (arrays before, arrays after)."""
    recorder = Recorder([str(index) for index in range(len(batches[0][0]))])
    for before, after in batches:
        recorder.add(Measured([np.asarray(a) for a in before]), [np.asarray(a) for a in after])
    return [*recorder.parameters().values(), recorder.total()]


ZERO, ONE = np.zeros(3), np.ones(3)


def test_a_zero_gradient_has_factor_one_as_long_as_it_stays_zero():
    kept, _ = recorded(([ZERO], [ZERO]))
    assert (kept.factor.tolist(), kept.share_clipped) == ([1.0], 0)
    moved, _ = recorded(([ZERO], [ONE]))
    assert (moved.factor.tolist(), moved.share_clipped) == ([math.inf], 1)


def test_nan_stays_visible_and_does_not_count_as_clipped():
    broken = np.array([np.nan, 1.0])
    found, total = recorded(([broken], [broken.copy()]))
    assert math.isnan(found.factor[0]) and math.isnan(total.norm_after[0])
    assert found.share_clipped == total.share_clipped == 0
    healed, _ = recorded(([broken], [np.array([0.0, 1.0])]))
    assert healed.share_changed.tolist() == [0.5]


def test_a_gradient_without_elements_changes_nothing():
    empty, whole, total = recorded(([np.zeros(0), ONE], [np.zeros(0), ONE / 2]))
    assert (empty.norm_before[0], empty.share_changed[0]) == (0, 0)
    assert total.factor[0] == pytest.approx(whole.factor[0]) == pytest.approx(0.5)


def test_summaries_are_over_batches_and_leave_out_undefined_cosines():
    statistics = GradientStatistics(*map(np.array, ([4.0, 2.0], [1.0, 2.0], [0.5, math.nan], [1.0, 0.0])))
    assert [statistics.summary(name).mean for name in ("norm_before", "norm_after", "factor")] == [3, 1.5, 0.625]
    assert (statistics.share_clipped, statistics.summary("cosine").mean) == (0.5, 0.5)
    assert statistics.summary("norm_before").median == 3
    assert math.isnan(summarize(np.zeros(0)).max)
    with pytest.raises(ValueError, match="read-only"):
        statistics.norm_before[0] = 0


@pytest.mark.slow
@given(st.data(), st.integers(-40, 30))
def test_all_gradients_together_are_one_vector(data, exponent):
    elements = st.floats(-1, 1, allow_subnormal=False)
    shapes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    draw = [[data.draw(arrays.arrays(np.float64, size, elements=elements)) for size in shapes] for _ in range(2)]
    before, after = ([array * 10.0**exponent for array in half] for half in draw)
    total = recorded((before, after))[-1]
    a, b = flat(draw[0]), flat(draw[1])
    tiny = 1e-140 * 10.0**exponent  # where the squares that NumPy's norm is made of are lost
    assert total.norm_before[0] == pytest.approx(np.linalg.norm(a) * 10.0**exponent, rel=1e-9, abs=tiny)
    assert total.norm_after[0] == pytest.approx(np.linalg.norm(b) * 10.0**exponent, rel=1e-9, abs=tiny)
    if min(np.linalg.norm(a), np.linalg.norm(b)) > 1e-100:
        assert total.cosine[0] == pytest.approx(angle(a, b), abs=1e-9)
    assert total.share_changed[0] == pytest.approx(np.mean(flat(before) != flat(after)))
