"""Compile loops with numba, and cache the results in a folder for later processes.

numba caches by file name and date. So each text is written to a file of the folder whose name contains the hash of the
text, always with the same date. A file is written under another name and then moved, so that several processes may do
the same at once. A file of the folder that cannot be read is deleted and written again.

`MINIGRAPH_JIT=off` in the environment keeps executors from compiling unless they are told to. `MINIGRAPH_JIT_CACHE`
names another folder.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from minigraph.errors import MissingExtraError
from minigraph.support.interrupts import deferred

if TYPE_CHECKING:  # imported where a folder is looked for: it takes a hundredth of the time to import the package
    from pathlib import Path

SWITCH, CACHE = "MINIGRAPH_JIT", "MINIGRAPH_JIT_CACHE"

_FOOTER = """

from numba import cfunc as _cfunc
from numba import njit as _njit
from numba.extending import intrinsic as _intrinsic

from minigraph.kernels.jit.compiling import load_alone as _load_alone

_functions = {{name: globals()[name] for name in {names!r}}}


def _compiler(name, **options):
    flags = {{"reassoc"}} if name in REASSOCIATED else {{"contract"}} if name in CONTRACTED else False
    return _njit(nogil=True, error_model="numpy", fastmath=flags, no_cfunc_wrapper=True, **options)(_functions[name])


def _compile(name, signature, cache):
    if name not in _functions:  # but in a module that this one imports
        return globals()[name].py_func.__globals__["_compile"](name, signature, cache)
    if signature == {pointer!r}:
        return _cfunc(signature, cache=cache, error_model="numpy")(_functions[name])
    function = _compiler(name, cache=cache)
    if cache:
        _load_alone(function)
    function.compile(signature)
    function.disable_compile()
    return function


for _name in _functions:
    if _name in INTRINSICS:
        globals()[_name] = _intrinsic(_functions[_name])
    else:
        globals()[_name] = _compiler(_name, no_cpython_wrapper=True, forceinline=_name in CONTRACTED)
"""
"""Options of numba: no exception for a division by zero, as in NumPy, and no lock of the interpreter during a loop.

Functions that other functions call get no wrapper for calls from Python, which saves time to compile.
"""

POINTER = "void(int64, int64, int64, int64)"
"""Signature of functions in C, of which there is an address and that Python does not call."""

_LOADS_ALONE = ((0, 68),)
"""Versions of numba whose compiled functions were seen to need nothing of what `load_alone` leaves out.

The list has to be right: LLVM ends the process where a symbol is missing.
"""

_LISTS = ("REASSOCIATED", "CONTRACTED", "INTRINSICS")

_lock = threading.RLock()
_compiled: dict[tuple[str, str, str], Any] = {}
_modules: dict[str, ModuleType] = {}
_imported: dict[str, str] = {}
"""By name of a module the source that others import."""
_spent = threading.local()


def _forget_lock() -> None:
    """Make a new lock in a forked process: another thread may have held the old one."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


@cache
def is_installed() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def is_available() -> bool:
    """Whether executors compile by default: numba is installed and not switched off."""
    return os.environ.get(SWITCH, "").strip().lower() not in ("off", "0") and is_installed()


def require() -> None:
    """Check that numba is installed.

    Raises
    ------
    MissingExtraError
        If it is not; the message names the extra.
    """
    if not is_installed():
        raise MissingExtraError(
            "jit=True needs numba, which is not installed", hint="Install it with: pip install 'minigraph[jit]'."
        )


class Loops:
    """The functions of modules of loops, compiled on demand.

    Parameters
    ----------
    *modules : str
        Modules of `minigraph.kernels.jit.loops`; a module stands before the modules that use it.
    text : str
        Further functions, which use those of the modules. Loops of the same modules share the compiled functions.
    """

    def __init__(self, *modules: str, text: str = "") -> None:
        self._modules, self.text = modules, text

    @property
    def source(self) -> str:
        return _imports(self._modules) + self.text if self.text else _joined(self._modules)

    @property
    def import_line(self) -> str:
        """The first line of a source that calls these functions, which are then compiled once for all such sources."""
        name = _file_name(self.source)
        _imported[name] = self.source
        return f"from {name} import *\n"

    def compiled(self, name: str, signature: str) -> Callable[..., Any]:
        """The function `name` for these types, in numba's words, such as ``void(float32[::1], float32)``."""
        return compiled(self.source, name, signature)

    def typed(self, name: str, letters: str, types: Mapping[str, str], result: str = "void") -> Callable[..., Any]:
        """The function `name` for arguments of the types that `letters` stand for, one letter each."""
        return self.compiled(name, f"{result}({', '.join(types[letter] for letter in letters)})")

    def address(self, name: str) -> int:
        """The address of the function `name` of four words, as C calls it."""
        address: int = compiled(self.source, name, POINTER).address
        return address

    def is_compiled(self, name: str, signature: str) -> bool:
        """Whether `compiled` would return at once."""
        return (self.source, name, signature) in _compiled


@cache
def _imports(names: tuple[str, ...]) -> str:
    """Lines that import the functions of modules: those for tables by a line of their own, as many need them."""
    groups = [tuple(name for name in names if (name in ("layout", "table")) is is_table) for is_table in (False, True)]
    return "".join(Loops(*group).import_line for group in groups if group)


@cache
def _joined(names: tuple[str, ...]) -> str:
    """The joined text of modules of loops, without their imports of each other and with their lists merged."""
    modules = [importlib.import_module(f"minigraph.kernels.jit.loops.{name}") for name in names]
    own_lines = rf"^from minigraph[^(\n]*(\([^)]*\))?\n|^({'|'.join(_LISTS)}) = .*\n"
    texts = [re.sub(own_lines, "", inspect.getsource(module), flags=re.M) for module in modules]
    lists = [f"{each} = {sum((getattr(m, each, ()) for m in modules), ())!r}" for each in _LISTS]
    return "\n".join([*texts, *lists, ""])


def compiled(source: str, name: str, signature: str) -> Any:
    """The function `name` of a text of loops for these types; a call with other types raises TypeError."""
    key = source, name, signature
    function = _compiled.get(key)
    if function is None:
        start = time.perf_counter_ns()
        # Interrupts wait: numba's state, locks and files would not survive one at any moment.
        with deferred(), _lock:
            function = _compiled.get(key)
            if function is None:
                function = _compiled[key] = _compile(*key)
        _spent.nanoseconds = nanoseconds_spent() + time.perf_counter_ns() - start
    return function


def nanoseconds_spent() -> int:
    """Nanoseconds that the calling thread has spent on compiling so far, waiting for other threads included."""
    return getattr(_spent, "nanoseconds", 0)


def _compile(source: str, name: str, signature: str) -> Any:
    # Twice with the cache, since a damaged file is deleted after the first failure; then without.
    for cached in (True, True, False):
        try:
            function: Any = _module(source, cached).__dict__["_compile"](name, signature, cached)
        except Exception:
            if not cached:
                raise
            # A file in the folder is damaged, or the folder is read-only.
            _throw_away(source)
            continue
        break
    _prepare_calls()
    return function


def load_alone(function: Any) -> None:
    """Let a function of numba's be read from the folder without loading what only compiling needs.

    numba loads its implementations of Python and NumPy before it looks into the folder: a tenth of a second in each new
    process. It does so before it compiles, too.
    """
    if importlib.import_module("numba").version_info.short not in _LOADS_ALONE or os.name == "nt":
        return
    runtime = importlib.import_module("numba.core.runtime").rtsys
    kept = function._cache

    def load(signature: Any, context: Any) -> Any:
        runtime.initialize(context)  # which gives LLVM the symbols of the runtime
        return kept._load_overload(signature, context)

    kept.load_overload = load


@cache
def _prepare_calls() -> None:
    """Let numba inspect an array now: the first time it loads modules, which takes longer than most loops."""
    importlib.import_module("numba").typeof(np.zeros(1))


def _module(source: str, cached: bool) -> ModuleType:
    """`source` as a module whose functions numba compiles when they are called."""
    module = _modules.get(source)
    if module is None:
        for imported in _sources_imported_by(source):
            _module(imported, cached)
        functions = tuple(re.findall(r"^def (\w+)", source, flags=re.M))
        lists = "".join(f"\n{each} = ()" for each in _LISTS if f"\n{each} = " not in source)
        text = source + lists + _FOOTER.format(names=functions, pointer=POINTER)
        name = _file_name(source)
        path = folder() / f"{name}.py"
        if cached:
            _write_once(path, text)
        module = ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module  # numba looks there for what its functions refer to
        exec(compile(text, str(path), "exec"), module.__dict__)
        _modules[source] = module
    return module


def _sources_imported_by(source: str) -> list[str]:
    return [_imported[name] for name in re.findall(r"^from (minigraph_jit_\w+) import", source, flags=re.M)]


@cache
def _file_name(source: str) -> str:
    import hashlib

    return f"minigraph_jit_{hashlib.sha256((source + _FOOTER).encode()).hexdigest()[:24]}"


def _write_once(path: Path, text: str) -> None:
    """Put `text` at `path` with a fixed date, in one move; nothing if it is there already."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except (OSError, UnicodeDecodeError):
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    import tempfile

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".new")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.utime(name, (0, 0))  # to numba, a source file with another date makes its cache stale
        os.replace(name, path)
    except BaseException:
        (path.parent / name).unlink(missing_ok=True)
        raise


def _throw_away(source: str) -> None:
    """Remove the module of a source and numba's files for it, and those of the sources that it imports."""
    from pathlib import Path

    for imported in _sources_imported_by(source):
        _throw_away(imported)
    _modules.pop(source, None)
    name = _file_name(source)
    sys.modules.pop(name, None)
    places = [folder() / "__pycache__"]
    if "NUMBA_CACHE_DIR" in os.environ:
        places += Path(os.environ["NUMBA_CACHE_DIR"]).glob("*/")
    for place in places:
        for path in place.glob(f"{name}.*.nb[ic]"):
            path.unlink(missing_ok=True)


def folder() -> Path:
    """The folder of compiled loops: in the user's caches, unless the environment names another."""
    from pathlib import Path

    given = os.environ.get(CACHE)
    if given:
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "minigraph" / "jit"
