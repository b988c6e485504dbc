"""Updates by gradients that are selected rows; see `minigraph.kernels.optimizer`.

The cost of ``sgd``, ``adagrad`` and the lazy Adam depends on the rows only, not on the size of the parameter, when they
write over it. The other updates change every row, because their means forget, and equal those by the dense gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from minigraph.kernels.adaptive_optimizer import lamb_along
from minigraph.kernels.registry import kernel
from minigraph.kernels.update_kernels import LAZY, ROWS, Update
from minigraph.kernels.update_rules import RULES


def _lazy_or_not(type: str, powers_first: bool) -> Callable[..., Any]:
    """The kernel of a rule with the attribute `lazy_mode`."""
    lazy, all_rows = (Update(RULES[type], mode, powers_first) for mode in (LAZY, ROWS))

    def update(*args: Any, lazy_mode: bool, **keywords: Any) -> Any:
        return (lazy if lazy_mode else all_rows)(*args, **keywords)

    *others, out = lazy.__signature__.parameters.values()
    added = inspect.Parameter("lazy_mode", inspect.Parameter.KEYWORD_ONLY)
    update.__signature__ = inspect.Signature([*others, added, out])  # type: ignore[attr-defined]
    return update


for _type in ("sgd", "adagrad"):
    kernel(_type, rows=True)(Update(RULES[_type], LAZY))
for _type in ("momentum", "rmsprop"):
    kernel(_type, rows=True)(Update(RULES[_type], ROWS))
# Fluid has multiplied the powers by the time its adam uses them: the bias that is undone is that of the next step.
kernel("adam", rows=True)(_lazy_or_not("adam", powers_first=True))
kernel("adamw", rows=True)(_lazy_or_not("adamw", powers_first=False))
kernel("lamb", rows=True)(lamb_along(Update(RULES["lamb_direction"], ROWS)))
