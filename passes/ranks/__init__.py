"""Divide training among ranks, which exchange gradients, state and statistics.

Modules here import the base and the verbs of passes, in the folder above, and what those may import.
"""
