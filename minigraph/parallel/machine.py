"""Facts about a machine that the bits of a rank's products depend on."""

from __future__ import annotations

import os
import platform

import numpy as np

from minigraph.errors import warn
from minigraph.support.blas import numpy_blas

SHARED = "MINIGRAPH_LAUNCH_SHARES_CORES"
"""Environment variable that says that the launcher has chosen the number of BLAS threads by the number of ranks."""


def machine() -> str:
    """The processor, NumPy, its BLAS and the number of its threads: where these are the same, so are exact results.

    Examples
    --------
    >>> machine()  # doctest: +ELLIPSIS
    "NumPy ... on ..., Blas(...threads=...)"
    """
    return f"NumPy {np.__version__} on {platform.machine()}, {numpy_blas()}"


def warn_of_threads() -> None:
    """Warn that another number of ranks may have another number of BLAS threads, unless the user has chosen it."""
    is_chosen = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & os.environ.keys() and SHARED not in os.environ
    threads = numpy_blas().threads
    if not is_chosen and os.cpu_count() != 1:
        warn(
            f"exact=True: the BLAS has {threads} threads here, and may have another number where other ranks run or "
            "another number of them, which changes bits: set OPENBLAS_NUM_THREADS=1, or launch with --threads 1"
        )
