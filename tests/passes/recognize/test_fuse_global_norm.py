"""FuseGlobalNorm finds fluid's chain for a clip by global norm, and leaves what others want of it."""

import inspect

import numpy as np
import pytest
from pass_laws import assert_linear, rewritten

import minigraph as fluid
from minigraph import layers
from minigraph.ir.verifier import verify
from minigraph.lowering.prune import prune
from minigraph.passes import FuseGlobalNorm

TEXT = """
    block 0
      data g: float32[3]
      data h: float32[2, 2]
      data c: float32[1]
      a: float32[3] = square(X=g)
      b: float32[1] = reduce_sum(X=a) {reduce_all=True}
      d: float32[2, 2] = square(X=h)
      e: float32[1] = reduce_sum(X=d) {reduce_all=True}
      s: float32[1] = sum(X=[b, e])
      n: float32[1] = sqrt(X=s)
      m: float32[1] = elementwise_max(X=c, Y=n)
      f: float32[1] = elementwise_div(X=c, Y=m)
      p: float32[3] = elementwise_mul(X=g, Y=f)
      q: float32[2, 2] = elementwise_mul(X=h, Y=f)
"""
CHAIN = ["square", "reduce_sum", "square", "reduce_sum", "sum"]
FUSED = "clip_by_global_norm"


def types(text, fetch):
    once = rewritten(FuseGlobalNorm(), fluid.Program.parse(inspect.cleandoc(text)), fetch)
    return [op.type for op in once.global_block().ops]


def test_what_only_the_norm_needed_goes_with_it():
    assert types(TEXT, ["p", "q"]) == [FUSED, "elementwise_max", "elementwise_div"]
    assert types(TEXT, ["p", "n"]) == [FUSED, "elementwise_max", "elementwise_div"]


@pytest.mark.parametrize(
    ("fetch", "left"),
    [("s", CHAIN), ("b", CHAIN[:2]), ("e", CHAIN[2:4]), ("a", CHAIN[:1])],
)
def test_what_is_fetched_is_still_computed(fetch, left):
    assert types(TEXT, ["p", "q", fetch])[: len(left) + 1] == [*left, FUSED]


def test_what_others_read_is_still_computed():
    text = TEXT + "      z: float32[3] = tanh(X=a)\n"
    assert types(text, ["p", "q", "z"]) == ["square", FUSED, "elementwise_max", "elementwise_div", "tanh"]
    kept = TEXT.replace("data g", "persist e: float32[1]\n      data g").replace("e: float32[1] = red", "e = red")
    assert types(kept, ["p", "q"]) == ["square", "reduce_sum", FUSED, "elementwise_max", "elementwise_div"]


def test_nothing_is_removed_where_anything_may_be_fetched():
    program = FuseGlobalNorm()(fluid.Program.parse(inspect.cleandoc(TEXT)))
    assert [op.type for op in program.global_block().ops] == [*CHAIN, FUSED, "elementwise_max", "elementwise_div"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum(X=[b, e])", "sum(X=[b, b])"),  # a gradient counted twice
        ("{reduce_all=True}", "{dim=[0], keep_dim=True}"),
        ("elementwise_div(X=c, Y=m)", "elementwise_div(X=n, Y=m)"),
        ("      m: f", "      s = scale(X=s) {scale=2.0}\n      t: float32[1] = tanh(X=n)\n      m: f"),
    ],
)
def test_what_is_another_computation_stays(old, new):
    text = TEXT.replace("data h: float32[2, 2]", "data h: float32[3]").replace("float32[2, 2]", "float32[3]")
    assert FUSED not in types(text.replace(old, new), ["p", "q"])


@pytest.mark.parametrize("fetch", [["p", "q"], ["p", "n"], ["p", "q", "s"], ["q", "e", "a"], ["n"], ["a", "m"]])
@pytest.mark.parametrize("after", ["", "z: float32[3] = tanh(X=a)", "s = scale(X=s) {scale=2.0}"])
def test_what_goes_need_not_be_copied_first(fetch, after):
    program = fluid.Program.parse(inspect.cleandoc(f"{TEXT}      {after}"))
    fetch = [*fetch, *["z"] * after.startswith("z")]
    copied = prune(program, ["g", "h", "c"], fetch)
    FuseGlobalNorm().apply(copied)
    at_once = prune(program, ["g", "h", "c"], fetch, fuse_norms=True)
    for one, other in zip(copied.global_block().ops, at_once.global_block().ops, strict=True):
        assert one.structure() == other.structure()
        assert one.site == other.site
    used = {name for op in at_once.global_block().ops for name in (*op.input_arg_names, *op.output_arg_names)}
    assert used <= set(at_once.global_block().vars) <= set(copied.global_block().vars)
    verify(at_once)


def test_numbers_are_those_of_numpy():
    program = fluid.Program.parse(inspect.cleandoc(TEXT))
    feed = {"g": np.array([3, 0, 4], "float32"), "h": np.full((2, 2), 6, "float32"), "c": np.array([1.3], "float32")}
    p, q, n, e = fluid.Executor().run(program, feed, ["p", "q", "n", "e"])
    assert (n, e) == (13, 144)
    np.testing.assert_allclose(p, [0.3, 0, 0.4], rtol=1e-6)
    np.testing.assert_allclose(q, np.full((2, 2), 0.6), rtol=1e-6)


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
            params = [layers.create_parameter([2], "float32", name=f"w{i}") for i in range(count // 4)]
            pairs = [(param, fluid.data(f"g_{param.name}", [2])) for param in params]
            clipped = fluid.clip.GradientClipByGlobalNorm(1.0)(pairs)
        program.roots = tuple(grad.name for _, grad in clipped)
        return program

    assert_linear(FuseGlobalNorm(), make)
