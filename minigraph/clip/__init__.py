"""Gradient clipping: strategies, and the functions that apply them to a program; imports the engine and layer_helper.

A strategy is a frozen dataclass whose `emit` appends the clip operators for a group of (parameter, gradient) pairs.
`set_gradient_clip` with `append_gradient_clip_ops`, an optimizer's ``grad_clip=`` and a call of a strategy all end in
`minigraph.passes.gradient_clip.clip_pairs`.

For all magnitudes, norms neither overflow nor underflow, zero stays zero, and a gradient whose norm is at most the
threshold keeps its bits.
"""

from typing import TYPE_CHECKING

from minigraph.clip.base import *
from minigraph.clip.error_clip import *
from minigraph.clip.nonfinite import *
from minigraph.clip.setting import *
from minigraph.clip.standard import *
from minigraph.clip.statistics import *
from minigraph.ir import printable
from minigraph.support.public import offered, refuse_unknown_names

if TYPE_CHECKING:  # imported when they are asked for, see the end
    from minigraph.clip.adaptive import *
    from minigraph.clip.explanation import explain as explain
    from minigraph.clip.norms import *
    from minigraph.clip.pipeline import *

# Fluid's later names.
ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm

_LATE = {
    **dict.fromkeys(("AdaptiveGradientClip", "AutoClip", "ZClip"), "minigraph.clip.adaptive"),
    **dict.fromkeys(
        ("GradientClipByAxisNorm", "GradientClipByBlockRMS", "GradientClipByGlobalPNorm", "GradientClipByPNorm"),
        "minigraph.clip.norms",
    ),
    "ClipPipeline": "minigraph.clip.pipeline",
}

__all__ = sorted([*offered(vars()), *_LATE, "explain"])

printable.register_later(_LATE)
refuse_unknown_names(__name__, explain="minigraph.clip.explanation", **_LATE)
