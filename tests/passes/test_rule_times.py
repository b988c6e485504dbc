"""What it takes to match rules while nobody asks for reasons."""

import ast
import inspect
import sys
import time

import pytest
from growth import measured_until

import minigraph as fluid
from minigraph import layers
from minigraph.passes import IN_ORDER
from minigraph.passes.rules import Rules, matcher, safety
from minigraph.passes.values import Values
from minigraph.support.gc_pause import without_collector


class _WithoutRecorder(ast.NodeTransformer):
    """Leaves out what tells a recorder."""

    def visit_If(self, node):
        self.generic_visit(node)
        return None if "recorder is not None" in ast.unparse(node.test) else node

    def visit_Call(self, node):
        self.generic_visit(node)
        return ast.Constant(False) if ast.unparse(node.func) == "self._differs" else node


def without_recorder(module):
    """The names of a module whose functions have nothing that tells a recorder."""
    tree = _WithoutRecorder().visit(ast.parse(inspect.getsource(module)))
    names = dict(vars(module))
    exec(compile(ast.fix_missing_locations(tree), module.__file__, "exec"), names)
    return names


def attention():
    x, y = fluid.data("x", [4, 3, 8]), fluid.data("y", [4, 3, 1], "int64")
    scores = layers.matmul(layers.scale(x, 0.5), layers.transpose(x, [0, 2, 1]))
    h = layers.matmul(layers.softmax(scores), layers.fc(x, 8, num_flatten_dims=2))
    p = layers.softmax(layers.fc(h, 5, num_flatten_dims=2))
    loss = layers.reduce_mean(layers.cross_entropy(p, y)) + layers.reduce_sum(layers.square(h)) * 0.01
    fluid.optimizer.SGD(0.1).minimize(loss)


@pytest.mark.timing
@without_collector
def test_reasons_cost_nothing_while_nobody_asks(monkeypatch):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        attention()
    values, ops = Values(main), main.global_block().ops[:]
    rules = [each for rewrite in IN_ORDER if isinstance(rewrite, Rules) for each in rewrite.rules]
    tried = [(each, op) for each in rules for op in ops if op.type in each.pattern.anchor.types]
    assert len(tried) > 20
    module = sys.modules["minigraph.passes.rules.rule"]
    bare = without_recorder(matcher) | {"may_replace": without_recorder(safety)["may_replace"]}
    variants = {"usual": {name: getattr(module, name) for name in ("Matcher", "fits", "may_replace")}, "bare": bare}

    def attempt():
        lowest = dict.fromkeys(variants, float("inf"))
        for turn in range(200):
            for variant in sorted(variants, reverse=bool(turn % 2)):
                for name in ("Matcher", "fits", "may_replace"):
                    monkeypatch.setattr(module, name, variants[variant][name])
                start = time.perf_counter()
                for each, op in tried:
                    each.match(op, values)
                lowest[variant] = min(lowest[variant], time.perf_counter() - start)
        return lowest["usual"] / lowest["bare"]

    assert measured_until(lambda ratio: ratio <= 1.05, attempt) <= 1.05
