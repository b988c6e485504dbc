"""Fluid's check of an installation; ``python -m minigraph doctor`` says more."""

import numpy as np

from minigraph import layers
from minigraph.dygraph import Linear, guard, to_variable
from minigraph.executor import Executor
from minigraph.ir import Program
from minigraph.ir.default_programs import program_guard
from minigraph.optimizer import SGD
from minigraph.runtime.place import CPUPlace, CUDAPlace, get_cuda_device_count, is_compiled_with_cuda
from minigraph.runtime.scope import Scope

__all__ = ["run_check"]


def run_check() -> None:
    """Train a small network as a program and in the imperative mode, and print that it works.

    Raises
    ------
    MinigraphError
        If it does not work.
    """
    place = CUDAPlace(0) if is_compiled_with_cuda() and get_cuda_device_count() else CPUPlace()
    batch = np.array([[1.0, 2.0], [3.0, 4.0]], "float32")
    print(f"Training a small program on {place} ...")
    main, startup = Program(), Program()
    with program_guard(main, startup):
        loss = layers.mean(layers.fc(layers.data("inp", [2]), 3))
        SGD(0.01).minimize(loss)
    executor, scope = Executor(place), Scope()
    executor.run(startup, scope=scope)
    executor.run(main, feed={"inp": batch}, fetch_list=[loss], scope=scope)
    with guard(place):
        linear = Linear(2, 3)
        loss = layers.mean(linear(to_variable(batch)))
        loss.backward()
        SGD(0.01, parameter_list=linear.parameters()).minimize(loss)
    print("minigraph works, with programs and in the imperative mode.")
