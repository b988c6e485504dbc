"""`Program.graph` and what is found with it: ancestors, descendants, drawings."""

import networkx as nx
import pytest
from drawn_programs import any_programs
from hypothesis import HealthCheck, given, settings

from minigraph.errors import NotFoundError
from minigraph.ir import Operator
from minigraph.ir.graph import Value, ancestors_of, descendants_of, program_graph, to_dot
from minigraph.ir.text.parser import parse
from minigraph.rewrite.random_programs.recipes import build
from minigraph.rewrite.strategies import recipes, trainings

TRAINING = """
    block 0
      param w: float32[4]
      persist lr: float32[1]
      data x: float32[4]
      var unused: float32[1]
      y: float32[4] = elementwise_mul(X=w, Y=w)
      g: float32[4] = relu(X=x) {role='backward'}
      w = sgd(Param=w, LearningRate=lr, Grad=g) {role='optimize'}
      z: float32[4] = elementwise_add(X=y, Y=w)
"""


def test_operators_and_values_are_nodes_in_program_order():
    program = parse(TRAINING)
    graph = program.graph()
    assert [node for node in graph if isinstance(node, Operator)] == list(program.global_block().ops)
    assert [str(node) for node in graph if isinstance(node, Value)] == ["w", "y", "x", "g", "lr", "w #1", "z"]


def test_an_edge_names_its_slots():
    program = parse(TRAINING)
    multiply, *_, add = program.global_block().ops
    graph = program_graph(program)
    assert graph.edges[Value("w"), multiply] == {"slots": ("X", "Y")}
    assert graph.edges[Value("w", 1), add] == {"slots": ("Y",)}
    assert graph.edges[add, Value("z")] == {"slots": ("Out",)}


def test_nodes_say_what_they_are():
    program = parse(TRAINING)
    graph = program_graph(program)
    assert graph.nodes[Value("w", 1)] == {"kind": "value", "variable": program.global_block().var("w")}
    assert graph.nodes[program.global_block().ops[2]] == {"kind": "op", "block": 0, "index": 2}


def test_an_update_in_place_makes_a_new_version_and_no_cycle():
    program = parse("block 0\n  data x: float32[4]\n  x = relu(X=x)\n  x = relu(X=x)")
    graph = program_graph(program)
    assert nx.is_directed_acyclic_graph(graph)
    assert [str(node) for node in nx.topological_sort(graph) if isinstance(node, Value)] == ["x", "x #1", "x #2"]


def test_a_sub_block_continues_the_versions_of_its_parent():
    program = parse("""
        block 0
          data x: float32[4]
          x = relu(X=x)
        block 1 parent 0
          x = relu(X=x)
          y: float32[4] = relu(X=x)
    """)
    values = [node for node in program_graph(program) if isinstance(node, Value)]
    assert values == [Value("x", 0), Value("x", 1), Value("x", 2), Value("y", 0, 1)]


def test_absent_gradients_and_undeclared_names():
    program = parse("block 0\n  data x: float32[4]\n  [y: float32[4], @EMPTY@] = concat_grad(X=[x, x], Out@GRAD=x)")
    program.global_block().remove_var("y")
    graph = program_graph(program)
    assert [str(node) for node in graph if isinstance(node, Value)] == ["x", "y"]
    assert graph.nodes[Value("y")]["variable"] is None


@pytest.mark.laws
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(any_programs())
def test_the_graph_of_any_program_has_no_cycle(program):
    graph = program_graph(program)
    assert nx.is_directed_acyclic_graph(graph)
    assert to_dot(program).count("shape=") == len(graph)


@pytest.mark.laws
@settings(deadline=None)
@given(recipes(training=trainings()))
def test_ancestors_are_what_the_value_needs(recipe):
    # Walked backward by hand over the operators, as the executor prunes.
    built = build(recipe)
    program, loss = built.main, built.loss.name
    needed, kept = {loss}, []
    for op in reversed(program.global_block().ops):
        if needed.intersection(op.output_arg_names):
            needed.difference_update(op.output_arg_names)  # values before do not matter
            needed.update(op.input_arg_names)
            kept.append(op)
    assert ancestors_of(program, loss) == kept[::-1]


def test_ancestors_are_those_of_the_last_value():
    program = parse(TRAINING)
    block = program.global_block()
    assert [op.type for op in ancestors_of(program, "w")] == ["relu", "sgd"]
    assert ancestors_of(program, block.var("x")) == []
    assert ancestors_of(program, "unused") == []


def test_descendants_are_those_of_every_value():
    program = parse(TRAINING)
    assert [op.type for op in descendants_of(program, "w")] == ["elementwise_mul", "sgd", "elementwise_add"]
    assert [op.type for op in descendants_of(program, "lr")] == ["sgd", "elementwise_add"]
    assert descendants_of(program, "z") == []
    assert descendants_of(program, "unused") == []


def test_an_unknown_name_is_suggested():
    with pytest.raises(NotFoundError, match="no variable 'unusd'") as caught:
        ancestors_of(parse(TRAINING), "unusd")
    assert caught.value.hint == "Did you mean unused?"


def test_a_drawing_colours_roles_and_escapes_names():
    program = parse("""
        block 0
          param "a\\\\b \\"c\\"": float32[4]
          y: float32[4] = relu(X="a\\\\b \\"c\\"")
          z: float32[4] = relu(X=y) {role='backward'}
          z = relu(X=z) {role='optimize|clip'}
          z = relu(X=z) {role='optimize'}
    """)
    lines = to_dot(program).splitlines()
    assert lines[0] == "digraph program {"
    assert '  n0 [label="a\\\\b \\"c\\"\\nfloat32[4]", shape=ellipse, fillcolor=lightgrey, penwidth=3];' in lines
    colours = [line.split("fillcolor=")[1].rstrip("];") for line in lines if "shape=box" in line]
    assert colours == ["lightblue", "lightsalmon", "gold", "palegreen"]
    assert '  n8 [label="z #2\\nfloat32[4]", shape=ellipse];' in lines
    assert lines[-1] == "}"
