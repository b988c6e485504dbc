"""Turn programs on sequences of different lengths into programs on padded batches.

Modules here import the base and the verbs of passes, in the folder above, and what those may import.
"""
