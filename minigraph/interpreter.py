"""The specification of what an executor does: operators evaluated one by one, in order, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.executor import Executor, blame
from minigraph.ir import Operator, Program
from minigraph.kernels import find_kernel
from minigraph.lowering import attrs_for_kernel, drop_dead, prune, wanted_outputs
from minigraph.opdef import EMPTY
from minigraph.passes import LEGALIZE
from minigraph.place import Place
from minigraph.scope import Scope


class Interpreter(Executor):
    """An executor without lowering, for debugging and as the truth that plans are tested against.

    Its only rewrites are those in `minigraph.passes.LEGALIZE`, which say what a program means where the arithmetic of
    single operators would overflow or underflow.
    """

    def _run(self, program: Program, feeds: dict[str, Any], names: tuple[str, ...], scope: Scope) -> list[Any]:
        private = prune(program, list(feeds), names)
        LEGALIZE.apply(private)
        drop_dead(private, names)
        block = private.global_block()
        values = dict(feeds)
        written: set[str] = set()

        def read(name: str) -> Any:
            if name not in values:
                holder = scope.find_var(name) if block.vars[name].persistable else None
                if holder is None or holder.value is None:
                    raise ExecutionError(f"{name} is neither fed nor computed nor in the scope")
                values[name] = holder.value.copy()
            return values[name]

        for op in block.ops:
            try:
                with np.errstate(all="ignore"):
                    values.update(evaluate(op, read, self.place, self._rng))
            except Exception as error:
                raise blame(error, op) from error
            written.update(op.output_arg_names)
        results = [read(name).copy() for name in names]
        for name in block.vars:
            if name in written and block.vars[name].persistable:
                holder = scope.var(name)
                holder.value, holder.place = values[name].copy(), self.place
        return results


def evaluate(op: Operator, read: Callable[[str], Any], place: Place, rng: Any) -> dict[str, Any]:
    """Output values of `op` by name, its inputs read through `read`.

    Raises
    ------
    ExecutionError
        If the operator has no kernel for the place, or its kernel refuses the values.
    """
    kernel = find_kernel(op.type, place.kind)
    if kernel is None:
        raise ExecutionError(f"{op.type} has no kernel for {place.kind}")
    arguments: list[Any] = []
    for slot in op.definition.inputs:
        found = [read(name) if name != EMPTY else None for name in op.inputs.get(slot.name, ())]
        if slot.duplicable:
            arguments.append(found if found or not slot.dispensable else None)
        else:
            arguments.append(found[0] if found else None)
    keywords = attrs_for_kernel(op, kernel)
    if kernel.takes_rng:
        keywords["rng"] = rng
    if kernel.takes_wanted:
        keywords["wanted"] = wanted_outputs(op)
    result = kernel.function(place.xp, *arguments, **keywords)
    slots = op.definition.outputs
    by_slot = result if len(slots) > 1 else (result,)
    values = {}
    for slot, value in zip(slots, by_slot, strict=True):
        names = op.outputs.get(slot.name, ())
        for name, each in zip(names, value if slot.duplicable else (value,), strict=False):
            if name != EMPTY:
                values[name] = each
    return values
