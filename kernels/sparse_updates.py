"""Updates by gradients that are selected rows; see `minigraph.kernels.optimizer`.

In place, the cost of ``sgd``, ``adagrad`` and the lazy Adam depends on the number of rows, not on the size of the
parameter. The other updates change every row, because their means decay, and equal updates by the dense gradient.
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
# Fluid's adam multiplies the powers before it uses them here, and so corrects the bias of the next step.
kernel("adam", rows=True)(_lazy_or_not("adam", powers_first=True))
kernel("adamw", rows=True)(_lazy_or_not("adamw", powers_first=False))
kernel("lamb", rows=True)(lamb_along(Update(RULES["lamb_direction"], ROWS)))
