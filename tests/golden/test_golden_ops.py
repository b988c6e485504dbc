"""Single operators with the results that they had on Paddle 1.8.5.

`cases.json` holds the cases as data, `arrays.npz` what came out, under ``case/out/slot/number`` and
``case/grad/slot/number``. A case has

- ``op``, ``attrs``, ``seed``, ``inputs``: slot to a description of an array, or a list of them, see `make_array`;
- ``outputs``: how many variables a slot takes; ``out_dtypes``: how they are declared; ``compare``: the slots compared;
- ``inplace``: an output slot that is the same variable as an input slot;
- ``grad``: the slots differentiated; ``cotangents``: dtype and shape of each output's gradient, whose values come from
  the seed;
- ``error_type``: the original refuses the case; ``expect`` and ``stats``: a random operator, of which only type, bounds
  and moments are compared.
"""

import json
import math
import zlib
from pathlib import Path

import numpy as np
import pytest
from one_op import OneOp
from together import check_all

import minigraph as fluid
from minigraph.errors import MinigraphError
from minigraph.opdef import definition_of

pytestmark = pytest.mark.numbers

FOLDER = Path(__file__).parent / "ops"
CASES = json.loads((FOLDER / "cases.json").read_text(encoding="utf-8"))
TOLERANCES = {"float16": (5e-3, 1e-4), "float32": (2e-5, 2e-6), "float64": (1e-9, 1e-11)}
"""Relative and absolute, by dtype; integers and booleans must be equal."""


@pytest.fixture(scope="module")
def recorded():
    with np.load(FOLDER / "arrays.npz") as arrays:
        return dict(arrays)


def make_array(spec, seed):
    """The array that a case describes. A legacy generator: its stream is the same in every version of NumPy."""
    dtype = np.dtype(spec["dtype"])
    if "value" in spec:
        value = np.array(spec["value"], dtype)
        return value.reshape(spec.get("shape", value.shape))
    kind, *numbers = spec["gen"]
    random, shape = np.random.RandomState(seed), tuple(spec["shape"])
    count = math.prod(shape)
    match kind:
        case "normal":
            values = random.standard_normal(count) * numbers[1] + numbers[0]
        case "uniform":
            values = random.uniform(*numbers, count)
        case "randint":
            values = random.randint(*numbers, count)
        case "bool":
            values = random.uniform(0, 1, count) < numbers[0]
        case "distinct":
            values = np.linspace(*numbers, count)[random.permutation(count)]
        case "choice":
            values = np.array(numbers[0])[random.randint(0, len(numbers[0]), count)]
        case "prob":
            values = random.uniform(0.05, 1, shape)
            values = values / values.sum(-1, keepdims=True)
        case "const":
            values = np.full(count, numbers[0])
        case "zeros":
            values = np.zeros(count)
    values = values.reshape(-1)
    gap = spec.get("gap", 0.05)
    for kink in spec.get("avoid", []):
        values = np.where(np.abs(values - kink) < gap, kink + 2 * gap, values)
    return values.astype(dtype).reshape(shape)


def make_inputs(case):
    """Arrays by slot, each from a seed of its own."""
    inputs, number = {}, 0
    for slot, specs in sorted(case["inputs"].items()):
        inputs[slot] = []
        for spec in specs if isinstance(specs, list) else [specs]:
            inputs[slot].append(make_array(spec, (case["seed"] * 97 + number) % 2**31))
            number += 1
    return inputs


def make_cotangents(case):
    """The gradients of the outputs, as ``slot/number`` to array."""
    cotangents, slots = {}, []
    for key, (dtype, shape) in case.get("cotangents", {}).items():
        slot, i = key.split("/")
        if slot not in slots:
            slots.append(slot)
        random = np.random.RandomState((case["seed"] * 131 + 7 + slots.index(slot) * 11 + int(i)) % 2**31)
        cotangents[key] = random.uniform(-1, 1, math.prod(shape)).astype(dtype).reshape(shape)
    return cotangents


def run(case, place=None):
    """Results by the names that they are recorded under."""
    built = OneOp(
        case["op"],
        make_inputs(case),
        case["attrs"],
        {slot: 0 for slot in definition_of(case["op"]).output_slots} | case["outputs"],
        case.get("inplace"),
        case.get("out_dtypes"),
    )
    results = {f"out/{slot}/{i}": var for slot in case["compare"] for i, var in enumerate(built.outputs_of[slot])}
    if "grad" in case:
        cotangents = make_cotangents(case)
        names = [built.outputs_of[slot][int(i)].name for slot, i in (key.split("/") for key in cotangents)]
        built.differentiate(dict(zip(names, cotangents.values(), strict=True)), case["grad"])
        numbered = [f"grad/{slot}/{i}" for slot in case["grad"] for i, _ in enumerate(built.inputs[slot])]
        results |= zip(numbered, (grad for _, grad in built.gradients), strict=True)
    values = built.fetch(results.values(), fluid.Executor(place), scope=fluid.Scope())
    return dict(zip(results, values, strict=True))


def check_close(name, found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
    if expected.dtype.kind != "f":
        assert np.array_equal(found, expected), name
        return
    rtol, atol = TOLERANCES[expected.dtype.name]
    found, expected = found.astype("float64"), expected.astype("float64")
    finite = np.isfinite(expected)
    assert np.array_equal(found[~finite], expected[~finite], equal_nan=True), name
    assert (np.abs(found[finite] - expected[finite]) <= rtol * np.abs(expected[finite]) + atol).all(), name


def check_moments(found, stats, expect):
    """Type, bounds, and mean and standard deviation within six standard errors."""
    assert (str(found.dtype), list(found.shape)) == (stats["dtype"], stats["shape"])
    values = found.astype("float64")
    deviation = expect.get("std", stats["std"])
    standard_error = deviation / math.sqrt(values.size)
    if "mean" in expect:
        assert abs(values.mean() - expect["mean"]) <= 6 * standard_error
    else:
        assert abs(values.mean() - stats["mean"]) <= 9 * standard_error  # two samples differ by more than one
    assert abs(values.std() - deviation) <= deviation * expect.get("std_rel", 12 / math.sqrt(2 * values.size))
    assert expect.get("lo", -np.inf) <= values.min() and values.max() <= expect.get("hi", np.inf)


@pytest.mark.slow
def test_the_inputs_are_those_of_the_recording():
    for case in CASES:
        if "inputs_crc32" in case:
            checksum = 0
            for arrays in make_inputs(case).values():
                for array in arrays:
                    checksum = zlib.crc32(array.tobytes(), checksum)
            assert checksum == case["inputs_crc32"], case["id"]


def check(case, recorded, place=None):
    if "error_type" in case:
        with pytest.raises(MinigraphError):
            run(case, place)
        return
    found = run(case, place)
    for name, stats in case.get("stats", {}).items():
        check_moments(found[name], stats, case["expect"])
    for name in found.keys() - case.get("stats", {}).keys():
        check_close(name, found[name], recorded[f"{case['id']}/{name}"])


each_case = pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])


@pytest.mark.laws
@each_case
def test_an_operator_gives_what_the_original_gave(case, recorded):
    check(case, recorded)


@pytest.mark.gpu
def test_operators_give_it_on_a_gpu_too(recorded, cuda_place):
    check_all(lambda case: check(case, recorded, cuda_place), {case["id"]: case for case in CASES})
