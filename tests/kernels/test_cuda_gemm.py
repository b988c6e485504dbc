"""Products while a graph is recorded: operands as cuBLAS takes them, by a stand-in that reads their addresses."""

import gc
import itertools

import numpy as np
import pytest
from host_cuda import Blas, Stream

from minigraph.kernels.cuda import gemm
from minigraph.kernels.cuda.launching import Capturing

LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "part of wider rows": lambda x: np.concatenate([x, x], -1)[..., : x.shape[-1]],
    "every other element": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "backwards": lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
}
SHAPES = [
    ((3, 4), (4, 5)), ((1, 4), (4, 1)), ((3, 1), (1, 5)), ((1, 1), (1, 1)), ((0, 4), (4, 5)), ((3, 0), (0, 5)),
    ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((6, 1, 3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 1)),
    ((2, 1, 3, 4), (1, 5, 4, 2)),
]  # fmt: skip


def numbers(shape, dtype, seed):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)  # whose products are exact


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS)), ids=" x ".join)
def test_operands_of_every_layout_are_multiplied_where_they_are(layouts, dtype, host_cuda):
    for a_shape, b_shape in SHAPES:
        a, b = numbers(a_shape, dtype, 0), numbers(b_shape, dtype, 1)
        expected = np.matmul(a, b)
        operands = [host_cuda.asarray(x)[...] for x in (a, b)]
        operands = [LAYOUTS[layout](x).view(type(x)) for layout, x in zip(layouts, operands, strict=True)]
        with Capturing(Stream([], "beside")):
            found = gemm.matmul(host_cuda, *operands)
            buffers = np.empty_like(expected), np.empty(expected.shape[::-1], dtype).T
            given = [gemm.matmul(host_cuda, *operands, out=buffer.view(type(found))) for buffer in buffers]
        for value in (found, *given):
            assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
            assert (value == expected).all(), (a_shape, b_shape)


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(["float16", "float32", "float64"], 2)))
def test_operands_of_two_types_are_multiplied_in_the_wider_one(one, other, host_cuda):
    a, b = numbers((3, 4), one, 0), numbers((4, 5), other, 1)
    expected = np.matmul(a, b)
    with Capturing(Stream([], "beside")):
        found = gemm.matmul(host_cuda, host_cuda.asarray(a), host_cuda.asarray(b))
        given = gemm.matmul(host_cuda, host_cuda.asarray(a), host_cuda.asarray(b), host_cuda.empty((3, 5), np.float64))
    assert found.dtype == expected.dtype
    assert (found == expected).all() and (given == expected).all()


def recorded(host_cuda, stream=0):
    """Return the memory that a recording of two products keeps."""
    x = host_cuda.asarray(np.ones((2, 2), "float32"))
    with Capturing(Stream([], "beside"), stream) as capturing:
        gemm.dot(host_cuda, x, x)
        gemm.dot(host_cuda, x, x)
    return capturing.kept


def test_recordings_borrow_a_handle_and_share_the_workspace_of_a_stream(host_cuda, monkeypatch):
    made = []
    monkeypatch.setattr(gemm, "_handles", {})
    monkeypatch.setattr(Blas, "cublasCreate_v2", lambda self, handle: made.append(handle) or 0, raising=False)
    first, second, other = recorded(host_cuda), recorded(host_cuda), recorded(host_cuda, stream=1)
    assert len(made) == 1
    assert first == second and len(first) == 1 and other != first


def test_recordings_at_the_same_time_have_handles_of_their_own(host_cuda, monkeypatch):
    monkeypatch.setattr(gemm, "_handles", {})
    x, handles = host_cuda.asarray(np.ones((2, 2), "float32")), []
    multiply = gemm.Handle.multiply
    monkeypatch.setattr(gemm.Handle, "multiply", lambda self, *args: handles.append(self) or multiply(self, *args))
    for _ in range(2):
        with Capturing(Stream([], "beside")):
            gemm.dot(host_cuda, x, x)
            with Capturing(Stream([], "beside")):
                gemm.dot(host_cuda, x, x)
    assert handles[0] is not handles[1] and set(handles) == {*handles[:2]}


@pytest.mark.slow
def test_a_workspace_is_freed_with_the_last_recording(host_cuda):
    kept = recorded(host_cuda, stream=2)
    assert (0, 2) in gemm._workspaces
    del kept
    gc.collect()
    assert (0, 2) not in gemm._workspaces


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_recorded_product_is_that_of_the_array_module(dtype, cuda_place):
    xp = cuda_place.xp
    for a_shape, b_shape in SHAPES:
        for a_layout, b_layout in itertools.product((None, "columns"), repeat=2):
            a, b = (
                xp.asarray(numbers(shape, dtype, seed)) if layout is None
                else xp.ascontiguousarray(xp.asarray(numbers(shape, dtype, seed)).swapaxes(-1, -2)).swapaxes(-1, -2)
                for seed, (shape, layout) in enumerate(((a_shape, a_layout), (b_shape, b_layout)))
            )  # fmt: skip
            expected = xp.matmul(a, b)
            stream = xp.cuda.Stream(non_blocking=True)
            xp.cuda.Device().synchronize()
            with xp.cuda.using_allocator(xp.cuda.MemoryPool().malloc), stream, Capturing(stream):
                stream.begin_capture()
                found = gemm.matmul(xp, a, b)
                graph = stream.end_capture()
                graph.launch()
                stream.synchronize()
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert (cuda_place.to_host(found) == cuda_place.to_host(expected)).all(), (a_shape, b_shape)
