"""Rules on random programs: the interpreter computes the same bits before and after.

Programs write few names over and over, persistable ones too, have branches and loops that read and write outer names,
and gradients that read forward values; others are random trainings.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from exact_rules import RULES

import minigraph as fluid
from minigraph import layers
from minigraph.errors import MinigraphError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir import Block, Program, VarKind
from minigraph.ir.verifier import verify
from minigraph.passes.rules import Rules
from minigraph.rewrite.random_programs.recipes import Recipe, build

from . import programs

UNARY = ("relu", "relu", "abs", "square", "assign", "assign", "tanh", "transpose2", "scale", "scale", "scale", "clip")
BINARY = ("elementwise_add", "elementwise_add", "elementwise_sub", "elementwise_mul", "sum")


def case(seed: int) -> None:
    """Apply some rules to one random program, and compare what it computes."""
    choose = random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as that no gradient flows through a loop
        (_training if choose.random() < 0.1 else _overwriting)(choose)


def _training(choose: random.Random) -> None:
    trial = programs.draw(choose)
    recipe = trial.recipe
    if recipe.rows > 1000:
        recipe = Recipe(recipe.seed, 2, True, recipe.dtype, recipe.steps, columns=3)
    built = build(recipe)
    names = [
        n for n, var in built.main.global_block().vars.items() if var.tensor_type and var.kind is VarKind.LOD_TENSOR
    ]
    fetch = [built.loss.name, *choose.sample(names, min(len(names), choose.randrange(6)))]

    def history(main: Program) -> Any:
        scope, found = fluid.Scope(), {}
        executor = Interpreter()
        executor.run(built.startup, scope=scope)
        for number in range(2):
            values = executor.run(main, feed=built.feed(number), fetch_list=fetch, scope=scope)
            found.update({(number, name): np.array(each) for name, each in zip(fetch, values, strict=True)})
        return found | {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}

    _compare(choose, built.main, fetch, history)


def _overwriting(choose: random.Random) -> None:
    main = Program()
    with fluid.program_guard(main, Program()), fluid.unique_name.guard():
        block = main.global_block()
        dtype = choose.choice(("float32", "float32", "float64", "float16"))
        x = block.create_var(name="x", shape=[3, 3], dtype=dtype, is_data=True)
        block.create_var(name="w", shape=[3, 3], dtype=dtype, persistable=True)
        names = ["x", "w"]
        for _ in range(choose.randint(2, 12)):
            _append(choose, block, names)
        if choose.random() < 0.3:
            target = block.var(choose.choice(names))
            x.stop_gradient = False
            fluid.gradients([layers.reduce_sum(target)], [x])
            for _ in range(choose.randrange(3)):
                _append(choose, block, names)
    known = [n for n, var in block.vars.items() if var.tensor_type and var.kind is VarKind.LOD_TENSOR and n != "x"]
    known = [name for name in known if not name.startswith("shape@")]  # which only gradients read
    fetch = choose.sample(known, min(len(known), choose.choice([1, 1, 2, 4])))
    data = np.random.default_rng(choose.randrange(2**16)).standard_normal((2, 3, 3)).astype(dtype)
    data[choose.randrange(2), 0, :2] = choose.choice([0.0, -0.0, np.inf, 1e-40]), -0.0

    def history(program: Program) -> Any:
        scope = fluid.Scope()
        scope.var("w").get_tensor().set(data[1].copy(), fluid.CPUPlace())
        values = Interpreter().run(program, feed={"x": data[0]}, fetch_list=fetch, scope=scope)
        return {
            **dict(zip(fetch, map(np.array, values), strict=True)),
            "state": np.array(scope.find_var("w").get_tensor()),
        }

    _compare(choose, main, fetch, history)


def _append(choose: random.Random, block: Block, names: list[str], depth: int = 0) -> None:
    """Append an operator, a branch or a loop on the variables of these names."""
    kind = choose.random()
    if kind < 0.06 and depth < 2:
        _append_branch(choose, names, depth)
    elif kind < 0.1 and depth < 2:
        _append_loop(choose, names, depth)
    else:
        _append_op(choose, block, names)


def _append_op(choose: random.Random, block: Block, names: list[str]) -> None:
    type = choose.choice(UNARY + BINARY)
    recent = names[-4:] if choose.random() < 0.7 else names
    inputs: dict[str, Any] = {"X": choose.choice(recent)}
    attrs: dict[str, Any] = {}
    if type == "sum":
        inputs = {"X": [choose.choice(recent) for _ in range(choose.randint(1, 3))]}
    elif type in BINARY:
        inputs["Y"] = choose.choice(recent)
    elif type == "scale":
        scale, bias = choose.choice([0.5, 2.0, 2.0, 4.0, 1.0, -1.0, -1.0]), choose.choice([0.0, 0.0, 0.0, 1.0])
        attrs = {"scale": scale, "bias": bias}
    elif type == "clip":
        attrs = {"min": 0.0, "max": choose.choice([0.5, 2.0])}
    elif type == "transpose2":
        attrs = {"axis": [1, 0]}
    out = choose.choice([*"abcdefgh", "w"]) if choose.random() < 0.9 else names[-1]
    if out == "x":
        out = "a"
    if block.find_var(out) is None:
        block.create_var(name=out)
    outputs = {"Out": out}
    if type == "transpose2":
        outputs["XShape"] = block.create_var(fluid.unique_name.generate("shape@")).name
    block.append_op(type, inputs, outputs, attrs)
    names.append(out)


def _append_branch(choose: random.Random, names: list[str], depth: int) -> None:
    read = layers.reduce_sum(_variable(choose.choice(names)))
    zero = layers.fill_constant([1], read.dtype, 0.0)
    target = _variable(choose.choice(names))

    def branch() -> Any:
        inner = list(names)
        _inside(choose, inner, depth)
        return layers.assign(_variable(inner[-1]))

    result = layers.cond(layers.less_than(read, zero), branch, lambda: layers.assign(target))
    names.append(result.name)


def _append_loop(choose: random.Random, names: list[str], depth: int) -> None:
    i, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", choose.randrange(3))
    condition = layers.less_than(i, end)
    with layers.While(condition).block():
        inner = list(names)
        _inside(choose, inner, depth)
        written = [name for name in names if name != "x"]
        layers.assign(_variable(inner[-1]), output=_variable(choose.choice(written)))
        layers.increment(i, in_place=True)
        layers.less_than(i, end, cond=condition)


def _inside(choose: random.Random, names: list[str], depth: int) -> None:
    block = fluid.default_main_program().current_block()
    for _ in range(choose.randint(1, 4)):
        _append(choose, block, names, depth + 1)


def _variable(name: str) -> Any:
    found = fluid.default_main_program().current_block().find_var(name)
    assert found is not None
    return found


def _compare(choose: random.Random, main: Program, fetch: list[str], history: Callable[[Program], Any]) -> None:
    rules = choose.sample(RULES, choose.choice([1, 3, len(RULES)]))
    rewritten = main.clone()
    rewritten.roots = tuple(fetch) if choose.random() < 0.9 else None
    try:
        verify(main)
        expected = history(main)
    except MinigraphError:
        return  # such as a variable that no run writes
    Rules(*rules).apply(rewritten)
    verify(rewritten)
    found = history(rewritten)
    for key, value in expected.items():
        one, other = np.asarray(value), np.asarray(found[key])
        if (one.dtype, one.shape, _bits(one)) != (other.dtype, other.shape, _bits(other)):
            names = ", ".join(each.name for each in rules)
            raise AssertionError(f"{names}, fetching {fetch}\n{main}\n\n{rewritten}\n\n{key} is {other}\nnot {one}")


def _bits(array: np.ndarray[Any, Any]) -> bytes:
    """The bits of an array; those of NaN, which differ with the order of operands, are all one."""
    is_number = array.dtype.kind != "f" or not np.isnan(array).any()
    return (array if is_number else np.where(np.isnan(array), np.array(np.nan, array.dtype), array)).tobytes()
