"""Gradients of recurrent networks: networks over the steps in the opposite order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.autodiff.decompositions.blocks import Gradients, is_array, number, outer_reads
from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable, VarKind
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK


@rewritten_as("recurrent_grad")
def _recurrent(g: Rewriting) -> Mapping[str, Any]:
    """Read the values that each step has kept as further sequences.

    Gradients of states, and sums of the gradients of parameters, are passed from step to step.
    """
    network = _Backward(g)
    # By position, because several states may start with one variable.
    found: dict[str, Sequence[Variable | None]] = {
        "inputs": network.collect_gradients(),
        "initial_states": network.carry_states(),
        "parameters": network.carry_sums(),
    }
    network.append()
    results = {}
    for slot, collected in found.items():
        outs = g.op.outputs.get(slot + GRAD_SUFFIX, ())
        results[slot + GRAD_SUFFIX] = [
            None if name == EMPTY or each is None else network.settled(each)
            for name, each in zip(outs, collected, strict=False)
        ]
    return results


class _Backward:
    """The backward network, while it is built."""

    def __init__(self, g: Rewriting) -> None:
        self.g = g
        self.gradients = Gradients(g, "step_scopes")
        self.body = self.gradients.body
        self.sequences: list[str] = []
        self.outputs: list[Variable] = []
        self.initial: list[Variable] = []
        self.before: list[str] = []
        self.after: list[str] = []
        self.last: dict[str, Variable] = {}
        """Initial values of states whose last value is wanted, by the name of the array of their values."""
        kept = self._keep()
        given = {name: self._flowing(name, d_out) for name, d_out in self._incoming()}
        with self.body.inserting_before(self.body.ops.first):
            for name in g.op.inputs["inputs"]:
                self._enter(g.var(name))
            for name, sequence in kept.items():
                self._enter(sequence, self.gradients.own(name))
            for name, sequence in given.items():
                self._enter(sequence, self.gradients.found[name])

    def _keep(self) -> dict[str, Variable]:
        """Let the forward network collect the values of its steps in arrays."""
        gradients, maker = self.gradients, self.gradients.maker
        arrays = {}
        for name in gradients.local:
            if name in maker.inputs["inputs"]:
                continue
            like = gradients.forward_var(name)
            entry = gradients.forward.create_var(
                name=gradients.free_name(f"{name}.kept"), shape=like.shape, dtype=like.dtype, type=like.kind
            )
            gradients.append("assign", {"X": like}, {"Out": entry})
            arrays[name] = maker.block.create_var(
                name=entry.name, shape=like.shape, dtype=like.dtype, type=VarKind.LOD_TENSOR_ARRAY
            )
        maker.set_output("outputs", [*maker.outputs["outputs"], *arrays.values()])
        maker.block.infer(maker)
        return arrays

    def _incoming(self) -> list[tuple[str, str]]:
        slots = self.g.op.inputs
        outs = zip(slots["outputs"], slots["outputs" + GRAD_SUFFIX], strict=True)
        found = self.gradients.found
        return [(name + GRAD_SUFFIX, d_out) for name, d_out in outs if d_out != EMPTY and name + GRAD_SUFFIX in found]

    def _flowing(self, name: str, d_out: str) -> Variable:
        """Gradient of an output; in an array of gradients, missing elements become zeros."""
        var = self.g.var(d_out)
        if is_array(var):
            zeros = self.g.emit("fill_zeros_like", X=self.g.var(name.removesuffix(GRAD_SUFFIX)))
            return self.g.emit("sum", X=[zeros, var])
        return self.g.emit("assign", X=var)

    def _enter(self, sequence: Variable, inside: Variable | None = None) -> None:
        """Add a sequence, whose entries have its name in a step and are copied to `inside`."""
        assert sequence.shape is not None
        shape = sequence.shape if is_array(sequence) else sequence.shape[1:]
        kind = inside.kind if inside is not None else self.gradients.forward_var(sequence.name).kind
        entry = self.body.create_var(
            name=sequence.name, shape=shape, dtype=sequence.dtype, type=kind, stop_gradient=sequence.stop_gradient
        )
        self.sequences.append(sequence.name)
        if inside is not None:
            self.body.append_op("assign", {"X": entry}, {"Out": inside})

    # Computation

    def collect_gradients(self) -> list[Variable | None]:
        """Sequences of the gradients with respect to the entries of each input sequence."""
        wanted = dict(self.gradients.wanted("inputs"))
        return [
            self._collect(self.gradients.found[name + GRAD_SUFFIX], as_array=is_array(self.g.var(name)))
            if name in wanted
            else None
            for name in self.g.op.inputs["inputs"]
        ]

    def _collect(self, value: Variable, as_array: bool) -> Variable:
        steps = () if as_array else ((self.g.var(self.g.op.inputs["inputs"][0]).shape or (-1,))[0],)
        sequence = self.g.block.create_var(
            name=self.gradients.free_name(f"{value.name}.steps"), shape=(*steps, *(value.shape or ())),
            dtype=value.dtype, type=VarKind.LOD_TENSOR_ARRAY if as_array else VarKind.LOD_TENSOR,
        )  # fmt: skip
        entry = self.body.create_var(name=sequence.name, shape=value.shape, dtype=value.dtype, type=value.kind)
        self.body.append_op("assign", {"X": value}, {"Out": entry})
        self.outputs.append(sequence)
        return sequence

    def carry_states(self) -> list[Variable]:
        """Connect the gradient of a state after a step to the gradient that the next step gives."""
        found = []
        sources = self.g.op.inputs.get("initial_states", ())
        for state, ex_state, source in zip(self.g.attr("states"), self.g.attr("ex_states"), sources, strict=True):
            before = self.gradients.found[state + GRAD_SUFFIX]
            after = self.gradients.found.get(ex_state + GRAD_SUFFIX)
            if after is None:
                after = self.body.emit("fill_zeros_like", X=before)
            found.append(self._carry(self.g.var(source), before, after))
        return found

    def carry_sums(self) -> list[Variable | None]:
        """Add up the gradients of parameters from step to step."""
        found: list[Variable | None] = []
        wanted = dict(self.gradients.wanted("parameters"))
        for source in self.g.op.inputs.get("parameters", ()):
            if source not in wanted:
                found.append(None)
                continue
            like, part = self.g.var(source), self.gradients.found[source + GRAD_SUFFIX]
            before = self.body.create_var(
                name=self.gradients.free_name(f"{part.name}.sum"), shape=like.shape, dtype=like.dtype, type=like.kind
            )
            found.append(self._carry(like, before, self.body.emit("sum", X=[before, part])))
        return found

    def _carry(self, source: Variable, before: Variable, after: Variable) -> Variable:
        start = self.gradients.zeros(source)
        self.initial.append(start)
        self.before.append(before.name)
        self.after.append(after.name)
        values = self._collect(after, as_array=True)
        self.last[values.name] = start
        return values

    def append(self) -> None:
        """Append the network."""
        inputs: dict[str, Sequence[Variable | str]] = {
            "inputs": self.sequences, "initial_states": self.initial, "parameters": outer_reads(self.body),
        }  # fmt: skip
        self.g.block.append_op(
            "recurrent", inputs, {"outputs": self.outputs, "step_scopes": self.gradients.scopes()},
            {
                "has_states": bool(self.before), "ex_states": self.before, "states": self.after,
                SUB_BLOCK: self.body.idx, "reverse": not self.g.attr("reverse"),
            },
        )  # fmt: skip

    def settled(self, collected: Variable) -> Variable:
        """A sequence itself; for the values of a state the last one, or the initial value if there are no steps."""
        start = self.last.get(collected.name)
        if start is None:
            return collected
        # The backward network runs in the opposite order: its last step is the first entry, unless the network was
        # reversed. Without steps the array is empty, and index 0 gives the initial value.
        at = number(self.g.block, 0)
        if self.g.attr("reverse"):
            length = self.g.emit("lod_array_length", X=collected, stop_gradient=True)
            behind = self.g.emit("increment", X=length, step=-1.0, stop_gradient=True)
            at = self.g.emit("elementwise_max", X=behind, Y=at, stop_gradient=True)
        return self.g.emit("read_from_array", X=collected, I=at, X_W=start)
