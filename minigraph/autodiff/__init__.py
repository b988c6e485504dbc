"""Differentiate programs: the backward pass, its rules for blocks, and decompositions of gradients.

Imports the passes and what lies below them.
"""
