"""Roles of ranks."""

from minigraph.incubate.fleet.base import role_maker
from minigraph.support.public import refuse_unknown_names

__all__ = ["role_maker"]

refuse_unknown_names(__name__)
