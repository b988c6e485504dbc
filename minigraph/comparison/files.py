"""Files that are written whole or not at all."""

from minigraph.files import replacing

__all__ = ["replacing"]
