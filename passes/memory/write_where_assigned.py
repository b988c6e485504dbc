"""Write a clipped gradient to the variable that it is assigned to."""

from __future__ import annotations

from minigraph.ir import Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.values import Value, Values

_CLIPS = frozenset({"clip", "clip_by_norm", "clip_by_global_norm"})


class WriteWhereAssigned(Pass):
    """Turn ``y = clip(X=g)`` followed by ``g = assign(X=y)`` into ``g = clip(X=g)``, where `g` is persistable.

    The same for all that is clipped together by a global norm. The clip can then write over the arrays in the scope.

    Law: every value keeps its bits. Nothing else reads `y`, and nothing reads `g` between the two operators. The norm
    that a joint clip writes is dropped when nothing reads it.
    """

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        assigns = ops.of_type("assign")
        if not assigns or not any(ops.of_type(type) for type in _CLIPS):
            return False
        values = Values(program)
        found = [(assign, clip) for assign in assigns if (clip := _clip_for(assign, values)) is not None]
        for assign, clip in found:
            clip.replace_output(assign.inputs["X"][0], assign.outputs["Out"][0])
            assign.block.remove(assign)
        for clip in dict.fromkeys(clip for _, clip in found):
            _drop_norm(clip, values)
        return bool(found)


def _clip_for(assign: Operator, values: Values) -> Operator | None:
    """Return the clip whose result `assign` copies over its input, if it may write there itself."""
    source, target = values.input(assign, "X"), assign.outputs["Out"][0]
    clip = values.producer(source, *_CLIPS)
    if clip is None or not values.is_used_once(source):
        return None
    old = values.read(target, assign)
    variables = values.block.vars
    fits = variables[target].persistable and variables[target].tensor_type == variables[source[0]].tensor_type
    is_own = _clipped(clip, source[0]) == target and values.read(target, clip) == old
    first, last = values.position[clip], values.position[assign]
    # A read of the old value between the two would see the clipped one.
    is_free = not any(first < values.position[op] < last for op in values.readers[old])
    return clip if fits and is_own and is_free and target not in clip.output_arg_names else None


def _clipped(clip: Operator, name: str) -> str | None:
    """Return the input of `clip` whose result has this name."""
    return dict(zip(clip.outputs["Out"], clip.inputs["X"], strict=True)).get(name)


def _drop_norm(clip: Operator, values: Values) -> None:
    for name in clip.outputs.get("Norm", ()):
        norm: Value = values.written(name, clip)
        if name != EMPTY and not values.readers[norm] and not values.is_live_out(norm):
            clip.replace_output(name, EMPTY)
