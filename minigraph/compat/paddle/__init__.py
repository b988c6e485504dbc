"""Paddle's top module as of 1.8: ``import minigraph.compat.paddle as paddle`` for programs that ask for its version.

It has `fluid`, `dataset`, `reader`, `batch`, and every other name of minigraph.
"""

import sys
from typing import Any

from minigraph import dataset, reader
from minigraph.compat.paddle import version
from minigraph.compat.paddle.version import commit as __git_commit__
from minigraph.compat.paddle.version import full_version as __version__
from minigraph.reader import batch

fluid = sys.modules["minigraph"]  # the package itself, which Python imports before this module

__all__ = ["__git_commit__", "__version__", "batch", "dataset", "fluid", "reader", "version"]


def __getattr__(name: str) -> Any:
    return getattr(fluid, name)
