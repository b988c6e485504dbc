"""Rows of samples, a file for each family of operators."""
