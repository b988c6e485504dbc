"""Fluid's path to `minigraph.reader.feeder`."""

from minigraph.reader.feeder import DataFeeder

__all__ = ["DataFeeder"]
