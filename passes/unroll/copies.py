"""Copies of the operators of a sub-block in the block around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minigraph import unique_name
from minigraph.ir import Block, Operator, VarKind
from minigraph.ir.operator import renamed
from minigraph.opdef import EMPTY
from minigraph.passes.rewriting import insert_for
from minigraph.runtime.control_flow import BlockCall


def is_array(block: Block, name: str) -> bool:
    """Whether a variable is an array of tensors."""
    var = block.find_var(name)
    return var is not None and var.kind is VarKind.LOD_TENSOR_ARRAY


class Copies:
    """Copies of the operators of a sub-block, which are inserted run by run before an operator.

    Attributes
    ----------
    latest : dict
        The names that hold, after the runs so far, the variables that go from run to run.
    """

    def __init__(self, call: BlockCall, anchor: Operator, carried: Iterable[str], latest: dict[str, str]) -> None:
        self._body, self._anchor = call.body, anchor
        self._tag = unique_name.generate("RUN")
        self._carried, self.latest = tuple(carried), latest

    def start(self, name: str, type: str, given: str) -> None:
        """Let a variable have, in the next run, what an operator of this type makes of another."""
        self.latest[name] = unique_name.generate(f"{name}@{self._tag}")
        insert_for(self._anchor, type, {"X": given}, {"Out": self.latest[name]}, {})

    def start_array(self, name: str, outer: str | None) -> None:
        """Let the array `name` of all runs be one array, which begins like `outer`."""
        self.latest[name] = fresh = unique_name.generate(f"{name}@{self._tag}")
        self._declare(fresh, name)
        if outer is None:
            insert_for(self._anchor, "empty_array", {}, {"Out": fresh}, {"dtype": int(self._body.vars[name].dtype)})
        else:
            insert_for(self._anchor, "assign", {"X": outer}, {"Out": fresh}, {})

    def append(self, run: int, given: Mapping[str, str]) -> dict[str, str]:
        """Insert the operators of one run, and return the names of what it reads and computes."""
        block = self._anchor.block
        names = {**given, **self.latest}
        for op in self._body.ops:
            twin = op._twin(block)
            twin.inputs = renamed(op.inputs, names)
            for name in op.output_arg_names:
                if name != EMPTY:
                    names[name] = self._output(name, run)
            twin.outputs = renamed(op.outputs, names)
            twin.role_vars = tuple([names.get(name, name) for name in op.role_vars])
            block._link(self._anchor, twin)
        self.latest.update({name: names[name] for name in self._carried if name in names})
        return names

    def _output(self, name: str, run: int) -> str:
        """The name under which a run writes a variable."""
        if is_array(self._body, name) and (name in self.latest or name not in self._body.vars):
            return self.latest.get(name, name)
        found = f"{name}@{self._tag}.{run}"
        self._declare(found, name)
        return found

    def _declare(self, name: str, like: str) -> None:
        block = self._anchor.block
        if name not in block.vars:
            original = self._body.find_var(like)
            assert original is not None
            var = block.vars[name] = original._copy_to(block)
            var.name, var.is_data, var.persistable = name, False, False
