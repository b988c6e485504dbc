"""The folders ``kernels`` and ``passes``, which a checkout has beside the package and shows in it by symbolic links.

A zip of the project, or a checkout on Windows, may have text files in the place of the links.
"""

from __future__ import annotations

import os.path

from minigraph.support.interrupted_import import is_the_command

try:
    import minigraph.kernels  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "minigraph.kernels":
        raise
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    message = (
        "this copy of minigraph has no symbolic links, so that it runs only where it is installed: run "
        f"`python -m pip install -e .` in {checkout}, or, if you have installed it without -e, "
        "work in another folder"
    )
    raise (SystemExit(f"minigraph: error: {message}") if is_the_command() else ImportError(message)) from None
