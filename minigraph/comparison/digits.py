"""The experiment of the command line: a classifier of handwritten digits, and its batches in a seeded order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from minigraph import layers, unique_name
from minigraph.comparison.programs import Feed
from minigraph.dataset import digits
from minigraph.errors import DataError
from minigraph.ir import Program, Variable
from minigraph.ir.default_programs import program_guard
from minigraph.reader import Reader, batch, shuffle
from minigraph.reader.feeder import DataFeeder

SHUFFLE_BUFFER: Final = 8192


@dataclass(frozen=True)
class Network:
    """A classifier of images as it is built, before differentiation."""

    program: Program
    startup: Program
    image: Variable
    label: Variable
    loss: Variable
    accuracy: Variable


def build_network(seed: int) -> Network:
    """A multilayer perceptron, 784-128-64-10, with the mean cross entropy of its softmax, and its accuracy."""
    program, startup = Program(), Program()
    startup.random_seed = seed
    with program_guard(program, startup), unique_name.guard():
        image = layers.data(name="x", shape=[784], dtype="float32")
        label = layers.data(name="y", shape=[1], dtype="int64")
        hidden1 = layers.fc(input=image, size=128, act="relu")
        hidden2 = layers.fc(input=hidden1, size=64, act="relu")
        predict = layers.fc(input=hidden2, size=10, act="softmax")
        loss = layers.mean(layers.cross_entropy(input=predict, label=label))
        accuracy = layers.accuracy(input=predict, label=label)
    return Network(program, startup, image, label, loss, accuracy)


@dataclass(frozen=True)
class Batches:
    """The batches of a network, in an order drawn from the seed.

    Parameters
    ----------
    network : Network
    reader : callable, optional
        Yields (image, label) with 784 pixels and a label from 0 to 9. Default: the bundled digits for training.
    size : int
        Images in a batch.
    seed : int, optional
        Seed of the order. None: the order of the reader.
    """

    network: Network
    reader: Reader[Any] | None = None
    size: int = 128
    seed: int | None = None

    def first(self, count: int) -> Iterator[Feed]:
        """The first `count` batches; the reader starts again when it ends."""
        passed = 0
        with seeded_shuffling(self.seed):
            while passed < count:
                start = passed
                for feed in self._epoch():
                    yield feed
                    passed += 1
                    if passed == count:
                        return
                if passed == start:
                    raise DataError("the reader yields no samples")

    def epochs(self) -> Reader[Feed]:
        """A function that gives the batches of an epoch, in another order at each call."""
        return partial(self.epoch, np.random.default_rng(self.seed))

    def epoch(self, rng: np.random.Generator) -> Iterator[Feed]:
        """The batches of an epoch, in an order drawn from `rng` unless the seed is None."""
        with seeded_shuffling(None if self.seed is None else int(rng.integers(2**32))):
            yield from self._epoch()

    def _epoch(self) -> Iterator[Feed]:
        reader = self.reader or digits.train(28)
        feeder = DataFeeder([self.network.image, self.network.label], None)
        rows_of_batches = batch(reader if self.seed is None else shuffle(reader, SHUFFLE_BUFFER), self.size)
        return (feeder.feed(rows) for rows in rows_of_batches())


@contextmanager
def seeded_shuffling(seed: int | None) -> Iterator[None]:
    """Seed the random numbers that readers shuffle with, and restore their state afterwards."""
    state = random.getstate()
    if seed is not None:
        random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
