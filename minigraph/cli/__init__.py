"""The command line: ``python -m minigraph``."""
