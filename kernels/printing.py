"""Print values to the standard output while a program runs."""

from __future__ import annotations

from collections import Counter

from minigraph.kernels.registry import kernel

_TIMES: Counter[tuple[str, ...]] = Counter()
"""Number of prints so far, by names and message."""


@kernel("print")
def print_(
    xp, x, *, first_n, message, summarize, print_tensor_name, print_tensor_type, print_tensor_shape, print_phase,
    is_forward, op_input_names,
):  # fmt: skip
    is_asked = print_phase in ("BOTH", "FORWARD" if is_forward else "BACKWARD")
    key = (message, *op_input_names)
    if is_asked and not 0 <= first_n <= _TIMES[key]:
        _TIMES[key] += 1
        head = [message, f"Tensor[{', '.join(op_input_names)}]" if print_tensor_name else ""]
        facts = {
            "shape": list(x.shape) if print_tensor_shape else None,
            "dtype": x.dtype if print_tensor_type else None,
        }
        flat = x.ravel() if summarize < 0 else x.ravel()[:summarize]
        facts["data"] = ", ".join(map(str, flat.tolist())) + (", ..." if flat.size < x.size else "")
        lines = ["\t".join(filter(None, head))] if any(head) else []
        print("\n".join([*lines, *(f"  {name}: {fact}" for name, fact in facts.items() if fact is not None)]))
    return x.copy()
