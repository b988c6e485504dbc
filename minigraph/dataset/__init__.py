"""Data sets, as readers of ``(image, label)`` pairs.

An image is a flat float32 vector with values in [-1, 1], -1 being background; a label is a Python int from 0 to 9.
`digits` comes with the package; `mnist` reads files, downloads them, or says loudly that it serves `digits` instead.
"""

from minigraph.dataset import digits, mnist

__all__ = ["digits", "mnist"]
