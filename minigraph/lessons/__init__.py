"""Eleven lessons on rewriting programs: a page, an exercise and a reference solution each, and their grader.

Imports the applications that it teaches, `minigraph.rewrite` and `minigraph.parallel`, and what lies below them.

``python -m minigraph lessons`` lists them, ``python -m minigraph grade LESSON FILE`` grades an answer.
"""
