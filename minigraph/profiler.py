"""Fluid's path to `minigraph.executor.profiler`."""

from minigraph.executor import profiler as _profiler
from minigraph.executor.profiler import *
from minigraph.support.public import refuse_unknown_names

__all__: list[str] = []
__all__ += _profiler.__all__

refuse_unknown_names(__name__)
