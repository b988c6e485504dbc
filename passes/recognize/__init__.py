"""Find operators that a program writes out, and put the operator in their place.

Modules here import the base and the verbs of passes, in the folder above, and what those may import.
"""
