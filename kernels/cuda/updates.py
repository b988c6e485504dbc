"""Merged updates as one launch: rules for one element, of which a kernel each is generated.

A rule reads like the kernel for one parameter in `minigraph.kernels.optimizer` or
`minigraph.kernels.adaptive_optimizer` and rounds as it does. Vectors and lists of arrays are the same to it: a row of
its table is a parameter with the addresses of all that belongs to it. Flags that skip the update and the factor of a
clip are read on the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from minigraph.kernels.cuda.launching import counter, launcher, shared_source, table_of
from minigraph.kernels.merged_updates import OUTPUTS, Merged
from minigraph.kernels.registry import kernel

_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


@dataclass(frozen=True)
class Rule:
    """One update in C++.

    Attributes
    ----------
    body : str
        What becomes of the variables of one element, which are called as the kernel's inputs.
    setup : str
        What all elements of a parameter have in common.
    attrs : tuple of str
        Attributes of the operator that the text names, as numbers in float64.
    """

    body: str
    setup: str = ""
    attrs: tuple[str, ...] = ()


_MOMENTS = """
moment1 = moment1 * T(beta1) + grad * T(1 - beta1);
moment2 = moment2 * T(beta2) + grad * grad * T(1 - beta2);
"""
_STEPPED = "param = param - {0} * rate;"
_BLEND = "{0} = {0} * T({2}) + {1} * T(1 - {2});"

_ADAM = Rule(
    _MOMENTS + "param = param - moment1 / (sqrt(moment2) + T(epsilon)) * step;",
    "const T step = rate * sqrt(T(1) - beta2_pow) / (T(1) - beta1_pow);",
    ("beta1", "beta2", "epsilon"),
)


def _momentum(attrs: Mapping[str, Any]) -> Rule:
    step = "(velocity * T(mu) + grad)" if attrs["use_nesterov"] else "velocity"
    return Rule(f"velocity = velocity * T(mu) + grad; {_STEPPED.format(step)}", attrs=("mu",))


def _adamw(attrs: Mapping[str, Any]) -> Rule:
    decay = "param = param * (T(1) - own_rate * T(coeff));" if attrs["with_decay"] else ""
    return Rule(
        f"{_MOMENTS} {decay} param = param - moment1 / (sqrt(moment2) + small) * step;",
        """
        const T own_rate = rate * T(lr_ratio), root = sqrt(T(1) - beta2_pow);
        const T small = T(epsilon) * root, step = own_rate * root / (T(1) - beta1_pow);
        """,
        ("beta1", "beta2", "epsilon", "coeff", "lr_ratio"),
    )


def _rmsprop(attrs: Mapping[str, Any]) -> Rule:
    body = _BLEND.format("mean_square", "(grad * grad)", "decay")
    if attrs["centered"]:
        body += _BLEND.format("mean_grad", "grad", "decay")
        body += "T variance = mean_square - mean_grad * mean_grad; variance = variance < T(0) ? T(0) : variance;"
    else:
        body += "const T variance = mean_square;"
    body += "moment = moment * T(momentum) + grad / sqrt(variance + T(epsilon)) * rate; param = param - moment;"
    return Rule(body, attrs=("decay", "momentum", "epsilon"))


_RULES = {
    "sgd": Rule(_STEPPED.format("grad")),
    "adam": _ADAM,
    "adamax": Rule(
        _BLEND.format("moment", "grad", "beta1")
        + """
        inf_norm = inf_norm * T(beta2) + T(epsilon);
        const T size = fabs(grad);
        inf_norm = size >= inf_norm || size != size ? size : inf_norm;
        param = param - moment / inf_norm * step;
        """,
        "const T step = rate / (T(1) - beta1_pow);",
        ("beta1", "beta2", "epsilon"),
    ),
    "adagrad": Rule(
        f"moment = moment + grad * grad; {_STEPPED.format('(grad / (sqrt(moment) + T(epsilon)))')}", attrs=("epsilon",)
    ),
    "decayed_adagrad": Rule(
        _BLEND.format("moment", "(grad * grad)", "decay") + _STEPPED.format("(grad / (sqrt(moment) + T(epsilon)))"),
        attrs=("decay", "epsilon"),
    ),
    "adadelta": Rule(
        _BLEND.format("squared_grad", "(grad * grad)", "rho")
        + "T step = sqrt((squared_update + T(epsilon)) / (squared_grad + T(epsilon))) * grad;"
        + _BLEND.format("squared_update", "(step * step)", "rho")
        + "step = sqrt((squared_update + T(epsilon)) / (squared_grad + T(epsilon))) * grad; param = param - step;",
        attrs=("rho", "epsilon"),
    ),
}

_CHOICES = {"momentum": _momentum, "adamw": _adamw, "rmsprop": _rmsprop}
"""Updates whose attributes choose between rules."""


def rule(type: str, attrs: Mapping[str, Any]) -> Rule | None:
    """How an update computes an element; None if it has no rule here."""
    return _CHOICES[type](attrs) if type in _CHOICES else _RULES.get(type)


_POWERS = {"beta1_pow": "beta1", "beta2_pow": "beta2"}
"""Numbers of a parameter, and what each is multiplied with when all elements were updated."""

_KERNEL = """
typedef {T} T;

extern "C" __global__ void update(const long long* table, long long rows, long long pieces, const T* rates,
                                  const double* factor, const long long* flags, long long flag_count,
                                  unsigned* blocks_done{parameters}) {{
    bool is_skipped = false;
    for (long long i = 0; i < flag_count; i++) is_skipped = is_skipped || *(const bool*)flags[3 * i + 2];
    const Shrinking<T> shrink(factor, {least});
    {rate}
    for (long long piece = blockIdx.x; piece < pieces; piece += gridDim.x) {{
        const long long* row = row_of(table, rows, {width}, piece);
        const long long start = (piece - row[0]) * PIECE;
        const long long end = start + PIECE < row[1] ? start + PIECE : row[1];
        {numbers}
        {setup}
        for (long long i = start + threadIdx.x; i < end; i += BLOCK) {{
            {reads}
            grad = shrink(grad);
            if (!is_skipped) {{
                {body}
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
def text(shape: Shape, found: Rule, type_name: str, has_rate: bool = True) -> str:
    """The source of an update for elements of ``float`` or ``double``."""
    width = 2 + len(shape.reads) + len(shape.writes)
    vectors = [name for name in shape.reads if name not in _POWERS]
    changed = [name for name in shape.writes if name not in _POWERS]
    powers = [name for name in shape.reads if name in _POWERS]
    products = [
        f"*(T*){shape.column(name, True)} = is_skipped ? *(const T*){shape.column(name)} : "
        f"*(const T*){shape.column(name)} * T({_POWERS[name]});"
        for name in powers
        if name in shape.writes
    ]
    return shared_source() + _KERNEL.format(
        T=type_name,
        least="1e-30" if type_name == "float" else "1e-290",
        width=width,
        parameters="".join(f", double {name}" for name in found.attrs),
        rate="const T rate = rates[0];" if has_rate else "",
        numbers="\n        ".join(f"const T {name} = *(const T*){shape.column(name)};" for name in powers),
        setup=found.setup.strip(),
        reads="\n            ".join(f"T {name} = ((const T*){shape.column(name)})[i];" for name in vectors),
        body=found.body.strip(),
        writes="\n            ".join(f"((T*){shape.column(name, True)})[i] = {name};" for name in changed),
        powers=_LAST_BLOCK.format(width=width, products="\n            ".join(products)) if products else "",
    )


class MergedOnGPU(Merged):
    """A kernel for many parameters that is one launch."""

    def __init__(self, type: str) -> None:
        super().__init__(type)
        self.type = type

    def __call__(self, xp, *inputs, sizes, out=None, **attrs):
        plan = _Plan.of(self, inputs, sizes, out, attrs)
        return super().__call__(xp, *inputs, sizes=sizes, out=out, **attrs) if plan is None else plan.run(xp)


@dataclass
class _Plan:
    """One call: what is read and written, by name, each a list of arrays or of one vector."""

    shape: Shape
    rule: Rule
    lists: dict[str, list[Any]]
    rate: Any
    skip: list[Any]
    factor: Any
    targets: list[Any]
    sizes: Sequence[int]
    attrs: Mapping[str, Any]

    @classmethod
    def of(cls, update: MergedOnGPU, inputs, sizes, out, attrs) -> _Plan | None:
        """None for what the kernel does not take: other types, tensors in the place of attributes, gaps in memory."""
        found = rule(update.type, attrs)
        *given, factor = inputs
        named = dict(zip(update.names, given, strict=True))
        if factor is not None:
            factor = factor.astype(np.float64, copy=False)
        if found is None or named.get("beta1_tensor") is not None or named.get("beta2_tensor") is not None:
            return None
        rate, skip = named.pop("rate", None), named.pop("skip", None) or []
        lists = {name: x for name, x in named.items() if x}
        targets: list[Any] = [None] * len(update.outputs)
        if out is not None:
            found_out = [out] if len(targets) == 1 else out
            targets[: len(found_out)] = found_out
        everything = [x for each in (*lists.values(), *(t for t in targets if t)) for x in each]
        dtype = lists["param"][0].dtype if lists.get("param") else None
        takes = dtype in _NAMES and all([x.dtype == dtype and x.flags.c_contiguous for x in everything])
        if not takes or (rate is not None and rate.dtype != dtype) or any(n not in lists for n in update.outputs):
            return None
        shape = Shape(update.type, tuple(lists), tuple(update.outputs))
        return cls(shape, found, lists, rate, skip, factor, targets, sizes, attrs)

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
        launch = launcher(xp, text(self.shape, self.rule, _NAMES[dtype], self.rate is not None))
        launch(
            "update", max(table.blocks, 1), table.array, table.rows, table.pieces,
            0 if self.rate is None else self.rate, 0 if self.factor is None else self.factor,
            flags, len(self.skip), counter(xp),
            *(float(self.attrs[name]) for name in self.rule.attrs),
        )  # fmt: skip
        return tuple(outs) if len(outs) > 1 else outs[0]

    def _addresses(self, name: str, arrays: Sequence[Any]) -> list[int]:
        """Where each parameter has what is called `name`, be it in an array of its own or in one vector."""
        if len(arrays) == len(self.sizes):
            return [x.data.ptr for x in arrays]
        (vector,) = arrays
        sizes = [1] * len(self.sizes) if name in _POWERS else self.sizes
        return [vector.data.ptr + vector.itemsize * before for before in accumulate(sizes[:-1], initial=0)]


TYPES = frozenset({*_RULES, *_CHOICES})
"""Updates that have rules."""

for _type in OUTPUTS:
    if _type in TYPES:
        kernel(f"merged_{_type}", place="cuda", joins="all")(MergedOnGPU(_type))
