"""Fluid's path to `minigraph.executor.profiler`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from minigraph.errors import warn
from minigraph.executor import profiler as _profiler
from minigraph.executor.profiler import *
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["cuda_profiler"]
__all__ += _profiler.__all__


@public
@contextmanager
def cuda_profiler(
    output_file: str, output_mode: str | None = None, config: Sequence[str] | None = None
) -> Iterator[None]:
    """Run what is inside, with a warning: the profiler of CUDA that fluid starts no longer exists."""
    warn(f"cuda_profiler writes no {output_file}: use profiler.profiler('GPU'), or Nsight from outside")
    yield


refuse_unknown_names(__name__)
