"""Fluid's path to `minigraph.autodiff.backward`."""

from minigraph.autodiff.backward import ParamsGrads, append_backward, gradients

__all__ = ["ParamsGrads", "append_backward", "gradients"]
