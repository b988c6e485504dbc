"""`why_not`: the nearest partial match of a rule, and what differs."""

import random
from itertools import product

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import NotFoundError, Site, WrongTypeError
from minigraph.ir import Program, Role
from minigraph.opdef import definition_of
from minigraph.passes.rules import attr, marked, op, rule, value


@rule
def scales(x, a=attr("scale"), b=attr("scale")):
    return layers.scale(layers.scale(x, scale=a), scale=b)


@scales.where
def _(m):
    yield m.a * m.b < 100, "the product must be small"
    yield len(m.x.shape) < 3, "x must have at most two dimensions"


@scales.to
def _(x, a, b):
    return layers.scale(x, scale=a * b)


@rule
def clips(g, a=attr("max_norm"), b=attr("max_norm")):
    return op("clip_by_norm", X=op("clip_by_norm", X=g, max_norm=a), max_norm=b)


@clips.to
def _(g, a, b):
    return op("clip_by_norm", X=g, max_norm=min(a, b))


@rule
def sums(x, y, z):
    return op("sum", X=[op("sum", X=[x, y]), z])


@sums.to
def _(x, y, z):
    return op("sum", X=[x, y, z])


@rule
def affine(x, y, z):
    return layers.relu(layers.elementwise_add(layers.elementwise_mul(x, y), z))


@affine.to
def _(x, y, z):
    return layers.elementwise_add(layers.elementwise_mul(x, y), layers.relu(z))


@rule
def both(x):
    return layers.relu(x), layers.tanh(x)


@both.to
def _(x):
    return layers.abs(x), layers.abs(x)


@rule
def backward(x, a=attr("scale")):
    return marked(layers.relu(marked(layers.scale(x, a), role=Role.BACKWARD)), namescope="/net/")


@backward.to
def _(x, a):
    return layers.scale(layers.relu(x), a)


@rule
def rows(x=value(shape=[-1, 4])):
    return layers.relu(layers.abs(x))


@rows.to
def _(x):
    return layers.abs(x)


@rule
def copies(x):
    return op("assign", X=x)


@copies.to
def _(x):
    return x


TWO, THREE = "h: float32[2] = scale(X=x) {scale=2.0}", "y: float32[2] = scale(X=h) {scale=3.0}"
CLIP, AGAIN = "h: float32[2] = clip_by_norm(X=x) {max_norm=2.0}", "y: float32[2] = clip_by_norm(X=h) {max_norm=1.0}"
PLUS, MORE = "h: float32[2] = sum(X=[x, x])", "y: float32[2] = sum(X=[h, x])"
MUL, ADD = "p: float32[2] = elementwise_mul(X=x, Y=x)", "s: float32[2] = elementwise_add(X=p, Y=x)"
RELU = "y: float32[2] = relu(X=s)"
BACK, NET = (
    "h: float32[2] = scale(X=x) {scale=2.0, role='backward'}", "y: float32[2] = relu(X=h) {namescope='/net/1/'}",
)  # fmt: skip


@rule
def doubles(x):
    return op("scale", X=op("cast", X=x, in_dtype=attr(), out_dtype=6), scale=2.0)


@doubles.where
def _(m):
    yield m.x.dtype is fluid.float64, "x must be float64"


@doubles.to
def _(x):
    return layers.elementwise_add(x, x)


@rule
def weighted(x, y):
    return marked(op("elementwise_mul", X=layers.abs(x), Y=y), commutes=True)


@weighted.to
def _(x, y):
    return layers.abs(layers.elementwise_mul(x, y))


NEAR_MISSES = {
    "type of what is read": (
        scales, ["h: float32[2] = relu(X=x)", THREE],
        1, 1, "X", "scale", "relu, which makes h",
    ),
    "type of the last": (
        scales, [TWO, "y: float32[2] = relu(X=h)"],
        1, 1, "type", "scale", "relu",
    ),
    "type of a clip": (
        clips, ["h: float32[2] = tanh(X=x)", AGAIN],
        1, 1, "X", "clip_by_norm", "tanh",
    ),
    "type in the middle": (
        affine, [MUL, "s: float32[2] = elementwise_sub(X=p, Y=x)", RELU],
        2, 2, "X", "elementwise_add", "elementwise_sub",
    ),
    "type at the end": (
        affine, ["p: float32[2] = elementwise_div(X=x, Y=x)", ADD, RELU],
        2, 1, "X", "elementwise_mul", "elementwise_div",
    ),
    "type of another reader": (
        both, ["h: float32[2] = relu(X=x)", "y: float32[2] = abs(X=x)"],
        0, 1, "type", "tanh", "abs",
    ),
    "attribute of the first": (
        scales, ["h: float32[2] = scale(X=x) {scale=2.0, bias=1.0}", THREE],
        1, 0, "bias", "0.0", "1.0",
    ),
    "attribute of the last": (
        scales, [TWO, "y: float32[2] = scale(X=h) {bias_after_scale=False}"],
        1, 1, "bias_after_scale", "True", "False",
    ),
    "attribute of an addition": (
        affine, [MUL, "s: float32[2] = elementwise_add(X=p, Y=x) {axis=0}", RELU],
        2, 1, "axis", "-1", "0",
    ),
    "attribute of a product": (
        affine, ["p: float32[2] = elementwise_mul(X=x, Y=x) {axis=0}", ADD, RELU],
        2, 0, "axis", "-1", "0",
    ),
    "more inputs": (
        sums, [PLUS, "y: float32[2] = sum(X=[h, x, x])"],
        1, 1, "X", "2 variables", "3 variables",
    ),
    "fewer inputs": (
        sums, [PLUS, "y: float32[2] = sum(X=[h])"],
        1, 1, "X", "2 variables", "1 variable",
    ),
    "more inputs before": (
        sums, ["h: float32[2] = sum(X=[x, x, x])", MORE],
        1, 0, "X", "2 variables", "3 variables",
    ),
    "fewer inputs before": (
        sums, ["h: float32[2] = sum(X=[x])", MORE],
        1, 0, "X", "2 variables", "1 variable",
    ),
    "another slot": (
        scales, ["h: float32[2] = scale(X=x, ScaleTensor=f)", THREE],
        1, 0, "ScaleTensor", "nothing", "f",
    ),
    "another slot of the last": (
        scales, [TWO, "y: float32[2] = scale(X=h, ScaleTensor=f)"],
        1, 1, "ScaleTensor", "nothing", "f",
    ),
    "used elsewhere": (
        scales, [TWO, THREE, "w: float32[2] = relu(X=h)"],
        1, 0, "Out", "nothing else reads", "relu reads at model.py:3",
    ),
    "a clip used elsewhere": (
        clips, [CLIP, AGAIN, "w: float32[2] = relu(X=h)"],
        1, 0, "Out", "nothing else reads", "relu reads at model.py:3",
    ),
    "a sum used by two": (
        sums, [PLUS, MORE, "w: float32[2] = relu(X=h)", "v: float32[2] = abs(X=h)"],
        1, 0, "Out", "nothing else", "relu reads at model.py:3 and 1 more",
    ),
    "a product used elsewhere": (
        affine, [MUL, ADD, RELU, "w: float32[2] = abs(X=p)"],
        2, 0, "Out", "nothing else reads", "abs reads",
    ),
    "fetched": (
        scales, [TWO, THREE, "fetch h"],
        1, 0, "Out", "nothing else reads", "which is fetched",
    ),
    "a clip that is fetched": (
        clips, [CLIP, AGAIN, "fetch h"],
        1, 0, "Out", "nothing else reads", "which is fetched",
    ),
    "a sum that is fetched": (
        affine, [MUL, ADD, RELU, "fetch s"],
        2, 1, "Out", "nothing else reads", "which is fetched",
    ),
    "a product that is fetched": (
        affine, [MUL, ADD, RELU, "fetch p"],
        2, 0, "Out", "nothing else reads", "which is fetched",
    ),
    "persistable": (
        scales, ["k = scale(X=x) {scale=2.0}", "y: float32[2] = scale(X=k) {scale=3.0}"],
        1, 0, "Out", "nothing else", "which is persistable",
    ),
    "a persistable sum": (
        sums, ["k = sum(X=[x, x])", "y: float32[2] = sum(X=[k, x])"],
        1, 0, "Out", "nothing else", "which is persistable",
    ),
    "overwritten input": (
        scales, [TWO, "x = relu(X=x)", THREE],
        2, 0, "X", "x unchanged until scale", "relu writes it again at model.py:2",
    ),
    "overwritten gradient": (
        clips, [CLIP, "x = relu(X=x)", AGAIN],
        2, 0, "X", "x unchanged until clip_by_norm", "relu writes it again",
    ),
    "overwritten addend": (
        affine, [MUL, ADD, "x = abs(X=x)", RELU],
        3, 0, "X", "x unchanged until relu", "abs writes it again",
    ),
    "overwritten in between": (
        scales, [TWO, "h = relu(X=x)", THREE],
        2, 2, "X", "scale", "relu, which makes h",
    ),
    "another value of a name": (
        both, ["h: float32[2] = relu(X=x)", "x = abs(X=x)", "y: float32[2] = tanh(X=x)"],
        0, 1, "type", "tanh", "abs",
    ),
    "role": (
        backward, ["h: float32[2] = scale(X=x) {scale=2.0}", NET],
        1, 0, "role", "backward", "forward",
    ),
    "another role": (
        backward, ["h: float32[2] = scale(X=x) {scale=2.0, role='optimize'}", NET],
        1, 0, "role", "backward", "optimize",
    ),
    "name scope": (
        backward, [BACK, "y: float32[2] = relu(X=h) {namescope='/other/'}"],
        1, 1, "namescope", "/net/", "/other/",
    ),
    "condition": (
        scales, ["h: float32[2] = scale(X=x) {scale=50.0}", THREE],
        1, 1, "condition", "the product must be small", "a = 50.0, b = 3.0",
    ),
    "condition on a shape": (
        scales, ["h: float32[2, 1, 1] = scale(X=t) {scale=2.0}", "y: float32[2, 1, 1] = scale(X=h) {scale=2.0}"],
        1, 1, "condition", "at most two dimensions", "a = 2.0, b = 2.0",
    ),
    "condition on a placeholder": (
        doubles, ["h: float64[2] = cast(X=x) {in_dtype=5, out_dtype=6}", "y: float64[2] = scale(X=h) {scale=2.0}"],
        1, 1, "condition", "x must be float64", "in_dtype = float32, x: float32[2]",
    ),
    "element type": (
        doubles, ["h: int64[2] = cast(X=x) {in_dtype=5, out_dtype=3}", "y: int64[2] = scale(X=h) {scale=2.0}"],
        1, 0, "out_dtype", "float64", "int64",
    ),
    "operands of two types": (
        weighted, ["h: float32[1] = abs(X=f)", "y: float32[2] = elementwise_mul(X=x, Y=h)"],
        1, 1, "X", "(operands of different types do not commute)", "x",
    ),
    "shape": (
        rows, ["h: float32[2] = abs(X=x)", "y: float32[2] = relu(X=h)"],
        1, 0, "X", "float32[-1, 4]", "x: float32[2]",
    ),
    "nothing before": (
        scales, ["y: float32[2] = scale(X=x) {scale=3.0}"],
        0, 0, "X", "scale", "x, data from outside of block 0",
    ),
    "copy that is fetched": (
        copies, ["y: float32[2] = assign(X=x)"],
        0, 0, "Out", "a result whose readers can read x", "y, which is fetched",
    ),
    "copy of what is overwritten": (
        copies, ["h: float32[2] = assign(X=k)", "k = relu(X=k)", "y: float32[2] = relu(X=h)"],
        0, 0, "Out", "a result whose readers can read k", "relu cannot read k in X: the name has been written again",
    ),
}  # fmt: skip


def program_of(text):
    wanted = [line.split()[1] for line in text if line.startswith("fetch ")]
    text = [line for line in text if not line.startswith("fetch ")]
    head = [
        "block 0",
        "  data x: float32[2]",
        "  data t: float32[2, 1, 1]",
        "  data f: float32[1]",
        "  persist k: float32[2]",
    ]
    program = Program.parse("\n".join([*head, *(f"  {line}" for line in text)]))
    made = [name for name in program.global_block().vars if name in ("y", "w", "v")]
    program.roots = (*made, *wanted)
    for index, each in enumerate(program.global_block().ops):
        each.site = Site("model.py", index + 1)
    return program


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_told(name):
    asked, text, at, op_index, slot, expected, found = NEAR_MISSES[name]
    program = program_of(text)
    answer = asked.why_not(program, op=at)
    assert not answer.matches and not asked.find(program)
    assert (answer.op, answer.slot) == (program.global_block().ops[op_index], slot), answer
    assert expected in answer.expected and found in answer.found, answer
    assert f"at model.py:{op_index + 1}" in str(answer)


def nested(inside):
    main = Program()
    with fluid.program_guard(main, Program()), fluid.unique_name.guard():
        x = fluid.data("x", [1])
        h = layers.scale(x, 2.0)
        y = inside(x, h)
    main.roots = (y.name,)
    return main, h


def test_a_sub_block_that_reads_is_told():
    def inside(x, h):
        z = layers.scale(h, 3.0)
        return layers.cond(layers.less_than(x, z), lambda: layers.relu(h), lambda: layers.relu(x))

    main, h = nested(inside)
    answer = scales.why_not(main, op=h)
    assert (answer.op, answer.slot) == (main.global_block().ops[0], "Out")
    assert "conditional_block reads at" in answer.found
    assert "test_rule_reasons.py" in str(answer.site)


def test_a_value_from_outside_of_a_sub_block_is_told():
    def inside(x, h):
        return layers.cond(layers.less_than(x, x), lambda: layers.scale(h, 3.0), lambda: layers.relu(x))

    main, _ = nested(inside)
    op_inside = main.blocks[1].ops[0]
    answer = scales.why_not(main, op=op_inside)
    assert (answer.op, answer.slot, answer.expected) == (op_inside, "X", "scale")
    assert answer.found.endswith("a value from outside of block 1")
    assert "layers.scale(h, 3.0)" in str(answer.site)


def test_what_matches_is_said_to_match():
    program = program_of([TWO, THREE])
    answer = scales.why_not(program, op="y")
    assert answer.matches and str(answer).startswith("scales matches:")


def test_an_operator_that_wants_another_is_found():
    program = program_of(["h: float32[2] = relu(X=x)", THREE])
    answer = scales.why_not(program, op="h")
    assert (answer.op.type, answer.slot, answer.found) == ("scale", "X", "relu, which makes h")


def test_operators_that_a_program_lacks_are_named():
    answer = backward.why_not(program_of([PLUS, MORE]))
    assert (answer.op, answer.slot, answer.matched) == (None, "type", ())
    assert str(answer).endswith("type: expected scale, relu, found none of them in the program")


def test_a_result_that_is_left_out_is_told():
    @rule
    def product(x, y, d):
        return op("matmul_grad", X=x, Y=y, Out_GRAD=d, outputs=["X_GRAD"])[0]

    @product.to
    def _(x, y, d):
        return op("matmul", X=d, Y=y, transpose_Y=True)

    program = Program.parse("""
        block 0
          data x: float32[2, 2]
          Y@GRAD=u: float32[2, 2] = matmul_grad(X=x, Y=x, Out@GRAD=x)
          y: float32[2, 2] = relu(X=x)
    """)
    program.roots = ("y",)
    answer = product.why_not(program, op=0)
    assert (answer.op, answer.expected) == (program.global_block().ops[0], "a result")
    assert answer.found == "none, for it is left out"


def test_a_condition_without_a_name_is_told_by_its_line():
    @rule
    def small(x, a=attr("scale", fits=lambda number: number < 1)):
        return layers.scale(x, a)

    answer = small.why_not(program_of([TWO]))
    assert answer.expected.startswith("a value that fits the lambda in line ")


def test_a_value_from_before_a_write_is_told_from_the_later_one():
    @rule
    def twice(x):
        return layers.elementwise_add(layers.relu(x), x)

    program = program_of(["h: float32[2] = relu(X=x)", "x = scale(X=h)", "y: float32[2] = elementwise_add(X=h, Y=x)"])
    answer = twice.why_not(program)
    assert (answer.slot, answer.found) == ("Y", "x, made by scale")
    assert answer.expected == "x, as it is before the block writes it"


def test_wrong_questions():
    program = program_of([TWO, THREE])
    with pytest.raises(NotFoundError, match="no operator 7"):
        scales.why_not(program, op=7)
    with pytest.raises(WrongTypeError, match="looks at Programs"):
        scales.why_not("program")


# The nearest partial match is what an exhaustive search finds


@rule
def same_twice(x, a=attr("scale")):
    return op("elementwise_add", X=layers.scale(x, a), Y=layers.scale(x, a))


@rule
def either(x, y):
    return marked(op("elementwise_add", X=layers.relu(x), Y=y), commutes=True)


@rule
def pair(x):
    h = layers.relu(x)
    return layers.tanh(h), layers.scale(h, 2.0)


RULES = [scales, affine, both, same_twice, either, pair, sums]
TYPES = ("scale", "relu", "tanh", "elementwise_add", "elementwise_mul", "sum")


def random_program(choose, asked):
    """Operators of which many have the types of a rule."""
    types = (*TYPES, *6 * [type for each in asked.pattern.ops for type in each.types])
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[2], is_data=True)
    names = ["x"]
    for _ in range(choose.randint(3, 12)):
        type = choose.choice(types)
        slots = {"elementwise_add": ("X", "Y"), "elementwise_mul": ("X", "Y")}.get(type, ("X",))
        inputs = {slot: choose.choice(names[-3:]) for slot in slots}
        if type == "sum":
            inputs = {"X": [choose.choice(names) for _ in range(choose.randint(1, 3))]}
        attrs = {"scale": choose.choice([2.0, 3.0]), "bias": choose.choice([0.0, 0.0, 1.0])} if type == "scale" else {}
        out = choose.choice([*"abcdefgh"])
        block.create_var(name=out)
        block.append_op(type, inputs, {"Out": out}, attrs)
        names.append(out)
    program.roots = tuple(choose.sample(names, 1))
    return program


class Exhaustive:
    """Every way to bind some operators of a pattern, without the matcher: only the operands of the pattern are used."""

    def __init__(self, asked, program):
        self.pattern = asked.pattern
        self.ops = program.global_block().ops[:]
        last, self.reads, self.writes = {}, [], []
        for index, each in enumerate(self.ops):
            self.reads.append({slot: [(n, last.get(n)) for n in names] for slot, names in each.inputs.items()})
            for name in each.output_arg_names:
                last[name] = index
            self.writes.append({slot: [(n, index) for n in names] for slot, names in each.outputs.items()})

    def fits(self, node, index):
        each = self.ops[index]
        captured = {name for name, _ in node.captured}
        attrs = {name: each.attr(name) for name in each.definition.attrs if name not in captured}
        wanted = {
            n: node.attrs.get(n, a.default) for n, a in definition_of(each.type).attrs.items() if n not in captured
        }
        counts = {slot.name: len(slot.places) for slot in node.inputs}
        return each.type in node.types and attrs == wanted and counts == {s: len(n) for s, n in each.inputs.items()}

    def bound_values(self, node, index, swapped):
        reads = self.reads[index]
        if swapped:
            reads = {"X": reads["Y"], "Y": reads["X"]}
        for slot in node.inputs:
            yield from zip(slot.places, reads[slot.name], strict=True)
        for slot in node.outputs:
            yield from zip(slot.places, self.writes[index][slot.name], strict=True)

    def is_consistent(self, chosen):
        indexes = [index for index, _ in chosen.values()]
        if len(set(indexes)) < len(indexes):
            return False
        values, attrs = {}, {}
        for number, (index, swapped) in chosen.items():
            node = self.pattern.ops[number]
            for place, found in self.bound_values(node, index, swapped):
                if values.setdefault(place, found) != found:
                    return False
            for name, known in node.captured:
                if attrs.setdefault(known, self.ops[index].attr(name)) != self.ops[index].attr(name):
                    return False
        return self.is_connected(list(chosen))

    def is_connected(self, numbers):
        places = {
            number: {
                p for slot in (*self.pattern.ops[number].inputs, *self.pattern.ops[number].outputs) for p in slot.places
            }
            for number in numbers
        }
        reached = set(numbers[:1])
        while more := {n for n in numbers if n not in reached and any(places[n] & places[r] for r in reached)}:
            reached |= more
        return len(reached) == len(numbers)

    def best(self, including=None):
        """The largest number of operators that can be bound."""
        choices = []
        for node in self.pattern.ops:
            fitting = [i for i in range(len(self.ops)) if self.fits(node, i)]
            swaps = (False, True) if node.commutes else (False,)
            choices.append([None, *((i, swapped) for i in fitting for swapped in swaps)])
        best = 0
        for given in product(*choices):
            chosen = {number: each for number, each in enumerate(given) if each is not None}
            is_asked = including is None or any(index == including for index, _ in chosen.values())
            if len(chosen) > best and is_asked and self.is_consistent(chosen):
                best = len(chosen)
        return best


def check_nearest(seed):
    choose = random.Random(seed)
    asked = choose.choice(RULES)
    program = random_program(choose, asked)
    search = Exhaustive(asked, program)
    answer = asked.why_not(program)
    assert len(answer.matched) == search.best(), f"{asked.name}\n{program}\n{answer}"
    assert answer.matches == bool(asked.find(program))
    at = choose.randrange(len(program.global_block().ops))
    expected = search.best(including=at)
    if expected:
        assert len(asked.why_not(program, op=at).matched) == expected, f"{asked.name} at {at}\n{program}"


@pytest.mark.laws
@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_no_partial_match_is_nearer(start):
    for seed in range(start, start + 100):
        check_nearest(seed)


@pytest.mark.slow
def test_random_programs_match_wholly_and_partly():
    """What the exhaustive search finds is of every size."""
    sizes = np.zeros(4, int)
    for seed in range(400):
        choose = random.Random(seed)
        asked = choose.choice(RULES)
        program = random_program(choose, asked)
        sizes[len(asked.why_not(program).matched)] += 1
    assert (sizes >= [1, 20, 20, 3]).all(), sizes


HINTS = {
    "another attribute": (
        "y: float32[2] = scale(X=x) {scale=2.0, bias=1.0}\n  z: float32[2] = scale(X=y) {scale=3.0}",
        "Take any value if the rule is right for it: bias=rewrite.attr().",
    ),
    "another type": (
        "y: float32[2] = scale(X=x) {scale=2.0}\n  z: float32[2] = relu(X=y)",
        "Name each type that the rule is right for: rewrite.op(['scale', 'relu'], ...).",
    ),
    "another input": (
        "y: float32[2] = scale(X=x, ScaleTensor=a) {scale=2.0}\n  z: float32[2] = scale(X=y) {scale=3.0}",
        "Give the slot in the pattern: ScaleTensor=x, with x=rewrite.value(optional=True).",
    ),
    "another reader": (
        "y: float32[2] = scale(X=x) {scale=2.0}\n  w: float32[2] = relu(X=y)\n  z: float32[2] = scale(X=y) {scale=3.0}",
        "let its operator stay: rewrite.marked(value, shared=True).",
    ),
}


@pytest.mark.parametrize("name", HINTS)
def test_a_reason_ends_with_what_to_do(name):
    @rule
    def pair(x, a=attr("scale"), b=attr("scale")):
        return layers.scale(layers.scale(x, a), b)

    lines, hint = HINTS[name]
    program = Program.parse(f"block 0\n  data x: float32[2]\n  data a: float32[1]\n  {lines}")
    program.roots = ("z",)
    assert str(pair.why_not(program, "z")).endswith(hint)


def test_of_equally_near_operators_the_innermost_is_told():
    program = Program()
    with fluid.program_guard(program, Program()), fluid.unique_name.guard():
        x = fluid.data("x", [2])
        y = layers.scale(layers.relu(x), scale=2.0)
        i, end = (layers.fill_constant([1], "int64", number) for number in (0, 3))
        condition = layers.less_than(i, end)
        with layers.While(condition).block():
            layers.assign(layers.scale(layers.tanh(y), scale=2.0), output=y)
            layers.increment(i, in_place=True)
            layers.less_than(i, end, cond=condition)
    answer = scales.why_not(program)
    assert answer.op.block.idx == 1
    assert "tanh" in str(answer)
