"""Let updates scale gradients down to a joint norm, so that clipped gradients need not be written."""

from __future__ import annotations

from minigraph.ir import Operator, Program
from minigraph.opdef import EMPTY
from minigraph.ops.merged_updates import MERGED
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Values


class ShrinkInUpdate(Pass):
    """Turn a ``clip_by_global_norm`` whose results only merged updates read into a ``clip_factor`` that they apply.

    A ``clip_parts`` becomes a ``clip_parts_factor``.

    The updates scale each gradient as they read it, or leave it alone when the norm is below the threshold. No clipped
    gradient is written.

    Law: every value that remains keeps its bits, because the same factor multiplies the same gradients. A clip stays as
    it is when one of its results is fetched.
    """

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        # `clip_factor` does not have the rules for infinities and thresholds of a strict clip.
        clips = [op for type in ("clip_by_global_norm", "clip_parts") for op in ops.of_type(type)]
        clips = [op for op in clips if not op.attr("strict") and op.inputs.get("ClipNorm")]
        if not clips or MERGED.keys().isdisjoint(ops.by_type):
            return False
        values = Values(program)
        changed = False
        for op in clips:
            updates = _updates(op, values)
            if updates:
                _rewrite(op, updates)
                changed = True
        return changed


def _updates(clip: Operator, values: Values) -> list[Operator]:
    """Return the merged updates that read all results of `clip` and no other gradients; empty if others do."""
    sources = dict(zip(clip.outputs["Out"], clip.inputs["X"], strict=True))
    sources.pop(EMPTY, None)
    updates: dict[Operator, None] = {}
    for name, source in sources.items():
        clipped = values.written(name, clip)
        # A second reader needs the clipped gradient itself.
        if not values.is_used_once(clipped):
            return []
        (reader,) = values.readers[clipped]
        is_gradient = reader.type in MERGED and name in reader.inputs["Grad"] and not reader.inputs.get("ClipFactor")
        if not is_gradient or not values.is_there(values.read(source, clip), reader):
            return []
        updates[reader] = None
    # An update multiplies all its gradients by the factor.
    if any(name not in sources for update in updates for name in update.inputs["Grad"]):
        return []
    return list(updates)


def _rewrite(clip: Operator, updates: list[Operator]) -> None:
    sources = dict(zip(clip.outputs["Out"], clip.inputs["X"], strict=True))
    norm = clip.outputs["Norm"]
    factor = f"{norm[0]}@FACTOR"
    type, slot, attrs = "clip_factor", "X", {"p": clip.attr("p")}
    if clip.type == "clip_parts":
        type, slot, attrs = "clip_parts_factor", "Norms", {**attrs, "columns": clip.attr("columns")}
    inputs = {slot: clip.inputs[slot], "ClipNorm": clip.inputs["ClipNorm"]}
    insert_for(clip, type, inputs, {"Factor": factor, "Norm": norm}, attrs)
    for update in updates:
        update.set_input("Grad", [sources[name] for name in update.inputs["Grad"]])
        update.set_input("ClipFactor", [factor])
    clip.block.remove(clip)
