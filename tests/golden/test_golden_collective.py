"""Programs of one of several ranks are those that Paddle 1.8.5's transpilers make, operator by operator."""

import json

import golden_collective
import pytest

import minigraph as fluid
from minigraph.transpiler import collective

OPTIMIZE = 2
RECORDED = json.loads(golden_collective.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", golden_collective.CASES)
def test_operators_are_those_of_the_original(name):
    found = json.loads(json.dumps(golden_collective.build(fluid, collective, name)))
    for which, recorded in RECORDED[name].items():
        # The recording, on a processor, has no names of groups.
        made = [row for row in found[which] if row[0] != "c_gen_nccl_id"]
        for ours, theirs in zip(made, recorded, strict=True):
            if theirs[3].get("op_role") == OPTIMIZE:
                # Clips name the gradient that they read, the original the one that they make.
                theirs[3].pop("op_role_var", None)
            attrs = {key: ours[3].get(key) for key in theirs[3]}
            assert [*ours[:3], attrs] == theirs
