"""Kernels of updates on whole arrays and on selected rows, written from rules as calls of NumPy or CuPy.

Each operation of a rule is one call that writes to the output, or to one of a few arrays that the thread keeps.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from minigraph.kernels.buffers import Scratch, deliver
from minigraph.kernels.indexing import taken
from minigraph.kernels.registry import kernel
from minigraph.kernels.sparse_rows import merged, merged_or_repeated
from minigraph.kernels.tensor import copied
from minigraph.kernels.update_rules import RULES, SINGLE, TENSORS, UpdateRule, names_in, target_of

WHOLE, ROWS, LAZY = "whole", "rows", "lazy"
"""Kinds of gradients: an array; selected rows, with zeros elsewhere; selected rows that alone are updated.

A lazy update changes other rows only by assignments that do not depend on the gradient.
"""


def update(fades: str = "", optional: str = "") -> Callable[[Callable[..., Any]], Update]:
    """Make a rule of a function, and register the kernel for whole arrays; see `minigraph.kernels.update_rules`."""

    def decorate(function: Callable[..., Any]) -> Update:
        rule = RULES[function.__name__] = UpdateRule(function, fades, optional)
        made = Update(rule)
        if "skip" in rule.inputs:
            kernel(rule.type)(made)
        return made

    return decorate


class Update:
    """The kernel of a rule, written when it is first called.

    Parameters
    ----------
    rule : UpdateRule
    mode : {WHOLE, ROWS, LAZY}
    powers_first : bool
        Whether the powers are multiplied before they are used.
    """

    def __init__(self, rule: UpdateRule, mode: str = WHOLE, powers_first: bool = False) -> None:
        self.rule, self._mode, self._powers_first = rule, mode, powers_first
        xp = inspect.Parameter("xp", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)
        self.__signature__ = inspect.Signature([xp, *rule.signature.parameters.values(), out])

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)

    @cached_property
    def function(self) -> Callable[..., Any]:
        name, text = f"<minigraph update {self.rule.type}, {self._mode}>", self.source
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        namespace = dict(_NAMESPACE)
        exec(compile(text, name, "exec"), namespace)
        function: Callable[..., Any] = namespace[self.rule.type]
        return function

    @property
    def source(self) -> str:
        """The text of the function."""
        return _Writer(self.rule, self._mode, self._powers_first).text()


def is_skipped(skip) -> bool:
    return skip is not None and any(bool(flag.item()) for flag in skip)


def kept(xp, old, out) -> tuple[Any, ...]:
    """The arrays that a skipped update would have replaced, or copies of them."""
    buffers = out or (None,) * len(old)
    return tuple(x.copy() if each is None else deliver(xp, x, each) for x, each in zip(old, buffers, strict=True))


def buffers_for(out, count) -> tuple[Any, ...]:
    """List one buffer for each of `count` outputs; None for an output without a buffer in `out`."""
    given = (out,) if count == 1 or out is None else tuple(out)
    return given + (None,) * (count - len(given))


def one_or_all(results) -> Any:
    """The return value of a kernel: its result, or a tuple of several."""
    return tuple(results) if len(results) > 1 else results[0]


def agree(vectors: Iterable[Any]) -> bool:
    """Whether all numbers of each vector are equal; bytes are compared, which is fastest."""
    texts = [(x.tobytes(), x.itemsize) for x in vectors]
    return all([text == text[:size] * (len(text) // size) for text, size in texts])


def apart(joined: Any, sizes: Sequence[int]) -> Any:
    """Cut the vector in a list into vectors of these sizes; None and [] are returned as they are."""
    if not joined:
        return joined
    # Slices take a tenth of the time of `numpy.split`.
    return [joined[0][end - size : end] for end, size in zip(accumulate(sizes), sizes, strict=True)]


def number_in_type(given, default, dtype) -> Any:
    """The one element of `given`, or else `default`."""
    return default if given is None else given.reshape(1).astype(dtype)


def owned(xp, old, out) -> Any:
    """A writable array with the values of `old`: `out`, which may be `old` itself, or a copy."""
    return old if out is old else copied(xp, old, out)


def rows_of(xp, x, rows, scratch) -> Any:
    """``x[rows]`` for ascending `rows`, in scratch memory."""
    is_inside = xp is np and (not len(rows) or 0 <= rows[0] <= rows[-1] < len(x))
    return taken(np, x, rows, scratch.empty((len(rows), *x.shape[1:]), x.dtype)) if is_inside else x[rows]


_CALLED = (
    Scratch, buffers_for, copied, deliver, is_skipped, kept, merged, merged_or_repeated, number_in_type, one_or_all,
    owned, rows_of,
)  # fmt: skip
_NAMESPACE: dict[str, Any] = {each.__name__: each for each in _CALLED}
"""Functions that the text of a kernel calls."""

_SMALL = 131_072
"""Maximum elements for which intermediate results take memory from NumPy and not from `Scratch`."""

_CALLS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "true_divide"}


class _Writer:
    """The text of a function that a rule becomes, written statement by statement.

    An array has its name in the rule; ``param_out`` is the buffer for the output ``param``, and ``work0``, ``work1``
    and so on are arrays for intermediate results. For selected rows, ``grad`` are the values and ``rows`` the numbers.
    """

    def __init__(self, rule: UpdateRule, mode: str, powers_first: bool) -> None:
        self._rule, self._mode, self._powers_first = rule, mode, powers_first
        self._numbers = {*SINGLE, *rule.attrs}
        self._by_rows = {"grad"} if mode == ROWS else set[str]()
        """Arrays of the rows of the gradient only."""
        self._from_grad = {"grad"}
        """Arrays that depend on the gradient."""
        self._work_of: dict[str, str] = {}
        """Work arrays of the names that the rule assigns and does not return."""
        self._lines: list[str] = []
        self._indent, self._count, self._free = 1, 0, list[str]()

    def text(self) -> str:
        rule = self._rule
        for each in sorted(rule.statements, key=self._place):
            self._write(each)
        body, self._lines = self._lines, []
        self._write_beginning()
        if self._mode == LAZY:
            body += [f"    {name}_all[rows] = {name}" for name in rule.arrays]
        parameters = ", ".join(["xp", *rule.inputs, "*", *rule.attrs, "out=None"])
        results = f"    return {', '.join(map(self._result, rule.outputs))}"
        return "\n".join([f"def {rule.type}({parameters}):", *self._lines, *body, results, ""])

    def _place(self, statement: ast.stmt) -> bool:
        """A key that sorts the assignments of powers to the front, if that is asked for."""
        is_power = isinstance(statement, ast.Assign) and target_of(statement) in SINGLE
        return self._powers_first and not is_power

    def _write_beginning(self) -> None:
        rule, outputs = self._rule, self._rule.outputs
        for name in rule.optional:
            self._line(f"{name} = xp.zeros_like(param) if {name} is None else {name}")
        self._line("outs = (out,)" if len(outputs) == 1 else f"outs = buffers_for(out, {len(outputs)})")
        self._line(f"{', '.join(f'{name}_out' for name in outputs)}, = outs")
        if "skip" in rule.inputs:
            self._line("if skip is not None and is_skipped(skip):")
            self._line(f"    return one_or_all(kept(xp, ({', '.join(outputs)},), outs))")
        if self._mode != WHOLE:
            self._write_rows()
        for attr, tensor in TENSORS.items():
            if tensor in rule.inputs:
                self._line(f"{attr} = number_in_type({tensor}, {attr}, param.dtype)")
        if "rate" in rule.inputs:
            self._line("is_wider = rate.dtype.itemsize > param.dtype.itemsize")
            self._line("if is_wider and param_out is None:")
            self._line("    param_out = xp.empty_like(param)")
        for i in range(self._count):
            self._line(f"work{i} = None")
        if self._count:
            self._line(f"if param.size > {_SMALL}:")
            if self._mode == WHOLE:
                self._line("    scratch = Scratch(xp)")
        for i in range(self._count):
            self._line(f"    work{i} = scratch.empty(param.shape, param.dtype)")

    def _write_rows(self) -> None:
        self._line("scratch = Scratch(xp)")
        merge = merged_or_repeated if self._mode == LAZY else merged
        self._line(f"grad = {merge.__name__}(xp, grad, scratch)")
        self._line("rows, grad = grad.rows, grad.value")
        if self._mode == LAZY:
            for name in self._rule.arrays:
                self._line(f"{name}_all = owned(xp, {name}, {name}_out)")
                self._line(f"{name} = {name}_out = rows_of(xp, {name}_all, rows, scratch)")

    def _result(self, name: str) -> str:
        if self._mode == LAZY and name not in SINGLE:
            return f"{name}_all"
        if any(isinstance(each, ast.Assign) and target_of(each) == name for each in self._rule.statements):
            return name
        return f"{name} if {name} is {name}_out else copied(xp, {name}, {name}_out)"  # a branch may have left it

    def _write(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.If):
            self._write_branch(f"if {ast.unparse(statement.test)}:", statement.body)
            self._write_branch("else:", statement.orelse)
            return
        assert isinstance(statement, ast.Assign)
        name, value = target_of(statement), statement.value
        if name in SINGLE:
            self._line(f"{name} = deliver(xp, {ast.unparse(value)}, {name}_out)")
        elif self._is_number(value):
            self._line(f"{name} = {self._plain(value)}")
            self._numbers.add(name)
        elif self._is_by_rows(value):
            self._line(f"{name} = {self._plain(value)}")
            self._by_rows.add(name)
        elif self._mode == LAZY and not self._from_grad & set(names_in(value)):
            self._line(f"{name} = {name}_out = {name}_all")
            self._assign(name, value)
            self._line(f"{name} = {name}_out = rows_of(xp, {name}_all, rows, scratch)")
        else:
            self._assign(name, value)
            self._from_grad.add(name)

    def _write_branch(self, opening: str, statements: list[ast.stmt]) -> None:
        if statements:
            self._line(opening)
            with self._indented():
                for each in statements:
                    self._write(each)

    def _assign(self, name: str, value: ast.expr) -> None:
        if name not in self._rule.outputs and name not in self._work_of:
            self._work_of[name] = self._work()
        target = self._work_of.get(name, f"{name}_out")
        self._line(f"{name} = {target} = {self._call(value, target, name)}")

    # Expressions

    def _is_number(self, tree: ast.expr) -> bool:
        return self._numbers.issuperset(names_in(tree))

    def _is_leaf(self, tree: ast.expr) -> bool:
        return isinstance(tree, ast.Name) or self._is_number(tree)

    def _is_by_rows(self, tree: ast.expr) -> bool:
        """Whether an array is 0 outside of the rows of the gradient."""
        if isinstance(tree, ast.Name):
            return tree.id in self._by_rows
        if not isinstance(tree, ast.BinOp):
            return False
        left, right = self._is_by_rows(tree.left), self._is_by_rows(tree.right)
        return (
            left or right if isinstance(tree.op, ast.Mult) else left if isinstance(tree.op, ast.Div) else left and right
        )

    def _plain(self, tree: ast.expr, whole: Iterable[str] = ()) -> str:
        """An expression of numbers, of arrays that are taken as they are, and of the rows of others."""
        plain = _Plain(self._numbers, self._by_rows.union(whole))
        return ast.unparse(plain.visit(ast.parse(ast.unparse(tree), mode="eval").body))

    def _operand(self, tree: ast.expr) -> str:
        return self._plain(tree) if self._is_number(tree) else ast.unparse(tree)

    def _call(self, tree: ast.expr, target: str, old: str | None) -> str:
        """The call that writes the array `tree` to `target`, which may hold the array `old` until then.

        The calls for its operands, the last one first, are written before.
        """
        if self._is_leaf(tree):
            return self._operand(tree)
        assert isinstance(tree, ast.BinOp | ast.Call)
        function, operands = _call_of(tree)
        if function == "where":
            return self._replaced_where(operands, target, old)
        if function == "add" and self._is_by_rows(operands[1]):
            self._line(f"{target} = {self._call(operands[0], target, old)}")
            self._line(f"{target}[rows] += {self._plain(operands[1])}")
            return target
        texts, taken = list(map(self._operand, operands)), list[str]()
        inner = [i for i, each in enumerate(operands) if not self._is_leaf(each)]
        # The first operand is computed last and may be written over the target.
        for i in reversed(inner):
            place = target
            if i != inner[0] or old in texts:  # the array in `target` is still needed
                place = self._work()
                taken.append(place)
            self._line(f"{place} = {self._call(operands[i], place, old if place == target else None)}")
            texts[i] = place
        self._free += taken
        if function == "multiply" and texts[0] == texts[1]:
            function, texts = "square", texts[:1]
        # A product with a learning rate of a wider type keeps that type until it is subtracted.
        out = f"None if is_wider else {target}" if _RATE in texts and target.startswith("work") else target
        return f"xp.{function}({', '.join(texts)}, out={out})"

    def _replaced_where(self, operands: Sequence[ast.expr], target: str, old: str | None) -> str:
        """The call for the last operand, some of whose elements are then replaced by the number before it."""
        condition, number, values = operands
        # Before the values, which may be written over an array of the condition.
        mask = f"mask{len(self._lines)}"
        self._line(f"{mask} = {self._plain(condition, set(names_in(condition)))}")
        self._line(f"{target} = {self._call(values, target, old)}")
        self._line(f"xp.copyto({target}, {ast.unparse(number)}, where={mask})")
        return target

    # Lines

    def _line(self, text: str) -> None:
        if text:
            self._lines.append("    " * self._indent + text)

    @contextmanager
    def _indented(self) -> Iterator[None]:
        self._indent += 1
        yield
        self._indent -= 1

    def _work(self) -> str:
        """An array for a result in between that is not in use."""
        if self._free:
            return self._free.pop()
        self._count += 1
        return f"work{self._count - 1}"


_RATE = "rate.reshape(1)"


def _call_of(tree: ast.BinOp | ast.Call) -> tuple[str, list[ast.expr]]:
    """The function of the array module and its operands."""
    if isinstance(tree, ast.BinOp):
        return _CALLS[type(tree.op)], [tree.left, tree.right]
    return ast.unparse(tree.func), tree.args


class _Plain(ast.NodeTransformer):
    """Prepares an expression of numbers and rows: inputs of one number as vectors, rows of whole arrays."""

    def __init__(self, numbers: set[str], by_rows: set[str]) -> None:
        self._numbers, self._by_rows = numbers, by_rows

    def visit_Call(self, node: ast.Call) -> ast.expr:
        arguments = [self.visit(each) for each in node.args]
        return ast.Call(ast.Attribute(ast.Name("xp"), ast.unparse(node.func)), arguments, [])

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in SINGLE:
            return ast.Call(ast.Attribute(node, "reshape"), [ast.Constant(1)], [])
        return node if node.id in self._numbers | self._by_rows else ast.Subscript(node, ast.Name("rows"))
