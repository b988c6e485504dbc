"""Rules for the gradient of what another rule is about: patterns and replacements are differentiated."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import Any

from minigraph import unique_name
from minigraph.errors import RuleError
from minigraph.ir import Operator, Variable
from minigraph.opdef import EMPTY
from minigraph.opdef.gradient_context import GradContext, GradName, OpSpec
from minigraph.opdef.gradient_rules import FusedGrad
from minigraph.passes.rules.fragments import Fragment, Node, Placeholder, current_fragment
from minigraph.passes.rules.pattern import parameters_of
from minigraph.passes.rules.rule import Rule
from minigraph.support.public import public
from minigraph.support.signatures import parameter_names


@public
def gradient_of(rule: Rule, *wanted: str, with_results: bool = False) -> Rule:
    """Make the rule that replaces the gradient of a pattern by that of its replacement, where the conditions hold.

    Parameters
    ----------
    rule : Rule
        A rule that has its conditions, and its replacement or an edit. Fragments return one value, whose gradient is
        the placeholder `d`.
    *wanted : str
        Placeholders whose gradients are computed.
    with_results : bool
        Whether the operators of the pattern are replaced together with their gradients. By default those that the
        gradients read stay, and the gradients must read each placeholder.

    Raises
    ------
    RuleError
        If the rule has no replacement, or no such placeholders.

    Notes
    -----
    `d` has the type of the result, as in every backward pass. As there, no gradient flows through a value that the
    rule gives `stop_gradient`.

    Examples
    --------
    >>> from minigraph import Program, rewrite
    >>> @rewrite.rule
    ... def mean(x):
    ...     return rewrite.op("reduce_mean", X=x, reduce_all=True)
    >>> @mean.to
    ... def _(x):
    ...     return rewrite.op("mean", X=x)
    >>> program = Program.parse('''
    ... block 0
    ...   data x: float32[2]
    ...   data d: float32[1]
    ...   x@GRAD: float32[2] = reduce_mean_grad(X=x, Out@GRAD=d) {reduce_all=True}
    ... ''')
    >>> print(rewrite.gradient_of(mean, "x")(program))
    block 0
      data x: float32[2]
      data d: float32[1]
      x@GRAD: float32[2] = mean_grad(X=x, Out@GRAD=d)
    """
    if rule._replacement is None and rule._edit is None:
        raise RuleError(
            f"{rule.name} has no replacement", site=rule.site, hint=f"Decorate one with @{rule.name}.to first."
        )
    known = [name for name, each in parameters_of(rule.function).items() if isinstance(each, Placeholder)]
    for name in wanted or ("",):
        if name not in known:
            raise RuleError(
                f"gradient_of({rule.name}) names no placeholder" + (f": {name!r:.40}" if name else ""), site=rule.site,
                hint=f"Name those whose gradients are computed; {rule.name} has {', '.join(known) or 'none'}.",
            )  # fmt: skip
    made = Rule(_differentiated(rule.function, wanted, with_results), rule.changes_rounding)
    made.differentiates, made.has_gradients = rule, with_results
    made._conditions = rule._conditions
    made._edit = rule._edit
    if rule._replacement is not None:
        made.to(_differentiated(rule._replacement, wanted, with_results))
    return made


@public
def with_gradients(rule: Rule, *wanted: str, with_results: bool = False) -> Iterator[Rule]:
    """Yield a rule and those of its gradients by all `wanted` placeholders, and by fewer of them; see `gradient_of`."""
    yield rule
    for count in range(len(wanted), 0, -1):
        for each in combinations(wanted, count):
            yield gradient_of(rule, *each, with_results=with_results)


def _differentiated(function: Callable[..., Any], wanted: Sequence[str], with_results: bool) -> Callable[..., Any]:
    """Return the fragment that computes the gradient of what `function` returns."""
    own = list(chain(*parameter_names(function)))

    @functools.wraps(function)
    def gradient(d: Variable, **given: Any) -> tuple[Variable, ...]:
        block, apart = current_fragment(), _Apart()
        given = {name: apart.of(each) for name, each in given.items()}
        result = function(**{name: given[name] for name in own})
        forward = len(block.nodes)
        found = _differentiate(block, result, d, [given[name] for name in wanted])
        apart.join()
        if with_results:
            return (apart.meant.get(result.name, result), *found)
        block.keep([var.name for var in found], shared=forward)
        return tuple(found)

    made: Any = gradient
    names = dict.fromkeys([*own, *wanted, "d"])
    made.__signature__ = inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names])
    made.__kwdefaults__ = dict(zip(reversed(own), reversed(function.__defaults__ or ()), strict=False))
    made.__name__ = f"{function.__name__}_grad"
    return gradient


class _Apart:
    """Rename a variable that several placeholders stand for, so that each placeholder gets only its own gradient."""

    def __init__(self) -> None:
        self._block = current_fragment()
        self._seen: set[str] = set()
        self.meant: dict[str, Variable] = {}
        """The variables that were given, by the names of the others."""

    def of(self, given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple([self.of(each) for each in given])
        if not isinstance(given, Variable) or given.name not in self._seen:
            self._seen.update([given.name] if isinstance(given, Variable) else ())
            return given
        other = Variable(self._block, unique_name.generate(given.name), given.tensor_type)
        self._block.vars[other.name] = other
        self.meant[other.name] = given
        return other

    def join(self) -> None:
        """Let the recorded operators read what was given."""
        if not self.meant:
            return
        names = {name: var.name for name, var in self.meant.items()}
        for node in self._block.nodes:
            node.reads = {slot: tuple([names.get(each, each) for each in given]) for slot, given in node.reads.items()}
            node.inputs = {
                slot: tuple([names.get(each, each) if isinstance(each, str) else each for each in given])
                for slot, given in node.inputs.items()
            }
        for name in names:
            del self._block.vars[name]


def _differentiate(block: Fragment, result: Variable, d: Variable, wanted: Sequence[Variable]) -> list[Variable]:
    """Record the operators from the gradient `d` of `result` to those of `wanted`, which are returned."""
    path = {var.name for var in wanted}
    for node in block.nodes:
        if not path.isdisjoint(chain(*node.reads.values())):
            path.update(name for name in chain(*node.outputs.values()) if not block.vars[name].stop_gradient)
    parts = {result.name: [d.name]}

    def total(name: str) -> str:
        if len(parts[name]) > 1:
            made = block.temporary(unique_name.generate("sum"))
            block.record(("sum",), {"X": parts[name]}, {"Out": made}, {})
            block.nodes[-1].commutes = True
            parts[name] = [made.name]
        return parts[name][0]

    def made(name: str, type: str) -> str:
        if not isinstance(name, GradName):
            return name
        part = block.temporary(unique_name.generate(type)).name
        parts.setdefault(name.variable, []).append(part)
        return part

    for node in reversed(block.nodes[:]):
        if not any(name in parts and name in path for name in chain(*node.outputs.values())):
            continue
        for type, reads, writes, attrs in _specs(node, path):
            inputs = {
                slot: [total(name.variable) if isinstance(name, GradName) else name for name in names]
                for slot, names in reads.items()
            }
            outputs = {slot: [made(name, type) for name in names] for slot, names in writes.items()}
            outputs = {slot: names for slot, names in outputs.items() if set(names) != {EMPTY}}
            block.record((type,), inputs, outputs, attrs)
    return [block.vars[total(var.name)] for var in wanted]


def _specs(node: Node, path: set[str]) -> Iterable[OpSpec]:
    """Return the operators of the gradient of one."""
    op = Operator(node.definition, node.reads, node.outputs, {**node.attrs, **node.captured})
    ctx, rule = GradContext(op, lambda name: name not in path), node.definition.grad
    if not isinstance(rule, FusedGrad):
        if not callable(rule):
            raise RuleError(f"{op.type} has no gradient that a rule can be made of", site=node.site)
        found: Iterable[OpSpec] = rule(ctx)
        return found
    inputs = {slot: ctx.input(slot) if is_input else ctx.output(slot) for slot, is_input in rule.values}
    inputs |= {d_slot: ctx.d_output(slot) for slot, d_slot in rule.flowing}
    return [OpSpec(rule.type, inputs, {d_slot: ctx.d_input(slot) for slot, d_slot, _ in rule.results}, op.attrs)]
