"""Rows for losses of many classes that compute the scores of some only."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, positive, sample

_TABLES = {
    "CustomDistProbs": np.array([0.5, 0.25, 0.25], "float32"), "CustomDistAlias": np.array([-1, 0, 0], "int32"),
    "CustomDistAliasProbs": np.array([1.0, 0.75, 0.75], "float32"),
}  # fmt: skip
_SAMPLED = np.array([[1, 3, 2, 1], [4, 3, 2, 1]])
_CHANCES = np.array([[0.25, 0.5, 0.125, 0.25], [0.5, 0.5, 0.125, 0.25]])

SAMPLES = [
    *(
        sample("nce", Input=floats(batch, 4), Label=ints(0, 3, batch, true), Weight=floats(3, 4), num_total_classes=3,
               **given, **attrs, wrt="Input Weight" + " Bias" * ("Bias" in given), tolerance=1e-5)
        for batch, true, given in [
            (2, 1, {"Bias": floats(3, 1)}), (3, 2, {"SampleWeight": positive(3, 1), "Bias": floats(3, 1)}),
            (1, 1, {}), (0, 1, {}),
        ]
        for attrs in [
            {"num_neg_samples": 2, "custom_neg_classes": [2, 0]},
            {"num_neg_samples": 3, "custom_neg_classes": [2, 0, 2], "sampler": 1},
            {"num_neg_samples": 1, "custom_neg_classes": [1], "sampler": 2, **_TABLES},
        ]
    ),
    *(
        sample("nce", Input=floats(2, 4), Label=ints(0, 3, 2, 1), Weight=floats(3, 4), num_total_classes=3,
               num_neg_samples=4, sampler=sampler, is_random=True, **_TABLES)
        for sampler in (0, 1, 2)
    ),
    *(
        sample("hierarchical_sigmoid", X=floats(batch, 3), W=floats(classes - 1, 3), Label=ints(0, classes, batch, 1),
               num_classes=classes, **given)
        for batch, classes, given in [
            (4, 6, {"Bias": floats(5, 1)}), (3, 4, {}), (1, 2, {"Bias": floats(1, 1)}), (0, 5, {}),
        ]
    ),
    sample(
        "hierarchical_sigmoid", X=floats(2, 3), W=floats(4, 3), Label=np.array([[0], [1]]), num_classes=4,
        PathTable=np.array([[0, 2, -1], [0, 1, 3]]), PathCode=np.array([[1, 0, -1], [0, 1, 1]]), Bias=floats(4, 1),
    ),
    *(
        sample("sample_logits", Logits=floats(2, 5), Labels=np.array([[1], [4]]), CustomizedSamples=_SAMPLED,
               CustomizedProbabilities=_CHANCES, use_customized_samples=True, num_samples=3, wrt="Logits",
               remove_accidental_hits=remove)
        for remove in (False,)
    ),
    sample("sample_logits", Logits=floats(2, 5), Labels=np.array([[1], [4]]), num_samples=3, is_random=True),
    sample("sample_logits", Logits=floats(1, 1), Labels=np.array([[0]]), num_samples=1, seed=7,
           remove_accidental_hits=False),
]  # fmt: skip
