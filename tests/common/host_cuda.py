"""A stand-in for CuPy on the processor: its arrays are NumPy's, and kernels are compiled by g++ and really run.

What is seen with it is arithmetic, memory and the order of calls. Nothing is seen of speed, of how many threads run at
the same time, or of what the driver refuses.
"""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import threading
import types
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="kernels are run on the processor with g++")


class MemoryPointer:
    def __init__(self, array):
        self.array = array
        self.ptr = array.__array_interface__["data"][0]


class ndarray(np.ndarray):
    """An array that notes when its values are looked at, for which a program would have to wait."""

    looked_at = 0
    sent = 0
    """How often values went from the processor to the device."""
    is_strict = False
    """Whether arrays of the processor are refused where CuPy refuses them; tests compare with NumPy's arrays, too."""

    def __new__(cls, shape, dtype=float, memptr=None):
        if memptr is None:
            return np.ndarray.__new__(cls, shape, dtype)
        owner = memptr.array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        start = memptr.ptr - owner.__array_interface__["data"][0]
        flat = np.ndarray((owner.nbytes,), np.uint8, owner)
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return flat[start : start + size].view(dtype).reshape(shape).view(cls)

    @property
    def data(self):
        return MemoryPointer(self)

    def __array_ufunc__(self, function, method, *inputs, out=(), **words):
        _refuse_host_arrays(function.__name__, inputs)
        given = [each.view(np.ndarray) if isinstance(each, ndarray) else each for each in inputs]
        targets = tuple(each.view(np.ndarray) if isinstance(each, ndarray) else each for each in out)
        if targets:
            words["out"] = targets
        found = getattr(function, method)(*given, **words)
        return (out[0] if len(out) == 1 else out) if out else _of_device(found)

    def __getitem__(self, key):
        for each in key if isinstance(key, tuple) else (key,):
            if isinstance(each, list) or type(each) is np.ndarray:
                ndarray.sent += 1
        _note_masks(key)
        return _of_device(super().__getitem__(key))

    def __setitem__(self, key, value):
        _note_masks(key)
        super().__setitem__(key, value)

    def get(self):
        ndarray.looked_at += 1
        return np.array(self)

    def set(self, array, stream=None):
        self[...] = array
        if stream is not None:
            stream.log.append(f"sent on {stream.name}")


def _note_masks(key):
    """Count each mask as a look at values: CuPy reads the number of elements that it chooses."""
    for each in key if isinstance(key, tuple) else (key,):
        ndarray.looked_at += isinstance(each, np.ndarray) and each.dtype == bool


def _noting(name):
    def look(self, *args):
        ndarray.looked_at += 1
        return getattr(np.ndarray, name)(self, *args)

    return look


for _name in ("__bool__", "__int__", "__float__", "__index__", "item", "tolist"):
    setattr(ndarray, _name, _noting(_name))

KEYWORDS = {
    "all": "axis out keepdims", "amax": "axis out keepdims", "amin": "axis out keepdims", "any": "axis out keepdims",
    "argmax": "axis out dtype keepdims", "argmin": "axis out dtype keepdims", "argsort": "axis kind",
    "cumprod": "axis dtype out", "cumsum": "axis dtype out", "max": "axis out keepdims",
    "mean": "axis dtype out keepdims", "min": "axis out keepdims", "prod": "axis dtype out keepdims",
    "std": "axis dtype out ddof keepdims", "sum": "axis dtype out keepdims",
    "var": "axis dtype out ddof keepdims",
}  # fmt: skip
"""Keywords of CuPy's functions and methods that have fewer of them than NumPy's."""

UFUNC_METHODS = {
    "at": ("add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"),
    "reduce": ("add", "multiply"),
    "accumulate": ("add", "multiply"),
    "reduceat": ("add",),
}
"""Methods of NumPy's universal functions that CuPy has, and for which functions."""


def _refuse_host_arrays(name, values):
    """CuPy takes numbers and its own arrays; NumPy would mix them with arrays of the processor."""
    for value in values if ndarray.is_strict and name != "ascontiguousarray" else ():
        if type(value) is np.ndarray or (type(value) in (list, tuple) and any(type(x) is np.ndarray for x in value)):
            raise TypeError(f"Unsupported type {np.ndarray} in {name}")


def _check(name, words):
    given = {each for each, value in words.items() if value is not None}  # NumPy's functions name all, with None
    assert name not in KEYWORDS or given <= set(KEYWORDS[name].split()), f"CuPy's {name} takes {KEYWORDS[name]}"


def _checked(name):
    def method(self, *args, **words):
        _check(name, words)
        return getattr(np.ndarray, name)(self, *args, **words)

    return method


for _name in KEYWORDS:
    if hasattr(np.ndarray, _name):
        setattr(ndarray, _name, _checked(_name))


def _of_device(value):
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).view(ndarray)
    if isinstance(value, tuple | list):
        return type(value)(map(_of_device, value)) if type(value) in (tuple, list) else value
    return value


def compiled(folder, text):
    """The library that g++ makes of C++; it stays in the folder, where other processes find it."""
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.so"
    if not path.exists():
        own = path.with_suffix(f".{os.getpid()}")  # another process may be at it, too
        command = ["g++", "-std=gnu++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-x", "c++", "-", "-o", own]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + text
        own.replace(path)
    return ctypes.CDLL(str(path))


_ONE_AT_A_TIME = threading.Lock()
"""Held while a kernel is compiled or runs: its threads are numbered by variables of the library."""


class RawModule:
    """Compiles CUDA source for the processor, once for each text."""

    folder: Path | None = None

    def __init__(self, code, options=(), backend="nvrtc"):
        assert "--fmad=false" in options
        self.kernels = re.findall(r'extern "C" __global__ void (\w+)\(([^)]*)\)', code)
        assert self.kernels, "no kernel is in the source"
        launchers = []
        for name, parameters in self.kernels:
            kinds = [re.sub(r"\w+\s*$", "", each).strip() for each in parameters.split(",")]
            values = ", ".join(f"*({kind}*)args[{i}]" for i, kind in enumerate(kinds))
            launchers.append(
                f"static void body_{name}(void** args) {{ {name}({values}); }}\n"
                f'extern "C" void launch_{name}(const unsigned* grid, const unsigned* block, void** args) '
                f"{{ run_blocks(body_{name}, grid, block, args); }}\n"
            )
        self.kinds = {name: [each.strip() for each in parameters.split(",")] for name, parameters in self.kernels}
        text = "\n".join([(Path(__file__).parent / "host_cuda.h").read_text(encoding="utf-8"), code, *launchers])
        with _ONE_AT_A_TIME:
            self.library = compiled(self.folder, text)

    def get_function(self, name):
        launch, kinds = getattr(self.library, f"launch_{name}"), self.kinds[name]

        def call(grid, block, args):
            assert len(args) == len(kinds), f"{name} takes {kinds}"
            assert grid[0] > 0 and block[0] <= 1024
            cells = [_cell(arg, kind) for arg, kind in zip(args, kinds, strict=True)]
            pointers = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(cell) for cell in cells])
            with _ONE_AT_A_TIME:
                launch((ctypes.c_uint * 1)(*grid), (ctypes.c_uint * 1)(*block), pointers)
            launches.append(name)

        return call


def _cell(arg, kind):
    """The value of an argument where the parameter is, which must be of the very type: nothing is converted."""
    if isinstance(arg, ndarray):
        assert "*" in kind, f"an array for {kind}"
        return ctypes.c_uint64(arg.data.ptr)
    if "*" in kind:
        assert type(arg) is int and arg == 0, f"{arg!r} for {kind}"
        return ctypes.c_uint64(0)
    kind = kind.split()[0]
    if isinstance(arg, np.float32):
        assert kind == "float"
        return ctypes.c_float(float(arg))
    if isinstance(arg, float):
        assert kind == "double", f"{arg!r} for {kind}"
        return ctypes.c_double(arg)
    assert isinstance(arg, int) and kind == "long", f"{arg!r} for {kind}"
    return ctypes.c_int64(arg)


launches: list[str] = []
"""Names of the kernels that were launched."""


class Random:
    """Generators whose arrays are those of the device."""

    @staticmethod
    def default_rng(seed=None):
        generator = np.random.default_rng(seed)

        class Generator:
            def __getattr__(self, name):
                found = getattr(generator, name)
                return lambda *args, **words: _of_device(found(*args, **words))

        return Generator()


class Blas:
    """What minigraph calls of cuBLAS: products of strided batches, stored by columns, at their addresses."""

    def __getattr__(self, name):
        assert name in ("cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasDestroy_v2")
        return lambda *args: 0

    def cublasGemmStridedBatchedEx(
        self, handle, first_is_transposed, second_is_transposed, rows, columns, length, alpha,
        first, first_kind, first_step, first_stride, second, second_kind, second_step, second_stride,
        beta, result, kind, step, stride, count, compute, algorithm,
    ):  # fmt: skip
        dtype = np.dtype({2: np.float16, 0: np.float32, 1: np.float64}[kind])
        assert first_kind == second_kind == kind
        assert (alpha._obj.value, beta._obj.value) == (1, 0)

        def batch(pointer, is_transposed, shape, step, stride):
            assert step >= max(1, shape[1] if is_transposed else shape[0])
            strides = (stride.value, step, 1) if is_transposed else (stride.value, 1, step)
            extent = sum((n - 1) * s for n, s in zip((count, *shape), strides, strict=True)) + 1
            memory = (ctypes.c_char * (extent * dtype.itemsize)).from_address(pointer.value)
            flat = np.frombuffer(memory, dtype)
            return np.lib.stride_tricks.as_strided(flat, (count, *shape), [s * dtype.itemsize for s in strides])

        left = batch(first, first_is_transposed, (rows, length), first_step, first_stride)
        right = batch(second, second_is_transposed, (length, columns), second_step, second_stride)
        target = batch(result, False, (rows, columns), step, stride)
        for out, a, b in zip(target, left, right, strict=True):
            out.T[...] = np.dot(b.T, a.T)
        return 0


class Event:
    def __init__(self, log):
        self.log = log

    def record(self, stream):
        self.log.append(f"event on {stream.name}")

    def synchronize(self):
        self.log.append("the processor waits for an event")


class Stream:
    """Notes what is asked of it; all work is done at once."""

    ptr = 0

    def __init__(self, log, name, cupy=None):
        self.log, self.name, self.cupy = log, name, cupy

    def __enter__(self):
        self.log.append(f"on {self.name}")

    def __exit__(self, *error):
        self.log.append("on main")

    def synchronize(self):
        pass

    def wait_event(self, event):
        self.log.append(f"{self.name} waits")

    def begin_capture(self):
        self.log.append("begin")

    def end_capture(self):
        self.log.append("end")
        return Graph(self.cupy)


class Graph:
    """Does once more what was asked for while it was recorded, as a test has it in `HostCupy.replay`."""

    def __init__(self, cupy):
        self.cupy, self.replay = cupy, cupy.replay

    def launch(self):
        self.cupy.events.append("launch")
        self.replay()


def as_strided(x, shape=None, strides=None):
    return _of_device(np.lib.stride_tricks.as_strided(x, shape, strides))


class HostCupy(types.ModuleType):
    """What minigraph uses of CuPy."""

    lib = types.SimpleNamespace(stride_tricks=types.SimpleNamespace(as_strided=as_strided))

    ndarray = ndarray
    RawModule = RawModule
    random = Random

    def __init__(self):
        super().__init__("cupy")
        self.events = log = []
        runtime = types.SimpleNamespace(getDeviceCount=lambda: 1, getDevice=lambda: 0, CUDARuntimeError=RuntimeError)
        self.main = Stream(log, "main")
        self.replay = None
        self.cuda = types.SimpleNamespace(
            runtime=runtime,
            Device=lambda number: types.SimpleNamespace(use=lambda: None),
            get_current_stream=lambda: self.main,
            alloc_pinned_memory=bytearray,
            Stream=lambda non_blocking: Stream(log, "other", self),
            Event=lambda: Event(log),
            MemoryPool=lambda: types.SimpleNamespace(malloc="a pool of its own"),
            using_allocator=self._using_allocator,
        )

    @contextmanager
    def _using_allocator(self, malloc):
        self.events.append(f"allocate from {malloc or 'the driver'}")
        yield
        self.events.append("allocate as before")

    def asnumpy(self, array, *args):
        ndarray.looked_at += 1
        return np.array(array, subok=False)

    def asarray(self, array, dtype=None):
        ndarray.sent += type(array) is not ndarray
        return array if type(array) is ndarray and dtype is None else _of_device(np.array(array, dtype, subok=False))

    def array(self, array, dtype=None, order="K"):
        ndarray.sent += type(array) is not ndarray
        return _of_device(np.array(array, dtype, order=order, subok=False))

    def concatenate(self, arrays, axis=0, out=None):
        ndarray.sent += len(arrays) > 8  # CuPy sends a table of their addresses
        return self.__getattr__("concatenate")(arrays, axis, out=out)

    def stack(self, arrays, axis=0, out=None):
        ndarray.sent += len(arrays) > 8
        return self.__getattr__("stack")(arrays, axis, out=out)

    def amin(self, array, axis=None, keepdims=False):
        # CuPy takes a buffer for the type where it reduces with CUB.
        return self.__getattr__("amin")(array, axis, keepdims=keepdims)

    def meshgrid(self, *arrays, **words):
        # CuPy gives a single array itself, NumPy a copy of it.
        return list(arrays) if len(arrays) < 2 else self.__getattr__("meshgrid")(*arrays, **words)

    def nonzero(self, array):
        ndarray.looked_at += 1
        return self.__getattr__("nonzero")(array)

    def unique(self, *args, **words):
        ndarray.looked_at += 1
        return self.__getattr__("unique")(*args, **words)

    def bincount(self, *args, **words):
        ndarray.looked_at += 1
        return self.__getattr__("bincount")(*args, **words)

    def take_along_axis(self, array, indices, axis):
        # NumPy's own makes indices on the processor, CuPy's on the device.
        return _of_device(np.take_along_axis(np.asarray(array), np.asarray(indices), axis))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(np, name)
        if isinstance(found, type) or not callable(found):
            return found

        def call(*args, **words):
            assert not args or args[0] is not None, f"CuPy's {name} takes no None, of which NumPy makes an object"
            _check(name, words)
            _refuse_host_arrays(name, args)
            is_strict, ndarray.is_strict = ndarray.is_strict, False  # NumPy's own functions may mix arrays
            try:
                return _of_device(found(*args, **words))
            finally:
                ndarray.is_strict = is_strict

        if isinstance(found, np.ufunc):

            def call(*args, out=None, **words):
                return _of_device(found(*args, **words)) if out is None else found(*args, out=out, **words)

            for method, names in UFUNC_METHODS.items():
                if name in names:
                    setattr(call, method, getattr(found, method))

        return call


def on_device(cupy, entry):
    if isinstance(entry, list):
        return [on_device(cupy, each) for each in entry]
    return cupy.asarray(entry) if isinstance(entry, np.ndarray) else entry


_CTYPES = {"float16": "_Float16", "float32": "float", "float64": "double"}


_HEAD = """
#include <cmath>
#undef INFINITY  // NVRTC has none of the macros of <math.h>
#undef NAN
#undef HUGE_VAL
#undef M_PI
#define __device__
typedef _Float16 float16;
"""


class OnTheProcessor:
    """NumPy with CuPy's way to make a kernel of an operation on one element, compiled as C++."""

    def __init__(self, folder):
        self.folder = folder

    def __getattr__(self, name):
        return getattr(np, name)

    def ElementwiseKernel(self, inputs, outputs, body, name, preamble="", options=()):
        names = [parameter.split() for parameter in f"{inputs}, {outputs}".split(", ")]
        assert all(kind == "T" for kind, _ in names)
        assert options == ("--fmad=false",)

        def launch(*arrays):
            shape = np.broadcast_shapes(*(x.shape for x in arrays))
            kind = _CTYPES[arrays[0].dtype.name]
            wide = [np.ascontiguousarray(np.broadcast_to(x, shape)) for x in arrays]
            loads = "".join(f"T& {each} = p{i}[i];\n" for i, (_, each) in enumerate(names))
            pointers = ", ".join(f"T* p{i}" for i in range(len(names)))
            loop = f"for (long i = 0; i < n; ++i) {{\n{loads}{body}\n}}"
            text = f"{_HEAD}{preamble}\ntemplate <typename T> void run(long n, {pointers}) {{\n{loop}\n}}\n"
            given = ", ".join(f"{kind}* p{i}" for i in range(len(names)))
            handed = ", ".join(f"p{i}" for i in range(len(names)))
            text += f'extern "C" void entry(long n, {given}) {{ run<{kind}>(n, {handed}); }}\n'
            size, places = ctypes.c_long(int(np.prod(shape))), [ctypes.c_void_p(x.ctypes.data) for x in wide]
            compiled(self.folder, text).entry(size, *places)
            for array, result in zip(arrays, wide, strict=True):
                if array.shape == shape:
                    array[...] = result

        return launch
