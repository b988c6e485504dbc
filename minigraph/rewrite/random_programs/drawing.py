"""Draw programs for `minigraph.rewrite.check`: operators, control flow, sequences, overwriting, gradients, updates.

What a pass is about (`Hints`) is drawn more often than the rest, on values that were just computed, so that its pattern
comes about by chance. Everything is decided by one generator, so that a seed gives one program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from minigraph import layers, unique_name
from minigraph.clip import ErrorClipByValue
from minigraph.errors import MinigraphError, WrongTypeError
from minigraph.ir import Block, Parameter, Program, Variable, VarKind
from minigraph.ir.default_programs import program_guard
from minigraph.layers.io import fluid_data as data
from minigraph.opdef import SUB_BLOCK, OpDef, definition_of
from minigraph.passes.ranks.collective import GradAllReduce
from minigraph.rewrite.cases import fetchable
from minigraph.rewrite.random_programs.arrays import Drawn, is_accepted
from minigraph.rewrite.random_programs.attributes import AttrValues
from minigraph.rewrite.random_programs.declaring import declare
from minigraph.rewrite.random_programs.free_steps import FREE, Sources, like
from minigraph.rewrite.random_programs.operator_types import (
    all_types,
    asks_for_training,
    by_type,
    for_readers,
    forward_types,
    hidden,
)
from minigraph.rewrite.random_programs.recipes import STEPS, Clip, Training, train
from minigraph.rewrite.random_programs.sampling import Sample
from minigraph.rewrite.random_programs.several_steps import RUN_BY, SEVERAL
from minigraph.types import DType, TensorType

OPTIMIZERS = ("SGD", "Momentum", "Adam", "Adagrad", "RMSProp", "Lamb")
_FREE, _LAYERS = sorted(FREE), sorted(STEPS)

_ALL_REDUCE = "c_allreduce_sum"
"""Type of the operators that add up gradients over ranks."""

_OF_AXES = frozenset({"axes", "axis", "dim"})
"""Names of attributes that tell axes."""

_UNSUITED = (MinigraphError, ArithmeticError, LookupError, TypeError, ValueError)
"""Errors of values that do not suit a step."""

_OF_ANY_TYPE = 0.03
"""Probability that an operator writes to a variable that may have a value of another type."""

_MOST_TRIES = 6
"""Maximum choices of inputs for an operator before those of a sample are taken."""


class PlantError(WrongTypeError):
    """A fragment to plant does not return variables, whatever it is given."""


class Pick:
    """Choices for a fragment that is planted: a call gives a variable of the program, mostly a late one."""

    def __init__(self, drawing: _Drawing) -> None:
        self._drawing = drawing
        self.choose = drawing.choose
        """The generator of the program."""

    def __call__(self) -> Variable:
        return self._drawing._pick()

    def number(self) -> float:
        """A number for an attribute."""
        return self._drawing.attrs.number()

    def attr(self, type: str, name: str, operand: TensorType | None = None) -> Any:
        """A value of an attribute of operators of a type; one that may suit their first operand."""
        return self._drawing.attrs.one(type, name, operand)

    def definition(self, type: str) -> OpDef:
        return definition_of(type)

    def of_kind(self, kind: str) -> Variable:
        """A value whose elements are of a kind, such as ``b``, ``i`` and ``f``; one is made if there is none."""
        known = [var for var in self._drawing.pool if var.dtype.numpy.kind == kind]
        if known and (kind == "f" or self.choose.random() < 0.7):
            return self.choose.choice(known)
        if kind == "i":
            shape = self.choose.choice(([2], [3], [2, 1]))
            made = data(self._drawing.sources.name("Whole"), shape, self.choose.choice(("int64", "int32")))
        else:
            made = layers.cast(self(), "bool" if kind == "b" else self._drawing.dtype)
        self._drawing._add([made])
        return made

    def of_wanted_dtype(self) -> Variable:
        """A value of an element type that the pass names and programs seldom have; a fed one if there is none."""
        dtype = self.choose.choice(self._drawing.hints.dtypes)
        known = [var for var in self._drawing.pool if var.dtype == dtype]
        if known and self.choose.random() < 0.7:
            return self.choose.choice(known)
        shape = self.choose.choice(([2], [3], [2, 1], [2, 3], [2, 2]))
        made = data(self._drawing.sources.name("Seldom"), shape, dtype)
        self._drawing._add([made])
        return made

    def wants_dtype(self) -> bool:
        """Whether a value of a seldom type should be taken now."""
        return bool(self._drawing.hints.dtypes) and self.choose.random() < 0.4

    def like(self, var: Variable) -> Variable:
        """Another value of the type of `var`; a fed one if there is none."""
        known = [each for each in self._drawing.pool if each.tensor_type == var.tensor_type and each is not var]
        if known or var.shape is None or -1 in var.shape:
            return self.choose.choice(known or [var])
        made = data(self._drawing.sources.name("Other"), var.shape, var.dtype)
        self._drawing._add([made])
        return made

    def even(self) -> Variable:
        """A fed value whose axes have one size: in another order of the axes it has the same type."""
        shape = [self.choose.choice((2, 3))] * self.choose.choice((2, 3, 3, 4))
        made = data(self._drawing.sources.name("Even"), shape, self._drawing.dtype)
        self._drawing._add([made])
        return made


@dataclass(frozen=True)
class Hints:
    """Operators and values to draw more often than the rest.

    Attributes
    ----------
    types : tuple of str
        Types of operators.
    numbers : tuple of float
        Values of attributes.
    attrs : tuple of str
        Names of attributes.
    dtypes : tuple of DType
        Element types that programs seldom have.
    trains : bool
        Most programs shall have gradients and updates, and operators read parameters beside.
    plants : tuple of callable
        Fragments: each is given a `Pick`, appends operators, and returns what these compute.
    """

    types: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    attrs: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()
    trains: bool = False
    plants: tuple[Callable[[Pick], Any], ...] = ()


def draw(choose: Random, hints: Hints) -> Drawn:
    """Draw a program whose operators accept what they read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as that nothing is trained
        while True:
            with program_guard(Program(), Program()), unique_name.guard():
                drawn = _Drawing(choose, hints).draw()
            if is_accepted(drawn.program):
                return drawn


class _Drawing:
    def __init__(self, choose: Random, hints: Hints) -> None:
        self.choose = choose
        self.hints = hints
        self.attrs = AttrValues(choose, hints.numbers, hints.attrs)
        self.forward = forward_types(hints.types)
        self.flow = [name for name, types in RUN_BY.items() if not types.isdisjoint((*hints.types, *hints.attrs))]
        self.trains = choose.random() < (0.7 if hints.trains or asks_for_training(hints.types) else 0.3)
        self.dtype = choose.choice(("float32", "float32", "float64"))
        self.rows, columns = choose.choice((1, 2, 2, 3, 4)), choose.choice((1, 2, 3, 3, 4))
        if choose.random() < 0.04:
            self.rows = 0
        is_known = choose.random() < 0.7 or not self.rows
        rows = self.rows if is_known else None
        x, y = (data(name, [rows, columns], self.dtype) for name in ("x", "y"))
        x.stop_gradient = choose.random() < 0.5
        label = data("label", [rows, 1], "int64")
        self.sources = Sources(self.dtype, columns, choose.randrange(2**16), label, self.trains)
        self.block: Block = x.block
        self.pool: list[Variable] = [label, y, x]
        self.squares = [x, y]
        """Values of the shape of `x`, which layered steps take."""

    def draw(self) -> Drawn:
        if self.choose.random() < 0.7:
            self.pool.insert(1, self.sources.parameter(self.sources.columns))
        if self.choose.random() < 0.5:
            self.pool.insert(1, self.sources.parameter(self.sources.columns, self.sources.columns))
        if self.choose.random() < (0.3 if _OF_AXES.intersection(self.hints.attrs) else 0.1):
            Pick(self).even()
        if Pick(self).wants_dtype():
            Pick(self).of_wanted_dtype()
        for _ in range(self.choose.choice((0, 0, 1, 2)) if self.trains else 0):
            self._add([self.sources.linear(self.choose.choice(self.squares))])
            self.squares.append(self.pool[-1])
        for _ in range(self.choose.choice((1, 2, 2, 3, 3, 4, 5, 6, 8, 12))):
            try:
                self._step()
            except PlantError:
                raise
            except _UNSUITED:
                continue
        if self.trains:
            self._train()
        program = self.block.program
        program.roots = tuple(self._fetched())
        declare(Random(str(self.choose.getstate())), program)
        return Drawn(program, self.rows, self.sources.arrays)

    def _step(self) -> None:
        chance = self.choose.random()
        if self.hints.plants and chance < 0.5:
            self._add(self._planted(self.choose.choice(self.hints.plants)))
        elif self.flow and chance < 0.3:
            self._flow(self.choose.choice(self.flow))
        elif self.forward and chance < (0.6 if self.hints.trains else 0.52):
            self._add(self._operator(self.choose.choice(self.forward)))
            if not self.hints.trains and self.choose.random() < 0.4:
                self._add(self._reader(self.choose.choice(self.forward)))
        elif self.forward and chance < 0.56:
            self._add(self._again(self.forward))
        elif self.forward and chance < 0.6:
            self._add(self._joined())
        elif chance < 0.66:
            self._add(self._again())
        elif chance < 0.78:
            self._add(self._operator(self.choose.choice(all_types())))
        elif chance < 0.9:
            name = self.choose.choice(sorted(SEVERAL))
            if self.choose.random() < 0.6:
                name = self.choose.choice(_FREE)
            self._flow(name)
        else:
            layer = STEPS[self.choose.choice(_LAYERS)]
            made = layer(self.sources, self.choose.choice(self.squares), self.choose.choice(self.squares), 0.5)
            self.squares.append(made)
            self._add([made])

    def _flow(self, name: str) -> None:
        """Append a step of several operators."""
        step = SEVERAL[name] if name in SEVERAL else FREE[name]
        made = step(self.sources, self._pick(), self._pick(), self.attrs.number())
        self._add([made] if isinstance(made, Variable) else list(made))

    def _add(self, made: Sequence[Variable]) -> None:
        self.pool += [each for each in made if each.tensor_type is not None and each.kind is VarKind.LOD_TENSOR]

    def _pick(self) -> Variable:
        """A value, mostly a late one: so operators feed each other; now and then a parameter that is updated."""
        if self.hints.trains and self.choose.random() < 0.2:
            parameters = [var for var in self.pool if isinstance(var, Parameter)]
            if parameters:
                return self.choose.choice(parameters)
        if self.choose.random() < 0.55:
            return self.pool[-1]
        return self.choose.choice(self.pool)

    def _planted(self, plant: Callable[[Pick], Any]) -> list[Variable]:
        made = plant(Pick(self))
        found = [made] if isinstance(made, Variable) else made
        if not isinstance(found, list | tuple) or not all(isinstance(each, Variable) for each in found):
            raise PlantError(
                f"a fragment to plant returned {made!r:.60}",
                hint="Return the variables that it computes: plant=[lambda pick: layers.relu(pick())].",
            )
        return list(found)

    # Single operators

    def _operator(self, type: str) -> list[Variable]:
        """Results of a new operator of a type, on earlier values where they suit it."""
        sample = self.choose.choice(by_type()[type])
        for _ in range(_MOST_TRIES):
            attrs = self.attrs.of_sample(sample)
            inputs = {slot: [self._pick() for _ in arrays] for slot, arrays in sample.inputs.items()}
            if "in_dtype" in sample.definition.attrs:
                attrs["in_dtype"] = int(inputs["X"][0].dtype)
            types = self._inferred(sample, inputs, attrs)
            if types is not None:
                return self._append(sample, inputs, attrs, types)
        return self._append(sample, self._fed(sample), sample.attrs)

    def _reader(self, type: str) -> list[Variable]:
        """Results of a new operator of a type that reads the latest value; none if no choice suits it."""
        last, pick = self.pool[-1], Pick(self)
        for _ in range(_MOST_TRIES):
            sample = self.choose.choice(by_type()[type])
            inputs = {
                slot: [last if not number else pick.like(last) for number, _ in enumerate(arrays)]
                for slot, arrays in sample.inputs.items()
            }
            attrs = self.attrs.of_sample(sample)
            for name, attr in sample.definition.attrs.items():
                if attr.type in ("int", "list[int]") and name in attrs and self.choose.random() < 0.7:
                    attrs[name] = self._attr_as_before(name) or pick.attr(type, name, last.tensor_type)
            types = self._inferred(sample, inputs, attrs)
            if types is not None:
                return self._append(sample, inputs, attrs, types)
        return []

    def _attr_as_before(self, name: str) -> Any:
        """The attribute of the latest operator that has it, now and then: some operators undo others; or None."""
        known = [op.attrs[name] for op in self.block.ops[-3:] if name in op.attrs]
        return known[-1] if known and self.choose.random() < 0.5 else None

    def _joined(self) -> list[Variable]:
        """Results of two operators on one value, and of one that reads both."""
        value = self._pick()
        made: list[Variable] = []
        for given in ([value], [value], made):
            for _ in range(_MOST_TRIES):
                sample = self.choose.choice(by_type()[self.choose.choice(self.forward)])
                count = sum(map(len, sample.inputs.values()))
                if count > len(given) or (given is made and count < 2):
                    continue
                left = iter(given)
                inputs = {slot: [next(left) for _ in arrays] for slot, arrays in sample.inputs.items()}
                attrs = self.attrs.of_sample(sample)
                types = self._inferred(sample, inputs, attrs)
                if types is not None:
                    made.append(self._append(sample, inputs, attrs, types)[-1])
                    break
        return made

    def _inferred(
        self, sample: Sample, inputs: Mapping[str, Sequence[Variable]], attrs: Mapping[str, Any]
    ) -> dict[str, list[Any]] | None:
        """Types of the results by slot; None if the operator does not take these inputs, or gives nothing."""
        try:
            types = sample.definition.infer_types(
                {slot: [var.tensor_type for var in variables] for slot, variables in inputs.items()},
                sample.definition.convert_attrs(attrs),
            )
            read = [known for slot, each in types.items() if slot not in hidden(sample.definition) for known in each]
            is_empty = any([known is not None and 0 in known.shape for known in read])
        except Exception:  # an inference may stumble over what it was never made for
            return None
        return None if is_empty and self.rows else types

    def _again(self, types: Sequence[str] = ()) -> list[Variable]:
        """Results of an operator like an earlier one; its inputs may have been overwritten, or one thing differs."""
        simple = [op for op in self.block.ops if len(op.outputs.get("Out", ())) == 1 and SUB_BLOCK not in op.attrs]
        simple = [op for op in simple if op.type in types] or simple
        if not simple:
            return []
        op = self.choose.choice(simple)
        old = [name for names in op.outputs.values() for name in names]
        new = {name: self._output() for name in old}
        outputs = {slot: [new[name] for name in names] for slot, names in op.outputs.items()}
        if self.choose.random() < 0.3:
            self._overwrite(self.block.vars[op.outputs["Out"][0]].tensor_type, outputs)
        inputs = {slot: [self.block.vars[name] for name in names] for slot, names in op.inputs.items()}
        attrs: Mapping[str, Any] = op.attrs
        chance = self.choose.random() / (3 if types else 1)
        if chance < 0.15:
            attrs = self.attrs.one_changed(op)
        elif chance < 0.25 and inputs:
            slot = self.choose.choice(sorted(inputs))
            inputs[slot] = list(map(Pick(self).like, inputs[slot]))
        elif chance < 0.3 and inputs:
            inputs[next(iter(inputs))] = [self.block.vars[op.outputs["Out"][0]]]  # the same once more
        self.block.append_op(op.type, inputs, outputs, attrs)
        for name, var in new.items():
            var.stop_gradient = self.block.vars[name].stop_gradient
        return for_readers(op.definition, outputs)

    def _fed(self, sample: Sample) -> dict[str, list[Variable]]:
        """The inputs of a sample as fed variables; one of floating type depends on an earlier value."""
        dtype = self.dtype if self.dtype in sample.dtypes else sample.dtypes[-1]
        inputs = {
            slot: [self.sources.fed(array) for array in arrays] for slot, arrays in sample.inputs_as(dtype).items()
        }
        floating = [slot for slot, given in inputs.items() if given and _has_numbers(given[0])]
        if floating:
            slot = floating[0] if self.choose.random() < 0.6 else self.choose.choice(floating)
            change = layers.scale(layers.tanh(like(inputs[slot][0], self._known_pick())), 1e-3)
            inputs[slot][0] = self._through_hinted(layers.elementwise_add(change, inputs[slot][0]))
        return inputs

    def _through_hinted(self, var: Variable) -> Variable:
        """Now and then what an operator that the pass is about makes of a value, if that has its type."""
        if not self.forward or self.choose.random() < 0.5:
            return var
        sample = self.choose.choice(by_type()[self.choose.choice(self.forward)])
        inputs = {slot: [var] * len(arrays) for slot, arrays in sample.inputs.items()}
        attrs = self.attrs.of_sample(sample)
        types = self._inferred(sample, inputs, attrs)
        main = sample.definition.main_output
        if types is None or list(types.get(main, ())) != [var.tensor_type]:
            return var
        return self._append(sample, inputs, attrs)[-1]

    def _known_pick(self) -> Variable:
        known = [var for var in self.pool if var.tensor_type is not None and var.tensor_type.is_static]
        return self.choose.choice(known or [layers.fill_constant([1], self.dtype, 0.5)])

    def _append(
        self,
        sample: Sample,
        inputs: dict[str, list[Variable]],
        attrs: dict[str, Any],
        types: Mapping[str, Sequence[TensorType | None]] | None = None,
    ) -> list[Variable]:
        outputs = {slot: [self._output() for _ in range(count)] for slot, count in sample.output_counts(inputs).items()}
        if types is not None and len(types.get("Out", ())) == len(outputs.get("Out", ())) == 1:
            self._overwrite(types["Out"][0], outputs)
        sample.append_to(self.block, inputs, outputs, attrs)
        return for_readers(sample.definition, outputs)

    def _output(self) -> Variable:
        return self.block.create_var(name=unique_name.generate("t"))

    def _overwrite(self, type: TensorType | None, outputs: dict[str, list[Variable]]) -> None:
        """Now and then let the operator write to a variable, which mostly has a value of this type."""
        chance = self.choose.random()
        if chance < 0.2:
            is_any = chance < _OF_ANY_TYPE
            # The type of what a sub-block makes is its declaration, which another type would write over.
            ops = self.block.ops if is_any else ()
            fixed = {name for op in ops if SUB_BLOCK in op.attrs for name in op.output_arg_names}
            same = [
                var
                for var in self.pool
                if self._may_write(var) and (var.tensor_type == type or (is_any and var.name not in fixed))
            ]
            if same:
                outputs["Out"] = [self.choose.choice(same)]

    def _may_write(self, var: Variable) -> bool:
        return not var.is_data and not (var.persistable and self.trains)

    # Training and fetches

    def _train(self) -> None:
        floating = [var for var in self.pool if var.dtype.is_floating and not var.stop_gradient and not var.persistable]
        kept = floating[-self.choose.choice((1, 1, 2)) :]
        if not self.block.program.all_parameters():
            kept.append(self.sources.linear(self.squares[0]))
        parts = [self._mean(var) for var in kept]
        if not parts:
            return
        loss = layers.sums(parts) if len(parts) > 1 else parts[0]
        if self.choose.random() < (0.3 if self.hints.trains or "clip" in self.hints.types else 0.1):
            self.choose.choice(floating or kept).error_clip = ErrorClipByValue(self.choose.choice((1e-3, 0.1)))
        try:
            pairs = train(self._training(), self.block.program, [loss], loss)
        except _UNSUITED:  # an operator without a gradient of its gradient
            return
        if _ALL_REDUCE in self.hints.types and self.choose.random() < 0.5:
            GradAllReduce(ranks=2).apply(self.block.program)
        if self.choose.random() < (0.7 if "lazy_mode" in self.hints.attrs else 0.3):
            for op in self.block.ops.of_type("adam"):
                op.set_attr("lazy_mode", True)
        grads = [grad for _, grad in pairs]
        for grad in [each for each in grads if each.kind is VarKind.SELECTED_ROWS and self.choose.random() < 0.5]:
            grads.append(layers.get_tensor_from_selected_rows(layers.merge_selected_rows(grad)))
        self.pool += [loss, *(grad for grad in grads if grad.kind is VarKind.LOD_TENSOR)]

    def _mean(self, var: Variable) -> Variable:
        """A mean of a value, of shape [1]."""
        mean = layers.mean(var if var.dtype.numpy == self.dtype else layers.cast(var, self.dtype))
        return mean if mean.shape == (1,) else layers.reshape(mean, [1])

    def _training(self) -> Training:
        named = [each for each in OPTIMIZERS if each.lower() in self.hints.types]
        # Two global norms, each of some of the parameters.
        groups = (Clip("global", 1e-3), Clip("global", 0.1)) if self.choose.random() < 0.15 else ()
        return Training(
            optimizer=self.choose.choice(named if named and self.choose.random() < 0.7 else OPTIMIZERS),
            grad_clip=None if groups else self._clip(),
            set_clips=groups or tuple(self._clip() for _ in range(self.choose.randrange(3))),
            decay=self.choose.choice((None, None, "L1Decay", "L2Decay")),
            error_clip=None,
        )

    def _clip(self) -> Clip | None:
        if self.choose.random() < 0.4:
            return None
        return Clip(self.choose.choice(("value", "norm", "global")), self.choose.choice((1e-3, 0.1, 100.0)))

    def _fetched(self) -> list[str]:
        """Names to fetch: the latest values and, now and then, one or all of the others."""
        known = list(fetchable(self.block))
        chance = self.choose.random()
        if chance < 0.08:
            return known
        names = [var.name for var in self.pool[-self.choose.choice((1, 1, 2, 3)) :] if var.name in known] or known[-1:]
        if chance < 0.4:
            names += self.choose.sample(known, min(len(known), self.choose.choice((1, 2))))
        return list(dict.fromkeys(names))


def _has_numbers(var: Variable) -> bool:
    return var.dtype.is_floating and 0 not in (var.shape or ())
