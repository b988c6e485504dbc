"""Functions that write programs: each appends operators to the default main program and returns their results.

Imports layer_helper and what lies below it; no optimizer, no file.
"""

from minigraph.layers.activation import *
from minigraph.layers.array import *
from minigraph.layers.beam_search import *
from minigraph.layers.bilinear import *
from minigraph.layers.branches import *
from minigraph.layers.class_numbers import *
from minigraph.layers.click_through import *
from minigraph.layers.clipping import *
from minigraph.layers.compare import *
from minigraph.layers.crf import *
from minigraph.layers.ctc import *
from minigraph.layers.decode_helpers import *
from minigraph.layers.decoding import *
from minigraph.layers.deformable import *
from minigraph.layers.diagonal import *
from minigraph.layers.distributions import *
from minigraph.layers.dynamic_rnn import *
from minigraph.layers.elementwise import *
from minigraph.layers.focus import *
from minigraph.layers.if_else import *
from minigraph.layers.image import *
from minigraph.layers.image_layout import *
from minigraph.layers.indexing import *
from minigraph.layers.io import *
from minigraph.layers.learning_rate_scheduler import *
from minigraph.layers.loops import *
from minigraph.layers.loss import *
from minigraph.layers.metric import *
from minigraph.layers.nn import *
from minigraph.layers.normalization import *
from minigraph.layers.printing import *
from minigraph.layers.products import *
from minigraph.layers.py_func import *
from minigraph.layers.random import *
from minigraph.layers.rank_table import *
from minigraph.layers.ranking import *
from minigraph.layers.recurrent import *
from minigraph.layers.recurrent_sequences import *
from minigraph.layers.reduce import *
from minigraph.layers.resampling import *
from minigraph.layers.reshaping import *
from minigraph.layers.rnn import *
from minigraph.layers.sampled_losses import *
from minigraph.layers.sampling import *
from minigraph.layers.scaling import *
from minigraph.layers.search import *
from minigraph.layers.selected_rows import *
from minigraph.layers.selection import *
from minigraph.layers.sequence_pool import *
from minigraph.layers.sequence_scores import *
from minigraph.layers.sequences import *
from minigraph.layers.series import *
from minigraph.layers.stacked_lstm import *
from minigraph.layers.static_rnn import *
from minigraph.layers.tensor import *
from minigraph.layers.volumes import *
from minigraph.layers.windows import *
from minigraph.support.public import offered, refuse_unknown_names

__all__ = offered(vars())

refuse_unknown_names(
    __name__, utils="minigraph.layers.utils", Variable="minigraph.ir", ConditionalBlock="minigraph.layers.branches"
)
