"""Lesson 3: one clip instead of two."""

from minigraph import layers, rewrite  # noqa: F401

# Write a rule `clip_of_clip` for `layers.clip(layers.clip(x, ...), ...)`: the pattern, its condition, its replacement.
