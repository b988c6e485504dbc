"""Training with float16: casts in the forward pass, and a loss that is scaled so that small gradients do not vanish."""

from minigraph.contrib.mixed_precision.decorator import OptimizerWithMixedPrecision, decorate
from minigraph.contrib.mixed_precision.lists import AutoMixedPrecisionLists
from minigraph.support.public import refuse_unknown_names

__all__ = ["AutoMixedPrecisionLists", "OptimizerWithMixedPrecision", "decorate"]

refuse_unknown_names(__name__)
