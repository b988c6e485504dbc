"""Norms of sums over ranks take the squares that the exchange has added up, where they read just these sums."""

import numpy as np
import pytest
from jit_support import needs_numba

import minigraph as fluid
from minigraph.executor.interpreter import Interpreter
from minigraph.parallel import DataParallel
from minigraph.support.communicator import Communicator, communicating, in_order

PROGRAM = """
    block 0
      data x: DTYPE[4, 3]
      data c: DTYPE[1]
      g: DTYPE[4, 3] = exp(X=x)
      h: DTYPE[4, 3] = exp(X=g)
      g = c_allreduce_sum(X=g)
      h = c_allreduce_sum(X=h)
      NORM
"""
NORM = "n: DTYPE[1] = global_norm(X=GIVEN) {p=P}"
FACTOR = "Factor=f: float64[3], Norm=n: DTYPE[1] = clip_factor(X=GIVEN, ClipNorm=c) {p=P}"


class Doubling(Communicator):
    """The first of two ranks that have the same arrays."""

    rank, size = 0, 2
    measured = 0
    """Number of exchanges whose squares were asked for."""

    def gather(self, array, call):
        return [array, array]

    def scatter(self, parts, call):
        return [parts[0], parts[0]]

    def all_reduce(self, array, reduction, call, out=None):
        return np.multiply(array, 2, out=out)

    def sum_with_squares(self, array, call, squares):
        self.measured += 1
        super().sum_with_squares(array, call, squares)
        return sum(squares(array))


class Unable(Doubling):
    """Ranks that do not measure."""

    def sum_with_squares(self, array, call, squares):
        return Communicator.sum_with_squares(self, array, call, squares)


def norms(executor, norm, communicator, given="[g, h]", p="2.0", dtype="float32"):
    """The norm in two runs, and the factor if there is one."""
    text = PROGRAM.replace("NORM", norm).replace("GIVEN", given).replace("{p=P}", f"{{p={p}}}").replace("DTYPE", dtype)
    program, found = fluid.Program.parse(text), []
    for seed in range(2):
        x = np.random.default_rng(seed).normal(size=(4, 3)).astype(dtype)
        with communicating(communicator):
            found += executor.run(program, {"x": x, "c": np.ones(1, dtype)}, ["n", *["f"] * (norm is FACTOR)])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])
@pytest.mark.parametrize("norm", [NORM, FACTOR])
@pytest.mark.parametrize("given", ["[g, h]", "[h, g]"])
def test_norms_of_all_sums_take_the_squares(norm, given, jit):
    communicator = Doubling()
    found = norms(fluid.Executor(jit=jit), norm, communicator, given)
    assert communicator.measured == 2
    for other in (Interpreter(), fluid.Executor()):
        expected = norms(other, norm, Unable(), given)
        assert all(map(np.allclose, found, expected))
        assert [each.dtype for each in found] == [each.dtype for each in expected]


@pytest.mark.parametrize(
    ("given", "p", "dtype"),
    [("[g]", "2.0", "float32"), ("[g, h, x]", "2.0", "float32"), ("[g, g]", "2.0", "float32"),
     ("[g, h]", "1.0", "float32"), ("[g, h]", "2.0", "float64")],
)  # fmt: skip
def test_other_norms_read_the_sums(given, p, dtype):
    communicator = Doubling()
    found = norms(fluid.Executor(), NORM, communicator, given, p, dtype)
    assert communicator.measured == 0
    assert all(map(np.allclose, found, norms(Interpreter(), NORM, Unable(), given, p, dtype)))


def test_a_sum_that_is_changed_is_read_anew():
    communicator = Doubling()
    changed = "k: DTYPE[4, 3] = scale(X=h) {scale=3.0}\n      n: DTYPE[1] = global_norm(X=[g, k])"
    found = norms(fluid.Executor(), changed, communicator)
    assert communicator.measured == 0
    assert all(map(np.allclose, found, norms(Interpreter(), changed, Unable())))


def test_exact_programs_measure_nothing():
    communicator = Doubling()
    with in_order():
        found = norms(fluid.Executor(), NORM, communicator)
        assert [each.tobytes() for each in found] == [
            each.tobytes() for each in norms(fluid.Executor(), NORM, Unable())
        ]
    assert communicator.measured == 0


@pytest.mark.slow
def test_trainings_measure_at_every_batch_size():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 8])
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.fc(x, 5, act="tanh"), 1))
        clip = fluid.clip.GradientClipByGlobalNorm(0.1)
        fluid.optimizer.Adam(0.01, grad_clip=clip).minimize(loss)
    twin = DataParallel(2)(main)

    def trained(communicator, check):
        executor, scope = fluid.Executor(check=check), fluid.Scope()
        executor.run(startup, scope=scope)
        for step, size in enumerate([4, 7, 4, 2, 7]):
            feed = {"x": np.random.default_rng(step).normal(size=(size, 8)).astype("float32")}
            with communicating(communicator):
                executor.run(twin, feed, [loss], scope=scope)
        return [np.array(scope.find_var(param.name).get_tensor()) for param in twin.all_parameters()]

    for check in (False, True):
        communicator = Doubling()
        found = trained(communicator, check)
        assert communicator.measured == 5
        assert all(map(np.allclose, found, trained(Unable(), check)))
