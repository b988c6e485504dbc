"""Script for several ranks, as public scripts of fluid are written that know no fleet."""

import os
import sys

import numpy as np

import minigraph as fluid
from minigraph import parallel

RANK, RANKS = parallel.rank(), parallel.size()


def transpile(mode):
    config = fluid.DistributeTranspilerConfig()
    config.mode, config.collective_mode = mode, "grad_allreduce"
    fluid.DistributeTranspiler(config=config).transpile(
        int(os.environ["PADDLE_TRAINER_ID"]),
        trainers=os.environ["PADDLE_TRAINER_ENDPOINTS"],
        current_endpoint=os.environ["PADDLE_CURRENT_ENDPOINT"],
        program=fluid.default_main_program(),
        startup_program=fluid.default_startup_program(),
    )


def main(kind):
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    start = fluid.initializer.NumpyArrayInitializer(np.full((4, 1), float(RANK) + 0.5, "float32"))
    loss = fluid.layers.mean(
        fluid.layers.square_error_cost(fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr("w", start)), y)
    )
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    if RANKS > 1:
        transpile("collective" if kind == "operators" else "nccl2")
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    run = runner(kind, executor, loss)
    rng = np.random.default_rng(0)
    for _ in range(5):
        rows, targets = rng.normal(size=(8, 4)).astype("float32"), rng.normal(size=(8, 1)).astype("float32")
        run({"x": np.split(rows, RANKS)[RANK], "y": np.split(targets, RANKS)[RANK]}, [loss.name])
    print(f"{kind}:", np.array(fluid.global_scope().find_var("w").get_tensor()).ravel().tolist())


def runner(kind, executor, loss):
    """A function of feed and fetches that makes a step."""
    program = fluid.default_main_program()
    if kind == "older executor":
        older = fluid.ParallelExecutor(False, loss.name, program, num_trainers=RANKS, trainer_id=RANK)
        return lambda feed, fetches: older.run(fetches, feed)
    if kind == "compiled":
        strategy = fluid.BuildStrategy()
        strategy.num_trainers, strategy.trainer_id = RANKS, RANK
        program = fluid.CompiledProgram(program).with_data_parallel(loss.name, strategy)
    return lambda feed, fetches: executor.run(program, feed, fetches)


if __name__ == "__main__":
    for kind in sys.argv[1:]:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
            main(kind)
