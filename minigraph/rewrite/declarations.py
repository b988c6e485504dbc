"""Compare the declarations of two programs: fields of variables and parameters, name scopes, seed and roots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from minigraph.ir import Block, Operator, Parameter, Program, Variable, VarKind

_OF_PROGRAMS = ("random_seed", "backward_passes", "roots")
_OF_VARIABLES: tuple[str, ...] = (
    "persistable",
    "stop_gradient",
    "is_data",
    "need_check_feed",
    "lod_level",
    "error_clip",
)
_OF_PARAMETERS = (
    "trainable", "optimize_attr", "regularizer", "do_model_average", "need_clip", "gradient_clip", "is_distributed",
)  # fmt: skip


def changed_declaration(before: Program, after: Program) -> str:
    """Tell the first declaration that differs, of what operators of both programs read or write; nothing if none."""
    return next(_changed_declarations(before, after), "")


def _changed_declarations(before: Program, after: Program) -> Iterator[str]:
    for field in _OF_PROGRAMS:
        one, other = getattr(before, field), getattr(after, field)
        if one != other:
            yield f"program.{field} was {one}, is {other}"
    used = _used(before) & _used(after)
    blocks = list(zip(before.blocks, after.blocks, strict=False))
    for block, new_block in blocks if before.num_blocks == after.num_blocks else blocks[:1]:
        for name, var in block.vars.items():
            if name in used and name in new_block.vars:
                yield from _changed_fields(var, new_block.vars[name])
        yield from _changed_order(block, new_block, used)
        yield from _changed_scopes(block, new_block)


def _used(program: Program) -> set[str]:
    ops = [op for block in program.blocks for op in block.ops]
    return {name for op in ops for name in (*op.input_arg_names, *op.output_arg_names)}


def _changed_fields(var: Variable, new: Variable) -> Iterator[str]:
    if isinstance(var, Parameter) != isinstance(new, Parameter):
        yield f"{var.name} was a {type(var).__name__}, is a {type(new).__name__}"
        return
    fields = _OF_VARIABLES
    if isinstance(var, Parameter):
        fields += _OF_PARAMETERS
    if (var.is_data or var.persistable) and var.kind is VarKind.LOD_TENSOR:  # the types of others are inferred
        fields += ("dtype", "shape")
    for field in fields:
        one, other = getattr(var, field), getattr(new, field)
        if one != other:
            yield f"{var.name}.{field} was {one!r}, is {other!r}"


def _changed_order(block: Block, new_block: Block, used: set[str]) -> Iterator[str]:
    names, new_names = (
        dict.fromkeys(var.name for var in each.all_parameters() if var.name in used) for each in (block, new_block)
    )
    kept, new_kept = [name for name in names if name in new_names], [name for name in new_names if name in names]
    if kept != new_kept:
        yield f"the parameters were in the order {', '.join(kept)}, are in {', '.join(new_kept)}"


def _changed_scopes(block: Block, new_block: Block) -> Iterator[str]:
    ops, new_ops = _only_writers(block), _only_writers(new_block)
    gone = {op.namescope for name, op in ops.items() if name not in new_ops}
    for name, op in ops.items():
        new = new_ops.get(name)
        if new is None or new.type != op.type:
            continue
        # One operator may take the place of several, of which not all results are still read.
        scopes = gone | {ops[each].namescope for each in new.output_arg_names if each in ops}
        if new.namescope not in scopes:
            yield f"the {op.type} that writes {name} was in the name scope {op.namescope}, is in {new.namescope}"


def _only_writers(block: Block) -> dict[str, Operator]:
    """Operators by the name of their result, which no other operator writes."""
    counts = Counter(name for op in block.ops for name in op.output_arg_names)
    return {name: op for op in block.ops for name in op.output_arg_names if counts[name] == 1}
