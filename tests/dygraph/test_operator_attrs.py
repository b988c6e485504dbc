"""Private attributes of fluid's layers: what they hold, as in Paddle 1.8.5, and that a value set to one counts."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import dygraph


@pytest.fixture(autouse=True)
def imperative():
    with fluid.unique_name.guard(), dygraph.guard():
        yield


RECORDED = [
    (
        lambda: dygraph.Conv2D(4, 6, 3, stride=1, padding=1, groups=2),
        {
            "_num_channels": 4, "_num_filters": 6, "_filter_size": 3, "_stride": [1, 1], "_padding": [1, 1],
            "_dilation": [1, 1], "_groups": 2, "_use_cudnn": True, "_act": None, "_param_attr": None,
        },
    ),
    (lambda: dygraph.Conv2D(4, 6, 3), {"_groups": None, "_padding": [0, 0], "_bias_attr": None}),
    (lambda: dygraph.Conv3D(2, 3, 3), {"_filter_size": 3, "_stride": [1, 1, 1], "_groups": None}),
    (
        lambda: dygraph.Conv2DTranspose(4, 6, 3),
        {"_filter_size": [3, 3], "_groups": 1, "_output_size": [], "_num_filters": 6},
    ),
    (lambda: dygraph.Conv3DTranspose(2, 3, 3), {"_filter_size": [3, 3, 3], "_groups": 1, "_num_channels": 2}),
    (
        lambda: dygraph.Pool2D(2, "max", 2),
        {
            "_pool_size": [2, 2], "_pool_type": "max", "_pool_stride": [2, 2], "_pool_padding": [0, 0],
            "_global_pooling": False, "_ceil_mode": False, "_exclusive": True,
        },
    ),
    (
        lambda: dygraph.BatchNorm(4),
        {
            "_momentum": 0.9, "_epsilon": 1e-5, "_data_layout": "NCHW", "_use_global_stats": False,
            "_trainable_statistics": False, "_act": None,
        },
    ),
    (
        lambda: dygraph.Embedding([5, 3]),
        {"_size": [5, 3], "_is_sparse": False, "_is_distributed": False, "_padding_idx": -1},
    ),
    (
        lambda: dygraph.LayerNorm([4]),
        {"_normalized_shape": [4], "_scale": True, "_shift": True, "_epsilon": 1e-5, "_act": None},
    ),
    (lambda: dygraph.GroupNorm(4, 2), {"_groups": 2, "_epsilon": 1e-5}),
    (lambda: dygraph.SpectralNorm([3, 4]), {"_dim": 0, "_power_iters": 1, "_eps": 1e-12}),
    (lambda: dygraph.Dropout(0.3), {"_dropout_prob": 0.3, "_dropout_implementation": "downgrade_in_infer"}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "expected"), RECORDED)
def test_they_hold_what_the_original_keeps(make, expected):
    layer = make()
    assert {name: getattr(layer, name) for name in expected} == expected


def test_statistics_are_frozen_by_the_attribute():
    layer = dygraph.BatchNorm(2)
    layer._use_global_stats = True
    result = layer(dygraph.to_variable(np.full((3, 2), 5.0, "float32")))
    np.testing.assert_allclose(result.numpy(), 5 / np.sqrt(1 + 1e-5), rtol=1e-6)
    assert layer._mean.numpy().tolist() == [0, 0]
    layer._use_global_stats, layer._momentum = False, 0.25
    layer(dygraph.to_variable(np.full((3, 2), 4.0, "float32")))
    assert layer._mean.numpy().tolist() == [3, 3]


def test_strides_and_chances_that_are_set_count():
    layer, drop = dygraph.Conv2D(1, 1, 1), dygraph.Dropout(0.0, dropout_implementation="upscale_in_train")
    layer._stride = [2, 2]
    assert layer(dygraph.to_variable(np.ones((1, 1, 4, 4), "float32"))).shape == (1, 1, 2, 2)
    drop._dropout_prob = 1.0
    assert not drop(dygraph.to_variable(np.ones((2, 2), "float32"))).numpy().any()
