import numpy as np

from minigraph.support.float_errors import IgnoringErrors


def test_a_function_that_calls_itself_ignores_errors_and_leaves_the_callers_settings():
    @IgnoringErrors()
    def divide(times):
        if times:
            divide(times - 1)
        return np.geterr(), np.ones(1) / np.zeros(1)

    with np.errstate(divide="raise", over="warn"):
        before = np.geterr()
        inside, quotient = divide(2)
        assert np.geterr() == before
    assert set(inside.values()) == {"ignore"}
    assert quotient == np.inf
