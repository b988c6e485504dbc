"""Random groups of operators on elements as CUDA: compiled by the toolkit, and run on the processor."""

import inspect
import shutil
import subprocess

import numpy as np
import pytest
from host_cuda import launches, needs_compiler

from minigraph.kernels import find_kernel, formulas
from minigraph.kernels.fused import fused_elementwise
from minigraph.kernels.fused_on_gpu import PREAMBLE, operation
from minigraph.opdef import REQUIRED, definition_of
from minigraph.support.fused_calls import FusedCall

SHAPE = (4, 3, 5)
SHAPES = [SHAPE, (5,), (3,), (1,), (4, 3), (3, 5)]


def of_arrays(count):
    """Operators of so many arrays that have a formula."""
    found = []
    for type in sorted(formulas.OF_ONE | formulas.OF_TWO):
        parameters = list(inspect.signature(find_kernel(type, "cpu").function).parameters.values())[1:]
        arrays = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        if not type.endswith("_grad") and sum(name in ("x", "y") for name in arrays) == count:
            found.append((type, len(arrays)))
    return found


ONE, TWO = of_arrays(1), of_arrays(2)


def random_group(seed):
    """Shapes of the inputs, and steps: each reads the result before it, some an input that is broadcast."""
    random = np.random.default_rng(seed)
    shapes, steps, before = [SHAPE], [], "x0"
    length = int(random.integers(2, 9))
    for number in range(length):
        choices = ONE if random.random() < 0.5 else TWO
        type, count = choices[random.integers(len(choices))]
        attrs = attributes(type, random)
        inputs = [before, *[None] * (count - 1)]
        if (type, count) in TWO:
            inputs[1] = f"x{len(shapes)}"
            shape = SHAPES[random.integers(len(SHAPES))]
            attrs["axis"] = {(3,): 1, (4, 3): 0, (3, 5): 1}.get(shape, -1)
            shapes.append(shape)
        before = "y0" if number == length - 1 else f"t{number}"
        steps.append(str(FusedCall(type, tuple(inputs), (before,), attrs)))
    return shapes, steps


def attributes(type, random):
    declared = definition_of(type).attrs
    found = {}
    for name in find_kernel(type, "cpu").attrs:
        default = declared[name.removesuffix("_")].default
        found[name] = float(random.integers(1, 9)) / 4 if default is REQUIRED else default
    return found


@pytest.mark.laws
@needs_compiler
@pytest.mark.parametrize("seed", range(12))
def test_a_group_computes_what_the_single_kernels_do(seed, host_cuda_fused):
    shapes, steps = random_group(seed)
    random = np.random.default_rng(seed)
    xs = [random.uniform(-2, 2, shape) for shape in shapes]
    with np.errstate(all="ignore"):
        expected = fused_elementwise(np, xs, steps=steps)
        found = find_kernel("fused_elementwise", "cuda").function(
            host_cuda_fused, [host_cuda_fused.asarray(x) for x in xs], steps=steps
        )
    assert launches == ["fused"]
    for value, other in zip(found, expected, strict=True):
        if other is not None:
            np.testing.assert_allclose(value, other, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="the CUDA toolkit is not installed")
def test_the_toolkit_compiles_random_groups(tmp_path):
    texts = ["#include <cuda_fp16.h>\n#include <cmath>\ntypedef __half float16;\n", PREAMBLE]
    for seed in range(60):
        shapes, steps = random_group(seed)
        names = [f"x{i}" for i in range(len(shapes))]
        loads = "".join(f"T& {name} = p[{i}];\n" for i, name in enumerate([*names, "y0"]))
        texts.append(f"template <typename T> __device__ void run{seed}(T* p) {{\n{loads}")
        texts.append(f"{operation(steps, names, ['y0'])}\n}}\n")
        for kind in ("float", "double"):
            texts.append(f"__global__ void group{seed}_{kind}({kind}* p) {{ run{seed}<{kind}>(p); }}\n")
    path = tmp_path / "groups.cu"
    path.write_text("".join(texts), encoding="utf-8")
    command = ["nvcc", "--ptx", "--fmad=false", "-o", tmp_path / "out.ptx", path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.ptx").read_text(encoding="utf-8").count(".entry") == 120
