"""Wrong arguments for public functions, one at a time in calls that are right otherwise.

A right call is recorded while a case runs: the case gets `Recording` in place of a module, which repeats each call with
every argument replaced in turn by values of another kind.
"""

import inspect

import numpy as np

import minigraph as fluid
from minigraph import unique_name
from minigraph.errors import MinigraphError, VerifyError
from minigraph.support.undo import all_or_nothing

with fluid.program_guard(fluid.Program()):
    STRANGER = fluid.data("stranger", [2, 3])

WRONG = {
    "None": None, "text": "a", "empty text": "", "-1": -1, "0": 0, "nan": float("nan"), "inf": float("inf"), "2.5": 2.5,
    "-2.5": -2.5, "1e400": 10**400, "True": True, "[]": [], "[None]": [None], "[-1]": [-1], "[0, 'a']": [0, "a"],
    "[2, 3]": [2, 3], "dict": {"a": 1}, "object": object(), "array": np.zeros((2, 2)), "stranger": STRANGER,
    "[stranger]": [STRANGER], "function": len, "type": int, "complex": 1j, "bytes": b"a",
}  # fmt: skip


class Rollback(Exception):
    """Ends a call that was accepted."""


class Recording:
    """A module whose functions are called with wrong arguments before each first right call."""

    def __init__(self, module, faults, done, wrong=WRONG, check=lambda result: None):
        self._module, self._faults, self._done, self._wrong, self._check = module, faults, done, wrong, check

    def __getattr__(self, name):
        value = getattr(self._module, name)
        if inspect.ismodule(value):
            return self.recorded(value)
        return self._guarded(value, name) if callable(value) else value

    def recorded(self, thing):
        """Like this for the methods of an object."""
        return Recording(thing, self._faults, self._done, self._wrong, self._check)

    def _guarded(self, function, name):
        def call(*args, **kwargs):
            key = name, function.__module__, function.__qualname__
            if key not in self._done:
                self._done.add(key)
                misuse(function, args, kwargs, self._faults, self._wrong, self._check)
            return function(*args, **kwargs)

        return call


USERS = {
    "initializer": ("function", "type"), "error_clip": ("array",),
    **dict.fromkeys(("reader", "readers", "mapper", "func", "sample_generator"), ("function", "type")),
}  # fmt: skip
"""Arguments with which the library does what the user says: it calls a function, or keeps an object for later."""


def misuse(function, args, kwargs, faults, wrong=WRONG, check=lambda result: None):
    """Call `function` with each of its arguments replaced in turn; notes in `faults` what should not be."""
    signature = inspect.signature(function)
    right = signature.bind(*args, **kwargs).arguments
    before = None
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        for what, value in wrong.items():
            if what in USERS.get(name, ()):
                continue
            given = dict(right)
            given[name] = (value,) if parameter.kind is parameter.VAR_POSITIONAL else value
            bound = inspect.BoundArguments(signature, given)
            title = f"{function.__qualname__} {name}={what}"
            before = try_out(lambda b=bound: check(function(*b.args, **b.kwargs)), title, faults, before)


def try_out(call, title, faults, before=None):
    """Note in `faults` whether a call ends in anything but a valid program or an error of the project's own.

    `before` is the state that this call finds, where it is known; the result is the state that the next call finds.
    """
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    if before is None:
        before = state_of(main, startup)
    try:
        with all_or_nothing():
            call()
            for program in (main, startup):
                fluid.verify(program)
                str(program)
            raise Rollback
    except Rollback:
        return None  # some calls change what is not undone
    except Exception as error:
        if fault := fault_of(error):
            faults.append(f"{title} -> {fault}")
    after = state_of(main, startup)
    if after != before:
        faults.append(f"{title} leaves something behind")
    return after


def fault_of(error):
    """What is wrong with an error that a user sees, or an empty string."""
    if not isinstance(error, MinigraphError):
        return f"{type(error).__name__}: {error}"
    if error.site is None or "tests" not in error.site.filename:
        return f"no line: {error}"
    if not error.hint and not isinstance(error, VerifyError):
        return f"no hint: {error}"
    return ""


def state_of(*programs):
    """What a call that fails must leave as it was; nothing in the imperative mode, which keeps what it has computed."""
    if programs[0].computes_at_once:
        return ()
    return (
        {key: number for key, number in unique_name.current()._next.items() if number},
        [
            (program.current_block_idx, program.current_role, program.backward_passes, len(program.blocks),
             {k: v for k, v in program.gradient_blocks.items() if v}, block.forward_block_idx,
             [op.structure() for op in block.ops], [var.structure() for var in block.vars.values()])
            for program in programs for block in program.blocks
        ],
    )  # fmt: skip
