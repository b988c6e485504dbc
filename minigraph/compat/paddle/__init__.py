"""Paddle's top module as of 1.8: ``import minigraph.compat.paddle as paddle`` for programs that ask for its version.

It has `fluid`, `dataset`, `io`, `reader`, `batch`, and every other name of minigraph. `fluid`, `dataset`, `io` and
`reader` are imported as modules, too: ``import minigraph.compat.paddle.fluid as fluid``.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from minigraph import dataset, reader
from minigraph.compat.paddle import compat, version
from minigraph.compat.paddle.version import commit as __git_commit__
from minigraph.compat.paddle.version import full_version as __version__
from minigraph.reader import batch

fluid = sys.modules["minigraph"]  # the package itself, which Python imports before this module

__all__ = ["__git_commit__", "__version__", "batch", "compat", "dataset", "fluid", "reader", "version"]


_HOMES = {f"{__name__}.fluid": "minigraph"} | {
    f"{__name__}.{each}": f"minigraph.{each}" for each in ("dataset", "io", "reader")
}


class _Finder:
    """Finder and loader of paths below this module: each is the module of minigraph itself, never a second copy."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        home = next((each for each in _HOMES if fullname == each or fullname.startswith(f"{each}.")), None)
        if home is None:
            return None
        return ModuleSpec(fullname, self, origin=_HOMES[home] + fullname[len(home) :])  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # Python has put the spec of the other path there


if not any(
    type(finder).__name__ == _Finder.__name__ and type(finder).__module__ == __name__ for finder in sys.meta_path
):
    sys.meta_path.insert(0, _Finder())  # first: the files of minigraph would be found below `fluid` and run again


def __getattr__(name: str) -> Any:
    return getattr(fluid, name)
