"""Make one operator of several, which takes fewer calls or less memory traffic.

Modules here import the base and the verbs of passes, in the folder above, and what those may import.
"""
