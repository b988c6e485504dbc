"""Write loops, recurrent networks and their units out as the operators that they run.

Modules here import the base and the verbs of passes, in the folder above, and what those may import.
"""
