"""Eleven lessons on rewriting programs: a page, an exercise and a reference solution each, and their grader.

``python -m minigraph lessons`` lists them, ``python -m minigraph grade LESSON FILE`` grades an answer.
"""
