"""Rows for angles and logarithms."""

from minigraph.rewrite.random_programs.sampling import distinct, floats, positive, sample

SAMPLES = [
    *(sample(name, X=0.45 * distinct(*shape)) for name in ("asin", "acos") for shape in ((3, 4), (1,), (0, 2))),
    *(sample("atan", X=3 * floats(*shape)) for shape in ((3, 4), (1,), (0, 2))),
    *(sample("log1p", X=positive(*shape) - 0.75) for shape in ((3, 4), (1,), (0, 2))),
]
