"""A program as a graph, for analyses of ancestors, paths and reachability.

Operators and values are nodes; an edge goes from a value to each operator that reads it, and from an operator to each
value that it writes. A value is one version of a variable: an update in place, ``w = sgd(Param=w, ...)``, reads version
0 of ``w`` and writes version 1. So the graph never has cycles. Edges are the flow of data only: operators can run in
any order that follows the edges and keeps each operator after the readers of the versions that it overwrites.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import networkx as nx

from minigraph.errors import NotFoundError, caller_site, suggest
from minigraph.ir.block import Block
from minigraph.ir.operator import Operator
from minigraph.ir.program import Program
from minigraph.ir.role import Role
from minigraph.ir.variable import Parameter, Variable
from minigraph.opdef import EMPTY, SUB_BLOCK


class Value(NamedTuple):
    """One version of a variable, from one write to the next."""

    name: str
    version: int = 0
    """Number of values that the variable had before."""
    block: int = 0
    """The block that the variable belongs to."""

    def __str__(self) -> str:
        return f"{self.name} #{self.version}" if self.version else self.name


def program_graph(program: Program) -> nx.DiGraph:
    """The flow of data through `program`.

    Parameters
    ----------
    program : Program
        Its blocks are taken in order; a sub-block reads its parents' variables as the blocks before it have left them.
        The operator that runs it reads and writes what the sub-block does outside of itself, in the slot ``sub_block``
        where no other names it.

    Returns
    -------
    networkx.DiGraph
        Nodes in program order. An `Operator` is a node of its own, with the data ``kind="op"``, ``block`` and
        ``index``. A `Value` has ``kind="value"`` and ``variable``, a `Variable` or None where the name is not declared.
        Variables that no operator uses have no node. An edge has ``slots``, the slots that the value stands in.

    Examples
    --------
    >>> program = Program.parse('''
    ...     block 0
    ...       data x: float32[-1, 4]
    ...       y: float32[-1, 4] = relu(X=x)
    ... ''')
    >>> [str(node) for node in nx.topological_sort(program_graph(program))]
    ['x', 'y: float32[-1, 4] = relu(X=x)', 'y']
    """
    graph = nx.DiGraph()
    versions: dict[tuple[int, str], int] = {}
    for block in program.blocks:
        for index, op in enumerate(block.ops):
            read, written = _by_slot(op)
            for value, slots in _values(block, read, versions).items():
                graph.add_node(value, kind="value", variable=block.find_var(value.name))
                graph.add_edge(value, op, slots=slots)
            graph.add_node(op, kind="op", block=block.idx, index=index)
            for name in dict.fromkeys(op.output_arg_names):
                home = _home(block, name)
                versions[home, name] = versions.get((home, name), -1) + 1
            for value, slots in _values(block, written, versions).items():
                graph.add_node(value, kind="value", variable=block.find_var(value.name))
                graph.add_edge(op, value, slots=slots)
    return graph


def _by_slot(op: Operator) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Names that an operator reads and writes, by slot; under ``sub_block`` those in no slot of that side."""
    if not op.definition.has_hidden_names:
        return op.inputs, op.outputs
    read, written = op.hidden_names
    return {**op.inputs, SUB_BLOCK: tuple(read)}, {**op.outputs, SUB_BLOCK: tuple(written)}


def _values(
    block: Block, names_by_slot: dict[str, tuple[str, ...]], versions: dict[tuple[int, str], int]
) -> dict[Value, tuple[str, ...]]:
    """The current values in the slots of an operator, each with its slots."""
    found: dict[Value, tuple[str, ...]] = {}
    for slot, names in names_by_slot.items():
        for name in dict.fromkeys(names):
            if name != EMPTY:
                home = _home(block, name)
                value = Value(name, versions.setdefault((home, name), 0), home)
                found[value] = (*found.get(value, ()), slot)
    return found


def _home(block: Block, name: str) -> int:
    """The index of the block that a variable belongs to."""
    var = block.find_var(name)
    return block.idx if var is None else var.block.idx


def ancestors_of(program: Program, name: Variable | str) -> list[Operator]:
    """The operators that the last value of a variable depends on, in program order.

    Examples
    --------
    >>> program = Program.parse('''
    ...     block 0
    ...       data x: float32[4]
    ...       a: float32[4] = relu(X=x)
    ...       b: float32[4] = tanh(X=x)
    ...       c: float32[4] = square(X=a)
    ... ''')
    >>> [op.type for op in ancestors_of(program, "c")]
    ['relu', 'square']
    """
    graph = program_graph(program)
    values = _values_of(graph, program, name)
    return _operators(program, nx.ancestors(graph, values[-1]) if values else set())


def descendants_of(program: Program, name: Variable | str) -> list[Operator]:
    """The operators that depend on any value of a variable, in program order; not operators that only write it.

    Examples
    --------
    >>> program = Program.parse('''
    ...     block 0
    ...       data x: float32[4]
    ...       a: float32[4] = relu(X=x)
    ...       b: float32[4] = tanh(X=x)
    ...       c: float32[4] = square(X=a)
    ... ''')
    >>> [op.type for op in descendants_of(program, "a")]
    ['square']
    """
    graph = program_graph(program)
    start = object()  # leads to every version, so that one search is enough
    graph.add_edges_from([(start, value) for value in _values_of(graph, program, name)])
    graph.add_node(start)
    return _operators(program, nx.descendants(graph, start))


def _values_of(graph: nx.DiGraph, program: Program, name: Variable | str) -> list[Value]:
    """Every version of a variable; none if no operator uses it."""
    block = program.global_block()
    if isinstance(name, Variable):
        block, name = name.block, name.name
    found = [node for node in graph if isinstance(node, Value) and node.name == name and node.block == block.idx]
    if not found and name not in block.vars:
        raise NotFoundError(f"the program has no variable {name!r}", site=caller_site(), hint=suggest(name, block.vars))
    return sorted(found)


def _operators(program: Program, nodes: set[Any]) -> list[Operator]:
    return [op for block in program.blocks for op in block.ops if op in nodes]


# Drawing

_COLOURS = (
    (Role.CLIP, "gold"),
    (Role.OPTIMIZE, "palegreen"),
    (Role.BACKWARD, "lightsalmon"),
    (Role.LR_SCHED, "plum"),
)
"""Fill colour by role; the first that applies."""


def to_dot(program: Program) -> str:
    r"""The graph as Graphviz text, to be drawn by ``dot -Tsvg``.

    Operators are boxes coloured by role (forward blue, backward orange, clipping gold, optimizer green), values are
    ellipses, those that come from outside grey, parameters with a thick line. An edge names its slots.

    Examples
    --------
    >>> program = Program.parse('''
    ...     block 0
    ...       data x: float32[4]
    ...       y: float32[4] = relu(X=x)
    ... ''')
    >>> print(to_dot(program))
    digraph program {
      node [style=filled, fillcolor=white, fontname="sans-serif"];
      n0 [label="x\nfloat32[4]", shape=ellipse, fillcolor=lightgrey];
      n1 [label="relu", shape=box, fillcolor=lightblue];
      n2 [label="y\nfloat32[4]", shape=ellipse];
      n0 -> n1 [label="X"];
      n1 -> n2 [label="Out"];
    }
    """
    graph = program_graph(program)
    names = {node: f"n{i}" for i, node in enumerate(graph)}
    lines = ['node [style=filled, fillcolor=white, fontname="sans-serif"];']
    for node, data in graph.nodes(data=True):
        if data["kind"] == "op":
            drawn = _draw_operator(node)
        else:
            drawn = _draw_value(node, data["variable"], is_given=graph.in_degree(node) == 0)
        lines.append(f"{names[node]} [{drawn}];")
    for start, end, slots in graph.edges(data="slots"):
        lines.append(f"{names[start]} -> {names[end]} [label={_quote(', '.join(slots))}];")
    return "digraph program {\n  " + "\n  ".join(lines) + "\n}"


def _draw_operator(op: Operator) -> str:
    colour = next((colour for role, colour in _COLOURS if op.role & role), "lightblue")
    return f"label={_quote(op.type)}, shape=box, fillcolor={colour}"


def _draw_value(value: Value, var: Variable | None, is_given: bool) -> str:
    label = _quote(str(value), str(var.tensor_type or "unknown") if var is not None else "undeclared")
    outside = ", fillcolor=lightgrey" if is_given else ""
    thick = ", penwidth=3" if isinstance(var, Parameter) else ""
    return f"label={label}, shape=ellipse{outside}{thick}"


def _quote(*lines: str) -> str:
    """A Graphviz string; a backslash would start one of its escapes."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines)
    return '"' + "\\n".join(escaped) + '"'
