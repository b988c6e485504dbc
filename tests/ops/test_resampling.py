"""Images in other sizes are those that Paddle 1.8.5 computed, in float64 to the last digits."""

import numpy as np
import pytest
from one_op import append, gradient, run

from minigraph.errors import OpError

ROW = np.array([1.0, -2.0, 4.0]).reshape(1, 1, 1, 3)


@pytest.mark.parametrize(
    ("attrs", "expected", "slopes"),
    [
        (
            {"align_corners": True, "out_w": 7},
            [1, -5.960464477539063e-08, -1.0000000596046448, -2, 2.384185791015625e-07, 2.000000476837158, 4],
            [1.9999999403953552, 2.999999910593033, 2.0000001192092896],
        ),
        (
            {"align_corners": False, "out_w": 7},
            [1, -0.285714328289032, -1.5714285969734192, -0.28571438789367676, 2.2857143878936768, 4, 4],
            [1.714285671710968, 2.2857142984867096, 3],
        ),
        (
            {"align_corners": False, "align_mode": 0, "out_w": 7},
            [1, 0.5714285671710968, -0.7142857909202576, -2, 0.5714287757873535, 3.142857551574707, 4],
            [2.285714268684387, 2.4285713583230972, 2.2857143878936768],
        ),
    ],
)  # fmt: skip
def test_the_shares_of_neighbours_are_numbers_of_float32(attrs, expected, slopes):
    found = run("bilinear_interp", {"X": ROW}, out_h=1, **attrs)
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-15, atol=1e-15)
    found = gradient("bilinear_interp", {"X": ROW}, "X", out_h=1, cotangent=np.ones_like(found), **attrs)
    np.testing.assert_allclose(found.ravel(), slopes, rtol=1e-15)


def test_the_attribute_chooses_the_method_whatever_the_type():
    linear = [1, -1.0000000596046448, 2.384185791015625e-07, 4]
    np.testing.assert_allclose(run("nearest_interp", {"X": ROW}, out_h=1, out_w=4).ravel(), linear, rtol=1e-12)
    for type in ("nearest_interp", "bilinear_interp"):
        found = run(type, {"X": ROW}, out_h=1, out_w=4, interp_method="nearest")
        assert found.ravel().tolist() == [1, -2, -2, 4]
    with pytest.raises(OpError, match="interp_method must be bilinear or nearest"):
        append("nearest_interp", {"X": ROW}, out_h=1, out_w=4, interp_method="trilinear")


def test_half_way_is_told_in_float64():
    """Element 41 of 83 stands a little below one half in float32, to which a half is added."""
    found = run("nearest_interp", {"X": ROW[..., :2]}, out_h=1, out_w=83, interp_method="nearest")
    assert found.ravel()[38:45].tolist() == [1, 1, 1, 1, -2, -2, -2]


@pytest.mark.parametrize(
    ("align_corners", "align_mode", "expected"),
    [
        (True, 1, [[65, 117, 169, 117, 66], [89, 110, 130, 101, 72], [114, 103, 92, 85, 78]]),
        (False, 0, [[65, 106, 169, 107, 66], [89, 105, 130, 95, 72], [114, 105, 92, 83, 78]]),
        (False, 1, [[65, 127, 148, 86, 66], [97, 109, 108, 82, 74], [114, 100, 89, 80, 77]]),
    ],
)
def test_images_of_bytes_are_cut_to_integers(align_corners, align_mode, expected):
    image = np.array([[65, 169, 66], [114, 92, 78]], np.uint8).reshape(1, 1, 2, 3)
    found = run("bilinear_interp", {"X": image}, out_h=3, out_w=5, align_corners=align_corners, align_mode=align_mode)
    assert (found.dtype, found[0, 0].tolist()) == (np.dtype(np.uint8), expected)
    last = run("bilinear_interp", {"X": image.transpose(0, 2, 3, 1)}, out_h=3, out_w=5, data_layout="NHWC")
    assert last[0, :, :, 0].tolist() == [[65, 117, 169, 117, 66], [89, 110, 130, 101, 72], [114, 103, 92, 85, 78]]
