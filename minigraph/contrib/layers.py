"""Names of ``fluid.contrib.layers``."""

from minigraph.contrib.click_through import *
from minigraph.contrib.matching import *
from minigraph.contrib.recurrent import *
from minigraph.support.public import offered, refuse_unknown_names

__path__: list[str] = []  # lets Python ask for fluid's modules in it, see `minigraph.support.fluid_paths`
__all__ = offered(vars())

refuse_unknown_names(__name__)
