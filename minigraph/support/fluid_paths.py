"""Modules of fluid whose names stand elsewhere here, such as ``fluid.dygraph.nn`` and ``fluid.layers.control_flow``.

Programs import names by these paths, or reach them as attributes. Each such module is made when it is asked for, and
offers all public names of one package.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from minigraph.errors import UnknownImportError, UnknownNameError, caller_site

_PACKAGES = {
    "minigraph.contrib": "extend_optimizer op_frequence",
    "minigraph.contrib.layers": "metric_op nn rnn_impl",
    "minigraph.contrib.mixed_precision": "fp16_lists",
    "minigraph.contrib.reader": "distributed_reader",
    "minigraph.dygraph": (
        "backward_strategy base checkpoint container dygraph_to_static jit learning_rate_scheduler nn profiler rnn"
    ),
    "minigraph.layers": "control_flow device metric_op ops sequence_lod",
    "minigraph.transpiler": "memory_optimization_transpiler",
    "minigraph.transpiler.details": "program_utils",
}
HOMES = {f"{package}.{name}": package for package, names in _PACKAGES.items() for name in names.split()}
HOMES |= {
    "minigraph.contrib.extend_optimizer.extend_optimizer_with_weight_decay": "minigraph.contrib",
    "minigraph.dygraph.dygraph_to_static.program_translator": "minigraph.dygraph",
    "minigraph.dygraph_utils": "minigraph.dygraph.dygraph_utils",
    "minigraph.core_avx": "minigraph.core",
    "minigraph.input": "minigraph",
    "minigraph.op": "minigraph.framework.op",
    "minigraph.layer_helper_base": "minigraph.layer_helper",
    "minigraph.install_check": "minigraph.framework.install_check",
    "minigraph.log_helper": "minigraph.framework.log_helper",
    "minigraph.learning_rate_decay": "minigraph.layers.learning_rate_scheduler",
}
"""Path of each module, with the package whose names it offers."""


class _Finder:
    """Finder and loader; not derived from those of `importlib.abc`, which would add to the time of the import."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if fullname in HOMES:
            return ModuleSpec(fullname, self)  # type: ignore[arg-type]
        if fullname.startswith("minigraph."):
            _refuse(*fullname.rsplit(".", 1))
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        home = importlib.import_module(HOMES[module.__name__])
        module.__path__ = []  # it may hold other modules of fluid
        module.__doc__ = f"Fluid's path to names of `{home.__name__}`."
        vars(module).update({name: getattr(home, name) for name in home.__all__})
        vars(module)["__all__"] = home.__all__
        vars(module)["__getattr__"] = lambda name: _attribute(module.__name__, home, name)


def _refuse(package: str, name: str) -> None:
    """Raise what a package says of a name that it lacks: Python itself would say no more than that it does."""
    if name.startswith("_"):
        return
    try:
        getattr(sys.modules[package], name)
    except UnknownNameError as error:
        raise UnknownImportError(error.message, site=caller_site(), hint=error.hint) from None
    except AttributeError:  # of a module whose import has not ended
        return


def _attribute(path: str, home: ModuleType, name: str) -> Any:
    inner = f"{path}.{name}"
    return importlib.import_module(inner) if inner in HOMES else getattr(home, name)


def open_paths() -> None:
    """Let Python find the modules; it asks here last, after the files."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
