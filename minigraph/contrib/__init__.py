"""Names of ``fluid.contrib``: layers, estimates and readers; imports layers and what lies below them."""

from minigraph.contrib import layers, mixed_precision, reader
from minigraph.contrib.layers import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from minigraph.contrib.memory_usage_calc import memory_usage
from minigraph.contrib.reader import distributed_batch_reader
from minigraph.support.public import refuse_unknown_names

__all__ = [
    "BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm", "distributed_batch_reader", "layers", "memory_usage",
    "mixed_precision", "reader",
]  # fmt: skip

refuse_unknown_names(__name__)
