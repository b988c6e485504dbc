"""Lists of the operators that compute in float16, those of fluid 1.8.5."""

from __future__ import annotations

from collections.abc import Iterable

from minigraph.errors import ProgramError
from minigraph.support.public import public

_WHITE = "conv2d matmul mul"
_BLACK = """
    exp square log mean sum cos_sim softmax softmax_with_cross_entropy sigmoid_cross_entropy_with_logits cross_entropy
    cross_entropy2
"""
_GRAY = """
    elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max elementwise_min elementwise_pow
    elementwise_mod elementwise_floordiv batch_norm tanh sigmoid lookup_table top_k pool2d pool3d dropout relu relu6
    leaky_relu soft_relu flatten2 stack unstack uniform_random_batch_size_like gaussian_random
    gaussian_random_batch_size_like slice rank scale transpose2 reshape2 gather fill_constant
    get_tensor_from_selected_rows sign cast
"""


@public
class AutoMixedPrecisionLists:
    """Types of operators: `white_list` in float16, `black_list` in float32, `gray_list` as what they read.

    Operators that are in no list compute in float32.

    Parameters
    ----------
    custom_white_list, custom_black_list : set of str, optional
        Types to move to a list.
    custom_black_varnames : set of str, optional
        Operators that read or write one of these variables compute in float32.

    Raises
    ------
    ProgramError
        If a type is moved to both lists.
    """

    def __init__(
        self,
        custom_white_list: Iterable[str] | None = None,
        custom_black_list: Iterable[str] | None = None,
        custom_black_varnames: Iterable[str] | None = None,
    ) -> None:
        white, black = set(custom_white_list or ()), set(custom_black_list or ())
        if white & black:
            raise ProgramError(f"{', '.join(sorted(white & black))} cannot be both in the white and in the black list")
        self.white_list = (set(_WHITE.split()) | white) - black
        self.black_list = (set(_BLACK.split()) | black) - white
        self.gray_list = set(_GRAY.split()) - white - black
        self.black_varnames = set(custom_black_varnames or ())
