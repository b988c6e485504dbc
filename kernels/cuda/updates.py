"""Merged updates as one launch: a kernel for each rule of `minigraph.kernels.update_rules`, with its roundings.

Vectors and lists of arrays are the same to it: a row of its table is a parameter with the addresses of all that belongs
to it. Flags that skip the update and the factor of a clip are read on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from minigraph.kernels.cuda.launching import counter, launcher, shared_source, table_of
from minigraph.kernels.merged_updates import Merged
from minigraph.kernels.registry import kernel
from minigraph.kernels.update_kernels import buffers_for, one_or_all
from minigraph.kernels.update_rules import RULES, SINGLE, TENSORS, Element

_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}

_KERNEL = """
typedef {T} T;

__device__ inline T absolute(T x) {{ return fabs(x); }}
__device__ inline T sign(T x) {{ return x != x ? x : T(x > T(0)) - T(x < T(0)); }}
__device__ inline T where(bool condition, T x, T y) {{ return condition ? x : y; }}
__device__ inline T maximum(T x, T y) {{ return x >= y || x != x ? x : y; }}

extern "C" __global__ void update(const long long* table, long long rows, long long pieces, const T* rates,
                                  const double* factor, const long long* flags, long long flag_count,
                                  unsigned* blocks_done{parameters}) {{
    bool is_skipped = false;
    for (long long i = 0; i < flag_count; i++) is_skipped = is_skipped || *(const bool*)flags[3 * i + 2];
    const Shrinking<T> shrink(factor, {least});
    {numbers}
    {rate}
    for (long long piece = blockIdx.x; piece < pieces; piece += gridDim.x) {{
        const long long* row = row_of(table, rows, {width}, piece);
        const long long start = (piece - row[0]) * PIECE;
        const long long end = start + PIECE < row[1] ? start + PIECE : row[1];
        {singles}
        {common}
        for (long long i = start + threadIdx.x; i < end; i += BLOCK) {{
            {reads}
            grad = shrink(grad);
            if (!is_skipped) {{
                {own}
            }}
            {writes}
        }}
    }}
    {powers}
}}
"""

_LAST_BLOCK = """
    // The last block that is done multiplies the powers, which no other one reads any more.
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {{
        __threadfence();
        is_last = atomicAdd(blocks_done, 1u) == gridDim.x - 1;
    }}
    __syncthreads();
    if (is_last) {{
        for (long long i = threadIdx.x; i < rows; i += BLOCK) {{
            const long long* row = table + i * {width};
            {products}
        }}
        if (threadIdx.x == 0) *blocks_done = 0;
    }}
"""


@dataclass(frozen=True)
class Shape:
    """The lists that a merged update reads and writes, in the order of the table's columns."""

    type: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def column(self, name: str, is_output: bool = False) -> str:
        at = len(self.reads) + self.writes.index(name) if is_output else self.reads.index(name)
        return f"row[{2 + at}]"


@lru_cache(maxsize=256)
def text(shape: Shape, element: Element, type_name: str) -> str:
    """The source of an update for elements of ``float`` or ``double``."""
    width = 2 + len(shape.reads) + len(shape.writes)
    vectors = [name for name in shape.reads if name not in SINGLE]
    numbers = [f"n{i}" for i in range(len(element.numbers))]
    powers = [
        f"*(T*){shape.column(name, True)} = is_skipped ? *(const T*){shape.column(name)} : "
        f"*(const T*){shape.column(name)} * T({factor!r});"
        for name, factor in element.powers
        if name in shape.writes
    ]
    parts = {
        "numbers": [f"const T {n} = T(given_{n});" for n in numbers],
        "rate": ["const T rate = rates[0];"] if "rate" in element.singles else [],
        "singles": [f"const T {name} = *(const T*){shape.column(name)};" for name in shape.reads if name in SINGLE],
        "common": [f"const T {name} = {value};" for name, value in element.common],
        "reads": [f"T {name} = ((const T*){shape.column(name)})[i];" for name in vectors],
        "own": [f"{'' if name in vectors else 'const T '}{name} = {value};" for name, value in element.own],
        "writes": [f"((T*){shape.column(name, True)})[i] = {name};" for name in shape.writes if name not in SINGLE],
    }
    return shared_source() + _KERNEL.format(
        T=type_name,
        least="1e-30" if type_name == "float" else "1e-290",
        width=width,
        parameters="".join(f", double given_{n}" for n in numbers),
        powers=_LAST_BLOCK.format(width=width, products="\n            ".join(powers)) if powers else "",
        **{name: "\n    ".join(lines) for name, lines in parts.items()},
    )


class MergedOnGPU(Merged):
    """A kernel for many parameters that is one launch."""

    def __call__(self, xp, *inputs, sizes, out=None, **attrs):
        plan = _Plan.of(self, inputs, sizes, out, attrs)
        return super().__call__(xp, *inputs, sizes=sizes, out=out, **attrs) if plan is None else plan.run(xp)


@dataclass
class _Plan:
    """One call: what is read and written, by name, each a list of arrays or of one vector."""

    shape: Shape
    element: Element
    lists: dict[str, list[Any]]
    rate: Any
    skip: list[Any]
    factor: Any
    targets: list[Any]
    sizes: Sequence[int]

    @classmethod
    def of(cls, update: MergedOnGPU, inputs, sizes, out, attrs) -> _Plan | None:
        """None for what the kernel does not take: other types, tensors in the place of attributes, gaps in memory."""
        *given, factor = inputs
        named = dict(zip(update.names, given, strict=True))
        if factor is not None:
            factor = factor.astype(np.float64, copy=False)
        # The attributes are numbers in the text of the kernel; reading a tensor for them would wait for the device.
        if any(named.get(name) is not None for name in TENSORS.values()):
            return None
        rate, skip = named.pop("rate", None), named.pop("skip", None) or []
        lists = {name: x for name, x in named.items() if x}
        targets = list(buffers_for(out, len(update.outputs)))
        # The kernel reads raw addresses, so that every array must be contiguous and of one type.
        everything = [x for each in (*lists.values(), *(t for t in targets if t)) for x in each]
        dtype = lists["param"][0].dtype if lists.get("param") else None
        takes = dtype in _NAMES and all([x.dtype == dtype and x.flags.c_contiguous for x in everything])
        if not takes or (rate is not None and rate.dtype != dtype) or any(n not in lists for n in update.outputs):
            return None
        shape, element = Shape(update._type, tuple(lists), tuple(update.outputs)), RULES[update._type].element(attrs)
        if not element.is_exact:
            return None
        return cls(shape, element, lists, rate, skip, factor, targets, sizes)

    def run(self, xp) -> Any:
        outs = [
            [xp.empty(x.shape, x.dtype) for x in self.lists[name]] if target is None else target
            for name, target in zip(self.shape.writes, self.targets, strict=True)
        ]
        columns = [self._addresses(name, self.lists[name]) for name in self.shape.reads]
        columns += [self._addresses(name, made) for name, made in zip(self.shape.writes, outs, strict=True)]
        table = table_of(xp, list(zip(self.sizes, *columns, strict=True)))
        flags = table_of(xp, [(0, flag.data.ptr) for flag in self.skip]).array if self.skip else 0
        dtype = self.lists["param"][0].dtype
        launch = launcher(xp, text(self.shape, self.element, _NAMES[dtype]))
        launch(
            "update", max(table.blocks, 1), table.array, table.rows, table.pieces,
            0 if self.rate is None else self.rate, 0 if self.factor is None else self.factor,
            flags, len(self.skip), counter(xp),
            *self.element.numbers,
        )  # fmt: skip
        return one_or_all(outs)

    def _addresses(self, name: str, arrays: Sequence[Any]) -> list[int]:
        """Addresses of `name` for each parameter, in arrays of their own or in one vector."""
        if len(arrays) == len(self.sizes):
            return [x.data.ptr for x in arrays]
        (vector,) = arrays
        sizes = [1] * len(self.sizes) if name in SINGLE else self.sizes
        return [vector.data.ptr + vector.itemsize * before for before in accumulate(sizes[:-1], initial=0)]


for _type, _rule in RULES.items():
    if "skip" in _rule.inputs:
        kernel(f"merged_{_type}", place="cuda", joins="all")(MergedOnGPU(_type))
