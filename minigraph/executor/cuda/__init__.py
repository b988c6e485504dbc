"""Executors on a GPU: recording graphs, sending feeds, checking indices before a recorded run."""
