"""Check of fluid's version for programs that ask: minigraph has the interface of 1.8.5."""

from __future__ import annotations

import re

from minigraph.errors import ProgramError, VersionError, caller_site
from minigraph.support.public import public

__all__ = ["FLUID_VERSION", "require_version"]

FLUID_VERSION = "1.8.5"


@public
def require_version(min_version: str, max_version: str | None = None) -> None:
    """Raise unless 1.8.5, the version of fluid whose interface minigraph has, is within bounds.

    Parameters
    ----------
    min_version, max_version : str
        Up to four numbers, such as ``1.8`` or ``1.5.2.0``; those left out count as 0.

    Raises
    ------
    VersionError
        If 1.8.5 is outside the bounds.
    WrongTypeError
        If a bound is no str.
    ProgramError
        If a bound is no version.

    Examples
    --------
    >>> require_version("1.6.0")
    """
    least = _numbers("min_version", min_version)
    most = None if max_version is None else _numbers("max_version", max_version)
    if not least <= _numbers("", FLUID_VERSION) <= (most or (10**9,)):
        wanted = f"{min_version} or higher" if most is None else f"between {min_version} and {max_version}"
        raise VersionError(
            f"a fluid {wanted} is asked for, minigraph has the interface of {FLUID_VERSION}", site=caller_site()
        )


def _numbers(what: str, version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(\.\d+){0,3}", version):
        raise ProgramError(f"{what} must be up to four numbers such as '1.8.5', got {version!r:.60}")
    found = [int(number) for number in version.split(".")]
    return tuple(found + [0] * (4 - len(found)))
