"""Differentiating programs: the backward pass, its rules for blocks, and decompositions of gradients."""
