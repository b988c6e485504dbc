"""What clipping does to gradients: one network, a clone of it per clip, all run on the same batches.

Always true here: every program starts from the same parameter values and sees the same batches; a clone differs from
the unclipped program by its clip's operators alone; *before* is a gradient of the unclipped program, *after* what the
clone made of it. Norms are L2 norms in float64 and do not overflow.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from minigraph import layers, unique_name
from minigraph.backward import ParamsGrads, append_backward
from minigraph.clip import (
    GradientClipBase,
    GradientClipByGlobalNorm,
    GradientClipByNorm,
    GradientClipByValue,
    append_gradient_clip_ops,
    set_gradient_clip,
)
from minigraph.data_feeder import DataFeeder
from minigraph.dataset import digits
from minigraph.defaults import program_guard
from minigraph.errors import ClipError, DataError, NotFoundError, suggest
from minigraph.executor import Executor
from minigraph.ir import Program, Variable
from minigraph.optimizer import SGDOptimizer
from minigraph.place import CPUPlace, Place
from minigraph.reader import Reader, batch, shuffle
from minigraph.scope import Scope
from minigraph.text import value_text

CLIP_KINDS: Final[dict[str, type[GradientClipBase]]] = {
    "norm": GradientClipByNorm,
    "global_norm": GradientClipByGlobalNorm,
    "value": GradientClipByValue,
}
"""The strategies by the word that `parse_clip` knows them by."""

SHUFFLE_BUFFER = 8192


# Results


@dataclass(frozen=True)
class Change:
    """What a clip did to one gradient (or to all of them as one vector) in one batch."""

    norm_before: float
    norm_after: float
    clipped: bool
    """Whether any element changed."""
    cosine: float
    """Of the angle between before and after; NaN where one of them has no direction."""

    @property
    def factor(self) -> float:
        """``norm_after / norm_before``; 1 for a zero gradient that stayed zero."""
        if self.norm_before == 0:
            return 1.0 if self.norm_after == 0 else math.inf
        return self.norm_after / self.norm_before


@dataclass(frozen=True)
class Changes:
    """The changes of one gradient, batch by batch."""

    batches: tuple[Change, ...]

    @property
    def mean_norm_before(self) -> float:
        return fmean(change.norm_before for change in self.batches)

    @property
    def mean_norm_after(self) -> float:
        return fmean(change.norm_after for change in self.batches)

    @property
    def mean_factor(self) -> float:
        return fmean(change.factor for change in self.batches)

    @property
    def share_clipped(self) -> float:
        """The share of batches in which the gradient changed, from 0 to 1."""
        return fmean(change.clipped for change in self.batches)

    @property
    def mean_cosine(self) -> float:
        """The mean over the batches where the cosine is defined; NaN without any."""
        cosines = [change.cosine for change in self.batches if not math.isnan(change.cosine)]
        return fmean(cosines) if cosines else math.nan


@dataclass(frozen=True)
class ParameterChanges(Changes):
    """The changes of one parameter's gradient."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ClipComparison:
    """What one clip did.

    Attributes
    ----------
    clip : GradientClipBase
    program : Program
        The clone, with the clip's operators.
    parameters : tuple of ParameterChanges
        In the order of the parameters' creation.
    total : Changes
        All gradients as one vector: their global norm.
    """

    clip: GradientClipBase
    program: Program
    parameters: tuple[ParameterChanges, ...]
    total: Changes


@dataclass(frozen=True)
class Batch:
    """A batch as the unclipped program saw it."""

    size: int
    loss: float


@dataclass(frozen=True)
class Comparison:
    """What several clips did to the gradients of one network on the same batches.

    Attributes
    ----------
    forward : Program
        The network as it was built.
    program : Program
        The same with its backward pass: what the clips are compared with.
    batches : tuple of Batch
    clips : tuple of ClipComparison
        In the order asked for.
    place, batch_size, seed, learning_rate
        As given to `compare`.
    """

    forward: Program
    program: Program
    batches: tuple[Batch, ...]
    clips: tuple[ClipComparison, ...]
    place: Place
    batch_size: int
    seed: int
    learning_rate: float | None


# Clips as text


def parse_clip(text: str) -> GradientClipBase:
    """The strategy that ``KIND=THRESHOLD`` stands for; `CLIP_KINDS` has the kinds.

    Raises
    ------
    NotFoundError
        If the kind is unknown.
    ClipError
        If the threshold is missing, no number, not finite, or not positive.

    Examples
    --------
    >>> parse_clip("norm=2")
    GradientClipByNorm(clip_norm=2.0, need_clip=None)
    >>> parse_clip("value=-0.05:0.1")
    GradientClipByValue(max=0.1, min=-0.05, need_clip=None)
    """
    kind, _, threshold = text.partition("=")
    if kind not in CLIP_KINDS:
        known = f"The kinds are {', '.join(CLIP_KINDS)}."
        raise NotFoundError(f"unknown kind of clip {kind!r}", hint=suggest(kind, CLIP_KINDS) or known)
    if kind == "value" and ":" in threshold:
        low, _, high = threshold.partition(":")
        return GradientClipByValue(max=_finite(text, high), min=_finite(text, low))
    number = _finite(text, threshold)
    if number <= 0:
        raise ClipError(f"the threshold of {text!r} must be positive", hint=f"Write {kind}=1, for example.")
    return CLIP_KINDS[kind](number)  # type: ignore[call-arg]


def _finite(text: str, threshold: str) -> float:
    try:
        number = float(threshold)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ClipError(
            f"the threshold of {text!r} must be a finite number, got {threshold!r}",
            hint="Write norm=2, global_norm=1, value=0.1 or value=-0.05:0.1, for example.",
        )
    return number


def clip_text(clip: GradientClipBase) -> str:
    """The inverse of `parse_clip`; a strategy of another kind stands as in the text of a program.

    Examples
    --------
    >>> clip_text(GradientClipByNorm(2.0)), clip_text(GradientClipByValue(max=0.1, min=-0.05))
    ('norm=2', 'value=-0.05:0.1')
    """
    kind = next((kind for kind, strategy in CLIP_KINDS.items() if type(clip) is strategy), None)
    if kind is None:
        return value_text(clip)
    if isinstance(clip, GradientClipByValue):
        assert clip.min is not None  # filled in when the strategy was made
        bounds = [clip.max] if clip.min == -clip.max else [clip.min, clip.max]
    else:
        bounds = [clip.clip_norm]  # type: ignore[attr-defined]
    return f"{kind}={':'.join(repr(bound).removesuffix('.0') for bound in bounds)}"


# Norms


def l2_norm(array: NDArray[Any]) -> float:
    """``sqrt(sum(x**2))`` in float64; neither overflows nor underflows on the way, and shows NaN and infinity.

    Examples
    --------
    >>> l2_norm(np.array([3e300, 4e300])), l2_norm(np.array([3e-300, 4e-300])), l2_norm(np.zeros(2))
    (5e+300, 5e-300, 0.0)
    """
    sizes = np.abs(np.asarray(array, np.float64)).ravel()
    largest = float(sizes.max(initial=0.0))
    if not 0 < largest < math.inf:
        return largest
    return largest * float(np.linalg.norm(sizes / largest))


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Cosine of the angle between two arrays as vectors; NaN where one is zero or not finite."""
    norms = l2_norm(a), l2_norm(b)
    if not all(0 < norm < math.inf for norm in norms):
        return math.nan
    directions = [np.asarray(x, np.float64).ravel() / norm for x, norm in zip((a, b), norms, strict=True)]
    return min(1.0, max(-1.0, float(directions[0] @ directions[1])))  # rounding may lead out of the interval


def change(before: NDArray[Any], after: NDArray[Any]) -> Change:
    """What became of `before`."""
    return Change(
        norm_before=l2_norm(before),
        norm_after=l2_norm(after),
        clipped=not np.array_equal(before, after, equal_nan=True),
        cosine=cosine(before, after),
    )


# Programs


@dataclass(frozen=True)
class Network:
    """A classifier of images as it is built, before differentiation."""

    program: Program
    startup: Program
    image: Variable
    label: Variable
    loss: Variable


def build_network(seed: int) -> Network:
    """A multilayer perceptron, 784-128-64-10, with the mean cross entropy of its softmax."""
    program, startup = Program(), Program()
    startup.random_seed = seed
    with program_guard(program, startup):
        image = layers.data(name="x", shape=[784], dtype="float32")
        label = layers.data(name="y", shape=[1], dtype="int64")
        hidden1 = layers.fc(input=image, size=128, act="relu")
        hidden2 = layers.fc(input=hidden1, size=64, act="relu")
        predict = layers.fc(input=hidden2, size=10, act="softmax")
        loss = layers.mean(layers.cross_entropy(input=predict, label=label))
    return Network(program, startup, image, label, loss)


@dataclass(frozen=True)
class _Differentiated:
    """A clone of a network with its backward pass, clipped or not; the pairs hold the gradients to compare."""

    program: Program
    pairs: ParamsGrads


@contextmanager
def _same_names() -> Iterator[None]:
    """Inside, names are counted on from where they are now; afterwards that is forgotten.

    With it every clone calls its variables what it would call them if it were the only one.
    """
    with unique_name.guard(copy.deepcopy(unique_name.current())):
        yield


def _differentiate(network: Network, clip: GradientClipBase | None) -> _Differentiated:
    program = network.program.clone()
    with program_guard(program, network.startup), _same_names():
        pairs = append_backward(program.global_block().var(network.loss.name))
        if clip is not None:
            set_gradient_clip(clip)
            pairs = append_gradient_clip_ops(pairs)
    return _Differentiated(program, pairs)


def _training_program(network: Network, learning_rate: float) -> Program:
    program = network.program.clone()
    with program_guard(program, network.startup), _same_names():
        SGDOptimizer(float(learning_rate)).minimize(program.global_block().var(network.loss.name))
    return program


# The experiment


def compare(
    clips: Sequence[GradientClipBase],
    *,
    reader: Reader[Any] | None = None,
    batches: int = 10,
    batch_size: int = 128,
    seed: int = 1,
    place: Place | None = None,
    learning_rate: float | None = None,
    on_batch: Callable[[], None] | None = None,
) -> Comparison:
    """Run a network, and a clone of it for each clip, on the same batches, and compare their gradients.

    Parameters
    ----------
    clips : sequence of GradientClipBase
    reader : callable, optional
        Yields (image, label) with 784 pixels and a label from 0 to 9. Default: the bundled digits. It is shuffled, and
        read again from the start when it ends.
    batches, batch_size : int
        How many batches of how many images.
    seed : int
        Of the parameters' start values and of the order of the images, at least 1: equal seeds give equal results.
    place : Place, optional
        Default: `CPUPlace`.
    learning_rate : float, optional
        Given: after each batch gradient descent moves the parameters along the unclipped gradients. Left out: they
        keep their start values.
    on_batch : callable, optional
        Called after each batch.

    Raises
    ------
    ValueError
        If a number is out of range.
    DataError
        If the reader yields nothing.

    Examples
    --------
    >>> result = compare([GradientClipByNorm(1e-3)], batches=2, batch_size=8)
    >>> [(p.name, p.share_clipped) for p in result.clips[0].parameters[:2]]
    [('fc_0.w_0', 1.0), ('fc_0.b_0', 1.0)]
    """
    _check_counts(batches=batches, batch_size=batch_size, seed=seed)
    if learning_rate is not None and not 0 < learning_rate < math.inf:
        raise ValueError(f"learning_rate must be positive and finite, got {learning_rate!r}")
    place = place or CPUPlace()
    programs = _build(clips, seed, learning_rate)
    run = _Run(programs, place)
    with _seeded_shuffling(seed):
        for rows in _batches(reader or digits.train(28), batches, batch_size):
            run.add(rows)
            if on_batch is not None:
                on_batch()
    return Comparison(
        forward=programs.network.program,
        program=programs.unclipped.program,
        batches=tuple(run.batches),
        clips=tuple(_clip_comparison(*found) for found in zip(clips, programs.clipped, run.changes, strict=True)),
        place=place,
        batch_size=batch_size,
        seed=seed,
        learning_rate=learning_rate,
    )


@dataclass(frozen=True)
class _Programs:
    """All that runs on a batch; `training` moves the parameters, if they are to move."""

    network: Network
    unclipped: _Differentiated
    clipped: list[_Differentiated]
    training: Program | None


def _build(clips: Sequence[GradientClipBase], seed: int, learning_rate: float | None) -> _Programs:
    with unique_name.guard():
        network = build_network(seed)
        return _Programs(
            network,
            unclipped=_differentiate(network, None),
            clipped=[_differentiate(network, clip) for clip in clips],
            training=None if learning_rate is None else _training_program(network, learning_rate),
        )


class _Run:
    """The programs at work in a scope of their own, and what was found so far."""

    def __init__(self, programs: _Programs, place: Place) -> None:
        network = programs.network
        self.programs = programs
        self.executor, self.scope = Executor(place), Scope()
        self.feeder = DataFeeder([network.image, network.label], place)
        self.executor.run(network.startup, scope=self.scope)
        self.batches: list[Batch] = []
        self.changes: list[list[list[Change]]] = [[] for _ in programs.clipped]
        """By clip, by batch: the changes of each parameter's gradient, and last of all together."""

    def add(self, rows: list[Any]) -> None:
        """Compare the gradients on one batch."""
        feed = self.feeder.feed(rows)
        *before, loss = self._gradients(self.programs.unclipped, feed, self.programs.network.loss)
        self.batches.append(Batch(len(rows), float(loss[0])))
        for clone, changes in zip(self.programs.clipped, self.changes, strict=True):
            changes.append(_changes(before, self._gradients(clone, feed)))
        if self.programs.training is not None:  # last, when all have seen the same parameters
            self.executor.run(self.programs.training, feed=feed, scope=self.scope)

    def _gradients(self, clone: _Differentiated, feed: dict[str, Any], *more: Variable) -> list[NDArray[Any]]:
        """The gradients of a clone, and behind them `more`."""
        fetch_list = [*(grad for _, grad in clone.pairs), *more]
        return self.executor.run(clone.program, feed=feed, fetch_list=fetch_list, scope=self.scope)


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}")


@contextmanager
def _seeded_shuffling(seed: int) -> Iterator[None]:
    """Seed the random numbers that readers shuffle with, and leave them afterwards as they were."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def _batches(reader: Reader[Any], count: int, size: int) -> Iterator[list[Any]]:
    """Shuffled batches; the reader starts again when it ends."""
    epoch = batch(shuffle(reader, SHUFFLE_BUFFER), size)
    passed = 0
    while passed < count:
        start = passed
        for rows in epoch():
            yield rows
            passed += 1
            if passed == count:
                return
        if passed == start:
            raise DataError("the reader yields no samples")


def _changes(before: list[NDArray[Any]], after: list[NDArray[Any]]) -> list[Change]:
    """The changes of all gradients, and last that of all of them as one vector."""
    together = [np.concatenate([grad.ravel() for grad in grads]) for grads in (before, after)]
    return [change(*pair) for pair in (*zip(before, after, strict=True), together)]


def _clip_comparison(clip: GradientClipBase, clone: _Differentiated, changes: list[list[Change]]) -> ClipComparison:
    *by_parameter, total = [tuple(of_one) for of_one in zip(*changes, strict=True)]
    return ClipComparison(
        clip=clip,
        program=clone.program,
        parameters=tuple(
            ParameterChanges(found, name=param.name, shape=param.shape or ())
            for (param, _), found in zip(clone.pairs, by_parameter, strict=True)
        ),
        total=Changes(total),
    )
