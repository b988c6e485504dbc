"""``paddle.utils``: tools for scripts."""
