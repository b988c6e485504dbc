"""Every public function and class is decorated with `public` where it is defined."""

import inspect
import sys
from dataclasses import dataclass

import pytest

import minigraph
import minigraph.compat.tensorflow
import minigraph.compat.torch
import minigraph.nn
import minigraph.rewrite
from minigraph import passes
from minigraph.support.public import _is_given_arguments, own_names, takes

MODULES = [
    name for name, module in sys.modules.items()
    if name.partition(".")[0] == "minigraph" and hasattr(vars(module).get("__getattr__"), "func")
]  # fmt: skip
"""Modules that complain of a name that they do not have."""

LEFT = {
    "Block", "Operator", "Variable", "Parameter", "Tensor", "EagerParameter", "Scope",
    "Runner.run", "Runner.compute", "Executor.compute", "Program.role_guard", "Program.standing_for", "Program.block",
    "Initializer.__call__", "GradientClipBase.wants", "profiler.is_active", "profiler.note",
}  # fmt: skip
"""What runs for each operator, parameter or step, and checks its arguments itself."""
LEFT |= {
    "Rules", *passes.__all__, "Rewrite.__call__", "Rewrite.apply",
    *(f"Rule.{name}" for name in ("__init__", "apply", "fire", "holds", "match", "refuses")),
    *(f"Trace.{name}" for name in ("__init__", "begin", "copied", "end", "fired", "runs")),
    *(f"Observer.{name}" for name in ("begin", "copied", "end", "fired", "runs")),
}  # fmt: skip
"""What a pass is, which users derive from; and what passes tell those who watch."""
LEFT |= {"CounterExample", "Match", "Score", "Step", "Use", "ValueTable.__init__", "WhyNot"}
LEFT |= {"MovieInfo.__init__", "NormsOverRanks.__init__", "UserInfo.__init__"}
"""Records that the library makes."""
LEFT |= {
    f"Communicator.{name}"
    for name in [
        "all_gather", "all_reduce", "allocate", "between_devices", "broadcast", "gather", "gather_parts", "on",
        "reduce_parts", "reduce_scatter", "scatter", "sum_with_squares",
    ]
}  # fmt: skip
"""What kernels call for each exchange."""
CALLED_BY_US = {"forward", "op_for"}
"""Methods that users write and the library calls."""


def is_public(function):
    return function.__code__.co_name == "guarded"


def undecorated(module):
    for name in getattr(module, "__all__", own_names(module)):
        value = getattr(module, name)
        if not getattr(value, "__module__", "").startswith("minigraph.") or name in LEFT:
            continue
        if inspect.isfunction(value):
            home = value.__module__.rpartition(".")[2]
            if takes(value) and not is_public(value) and f"{home}.{value.__name__}" not in LEFT:
                yield name
        elif isinstance(value, type) and not issubclass(value, Exception):
            yield from undecorated_methods(value)


def undecorated_methods(cls):
    seen = set()
    for each in cls.__mro__:
        own = {name: method for name, method in vars(each).items() if name not in seen}
        seen |= own.keys()
        for name, method in own.items():
            if not each.__module__.startswith("minigraph.") or not _is_given_arguments(name, method):
                continue
            full_name = f"{each.__name__}.{name}"
            is_left = name in CALLED_BY_US or full_name in LEFT
            if not is_left and not is_public(getattr(method, "__func__", method)):
                yield full_name


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_offers_is_public(name):
    assert sorted(set(undecorated(sys.modules[name]))) == []


def test_the_modules_are_found():
    assert {"minigraph", "minigraph.layers", "minigraph.optimizer", "minigraph.clip", "minigraph.nn"} <= {*MODULES}


def test_a_function_is_the_same_wherever_it_is_named():
    for name in minigraph.layers.__all__:
        function = getattr(minigraph.layers, name)
        assert getattr(sys.modules[function.__module__], function.__name__) is function


@pytest.mark.parametrize(
    "call",
    [
        "SGD(0.1, grad_clip=1.0)", "SGD(0.1, regularization=0.1)", "LookaheadOptimizer(None)",
        "SGD(0.1).minimize(3)", "SGD(0.1).apply_gradients(None)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("filename", ["<string>", "<stdin>", "<ipython-input-1-abc>"])
def test_code_that_stands_in_no_file_is_a_users(call, filename):
    with pytest.raises(minigraph.errors.WrongTypeError) as caught:
        eval(compile(call, filename, "eval"), {**vars(minigraph.optimizer), "__name__": "__main__"})
    assert caught.value.site == (filename, 1)
    assert caught.value.hint


def test_the_constructor_that_dataclass_writes_is_not_the_users_line():
    @dataclass(frozen=True)
    class Clip(minigraph.clip.GradientClipByNorm):
        rate: float = 1.0

    with pytest.raises(minigraph.errors.ClipError) as caught:
        Clip(-1.0)
    assert caught.value.site.filename == __file__
