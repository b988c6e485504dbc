"""Clips, decays and optimizers that users derive in fluid's words; golden_scripts.py has their numbers on Paddle."""

from dataclasses import dataclass

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.clip import ClipPipeline, GradientClipByValue
from minigraph.errors import ClipError, NotFoundError
from minigraph.ir import Role
from minigraph.passes import ClipGradients


class Scaled(fluid.clip.GradientClipBase):
    def __init__(self, factor, need_clip=None):
        super().__init__(need_clip)
        self.factor = factor

    def _static_clip(self, params_grads):
        found = []
        for param, grad in params_grads:
            if self._need_clip_func is not None and not self._need_clip_func(param):
                found.append((param, grad))
                continue
            with param.block.program._optimized_guard([param, grad]):
                found.append((param, layers.scale(grad, self.factor)))
        return found


class Decay(fluid.regularizer.WeightDecayRegularizer):
    def __init__(self, coeff):
        super().__init__()
        self.coeff = coeff

    def __call__(self, param, grad, block):
        return layers.scale(param, self.coeff)


class Doubled(fluid.optimizer.Optimizer):
    """Gradient descent with a step that doubles."""

    def _create_accumulators(self, block, parameters):
        for param in parameters:
            self._add_accumulator("step", param, fill_value=1.0, shape=[1])

    def _append_optimize_op(self, block, param_and_grad):
        param, grad = param_and_grad
        rate = self._create_param_lr(param_and_grad) * self._get_accumulator("step", param)
        inputs = {"Param": param, "Grad": grad, "LearningRate": rate}
        return block.append_op(type="sgd", inputs=inputs, outputs={"ParamOut": param})

    def _finish_update(self, block, parameters_and_grads):
        for param, _ in parameters_and_grads:
            step = self._get_accumulator("step", param)
            block.append_op(type="scale", inputs={"X": step}, outputs={"Out": step}, attrs={"scale": 2.0})


pytestmark = pytest.mark.usefixtures("new_program", "new_scope")


def weights(count=2):
    """Parameters of two elements, each with the gradient [1, 2]."""
    start = fluid.initializer.Constant(1.0)
    params = [layers.create_parameter([2], "float32", f"w{i}", default_initializer=start) for i in range(count)]
    factor = layers.assign(np.array([1, 2], "float32"))
    return params, sum(layers.reduce_sum(param * factor) for param in params)


def after(optimizer, loss, steps=1):
    """What the parameters are after steps of an optimizer."""
    optimizer.minimize(loss)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    for _ in range(steps):
        exe.run()
    names = [param.name for param in fluid.default_main_program().all_parameters()]
    return [np.array(fluid.global_scope().find_var(name).get_tensor()).tolist() for name in names]


def sgd(**options):
    return fluid.optimizer.SGD(1.0, **options)


@pytest.mark.slow
def test_a_clip_in_fluids_words_is_asked_for_in_every_way():
    for clip, expected in [
        (Scaled(0.5), [[0.5, 0], [0.5, 0]]),
        (Scaled(0.5, need_clip=lambda param: param.name == "w1"), [[0, -1], [0.5, 0]]),
        (ClipPipeline([Scaled(0.5), GradientClipByValue(0.75)]), [[0.5, 0.25], [0.5, 0.25]]),
    ]:
        for ask in ("optimizer", "set_gradient_clip", "pass"):
            with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
                params, loss = weights()
                if ask == "optimizer":
                    assert after(sgd(grad_clip=clip), loss) == expected
                    continue
                if ask == "set_gradient_clip":
                    fluid.clip.set_gradient_clip(clip)
                    assert after(sgd(), loss) == expected
                    continue
                sgd().minimize(loss)
                for param in params:
                    param.gradient_clip = clip if clip.wants(param) else None
                exe = fluid.Executor()
                exe.run(fluid.default_startup_program())
                exe.run(ClipGradients()(fluid.default_main_program()))
                scope = fluid.global_scope()
                assert [np.array(scope.find_var(name).get_tensor()).tolist() for name in ("w0", "w1")] == expected


def test_what_a_clip_in_fluids_words_appends_has_the_role_of_a_clip():
    _, loss = weights()
    sgd(grad_clip=Scaled(0.5)).minimize(loss)
    ops = [op for op in fluid.default_main_program().global_block().ops if op.role & Role.CLIP]
    assert [(op.type, op.role_vars) for op in ops] == [("scale", ("w0", "w0@GRAD")), ("scale", ("w1", "w1@GRAD"))]
    assert fluid.clip.explain(fluid.default_main_program())


def test_clips_with_init_of_their_own_are_equal_to_themselves_only():
    clip = Scaled(0.5)
    assert clip == clip
    assert clip != Scaled(0.5)
    assert len({clip, Scaled(0.5), Scaled(0.25)}) == 3
    assert Decay(1.0) != Decay(1.0)

    @dataclass(frozen=True)
    class Fields(fluid.clip.GradientClipBase):
        factor: float

    assert Fields(1.0) == Fields(1.0) != Fields(2.0)
    assert GradientClipByValue(1.0) == GradientClipByValue(1.0)


def test_a_clip_may_be_built_on_another_one():
    class Half(fluid.clip.GradientClipByNorm):
        def _static_clip(self, params_grads):
            return [(param, layers.scale(grad, 0.5)) for param, grad in super()._static_clip(params_grads)]

    _, loss = weights(1)
    (found,) = after(sgd(grad_clip=Half(1.0)), loss)
    np.testing.assert_allclose(found, 1 - np.array([1, 2]) / np.sqrt(5) / 2, rtol=1e-6)


def test_single_operators_follow_the_context_of_all():
    class Counted(fluid.clip.GradientClipBase):
        def _process_context(self, context, param, grad):
            self.count = context["count"] = context.get("count", 0) + 1

        def _create_operators(self, param, grad):
            return param, layers.scale(grad, 1.0 / self.count)

    _, loss = weights(4)
    fluid.clip.set_gradient_clip(Counted())
    assert after(sgd(), loss) == [[0.75, 0.5]] * 4


def test_a_gradient_that_gets_lost_in_a_clip_is_an_error():
    class Losing(fluid.clip.GradientClipBase):
        def _static_clip(self, params_grads):
            return params_grads[:-1]

    _, loss = weights()
    with pytest.raises(ClipError, match="Losing returned no gradient for w1"):
        sgd(grad_clip=Losing()).minimize(loss)


def test_in_the_imperative_mode_strategies_of_users_do_the_same():
    for optimizer_of, expected in [
        (lambda params: sgd(parameter_list=params, grad_clip=Scaled(0.5)), [0.5, 0]),
        (lambda params: sgd(parameter_list=params, regularization=Decay(0.5)), [-0.5, -1.5]),
        (lambda params: Doubled(1.0, parameter_list=params), [0, -1]),
    ]:
        with fluid.dygraph.guard():
            w = layers.create_parameter([2], "float32", default_initializer=fluid.initializer.Constant(1.0))
            loss = layers.reduce_sum(w * fluid.dygraph.to_variable(np.array([1, 2], "float32")))
            loss.backward()
            optimizer_of([w]).minimize(loss)
            assert w.numpy().tolist() == expected

    class Called(Scaled):
        def _dygraph_clip(self, params_grads):
            return [(param, grad * self.factor) for param, grad in params_grads]

    with fluid.dygraph.guard():
        w = layers.create_parameter([2], "float32")
        for clip in (Called(0.5), Scaled(0.5)):
            ((_, grad),) = clip([(w, fluid.dygraph.to_variable(np.array([1, 2], "float32")))])
            assert grad.numpy().tolist() == [0.5, 1]


def test_a_decay_in_fluids_words_is_added_to_the_gradient():
    _, loss = weights(1)
    assert after(sgd(regularization=Decay(0.5)), loss) == [[-0.5, -1.5]]
    assert fluid.regularizer.L2Decay(0.25)._regularization_coeff == 0.25


def test_an_optimizer_in_fluids_words_has_state_and_a_last_word():
    _, loss = weights(1)
    optimizer = Doubled(0.5)
    assert optimizer._global_learning_rate() is None
    assert after(optimizer, loss, steps=3) == [[1 - 0.5 * 7, 1 - 1.0 * 7]]
    param = fluid.default_main_program().global_block().var("w0")
    step = optimizer._get_accumulator("step", param)
    assert np.array(fluid.global_scope().find_var(step.name).get_tensor()).tolist() == [8]
    assert optimizer._global_learning_rate().name == "learning_rate_0"
    assert optimizer._add_accumulator("step", param) is step
    with pytest.raises(NotFoundError, match=r"Doubled has no state 'steps' for w0(.|\n)*Did you mean step"):
        optimizer._get_accumulator("steps", param)


def test_an_optimizer_without_an_update_says_so():
    class Nothing(fluid.optimizer.Optimizer):
        pass

    _, loss = weights(1)
    with pytest.raises(TypeError, match="Nothing does not define its update, _append_optimize_op"):
        Nothing(0.1).minimize(loss)


def test_an_error_clip_in_fluids_words_works_inside_the_backward_pass():
    class Bounds(fluid.clip.BaseErrorClipAttr):
        def __init__(self, low, high):
            self.low, self.high = low, high

        def _append_clip_op(self, block, grad_name):
            block.append_op("clip", {"X": grad_name}, {"Out": grad_name}, {"min": self.low, "max": self.high})

    assert Bounds(0, 1) != Bounds(0, 2)
    start = fluid.initializer.Constant(1.0)
    w = layers.create_parameter([2], "float32", "w", default_initializer=start)
    hidden = layers.scale(w, 3.0)
    hidden.error_clip = Bounds(-1.0, 1.5)
    loss = layers.reduce_sum(hidden * layers.assign(np.array([-4, 4], "float32")))
    assert after(sgd(), loss) == [[1 + 3, 1 - 4.5]]


def test_guards_give_operators_their_roles():
    main = fluid.default_main_program()
    x = fluid.data("x", [2])
    with main._backward_role_guard():
        layers.scale(x, 1.0)
    with main._lr_schedule_guard():
        layers.scale(x, 2.0)
    with main._lr_schedule_guard(is_with_opt=True):
        layers.scale(x, 3.0)
    with main._optimized_guard([x, "x@GRAD"]):
        layers.scale(x, 4.0)
    layers.scale(x, 5.0)
    ops = main.global_block().ops
    roles = [Role.BACKWARD, Role.LR_SCHED, Role.LR_SCHED | Role.OPTIMIZE, Role.OPTIMIZE, Role.FORWARD]
    assert [op.role for op in ops] == roles
    assert [op.role_vars for op in ops] == [(), (), (), ("x", "x@GRAD"), ()]


def test_blocks_and_operators_have_fluids_spellings():
    block = fluid.default_main_program().global_block()
    x = fluid.data("x", [2])
    y = layers.scale(x, 2.0)
    assert block._find_var_recursive("x") is block._var_recursive("x") is x
    assert block._find_var_recursive("z") is None
    with pytest.raises(NotFoundError, match="neither block 0 nor a parent of it has a variable 'z'"):
        block._var_recursive("z")
    copied = fluid.Program().global_block()._clone_variable(y)
    assert (copied.name, copied.shape, copied.dtype, copied.persistable) == (y.name, y.shape, y.dtype, True)
    assert not fluid.Program().global_block()._clone_variable(y, force_persistable=False).persistable
    other = fluid.data("other", [2])
    (op,) = block.ops
    op._set_attr("scale", 3.0)
    op._rename_input("x", "other")
    assert (op.attr("scale"), op.input("X")) == (3.0, [other.name])
    block.create_var(name="out", shape=[2], dtype="float32")
    op._rename_output(y.name, "out")
    assert op.output("Out") == ["out"]


def test_a_regularizer_of_fluids_form_sets_its_own_fields():
    class Towards(fluid.regularizer.WeightDecayRegularizer):
        def __init__(self, point, regularization_coeff=0.0):
            super().__init__()
            self._regularization_coeff, self.point = regularization_coeff, point

        def __call__(self, param, grad, block):
            decay = block.create_var(name=fluid.unique_name.generate("decay"), dtype=param.dtype, shape=param.shape)
            block.append_op("scale", {"X": param}, {"Out": decay}, {"bias": -self.point, "bias_after_scale": False,
                                                                    "scale": self._regularization_coeff})  # fmt: skip
            return decay

    weight = fluid.layers.create_parameter([2], "float32", attr=fluid.ParamAttr("w", regularizer=Towards(3.0, 0.5)))
    fluid.optimizer.SGD(1.0).minimize(fluid.layers.mean(weight * 0.0))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    before, after = (executor.run(fetch_list=["w"])[0] for _ in range(2))
    np.testing.assert_allclose(after, before - 0.5 * (before - 3.0), rtol=1e-6)
    with pytest.raises(ValueError, match="regularization_coeff"):
        Towards(3.0, float("nan"))
