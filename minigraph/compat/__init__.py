"""Functions of other systems under their own names, computed by minigraph.

They import the engine and the faces; no other package imports them.
"""
