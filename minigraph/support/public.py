"""Public functions: a call that fails leaves nothing behind, and ends in an error of `minigraph.errors`.

Each public function or class of the project is decorated with `public` where it is defined. If a user's call fails with
a built-in error from inside the library, such as a TypeError, an error of `minigraph.errors` replaces it. The new error
derives from the same built-in type and names the arguments that do not fit their annotations. Errors of a user's own
function, which the library has called, stay as they are.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from minigraph.errors import (
    EOFException,
    MinigraphError,
    NotFoundError,
    ProgramError,
    SubscriptError,
    UnknownNameError,
    VerifyError,
    WrongTypeError,
    caller_site,
    is_ours,
    suggest,
)
from minigraph.support import fluid_paths
from minigraph.support.annotations import advice, misfits, shown
from minigraph.support.fluid_absent import ABSENT
from minigraph.support.signatures import signature_of
from minigraph.support.undo import CURRENT, JOURNAL, undo

F = TypeVar("F", bound=Callable[..., Any])

_BUILT_IN = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError, RecursionError)
_OWN: dict[type[Exception], type[MinigraphError]] = {
    TypeError: WrongTypeError,
    AttributeError: WrongTypeError,
    KeyError: NotFoundError,
    IndexError: SubscriptError,
}


def public(thing: F) -> F:
    """Make a function, or the methods of a class that take arguments, all or nothing, with errors about a user's call.

    Some arguments are checked before the call: those of constructors, generators, and functions that make or take a
    reader, because these use their arguments only later; and switches and names, because Python would accept any value.
    Functions that run for each operator, parameter or step should not be decorated, and check their arguments
    themselves.
    """
    return public_but()(thing) if isinstance(thing, type) else public_by(thing, thing)


def public_but(*names: str) -> Callable[[F], F]:
    """`public` for a class whose methods of these names stay as they are."""

    def decorate(cls: F) -> F:
        for name, method in list(vars(cls).items()):
            if name in names or not _is_given_arguments(name, method):
                continue
            if isinstance(method, classmethod | staticmethod):
                setattr(cls, name, type(method)(public(method.__func__)))
            else:
                setattr(cls, name, public(method))
        return cls

    return decorate


def public_by(function: F, call: Callable[..., Any]) -> F:
    """`function` as a `public` one; outside of the imperative mode `call`, which takes the same arguments, computes."""
    keeps = False
    plain: list[tuple[int, str, tuple[type, ...]]] | None = None

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        nonlocal keeps, plain
        if plain is None:  # the import, which decorates hundreds of functions, need not look at each
            keeps = _keeps_arguments(function)
            plain = [] if keeps else _plain_parameters(function)
        # Like `all_or_nothing`, but inline: a context manager takes as long as some operators of the imperative mode.
        outer = journal = JOURNAL.get()
        programs = CURRENT.get()
        at_once = programs is not None and programs[0].computes_at_once
        # The imperative mode appends nothing to a user's program, so there is nothing to undo.
        if journal is None and not at_once:
            journal = []
        mark = 0 if journal is None else len(journal)
        try:
            if journal is not outer:
                JOURNAL.set(journal)
            if keeps and not is_ours(sys._getframe(1)):
                _check_types(function, args, kwargs)
            for place, name, kinds in plain:
                is_given = place < len(args) or name in kwargs
                given = args[place] if place < len(args) else kwargs.get(name)
                if is_given and type(given) not in kinds and not is_ours(sys._getframe(1)):
                    _check_types(function, args, kwargs, name)
            return function(*args, **kwargs) if at_once else call(*args, **kwargs)
        except BaseException as error:
            if journal is not None:
                undo(journal, mark)
            if (own := _in_our_words(error, function, args, kwargs)) is not error:
                raise own from error
            raise
        finally:
            if journal is not outer:
                JOURNAL.set(outer)

    return cast(F, guarded)


def _keeps_arguments(function: Callable[..., Any]) -> bool:
    """Whether a function uses its arguments only after it has returned."""
    if function.__name__ == "__init__" or inspect.isgeneratorfunction(function):
        return True
    return any("Reader[" in str(each) for each in function.__annotations__.values())


def explained(function: F) -> F:
    """`function` with errors about a user's call; for single steps, which are all or nothing anyway."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if (own := _in_our_words(error, function, args, kwargs)) is not error:
                raise own from error
            raise

    return cast(F, guarded)


def _in_our_words(error: BaseException, function: Callable[..., Any], args: Any, kwargs: Any) -> BaseException:
    """The error to raise for `error`: one of `minigraph.errors`, if a user's call failed inside the library."""
    if is_ours(sys._getframe(2)):  # a user's call is further out
        return error
    if isinstance(error, MinigraphError):
        _complete(error, function, args, kwargs)
        return error
    if not isinstance(error, _BUILT_IN) or not _is_from_library(error):
        return error
    return _explained(error, function, args, kwargs)


def _complete(error: MinigraphError, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Give an error the arguments and the line that it is about and something to do, unless it has them."""
    name, given = _call(function, args, kwargs)
    wrong = misfits(function, given) if given is not None and isinstance(error, WrongTypeError) else []
    if wrong and not error.message.startswith(name):
        error.message, error.details = f"{name}: {'; '.join(wrong)}", (error.message, *error.details)
        error.hint = _what_to_do(function, error.message)
    if not isinstance(error, VerifyError | EOFException):
        error.hint = error.hint or _what_to_do(function, error.message)
    if not isinstance(error, EOFException):
        error.site = error.site or caller_site()


def _is_from_library(error: Exception) -> bool:
    """Whether a built-in error comes from the library or a library that it calls, and not from the user's code."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    inner = list(frames)
    while inner and not is_ours(inner[-1]):
        inner.pop()
    beyond = frames[len(inner) :]
    if not beyond:
        return True
    origin = beyond[0].f_globals.get("__name__", "").partition(".")[0]
    return origin in sys.stdlib_module_names or origin in ("numpy", "networkx", "numba", "cupy")


def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The name by which a user knows `function`, and the arguments by name; None if they do not fit its signature."""
    signature = signature_of(function)
    name = _name(function, args[0] if args and "self" in signature.parameters else None)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return name, None
    given.pop("self", None)
    return name, given


def _explained(
    error: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> MinigraphError:
    """The error that says what was wrong with the arguments."""
    name, given = _call(function, args, kwargs)
    if given is None:
        known = [each for each in signature_of(function).parameters if each != "self"]
        near = [suggest(key, known) for key in kwargs if key not in known]
        hint = " ".join(near) or f"Give it {', '.join(known) or 'nothing'}."
        return WrongTypeError(f"{name}: {str(error).partition('() ')[2] or error}", hint=hint)
    wrong = misfits(function, given)
    details = [f"{key} = {shown(value)}" for key, value in given.items()]
    message = "; ".join(wrong) or str(error) or type(error).__name__
    hint = _what_to_do(function, message)
    own = next((own for kind, own in _OWN.items() if isinstance(error, kind)), ProgramError)
    return own(f"{name}: {message}", details=details, site=caller_site(), hint=hint)


def _check_types(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], only: str | None = None
) -> None:
    """Refuse arguments, or `only` one of them, that do not fit their annotations."""
    name, given = _call(function, args, kwargs)
    if given is None:
        return  # calling the function says why
    wrong = misfits(function, given if only is None else {only: given[only]})
    if wrong:
        message = "; ".join(wrong)
        is_about_function = "must be a function" in message
        hint = "Pass the function itself, not what it returns." if is_about_function else _what_to_do(function, message)
        raise WrongTypeError(f"{name}: {message}", hint=hint)


_PLAIN: dict[str, tuple[type, ...]] = {"bool": (bool,), "str": (str,)}
"""Annotations that are checked in every call, and the types that fit them beyond doubt."""


def _plain_parameters(function: Callable[..., Any]) -> list[tuple[int, str, tuple[type, ...]]]:
    """Places, names and types of the switches, and of `name`; other texts are checked by what reads them."""
    # A wrapper without parameters of its own passes all arguments on as they are.
    innermost: Any = inspect.unwrap(function, stop=lambda each: bool(each.__code__.co_argcount))
    code, found = innermost.__code__, []
    places = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name, annotation in innermost.__annotations__.items():
        kind = str(annotation).removesuffix(" | None")
        kinds = _PLAIN.get(kind)
        if kinds is not None and name in places and (kind == "bool" or name == "name"):
            place = places.index(name)
            kinds = kinds if kind == annotation else (*kinds, type(None))
            found.append((place if place < code.co_argcount else sys.maxsize, name, kinds))
    return found


def _name(function: Callable[..., Any], instance: Any = None) -> str:
    """The name that a user writes: the class of `instance` in place of the one that defines a method."""
    owner, dot, name = function.__qualname__.rpartition(".")
    owner = owner if instance is None else type(instance).__name__
    return owner if name in ("__init__", "__call__") else owner + dot + name


def _full_name(function: Callable[..., Any]) -> str:
    """The name of a function as a user of ``fluid`` writes it."""
    name, path = _name(function), function.__module__.split(".")
    shortest = 2 if path[1] in ("layers", "compat", "dataset") else 1
    homes = (".".join(path[:length]) for length in range(shortest, len(path) + 1))
    home = next((each for each in homes if hasattr(sys.modules[each], name.partition(".")[0])), "minigraph")
    return f"fluid{home.removeprefix('minigraph')}.{name}"


def _what_to_do(function: Callable[..., Any], message: str) -> str:
    """Say what to give the arguments that a message names."""
    blamed = set(re.findall(r"(\w+) (?:must|has|is|takes|cannot)\b", message))
    advices = [advice(function, name) for name in signature_of(function).parameters if name in blamed]
    return " ".join(filter(None, advices)) or f"Read help({_full_name(function)}) for what each argument may be."


_SPECIAL = ("__init__", "__call__", "__getitem__", "__setitem__", "__delitem__")
"""Special methods that users give arguments to."""


def _is_given_arguments(name: str, method: Any) -> bool:
    """Whether users give arguments to what a class defines under a name."""
    if name.startswith("_") and name not in _SPECIAL:
        return False
    return isinstance(method, classmethod | staticmethod) or (inspect.isfunction(method) and takes(method) > 1)


def takes(function: Callable[..., Any]) -> int:
    """Number of parameters, from the code object: reading all signatures would take a sixth of the import."""
    while (wrapped := getattr(function, "__wrapped__", None)) is not None:
        function = wrapped
    code: types.CodeType = function.__code__
    has_rest = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount + has_rest.bit_count()


def refuse_unknown_names(module: str, /, others: str = "", **late: str) -> None:
    """Make a module raise an error with a suggestion for a name that it does not have.

    ``__getattr__`` is set through the namespace, because a definition would keep type checkers from finding unknown
    names. The names in `late` come from other modules, which are imported when a name is first used. `others` is a
    package whose names the module has, too, because fluid keeps them there.
    """
    namespace = vars(sys.modules[module])
    namespace["__getattr__"] = functools.partial(_find, sys.modules[module], late, others)
    namespace.setdefault("__path__", [])  # below packages only, imports ask the finder of `fluid_paths`, which says why
    if late:
        namespace["__dir__"] = lambda: sorted({*namespace, *late})


def _find(module: types.ModuleType, late: Mapping[str, str], others: str, name: str) -> Any:
    if name in late:
        home = importlib.import_module(late[name])
        value = vars(module)[name] = home if late[name] == f"{module.__name__}.{name}" else getattr(home, name)
        return value
    if name.startswith("__"):  # Python asks for these, and goes on without them
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    if f"{module.__name__}.{name}" in fluid_paths.HOMES:
        return importlib.import_module(f"{module.__name__}.{name}")
    package = sys.modules.get(others)
    if package is not None and name in package.__all__:
        return getattr(package, name)
    absent = ABSENT.get(name) or ABSENT.get(f"{module.__name__}.{name}")
    if absent is not None and not module.__name__.startswith("minigraph.compat"):
        reason, hint = absent
        raise UnknownNameError(
            f"{module.__name__} has no {name!r}: fluid has it, but {reason}", site=caller_site(), hint=hint
        )
    known = getattr(module, "__all__", None) or own_names(module)
    near = "" if name.startswith("_") else suggest(name, known)  # tools ask each module for private names
    raise UnknownNameError(
        f"{module.__name__} has no {name!r}", site=caller_site(),
        hint=near or f"Read the names in dir({module.__name__}).",
    )  # fmt: skip


def offered(namespace: Mapping[str, Any]) -> list[str]:
    """The names of what a package has imported from its modules to offer, in order."""
    return sorted(
        name for name, value in namespace.items()
        if not name.startswith("_") and callable(value) and value.__module__ != __name__
    )  # fmt: skip


def own_names(module: types.ModuleType) -> list[str]:
    """Public names that a module defines itself."""
    return [
        name for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]  # fmt: skip
