"""Programs as text: printing, parsing, comparing.

Printing and parsing are inverse: ``parse(str(program)).equals(program)``, and printing what was parsed gives the same
text again. A program reads::

    program {random_seed=7}
    block 0
      param w: float32[4] {gradient_clip=GradientClipByNorm(clip_norm=1.0)}
      persist lr: float32[1]
      data x: float32[-1, 4]
      y: float32[-1, 4] = elementwise_mul(X=x, Y=w)
      w = sgd(Param=w, Grad=w@GRAD, LearningRate=lr) {role='optimize'}

- One line, one statement; indentation is free; ``#`` starts a comment.
- Parameters, persistable variables and data are declared first. Any other variable is declared by its type where an
  operator first writes it, or as ``var name: type`` when no operator of its block does. A type that nobody knows yet is
  ``unknown``.
- An operator with several output slots names them, ``Y=a: float32[2], Mask=b: bool[2] = op(X=c)``; a slot that takes
  several variables has brackets, ``X=[a, b]``.
- Braces hold what differs from the defaults. Those of a declaration depend on its kind: `DEFAULTS` has them.
- Sub-blocks follow, ``block 2 parent 0``; that of a gradient names the block that it is the gradient of,
  ``block 3 parent 0 forward 2``. The operator that runs a block has ``sub_block=2``.
- A name of letters, digits and ``_ . @ / $ + -`` stands as it is, any other in double quotes.
- Clips, regularizers and other objects whose class is `minigraph.ir.printable.printable` print as the call that makes
  them. A Python object without a text, such as a function, prints as ``<function name>``; only that cannot be parsed.
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minigraph.ir.effects import slot_names
from minigraph.ir.program import Block, Operator, Parameter, Program, Role, Variable, VarKind
from minigraph.opdef import Attr, Slot
from minigraph.support.gc_pause import without_collector
from minigraph.types import DType

if TYPE_CHECKING:
    from minigraph.ir.text.diff import Difference

PLAIN_NAME = r"[\w.@/$+-]+"
"""A name that needs no quotes, as a regular expression."""

_VARIABLE = {
    "kind": VarKind.LOD_TENSOR, "persistable": False, "stop_gradient": False, "is_data": False,
    "need_check_feed": False, "error_clip": None,
}  # fmt: skip
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "param": {
        **_VARIABLE, "persistable": True, "trainable": True, "optimize_attr": {"learning_rate": 1.0},
        "regularizer": None, "do_model_average": True, "need_clip": True, "gradient_clip": None,
    },
    "persist": {**_VARIABLE, "persistable": True},
    "data": {**_VARIABLE, "is_data": True, "stop_gradient": True},
    "var": _VARIABLE,
}  # fmt: skip
"""Kind of declaration -> field -> the value that goes without saying."""

PROGRAM_DEFAULTS = {"random_seed": 0, "backward_passes": 0}

DTYPE_ATTRS = frozenset({"dtype", "in_dtype", "out_dtype"})
"""Integer attributes that number an element type; they print its name."""

_PHASES = Role.BACKWARD | Role.OPTIMIZE | Role.RPC | Role.DIST | Role.LR_SCHED
_is_plain = re.compile(PLAIN_NAME).fullmatch


# Printing


def program_text(program: Program) -> str:
    """The whole program; what ``str(program)`` gives."""
    header = _braces(_unusual(program, PROGRAM_DEFAULTS))
    blocks = [block_text(block) for block in program.blocks]
    return "\n".join([f"program{header}", *blocks] if header else blocks)


def block_text(block: Block) -> str:
    """A heading, the declarations, the operators."""
    heading = f"block {block.idx}"
    heading += f" parent {block.parent_idx}" if block.parent_idx >= 0 else ""
    heading += f" forward {block.forward_block_idx}" if block.forward_block_idx >= 0 else ""
    written = {name for op in block.ops for name in slot_names(op.outputs)}
    pending = {name: var for name, var in block.vars.items() if name in written and _keyword(var) == "var"}
    declared = [f"{_keyword(var)} {_declaration(var)}" for name, var in block.vars.items() if name not in pending]
    return "\n  ".join([heading, *declared, *(_operator_line(op, pending) for op in block.ops)])


def operator_line(op: Operator) -> str:
    """One operator, with the type of every variable it writes that has no declaration of its own.

    Examples
    --------
    >>> from minigraph.ir.text.printer import parse
    >>> program = parse('''
    ... block 0
    ...   data x: float32[-1, 4]
    ...   y: float32[-1, 4] = relu(X=x)
    ... ''')
    >>> print(operator_line(program.global_block().ops[0]))
    y: float32[-1, 4] = relu(X=x)
    """
    if op._block is None:
        return _operator_line(op, {})
    known = {name: op.block.vars.get(name) for name in op.output_arg_names}
    return _operator_line(op, {name: var for name, var in known.items() if var is not None and _keyword(var) == "var"})


def _keyword(var: Variable) -> str:
    """The kind of declaration of a variable."""
    if isinstance(var, Parameter):
        return "param"
    return "data" if var.is_data else "persist" if var.persistable else "var"


def _declaration(var: Variable) -> str:
    # The kind is one of the fields.
    type_text = "unknown" if var.tensor_type is None else str(var.tensor_type.held_as(VarKind.LOD_TENSOR))
    return f"{name_text(var.name)}: {type_text}{_braces(_unusual(var, DEFAULTS[_keyword(var)]))}"


def _operator_line(op: Operator, pending: dict[str, Variable]) -> str:
    """The line of an operator; variables in `pending` are declared here, and taken out."""

    def written(name: str) -> str:
        return _declaration(pending.pop(name)) if name in pending else name_text(name)

    slots = op.definition.output_slots
    outputs = ", ".join(
        ("" if len(slots) == 1 else f"{name_text(slot)}=") + _names(map(written, names), slots.get(slot), len(names))
        for slot, names in op.outputs.items()
    )
    inputs = ", ".join(
        f"{name_text(slot)}={_names(map(name_text, names), op.definition.input_slots.get(slot), len(names))}"
        for slot, names in op.inputs.items()
    )
    return f"{outputs}{' = ' if outputs else ''}{name_text(op.type)}({inputs}){_braces(_operator_fields(op))}"


def _names(names: Iterable[str], slot: Slot | None, count: int) -> str:
    joined = ", ".join(names)
    return f"[{joined}]" if count != 1 or (slot is not None and slot.duplicable) else joined


def _operator_fields(op: Operator) -> dict[str, str]:
    declared = op.definition.attrs
    fields = {name: _attr_text(attr, op.attrs[name]) for name, attr in declared.items() if name in op.attrs}
    if op.role != Role.FORWARD:
        fields["role"] = _role_text(op.role)
    if op.role_vars:
        fields["role_vars"] = f"[{', '.join(map(name_text, op.role_vars))}]"
    if op.namescope != "/":
        fields["namescope"] = _quoted(op.namescope, "'")
    return fields


def _unusual(thing: Any, defaults: Mapping[str, Any]) -> dict[str, str]:
    """The fields that differ from `defaults`, as text."""
    values = {name: getattr(thing, name) for name in defaults}
    return {name: value_text(value) for name, value in values.items() if value != defaults[name]}


def _braces(fields: Mapping[str, str]) -> str:
    return f" {{{', '.join(f'{name}={text}' for name, text in fields.items())}}}" if fields else ""


# Values


def name_text(name: str) -> str:
    """`name` as it stands in text: plain, or in double quotes where it has other characters.

    Examples
    --------
    >>> print(name_text("fc_0.w_0@GRAD"), name_text("two words"))
    fc_0.w_0@GRAD "two words"
    """
    return name if _is_plain(name) else _quoted(name, '"')


def value_text(value: Any) -> str:
    """A field's value in the notation of Python; ``<...>`` where it has no text that could be parsed again.

    Examples
    --------
    >>> print(value_text({"rate": 0.5}), value_text([True, None]), value_text(len))
    {'rate': 0.5} [True, None] <builtin_function_or_method len>
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return _quoted(value, "'")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(value_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{value_text(key)}: {value_text(item)}' for key, item in value.items())}}}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _constructor_text(value)
    return _opaque_text(value)


def _constructor_text(strategy: Any) -> str:
    """A call that makes an equal object: the fields without a default, and those that differ from theirs."""
    given = []
    for field in dataclasses.fields(strategy):
        value = getattr(strategy, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if field.init and (default is dataclasses.MISSING or value != default):
            given.append(f"{field.name}={value_text(value)}")
    return f"{type(strategy).__name__}({', '.join(given)})"


def _opaque_text(value: Any) -> str:
    words = [type(value).__name__, getattr(value, "__name__", None) or getattr(value, "name", "")]
    return f"<{' '.join(re.sub('[^A-Za-z0-9_.]', '', str(word)) for word in words if word)}>"


def _attr_text(attr: Attr, value: Any) -> str:
    if attr.type == "int" and attr.name in DTYPE_ATTRS and value in DType._value2member_map_:
        return str(DType(value))
    if attr.type == "float":
        return _float32_text(value)
    if attr.type == "list[float]":
        return f"[{', '.join(map(_float32_text, value))}]"
    return value_text(list(value) if isinstance(value, tuple) else value)


def _float32_text(value: float) -> str:
    """The text of a float attribute with the fewest digits: its value is a float32, to which parsing rounds again."""
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if ctypes.c_float(short).value == value:
            return repr(short)
    return repr(value)


def _role_text(role: Role) -> str:
    """Such as ``'forward|loss'``; the number where a bit has no name."""
    parts = [part for part in Role if role & part]
    if sum(parts) != role:
        return str(int(role))
    words = [str(part.name).lower() for part in parts]
    return f"'{'|'.join(words if role & _PHASES else ['forward', *words])}'"


def _quoted(text: str, mark: str) -> str:
    """A Python string literal between `mark`; what is not printable is escaped, so it has no line break."""
    return mark + "".join(_escaped(c, mark) for c in text) + mark


def _escaped(c: str, mark: str) -> str:
    if c in ("\\", mark):
        return "\\" + c
    return c if c.isprintable() else c.encode("unicode_escape").decode("ascii")


# Parsing and comparing


@without_collector
def parse(text: str) -> Program:
    """The program that `text` describes.

    Slots and attributes are checked against the operator definitions; the types of variables are those written.

    Raises
    ------
    ParseError
        With the line, the place in it, and the nearest known word where one is unknown.

    Examples
    --------
    >>> program = parse('''
    ...     block 0
    ...       data x: float32[-1, 4]
    ...       y: float32[-1, 4] = relu(X=x)
    ... ''')
    >>> program.global_block().var("y").shape
    (-1, 4)
    """
    from minigraph.ir.text.parser import read_program

    return read_program(text)


def diff(a: Program, b: Program, context: int = 3) -> Difference:
    """What turns the text of `a` into that of `b`: lines behind ``-`` go, lines behind ``+`` come.

    Around each change stand `context` lines and the heading of its block; ``...`` stands for lines left out. The
    empty string if the texts are equal.

    Examples
    --------
    >>> before = parse('''
    ...     block 0
    ...       data x: float32[-1, 4]
    ...       y: float32[-1, 4] = relu(X=x)
    ... ''')
    >>> after = before.clone()
    >>> after.global_block().ops[0].role |= Role.LOSS
    >>> print(diff(before, after))
      block 0
        data x: float32[-1, 4]
    -   y: float32[-1, 4] = relu(X=x)
    +   y: float32[-1, 4] = relu(X=x) {role='forward|loss'}
    """
    from minigraph.ir.text.diff import Difference, diff_lines

    return Difference("\n".join(diff_lines(program_text(a).split("\n"), program_text(b).split("\n"), context)))
