"""Running the default main program on tensors of sequences, through plan and interpreter."""

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
