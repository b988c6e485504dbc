"""Variables that are fed, and readers that feed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minigraph.errors import ProgramError, WrongTypeError, warn
from minigraph.ir import Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.layer_helper import layer
from minigraph.support.public import refuse_unknown_names
from minigraph.unique_name import generate

if TYPE_CHECKING:
    from minigraph.reader.generator_loader import PyReader

__all__ = ["create_py_reader_by_data", "data", "double_buffer", "fluid_data", "py_reader", "read_file"]


@layer
def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool | str = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: Any = None,
    stop_gradient: bool = True,
) -> Variable:
    """A variable to feed, of shape ``[-1, *shape]``.

    The batch dimension is not added when `append_batch_size` is False or `shape` holds a -1 or None already.
    What is fed may have another dtype if the conversion changes no value.

    As in fluid, a dtype that is given as the third argument is taken for True; a warning says so.
    """
    if isinstance(append_batch_size, str):
        warn(
            f"data: the third argument, {append_batch_size!r}, is append_batch_size; {name} has the dtype {dtype}. "
            f"Write dtype={append_batch_size!r}"
        )
    dims = _dims(shape)
    # In fluid a shape with an unknown size has its batch dimension already.
    if append_batch_size and -1 not in dims:
        dims = [-1, *dims]
    return _data(name, dims, dtype=dtype, lod_level=lod_level, stop_gradient=stop_gradient)


@layer
def fluid_data(name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0) -> Variable:
    """A variable to feed, of exactly this shape (None or -1: any size) and dtype; ``minigraph.data``."""
    if name == "":
        raise ProgramError("data: the name cannot be empty", hint="Give the name to feed it by.")
    return _data(name, _dims(shape), dtype=dtype, lod_level=lod_level, stop_gradient=True, need_check_feed=True)


def _data(name: str, shape: list[int], **fields: Any) -> Variable:
    return default_main_program().global_block().create_var(name=name, shape=shape, is_data=True, **fields)


@layer
def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int | None]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> PyReader:
    """A reader that feeds variables of its own, which `read_file` gives: between `start` and `reset` of it.

    Parameters
    ----------
    capacity : int
        Number of batches that are read ahead.
    shapes, dtypes : sequence
        Of the variables.
    lod_levels : sequence of int, optional
        Numbers of levels of sequences. Default: 0.
    name : str, optional
        Accepted because fluid has it; variables are named ``read_file_0.tmp_0``, as in fluid.
    use_double_buffer : bool
        Changes nothing; a thread reads ahead in any case.

    Returns
    -------
    PyReader
        Its data is set by ``decorate_paddle_reader`` or another of its methods.

    Raises
    ------
    ProgramError
        If there are not as many dtypes as shapes, or a level is not 0.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.program_guard(fluid.Program()):
    ...     reader = fluid.layers.py_reader(capacity=4, shapes=[(-1, 2)], dtypes=["float32"])
    ...     total = fluid.layers.reduce_sum(fluid.layers.read_file(reader))
    ...     reader.decorate_paddle_reader(lambda: iter([[(np.ones(2),)], [(np.zeros(2),), (np.ones(2),)]]))
    ...     exe = fluid.Executor()
    ...     reader.start()
    ...     try:
    ...         while True:
    ...             print(exe.run(fetch_list=[total]))
    ...     except fluid.core.EOFException:
    ...         reader.reset()
    [array([2.], dtype=float32)]
    [array([2.], dtype=float32)]
    """
    from minigraph.reader.generator_loader import PyReader  # which the imperative mode is below, and layers below that

    levels = [0] * len(shapes) if lod_levels is None else lod_levels
    if not len(shapes) == len(dtypes) == len(levels):
        raise ProgramError(
            f"py_reader: {len(shapes)} shapes, {len(dtypes)} dtypes and {len(levels)} lod_levels",
            hint="Give one of each for a variable.",
        )  # fmt: skip
    prefix = generate("read_file")
    variables = [
        data(generate(f"{prefix}.tmp"), list(shape), append_batch_size=False, dtype=dtype, lod_level=level)
        for shape, dtype, level in zip(shapes, dtypes, levels, strict=True)
    ]
    return PyReader(variables, capacity, use_double_buffer, iterable=False)


@layer
def create_py_reader_by_data(
    capacity: int, feed_list: Sequence[Variable], name: str | None = None, use_double_buffer: bool = True
) -> PyReader:
    """`py_reader` for variables that there are."""
    from minigraph.reader.generator_loader import PyReader

    return PyReader(feed_list, capacity, use_double_buffer, iterable=False)


@layer
def read_file(reader: PyReader) -> Variable | list[Variable]:
    """The variables that a `py_reader` feeds, or the only one."""
    from minigraph.reader.generator_loader import PyReader

    if not isinstance(reader, PyReader):
        raise WrongTypeError(f"read_file needs a py_reader, got {reader!r:.60}")
    found = reader.variables
    return found if len(found) > 1 else found[0]


@layer
def double_buffer(reader: PyReader, place: Any = None, name: str | None = None) -> PyReader:
    """`reader`, which reads ahead anyway."""
    return reader


def _dims(shape: Sequence[int | None]) -> list[int]:
    if not isinstance(shape, list | tuple):
        raise WrongTypeError(f"shape must be a list of sizes, got {shape!r:.80}", hint="Write [n].")
    return [-1 if dim is None else int(dim) for dim in shape]


refuse_unknown_names(__name__, others="minigraph.layers")
