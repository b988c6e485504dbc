"""Bring what programs write in several ways into one form, and leave out what nothing needs.

Each later pass looks for one spelling only. Modules here import the base and the verbs of passes, in the folder above,
and what those may import.
"""
