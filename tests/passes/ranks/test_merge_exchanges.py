"""MergeExchanges sums the gradients of a step over the ranks in one exchange."""

import numpy as np
import pytest
from pass_laws import assert_linear, op_lines

import minigraph as fluid
from minigraph import parallel
from minigraph.parallel import DataParallel
from minigraph.passes import LOWERING, MergeExchanges, Pipeline
from minigraph.support.communicator import current

TEXT = """
    block 0
      data g: float32[3]
      data h: float32[2, 2]
      data k: float64[2]
      data l: float64[1]
      g = c_sync_calc_stream(X=g)
      g = c_allreduce_sum(X=g) {ring_id=1}
      h = c_allreduce_sum(X=h)
      k = c_allreduce_sum(X=k)
      l = c_allreduce_sum(X=l)
      g = c_sync_comm_stream(X=g)
      y: float32[3] = relu(X=g)
"""
ALL = ["g", "h", "k", "l", "y"]


def test_gradients_of_one_type_are_summed_together():
    assert op_lines(MergeExchanges(), TEXT, ALL) == [
        "[g, h] = merged_c_allreduce_sum(X=[g, h])",
        "[k, l] = merged_c_allreduce_sum(X=[k, l])",
        "y = relu(X=g)",
    ]


SECOND = "h = c_allreduce_sum(X=h)"
PRINT = "print(In=g) {first_n=0, message='', summarize=1" + "".join(
    f", print_tensor_{what}=True" for what in ("name", "type", "shape", "lod")
)
LEFT_ALONE = {
    "one is read before the next": f"z: float32[3] = relu(X=g)\n      {SECOND}",
    "one is written before the next": f"g = relu(X=g)\n      {SECOND}",
    "one is summed twice": "g = c_allreduce_sum(X=g)\n      h = relu(X=h)",
    "one is not in place": "z: float32[2, 2] = c_allreduce_sum(X=h)",
    "something is printed in between": f"z: float32[3] = {PRINT}}}\n      {SECOND}",
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_exchanges_stay(what):
    text = TEXT.replace(SECOND, LEFT_ALONE[what])
    lines = op_lines(MergeExchanges(), text, [])
    assert any("= c_allreduce_sum(X=g)" in line for line in lines)
    assert sum("merged" in line for line in lines) == 1  # of float64


def training():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words, y = fluid.data("words", [None, 3], "int64"), fluid.data("y", [None, 1])
        hidden = fluid.layers.reduce_sum(fluid.embedding(words, [30, 8], is_sparse=True), 1)
        for _ in range(3):
            hidden = fluid.layers.fc(hidden, 8, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        fluid.optimizer.Adam(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1)).minimize(loss)
    DataParallel(2, rings=2).prepare(startup)
    return DataParallel(2, rings=2)(main), startup, loss


@pytest.mark.slow
def test_a_step_makes_three_exchanges_with_the_same_bits():
    main, startup, loss = training()

    def run(rank, passes):
        """The exchanges of the last step, and the parameters."""
        executor, scope = fluid.Executor(passes=passes), fluid.Scope()
        executor.run(startup, scope=scope)
        rng = np.random.default_rng(rank)
        history = current()._meeting.histories[rank]
        for _ in range(3):
            before = len(history)
            feed = {"words": rng.integers(0, 30, (4, 3)), "y": rng.normal(size=(4, 1)).astype("float32")}
            executor.run(main, feed, [loss], scope=scope)
        params = [np.array(scope.find_var(p.name).get_tensor()).tobytes() for p in main.all_parameters()]
        return [call.operator for call in history[before:]], params

    apart = Pipeline(tuple(each for each in LOWERING if each.name != "MergeExchanges"))
    (calls, params), _ = parallel.simulate(lambda rank: run(rank, LOWERING), 2)
    (many, expected), _ = parallel.simulate(lambda rank: run(rank, apart), 2)
    # The rows and the values of the sparse gradient, and all the dense ones.
    assert sorted(calls) == ["c_allreduce_sum", "c_allreduce_sum", "merged_c_allreduce_sum"]
    assert len(many) == 10
    assert params == expected


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program):
            for i in range(count // 2):
                grad = fluid.data(f"g{i}", [2])
                program.global_block().append_op("c_sync_calc_stream", {"X": grad}, {"Out": grad})
                program.global_block().append_op("c_allreduce_sum", {"X": grad}, {"Out": grad})
        return program

    assert_linear(MergeExchanges(), make)
