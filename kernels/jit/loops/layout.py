"""Layout of a table of calls, in words of 8 bytes, known without numba."""

HEAD, WORDS_OF_ARRAY, WORDS_OF_MOVE, WORDS_OF_CALL = 8, 4, 3, 7
"""Words of the beginning of a table, and of the records after it for an array, a move and a call."""
