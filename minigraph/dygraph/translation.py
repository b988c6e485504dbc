"""Functions of the imperative mode that become programs: ``declarative`` and ``ProgramTranslator``.

A decorated function computes at once, so that its results are those of Python. The program of a function is what one
call computes, traced; a function that lets a value decide has no one program, and is refused.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np

from minigraph.dygraph.layer import Layer
from minigraph.dygraph.tracing import TracedLayer, refusing_decisions
from minigraph.eager.guard import imperative, to_variable
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.initializer import NumpyArrayInitializer
from minigraph.ir import Program, Variable
from minigraph.ir.default_programs import is_imperative
from minigraph.support.public import public

__all__ = ["ProgramTranslator", "declarative", "dygraph_to_static_func"]

F = TypeVar("F", bound=Callable[..., Any])


@public
def declarative(dygraph_func: F) -> F:
    """`dygraph_func`, computed at once on tensors or arrays, whose program `ProgramTranslator` can give and save.

    Where a program is built, it is called on variables, and appends its operators.

    Examples
    --------
    >>> from minigraph import dygraph
    >>> @dygraph.declarative
    ... def double(x):
    ...     return x * 2.0
    >>> with dygraph.guard():
    ...     double(np.ones(2, "float32")).numpy()
    array([2., 2.], dtype=float32)
    """
    if not callable(dygraph_func):
        raise WrongTypeError(f"declarative decorates a function, got {dygraph_func!r:.60}")

    @wraps(dygraph_func)
    def called(*args: Any, **kwargs: Any) -> Any:
        translator = ProgramTranslator()
        if not (is_imperative() and translator.is_enabled):
            return dygraph_func(*args, **kwargs)
        given = [to_variable(each) if isinstance(each, np.ndarray) else each for each in args]
        translator._cache.note(dygraph_func, given, kwargs)
        return dygraph_func(*given, **kwargs)

    return called  # type: ignore[return-value]


dygraph_to_static_func = declarative


class _Function(Layer):
    """A function as a layer, to be traced."""

    def __init__(self, function: Callable[..., Any], rest: Sequence[Any], options: dict[str, Any]) -> None:
        super().__init__()
        self._call: Callable[..., Any] = lambda *tensors: function(*_merged(rest, tensors), **options)

    def forward(self, *tensors: Any) -> Any:
        return self._call(*tensors)


def _merged(given: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """The arguments, with tensors in place of variables."""
    rest = iter(tensors)
    return [next(rest) if isinstance(each, Variable) else each for each in given]


class ConcreteProgram(NamedTuple):
    """The program of one call, as `ProgramTranslator.get_program` gives it."""

    main_program: Program
    startup_program: Program
    inputs: list[Variable]
    outputs: list[Variable]


class ProgramCache:
    """The calls of decorated functions that a `ProgramTranslator` has seen; it keeps the last one."""

    def __init__(self) -> None:
        self._last: tuple[Callable[..., Any], list[Any], dict[str, Any]] | None = None

    def last_call(self) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        """Function and arguments of the call that came last.

        Raises
        ------
        ProgramError
            If there was none.
        """
        if self._last is None:
            raise ProgramError("no declarative function was called yet", hint="Call it once before.")
        return self._last

    def note(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
        """Keep a call."""
        self._last = function, args, kwargs

    def last(self) -> tuple[Callable[..., Any], tuple[ConcreteProgram, Callable[..., Any]]]:
        """The function that was called last, its program, and the function again, which computes at once here."""
        function, args, kwargs = self.last_call()
        return function, (ConcreteProgram(*ProgramTranslator().get_program(function, *args, **kwargs)), function)


@public
class ProgramTranslator:
    """The one translator of functions of the imperative mode.

    Examples
    --------
    >>> from minigraph import dygraph
    >>> def double(x):
    ...     return x * 2.0
    >>> with dygraph.guard():
    ...     main, startup, inputs, outputs = ProgramTranslator().get_program(double, np.ones(2, "float32"))
    >>> [op.type for op in main.global_block().ops]
    ['scale']
    """

    _instance: ProgramTranslator | None = None
    is_enabled: bool
    _cache: ProgramCache

    def __new__(cls) -> ProgramTranslator:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls.reset()
        return cls._instance

    @classmethod
    def get_instance(cls) -> ProgramTranslator:
        """The translator."""
        return cls()

    @classmethod
    def reset(cls) -> None:
        """Forget all calls, and let `declarative` have an effect."""
        if cls._instance is not None:
            cls._instance.is_enabled = True
            cls._instance._cache = ProgramCache()

    @public
    def enable(self, enable_declarative: bool) -> None:
        """Say whether `declarative` has an effect."""
        self.is_enabled = enable_declarative

    def get_output(self, dygraph_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Result of the function for tensors or arrays."""
        return declarative(_undecorated(dygraph_func))(*args, **kwargs)

    def get_func(self, dygraph_func: F) -> F:
        """The function, to be called on the variables of a program."""
        return _undecorated(dygraph_func)  # type: ignore[return-value]

    def get_program(
        self, dygraph_func: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> tuple[Program, Program, list[Variable], list[Variable]]:
        """The program of a call on tensors or arrays, one that gives parameters their values, inputs and outputs.

        Raises
        ------
        ProgramError
            If a value of a tensor decides what the function does.
        """
        with imperative():
            given = [to_variable(each) if isinstance(each, np.ndarray) else each for each in args]
            traced = _traced(_undecorated(dygraph_func), given, kwargs)
        startup, block = Program(), traced.program.global_block()
        for name, tensor in traced.parameters.items():
            made = startup.global_block().create_var(
                name=name, shape=tensor.shape, dtype=tensor.dtype, persistable=True,
                initializer=NumpyArrayInitializer(tensor.numpy()),
            )  # fmt: skip
            assert made.persistable
        variables = ([block.var(name) for name in names] for names in (traced.feed_names, traced.fetch_names))
        inputs, outputs = variables
        return traced.program, startup, inputs, outputs

    def get_program_cache(self) -> ProgramCache:
        """The calls that the translator has seen."""
        return self._cache

    def get_code(self, dygraph_func: Callable[..., Any]) -> str:
        """The source of the function, which needs no translation here."""
        return textwrap.dedent(inspect.getsource(_undecorated(dygraph_func)))

    @public
    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> None:
        """Write the program of the decorated function that was called last; see `TracedLayer.save_inference_model`.

        Raises
        ------
        ProgramError
            If none was called, or if a value of a tensor decides what it does.
        """
        _traced(*self._cache.last_call()).save_inference_model(dirname, feed, fetch)


def _undecorated(function: Callable[..., Any]) -> Callable[..., Any]:
    owner = getattr(function, "__self__", None)
    if isinstance(function, Layer):
        function, owner = type(function).forward, function
    plain = inspect.unwrap(getattr(function, "__func__", function))
    return plain if owner is None else plain.__get__(owner)


def _traced(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> TracedLayer:
    tensors = [each for each in args if isinstance(each, Variable)]
    with refusing_decisions():
        return TracedLayer.trace(_Function(function, args, kwargs), tensors)[1]
