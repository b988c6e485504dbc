"""The command line ``minigraph``: one module for each group of subcommands.

It may import every package; only `minigraph.__main__` imports it.
"""
