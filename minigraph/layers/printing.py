"""Showing values while a program runs."""

from __future__ import annotations

from minigraph.errors import ProgramError, suggest
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable, layer
from minigraph.ops.printing import PHASES

__all__ = ["Print"]


@layer
def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """`input`, which is printed whenever it is computed, and its gradient when that is.

    Parameters
    ----------
    input : Variable
    first_n : int
        Maximum number of prints, counted by the message and the name of the variable; -1 means no maximum.
    message : str, optional
        What stands in front.
    summarize : int
        Maximum number of elements to print; -1 for all.
    print_tensor_name, print_tensor_type, print_tensor_shape : bool
        What else to print.
    print_tensor_lod : bool
        Changes nothing.
    print_phase : {'both', 'forward', 'backward'}
        Whether to print the value, its gradient, or both.

    Returns
    -------
    Variable
        To be used in place of `input`, if the gradient is to be printed.

    Raises
    ------
    ProgramError
        If `print_phase` is none of these.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     x = fluid.layers.fill_constant([2, 3], "float32", 1.5)
    ...     _ = Print(x, message="x is", summarize=4, print_tensor_name=False)
    ...     _ = fluid.Executor().run()
    x is
      shape: [2, 3]
      dtype: float32
      data: 1.5, 1.5, 1.5, 1.5, ...
    """
    check_variable(input, "Print: input")
    if not isinstance(print_phase, str) or print_phase.upper() not in PHASES:
        phases = [phase.lower() for phase in PHASES]
        raise ProgramError(
            f"Print: print_phase must be one of {', '.join(phases)}, got {print_phase!r:.40}",
            hint=suggest(str(print_phase), phases),
        )  # fmt: skip
    return LayerHelper(f"print_{input.name}").emit(
        "print", In=input, first_n=first_n, message=message or "", summarize=summarize,
        print_tensor_name=print_tensor_name, print_tensor_type=print_tensor_type, print_tensor_shape=print_tensor_shape,
        print_tensor_lod=print_tensor_lod, print_phase=print_phase.upper(),
    )  # fmt: skip
