"""Rewrite blocks of gradients as ordinary blocks, which read values of the forward block from arrays.

A block of gradients sees the variables of its forward block as a run has left them, which no ordinary operator could
differentiate. So the forward block writes them to arrays, one element for each run, and the block of gradients reads
them from there. Then it is an ordinary block, and the operator that runs it is differentiated like any other. Forward
values are saved, not computed again, so that random draws match.

Inner gradients are rewritten first: the arrays of an inner loop are variables of the forward block, and are saved in
arrays of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewrite
from minigraph.errors import ProgramError
from minigraph.ir import Block, Variable, VarKind
from minigraph.ir.effects import outer_names, rename
from minigraph.ir.operator import slot_names
from minigraph.opdef import EMPTY, GRAD_SUFFIX
from minigraph.runtime.control_flow import saved_for
from minigraph.types import DType


class Gradients:
    """The block that a gradient operator runs, while it becomes an ordinary one.

    Attributes
    ----------
    forward : Block
        Block that is differentiated.
    maker : Operator
        Operator that runs the forward block, in the block of the gradient operator or in its forward block.
    body : Block
        Block of gradients.
    local, before : tuple of str
        Variables that `body` reads of a run: those of the forward block with their values after the run, and outer
        variables with their values before it.
    found : dict
        Variables of `body` for gradients, by their names in a block of gradients, ``v@GRAD``.
    written : set of str
        Gradients that `body` writes.
    """

    def __init__(self, g: Rewriting, scopes: str) -> None:
        body = g.op.sub_block
        assert body is not None and body.forward_block is not None
        self.g, self.body, self.forward, self.maker = g, body, body.forward_block, g.maker(scopes)
        self._refuse_rows()
        rewrite(body, body.ops[:])
        saved = saved_for([body], self.forward)
        self.local, self.before = saved.local, saved.before
        written = {name for op in body.ops for name in op.output_arg_names}
        # Renamed, because in the block of gradients of this block ``v@GRAD`` is another variable.
        gradients = [name for name in body.vars if name.endswith(GRAD_SUFFIX)]
        self._names = {name: self.free_name(name) for name in (*gradients, *self.before)}
        self.found = {name: body.vars[name] for name in gradients}
        self.written = {name for name in gradients if name in written}
        body.forward_block_idx = -1
        rename(body, self._names)

    def _refuse_rows(self) -> None:
        """Refuse selected rows, which have no second gradient."""
        for var in (*self.forward.vars.values(), *self.body.vars.values()):
            if var.tensor_type is not None and var.tensor_type.is_rows:
                what = {"conditional_block": "branch", "while": "loop"}.get(self.maker.type, "network")
                raise ProgramError(
                    f"the gradient of a gradient cannot pass through this {what}: {var.name} is selected rows",
                    details=[str(self.g.op)], site=self.g.op.site,
                )  # fmt: skip

    # In front of the forward operator, and in its block

    def start(self, type: str, **attrs: object) -> Variable:
        """The result of an operator without inputs in front of the forward operator."""
        outer = self.maker.block
        with outer.inserting_before(self.maker, role=self.maker.role):
            var = outer.create_var(name=self.free_name(type), stop_gradient=True)
            outer.append_op(type, {}, {"Out": var}, attrs)
        return var

    def array(self, like: Variable, name: str) -> Variable:
        """A new array in front of the forward operator, for values of the type of `like`."""
        outer = self.maker.block
        var = outer.create_var(name=self.free_name(f"{name}.kept"), type=VarKind.LOD_TENSOR_ARRAY)
        with outer.inserting_before(self.maker, role=self.maker.role):
            outer.append_op("empty_array", {}, {"Out": var}, {"dtype": int(like.dtype)})
        return var

    def append(self, type: str, inputs: object, outputs: object, **attrs: object) -> None:
        """Append an operator to the forward block, with the source line of the forward operator."""
        with self.forward.program.role_guard(self.maker.role):
            op = self.forward.append_op(type, inputs, outputs, attrs)  # type: ignore[arg-type]
        op.site = self.maker.site

    def keep(self, index: Variable) -> dict[str, Variable]:
        """Let the forward block save all that is read of a run in element `index` of arrays; return these by name."""
        arrays = {name: self.array(self.forward_var(name), name) for name in (*self.local, *self.before)}
        with self.forward.inserting_before(self.forward.ops.first, role=self.maker.role):
            for name in self.before:
                self.forward.append_op("write_to_array", {"X": name, "I": index}, {"Out": arrays[name]})
        for name in self.local:
            self.append("write_to_array", {"X": name, "I": index}, {"Out": arrays[name]})
        return arrays

    def complete_slots(self, slot: str) -> None:
        """Add all variables that the forward block uses to the slots of its operator; `slot` gets those only read."""
        inputs, outputs = self.maker.inputs.get(slot, ()), self.maker.outputs.get("Out", ())
        touched, written = outer_names(self.forward)
        there = {*slot_names(self.maker.inputs), *written}
        self.maker.set_input(slot, [*inputs, *(name for name in touched if name not in there)])
        self.maker.set_output("Out", list(dict.fromkeys([*outputs, *written])))

    def forward_var(self, name: str) -> Variable:
        found = self.forward.find_var(name)
        assert found is not None
        return found

    def free_name(self, key: str) -> str:
        """A name that is free in all the blocks."""
        while True:
            name = self.g.block.free_name(key)
            if self.forward.find_var(name) is None and self.body.find_var(name) is None:
                return name

    # In the block of gradients

    def read_back(self, arrays: dict[str, Variable], index: Variable) -> None:
        """Let the block of gradients begin by reading element `index` of the arrays."""
        with self.body.inserting_before(self.body.ops.first):
            for name, array in arrays.items():
                var = self.own(name)
                attrs = {"is_array": True} if is_array(var) else {}
                self.body.append_op("read_from_array", {"X": array, "I": index}, {"Out": var}, attrs)

    def own(self, name: str) -> Variable:
        """A variable of the block of gradients for the saved value of `name`."""
        like = self.forward_var(name)
        return self.body.create_var(
            name=self._names.get(name, name), shape=like.shape, dtype=like.dtype, type=like.kind,
            stop_gradient=like.stop_gradient,
        )  # fmt: skip

    # The operator that runs it

    def wanted(self, slot: str) -> Iterator[tuple[str, str]]:
        """Sources whose gradients are wanted, with the names of these gradients."""
        names = self.g.op.outputs.get(slot + GRAD_SUFFIX, ())
        for source, name in zip(self.g.op.inputs.get(slot, ()), names, strict=False):
            if name != EMPTY:
                yield source, name

    def results(self, slot: str, found: Mapping[str, Variable]) -> dict[str, list[Variable | None]]:
        """The gradients in a slot, as a rule returns them; `found` has them by their names in the block."""
        d_slot = slot + GRAD_SUFFIX
        sources = zip(self.g.op.inputs.get(slot, ()), self.g.op.outputs[d_slot], strict=True)
        return {d_slot: [None if name == EMPTY else found[source + GRAD_SUFFIX] for source, name in sources]}

    def zeros(self, source: Variable) -> Variable:
        """A zero gradient in front of the gradient operator; for an array, an array without elements."""
        if is_array(source):
            return self.g.emit("empty_array", dtype=int(source.dtype))
        shape = source.shape or ()
        if -1 in shape:
            return self.g.emit("fill_zeros_like", X=source)
        return self.g.emit("fill_constant", shape=list(shape), dtype=int(source.dtype), value=0.0)

    def scopes(self) -> Variable:
        return self.g.block.create_var(name=self.free_name("_generated_var"), type=VarKind.STEP_SCOPES)


def number(block: Block, value: int) -> Variable:
    """A constant, int64[1]."""
    return block.emit(
        "fill_constant", shape=[1], dtype=int(DType.INT64), value=float(value), str_value=str(value), stop_gradient=True
    )  # fmt: skip


def outer_reads(body: Block) -> list[str]:
    """Outer variables that the operators of a block read."""
    read = {name for op in body.ops for name in op.input_arg_names}
    return [name for name in outer_names(body)[0] if name in read]


def is_array(var: Variable) -> bool:
    return var.kind is VarKind.LOD_TENSOR_ARRAY
