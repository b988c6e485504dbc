"""Modules of the current folder come last for ``python -m minigraph``, which would take its random.py for Python's."""

import os
import sys
from itertools import pairwise

_is_command = any(flag == "-m" and module.partition(".")[0] == "minigraph" for flag, module in pairwise(sys.orig_argv))
if _is_command and sys.path[:1] == [os.getcwd()]:
    sys.path.append(sys.path.pop(0))
