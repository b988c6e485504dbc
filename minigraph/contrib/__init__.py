"""Names of ``fluid.contrib``: estimates and readers; imports layers and what lies below them."""

from minigraph.contrib import mixed_precision, reader
from minigraph.contrib.memory_usage_calc import memory_usage
from minigraph.contrib.reader import distributed_batch_reader
from minigraph.support.public import refuse_unknown_names

__all__ = ["distributed_batch_reader", "memory_usage", "mixed_precision", "reader"]

refuse_unknown_names(__name__)
