"""Fleet's interface: roles and optimizers of scripts that a launcher starts once for each rank."""

from minigraph.incubate.fleet import base, collective, utils
from minigraph.support.public import refuse_unknown_names

__all__ = ["base", "collective", "utils"]

refuse_unknown_names(__name__)
