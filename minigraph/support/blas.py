"""The BLAS of NumPy's matrix products: identify it, and make it choose fast kernels for processors it does not know.

Importing this module loads NumPy. OpenBLAS reads the environment and chooses its kernels at that moment, so the package
imports this module before anything else.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import CDLL, c_char_p, c_int, c_void_p, cast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORETYPE = "OPENBLAS_CORETYPE"
SWITCH = "MINIGRAPH_BLAS_CORETYPE"
WANTED = "SkylakeX"
_NEEDED_FLAGS = frozenset({"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"})
"""Processor flags that the SkylakeX kernels need. Linux lists a flag only where it also saves the registers."""
_NEWEST_KNOWN_FAMILY = 25
"""Newest family of AMD (Zen 3 and 4) that OpenBLAS up to 0.3.31 recognizes."""


@dataclass(frozen=True)
class Blas:
    """A BLAS library in this process; unknown fields are empty or None."""

    name: str
    version: str
    core_type: str
    threads: int | None


def core_type_to_set(processor: str, environment: Mapping[str, str]) -> str | None:
    """The core type to tell OpenBLAS, if it would not recognize the processor itself.

    Parameters
    ----------
    processor : str
        Text of ``/proc/cpuinfo``.
    environment : mapping
        A core type that the user has set is left alone; ``MINIGRAPH_BLAS_CORETYPE=off`` turns all of this off.

    References
    ----------
    OpenMathLib/OpenBLAS, pull request 6033: AMD's family 26 (Zen 5, 6) is missing from the detection at run time.
    """
    if CORETYPE in environment or environment.get(SWITCH, "").strip().lower() == "off":
        return None
    fields: dict[str, str] = {}
    for line in processor.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())  # of the first processor; all are alike
    family = fields.get("cpu family", "")
    unknown = fields.get("vendor_id") == "AuthenticAMD" and family.isdigit() and int(family) > _NEWEST_KNOWN_FAMILY
    return WANTED if unknown and _NEEDED_FLAGS.issubset(fields.get("flags", "").split()) else None


def read_processor() -> str:
    """``/proc/cpuinfo`` on Linux and x86-64, else the empty string."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return ""
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""


def load_numpy() -> None:
    """Import NumPy, with a core type for its OpenBLAS if it needs one; the environment is restored."""
    wanted = None if "numpy" in sys.modules else core_type_to_set(read_processor(), os.environ)
    if wanted is not None:
        os.environ[CORETYPE] = wanted
    try:
        importlib.import_module("numpy")
    finally:
        if wanted is not None:
            del os.environ[CORETYPE]


def numpy_blas() -> Blas:
    """Identify the BLAS of NumPy: by threadpoolctl if that is installed, else by NumPy and the library.

    Examples
    --------
    >>> numpy_blas()
    Blas(name=..., version=..., core_type=..., threads=...)
    """
    return _by_threadpoolctl() or _by_numpy()


def _by_threadpoolctl() -> Blas | None:
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return None
    found = next((each for each in threadpool_info() if each["user_api"] == "blas"), None)
    if found is None:
        return None
    return Blas(found["internal_api"], found["version"] or "", found.get("architecture") or "", found["num_threads"])


def _by_numpy() -> Blas:
    import numpy as np

    built_with: Any = np.show_config(mode="dicts")
    described = built_with.get("Build Dependencies", {}).get("blas", {})
    core_type, threads = _ask_openblas()
    return Blas(described.get("name", "unknown"), described.get("version", ""), core_type, threads)


def _ask_openblas() -> tuple[str, int | None]:
    """Core type and threads of the OpenBLAS in NumPy's wheel."""
    names, threads = _functions("openblas_get_corename", c_char_p), thread_counter()
    if not names:
        return "", None
    return names[0]().decode(), threads() if threads is not None else None


def thread_counter() -> Callable[[], int] | None:
    """A function that returns the current threads of the OpenBLAS in NumPy's wheel; None for another BLAS."""
    return next(iter(_functions("openblas_get_num_threads", c_int)), None)


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, the OpenBLAS in NumPy's wheel has one thread, unless the environment sets a number.

    One thread multiplies small matrices faster: several wait for each other longer than they compute.
    """
    is_chosen = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & set(os.environ)
    counts, changes = (
        [] if is_chosen else _functions(f"openblas_{verb}_num_threads", c_int) for verb in ("get", "set")
    )
    switches = [(change, count()) for count, change in zip(counts, changes, strict=True)]
    try:
        for change, _ in switches:
            change(1)
        yield
    finally:
        for change, before in switches:
            change(before)


def address_of(name: str) -> tuple[int, int] | None:
    """Address of a function of the OpenBLAS in NumPy's wheel, and the bits of its integers; None for another BLAS."""
    for function in _functions(name, None):
        return cast(function, c_void_p).value or 0, 64 if function.__name__.endswith("64_") else 32
    return None


def _functions(name: str, result: Any) -> list[Any]:
    """The function `name` of each library in NumPy's wheel, which may have a prefix or suffix."""
    import numpy as np

    package = Path(np.__file__).parent
    folders = [package.parent / "numpy.libs", package / ".dylibs"]
    found = []
    for path in sorted(path for folder in folders for path in folder.glob("*openblas*")):
        library = CDLL(str(path))  # loaded already, so this is the one that NumPy uses
        for each in (f"scipy_{name}64_", f"scipy_{name}", f"{name}64_", name):
            if function := getattr(library, each, None):
                function.restype = result
                found.append(function)
                break
    return found


load_numpy()
