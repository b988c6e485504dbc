"""Strategies as words of the command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigraph.clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from minigraph.comparison.clip_text import clip_text, parse_clip
from minigraph.errors import ClipError, NotFoundError


@pytest.mark.parametrize(
    ("text", "clip"),
    [
        ("norm=2", GradientClipByNorm(2.0)),
        ("global_norm=1e-3", GradientClipByGlobalNorm(1e-3)),
        ("value=0.1", GradientClipByValue(0.1)),
        ("value=-0.05:0.1", GradientClipByValue(max=0.1, min=-0.05)),
        ("GradientClipByNorm(clip_norm=2)", GradientClipByNorm(2.0)),
    ],
)
def test_clips_are_parsed(text, clip):
    assert parse_clip(text) == clip


positive = st.floats(min_value=1e-30, max_value=1e30)


@pytest.mark.slow
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
     "value=:", "value=1:", "value=nan:1", "norm=1:2", "GradientClipByNorm(clip_norm=0)",
     "GradientClipByNorm(clip_norm=1", "ErrorClipByValue(max=1)", "GradientClipByNorm(clip_norm=1) 2",
     "NoSuchClip(clip_norm=1)"],
)  # fmt: skip
def test_a_threshold_that_makes_no_sense_is_an_error(text):
    with pytest.raises(ClipError):
        parse_clip(text)


def test_a_strategy_with_a_function_is_not_mistaken_for_one_without():
    assert clip_text(GradientClipByNorm(2.0, need_clip=len)).startswith("GradientClipByNorm(")
    assert clip_text(GradientClipByNorm(2.0, need_clip=len)) != clip_text(GradientClipByNorm(2.0))


def test_a_strategy_with_options_beside_the_threshold_says_so():
    clip = GradientClipByGlobalNorm(1.0, nonfinite="zero")
    assert clip_text(clip) != "global_norm=1"
    assert parse_clip(clip_text(clip)) == clip


def test_a_misspelt_kind_is_an_error_that_suggests_the_right_one():
    with pytest.raises(NotFoundError, match="Did you mean norm"):
        parse_clip("nrom=2")
    with pytest.raises(NotFoundError, match="The kinds are norm, global_norm, value"):
        parse_clip("xyz=2")
