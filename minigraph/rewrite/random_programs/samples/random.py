"""Rows for random tensors."""

from minigraph.rewrite.random_programs.sampling import floats, probabilities, sample

SAMPLES = [
    sample("seed", seed=7),
    sample("seed", is_random=True),
    *(
        sample(f"{name}_random_batch_size_like", Input=floats(*x), shape=shape, is_random=not seed, seed=seed, **attrs)
        for name in ("uniform", "gaussian")
        for x, shape, attrs in (
            ((3, 4), [-1, 2], {}), ((0, 4), [-1, 2], {}), ((2, 5), [3, -1], {"input_dim_idx": 1, "output_dim_idx": 1}),
            ((3,), [-1], {"dtype": 6}), ((3,), [7, 1], {"dtype": 4}),
        )
        for seed in (0, 7)
    ),
    *(
        sample("randperm", n=n, seed=seed, dtype=dtype, is_random=not seed)
        for n in (1, 6)
        for seed in (0, 7)
        for dtype in (2, 3)
    ),
    *(
        sample("sampling_id", X=x, seed=seed, is_random=not seed, **attrs)
        for x in (probabilities(5, 3), floats(0, 3), probabilities(2, 1))
        for seed in (0, 7)
        for attrs in ({}, {"min": 0.25, "max": 0.5})
    ),
]  # fmt: skip
