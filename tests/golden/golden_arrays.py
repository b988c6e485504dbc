"""Arrays that were recorded: how the files lie that hold them.

`write` is called where Paddle 1.8.5 runs, so that this is written for Python 3.7.
"""

import json

import numpy as np


def write(folder, arrays, operators):
    """Record `arrays`, by ``case/what``, and the lines of `operators` by case."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(str(folder / "arrays.npz"), **arrays)
    (folder / "operators.json").write_text(json.dumps(operators, indent=0) + "\n", encoding="utf-8")


def by_case(folder, cases):
    """The arrays of each case by what they are, where `write` has put them."""
    found = {name: {} for name in cases}
    with np.load(str(folder / "arrays.npz")) as file:
        for key in file.files:
            name, _, what = key.partition("/")
            found[name][what] = file[key]
    return found


def in_a_row(folder, types):
    """The arrays of these dtypes and shapes, in order, where all elements of one dtype are recorded in a row."""
    with np.load(str(folder / "arrays.npz")) as file:
        stored = {dtype: file[dtype] for dtype in file.files}
    start, found = dict.fromkeys(stored, 0), []
    for dtype, shape in types:
        first, start[dtype] = start[dtype], start[dtype] + int(np.prod(shape))
        found.append(stored[dtype][first : start[dtype]].reshape(shape))
        found[-1].flags.writeable = False  # cases share it
    assert start == {dtype: len(values) for dtype, values in stored.items()}, "cases.json and arrays.npz disagree"
    return found
