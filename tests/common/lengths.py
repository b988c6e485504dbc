"""Running the default main program on tensors of sequences, through plan and interpreter, and checking gradients."""

import numpy as np

import minigraph as fluid
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify


def tensor(lengths, *row, dtype="float32", seed=0):
    """A tensor of random rows of this shape, with these lengths by level, outermost first (a list of one level too)."""
    levels = [lengths] if not lengths or isinstance(lengths[0], int) else lengths
    rows = np.random.default_rng(seed).uniform(-1, 1, (sum(levels[-1]), *row))
    return fluid.create_lod_tensor(rows.astype(dtype), levels, fluid.CPUPlace())


def run_both(*fetch, feed, program=None):
    """The tensors that the plan and the interpreter give, which must have the same bits and lengths."""
    program = program or fluid.default_main_program()
    verify(program)
    planned, stepwise = (
        executor.run(program, feed=dict(feed), fetch_list=list(fetch), scope=fluid.Scope(), return_numpy=False)
        for executor in (fluid.Executor(), Interpreter())
    )
    for a, b in zip(planned, stepwise, strict=True):
        x, y = np.array(a), np.array(b)
        assert (x.dtype, x.shape, x.tobytes(), a.lod()) == (y.dtype, y.shape, y.tobytes(), b.lod())
    return planned


def check_gradient(result, feed, wrt, step=1e-6, atol=1e-6, seed=1):
    """The gradients of a weighted sum of `result` against central differences, for float64 variables named in `wrt`.

    What is fed for these is a LoDTensor or an array; a gradient has the lengths of its variable.
    """
    block = fluid.default_main_program().global_block()
    (value,) = fluid.Executor().run(feed=feed, fetch_list=[result], return_numpy=False)
    weights = np.random.default_rng(seed).uniform(0.5, 1.5, value.shape())
    cotangent = block.create_var(name="cotangent", shape=list(result.shape), dtype="float64", is_data=True)
    feed = {**feed, "cotangent": weights}
    variables = [block.var(name) for name in wrt]
    found = run_both(*fluid.gradients([result], variables, [cotangent]), feed=feed)

    def loss(name, rows):
        given = feed[name]
        if isinstance(given, fluid.LoDTensor):
            rows = fluid.create_lod_tensor(rows, given.recursive_sequence_lengths(), fluid.CPUPlace())
        (value,) = fluid.Executor().run(feed={**feed, name: rows}, fetch_list=[result], return_numpy=False)
        return np.vdot(np.array(value), weights)

    for name, grad in zip(wrt, found, strict=True):
        rows = np.array(feed[name])
        expected = np.zeros_like(rows)
        for index in np.ndindex(rows.shape):
            moved = rows.copy()
            moved[index] += step
            above = loss(name, moved)
            moved[index] -= 2 * step
            expected[index] = (above - loss(name, moved)) / (2 * step)
        np.testing.assert_allclose(np.array(grad), expected, atol=atol, err_msg=name)
        if grad.lod():
            assert grad.lod() == feed[name].lod()
