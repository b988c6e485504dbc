"""The CUDA source of fused operators: compiled by nvcc where there is one, and run on the processor as C++."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from fused_groups import CASES, as_steps, operands, plain, single_calls
from host_cuda import OnTheProcessor
from kernel_calls import flat

from minigraph.kernels import find_kernel, find_specializer, fused
from minigraph.kernels.fused_on_gpu import PREAMBLE, operation

pytestmark = pytest.mark.usefixtures("like_an_executor")


@pytest.fixture(scope="module")
def processor(kernels_folder):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    return OnTheProcessor(kernels_folder)


@pytest.mark.laws
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_computes_what_the_single_kernels_do(case, dtype, processor):
    shapes, steps = CASES[case]
    xs = operands(shapes, dtype)
    expected = plain(xs, steps)
    buffers = tuple(None if x is None else np.full_like(x, 77) for x in expected)
    types = [fused.ArrayType(x.shape, x.dtype) for x in xs]
    quicker = find_specializer("fused_elementwise")(processor, types, steps=steps)
    kernel = find_kernel("fused_elementwise", "cuda").function
    for found in (kernel(processor, xs, steps=steps), quicker(xs, out=buffers)):
        for value, other in zip(found, expected, strict=True):
            assert (value is None) == (other is None)
            if other is not None:
                assert (value.dtype, value.shape) == (other.dtype, other.shape)
                assert np.allclose(value, other, rtol=4 * np.finfo(dtype).eps, atol=0, equal_nan=True)
    assert all(value is buffer for value, buffer in zip(found, buffers, strict=True))


OTHERS = {
    "a gradient that adds up rows": (
        [((2,), "float32"), ((3, 2), "float32")],
        ["y0, y1 = elementwise_mul_grad(x0, x0, x0, axis=-1)", "y2 = elementwise_max(y1, x1, axis=-1)"],
    ),
    "a row under a column": (
        [((3, 1), "float32"), ((4,), "float32")],
        ["y0 = elementwise_add(x0, x0, axis=-1)", "y1 = elementwise_mul(x0, x1, axis=-1)"],
    ),
    "two types": ([((3, 2), "float32"), ((3, 2), "int64")], ["y0 = relu(x0)", "y1 = elementwise_add(x1, x1, axis=-1)"]),
    "no elements under a row": (
        [((0, 1), "float32"), ((4,), "float32")],
        ["y0 = elementwise_add(x0, x0, axis=-1)", "y1 = elementwise_mul(x0, x1, axis=-1)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_groups_that_are_no_single_launch_are_computed_call_by_call(case, processor):
    types, steps = OTHERS[case]
    xs = [(np.arange(np.prod(shape)).reshape(shape) - 2).astype(dtype) for shape, dtype in types]
    assert (
        find_specializer("fused_elementwise")(processor, [fused.ArrayType(*each) for each in types], steps=steps)
        is None
    )
    found = find_kernel("fused_elementwise", "cuda").function(processor, xs, steps=steps)
    for value, other in zip(found, plain(xs, steps), strict=True):
        assert (value is None) == (other is None)
        if other is not None:
            assert (value.dtype, value.shape) == (other.dtype, other.shape)
            assert np.array_equal(value, other)


def in_one(dtype):
    """One kernel of the formulas of all operators, the arrays it takes and what comes out."""
    body, arrays, expected = [], [], []
    for call in single_calls(dtype):
        steps = [renumbered(step, {"x": ("a", len(arrays)), "y": ("b", len(expected))}) for step in as_steps(call)]
        views = [f"a{len(arrays) + i}" for i in range(len(flat(call.inputs)))]
        wanted = [x for x in call.expected if x is not None]
        body.append("{" + operation(steps, views, [f"b{len(expected) + i}" for i in range(len(wanted))]) + "}")
        arrays += flat(call.inputs)
        expected += wanted
    return "\n".join(body), arrays, expected


def renumbered(step, names):
    """A step with other names, by their letters, and with their numbers moved on."""

    def other(match):
        letter, first = names[match[1]]
        return f"{letter}{first + int(match[2])}"

    return re.sub(r"\b([xy])(\d+)", other, step)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc, of the CUDA toolkit")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_formula_compiles_for_a_gpu(dtype, tmp_path):
    body, arrays, expected = in_one("float32")
    kind = {"float16": "float16", "float32": "float", "float64": "double"}[dtype]
    names = [*(f"a{i}" for i in range(len(arrays))), *(f"b{i}" for i in range(len(expected)))]
    loads = "".join(f"T& {name} = p[{i}];\n" for i, name in enumerate(names))
    text = "#include <cuda_fp16.h>\n#include <cmath>\ntypedef __half float16;\n"
    text += f"{PREAMBLE}\ntemplate <typename T> __device__ void run(T* p) {{\n{loads}{body}\n}}\n"
    text += f"__global__ void entry({kind}* p) {{ run<{kind}>(p); }}\n"
    path = tmp_path / "formulas.cu"
    path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["nvcc", "-ptx", "--fmad=false", str(path), "-o", str(tmp_path / "formulas.ptx")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert ".entry" in (tmp_path / "formulas.ptx").read_text(encoding="utf-8")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_computes_what_the_single_kernels_do(case, dtype, cuda_place):
    shapes, steps = CASES[case]
    tiny = 0 if dtype == "float16" else np.finfo(dtype).tiny  # CuPy compiles kernels that flush smaller numbers to zero
    xs = [np.where(np.abs(x) < tiny, x.dtype.type(0), x) for x in operands(shapes, dtype)]
    kernel = find_kernel("fused_elementwise", "cuda").function
    found = kernel(cuda_place.xp, [cuda_place.to_device(x) for x in xs], steps=steps)
    for value, other in zip(found, plain(xs, steps), strict=True):
        if other is not None:
            assert np.allclose(cuda_place.to_host(value), other, 16 * np.finfo(dtype).eps, tiny, equal_nan=True)
