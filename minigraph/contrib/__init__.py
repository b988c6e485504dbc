"""Names of ``fluid.contrib``: layers, estimates, readers and decay; imports layers and what lies below them."""

from minigraph.contrib import decoder, layers, mixed_precision, model_stat, reader, utils
from minigraph.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from minigraph.contrib.decoupled_decay import extend_with_decoupled_weight_decay
from minigraph.contrib.layers import *
from minigraph.contrib.layers import __all__ as _layers
from minigraph.contrib.memory_usage_calc import memory_usage
from minigraph.contrib.mixed_precision import AutoMixedPrecisionLists, decorate
from minigraph.contrib.model_stat import summary
from minigraph.contrib.op_counts import op_freq_statistic
from minigraph.contrib.reader import distributed_batch_reader
from minigraph.contrib.utils import *
from minigraph.contrib.utils import __all__ as _utils
from minigraph.support.public import refuse_unknown_names

__all__ = [
    *_layers, *_utils, "AutoMixedPrecisionLists", "BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder",
    "decorate", "decoder", "distributed_batch_reader", "extend_with_decoupled_weight_decay", "layers",
    "memory_usage", "mixed_precision", "model_stat", "op_freq_statistic", "reader", "summary", "utils",
]  # fmt: skip

refuse_unknown_names(__name__)
