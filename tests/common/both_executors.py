"""Running the default main program through plan and interpreter, and checking its gradients."""

import numpy as np
from one_op import central_difference

import minigraph as fluid
from minigraph.backward import append_backward
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify
from minigraph.passes import EXACT, LOWERING


def main():
    return fluid.default_main_program()


def types(block=0):
    """Those of the operators of a block."""
    return [op.type for op in main().block(block).ops]


def integer(n):
    return fluid.layers.fill_constant([1], "int64", n)


def numbers(*shape, seed=0, dtype="float64"):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def data(name, *shape, dtype="float64"):
    """A variable to be fed that gets a gradient."""
    var = fluid.data(name, list(shape), dtype)
    var.stop_gradient = False
    return var


def run(*fetch, feed=None, scope=None, passes=LOWERING):
    """What the plan and the interpreter give, which must be the same bits."""
    program = main()
    verify(program)
    scopes = [scope or fluid.Scope(), fluid.Scope()]
    for name in scope.local_var_names() if scope else ():
        scopes[1].var(name).get_tensor().set(np.array(scope.find_var(name).get_tensor()), fluid.CPUPlace())
    planned, stepwise = (
        executor.run(program, feed=dict(feed or {}), fetch_list=list(fetch), scope=each)
        for executor, each in zip((fluid.Executor(passes=passes), Interpreter()), scopes, strict=True)
    )
    for a, b in zip(planned, stepwise, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    return planned


def check_gradient(loss, feed, names=None, exact=False):
    """The gradient with respect to what is fed against the central difference.

    With `exact` the interpreter's bits are those of a plan without merges, because weights are used many times.
    """
    program = main()
    plain = program.clone()
    append_backward(loss)
    names = list(feed) if names is None else names
    fetch = [f"{name}@GRAD" for name in names]
    executor, scope = fluid.Executor(), fluid.Scope()
    grads = run(*fetch, feed=feed, passes=EXACT if exact else LOWERING)
    for merged, grad in zip(executor.run(program, feed, fetch, scope=scope), grads, strict=True):
        np.testing.assert_allclose(merged, grad, rtol=1e-9, atol=1e-12 if exact else 0)

    def value(feed):
        return executor.run(plain, feed=feed, fetch_list=[loss.name], scope=scope)[0].item()

    for name, grad in zip(names, grads, strict=True):
        expected = central_difference(value, feed, name)
        assert np.allclose(grad, expected, rtol=1e-5, atol=1e-7), (name, grad, expected)
