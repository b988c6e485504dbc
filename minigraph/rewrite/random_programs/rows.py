"""One row for each operator, or several: inputs and attributes that are worth checking.

A row is ``sample("op", X=array, Y=[array, array], attr=value)``. Floating-point arrays are given in float64; the tests
convert them. To add a row, append it to `SAMPLES` in the file of its subject in `samples`; a new file there is found.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np

from minigraph.ops.merged_updates import MERGED, own_slots
from minigraph.rewrite.random_programs.sampling import Sample, distinct, floats, ints, number, sample

_FIRST = ("dense", "tensors", "images", "clipping", "shapes", "functions")
"""Files whose numbers are drawn first, in this order."""


def _rows(name: str) -> list[Sample]:
    rows: list[Sample] = import_module(f"{__package__}.samples.{name}").SAMPLES
    return rows


SAMPLES: list[Sample] = [row for name in _FIRST for row in _rows(name)]

_IMAGE = distinct(1, 1, 4, 4)

_PICKED_BY_POOLING = [
    sample("pool2d_grad_grad", X=_IMAGE, Out=out, DDX=floats(1, 1, 4, 4), wrt="DDX", pooling_type="max", **attrs)
    for out, attrs in [
        (_IMAGE.reshape(1, 1, 2, 2, 2, 2).max((3, 5)), {"ksize": [2, 2], "strides": [2, 2]}),
        (_IMAGE.max((2, 3), keepdims=True), {"ksize": [1, 1], "global_pooling": True}),
        (np.array([[[[9.0]]]]), {"ksize": [4, 4]}),
    ]
]

_CHOICES = [
    sample("rnn_memory_helper", X=floats(2, 3), dtype=6),
    sample("select_input", X=[ints(0, 9, 2, 3), ints(0, 9, 2, 3)], Mask=np.array([1], "int32")),
]

_MASK = np.array([[True], [False], [True]])
_CHOICES += [
    sample("split_lod_tensor", X=floats(3, 2), Mask=_MASK, outputs={"OutTrue": 1, "OutFalse": 1}),
    sample("merge_lod_tensor", X=_MASK, Mask=_MASK, InTrue=ints(0, 9, 2, 4), InFalse=ints(0, 9, 1, 4)),
]

SAMPLES += [*_CHOICES, *_PICKED_BY_POOLING, sample("assign", X=floats(2, 3), wrt="X")]


def merged(row: Sample) -> Sample:
    """The row of an update for two parameters, the second with other values."""
    inputs = {
        slot: [*arrays, *(array[:1] / 2 for array in arrays)] if slot in own_slots(row.definition) else arrays
        for slot, arrays in row.inputs.items()
    }
    sizes = [int(array.size) for array in inputs["Param"]]
    outputs = {slot: 2 for slot in row.outputs}
    return replace(row, op=f"merged_{row.op}", inputs=inputs, outputs=outputs, attrs={**row.attrs, "sizes": sizes})


_MERGED_UPDATES = [merged(row) for row in SAMPLES if f"merged_{row.op}" in MERGED]

SAMPLES += [
    *_MERGED_UPDATES,
    *(
        replace(row, inputs={**row.inputs, "ClipFactor": [np.array(factor)]}, attrs=row.attrs)
        for row in _MERGED_UPDATES
        for factor in ([1.0, 1.0, 4.0], [1.0, 1.0, 0.5], [1.0, 2.0**12, 3.0])
    ),
    *(
        sample("clip_factor", X=[floats(3, 4), floats(5), floats(0, 2)], ClipNorm=number(1.0), p=p)
        for p in (1.0, 2.0, np.inf)
    ),
]


SAMPLES += [
    row
    for file in sorted((Path(__file__).parent / "samples").glob("[a-z]*.py"))
    if file.stem not in _FIRST
    for row in _rows(file.stem)
]
