"""The fixture `check_pass` for pytest, which finds it where minigraph is installed.

This is a module of its own because pytest loads it in the tests of every project: only the fixture loads minigraph.
"""

import pytest


@pytest.fixture
def check_pass():
    """A function that is given a pass and fails with the smallest program that the pass breaks.

    Examples
    --------
    ::

        def test_my_pass_keeps_every_value(check_pass):
            check_pass(MyPass(), programs=500)
    """
    from minigraph.rewrite.pytest_plugin import assert_sound

    return assert_sound
