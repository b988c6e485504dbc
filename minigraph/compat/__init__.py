"""Functions of other systems under their own names, computed by minigraph; no other package imports them."""
