"""Places that programs run on: their array module ``xp``, and moving arrays to them and back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from minigraph.errors import MissingExtraError, PlaceError, WrongTypeError
from minigraph.support.alignment import ALIGNMENT
from minigraph.support.communicator import current
from minigraph.support.public import public


@public
class Place:
    """A kind of device and, where there are several, its number."""

    kind: ClassVar[str]
    device_id: int = 0

    @property
    def xp(self) -> Any:
        """The array module of the place."""
        raise PlaceError(f"{type(self).__name__} is no place; use CPUPlace() or CUDAPlace(0)")

    def is_cpu_place(self) -> bool:
        return self.kind == "cpu"

    def is_gpu_place(self) -> bool:
        return self.kind == "cuda"

    def to_device(self, array: Any) -> Any:
        """`array` as an array of the place; not copied when it is one already."""
        return self.xp.asarray(array)

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """`array` as a NumPy array; not copied when it is one already."""
        return np.asarray(array)

    def rng(self, seed: int | None = None) -> Any:
        """A random generator of the place."""
        return self.xp.random.default_rng(seed)

    def bytes(self, size: int) -> Any:
        """Allocate `size` bytes of the place, aligned and not initialized, as an array."""
        raw = current().allocate(size + ALIGNMENT)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + size]

    def address(self, array: Any) -> int:
        """Address of the first byte of an array."""
        return int(array.__array_interface__["data"][0])

    def vector(self, first: Any, size: int) -> Any:
        """A vector of `size` elements that begins where `first` does, in the memory that `first` is part of."""
        base = first.base
        return np.ndarray((size,), first.dtype, base, self.address(first) - self.address(base))

    def now(self) -> int:
        """Nanoseconds of a clock after all queued work is done, without the time to compile loops."""
        from minigraph.kernels.jit.compiling import nanoseconds_spent

        return time.perf_counter_ns() - nanoseconds_spent()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.device_id == getattr(other, "device_id", None)

    def __hash__(self) -> int:
        return hash((self.kind, self.device_id))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class CPUPlace(Place):
    """The processor, through NumPy."""

    kind = "cpu"

    @property
    def xp(self) -> Any:
        return np


@public
class CUDAPlace(Place):
    """An NVIDIA GPU, through CuPy.

    Raises
    ------
    WrongTypeError, PlaceError
        If `device_id` is not a number of a GPU of this machine. Whether there is one is looked up on first use, not
        when the place is made.
    MissingExtraError
        On first use, if CuPy is not installed.
    """

    kind = "cuda"

    def __init__(self, device_id: int = 0) -> None:
        if device_id < 0:
            raise PlaceError(f"a device number must be at least 0, got {device_id}")
        self.device_id = device_id

    @cached_property
    def xp(self) -> Any:
        cupy = _import_cupy()
        count = _device_count(cupy)
        if self.device_id >= count:
            raise PlaceError(
                f"CUDAPlace({self.device_id}) asks for a GPU that this machine does not have",
                details=[f"CuPy sees {count} GPU{'s' if count != 1 else ''}"],
                hint="Use CPUPlace(), or check the driver with nvidia-smi.",
            )
        cupy.cuda.Device(self.device_id).use()
        return cupy

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        return self.xp.asnumpy(array)

    def bytes(self, size: int) -> Any:
        return self.xp.empty(size, np.uint8)  # CuPy's pool aligns what it gives

    def address(self, array: Any) -> int:
        return super().address(array) if isinstance(array, np.ndarray) else int(array.data.ptr)  # lengths are NumPy's

    def vector(self, first: Any, size: int) -> Any:
        return self.xp.ndarray((size,), first.dtype, first.data)

    def now(self) -> int:
        self.xp.cuda.get_current_stream().synchronize()
        return super().now()

    def __repr__(self) -> str:
        return f"CUDAPlace({self.device_id})"


class CUDAPinnedPlace(CPUPlace):
    """Memory of the processor for transfers to a GPU; here ordinary memory, because executors pin what they send.

    Raises
    ------
    PlaceError
        If this machine has no GPU that can be used.
    """

    def __init__(self) -> None:
        if not is_compiled_with_cuda():
            raise PlaceError("CUDAPinnedPlace serves a GPU, and this machine has none to use", hint="Use CPUPlace().")


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError:
        raise MissingExtraError(
            "CUDAPlace needs CuPy, which is not installed",
            hint="Install it with: pip install 'minigraph[cuda12]' (or cuda13, after your driver's CUDA version).",
        ) from None
    return cupy


def _device_count(cupy: Any) -> int:
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def is_compiled_with_cuda() -> bool:
    """Whether a `CUDAPlace` can be used on this machine."""
    return get_cuda_device_count() > 0


def get_cuda_device_count() -> int:
    """Number of GPUs of this machine that can be used."""
    try:
        return _device_count(_import_cupy())
    except MissingExtraError:
        return 0


def as_places(places: Any) -> list[Place]:
    """Places that are given as one, several or None.

    Raises
    ------
    WrongTypeError
        If one of them is something else.
    """
    given = list(places) if isinstance(places, list | tuple) else [] if places is None else [places]
    for place in given:
        if not isinstance(place, Place):
            raise WrongTypeError(f"a place must be a Place, got {place!r:.60}")
    return given


@public
def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """`device_count` CPU places; by default as many as the environment variable ``CPU_NUM`` says, or one."""
    return [CPUPlace() for _ in range(_count(device_count))]


def _count(given: int | None) -> int:
    """Check a number of places, by default that of the environment."""
    if given is None:
        text = os.environ.get("CPU_NUM", "1")
        if not text.isdecimal() or not 1 <= int(text) < 1 << 16:
            raise WrongTypeError(f"CPU_NUM must be a number of places, got {text!r}", hint="Unset it for one place.")
        return int(text)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 16:
        raise WrongTypeError(
            f"device_count must be an int of at most {(1 << 16) - 1}, got {given!r:.80}",
            hint="Leave it out for one place.",
        )
    return given or 1


@public
def cuda_places(device_ids: list[int] | None = None) -> list[CUDAPlace]:
    """The GPUs with these numbers, by default all of this machine."""
    if device_ids is None:
        device_ids = list(range(_device_count(_import_cupy())))
    return [CUDAPlace(i) for i in device_ids]


@public
def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """`device_count` (default 1) places of memory for a GPU."""
    return [CUDAPinnedPlace() for _ in range(device_count or 1)]


@public
@contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Accepted because fluid has it: a program runs on one device, that of the executor, operators inside too.

    Parameters
    ----------
    device : {'cpu', 'gpu', ''}, optional

    Raises
    ------
    PlaceError
        If `device` is none of these.
    """
    if device not in ("cpu", "gpu", "", None):
        raise PlaceError(f"device_guard: device must be 'cpu' or 'gpu', got {device!r:.60}")
    yield
