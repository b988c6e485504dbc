"""What executors do to a private program before their passes: a variable has values of one type."""

from minigraph.ir import Program
from minigraph.ir.versions import separate, types_in_order


def one_type_for_each_name(program: Program) -> None:
    """Give a value of another type than the last one of its name a variable of its own."""
    for block in program.blocks:
        changes = {(op, name): old for op, others in types_in_order(block) for name, old in others.items()}
        separate({(op, name): old for (op, name), old in changes.items() if name in block.vars})
