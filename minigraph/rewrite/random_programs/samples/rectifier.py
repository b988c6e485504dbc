"""Rows for activation functions with thresholds."""

from minigraph.rewrite.random_programs.sampling import distinct, sample

SAMPLES = [
    *(
        sample(name, X=distinct(*shape), **attrs)
        for name, choices in {
            "brelu": ({}, {"t_min": -0.7, "t_max": 1.3}), "soft_relu": ({}, {"threshold": 0.9}),
            "thresholded_relu": ({}, {"threshold": -0.5}), "hard_shrink": ({}, {"threshold": 1.1}),
            "softshrink": ({}, {"lambda": 1.1}), "tanh_shrink": ({},), "stanh": ({}, {"scale_a": -2.0, "scale_b": 0.3}),
            "selu": ({}, {"scale": 2.0, "alpha": 0.0}), "mish": ({}, {"threshold": 100.0}),
        }.items()
        for attrs in choices
        for shape in ((3, 4), (1,), (0, 2))
    ),
    *(
        sample("maxout", X=distinct(*shape), groups=groups, axis=axis)
        for shape, groups, axis in (((2, 6, 3), 2, 1), ((2, 3, 2, 4), 4, -1), ((2, 3), 1, 1), ((0, 4), 2, 1))
    ),
]  # fmt: skip
