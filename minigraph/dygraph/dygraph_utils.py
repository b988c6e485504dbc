"""Fluid's path to functions that layers of users call."""

from minigraph.layer_helper.core_ops import append_activation as _append_activation_in_dygraph
from minigraph.layer_helper.core_ops import append_bias as _append_bias_in_dygraph

__all__ = ["_append_activation_in_dygraph", "_append_bias_in_dygraph"]
