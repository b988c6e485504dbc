"""Rows for diagonals of matrices and for triangles."""

from minigraph.rewrite.random_programs.sampling import floats, ints, sample

SAMPLES = [
    *(
        sample("eye", **attrs)
        for attrs in ({"num_rows": 3}, {"num_rows": 2, "num_columns": 4, "dtype": 3}, {"num_rows": 0, "dtype": 6})
    ),
    *(sample("diag", Diagonal=x) for x in (floats(3), ints(0, 5, 2, dtype="int32"), floats(1), floats(0))),
    *(
        sample("diag_embed", Input=x, **attrs)
        for x in (floats(2, 3), ints(0, 9, 1, 2), floats(3, 0))
        for attrs in ({}, {"offset": 2}, {"offset": -1, "dim1": 0, "dim2": 2}, {"dim1": -1, "dim2": 1})
    ),
    *(
        sample("trace", Input=floats(*shape), **attrs)
        for shape in ((3, 4), (2, 3, 4), (1, 1), (2, 0, 3))
        for attrs in ({}, {"offset": 1}, {"offset": -2, "dim1": 1, "dim2": 0}, {"offset": 9})
    ),
    sample("trace", Input=ints(0, 9, 3, 3)),
    *(
        sample("tril_triu", X=x, lower=lower, diagonal=diagonal)
        for x in (floats(3, 4), ints(0, 9, 2, 3, 2), floats(1, 1), floats(0, 2))
        for lower in (False, True)
        for diagonal in (0, 1, -2)
    ),
]
