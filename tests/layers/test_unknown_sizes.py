"""Parameters whose shapes follow from sizes that only a run knows; that fluid 1.8.5 does so was recorded from it."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import OpError, ProgramError

pytestmark = pytest.mark.usefixtures("new_program")


@pytest.mark.parametrize(
    ("shape", "layer", "weight"),
    [
        ([None, 4, -1, -1], lambda x: layers.fc(x, 3), (4, 3)),
        ([None, -1, 4, -1], lambda x: layers.fc(x, 3), (4, 3)),
        ([None, 4, -1, -1], layers.layer_norm, (4,)),
    ],
)
def test_two_sizes_that_are_not_known_count_as_one(shape, layer, weight):
    x = fluid.data("x", shape)
    with pytest.warns(UserWarning, match=r"the 2 sizes of x: .* that are not known count as 1"):
        y = layer(x)
    assert fluid.default_main_program().all_parameters()[0].shape == weight
    fluid.optimizer.SGD(0.1).minimize(layers.reduce_mean(y))
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    feed = np.ones([2 if size is None else abs(size) for size in shape], "float32")
    exe.run(feed={"x": feed}, fetch_list=[y])
    with pytest.raises(OpError, match=r"has 16 columns but|for each of the 16 features"):
        exe.run(feed={"x": np.ones([2 if size in (None, -1) else size for size in shape], "float32")})


@pytest.mark.parametrize("layer", [lambda x: layers.fc(x, 3), layers.layer_norm])
def test_one_size_that_is_not_known_is_an_error(layer):
    with pytest.raises(ProgramError, match=r"the number of features of x: .* is not known"):
        layer(fluid.data("x", [None, 4, -1]))


def test_without_scale_and_shift_no_size_is_needed():
    assert layers.layer_norm(fluid.data("x", [None, 4, -1]), scale=False, shift=False).shape == (-1, 4, -1)
