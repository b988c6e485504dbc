"""Kernels for the processor that numba compiles, offered beside the shared ones where arrays are large enough.

What is compiled are the plain functions in `minigraph.kernels.jit.loops`: loops over arrays that use nothing of Python
but numbers. The other modules here offer them for operators, as specializers do: when a plan is built, an offer sees
shapes, types and attributes, and returns a function of the arrays, or None to leave the shared kernel in place. The
offers are imported when the first one is asked for (`minigraph.kernels.jit.all_offers`), and numba when one is taken.

Updates of parameters give the bits of the shared kernels, because each number goes through the same roundings. Sums and
exponentials round otherwise; each module says how much.
"""

from minigraph.kernels.jit.compiling import is_available, require

__all__ = ["is_available", "require"]
