"""The BLAS of NumPy's matrix products: identify it, and make it choose fast kernels for processors it does not know.

Importing this module loads NumPy. OpenBLAS reads the environment and chooses its kernels at that moment, so the package
imports this module before anything else. Where NumPy is loaded already, OpenBLAS is made to choose again.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import CDLL, PyDLL, c_char_p, c_int, c_void_p, cast
from dataclasses import dataclass
from operator import methodcaller
from types import FrameType
from typing import Any

CORETYPE = "OPENBLAS_CORETYPE"
SWITCH = "MINIGRAPH_BLAS_CORETYPE"
WANTED = "SkylakeX"
_NEEDED_FLAGS = frozenset({"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"})
"""Processor flags that the SkylakeX kernels need. Linux lists a flag only where it also saves the registers."""
_NEWEST_KNOWN_FAMILY = 25
"""Newest family of AMD (Zen 3 and 4) that OpenBLAS up to 0.3.31 recognizes."""
_WITH_AVX512 = frozenset({"skylakex", "cooperlake", "sapphirerapids"})
"""Names of the kernels that are as good as the wanted ones."""
_WAITS = frozenset({"_bootstrap_inner", "_recv", "_wait_for_tstate_lock", "_worker", "accept", "get", "join", "poll",
                    "readinto", "select", "wait"})  # fmt: skip
"""Functions of Python's library in which threads wait."""
_WITHOUT_PRODUCTS = frozenset({"ipykernel", "zmq"})
"""Packages whose threads serve a notebook."""


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
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def load_numpy() -> None:
    """Import NumPy, with a core type for its OpenBLAS if it needs one; the environment is restored."""
    wanted = core_type_to_set(read_processor(), os.environ)
    if wanted is None:
        importlib.import_module("numpy")
        return
    os.environ[CORETYPE] = wanted
    try:
        if "numpy" in sys.modules:
            choose_again()
        else:
            importlib.import_module("numpy")
    finally:
        del os.environ[CORETYPE]


def choose_again() -> None:
    """Let the OpenBLAS in NumPy's wheel choose its kernels anew, as the environment says, if those it has are slow.

    Waiting threads of OpenBLAS look up the kernels when they get work. A thread of Python that is inside a product must
    not see them change: where one may be, nothing is changed, and a warning says what to do.
    """
    for library in libraries(PyDLL):  # whose calls keep the interpreter's lock
        if not hasattr(library, "gotoblas_dynamic_init"):
            continue
        library.gotoblas_corename.restype = c_char_p
        if library.gotoblas_corename().decode().lower() in _WITH_AVX512:
            continue
        frames, me = sys._current_frames(), threading.get_ident()
        if any(_may_multiply(frame) for thread, frame in frames.items() if thread != me):
            warnings.warn(
                "NumPy's OpenBLAS does not know this processor, which makes matrix products up to 1.9 times slower. "
                f"Import minigraph before threads are started, or set {CORETYPE}={WANTED}.",
                RuntimeWarning,
                stacklevel=5,
            )
            return
        # One call of C makes both, since Python could switch threads between two while there are no kernels.
        list(map(methodcaller("__call__"), (library.gotoblas_dynamic_quit, library.gotoblas_dynamic_init)))


def _may_multiply(frame: FrameType) -> bool:
    """Whether a thread that runs `frame` may be inside BLAS."""
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    is_waiting = package in sys.stdlib_module_names and frame.f_code.co_name in _WAITS
    return not is_waiting and package not in _WITHOUT_PRODUCTS


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


def libraries(kind: type[CDLL] = CDLL) -> list[CDLL]:
    """Each OpenBLAS in NumPy's wheel."""
    from pathlib import Path

    import numpy as np

    package = Path(np.__file__).parent
    folders = [package.parent / "numpy.libs", package / ".dylibs"]
    paths = sorted(path for folder in folders for path in folder.glob("*openblas*"))
    return [kind(str(path)) for path in paths]  # loaded already, so these are the ones that NumPy uses


def _functions(name: str, result: Any) -> list[Any]:
    """The function `name` of each library in NumPy's wheel, which may have a prefix or suffix."""
    found = []
    for library in libraries():
        for each in (f"scipy_{name}64_", f"scipy_{name}", f"{name}64_", name):
            if function := getattr(library, each, None):
                function.restype = result
                found.append(function)
                break
    return found


load_numpy()
