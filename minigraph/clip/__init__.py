"""Gradient clipping: strategies, and the functions that apply them to a program.

A strategy is a frozen dataclass whose `emit` appends the clip operators for a group of (parameter, gradient) pairs.
`set_gradient_clip` with `append_gradient_clip_ops`, an optimizer's ``grad_clip=`` and a call of a strategy all end in
`minigraph.passes.gradient_clip.clip_pairs`.

For all magnitudes, norms neither overflow nor underflow, zero stays zero, and a gradient whose norm is at most the
threshold keeps its bits.
"""

from minigraph.clip.adaptive import AdaptiveGradientClip, AutoClip, ZClip
from minigraph.clip.base import GradientClipBase
from minigraph.clip.error_clip import BaseErrorClipAttr, ErrorClipByValue, error_clip_callback
from minigraph.clip.explanation import explain
from minigraph.clip.nonfinite import skipped_steps
from minigraph.clip.norms import (
    GradientClipByAxisNorm,
    GradientClipByBlockRMS,
    GradientClipByGlobalPNorm,
    GradientClipByPNorm,
)
from minigraph.clip.pipeline import ClipPipeline
from minigraph.clip.setting import append_gradient_clip_ops, set_gradient_clip
from minigraph.clip.standard import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from minigraph.clip.statistics import ClipTelemetry, telemetry
from minigraph.support.public import refuse_unknown_names

# Fluid's later names.
ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm

__all__ = [
    "AdaptiveGradientClip",
    "AutoClip",
    "BaseErrorClipAttr",
    "ClipByGlobalNorm",
    "ClipByNorm",
    "ClipByValue",
    "ClipPipeline",
    "ClipTelemetry",
    "ErrorClipByValue",
    "GradientClipBase",
    "GradientClipByAxisNorm",
    "GradientClipByBlockRMS",
    "GradientClipByGlobalNorm",
    "GradientClipByGlobalPNorm",
    "GradientClipByNorm",
    "GradientClipByPNorm",
    "GradientClipByValue",
    "ZClip",
    "append_gradient_clip_ops",
    "error_clip_callback",
    "explain",
    "set_gradient_clip",
    "skipped_steps",
    "telemetry",
]

refuse_unknown_names(__name__)
