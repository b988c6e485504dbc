"""Selected rows with the results that they had on Paddle 1.8.5.

`cases.json` has single operators in the form that test_golden_ops.py describes, where an input with ``sparse`` is the
gradient of a lookup, as selected rows, and an output in ``dense`` is added to zeros to be seen; and programs with their
operators. `arrays.npz` has what came out.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from golden_programs import Random, clip_strategy, fc, operator_lines, optimizer, programs, starting_from, train
from test_golden_ops import check_close, make_inputs

import minigraph as fluid
from minigraph import layers
from minigraph.ir import VarKind

pytestmark = pytest.mark.numbers

FOLDER = Path(__file__).parent / "selected_rows"
CASES = json.loads((FOLDER / "cases.json").read_text(encoding="utf-8"))


def by_id(kind):
    return pytest.mark.parametrize("case", CASES[kind], ids=[case["id"] for case in CASES[kind]])


@pytest.fixture(scope="module")
def recorded():
    with np.load(FOLDER / "arrays.npz") as arrays:
        return dict(arrays)


def listed(specs):
    return specs if isinstance(specs, list) else [specs]


class Operator:
    """The program of a case."""

    def __init__(self, case):
        self.case, self.program, self.feed = case, fluid.Program(), {}
        self.block = self.program.global_block()
        self.inputs = {
            slot: [
                self._rows(f"{slot}_{i}", array, spec) if spec.get("sparse") else self._declare(f"{slot}_{i}", array)
                for i, (array, spec) in enumerate(zip(arrays, listed(case["inputs"][slot]), strict=True))
            ]
            for slot, arrays in make_inputs(case).items()
        }
        inplace = case.get("inplace", {})
        self.outputs = {
            slot: self.inputs[inplace[slot]] if slot in inplace else [self.block.create_var(name=f"out_{slot}")]
            for slot in case["outputs"]
        }
        self.block.append_op(case["op"], self.inputs, self.outputs, case["attrs"])

    def _declare(self, name, array):
        self.feed[name] = array
        return self.block.create_var(name=name, shape=array.shape, dtype=array.dtype)

    def _rows(self, name, array, spec):
        table = self._declare(f"{name}_table", np.zeros((spec["height"], array.shape[1]), array.dtype))
        ids = self._declare(f"{name}_ids", np.array(spec["rows"]).reshape(-1, 1))
        flowing, found = self._declare(f"{name}_flowing", array), self.block.create_var(name=f"{name}_found")
        self.block.append_op("lookup_table", {"W": table, "Ids": ids}, {"Out": found}, {"is_sparse": True})
        (gradient,) = fluid.gradients([found], [table], [flowing])
        assert gradient.kind is VarKind.SELECTED_ROWS
        return gradient

    def run(self, kind_of_executor=fluid.Executor, place=None):
        seen = {}
        for slot in self.case["compare"]:
            seen[slot] = self.outputs[slot][0]
            if slot in self.case.get("dense", {}):
                assert seen[slot].kind is VarKind.SELECTED_ROWS
                zeros = self._declare("zeros", np.zeros(self.case["dense"][slot], "float32"))
                total = self.block.create_var(name="dense")
                self.block.append_op("sum", {"X": [zeros, seen[slot]]}, {"Out": total})
                seen[slot] = total
        values = kind_of_executor(place).run(self.program, self.feed, list(seen.values()), scope=fluid.Scope())
        return dict(zip(seen, values, strict=True))


def test_the_inputs_are_those_of_the_recording():
    for case in CASES["operators"]:
        checksum = 0
        for arrays in make_inputs(case).values():
            for array in arrays:
                checksum = zlib.crc32(array.tobytes(), checksum)
        assert checksum == case["inputs_crc32"], case["id"]


@pytest.mark.parametrize("kind_of_executor", [fluid.Executor, fluid.Interpreter])
@by_id("operators")
def test_an_operator_gives_what_the_original_gave(case, kind_of_executor, recorded):
    for slot, value in Operator(case).run(kind_of_executor).items():
        check_close(slot, value, recorded[f"{case['id']}/out/{slot}/0"])


@pytest.mark.gpu
@by_id("operators")
def test_an_operator_gives_it_on_a_gpu_too(case, recorded, cuda_place):
    for slot, value in Operator(case).run(place=cuda_place).items():
        check_close(slot, value, recorded[f"{case['id']}/out/{slot}/0"])


def embedding_train(random, sparse, opt, args, clip, padding_idx, v2, seed):
    main, startup = programs()
    table = starting_from(random.uniform(9, 4), "emb")
    with fluid.program_guard(main, startup):
        label = layers.data("y", [1], dtype="int64")
        if v2:
            ids, lookup = fluid.data("ids", [None, 3], dtype="int64"), fluid.embedding
        else:
            ids, lookup = layers.data("ids", [3, 1], dtype="int64"), layers.embedding
        found = lookup(ids, size=[9, 4], is_sparse=sparse, padding_idx=padding_idx, param_attr=table)
        prediction = fc(layers.reshape(found, [-1, 12]), 3, random, act="softmax", name="o")
        loss = layers.mean(layers.cross_entropy(prediction, label))
    feeds = []
    for _ in range(2):
        drawn = random.labels(9, 4, 3, 1)
        feeds.append({"ids": drawn.reshape(4, 3) if v2 else drawn, "y": random.labels(3, 4, 1)})
    strategy = clip_strategy(*clip) if clip else None
    arrays = train(
        main, startup, loss, lambda: optimizer(opt, grad_clip=strategy, **args).minimize(loss), steps=3, feeds=feeds
    )
    return main, arrays


def embedding_shared_sparse(random, seed, clip=None):
    main, startup = programs()
    with fluid.program_guard(main, startup):
        a, b = (layers.data(name, [1], dtype="int64") for name in "ab")
        table = starting_from(random.uniform(7, 3), "emb")
        from_a, from_b = (layers.embedding(ids, [7, 3], is_sparse=True, param_attr=table) for ids in (a, b))
        loss = layers.mean(layers.square(from_a * 2.0 - from_b))
    feeds = [{"a": random.labels(7, 5, 1), "b": random.labels(7, 5, 1)}]
    strategy = clip_strategy(*clip) if clip else None
    updates = lambda: fluid.optimizer.SGD(0.5, grad_clip=strategy).minimize(loss)  # noqa: E731
    return main, train(main, startup, loss, updates, steps=2, feeds=feeds)


BUILDERS = {function.__name__: function for function in (embedding_train, embedding_shared_sparse)}


@by_id("programs")
def test_a_program_has_the_operators_of_the_original_and_trains_like_it(case, recorded):
    arguments = case["arguments"]
    with fluid.unique_name.guard():
        main, arrays = BUILDERS[case["builder"]](Random(arguments["seed"]), **arguments)
    assert operator_lines(main) == case["operators"]
    for name, found in arrays.items():
        np.testing.assert_allclose(found, recorded[f"{case['id']}/{name}"], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_a_program_that_the_original_described_trains_as_it_did_there():
    """`description.npz`: a table looked up twice, clip by global norm and Adagrad, without source lines."""
    with np.load(FOLDER / "description.npz") as file:
        given = dict(file)
    main, startup = (fluid.Program.parse_from_string(given[name].tobytes()) for name in ("main", "startup"))
    fluid.verify(main)
    rows = [var.name for var in main.list_vars() if var.kind is VarKind.SELECTED_ROWS]
    assert sorted(rows) == [
        "elementwise_mul_2.tmp_0", "merge_selected_rows_0.tmp_0", "table@GRAD", "table@GRAD@RENAME@block0@0",
        "table@GRAD@RENAME@block0@1",
    ]  # fmt: skip
    (loss,) = next(op for op in main.global_block().ops if op.type == "mean").output("Out")
    for program in (main, fluid.Program.parse_from_string(main.serialize_to_string())):
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        feed = {"ids": given["ids"], "label": given["label"]}
        losses = [executor.run(program, feed, [loss], scope=scope)[0].item() for _ in given["losses"]]
        np.testing.assert_allclose(losses, given["losses"], rtol=1e-5, atol=1e-6)
        table = np.array(scope.find_var("table").get_tensor())
        np.testing.assert_allclose(table, given["table"], rtol=1e-5, atol=1e-6)
