"""The version of Paddle whose interface minigraph has."""

from minigraph.framework.version_check import FLUID_VERSION as full_version

__all__ = ["commit", "full_version", "istaged", "major", "minor", "mkl", "patch", "rc", "show", "with_mkl"]

major, minor, patch = full_version.split(".")
rc = "0"
istaged = True
commit = "8e1712a71057e3ca06a2927ceec51c18cb171fdc"
"""Commit of Paddle 1.8.5, with which minigraph is compared."""
with_mkl = "OFF"


def show() -> None:
    """Print the version and its parts.

    Examples
    --------
    >>> show()
    full_version: 1.8.5
    major: 1
    minor: 8
    patch: 5
    rc: 0
    """
    for name in ("full_version", "major", "minor", "patch", "rc"):
        print(f"{name}: {globals()[name]}")


def mkl() -> str:
    """``"OFF"``: products are NumPy's."""
    return with_mkl
