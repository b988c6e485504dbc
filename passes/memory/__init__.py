"""Keep and write fewer values.

Modules here import the base and the verbs of passes, in the folder above, and what those may import.
"""
