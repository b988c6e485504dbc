"""Arrays by name in the safetensors format: the recommended one, readable everywhere and free of code.

References
----------
Hugging Face, *safetensors*, https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigraph.errors import DataError, MissingExtraError, WrongTypeError
from minigraph.support.annotations import shown
from minigraph.support.atomic_files import as_path, read_file, write_files
from minigraph.support.interrupts import is_interrupt
from minigraph.support.public import public
from minigraph.types import as_dtype

__all__ = ["load_safetensors", "save_safetensors"]

SUFFIX = ".safetensors"


@public
def save_safetensors(
    state_dict: Mapping[str, Any], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays by name to a safetensors file, whole or not at all.

    Parameters
    ----------
    state_dict : mapping
        Names to arrays or tensors.
    path : path
        By convention it ends in ``.safetensors``.
    metadata : mapping, optional
        Texts by name, kept in the file beside the arrays.

    Raises
    ------
    WrongTypeError
        If a value is no array.
    MissingExtraError
        If the package safetensors is not installed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_safetensors({"w": np.ones(2, "float32")}, folder + "/net.safetensors")
    ...     load_safetensors(folder + "/net.safetensors")
    {'w': array([1., 1.], dtype=float32)}
    """
    library = _library()
    texts = dict(metadata or {})
    if not all(isinstance(text, str) for pair in texts.items() for text in pair):
        raise WrongTypeError(f"metadata must map str to str, got {shown(metadata)}", hint="Give texts by name.")
    arrays = {name: _array(name, value) for name, value in state_dict.items()}
    write_files({as_path(path, "path"): [library.save(arrays, metadata=texts or None)]})


@public
def load_safetensors(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file by name.

    Raises
    ------
    MissingFileError
        If there is none.
    DataError
        If the file is damaged or no such file.
    MissingExtraError
        If the package safetensors is not installed.
    """
    library = _library()
    data = read_file(as_path(path, "path"), "arrays")
    try:
        arrays = library.load(data)
    except Exception as error:  # the library's own, and NumPy's for damage that the library lets pass
        if is_interrupt(error):
            raise
        raise DataError(f"{path} is damaged or no safetensors file: {error}") from None
    return {name: np.array(array) for name, array in arrays.items()}


def _array(name: str, value: Any) -> NDArray[Any]:
    if not hasattr(value, "__array__") and not hasattr(value, "numpy"):
        raise WrongTypeError(
            f"{name} is a {type(value).__name__}; a safetensors file holds arrays only",
            hint="Save other values elsewhere, or as an array.",
        )
    array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    as_dtype(array.dtype)
    return np.ascontiguousarray(array).reshape(array.shape)


def _library() -> Any:
    try:
        return import_module("safetensors.numpy")
    except ImportError:
        raise MissingExtraError(
            "safetensors files need the package safetensors, which is not installed",
            hint="Install it with: pip install 'minigraph[safetensors]'",
        ) from None
