"""What a layer should know about a parameter that it creates."""

from __future__ import annotations

from typing import Any

from minigraph.errors import ProgramError, WrongTypeError, caller_site
from minigraph.initializer import Initializer
from minigraph.regularizer import WeightDecayRegularizer


class ParamAttr:
    """Name, start values and training of a parameter.

    Parameters
    ----------
    name : str, optional
        Using a name again shares the parameter.
    initializer : Initializer, optional
        Default: Xavier uniform for weights, zero for biases.
    learning_rate : float
        Factor on the optimizer's learning rate.
    regularizer : WeightDecayRegularizer, optional
        Wins over the optimizer's.
    trainable : bool
    do_model_average : bool
    need_clip : bool
        Whether an optimizer's clip concerns the parameter (Paddle 2).

    Raises
    ------
    ProgramError
        If `name` is the empty string.
    """

    def __init__(
        self,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = True,
        need_clip: bool = True,
    ) -> None:
        if name == "":
            raise ProgramError("the name of a ParamAttr cannot be empty", site=caller_site(), hint="Leave it out.")
        self.name = name
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = trainable
        self.do_model_average = do_model_average
        self.need_clip = need_clip

    def parameter_fields(self) -> dict[str, Any]:
        """The fields of the `minigraph.ir.Parameter` to make."""
        return {
            "optimize_attr": {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "trainable": self.trainable,
            "do_model_average": self.do_model_average,
            "need_clip": self.need_clip,
        }


_DEFAULT = ParamAttr()


def as_param_attr(given: Any) -> ParamAttr | None:
    """The `ParamAttr` that a ``param_attr`` argument stands for; None when it is False (no parameter wanted).

    A string is a name, an initializer or regularizer sets just that, None and True mean the defaults.

    Raises
    ------
    WrongTypeError
        If `given` is none of these.
    """
    if given is None or given is True:
        return _DEFAULT
    if given is False:
        return None
    if isinstance(given, ParamAttr):
        return given
    if isinstance(given, str):
        return ParamAttr(name=given)
    if isinstance(given, Initializer):
        return ParamAttr(initializer=given)
    if isinstance(given, WeightDecayRegularizer):
        return ParamAttr(regularizer=given)
    raise WrongTypeError(
        f"a parameter attribute must be a ParamAttr, name, initializer, regularizer or bool, got {given!r:.80}",
        site=caller_site(),
    )
