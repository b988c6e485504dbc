"""Rewrites of a program: each pass states the law it keeps.

`LEGALIZE` says what programs mean; `LOWERING` is what executors apply to their private copy.
"""

from minigraph.passes.base import Pass, Pipeline
from minigraph.passes.fuse_global_norm import FuseGlobalNorm
from minigraph.passes.gradient_clip import ClipGradients

LEGALIZE = Pipeline((FuseGlobalNorm(),))
LOWERING = Pipeline((FuseGlobalNorm(),))

__all__ = ["LEGALIZE", "LOWERING", "ClipGradients", "FuseGlobalNorm", "Pass", "Pipeline"]
