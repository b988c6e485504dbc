"""Script for several ranks, as public scripts of fluid are written for fleet."""

import sys

import numpy as np

import minigraph as fluid
from minigraph.incubate.fleet.base import role_maker
from minigraph.incubate.fleet.collective import DistributedStrategy, fleet


def main(mode):
    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    start = fluid.initializer.NumpyArrayInitializer(np.full((4, 1), float(fleet.worker_index()) + 0.5, "float32"))
    loss = fluid.layers.mean(
        fluid.layers.square_error_cost(fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr("w", start)), y)
    )
    strategy = DistributedStrategy()
    if mode == "local":
        strategy.use_local_sgd = True
    if mode == "collective":
        strategy.mode = "collective"
    rate = 0.1
    if mode == "sum of losses":
        strategy.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.One
        rate /= fleet.worker_num()
    optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(rate), strategy)
    optimizer.minimize(loss, fluid.default_startup_program())
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fleet.startup_program)
    rng = np.random.default_rng(0)
    rank, ranks = fleet.worker_index(), fleet.worker_num()
    for _ in range(5):
        rows, targets = rng.normal(size=(8, 4)).astype("float32"), rng.normal(size=(8, 1)).astype("float32")
        feed = {"x": np.split(rows, ranks)[rank], "y": np.split(targets, ranks)[rank]}
        executor.run(fleet.main_program, feed, [loss])
    fleet.barrier_worker()
    print(
        f"{mode}:",
        fleet.split_files(list("abcde")),
        np.array(fluid.global_scope().find_var("w").get_tensor()).ravel().tolist(),
    )


if __name__ == "__main__":
    for mode in sys.argv[1:]:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
            main(mode)
