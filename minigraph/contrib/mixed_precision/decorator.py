"""An optimizer that trains with float16, and the casts that it puts into the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from minigraph import unique_name
from minigraph.autodiff.backward import ParamsGrads
from minigraph.contrib.mixed_precision.lists import AutoMixedPrecisionLists
from minigraph.ir import Block, Operator, Program, Role, Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.layers import (
    Switch,
    assign,
    concat,
    create_global_var,
    fill_constant,
    increment,
    isfinite,
    less_than,
    reduce_sum,
    zeros_like,
)
from minigraph.optimizer.state import Parameters
from minigraph.optimizer.wrapping import WrappedOptimizer
from minigraph.support.public import public
from minigraph.types import DType, VarKind

_NAMES = {DType.FP16: "fp16", DType.FP32: "fp32"}


@public
def decorate(
    optimizer: Any,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 2**15,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = True,
) -> OptimizerWithMixedPrecision:
    """An optimizer whose forward and backward pass compute in float16, while parameters stay float32.

    Parameters
    ----------
    optimizer : Optimizer
    amp_lists : AutoMixedPrecisionLists, optional
        Which operators compute in float16.
    init_loss_scaling : float
        Factor of the loss, by which gradients are divided again.
    incr_every_n_steps, incr_ratio : int, float
        In the step after so many with finite gradients the factor is multiplied by the ratio.
    decr_every_n_nan_or_inf, decr_ratio : int, float
        Likewise after steps with gradients that are not finite, which update nothing.
    use_dynamic_loss_scaling : bool
        Whether the factor changes.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 2))
    ...     optimizer = decorate(fluid.optimizer.SGD(0.1), use_dynamic_loss_scaling=False)
    ...     ops, pairs = optimizer.minimize(loss)
    ...     [op.type for op in fluid.default_main_program().global_block().ops][:3]
    ['cast', 'cast', 'mul']
    """
    lists = amp_lists or AutoMixedPrecisionLists()
    return OptimizerWithMixedPrecision(
        optimizer, lists, init_loss_scaling, use_dynamic_loss_scaling, incr_every_n_steps, decr_every_n_nan_or_inf,
        incr_ratio, decr_ratio,
    )  # fmt: skip


@public
class OptimizerWithMixedPrecision(WrappedOptimizer):
    """Result of `decorate`, for the default main program."""

    def __init__(
        self, optimizer: Any, amp_lists: AutoMixedPrecisionLists, init_loss_scaling: float,
        use_dynamic_loss_scaling: bool, incr_every_n_steps: int, decr_every_n_nan_or_inf: int, incr_ratio: float,
        decr_ratio: float,
    ) -> None:  # fmt: skip
        super().__init__(optimizer)
        self._lists, self._ratios = amp_lists, (incr_ratio, decr_ratio)
        self._scaled_loss: Variable | None = None
        self._loss_scaling = _state("loss_scaling", init_loss_scaling, "float32")
        self._is_dynamic = use_dynamic_loss_scaling
        if self._is_dynamic:
            self._limits = [
                fill_constant([1], "int32", steps) for steps in (incr_every_n_steps, decr_every_n_nan_or_inf)
            ]
            self._good, self._bad = (_state(f"num_{kind}_steps", 0, "int32") for kind in ("good", "bad"))
        if isinstance(optimizer._learning_rate, float):
            rate = _state("learning_rate", optimizer._learning_rate, "float32")
            optimizer._learning_rate_map[default_main_program()] = rate

    def get_loss_scaling(self) -> Variable:
        """The factor of the loss, float32[1]."""
        return self._loss_scaling

    def get_scaled_loss(self) -> Variable | None:
        """The loss times the factor; None before `backward`."""
        return self._scaled_loss

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Parameters = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Sequence[Callable[..., None]] | None = None,
    ) -> ParamsGrads:
        """Insert casts, and append the backward pass of the scaled loss and the division of the gradients."""
        program = loss.block.program
        _insert_casts(program.global_block(), self._lists)
        self._scaled_loss = loss * self._loss_scaling
        pairs: ParamsGrads = self.inner_optimizer.backward(
            self._scaled_loss, startup_program, parameter_list, no_grad_set, callbacks
        )
        _move_casts(program.global_block(), pairs)
        found = []
        for param, grad in pairs:
            with program._optimized_guard([param, grad] if grad is not None else [param]):
                found.append((param, None if grad is None else grad / self._loss_scaling))
        return found

    def apply_gradients(self, scaled_params_grads: Any) -> list[Operator]:
        """Adapt the factor, and append the updates; gradients that are not finite are set to zero before."""
        if self._is_dynamic:
            sums = concat([reduce_sum(grad) for _, grad in scaled_params_grads if grad is not None])
            are_finite = isfinite(reduce_sum(sums))
            self._append_scaling(are_finite)
            with Switch() as switch:
                with switch.case(are_finite):
                    pass
                with switch.default():
                    for _, grad in scaled_params_grads:
                        assign(zeros_like(grad), grad)
        return super().apply_gradients(scaled_params_grads)

    def _append_scaling(self, are_finite: Variable) -> None:
        zero = fill_constant([1], "int32", 0)
        with Switch() as switch:
            with switch.case(are_finite), Switch() as enough:
                with enough.case(less_than(self._limits[0], self._good + 1)):
                    larger = self._loss_scaling * self._ratios[0]
                    with Switch() as possible:
                        with possible.case(isfinite(larger)):
                            assign(larger, self._loss_scaling)
                        with possible.default():
                            pass
                    assign(zero, self._good)
                    assign(zero, self._bad)
                with enough.default():
                    increment(self._good)
                    assign(zero, self._bad)
            with switch.default(), Switch() as enough:
                with enough.case(less_than(self._limits[1], self._bad + 1)):
                    smaller = self._loss_scaling * self._ratios[1]
                    one = fill_constant([1], "float32", 1.0)
                    with Switch() as possible:
                        with possible.case(less_than(smaller, one)):
                            assign(one, self._loss_scaling)
                        with possible.default():
                            assign(smaller, self._loss_scaling)
                    assign(zero, self._good)
                    assign(zero, self._bad)
                with enough.default():
                    assign(zero, self._good)
                    increment(self._bad)


def _state(name: str, value: float, dtype: str) -> Variable:
    return create_global_var([1], value, dtype, persistable=True, name=unique_name.generate(name))


def _insert_casts(block: Block, lists: AutoMixedPrecisionLists) -> None:
    """Let each operator read and write the type that the lists say, by casts of what it reads."""
    for op, dtype in _precisions(block, lists):
        other = DType.FP32 if dtype is DType.FP16 else DType.FP16
        for slot, names in sorted(op.inputs.items(), reverse=True):  # fluid's order of the casts
            if op.type == "batch_norm" and dtype is DType.FP16 and slot != "X":
                continue  # statistics, scale and shift stay float32
            for name in names:
                var = block.var(name)
                if var.dtype is other and var.kind in (VarKind.LOD_TENSOR, VarKind.SELECTED_ROWS):
                    op.replace_input(name, _cast(block, op, var, dtype))
        for slot, names in op.outputs.items():
            for name in names if dtype is DType.FP16 and (op.type != "batch_norm" or slot == "Y") else ():
                var = block.var(name)
                if var.dtype is DType.FP32 and var.tensor_type is not None:
                    var.tensor_type = var.tensor_type.with_dtype(dtype)


def _cast(block: Block, op: Operator, var: Variable, dtype: DType) -> str:
    name = f"{var.name}.cast_{_NAMES[dtype]}"
    if name not in block.vars:
        block.create_var(name=name, dtype=dtype)
        block.insert(op, "cast", {"X": var}, {"Out": name}, {"in_dtype": int(var.dtype), "out_dtype": int(dtype)})
    return name


def _precisions(block: Block, lists: AutoMixedPrecisionLists) -> list[tuple[Operator, DType]]:
    """Operators with the type in which they compute, without operators of which the type does not matter."""
    chosen: dict[Operator, DType] = {}
    makers: dict[str, Operator] = {}
    for op in block.ops:
        if lists.black_varnames.intersection((*op.input_arg_names, *op.output_arg_names)):
            chosen[op] = DType.FP32
        elif op.type in lists.white_list:
            chosen[op] = DType.FP16
        elif op.type in lists.gray_list:
            # The operator that made an input decides, float32 before float16.
            before = {chosen.get(makers[name]) for name in op.input_arg_names if name in makers}
            if before - {None}:
                chosen[op] = DType.FP32 if DType.FP32 in before else DType.FP16
        else:
            chosen[op] = DType.FP32
        makers.update(dict.fromkeys(op.output_arg_names, op))
    return list(chosen.items())


def _move_casts(block: Block, pairs: ParamsGrads) -> None:
    """Put the casts of gradients after the backward pass, so that what ranks exchange is float16."""
    makers = {name: op for op in block.ops for name in op.output_arg_names}
    for param, grad in pairs:
        cast = None if grad is None else makers.get(grad.name)
        if cast is None or cast.type != "cast":
            continue
        (source,) = cast.input("X")
        maker, attrs = makers[source], dict(cast.attrs)
        block.remove(cast)
        maker.role_vars = (*maker.role_vars, param.name, source)
        with block.program.role_guard(Role.OPTIMIZE):
            block.append_op("cast", {"X": source}, {"Out": grad}, attrs)
