"""Rows for clips, for what they keep from step to step, and for checks of training."""

import numpy as np

from minigraph.rewrite.random_programs.samples.dense import ADAM, ADAPTIVE, PARAM
from minigraph.rewrite.random_programs.sampling import floats, ints, number, positive, sample

_HISTORY = {"History": np.array([3.0, 1.0, 2.0, 0.0]), "dtypes": ("float64",)}
_STATISTICS = {"Mean": number(1.0), "Variance": number(0.04), "dtypes": ("float64",)}
_AFTER_ZEROS = {"Mean": number(0.0), "Variance": number(0.0), "dtypes": ("float64",)}
_COUNTS = {"Steps": ints(4, 5, 1), "ClippedSteps": ints(1, 2, 1)}
_WITH_INFINITY = np.array([[1.5, np.inf, -2.0]])

_CLIPPING_BY_STEPS = [
    *(
        sample("adaptive_clip", X=floats(*shape), Param=floats(*shape), axes=axes, clipping=clipping)
        for shape, axes in [((3, 4), [0]), ((3, 2, 2, 2), [1, 2, 3]), ((5,), []), ((0, 3), [0]), ((3, 0), [0])]
        for clipping in (0.125, 64.0)
    ),
    sample("adaptive_clip", X=np.diag([3.0, 0.0, 0.5]), Param=np.zeros((3, 3)), axes=[-2], eps=0.5),
    *(
        sample("autoclip_threshold", X=[floats(3), floats(2, 2)], Count=np.array([count]), **_HISTORY, **attrs)
        for count in (0, 3, 4, 9)
        for attrs in ({}, {"percentile": 100.0}, {"percentile": 62.5})
    ),
    sample("autoclip_threshold", X=[_WITH_INFINITY], Count=np.array([2]), **_HISTORY, percentile=50.0),
    sample("autoclip_threshold", X=[_WITH_INFINITY], Count=np.array([0]), **_HISTORY),
    *(
        sample("zclip_threshold", X=[values], Count=np.array([count]), **_STATISTICS)
        for values in (np.array([0.5, -1.0]), np.array([2.0, 9.0]), _WITH_INFINITY)
        for count in (0, 24, 25, 99)
    ),
    sample("zclip_threshold", X=[floats(3)], Count=np.array([30]), **{**_STATISTICS, "Mean": number(0.0)}),
    sample("zclip_threshold", X=[floats(3)], Count=np.array([30]), **_AFTER_ZEROS),
]  # fmt: skip

_CHECKS = [
    *(
        sample("guard_nonfinite", X=[floats(3, 2), x], policy=policy, params=["w", "b"])
        for x, policy in [(floats(4), "raise"), (floats(4), "zero"), (_WITH_INFINITY, "zero"), (floats(0, 2), "zero")]
    ),
    *(
        sample(
            "guard_nonfinite",
            X=[x],
            Skipped=ints(3, 4, 1),
            outputs={"SkippedOut": 1},
            policy="skip",
            params=["w"],
            wrt=wrt,
        )
        for x, wrt in ((floats(3, 2), "X"), (_WITH_INFINITY, ""))
    ),
    *(
        sample(
            "clip_statistics", Before=[x, 2 * x], After=[scale * x, scale * 2 * x], **_COUNTS, params=["w", "b"], p=p
        )
        for x in (floats(3, 4), np.zeros(2), floats(0, 3))
        for scale in (1.0, 0.5)
        for p in (1.0, 2.0, np.inf)
    ),
]

_FLAGS = [np.array([False]), np.array([True])]

SAMPLES = [
    *_CLIPPING_BY_STEPS,
    *_CHECKS,
    *(
        sample(name, **given, **attrs, SkipUpdate=flags)
        for flags in (_FLAGS, _FLAGS[:1])
        for name, given, attrs in [
            ("sgd", PARAM, {}),
            ("momentum", PARAM, {"Velocity": floats(3, 4), "mu": 0.9}),
            ("adam", ADAM, {}),
            ("adamw", ADAM, {"with_decay": True}),
            ("lamb", ADAM, {"weight_decay": 0.1}),
            ("lars_momentum", PARAM, {"Velocity": floats(3, 4), "mu": 0.9}),
            ("dpsgd", PARAM, {"sigma": 0.0}),
            ("adamax", ADAPTIVE, {"Moment": floats(3, 4), "InfNorm": positive(3, 4), "Beta1Pow": number(0.9)}),
            ("adagrad", ADAPTIVE, {"Moment": positive(3, 4)}),
            ("decayed_adagrad", ADAPTIVE, {"Moment": positive(3, 4)}),
            (
                "adadelta",
                {"Param": floats(3, 4), "Grad": floats(3, 4), "dtypes": ("float64", "float32")},
                {"AvgSquaredGrad": positive(3, 4), "AvgSquaredUpdate": positive(3, 4)},
            ),
            ("rmsprop", ADAPTIVE, {"MeanSquare": positive(3, 4), "Moment": floats(3, 4)}),
            ("ftrl", ADAPTIVE, {"SquaredAccumulator": positive(3, 4), "LinearAccumulator": floats(3, 4)}),
        ]
    ),
]
