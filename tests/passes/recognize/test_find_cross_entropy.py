"""FindCrossEntropy names cross entropies that are written out, and keeps loss and gradient up to rounding."""

import numpy as np
import pytest
from pass_laws import assert_linear, op_lines, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import FindCrossEntropy, RemoveDeadOps

CLASSES = 5
LOG_P = {
    "log of softmax": lambda z: layers.log(layers.softmax(z)),
    "log_softmax": fluid.nn.functional.log_softmax,
    "by hand": lambda z: z - layers.log(layers.reduce_sum(layers.exp(z), dim=[-1], keep_dim=True)),
}
each_form = pytest.mark.parametrize("log_p", LOG_P.values(), ids=LOG_P)


def of_label(z, y, dim=-1, hot_first=False, keep_dim=True):
    hot = layers.one_hot(y, CLASSES)
    product = layers.elementwise_mul(hot, z) if hot_first else z * hot
    return layers.reduce_sum(product, dim=dim, keep_dim=keep_dim)


def picked(log_p, y, factor=-1.0, **options):
    return layers.scale(of_label(log_p, y, **options), factor)


def log_of_sum(z, dim=-1):
    return layers.log(layers.reduce_sum(layers.exp(z), dim=dim, keep_dim=True))


def top_first(z, dim=-1):
    top = layers.reduce_max(z, dim=dim, keep_dim=True)
    return top + log_of_sum(z - top, dim)


def top_last(z, dim=-1):
    top = layers.reduce_max(z, dim=dim, keep_dim=True)
    return log_of_sum(z - top, dim) + top


def stopped_top(is_first):
    def log(z, dim=-1):
        top = layers.reduce_max(z, dim=dim, keep_dim=True)
        top.stop_gradient = True
        return top + log_of_sum(z - top, dim) if is_first else log_of_sum(z - top, dim) + top

    return log


def squeezed_loss(z, y):
    return layers.log(layers.reduce_sum(layers.exp(z), dim=-1)) - of_label(z, y, keep_dim=False)


LOGS = {
    "log of sum": log_of_sum,
    "maximum first": top_first,
    "maximum last": top_last,
    "stopped maximum first": stopped_top(True),
    "stopped maximum last": stopped_top(False),
}
each_log = pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)


def less_picked(log):
    """The loss in which the logit of the label is subtracted from the logarithm of the sum."""

    def loss(z, y, dim=-1, hot_first=False):
        return log(z, dim) - of_label(z, y, dim, hot_first)

    return loss


def build(log_p, has_gradient=True, **options):
    """The main program, and the names of loss and gradient."""
    return build_of(lambda x, y: picked(log_p(x), y, **options), has_gradient)


def build_of(each_loss, has_gradient=True):
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x, y = fluid.data("x", [4, CLASSES]), fluid.data("y", [4, 1], "int64")
        x.stop_gradient = False
        loss = layers.mean(each_loss(x * 1.0, y))
        gradients = fluid.gradients(loss, x) if has_gradient else []
    return main, [each.name for each in (loss, *gradients)]


def run(executor, program, fetch, x, y=(0, 4, 2, 2)):
    feed = {"x": np.asarray(x, "float32"), "y": np.array(y).reshape(4, 1)}
    return executor.run(program, feed=feed, fetch_list=fetch, scope=fluid.Scope())


def types(program, fetch):
    private = program.clone()
    private.roots, private.is_concrete = tuple(fetch), True  # as in an executor: no gradients are appended later
    FindCrossEntropy().apply(private)
    RemoveDeadOps().apply(private)
    return [op.type for op in private.global_block().ops]


NUMBERS = np.random.default_rng(0).normal(size=(4, CLASSES)) * 3


@each_form
@pytest.mark.parametrize(
    "options",
    [
        {}, {"dim": 1}, {"hot_first": True}, {"keep_dim": False}, {"factor": 2.0}, {"factor": -0.25, "dim": None},
        {"dim": [0, 1], "keep_dim": False}, {"dim": None, "keep_dim": False, "hot_first": True},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("has_gradient", [True, False])
def test_loss_and_gradient_are_those_of_the_single_operators(log_p, has_gradient, options):
    program, fetch = build(log_p, has_gradient, **options)
    expected = run(Interpreter(), program, fetch, NUMBERS)
    executor = fluid.Executor(passes=pipeline(FindCrossEntropy()))
    for found, value in zip(run(executor, program, fetch, NUMBERS), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-7)
    assert "one_hot" not in types(program, fetch)


@each_log
@pytest.mark.parametrize("options", [{}, {"dim": 1}, {"hot_first": True}], ids=str)
@pytest.mark.parametrize("has_gradient", [True, False])
def test_the_logarithm_of_a_sum_less_the_logit_is_a_loss(log, has_gradient, options):
    program, fetch = build_of(lambda x, y: less_picked(log)(x, y, **options), has_gradient)
    expected = run(Interpreter(), program, fetch, NUMBERS)
    executor = fluid.Executor(passes=pipeline(FindCrossEntropy()))
    for found, value in zip(run(executor, program, fetch, NUMBERS), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
    assert not {"one_hot", "reduce_max", "log", "exp"} & {*types(program, fetch)}


@each_log
@pytest.mark.parametrize(
    "loss",
    [
        lambda log, x, y: log(x, 0) - of_label(x, y),  # over the rows
        lambda log, x, y: log(x) - of_label(x, y, 0),
        lambda log, x, y: log(x) - of_label(x * 2.0, y),  # of other logits
        lambda log, x, y: of_label(x, y) - log(x),
    ],
)
def test_other_differences_stay(log, loss):
    program, fetch = build_of(lambda x, y: layers.reduce_sum(loss(log, x, y)))
    assert "one_hot" in types(program, fetch)


def test_a_logarithm_without_a_column_is_a_loss():
    program, fetch = build_of(squeezed_loss)
    expected = run(Interpreter(), program, fetch, NUMBERS)
    executor = fluid.Executor(passes=pipeline(FindCrossEntropy()))
    for found, value in zip(run(executor, program, fetch, NUMBERS), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
    assert not {"one_hot", "log", "exp"} & {*types(program, fetch)}


@each_form
@pytest.mark.parametrize("options", [{"dim": 0}, {"dim": [0], "keep_dim": False}], ids=str)
def test_sums_over_rows_alone_stay(log_p, options):
    program, fetch = build(log_p, **options)
    assert "one_hot" in types(program, fetch)


def test_a_maximum_of_another_value_stays():
    def loss(x, y):
        top = layers.reduce_max(x * 2.0, dim=-1, keep_dim=True)
        return log_of_sum(x - top) + top - of_label(x, y)

    program, fetch = build_of(loss)
    assert "one_hot" in types(program, fetch)


@each_form
@pytest.mark.parametrize(
    "options", [{}, {"keep_dim": False}, {"dim": None, "factor": -0.25, "keep_dim": False}], ids=str
)
def test_the_loss_is_one_operator_afterwards(log_p, options):
    program, fetch = build(log_p, **options)
    executor = fluid.Executor()
    run(executor, program, fetch, NUMBERS)
    types = [step.op.type for step in executor.plans[-1].steps.steps]
    assert "fused_mean_loss" in types
    assert not {"exp", "log", "one_hot", "softmax", "reduce_sum", "elementwise_mul"} & set(types)


def test_the_operators_are_named():
    text = """
        block 0
          data x: float32[4, 3]
          data y: int64[4, 1]
          data d: float32[4, 1]
          p: float32[4, 3] = softmax(X=x)
          l: float32[4, 3] = log(X=p)
          h: float32[4, 3] = one_hot(X=y) {depth=3}
          m: float32[4, 3] = elementwise_mul(X=l, Y=h)
          s: float32[4, 1] = reduce_sum(X=m) {dim=[1], keep_dim=True}
          loss: float32[4, 1] = scale(X=s) {scale=-1.0}
          s@GRAD: float32[4, 1] = scale(X=d) {scale=-1.0}
          m@GRAD: float32[4, 3] = reduce_sum_grad(X=m, Out@GRAD=s@GRAD) {dim=[1], keep_dim=True}
          X@GRAD=l@GRAD: float32[4, 3] = elementwise_mul_grad(X=l, Y=h, Out@GRAD=m@GRAD)
          p@GRAD: float32[4, 3] = log_grad(X=p, Out@GRAD=l@GRAD)
    """
    ignored, new = "{ignore_index=-2147483648}", "cross_entropy2_0.tmp"
    with fluid.unique_name.guard():
        lines = op_lines(FindCrossEntropy(), text, ["loss", "p@GRAD"])
    assert lines == [
        "p = softmax(X=x)",
        f"Y={new}_0, XShape={new}_1, MatchX={new}_2 = cross_entropy2(X=p, Label=y) {ignored}",
        f"s = scale(X={new}_0) {{scale=-1.0}}",
        "loss = scale(X=s) {scale=-1.0}",
        "s@GRAD = scale(X=d) {scale=-1.0}",
        "scale_0.tmp_0 = scale(X=s@GRAD) {scale=-1.0}",
        f"p@GRAD = cross_entropy_grad2(MatchX={new}_2, Label=y, XShape={new}_1, Y@GRAD=scale_0.tmp_0) {ignored}",
    ]
    # What else reads an intermediate value needs it.
    for other in ("m", "h", "l@GRAD", "m@GRAD"):
        assert "one_hot" in "".join(op_lines(FindCrossEntropy(), text, ["loss", "p@GRAD", other]))
    for old, new in (
        ("depth=3}", "depth=3, allow_out_of_range=True}"),
        ("softmax(X=x)", "softmax(X=x) {axis=0}"), ("Y=h, Out@GRAD", "Y=l, Out@GRAD"),
    ):  # fmt: skip
        assert old in text
        assert "one_hot" in "".join(op_lines(FindCrossEntropy(), text.replace(old, new), ["loss", "p@GRAD"]))


def test_the_new_loss_is_right_where_exponentials_overflow():
    program, fetch = build(LOG_P["by hand"])
    loss, gradient = run(fluid.Executor(), program, fetch, [[200.0, 0, 0, 0, 100]] * 4, (0, 4, 0, 0))
    assert loss == 25 and np.isfinite(gradient).all()


@each_form
def test_a_label_that_is_no_class_is_an_error_as_before(log_p):
    program, fetch = build(log_p)
    for executor in (Interpreter(), fluid.Executor()):
        with pytest.raises(ExecutionError):
            run(executor, program, fetch, NUMBERS, (0, -100, 1, 2))


@pytest.mark.slow
def test_the_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program), fluid.unique_name.guard():
            x, y = fluid.data("x", [4, CLASSES]), fluid.data("y", [4, 1], "int64")
            for _ in range(count // 7):
                x = x + picked(LOG_P["by hand"](x), y)
        program.roots = (x.name,)
        return program

    assert_linear(FindCrossEntropy(), make)
