"""The arithmetic of every operator: functions on arrays that know nothing of programs.

Kernels import `minigraph.types`, `minigraph.errors` and `minigraph.support`.

One family of operators, one file, under the name it has in `minigraph.ops`. The first look-up registers those of
ordinary networks; the rest, and compiled loops, are registered when a kernel is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigraph.kernels import registry
from minigraph.kernels.registry import Kernel, import_first, import_later, kernel, specialize, takes_any_size

import_first(
    f"{__name__}.{family}" for family in (
        "activation", "adaptive_optimizer", "clip", "clip_to_keep", "conv", "elementwise", "elementwise_losses",
        "embedding", "fused", "indexing", "loss", "matrix", "merged_elementwise", "merged_updates", "metric", "norm",
        "normalization", "optimizer", "pool", "random", "reduce", "reshaping", "scaling", "tensor",
    )
)  # fmt: skip
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
