"""The calls of kernels that the rows of samples make."""

from functools import lru_cache

import numpy as np
from sampled import with_gradients

from minigraph.executor.interpreter import evaluate
from minigraph.kernels import find_kernel, find_specializer
from minigraph.lowering.steps import TypeOfArray
from minigraph.runtime.kernel_call import has_rows, keywords_of
from minigraph.runtime.place import CPUPlace


class OtherModule:
    """NumPy under another identity: with it a kernel does what it does with CuPy."""

    def __getattr__(self, name):
        return getattr(np, name)


OTHER = OtherModule()


class Call:
    """An operator of a sample's program, forward or gradient, with the values it reads and writes."""

    def __init__(self, op, values):
        self.op = op
        self.kernel = find_kernel(op.type, "cpu")
        self.inputs = [self._entry(op.inputs, slot, values) for slot in op.definition.inputs]
        self.expected = [self._entry(op.outputs, slot, values) for slot in op.definition.outputs]
        self.keywords = keywords_of(op, self.kernel)

    @staticmethod
    def _entry(namesby_slot, slot, values):
        found = [values[name] for name in namesby_slot.get(slot.name, ())]
        return found if slot.duplicable else found[0] if found else None

    def __call__(self, xp=np, inputs=None, **out):
        return self.by_slot(self.kernel.function(xp, *(inputs or self.inputs), **self.keywords, **out))

    def quicker(self, xp=np):
        """The specialized function, if there is one, called like the kernel."""
        specializer = find_specializer(self.op.type)
        types = [each_array(array_type, entry) for entry in self.inputs]
        function = specializer(xp, *types, **self.keywords) if specializer is not None else None
        if function is None:
            return None

        def call(inputs=None, **out):
            return self.by_slot(function(*(inputs or self.inputs), **out))

        return call

    def by_slot(self, result):
        return list(result) if len(self.expected) > 1 else [result]

    def out(self, entries):
        return tuple(entries) if len(entries) > 1 else entries[0]


def each_array(function, entry):
    """`function` of an array, of each in a list, None of None."""
    if isinstance(entry, list):
        return [function(array) for array in entry]
    return None if entry is None else function(entry)


def array_type(array):
    return TypeOfArray(array.shape, array.dtype)


@lru_cache(maxsize=256)  # the laws of a file follow each other on the rows of an operator
def calls(sample, dtype):
    """The calls of a row's program; shared, so nobody may change their arrays."""
    built, found = with_gradients(sample, dtype), []
    values = dict(built.feed)
    for op in built.program.global_block().ops:
        values.update(evaluate(op, values.__getitem__, CPUPlace(), None))
        if not has_rows(op, op.block):  # their kernels are in test_sparse_rows.py
            found.append(Call(op, values))
    return found


def flat(entries):
    return [a for entry in entries for a in (entry if isinstance(entry, list) else [entry]) if a is not None]
