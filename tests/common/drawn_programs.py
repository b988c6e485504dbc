"""Programs for laws on text and rewriting; `minigraph.rewrite.strategies` has those that train.

`any_programs` have every field in every state, and need not compute anything; `overwriting_programs` write few names.
"""

from __future__ import annotations

import dataclasses
import math
import string
from dataclasses import dataclass

from hypothesis import strategies as st

from minigraph.ir import Block, Parameter, Program, Role, Variable, VarKind
from minigraph.ir.printable import printable
from minigraph.opdef import EMPTY, REQUIRED, SUB_BLOCK, all_definitions
from minigraph.types import DType, TensorType


@printable
@dataclass(frozen=True)
class PretendClip:
    """A strategy with a field of every sort."""

    limit: float
    group: str = "default"
    axes: tuple[int, ...] = ()
    inner: object = None


# Every field in every state

plain_names = st.text(f"{string.ascii_letters}{string.digits}_.@/$-", min_size=1, max_size=12)
names = st.one_of(plain_names, st.text(max_size=5)).filter(lambda name: name != EMPTY)
finite = st.floats(allow_nan=False)
clips = st.recursive(
    st.none(),
    lambda inner: st.builds(
        PretendClip, limit=finite, group=st.text(max_size=4), axes=st.lists(st.integers()).map(tuple), inner=inner
    ),
    max_leaves=3,
)
tensor_types = st.builds(
    TensorType, st.sampled_from(DType), st.lists(st.integers(-1, 2**40), max_size=4).map(tuple)
)  # fmt: skip
every_float = st.one_of(st.floats(), st.floats(width=32), st.sampled_from([0.1, 1e-8, 16777217.0, math.pi]))
whole_numbers = st.integers(-(2**63), 2**63 - 1)
attribute_values = {
    "int": st.one_of(whole_numbers, st.integers(0, 6)),
    "float": every_float,
    "bool": st.booleans(),
    "str": st.text(),
    "list[int]": st.lists(whole_numbers),
    "list[float]": st.lists(every_float),
    "list[np.float64]": st.lists(st.floats()),
    "list[bool]": st.lists(st.booleans()),
    "list[str]": st.lists(st.text()),
}

# Strategies that are made once, because each that is made has to be checked, too.
yes_or_no = st.booleans()
up_to_two, up_to_three, up_to_four = st.integers(0, 2), st.integers(0, 3), st.integers(0, 4)
numbers_of_blocks = st.integers(1, 3)
new_names = st.lists(names, unique=True, min_size=1, max_size=6)
rates = st.dictionaries(st.text(max_size=3), finite, max_size=2)
types_if_any = st.none() | tensor_types
# Lists of what is fed and fetched are not read back, nor are the operators that alone use them.
KINDS = [kind for kind in VarKind if kind not in (VarKind.FEED_MINIBATCH, VarKind.FETCH_LIST)]
kinds = st.sampled_from(KINDS)
kinds_of_typed = st.sampled_from([kind for kind in KINDS if kind is not VarKind.STEP_SCOPES])
role_sets = st.sets(st.sampled_from(Role)).map(lambda roles: sum(roles, Role.FORWARD))
served_names = st.lists(names, max_size=2)
namescopes = st.just("/") | st.text(min_size=1, max_size=5)


@st.composite
def any_programs(draw: st.DrawFn) -> Program:
    program = Program()
    program.random_seed = draw(up_to_three)
    program.backward_passes = draw(up_to_two)
    for idx in range(1, draw(numbers_of_blocks)):
        forward = draw(st.integers(-1, idx - 1).filter(bool))
        program.blocks.append(Block(program, idx, draw(st.integers(0, idx - 1)), forward))
    for block in program.blocks:
        for name in draw(new_names):
            block.vars[name] = draw_variable(draw, block, name)
    for block in program.blocks:
        for _ in range(draw(up_to_four)):
            draw_operator(draw, block)
    return program


def draw_booleans(draw: st.DrawFn, count: int) -> list[bool]:
    """As many booleans, drawn as one number, because each draw takes long."""
    bits = draw(st.integers(0, 2**count - 1))
    return [bool(bits >> i & 1) for i in range(count)]


def draw_variable(draw: st.DrawFn, block: Block, name: str) -> Variable:
    var: Variable
    if draw(yes_or_no):
        var = param = Parameter(block, name, draw(tensor_types))
        param.trainable, param.do_model_average, param.need_clip = draw_booleans(draw, 3)
        param.optimize_attr = draw(rates)
        param.gradient_clip, param.regularizer = draw(clips), draw(clips)
    else:
        var = Variable(block, name, draw(types_if_any))
    var.kind = draw(kinds if var.tensor_type is None else kinds_of_typed)
    var.persistable, var.stop_gradient, var.is_data, var.need_check_feed = draw_booleans(draw, 4)
    var.error_clip = draw(clips)
    return var


def draw_operator(draw: st.DrawFn, block: Block) -> None:
    inside = [each.idx for each in block.program.blocks if each.parent_idx == block.idx]
    definitions = [each for each in all_definitions() if inside or SUB_BLOCK not in each.attrs]
    definition = draw(st.sampled_from(definitions))
    visible = list(
        dict.fromkeys(name for b in block.program.blocks for name in b.vars if block.find_var(name) is not None)
    )

    single, several = st.sampled_from(visible), st.sampled_from([*visible, EMPTY])

    def draw_slots(slots):
        found = {}
        for slot in slots:
            least, most = 0 if slot.dispensable or slot.intermediate else 1, 3 if slot.duplicable else 1
            count = draw(st.integers(least, most)) if least < most else most
            found[slot.name] = [draw(several if slot.duplicable else single) for _ in range(count)]
        return found

    given = draw_booleans(draw, len(definition.attrs))
    attrs = {
        name: draw(st.sampled_from(inside) if attr.type == "BlockIndex" else attribute_values[attr.type])
        for (name, attr), is_given in zip(definition.attrs.items(), given, strict=True)
        if attr.default is REQUIRED or is_given
    }
    attrs["op_role"] = draw(role_sets)
    attrs["op_role_var"] = draw(served_names)
    attrs["op_namescope"] = draw(namescopes)
    inputs, outputs = draw_slots(definition.inputs), draw_slots(definition.outputs)
    block._link(None, block._make_op(definition.type, inputs, outputs, attrs, None))


# Programs that write names again

MATRICES, VECTORS = ("a", "b", "c", "d"), ("u", "v")


@st.composite
def overwriting_programs(draw: st.DrawFn, max_ops: int = 12) -> Program:
    """Operators on float32[3, 3] and float32[9] that write few names over and over; `w` is persistable, `x` fed."""
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[3, 3], is_data=True)
    block.create_var(name="w", shape=[3, 3], persistable=True)
    block.append_op("assign", {"X": "x"}, {"Out": block.create_var(name="a", shape=[3, 3])})
    block.append_op("reshape2", {"X": "x"}, {"Out": block.create_var(name="u", shape=[9])}, {"shape": [9]})
    for _ in range(draw(st.integers(1, max_ops))):
        _draw_overwriting_op(draw, block)
    return program


def _draw_overwriting_op(draw: st.DrawFn, block: Block) -> None:
    def known(names):
        return draw(st.sampled_from([name for name in names if name in block.vars]))

    kind = draw(st.sampled_from(_OVERWRITING))
    if kind.makes_vector is None:
        makes_vector = draw(st.booleans())
    else:
        makes_vector = kind.makes_vector
    reads = VECTORS if makes_vector != kind.changes_rank else ("x", "w", *MATRICES)
    inputs = {slot: known(reads) for slot in kind.slots}
    attrs = {name: draw(st.sampled_from(values)) for name, values in kind.attrs.items()}
    if kind.type in ("fill_constant", "uniform_random"):
        attrs["shape"] = [9] if makes_vector else [3, 3]
    out = draw(st.sampled_from(VECTORS if makes_vector else ("w", *MATRICES)))
    block.create_var(name=out)
    block.append_op(kind.type, inputs, {"Out": out}, attrs)


@dataclass(frozen=True)
class _Kind:
    """How an operator is drawn: what it reads, its attributes' values, if its result is a vector (None: either)."""

    type: str
    slots: str = "X"
    attrs: dict[str, list] = dataclasses.field(default_factory=dict)
    makes_vector: bool | None = None
    changes_rank: bool = False


_OVERWRITING = (
    _Kind("assign"),
    _Kind("scale", attrs={"scale": [1.0, 2.0], "bias": [0.0, -0.0, 1.0], "bias_after_scale": [True, False]}),
    _Kind("cast", attrs={"in_dtype": [5], "out_dtype": [5]}),
    _Kind("sum"),
    _Kind("tanh"),
    _Kind("relu"),
    _Kind("clip", attrs={"min": [0.0, -0.0], "max": [0.5]}),
    _Kind("elementwise_add", "XY"),
    _Kind("elementwise_mul", "XY"),
    _Kind("fill_zeros_like"),
    _Kind("fill_constant", "", attrs={"value": [0.0, 1.0, math.inf, 0.1], "str_value": ["", "-0.0", "0.1"]}),
    _Kind("uniform_random", "", attrs={"seed": [0, 7]}),
    _Kind("transpose2", attrs={"axis": [[1, 0], [0, 1]]}, makes_vector=False),
    _Kind("matmul", "XY", attrs={"transpose_X": [True, False], "transpose_Y": [True, False]}, makes_vector=False),
    _Kind("mul", "XY", makes_vector=False),
    _Kind("reshape2", attrs={"shape": [[3, 3]]}, makes_vector=False),
    _Kind("reshape2", attrs={"shape": [[3, 3]]}, makes_vector=False, changes_rank=True),
    _Kind("reshape2", attrs={"shape": [[9]]}, makes_vector=True),
    _Kind("reshape2", attrs={"shape": [[9]]}, makes_vector=True, changes_rank=True),
    _Kind("softmax"),
)
