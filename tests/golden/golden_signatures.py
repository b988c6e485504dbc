"""Signatures of fluid's public functions, classes and methods as lines of text: ``python golden_signatures.py FILE``.

To be run by the Python of Paddle 1.8.5; runs with Python 3.7, too.
"""

import inspect
import json
import os
import sys


def signatures(fluid, names):
    """Lines ``path(parameter, parameter=default)`` of the names of modules: functions, classes and their methods."""
    return sorted(set(_lines(fluid, names)))


def found(fluid, path):
    """What `path` leads to, or None."""
    for part in path.split("."):
        fluid = getattr(fluid, part, None)
    return fluid


def text_of(function, skip=0):
    """The parameters of `function` but for the first `skip`, as text; None where Python cannot tell."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    return [_text(each) for each in parameters[skip:]]


def _lines(fluid, names):
    for module in names:
        for name in names[module]:
            path = ".".join(filter(None, [module, name]))
            value = found(fluid, path)
            if inspect.isclass(value):
                yield from _of_class(path, value)
            elif callable(value):
                yield _line(path, text_of(value))


def _of_class(path, value):
    if value.__init__ is not object.__init__ and not issubclass(value, Exception):
        yield _line(path, text_of(value.__init__, 1))
    for name, member in vars(value).items():
        if not name.startswith("_") and callable(getattr(value, name)) and not inspect.isclass(member):
            is_bound = isinstance(member, (classmethod, staticmethod))
            yield _line(f"{path}.{name}", text_of(getattr(value, name), 0 if is_bound else 1))


def _line(path, parameters):
    return "" if parameters is None else f"{path}({', '.join(parameters)})"


def _text(parameter):
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.default is parameter.empty:
        return stars + parameter.name
    default = parameter.default
    plain = isinstance(default, (int, float, str, type(None)))
    shown = repr(list(default)) if isinstance(default, (list, tuple)) else repr(default) if plain else "..."
    return f"{parameter.name}={shown}"


if __name__ == "__main__":
    import paddle.fluid

    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "fluid_names.json"), encoding="utf-8") as file:
        modules = json.load(file)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(filter(None, signatures(paddle.fluid, modules))) + "\n")
