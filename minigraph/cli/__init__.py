"""The command line ``minigraph``: one module for each group of subcommands. Only `minigraph.__main__` imports it."""
