"""Roles of ranks."""

from minigraph.incubate.fleet.base import role_maker

__all__ = ["role_maker"]
