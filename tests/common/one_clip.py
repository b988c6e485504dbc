"""One strategy on gradients that are given, in a program and at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import minigraph as fluid
from minigraph.dygraph import to_variable
from minigraph.eager.block import EagerProgram

Array = np.ndarray[Any, Any]


class InProgram:
    """A strategy in a program. Called with gradients it returns the clipped ones; its state goes on from call to call.

    Parameters
    ----------
    strategy : GradientClipBase
    grads : sequence of array
        Gradients of the shapes and types to come. Their parameters are called p0, p1, and so on.
    params : sequence of array, optional
        Values of the parameters. Default: ones.
    executor : Executor, optional
    """

    def __init__(
        self,
        strategy: Any,
        grads: Sequence[Array],
        params: Sequence[Array] | None = None,
        executor: fluid.Executor | None = None,
    ) -> None:
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.executor, self.scope = executor or fluid.Executor(), fluid.Scope()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            block = self.main.global_block()
            self.pairs = [
                (
                    block.create_parameter(f"p{i}", grad.shape, grad.dtype),
                    block.create_var(name=f"g{i}", shape=grad.shape, dtype=grad.dtype, is_data=True),
                )
                for i, grad in enumerate(grads)
            ]
            self.clipped = strategy(self.pairs)
        self.executor.run(self.startup, scope=self.scope)
        for (param, _), value in zip(self.pairs, params or [np.ones_like(g) for g in grads], strict=True):
            self.scope.var(param.name).get_tensor().set(value, fluid.CPUPlace())

    @property
    def types(self) -> list[str]:
        """Types of the operators."""
        return [op.type for op in self.main.global_block().ops]

    def __call__(self, grads: Sequence[Array], fetch: Sequence[Any] = ()) -> list[Array]:
        feed = {grad.name: array for (_, grad), array in zip(self.pairs, grads, strict=True)}
        wanted = [*(grad for _, grad in self.clipped), *fetch]
        return self.executor.run(self.main, feed=feed, fetch_list=wanted, scope=self.scope)

    def value(self, name: str) -> Array:
        """What the scope holds."""
        return np.array(self.scope.find_var(name).get_tensor())


class AtOnce:
    """The same in the imperative mode."""

    def __init__(self, strategy: Any, grads: Sequence[Array], params: Sequence[Array] | None = None) -> None:
        self.strategy, self.program = strategy, EagerProgram()
        with fluid.program_guard(self.program, self.program), fluid.unique_name.guard():
            self.params = [
                fluid.layers.create_parameter(list(grad.shape), str(grad.dtype), name=f"p{i}")
                for i, grad in enumerate(grads)
            ]
            for param, value in zip(self.params, params or [np.ones_like(g) for g in grads], strict=True):
                param.set_value(value)

    def __call__(self, grads: Sequence[Array]) -> list[Array]:
        with fluid.program_guard(self.program, self.program), fluid.unique_name.guard():
            pairs = [(param, to_variable(grad)) for param, grad in zip(self.params, grads, strict=True)]
            return [grad.numpy() for _, grad in self.strategy(pairs)]


def same_bits(found: Sequence[Array], expected: Sequence[Array]) -> bool:
    """Whether the arrays agree in type, shape and every bit."""
    return len(found) == len(expected) and all(
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()) for a, b in zip(found, expected, strict=True)
    )


def clip_everywhere(strategy: Any, grads: Sequence[Array], params: Sequence[Array] | None = None) -> list[Array]:
    """The clipped gradients, for which a plan, the interpreter and the imperative mode must give the same bits."""
    found = InProgram(strategy, grads, params)(grads)
    assert same_bits(InProgram(strategy, grads, params, fluid.Interpreter())(grads), found)
    if all(grad.ndim for grad in grads):  # tensors of the imperative mode have a dimension at least
        assert same_bits(AtOnce(strategy, grads, params)(grads), found)
    return found
