"""What tests do with each row of `op_samples`: the program of its operator, with gradients."""

from collections import defaultdict
from itertools import count

import numpy as np
import pytest
from op_samples import SAMPLES

import minigraph as fluid
from minigraph.opdef.gradient_rules import FusedGrad


def ids(samples):
    numbers = defaultdict(count)
    return [f"{each.op}-{next(numbers[each.op])}" for each in samples]


def each(samples):
    return pytest.mark.parametrize("sample", samples, ids=ids(samples))


DETERMINISTIC = [s for s in SAMPLES if not s.is_random]


class Built:
    """The program of one operator and, with `cotangents`, of its gradients."""

    def __init__(self, sample, dtype, cotangents=None):
        definition = sample.definition
        self.program = fluid.Program()
        block = self.program.global_block()
        self.feed, inputs, self.outputs, outputs = {}, {}, {}, {}
        for slot, arrays in sample.inputs_as(dtype).items():
            inputs[slot] = [
                block.create_var(name=f"{slot}_{i}", shape=a.shape, dtype=a.dtype, stop_gradient=a.dtype.kind != "f")
                for i, a in enumerate(arrays)
            ]
            self.feed |= {f"{slot}_{i}": a for i, a in enumerate(arrays)}
        several = max((len(v) for slot, v in inputs.items() if definition.input_slots[slot].duplicable), default=1)
        for slot in definition.outputs:
            count = sample.outputs.get(slot.name, several if slot.duplicable else 0 if slot.dispensable else 1)
            outputs[slot.name] = [block.create_var(name=f"{slot.name}_out_{i}") for i in range(count)]
        self.op = block.append_op(sample.op, inputs, outputs, sample.attrs)
        self.outputs = [var for slot in outputs.values() for var in slot]
        self.gradients = []
        if cotangents is not None:
            self._differentiate(sample, inputs, outputs, cotangents)

    def _differentiate(self, sample, inputs, outputs, cotangents):
        targets = [var for var in self.outputs if var.name in cotangents]
        given = []
        for target in targets:
            array = cotangents[target.name]
            name = f"cotangent_of_{target.name}"
            given.append(self.program.global_block().create_var(name=name, shape=target.shape, dtype=array.dtype))
            self.feed[name] = array
        wrt = [var for slot in sample.wrt for var in inputs[slot]]
        self.gradients = list(zip(wrt, fluid.gradients(targets, wrt, given), strict=True))

    def run(self, executor=None, feed=None):
        """Outputs and gradients, by name."""
        fetched = [*self.outputs, *(grad for _, grad in self.gradients)]
        with np.errstate(all="ignore"):
            values = (executor or fluid.Executor()).run(self.program, feed=feed or self.feed, fetch_list=fetched)
        # Of selected rows, which test_selected_rows.py looks at, only what they add up to.
        return {var.name: np.asarray(value) for var, value in zip(fetched, values, strict=True)}


def differentiated(sample, dtype):
    """A program with the gradients of the outputs that the rule reads, for random gradients of those."""
    results = Built(sample, dtype).run()
    rule = sample.definition.grad
    slots = rule.d_outputs if isinstance(rule, FusedGrad) else [s.name for s in sample.definition.outputs]
    rng = np.random.default_rng(1)
    cotangents = {
        name: rng.uniform(-1, 1, value.shape).astype(value.dtype)
        for name, value in results.items()
        if name.rpartition("_out_")[0] in slots and value.dtype.kind == "f"
    }
    return Built(sample, dtype, cotangents)


def with_gradients(sample, dtype):
    return differentiated(sample, dtype) if sample.wrt else Built(sample, dtype)
