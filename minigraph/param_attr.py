"""Options of a parameter that a layer creates."""

from __future__ import annotations

from typing import Any, ClassVar

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.initializer import Initializer
from minigraph.ir import Variable
from minigraph.regularizer import WeightDecayRegularizer
from minigraph.support.public import public

_RATE = 1.0
"""The factor on the learning rate unless one is given; then a parameter need not keep it."""


@public
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
    gradient_clip : GradientClipBase, optional
        The parameter's own clip (before fluid 1.8), as `minigraph.clip.set_gradient_clip` gives it.

    Raises
    ------
    ProgramError
        If `name` is the empty string.
    WrongTypeError
        If `gradient_clip` is no clip.
    """

    def __init__(
        self,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = _RATE,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = True,
        need_clip: bool = True,
        gradient_clip: Any = None,
    ) -> None:
        if name == "":
            raise ProgramError("the name of a ParamAttr cannot be empty", hint="Leave it out.")
        if gradient_clip is not None and not hasattr(gradient_clip, "emit"):
            raise WrongTypeError(
                f"a gradient clip must be a strategy such as GradientClipByNorm(1.0), got {gradient_clip!r:.60}"
            )
        self.name = name
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = trainable
        self.do_model_average = do_model_average
        self.need_clip = need_clip
        self.gradient_clip = gradient_clip

    @staticmethod
    def _to_attr(arg: Any) -> Any:
        """The `ParamAttr` of an argument, False for False, or a list of them for a list, as fluid's layers use it."""
        if isinstance(arg, list | tuple):
            return [ParamAttr._to_attr(each) for each in arg]
        if arg is None or arg is True:
            return ParamAttr()
        return as_param_attr(arg) or False

    def parameter_fields(self) -> dict[str, Any]:
        """The fields of the `minigraph.ir.Parameter` to make."""
        return {
            "optimize_attr": None if self.learning_rate is _RATE else {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "trainable": self.trainable,
            "do_model_average": self.do_model_average,
            "need_clip": self.need_clip,
            "gradient_clip": self.gradient_clip,
        }


_DEFAULT = ParamAttr()


@public
class WeightNormParamAttr(ParamAttr):
    """A `ParamAttr` of a weight whose length and direction are learned apart: ``w = g * v / norm(v)``.

    The parameters are ``<name>_g`` and ``<name>_v``; what the layer uses is computed from them in the main program.

    Parameters
    ----------
    dim : int, optional
        The dimension whose every slice has a length of its own. Default: one length for the whole weight.
    name, initializer, learning_rate, regularizer, trainable, do_model_average
        As in `ParamAttr`, for both parameters; the weight starts as `initializer` says.

    References
    ----------
    T. Salimans and D. Kingma, Weight normalization: a simple reparameterization to accelerate training of deep neural
    networks, NeurIPS 2016.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x = fluid.data("x", [None, 3])
    ...     y = fluid.layers.fc(x, 2, param_attr=fluid.WeightNormParamAttr(dim=1, name="w"), bias_attr=False)
    ...     [(param.name, param.shape) for param in fluid.default_main_program().all_parameters()]
    [('w_g', (1, 2)), ('w_v', (3, 2))]
    """

    params_with_weight_norm: ClassVar[list[Variable]] = []
    """Every weight that was made so."""

    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = False,
    ) -> None:
        super().__init__(name, initializer, learning_rate, regularizer, trainable, do_model_average)
        self.dim = dim


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
        f"a parameter attribute must be a ParamAttr, name, initializer, regularizer or bool, got {given!r:.80}"
    )
