"""What executors do to a private program before their passes: a variable has values of one type."""

from minigraph.autodiff.overwritten import separate_types
from minigraph.ir import Program


def one_type_for_each_name(program: Program) -> None:
    """Give a value of another type than the last one of its name a variable of its own."""
    for block in program.blocks:
        separate_types(block)
