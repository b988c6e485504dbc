"""The arithmetic of every operator: functions on arrays that know nothing of programs.

Kernels import `minigraph.types`, `minigraph.errors` and `minigraph.support`.

One family of operators, one file, under the name it has in `minigraph.ops`. Importing this registers those of ordinary
networks; the rest, and compiled loops, are registered when a kernel is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minigraph.kernels.activation
import minigraph.kernels.adaptive_optimizer
import minigraph.kernels.clip
import minigraph.kernels.clip_to_keep
import minigraph.kernels.conv
import minigraph.kernels.elementwise
import minigraph.kernels.elementwise_losses
import minigraph.kernels.embedding
import minigraph.kernels.fused
import minigraph.kernels.indexing
import minigraph.kernels.loss
import minigraph.kernels.matrix
import minigraph.kernels.merged_updates
import minigraph.kernels.metric
import minigraph.kernels.norm
import minigraph.kernels.normalization
import minigraph.kernels.optimizer
import minigraph.kernels.pool
import minigraph.kernels.random
import minigraph.kernels.reduce
import minigraph.kernels.reshaping
import minigraph.kernels.scaling
import minigraph.kernels.tensor  # noqa: F401
from minigraph.kernels import registry
from minigraph.kernels.registry import Kernel, import_later, kernel, specialize, takes_any_size

import_later(
    f"{__name__}.{family}" for family in (
        "adaptive_clip", "array", "averaging", "bilinear", "class_numbers", "click_through", "collective", "compare",
        "control_flow", "crf", "ctc", "decoding", "deformable", "diagonal", "error_function", "focus", "image_layout",
        "likelihood", "parts", "printing", "products", "py_func", "rank_table", "ranking", "rectifier", "recurrent",
        "recurrent_sequences", "resampling", "sampled_losses", "sampling", "search", "selection", "sequence_pairs",
        "sequence_pool", "sequence_scores", "sequence_windows", "sequences", "series", "sparse_gradients",
        "sparse_updates", "training_checks", "volumes", "windows",
    )
)  # fmt: skip

__all__ = ["Kernel", "find_kernel", "find_specializer", "kernel", "specialize", "takes_any_size"]


def find_kernel(type: str, place_kind: str, rows: bool = False) -> Kernel | None:
    """The kernel of an operator type: the one for this kind of place, else the shared one, else None.

    `rows` asks for the one that takes or gives selected rows.
    """
    if place_kind == "cuda":
        import minigraph.kernels.cuda.all_kernels  # noqa: F401
    return registry.find_kernel(type, place_kind, rows)


def find_specializer(
    type: str, jit: bool = False, own: bool = False, rows: bool = False
) -> Callable[..., Callable[..., Any] | None] | None:
    """The function that `specialize` registered for an operator type, or None."""
    if jit:
        import minigraph.kernels.jit.all_offers  # noqa: F401
    return registry.find_specializer(type, jit, own, rows)
