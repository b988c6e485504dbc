"""Names of ``fluid.incubate``: generators of slot files and fleet's interface; imports faces and what lies below."""

from minigraph.incubate import data_generator, fleet
from minigraph.support.public import refuse_unknown_names

__all__ = ["data_generator", "fleet"]

refuse_unknown_names(__name__)
