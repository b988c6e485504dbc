"""Settings of this machine that affect speed, with advice: the command ``minigraph doctor``."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from minigraph.cli.commands import Command, Commands
from minigraph.errors import MinigraphError
from minigraph.kernels.jit import compiling
from minigraph.runtime.place import CUDAPlace
from minigraph.support import blas


@dataclass(frozen=True)
class Finding:
    """One setting of the machine.

    Attributes
    ----------
    subject : str
    state : str
        Its value.
    advice : str
        What to do about it; empty if nothing.
    """

    subject: str
    state: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.subject}: {self.state}" + (f"\n    {self.advice}" if self.advice else "")


def examine() -> list[Finding]:
    """Examine processor, BLAS, threads, compiler and GPU.

    Examples
    --------
    >>> [finding.subject for finding in examine()]
    ['processor', 'BLAS', 'BLAS kernels', 'BLAS threads', 'compiler', 'GPU']
    """
    processor, library = blas.read_processor(), blas.numpy_blas()
    return [
        _processor(processor),
        Finding("BLAS", f"{library.name} {library.version}".strip() + f", NumPy {importlib.metadata.version('numpy')}"),
        _kernels(library, processor),
        _threads(library),
        _compiler(),
        _gpu(),
    ]


def _processor(processor: str) -> Finding:
    names = [line.partition(":")[2].strip() for line in processor.splitlines() if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return Finding("processor", f"{name}, {_cores()} cores for this process")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _kernels(library: blas.Blas, processor: str) -> Finding:
    state, advice = library.core_type or "the library does not say which", ""
    own, wanted = os.environ.get(blas.CORETYPE), blas.core_type_to_set(processor, {})
    if own is not None:
        state += f"; you have set {blas.CORETYPE}={own}"
    elif wanted is not None and library.core_type.lower() == wanted.lower():
        state += ", which minigraph asked for: OpenBLAS does not know this processor"
    elif wanted is not None:
        is_off = blas.core_type_to_set(processor, os.environ) is None
        other = f"unset {blas.SWITCH} and minigraph does it" if is_off else "import minigraph before NumPy"
        advice = f"Set {blas.CORETYPE}={wanted}, or {other}: OpenBLAS does not know this processor, which has AVX-512"
        advice += "." if is_off else "; here NumPy was loaded first."
    return Finding("BLAS kernels", state, advice)


def _threads(library: blas.Blas) -> Finding:
    threads, cores, advice = library.threads, _cores(), ""
    if threads is None:
        advice = "Install threadpoolctl to let this command ask the library."
    elif threads > cores:
        advice = f"Set OPENBLAS_NUM_THREADS={cores}: this process has only {cores} cores."
    elif threads > 1:
        advice = (
            "Try OPENBLAS_NUM_THREADS=1: it is faster if other processes use the cores, and may be for small matrices."
        )
    return Finding("BLAS threads", "not known" if threads is None else str(threads), advice)


def _compiler() -> Finding:
    state, advice = "numba is not installed", ""
    if find_spec("numba") is None:
        advice = "Run pip install 'minigraph[jit]' to let executors compile updates, norms and losses to loops."
    else:
        state = f"numba {importlib.metadata.version('numba')}, which keeps compiled loops in {compiling.folder()}"
        if not compiling.is_available():
            advice = f"Unset {compiling.SWITCH} in the environment, which switches it off."
    return Finding("compiler", state, advice)


def _gpu() -> Finding:
    if find_spec("cupy") is None:
        advice = "For an NVIDIA GPU run pip install 'minigraph[cuda12]' (or cuda13)."
        return Finding("GPU", "CuPy is not installed", advice)
    try:
        place: Any = CUDAPlace(0)
        name = place.xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    except MinigraphError as error:
        return Finding("GPU", error.message, error.hint)
    return Finding("GPU", f"{name}, CuPy {place.xp.__version__}")


def _print(_: Any) -> int:
    """Report the libraries that do the arithmetic on this machine, and how to make
    them faster. These are the BLAS library with its kernels and threads, the
    compiler numba, and CuPy for a GPU.
    """
    for finding in examine():
        print(finding)
    return 0


COMMANDS: Commands = {"doctor": Command(_print)}
