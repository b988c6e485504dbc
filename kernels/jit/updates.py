"""Update rules in one loop each, with the bits of `minigraph.kernels.optimizer` and `adaptive_optimizer`.

There is one exception: means and velocities that would be subnormal become 0.

A rule is told by names: which of the kernel's arrays the loop writes over, in the loop's order, and which have one
element. `shrink`, a keyword of the functions offered, is a number that the gradient is multiplied with first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.kernels.clip import Times
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import elementwise_loop, or_kernel, vectors
from minigraph.kernels.jit.threads import over_pieces
from minigraph.kernels.merged_updates import Merged
from minigraph.kernels.optimizer import is_skipped, kept, length, ratio_of_lengths
from minigraph.kernels.registry import find_kernel, specialize

_LOOPS = Loops("updates")
_LEAST_EPSILON = 1e-15


@dataclass(frozen=True)
class _Rule:
    """How a loop fits a kernel.

    Attributes
    ----------
    loop : callable
        Name of the loop, of the attributes.
    state : str
        Names of the arrays that the loop takes beside the gradient and writes over, the parameter first.
    results : str
        Names of what the kernel returns; of ``beta1_pow`` and ``beta2_pow`` the next power.
    single : str
        Names of the arrays of one element that the loop takes.
    numbers : callable
        The numbers that the loop takes, of the attributes.
    fades : bool
        Whether the loop takes a number below which state becomes 0, last.
    """

    loop: Callable[[dict[str, Any]], str]
    state: str
    results: str
    single: str
    numbers: Callable[[dict[str, Any]], Sequence[float]]
    fades: bool = True


def _named(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda attrs: name


def _tiny(dtype: Any, attrs: dict[str, Any]) -> Any:
    """Below what fading state becomes 0; 0 for an `epsilon` so small that a step might notice."""
    return np.finfo(dtype).tiny if attrs.get("epsilon", 1.0) >= _LEAST_EPSILON else dtype.type(0)


def _adam_numbers(a: dict[str, Any]) -> tuple[float, ...]:
    return a["beta1"], 1 - a["beta1"], a["beta2"], 1 - a["beta2"], a["epsilon"]


_ADAM = "param moment1 moment2", "param moment1 moment2 beta1_pow beta2_pow", "rate beta1_pow beta2_pow"
_RULES = {
    "sgd": _Rule(_named("sgd"), "param", "param", "rate", lambda a: (), fades=False),
    "momentum": _Rule(
        lambda a: "nesterov" if a["use_nesterov"] else "momentum",
        "param velocity", "param velocity", "rate", lambda a: (a["mu"],),
    ),
    "adam": _Rule(_named("adam"), *_ADAM, _adam_numbers),
    # Without decay the parameter is multiplied by 1.
    "adamw": _Rule(
        _named("adamw"), *_ADAM,
        lambda a: (*_adam_numbers(a), a["coeff"] if a["with_decay"] else 0.0, a["lr_ratio"]),
    ),
    "adamax": _Rule(
        _named("adamax"), "param moment inf_norm", "param moment inf_norm beta1_pow", "rate beta1_pow",
        lambda a: (a["beta1"], 1 - a["beta1"], a["beta2"], a["epsilon"]), fades=False,
    ),
    "adagrad": _Rule(
        _named("adagrad"), "param moment", "param moment", "rate", lambda a: (a["epsilon"],), fades=False
    ),
    "decayed_adagrad": _Rule(
        _named("decayed_adagrad"), "param moment", "param moment", "rate",
        lambda a: (a["decay"], 1 - a["decay"], a["epsilon"]), fades=False,
    ),
    "adadelta": _Rule(
        _named("adadelta"), "param squared_grad squared_update", "param squared_grad squared_update", "",
        lambda a: (a["rho"], 1 - a["rho"], a["epsilon"]), fades=False,
    ),
    "rmsprop": _Rule(
        lambda a: "centered_rmsprop" if a["centered"] else "rmsprop",
        "param mean_square mean_grad moment", "param moment mean_square mean_grad", "rate",
        lambda a: (a["decay"], 1 - a["decay"], a["epsilon"], a["momentum"]),
    ),
}  # fmt: skip


def update_loop(type: str, arrays: Sequence[Any], attrs: dict[str, Any]) -> Callable[..., Any] | None:
    """A function like the kernel of an update rule, but with `shrink`, for arrays of these types, or None.

    It raises TypeError, and has changed nothing, for arrays whose elements do not lie side by side.
    """
    rule = _RULES[type]
    names = parameter_names(type)
    given = dict(zip(names, arrays, strict=True))
    state = rule.state.split()
    if type == "rmsprop" and not attrs["centered"]:
        state.remove("mean_grad")  # which stays as it is
    results, single = rule.results.split(), rule.single.split()
    if any(given.get(name) is not None for name in ("beta1_tensor", "beta2_tensor")) or given["grad"] is None:
        return None
    if any(given[name] is None for name in results):
        return None
    dtype = given["param"].dtype
    numbers = [dtype.type(value) for value in rule.numbers(attrs)]
    numbers += [_tiny(dtype, attrs)] if rule.fades else []
    types = [given[state[0]], given["grad"], *(given[name] for name in state[1:])]
    loop = elementwise_loop(_LOOPS, rule.loop(attrs), types, [given[name] for name in single], 1 + len(numbers))
    if loop is None:
        return None
    at = {name: i for i, name in enumerate(names)}
    whole = [at[name] for name in results if not name.endswith("_pow")]
    powers = [(at[name], given["param"].dtype.type(attrs[name[:5]])) for name in results if name.endswith("_pow")]
    grad, singles, one = at["grad"], [at[name] for name in single], given["param"].dtype.type(1)
    places = [whole.index(at[name]) for name in state]

    def update(*arrays: Any, shrink: Any = one, out: Any = None) -> Any:
        buffers = [None] * len(results) if out is None else [out] if len(results) == 1 else [*out, None][: len(results)]
        if is_skipped(arrays[-1]):
            new = list(kept(np, [arrays[i] for i in [*whole, *(i for i, _ in powers)]], buffers))
        else:
            new = [_owned(arrays[i], buffer) for i, buffer in zip(whole, buffers, strict=False)]
            param, *others = [new[i] for i in places]
            over_pieces(loop, vectors(param, arrays[grad], *others), [*[arrays[i] for i in singles], shrink, *numbers])
            for (i, beta), buffer in zip(powers, buffers[len(whole) :], strict=True):
                new.append(np.multiply(arrays[i], beta, out=buffer))
        return tuple(new) if len(new) > 1 else new[0]

    return update


def parameter_names(type: str) -> list[str]:
    """What the kernel of an update rule calls its arrays, in order."""
    kernel = find_kernel(type, "cpu")
    assert kernel is not None
    parameters = list(inspect.signature(kernel.function).parameters.values())
    return [p.name for p in parameters[1:] if p.kind is not p.KEYWORD_ONLY]


def _owned(old: Any, buffer: Any) -> Any:
    """An array with the values of `old` that may be written over: `buffer`, which may be `old` itself, or a new one."""
    if buffer is None:
        return old.copy()
    if buffer is not old:
        np.copyto(buffer, old)
    return buffer


def _offer(type: str) -> Callable[..., Any]:
    def offer(xp, *arrays, **attrs):
        update = update_loop(type, arrays, attrs)
        return None if update is None else or_kernel(update, type, attrs)

    return offer


for _type in _RULES:
    specialize(_type, jit=True)(_offer(_type))


class _Merged(Merged):
    """A merged update with a loop for one parameter, or for the vector of them all."""

    def __init__(self, type: str, loop: Callable[..., Any]) -> None:
        super().__init__(type)
        self._loop = loop

    def update_one(self, xp, arrays, outs, shrink, attrs) -> list[Any]:
        words = {"shrink": shrink.number} if isinstance(shrink, Times) else {}
        if shrink is None or words:
            try:
                out = outs[0] if len(outs) == 1 else None if outs[0] is None else tuple(outs)
                found = self._loop(*arrays, **words, out=out)
                return list(found) if len(outs) > 1 else [found]
            except TypeError:  # arrays that no loop was compiled for
                pass
        return super().update_one(xp, arrays, outs, shrink, attrs)


def _offer_merged(type: str) -> Callable[..., Any]:
    single = set(_RULES[type].single.split())

    def offer(xp, *lists, sizes, **attrs):
        *arrays, _ = lists
        names = parameter_names(type)
        types = [
            x if x is None or not isinstance(x, list) or not x or name == "skip"
            else x[0]._replace(shape=(1,) if name in single else (sum(sizes),))
            for name, x in zip(names, arrays, strict=True)
        ]  # fmt: skip
        loop = update_loop(type, [None if x == [] else x for x in types], attrs)
        if loop is None:
            return None
        merged = _Merged(type, loop)
        return lambda *inputs, out=None: merged(np, *inputs, sizes=sizes, out=out, **attrs)

    return offer


for _type in _RULES:
    specialize(f"merged_{_type}", jit=True)(_offer_merged(_type))


@specialize("lamb", jit=True)
def lamb(
    xp, param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, skip, *, weight_decay, beta1, beta2, epsilon
):  # fmt: skip
    loop = elementwise_loop(_LOOPS, "lamb_step", [param, grad, moment1, moment2, param], [], 8)
    if loop is None or rate.shape != (1,):
        return None
    attrs = {"weight_decay": weight_decay, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    numbers = [param.dtype.type(value) for value in (1, *_adam_numbers(attrs), weight_decay)]
    numbers.append(_tiny(param.dtype, attrs))

    def update(param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, skip, out=None):
        buffers = out or (None,) * 3
        if is_skipped(skip):
            return kept(np, (param, moment1, moment2), out)
        param, moment1, moment2 = map(_owned, (param, moment1, moment2), buffers)
        step = np.empty(param.shape, param.dtype)
        over_pieces(loop, vectors(param, grad, moment1, moment2, step), numbers)
        trust = ratio_of_lengths(np, length(np, param), length(np, step))
        np.multiply(step, (rate * trust).astype(param.dtype), out=step)
        return np.subtract(param, step, out=param), moment1, moment2

    return or_kernel(update, "lamb", attrs)
