"""What every operator gets for free from its row of samples."""

import numpy as np
import pytest
from asserting import assert_same_bits
from host_cuda import needs_compiler
from one_op import central_difference
from sampled import DETERMINISTIC, WITHOUT_SAMPLES, each, with_gradients, without_gradients
from together import check_all

import minigraph as fluid
from minigraph.autodiff.decompositions.all_rules import RULES
from minigraph.dygraph import guard, to_variable
from minigraph.errors import NotFoundError
from minigraph.kernels import find_kernel
from minigraph.opdef import all_definitions, definition_of
from minigraph.opdef.gradient_rules import FusedGrad
from minigraph.rewrite.random_programs.rows import SAMPLES
from minigraph.types import TensorType, as_dtype, same_dim

ROWS_ONLY = ("get_tensor_from_selected_rows", "merge_selected_rows")
"""Operators that take nothing but selected rows, which no array describes; test_selected_rows.py tries them."""

FORWARD = [each for each in all_definitions() if each.forward is None and each.type not in WITHOUT_SAMPLES]


DIFFERENTIABLE = [
    s for s in DETERMINISTIC if s.wrt and "float64" in s.dtypes and all(a.size for a in s.inputs[s.wrt[0]])
]


def test_every_operator_has_a_kernel_and_a_sample():
    check_all(check_kernel_and_sample, {definition.type: definition for definition in FORWARD})


def check_kernel_and_sample(definition):
    if definition.type in ROWS_ONLY:
        assert find_kernel(definition.type, "cpu", rows=True) is not None
        return
    types = [definition.type]
    if isinstance(definition.grad, FusedGrad):
        types.append(definition.grad.type)
    for type in types:
        kernel = find_kernel(type, "cpu")
        assert kernel is not None, f"no kernel for {type}"
        attrs = {name.removesuffix("_") for name in kernel.attrs}
        assert attrs <= set(definition.attrs), f"the kernel of {type} takes attributes that {type} has not"
    assert any(sample.op == definition.type for sample in SAMPLES), f"no row for {definition.type} among the samples"


def test_a_misspelt_operator_is_answered_with_the_right_name():
    with pytest.raises(NotFoundError, match="Did you mean elementwise_add"):
        definition_of("elementwise_ad")
    with pytest.raises(NotFoundError, match="relu"):
        fluid.Program().global_block().append_op("rellu", {}, {}, {})


@each(SAMPLES)
def test_the_inferred_types_are_the_actual_ones(sample, dtype):
    built = with_gradients(sample, dtype)
    results = built.run()
    for var in [*built.outputs, *(grad for _, grad in built.gradients)]:
        value = results[var.name]
        assert value.dtype == var.dtype.numpy, var.name
        assert len(value.shape) == len(var.shape) and all(map(same_dim, var.shape, value.shape)), var.name
    for var, grad in built.gradients:
        assert (grad.dtype, grad.shape) == (var.dtype, var.shape)


@each(SAMPLES)
def test_types_are_inferred_from_unknown_dimensions(sample):
    unknown = {
        slot: [TensorType(as_dtype(a.dtype), a.shape if slot in sample.known else (-1,) * a.ndim) for a in arrays]
        for slot, arrays in sample.inputs_as(sample.dtypes[0]).items()
    }
    inferred = sample.definition.infer_types(unknown, sample.definition.convert_attrs(sample.attrs))
    for name, value in without_gradients(sample, sample.dtypes[0]).run().items():
        slot, _, i = name.rpartition("_out_")
        shape = inferred[slot][int(i)].shape
        assert len(shape) == value.ndim and all(map(same_dim, shape, value.shape)), name


@each(DIFFERENTIABLE)
def test_the_gradient_is_the_central_difference(sample):
    built = with_gradients(sample, "float64")
    found = built.run()
    forward = without_gradients(sample, "float64")

    def weighted_sum(feed):
        results = forward.run(feed={name: feed[name] for name in forward.feed})
        return sum(
            np.vdot(results[name.removeprefix("cotangent_of_")], value)
            for name, value in feed.items()
            if name.startswith("cotangent_of_")
        )

    for var, grad in built.gradients:
        expected = central_difference(weighted_sum, built.feed, var.name)
        assert np.allclose(found[grad.name], expected, rtol=sample.tolerance, atol=sample.tolerance)


NARROWER = {"float32": 1e-5, "float16": 1e-2}
"""Types and how far their results may be from those of float64."""

NARROWED = [s for s in DETERMINISTIC if "float64" in s.dtypes and any(dtype in s.dtypes for dtype in NARROWER)]


@each(NARROWED)
def test_a_narrower_type_gives_the_same_up_to_rounding(sample):
    wide = with_gradients(sample, "float64")
    for dtype, tolerance in NARROWER.items():
        if dtype not in sample.dtypes:
            continue
        narrow = with_gradients(sample, dtype)
        expected = wide.run(feed={name: narrow.feed[name].astype(array.dtype) for name, array in wide.feed.items()})
        for name, value in narrow.run().items():
            assert np.allclose(value, expected[name], rtol=tolerance, atol=tolerance, equal_nan=True), (dtype, name)


@each(DETERMINISTIC)
def test_a_plan_gives_the_bits_of_the_interpreter(sample, dtype):
    built = with_gradients(sample, dtype)
    expected = built.run(fluid.Interpreter())
    for name, value in built.run(built.exact).items():
        assert_same_bits(value, expected[name])


@each(SAMPLES)
def test_the_first_run_gives_the_bits_of_the_compiled_one(sample, dtype):
    """A plan walks through its table of instructions first, and is compiled for its second run."""
    built = with_gradients(sample, dtype)
    first = built.first_results
    built.executor._rng = np.random.default_rng(5)
    found = built.run()
    assert first.keys() == found.keys()
    for name, value in found.items():
        assert_same_bits(first[name], value)


def computed_at_once(op, feed):
    """Compute an operator in the imperative mode on the arrays of `feed`; return its variables by name."""
    block = fluid.default_main_program().global_block()
    tensors = {}
    for name in op.input_arg_names:
        tensors[name] = to_variable(feed[name])
        tensors[name].stop_gradient = feed[name].dtype.kind != "f"
    tensors |= {name: block.create_var(name=name) for name in op.output_arg_names}
    reads, writes = (
        {slot: [tensors[name] for name in names] for slot, names in slots.items()} for slots in (op.inputs, op.outputs)
    )
    block.append_op(op.type, reads, writes, op.attrs)
    return tensors


@each(DETERMINISTIC)
def test_the_imperative_mode_gives_the_bits_of_the_program(sample, dtype):
    built = with_gradients(sample, dtype)
    expected, expected_gradients = built.run(built.exact), built.run()
    if sample.op in RULES:  # which was rewritten to be differentiated
        expected |= without_gradients(sample, dtype).run(built.exact)
    with guard(), fluid.unique_name.guard():
        check_the_imperative_mode(built, expected, expected_gradients)


def check_the_imperative_mode(built, expected, expected_gradients):
    tensors = computed_at_once(built.op, built.feed)
    for name, array in expected.items():
        if name in tensors:
            assert_same_bits(tensors[name].numpy(), array)
            assert (tensors[name].dtype.numpy, tensors[name].shape) == (array.dtype, array.shape)
    cotangents = {
        name.removeprefix("cotangent_of_"): to_variable(array)
        for name, array in built.feed.items()
        if name.startswith("cotangent_of_")
    }
    wanted = [(tensors[var.name], grad) for var, grad in built.gradients if grad is not None]
    if wanted:
        targets = [tensors[name] for name in cotangents]
        found = fluid.grad(targets, [tensor for tensor, _ in wanted], list(cotangents.values()))
        for tensor, (_, grad) in zip(found, wanted, strict=True):
            assert_same_bits(tensor.numpy(), expected_gradients[grad.name])


@each(SAMPLES)
def test_the_text_of_the_program_parses_to_the_same_program(sample):
    program = with_gradients(sample, sample.dtypes[0]).program
    assert fluid.Program.parse(str(program)).equals(program)


ON_BOTH_PLACES = [s for s in DETERMINISTIC if not find_kernel(s.op, "cuda").takes_rng]
"""Samples without random numbers, of which a GPU draws others."""


def check_the_gpu_agrees(sample, dtypes, place, runs):
    for dtype in dtypes:
        built = with_gradients(sample, dtype)
        tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2}[dtype]
        expected, executor = built.run(), fluid.Executor(place)
        for _ in range(runs):
            found = built.run(executor)
            for name, value in expected.items():
                assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
                assert np.allclose(found[name], value, rtol=tolerance, atol=tolerance, equal_nan=True), name


@pytest.mark.gpu
@each(ON_BOTH_PLACES)
def test_the_gpu_agrees_with_the_cpu(sample, cuda_place):
    check_the_gpu_agrees(sample, sample.dtypes, cuda_place, runs=3)  # the second records a graph and launches it


@needs_compiler
@pytest.mark.slow
@each(ON_BOTH_PLACES)
def test_kernels_for_a_gpu_use_what_cupy_has(sample, strict_host_cuda):
    """The stand-in has CuPy's keywords and methods, not all of NumPy's. It records nothing."""
    check_the_gpu_agrees(sample, sample.dtypes[:1], fluid.CUDAPlace(0), runs=2)
