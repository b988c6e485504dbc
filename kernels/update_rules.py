"""Update rules: the arithmetic of an update on one element, written once for NumPy, selected rows, numba and CUDA.

A rule is a Python function that reads like the formula of its operator, such as `adam` in
`minigraph.kernels.adaptive_optimizer`. Its positional parameters are the arrays of the kernel in the order of the
slots, its keyword parameters the attributes, and it returns the outputs. It consists of assignments of sums, products
and the functions of `FUNCTIONS`, and of ``if`` with a condition of attributes. Its syntax tree is translated:

- `minigraph.kernels.update_kernels` writes calls of NumPy or CuPy for whole arrays and for selected rows,
- `Element` has the assignments for one element, with numbers in the place of attributes, from which
  `minigraph.kernels.jit.updates` and `minigraph.kernels.cuda.updates` write their loops.

Each number goes through the same roundings in all of them: those of the formula, from left to right.
"""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

FUNCTIONS = frozenset({"absolute", "maximum", "power", "sign", "sqrt", "where"})
"""Functions that a rule may call: `maximum` and `sign` keep NaN, `where` takes a comparison, a number and an array."""

POWERS = frozenset({"beta1_pow", "beta2_pow"})
"""Inputs with one number for each parameter, whatever its size."""

SINGLE = POWERS | {"rate"}
"""Inputs of one number."""

SHARED = frozenset({"rate", "beta1_tensor", "beta2_tensor", "skip"})
"""Inputs that the parameters of a merged update share."""

TENSORS = {"beta1": "beta1_tensor", "beta2": "beta2_tensor"}
"""Attributes, each with the input that replaces it."""


_TYPE = "T"


class UpdateRule:
    """An update rule.

    Attributes
    ----------
    type : str
        Name of the function, which is the operator type.
    function : callable
    signature : inspect.Signature
    inputs, outputs : tuple of str
        Arrays in the order of the slots.
    attrs : tuple of str
    fades : tuple of str
        State that a compiled loop sets to 0 where it would be subnormal.
    optional : tuple of str
        State that may be left out and then counts as zeros.
    """

    def __init__(self, function: Callable[..., Any], fades: str = "", optional: str = "") -> None:
        self.type, self.signature, self.function = function.__name__, inspect.signature(function), function
        parameters = self.signature.parameters.values()
        self.inputs = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
        self.attrs = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        self.fades, self.optional = tuple(fades.split()), tuple(optional.split())
        self._elements: dict[tuple[Any, ...], Element] = {}

    @cached_property
    def _tree(self) -> ast.FunctionDef:
        found = ast.parse(inspect.getsource(self.function)).body[0]
        assert isinstance(found, ast.FunctionDef)
        return found

    @property
    def statements(self) -> list[ast.stmt]:
        """Assignments and branches, without docstring and ``return``."""
        return [each for each in self._tree.body if isinstance(each, ast.Assign | ast.If)]

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        (last,) = (each for each in self._tree.body if isinstance(each, ast.Return))
        assert last.value is not None
        return tuple(names_in(last.value))

    @property
    def arrays(self) -> tuple[str, ...]:
        """Outputs of the size of the parameter."""
        return tuple(name for name in self.outputs if name not in SINGLE)

    def element(self, attrs: Mapping[str, Any]) -> Element:
        """The assignments for one element, for these attributes."""
        key = tuple([attrs[name] for name in self.attrs])
        found = self._elements.get(key)
        if found is None:
            found = self._elements[key] = self._element(attrs)
        return found

    def _element(self, attrs: Mapping[str, Any]) -> Element:
        numbers = _Numbers({name: attrs[name] for name in self.attrs})
        assigned = [(target_of(each), each.value) for each in chosen(self.statements, attrs)]
        lines = [(name, numbers.visit(copy.deepcopy(value))) for name, value in assigned if name not in SINGLE]
        found: dict[str, list[tuple[str, str]]] = {"common": [], "own": []}
        common = {*SINGLE, *numbers.names}
        used = list(dict.fromkeys(name for _, value in lines for name in names_in(value)))
        for name, value in lines:
            is_common = common.issuperset(names_in(value))
            found["common" if is_common else "own"].append((name, ast.unparse(value)))
            common |= {name} if is_common else set()
        changed = [name for name in self.outputs if name in dict(found["own"])]
        return Element(
            singles=tuple(name for name in self.inputs if name in SINGLE and name in used),
            reads=tuple(name for name in self.inputs if name in used and name not in SINGLE),
            writes=tuple(changed),
            numbers=tuple(numbers.values),
            powers=tuple((name, attrs[_factor(value)]) for name, value in assigned if name in SINGLE),
            common=tuple(found["common"]),
            own=tuple(found["own"]),
            is_exact=not any("power(" in value for _, value in found["own"]),
        )


@dataclass(frozen=True)
class Element:
    """A rule for one element. A line is a name and the expression that is assigned to it.

    There ``n0``, ``n1``, ... are `numbers`, and ``T(1)`` is a number in the type of the arrays.

    Attributes
    ----------
    common : lines
        Numbers that all elements share.
    own : lines
        Assignments of each element.
    powers : pairs of str and float
        The powers that are multiplied once all elements are updated, and their factors.
    is_exact : bool
        Whether a loop has the bits of the array library; `power` is rounded differently by each.
    singles, reads, writes : tuple of str
        Inputs of one number, arrays that are read, and arrays that are written.
    numbers : tuple of float
        Numbers in float64, to be rounded to the type of the arrays.
    """

    common: tuple[tuple[str, str], ...]
    own: tuple[tuple[str, str], ...]
    powers: tuple[tuple[str, float], ...]
    is_exact: bool
    singles: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    numbers: tuple[float, ...]


RULES: dict[str, UpdateRule] = {}
"""Update rules by operator type."""


def names_in(tree: ast.AST) -> Iterator[str]:
    """Names of values, in order; those of functions are left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in FUNCTIONS and node.id != _TYPE:
            yield node.id


def chosen(statements: Sequence[ast.stmt], attrs: Mapping[str, Any]) -> Iterator[ast.Assign]:
    """The assignments of the branches that these attributes choose."""
    for each in statements:
        if isinstance(each, ast.If):
            holds = eval(ast.unparse(each.test), {}, dict(attrs))
            yield from chosen(each.body if holds else each.orelse, attrs)
        else:
            assert isinstance(each, ast.Assign)
            yield each


def target_of(assignment: ast.Assign) -> str:
    (target,) = assignment.targets
    return ast.unparse(target)


def _factor(product: ast.expr) -> str:
    """The attribute that a power is multiplied with."""
    assert isinstance(product, ast.BinOp)
    return ast.unparse(product.right)


class _Numbers(ast.NodeTransformer):
    """Replaces expressions of attributes by numbered names, and converts constants to the type of the arrays."""

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self._attrs = attrs
        self.values: list[float] = []

    @property
    def names(self) -> list[str]:
        return [f"n{i}" for i in range(len(self.values))]

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name) and node.id in FUNCTIONS:
            return node
        if isinstance(node, ast.Constant):
            return ast.Call(ast.Name(_TYPE), [node], [])
        if not isinstance(node, ast.expr) or not self._attrs.keys() >= set(names_in(node)):
            return self.generic_visit(node)
        value = float(eval(ast.unparse(node), {}, dict(self._attrs)))
        # Computed in float64 and rounded once, like the same expression in the kernel for NumPy.
        if value not in self.values:
            self.values.append(value)
        return ast.Name(f"n{self.values.index(value)}", ast.Load())
