"""Single operators on the variables of a scope, without a program, by fluid's interface ``fluid.op.Operator``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minigraph.errors import NotFoundError, WrongTypeError, suggest
from minigraph.executor.interpreter import Interpreter
from minigraph.framework.op_protos import OpProto, OpProtoHolder
from minigraph.ir import Program
from minigraph.opdef import all_definitions
from minigraph.runtime.place import Place
from minigraph.runtime.scope import Scope
from minigraph.runtime.scope_variable import type_of
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["Operator"]


class SingleOperator:
    """An operator with names of variables by slot, which `run` looks up in a scope."""

    def __init__(
        self, type: str, inputs: Mapping[str, list[str]], outputs: Mapping[str, list[str]], attrs: Any
    ) -> None:
        self._type, self._inputs, self._outputs, self._attrs = type, dict(inputs), dict(outputs), dict(attrs)

    def type(self) -> str:
        return self._type

    def inputs(self) -> dict[str, list[str]]:
        """Names by input slot; those of a slot that was left out are an empty list."""
        return {slot: list(names) for slot, names in self._inputs.items()}

    def outputs(self) -> dict[str, list[str]]:
        """Names by output slot."""
        return {slot: list(names) for slot, names in self._outputs.items()}

    def input_vars(self) -> list[str]:
        return [name for names in self._inputs.values() for name in names]

    def output_vars(self, include_intermediate: bool = True) -> list[str]:
        return [name for names in self._outputs.values() for name in names]

    @public
    def run(self, scope: Scope, place: Place) -> None:
        """Compute the results from the variables of `scope`, and put them there.

        Raises
        ------
        NotFoundError
            If the scope has no variable of a name that is read.
        """
        program = Program()
        block = program.global_block()
        for name in dict.fromkeys(self.input_vars()):
            held = scope.find_var(name)
            if held is None or held.value is None:
                raise NotFoundError(
                    f"{self._type}: {name} {'is not in the scope' if held is None else 'holds no value yet'}",
                    hint=suggest(name, scope.local_var_names())
                    or f'Set it: scope.var("{name}").get_tensor().set(...).',
                )
            var = block.declare(name, type_of(held.value))
            var.persistable, var.lod_level = True, len(held.lod)
        for name in self.output_vars():
            if name not in block.vars:
                block.create_var(name=name, persistable=True)
        block.append_op(self._type, {k: v for k, v in self._inputs.items() if v}, self._outputs, self._attrs)
        Interpreter(place).run(program, scope=scope)

    def __str__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{slot}[{', '.join(names)}]" for slot, names in sorted(slots.items()))
            for slots in (self._inputs, self._outputs)
        )
        return f"Op({self._type}), inputs:{{{inputs}}}, outputs:{{{outputs}}}."


class OperatorFactory:
    """Makes single operators: ``Operator("scale", X="x", Out="y", scale=2.0)``, names by slot, and attributes.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> scope, place = fluid.Scope(), fluid.CPUPlace()
    >>> scope.var("x").get_tensor().set(np.ones([2], "float32"), place)
    >>> operator = Operator("scale", X="x", Out="y", scale=2.0)
    >>> operator.run(scope, place)
    >>> np.array(scope.find_var("y").get_tensor()), print(operator)
    Op(scale), inputs:{ScaleTensor[], X[x]}, outputs:{Out[y]}.
    (array([2., 2.], dtype=float32), None)
    """

    @public
    def __call__(self, *args: Any, **given: Any) -> SingleOperator:
        """An operator.

        Raises
        ------
        WrongTypeError
            If its type does not stand alone in front of keyword arguments.
        NotFoundError
            If there is no such operator, or it has no slot or attribute of a name.
        """
        types = [*args, given.pop("type")] if "type" in given else args
        if len(types) != 1:
            raise WrongTypeError(
                f"Operator takes a type, then slots and attributes by keyword, got {len(types)} positions"
            )
        proto = self.get_op_info(types[0])
        inputs, outputs, attrs = ([each.name for each in part] for part in (proto.inputs, proto.outputs, proto.attrs))
        known = [*inputs, *outputs, *attrs]
        for name in given:
            if name not in known:
                hint = suggest(name, known) or f"It has {', '.join(known)}."
                raise NotFoundError(f"{proto.type} has no slot or attribute {name!r}", hint=hint)
        return SingleOperator(
            proto.type,
            {slot: _names(given.get(slot, ())) for slot in inputs},
            {slot: _names(given[slot]) for slot in outputs if slot in given},
            {name: given[name] for name in attrs if name in given},
        )

    def types(self) -> list[str]:
        """The types of all operators."""
        return [each.type for each in all_definitions()]

    def get_op_info(self, t: str) -> OpProto:
        """The description of an operator."""
        return OpProtoHolder.instance().get_op_proto(t)

    def get_op_input_names(self, type: str) -> list[str]:
        return [slot.name for slot in self.get_op_info(type).inputs]

    def get_op_output_names(self, type: str) -> list[str]:
        return [slot.name for slot in self.get_op_info(type).outputs]

    def get_op_attr_names(self, type: str) -> list[str]:
        return [attr.name for attr in self.get_op_info(type).attrs]


def _names(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


Operator = OperatorFactory()

refuse_unknown_names(__name__)
