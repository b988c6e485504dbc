"""Programs that train, made at random, for laws that hold for every program.

A `Recipe` is plain data that `minigraph.rewrite.strategies` draws and shrinks; `build` follows it. Following it twice
gives equal programs with equal names, so one can be rewritten and compared with the other.

Most steps take values of shape [rows, columns] and give one of that shape, so that any step can follow any other. What
happens inside has other shapes, ranks and element types. The steps of `free_steps` take values of any shape; where what
they are given does not suit them they are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph import clip, layers, optimizer, regularizer, unique_name
from minigraph.errors import MinigraphError
from minigraph.ir import Parameter, Program, Variable, VarKind
from minigraph.ir.default_programs import program_guard
from minigraph.layers.io import fluid_data as data
from minigraph.rewrite.random_programs.free_steps import CLASSES, FREE, OF_SAMPLES, Sources


@dataclass(frozen=True)
class RecipeStep:
    """One step: what is done, to which earlier values (counted back from the latest), with which number."""

    kind: str
    x: int = 0
    y: int = 1
    number: float = 0.5


@dataclass(frozen=True)
class Clip:
    """Clip and its threshold."""

    kind: str
    threshold: float

    def strategy(self, **options: Any) -> Any:
        if self.kind == "value":
            return clip.GradientClipByValue(max=self.threshold, min=-2 * self.threshold, **options)
        if self.kind == "norm":
            return clip.GradientClipByNorm(self.threshold, **options)
        return clip.GradientClipByGlobalNorm(self.threshold, **options)


@dataclass(frozen=True)
class Training:
    """Optimizer of the parameters, with its clips and decay."""

    optimizer: str
    grad_clip: Clip | None = None
    set_clips: tuple[Clip | None, ...] = ()
    """Clips that `set_gradient_clip` gives to the parameters, in turn; for training without `grad_clip`."""
    decay: str | None = None
    error_clip: float | None = None
    """Bound on the gradient of the first step's value."""


@dataclass(frozen=True)
class Recipe:
    """All that decides a program and what is fed to it."""

    seed: int
    rows: int
    rows_are_known: bool
    dtype: str
    steps: tuple[RecipeStep, ...]
    stopped: int | None = None
    """Number of a step whose value gets ``stop_gradient``."""
    training: Training | None = None
    columns: int = 3


@dataclass
class Built:
    """The program that a recipe describes."""

    recipe: Recipe
    main: Program
    startup: Program
    values: list[Variable]
    """The value that each step gives; the first is that of the layer on the fed data."""
    loss: Variable
    params_grads: list[tuple[Parameter, Variable]]
    """Empty unless the recipe trains."""
    others: list[Variable]
    """Results of free steps."""
    fed: dict[str, np.ndarray]
    """Arrays that are fed besides, the same in every batch."""

    def fetchable(self) -> list[str]:
        """Every variable that a run computes or knows and that can be fetched, by name."""
        block = self.main.global_block()
        return [name for name, var in block.vars.items() if var.kind is not VarKind.STEP_SCOPES]

    def feed(self, batch: int = 0) -> dict[str, np.ndarray]:
        """Arrays for the inputs; another batch has other numbers."""
        random = np.random.default_rng([self.recipe.seed, 1, batch])
        shape = (self.recipe.rows, self.recipe.columns)
        return self.fed | {
            "x": random.uniform(-1.5, 1.5, shape).astype(self.recipe.dtype),
            "label": random.integers(0, CLASSES, (self.recipe.rows, 1)),
        }


def over(y: Variable, type: str, **attrs: Any) -> Variable:
    """`y`, which an operator has overwritten."""
    y.block.append_op(type, {"X": y}, {"Out": y}, attrs)
    return y


def reshaped_in_place(x: Variable, y: Variable, columns: int) -> Variable:
    """`x` times `y`, which has had another shape in between, and a mean of what it was then."""
    mean = layers.mean(layers.tanh(layers.reshape(y, [-1], inplace=True)))
    return layers.elementwise_add(x * layers.reshape(y, [-1, columns], inplace=True), mean)


def assigned_in_a_branch(x: Variable, y: Variable, number: float) -> Variable:
    """`y`, or ``tanh(x)`` written over it, as the number decides when the program runs."""
    decides = layers.less_than(layers.fill_constant([1], "float32", number), layers.fill_constant([1], "float32", 0.0))
    with layers.Switch() as switch, switch.case(decides):
        layers.assign(layers.tanh(x) * y, y)
    return layers.assign(y)


StepFunction = Callable[[Sources, Variable, Variable, float], Variable]
_SMOOTH: dict[str, StepFunction] = {
    "linear": lambda k, x, y, c: k.linear(x),
    "linear_tanh": lambda k, x, y, c: k.linear(x, act="tanh"),
    "linear_shared": lambda k, x, y, c: k.linear(x, weight="shared"),
    "linear_of_both": lambda k, x, y, c: layers.tanh(k.linear(layers.concat([x, y], axis=1))),
    "tanh": lambda k, x, y, c: layers.tanh(x),
    "sigmoid": lambda k, x, y, c: layers.sigmoid(x),
    "softmax": lambda k, x, y, c: layers.softmax(x),
    "log_softmax": lambda k, x, y, c: layers.log(layers.softmax(layers.tanh(x))),
    "square": lambda k, x, y, c: layers.square(layers.tanh(x)),
    "exp": lambda k, x, y, c: layers.exp(layers.tanh(x)),
    "sqrt": lambda k, x, y, c: layers.sqrt(layers.sigmoid(x)),
    "scale": lambda k, x, y, c: layers.scale(x, scale=c, bias=0.5 - c),
    "scale_after_bias": lambda k, x, y, c: layers.scale(x, scale=c, bias=0.5, bias_after_scale=False),
    "add": lambda k, x, y, c: layers.elementwise_add(x, y),
    "subtract": lambda k, x, y, c: x - y,
    "multiply": lambda k, x, y, c: layers.elementwise_mul(layers.tanh(x), y),
    "divide": lambda k, x, y, c: x / (layers.sigmoid(y) + 0.5),
    "twice_itself": lambda k, x, y, c: layers.elementwise_add(x, x),
    "sum_of_three": lambda k, x, y, c: layers.sums([x, y, layers.tanh(y)]),
    "times_row": lambda k, x, y, c: layers.elementwise_mul(x, k.parameter(k.columns)),
    "plus_row_mean": lambda k, x, y, c: layers.elementwise_add(x, layers.reduce_mean(y, dim=1), axis=0),
    "minus_mean": lambda k, x, y, c: layers.elementwise_sub(x, layers.reduce_mean(x, dim=1, keep_dim=True)),
    "plus_total": lambda k, x, y, c: layers.elementwise_add(x, layers.mean(y)),
    "times_sum": lambda k, x, y, c: layers.elementwise_mul(
        layers.tanh(x), layers.reduce_sum(layers.softmax(y), dim=0, keep_dim=True)
    ),
    "attention": lambda k, x, y, c: layers.matmul(
        layers.softmax(layers.matmul(layers.tanh(x), layers.tanh(y), transpose_y=True, alpha=c)), y
    ),
    "weights_transposed": lambda k, x, y, c: layers.mul(x, layers.transpose(k.parameter(k.columns, k.columns), [1, 0])),
    "reshaped": lambda k, x, y, c: layers.reshape(layers.tanh(layers.reshape(x, [-1])), [-1, k.columns]),
    "wider_and_back": lambda k, x, y, c: k.linear(k.linear(x, size=5, act="sigmoid")),
    "assigned": lambda k, x, y, c: layers.assign(x),
    "plus_looked_up": lambda k, x, y, c: layers.elementwise_add(x, k.look_up()),
    "plus_looked_up_sparse": lambda k, x, y, c: layers.elementwise_add(x, k.look_up(is_sparse=True)),
    "times_looked_up_shared": lambda k, x, y, c: layers.elementwise_mul(
        layers.tanh(x), k.look_up(is_sparse=True, table="table")
    ),
    "cross_entropy": lambda k, x, y, c: layers.elementwise_mul(
        y, layers.cross_entropy(k.linear(x, size=CLASSES, act="softmax"), k.label), axis=0
    ),
    "softmax_loss": lambda k, x, y, c: layers.elementwise_mul(
        y, layers.softmax_with_cross_entropy(k.linear(x, size=CLASSES), k.label), axis=0
    ),
    "squared_error": lambda k, x, y, c: layers.square_error_cost(layers.tanh(x), layers.sigmoid(y)),
}
_KINKED: dict[str, StepFunction] = {
    "linear_relu": lambda k, x, y, c: k.linear(x, act="relu"),
    "relu": lambda k, x, y, c: layers.relu(x),
    "abs": lambda k, x, y, c: layers.abs(x),
    "sign": lambda k, x, y, c: layers.sign(x),
    "clip": lambda k, x, y, c: layers.clip(x, min=-0.4, max=0.7),
    "clip_by_norm": lambda k, x, y, c: layers.clip_by_norm(x, max_norm=2.0),
    "maximum": lambda k, x, y, c: layers.elementwise_max(x, y),
    "minimum": lambda k, x, y, c: layers.elementwise_min(x, y),
    "minus_largest": lambda k, x, y, c: x - layers.reduce_max(x, dim=1, keep_dim=True),
    "minus_smallest": lambda k, x, y, c: x - layers.reduce_min(y, dim=[0, 1]),
    "largest": lambda k, x, y, c: layers.elementwise_mul(x, layers.topk(y, k=1)[0], axis=0),
    "through_float64": lambda k, x, y, c: layers.cast(layers.tanh(layers.cast(x, "float64")), x.dtype),
    "dropout": lambda k, x, y, c: layers.dropout(
        x, 0.3, seed=7, dropout_implementation="upscale_in_train" if c > 0 else "downgrade_in_infer"
    ),
}
_OVERWRITING: dict[str, StepFunction] = {
    "assigned_over": lambda k, x, y, c: layers.assign(layers.tanh(x), y),
    "times_assigned_over": lambda k, x, y, c: layers.assign(layers.elementwise_mul(layers.tanh(x), y), y),
    "summed_over": lambda k, x, y, c: layers.sums([x, layers.tanh(y)], out=y),
    "scaled_in_place": lambda k, x, y, c: over(y, "scale", scale=c),
    "softmax_in_place": lambda k, x, y, c: over(y, "softmax"),
    "reshaped_in_place": lambda k, x, y, c: reshaped_in_place(layers.square(y) + x, y, k.columns),
    "assigned_in_a_branch": lambda k, x, y, c: assigned_in_a_branch(x, y, c),
    "sigmoid_in_place_and_before": lambda k, x, y, c: layers.square(layers.tanh(y)) + over(y, "sigmoid"),
}
STEPS: dict[str, StepFunction] = {**_SMOOTH, **_KINKED, **_OVERWRITING}
OVERWRITING_STEPS = tuple(_OVERWRITING)
"""Kinds of step that write over an earlier value."""
SMOOTH_STEPS = (*_SMOOTH, *OVERWRITING_STEPS)
"""Kinds of step that are differentiable everywhere, so that they can be compared with central differences."""


def build(recipe: Recipe) -> Built:
    """Follow `recipe`."""
    main, startup = Program(), Program()
    with program_guard(main, startup), unique_name.guard():
        rows = recipe.rows if recipe.rows_are_known else None
        x = data("x", [rows, recipe.columns], recipe.dtype)
        label = data("label", [rows, 1], "int64")
        sources = Sources(recipe.dtype, recipe.columns, recipe.seed, label, recipe.training is not None)
        values, others = [sources.linear(x)], []
        for number, step in enumerate(recipe.steps):
            if step.kind in STEPS:
                left, right = (values[-1 - back % len(values)] for back in (step.x, step.y))
                given = [STEPS[step.kind](sources, left, right, step.number)]
                values += given
            else:
                given = _free(sources, step, [*values, *others])
                others += given
            for value in given:
                value.stop_gradient = value.stop_gradient or number == recipe.stopped
        # The loss sees both ends, so that something is trained whatever was stopped.
        ends = layers.elementwise_add(layers.tanh(values[-1]), layers.scale(values[0], 0.25))
        loss = layers.mean(layers.square(ends))
        for value in [each for each in others if each.dtype.is_floating and not each.stop_gradient][-3:]:
            part = layers.mean(layers.tanh(layers.cast(value, recipe.dtype)))
            loss = layers.elementwise_add(loss, layers.reshape(part, [1]))
        pairs = train(recipe.training, main, values, loss) if recipe.training is not None else []
    return Built(recipe, main, startup, values, loss, pairs, others, sources.arrays)


def _free(sources: Sources, step: RecipeStep, values: list[Variable]) -> list[Variable]:
    """Results of a free step; none if the values do not suit it."""
    left, right = (values[-1 - back % len(values)] for back in (step.x, step.y))
    try:
        found = (FREE.get(step.kind) or OF_SAMPLES[step.kind])(sources, left, right, step.number)
    except MinigraphError:
        return []
    several = [found] if isinstance(found, Variable) else found
    return [each for each in several if each.tensor_type is not None and each.tensor_type.is_static]


def train(training: Training, main: Program, values: list[Variable], loss: Variable) -> Any:
    """Append gradients of `loss`, clips and updates; returns the parameters with their gradients."""
    if training.error_clip is not None:
        values[0].error_clip = clip.ErrorClipByValue(training.error_clip)
    if training.grad_clip is None and training.set_clips:
        for number, param in enumerate(main.all_parameters()):
            asked = training.set_clips[number % len(training.set_clips)]
            if asked is not None:
                group = {"group_name": f"at {asked.threshold}"} if asked.kind == "global" else {}
                clip.set_gradient_clip(asked.strategy(**group), param_list=[param])
    options: dict[str, Any] = {"grad_clip": training.grad_clip.strategy() if training.grad_clip else None}
    if training.decay:
        options["regularization"] = getattr(regularizer, training.decay)(0.1)
    if training.optimizer == "Momentum":
        options["momentum"] = 0.9
    return getattr(optimizer, training.optimizer)(learning_rate=0.05, **options).minimize(loss)[1]
