"""Rows for products of vectors and of whole batches, and for distances."""

import math

from minigraph.rewrite.random_programs.sampling import floats, ints, sample

SAMPLES = [
    *(
        sample("bmm", X=floats(*x), Y=floats(*y))
        for x, y in (((2, 3, 4), (2, 4, 5)), ((1, 1, 1), (1, 1, 1)), ((0, 2, 3), (0, 3, 2)), ((2, 3, 0), (2, 0, 2)))
    ),
    *(sample("dot", X=floats(*shape), Y=floats(*shape)) for shape in ((4,), (3, 4), (1, 1), (0, 3), (2, 0))),
    sample("dot", X=ints(-3, 4, 2, 5), Y=ints(-3, 4, 2, 5)),
    *(
        sample("cross", X=floats(*shape), Y=floats(*shape), **attrs)
        for shape, attrs in (((3, 4), {}), ((2, 3, 3), {"dim": -1}), ((4, 3), {}), ((3,), {"dim": 0}), ((0, 3), {}))
    ),
    sample("cross", X=ints(-3, 4, 3, 2, dtype="int32"), Y=ints(-3, 4, 3, 2, dtype="int32")),
    *(
        sample("kron", X=floats(*x), Y=floats(*y))
        for x, y in (((2, 3), (2, 2)), ((3,), (2, 2)), ((2, 1, 3), (2,)), ((1,), (1,)), ((0, 2), (3, 1)))
    ),
    sample("kron", X=ints(-3, 4, 2, 2), Y=ints(-3, 4, 3)),
    *(
        sample("addmm", Input=floats(*shape), X=floats(3, 2), Y=floats(2, 4), **attrs)
        for shape in ((3, 4), (1, 4), (3, 1), (1, 1))
        for attrs in ({}, {"Alpha": -0.5, "Beta": 2.0})
    ),
    sample("addmm", Input=floats(1, 4), X=floats(0, 2), Y=floats(2, 4)),
    *(
        sample("dist", X=floats(*x), Y=5 + floats(*y), p=p)
        for x, y in (((3, 4), (3, 4)), ((2, 3), (1, 3)), ((3,), (2, 1)), ((1,), (1,)))
        for p in (0.0, 1.0, 2.0, 2.5, 0.5, math.inf, -math.inf, -1.5)
    ),
    sample("dist", X=floats(0, 2), Y=floats(0, 2)),
    *(
        sample("cos_sim", X=floats(*x), Y=floats(*y))
        for x, y in (((3, 4), (3, 4)), ((3, 4), (1, 4)), ((2, 2, 3), (2, 2, 3)), ((1, 1), (1, 1)), ((0, 3), (0, 3)))
    ),
]
