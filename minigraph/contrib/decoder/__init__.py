"""Names of ``fluid.contrib.decoder``: a cell of named states, and the decoders that train it and search with it."""

from minigraph.contrib.decoder.beam_search_decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from minigraph.support.public import refuse_unknown_names

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]

refuse_unknown_names(__name__)
