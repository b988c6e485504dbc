"""Results have the lengths of those inputs whose lengths they have in Paddle 1.8.5; recorded by golden_lengths.py."""

import json
from pathlib import Path

from together import check_all

from minigraph.opdef import definition_of
from minigraph.opdef.gradient_rules import FusedGrad

RECORDED = json.loads((Path(__file__).parent / "lengths.json").read_text(encoding="utf-8"))
OTHERWISE = {"row_conv", "merge_lod_tensor", "ctc_align", "add_position_encoding"}
"""Those that make lengths of their own, or read what has lengths otherwise than the rows of samples have it."""
OTHERWISE_BACKWARD = {"linear_chain_crf"}  # padded here: the gradient has no lengths then, whatever is fed


def words(definition, suffix=""):
    return {
        slot: f"{'rows ' if word.kind == 'rows' else ''}{word.slots[0].removesuffix('?')}"
        for slot, word in definition.lod.items()
        if slot.endswith(suffix)
    }


def test_results_have_the_lengths_that_the_original_gives_them():
    def check(type):
        definition = definition_of(type)
        shown = {slot.name for slot in definition.outputs if not slot.intermediate} | {"XShape", "Softmax"}
        assert words(definition) == {slot: word for slot, word in RECORDED[type].items() if slot in shown}

    check_all(check, {type: type for type in sorted(RECORDED.keys() - OTHERWISE)})


DIFFERENTIATED = [
    type
    for type, recorded in RECORDED.items()
    if type not in OTHERWISE_BACKWARD
    and isinstance(definition_of(type).grad, FusedGrad)
    and any(slot.endswith("@GRAD") for slot in recorded)
]


def test_gradients_have_lengths_where_the_original_gives_them_some():
    def check(type):
        rule, recorded = definition_of(type).grad, RECORDED[type]
        found = set(words(definition_of(rule.type), "@GRAD"))
        assert found == {f"{slot}@GRAD" for slot in rule.to if recorded.get(f"{slot}@GRAD", found and "unknown")}

    check_all(check, {type: type for type in DIFFERENTIATED})
