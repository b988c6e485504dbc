"""Programs that change gradients, rates and parameters by hand, as public scripts do: right ones and wrong ones."""

import re

import numpy as np
import pytest

import minigraph as fluid
from minigraph import clip, layers, optimizer, parallel
from minigraph.contrib import mixed_precision
from minigraph.errors import VerifyError
from minigraph.parallel import DataParallel
from minigraph.passes import LocalSGD
from minigraph.passes.ranks.collective import broadcast_parameters

ROWS, STEPS = 8, 3
_RNG = np.random.default_rng(3)
BATCH = {
    "x": _RNG.normal(size=(ROWS, 4)).astype("float32"),
    "y": _RNG.normal(size=(ROWS, 1)).astype("float32"),
    "label": _RNG.integers(0, 3, (ROWS, 1)),
}
RIGHT, RIGHT_SUMS, WRONG, WRONG_SUMS = {}, {}, {}, {}


def case(table, *shown):
    """A program for `DataParallel`, or in tables of sums one that has its own exchanges, given the number of ranks."""

    def decorate(make):
        table[make.__name__] = (make, shown)
        return make

    return decorate


def data(name):
    block = fluid.default_main_program().global_block()
    return block.vars.get(name) or fluid.data(name, [None, *BATCH[name].shape[1:]], str(BATCH[name].dtype))


def hidden():
    return layers.fc(data("x"), 4, act="tanh", param_attr="w", bias_attr=False)


def errors(x):
    return layers.square_error_cost(layers.fc(x, 1, param_attr="v", bias_attr=False), data("y"))


def loss():
    return layers.mean(errors(hidden()))


def pairs(of=None):
    return fluid.backward.append_backward(loss() if of is None else of)


def kept(name, shape, value=0.0):
    return layers.create_global_var(shape, value, "float32", persistable=True, name=name)


def exchange(var, type="c_allreduce_sum", **attrs):
    var.block.append_op(type, {"X": var}, {"Out": var}, {"use_calc_stream": True, **attrs})
    return var


def averaged(var, ranks):
    """The mean over the ranks."""
    return exchange(layers.scale(var, 1.0 / ranks)) if ranks > 1 else var


def descend(made, rate=0.1):
    optimizer.SGD(rate).apply_gradients(made)


@case(RIGHT)
def mixed_precision_around_recomputation(ranks):
    middle = hidden()
    inner = optimizer.RecomputeOptimizer(optimizer.Momentum(0.1, 0.9))
    inner._set_checkpoints([middle])
    options = {"init_loss_scaling": 8.0, "use_dynamic_loss_scaling": False}
    lists = mixed_precision.AutoMixedPrecisionLists(custom_black_list=["mul"])
    mixed_precision.decorate(inner, lists, **options).minimize(layers.mean(errors(middle)))


@case(RIGHT)
def two_groups_of_clips(ranks):
    mean = loss()
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(0.05, group_name="a"), [mean.block.var("w")])
    clip.set_gradient_clip(clip.GradientClipByNorm(0.02), [mean.block.var("v")])
    optimizer.SGD(0.1).minimize(mean)


@case(RIGHT)
def counts_of_all_ranks(ranks):
    scores = layers.fc(hidden(), 3)
    hits = layers.equal(layers.unsqueeze(layers.argmax(scores, -1), [1]), data("label"))
    hits = layers.reduce_sum(layers.cast(hits, "float32"))
    hits.stop_gradient = True
    if ranks > 1:
        exchange(hits)
    total = kept("hits", [1])
    layers.assign(total + hits, total)
    optimizer.SGD(0.1).minimize(layers.mean(layers.softmax_with_cross_entropy(scores, data("label"))))


@case(RIGHT)
def the_largest_of_all_ranks(ranks):
    x = hidden()
    largest = layers.reduce_max(layers.abs(x))
    largest.stop_gradient = True
    if ranks > 1:
        exchange(largest, "c_allreduce_max")
    seen = kept("seen", [1])
    layers.assign(layers.elementwise_max(seen, largest), seen)
    optimizer.SGD(0.1).minimize(layers.mean(errors(x)))


@case(RIGHT)
def updates_if_the_loss_of_all_ranks_says_so(ranks):
    mean = loss()
    made = pairs(mean)
    of_all = averaged(mean, ranks)
    layers.cond(of_all < 0.9, lambda: descend(made), None)


@case(RIGHT)
def a_rate_by_the_loss_of_all_ranks(ranks):
    mean = loss()
    rate = averaged(mean, ranks)
    rate.stop_gradient = True
    optimizer.SGD(layers.elementwise_min(rate, layers.fill_constant([1], "float32", 0.1))).minimize(mean)


@case(RIGHT)
def descent_by_assign(ranks):
    for param, grad in pairs():
        layers.assign(param - grad * 0.1, param)


@case(RIGHT)
def momentum_by_assign(ranks):
    for param, grad in pairs():
        velocity = kept(f"{param.name}_m", list(param.shape))
        layers.assign(velocity * 0.9 + grad, velocity)
        layers.assign(param - velocity * 0.1, param)


@case(RIGHT)
def a_global_norm_by_hand(ranks):
    made = pairs()
    norm = layers.sqrt(layers.sums([layers.reduce_sum(layers.square(grad)) for _, grad in made]))
    factor = 0.05 / layers.elementwise_max(norm, layers.fill_constant([1], "float32", 0.05))
    descend([(param, layers.elementwise_mul(grad, factor)) for param, grad in made])


@case(RIGHT)
def norms_by_those_of_parameters(ranks):
    made = []
    for param, grad in pairs():
        limit = layers.sqrt(layers.reduce_sum(layers.square(param))) * 0.01
        norm = layers.sqrt(layers.reduce_sum(layers.square(grad)))
        made.append((param, layers.elementwise_mul(grad, limit / layers.elementwise_max(norm, limit))))
    descend(made)


@case(RIGHT)
def centred_gradients(ranks):
    descend([(param, grad - layers.reduce_mean(grad, 0, keep_dim=True)) for param, grad in pairs()])


@case(RIGHT)
def signs_of_gradients(ranks):
    descend([(param, layers.sign(grad)) for param, grad in pairs()], 0.01)


@case(RIGHT)
def gradients_cut_to_half_precision(ranks):
    descend([(param, layers.cast(layers.cast(grad, "float16"), "float32")) for param, grad in pairs()])


@case(RIGHT)
def two_optimizers_of_one_backward_pass(ranks):
    first, second = pairs()
    optimizer.SGD(0.1).apply_gradients([first])
    optimizer.Adam(0.1).apply_gradients([second])


@case(RIGHT)
def a_network_that_follows_slowly(ranks):
    mean = loss()
    optimizer.SGD(0.1).minimize(mean)
    target = kept("target", [4, 4])
    layers.assign(target * 0.9 + mean.block.var("w") * 0.1, target)


@case(RIGHT)
def a_frozen_layer(ranks):
    x = hidden()
    x.stop_gradient = True
    optimizer.Adam(0.1).minimize(layers.mean(errors(x)))


@case(RIGHT)
def rates_and_decays_of_parameters(ranks):
    attr = fluid.ParamAttr("w", learning_rate=0.1, regularizer=fluid.regularizer.L2Decay(0.3))
    x = layers.fc(data("x"), 4, act="tanh", param_attr=attr, bias_attr=False)
    optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L1Decay(0.01)).minimize(layers.mean(errors(x)))


@case(RIGHT)
def a_weight_by_length_and_direction(ranks):
    attr = fluid.WeightNormParamAttr(dim=1, name="w")
    x = layers.fc(data("x"), 4, act="tanh", param_attr=attr, bias_attr=False)
    optimizer.SGD(0.1).minimize(layers.mean(errors(x)))


@case(RIGHT)
def a_rate_by_a_switch(ranks):
    step, rate = layers.autoincreased_step_counter(), kept("rate", [1], 0.1)
    with layers.Switch() as switch:
        with switch.case(step < layers.fill_constant([1], "int64", 2)):
            layers.assign(layers.fill_constant([1], "float32", 0.05), rate)
        with switch.default():
            layers.assign(layers.fill_constant([1], "float32", 0.2), rate)
    optimizer.SGD(rate).minimize(loss())


@case(RIGHT)
def rewards_and_entropy(ranks):
    chances = layers.softmax(layers.fc(hidden(), 3))
    chosen = layers.reduce_sum(chances * layers.one_hot(data("label"), 3), 1, keep_dim=True)
    entropy = -layers.reduce_sum(chances * layers.log(chances), 1, keep_dim=True)
    optimizer.SGD(0.1).minimize(layers.mean(-layers.log(chosen) * data("y") - 0.01 * entropy))


@case(RIGHT_SUMS)
def parameters_averaged(ranks):
    mean = loss()
    decay = fluid.regularizer.L2Decay(0.1)
    optimizer.Momentum(0.1, 0.9, regularization=decay).minimize(mean)
    for param in mean.block.program.all_parameters() if ranks > 1 else ():
        exchange(param).block.append_op("scale", {"X": param}, {"Out": param}, {"scale": 1.0 / ranks})


@case(RIGHT_SUMS)
def gradients_averaged_and_clipped(ranks):
    made = [(param, averaged(grad, ranks)) for param, grad in pairs()]
    optimizer.Momentum(0.1, 0.9, grad_clip=clip.GradientClipByGlobalNorm(0.05)).apply_gradients(made)


@case(RIGHT_SUMS)
def gradients_as_one_vector(ranks):
    made = pairs()
    flat = averaged(layers.concat([layers.reshape(grad, [-1]) for _, grad in made], 0), ranks)
    parts = layers.split(flat, [16, 4])
    descend([(param, layers.reshape(part, list(param.shape))) for (param, _), part in zip(made, parts, strict=True)])


@case(RIGHT_SUMS)
def gradients_sent_in_half_precision(ranks):
    descend([(param, layers.cast(averaged(layers.cast(grad, "float16"), ranks), "float32")) for param, grad in pairs()])


@case(WRONG, "sgd updates v by tmp_4, which is of the samples of one rank", "Average tmp_4")
def a_rate_by_the_samples_of_a_rank():
    seen = kept("seen", [1])
    rows = layers.cast(layers.slice(layers.shape(data("x")), [0], [0], [1]), "float32")
    layers.assign(seen + rows, seen)
    optimizer.SGD(0.1 / (1.0 + seen * 0.1)).minimize(loss())


@case(WRONG, "sgd updates v by rate, which is of the samples of one rank", "made by: ", "conditional_block")
def a_rate_by_the_best_loss_of_a_rank():
    mean, rate, best = loss(), kept("rate", [1], 0.1), kept("best", [1], 1e9)
    layers.cond(
        mean > best, lambda: layers.assign(rate * 0.5, rate) and None, lambda: layers.assign(mean, best) and None
    )
    optimizer.SGD(rate).minimize(mean)


@case(WRONG, "sgd updates v by", "which is changed after its sum by numbers of one rank", "c_allreduce_sum has summed")
def gradients_kept_if_the_loss_of_a_rank_says_so():
    mean = loss()
    gate = layers.cast(mean < 2.0, "float32")
    descend([(param, layers.elementwise_mul(grad, gate)) for param, grad in pairs(mean)])


@case(WRONG, "sgd updates v by", "which is changed after its sum by numbers of one rank", "drawn with a seed")
def noise_that_each_rank_draws():
    descend([(param, grad + layers.gaussian_random(list(param.shape), std=0.1)) for param, grad in pairs()])


@case(WRONG, "clip clips a gradient inside the backward pass", "Multiply the threshold by 1 / ranks")
def an_error_clip_of_a_layer():
    x = hidden()
    x.error_clip = clip.ErrorClipByValue(1e-3)
    optimizer.SGD(0.1).minimize(layers.mean(errors(x)))


def changed_before_the_sum(change):
    descend([(param, exchange(change(layers.scale(grad, 0.5)))) for param, grad in pairs()])


@case(WRONG_SUMS, "abs needs all of scale_0.tmp_0", "results of parts do not add up to it", "Sum the gradient over the")
def the_largest_elements_before_the_sum():
    def largest(grad):
        sizes = layers.abs(grad)
        limit = layers.reduce_min(layers.topk(layers.reshape(sizes, [1, -1]), 2)[0])
        return grad * layers.cast(layers.greater_equal(sizes, limit), "float32")

    changed_before_the_sum(largest)


@case(WRONG_SUMS, "sign needs all of scale_0.tmp_0", "results of parts do not add up to it")
def a_majority_of_signs():
    changed_before_the_sum(layers.sign)


@case(WRONG_SUMS, "norm needs all of scale_0.tmp_0", "each rank then clips by its own norm")
def gradients_of_length_1_before_the_sum():
    changed_before_the_sum(lambda grad: layers.l2_normalize(grad, 0))


@case(WRONG_SUMS, "isfinite needs all of scale_0.tmp_0")
def gradients_that_are_not_finite_dropped_before_the_sum():
    changed_before_the_sum(lambda grad: layers.elementwise_mul(grad, layers.cast(layers.isfinite(grad), "float32")))


@case(WRONG_SUMS, "adds gaussian_random_0.tmp_0, the same on every rank, to one rank's part", "Add it after")
def noise_of_a_seed_before_the_sum():
    changed_before_the_sum(lambda grad: grad + layers.gaussian_random(list(grad.shape), std=0.1, seed=3))


@case(WRONG_SUMS, "relu needs all of scale_0.tmp_0")
def positive_gradients_before_the_sum():
    changed_before_the_sum(layers.relu)


@case(WRONG_SUMS, "elementwise_max needs all of scale_0.tmp_0")
def bounded_gradients_before_the_sum():
    changed_before_the_sum(lambda grad: layers.elementwise_max(grad, layers.fill_constant([1], "float32", -0.1)))


@case(WRONG_SUMS, "square needs all of w@GRAD")
def squares_of_a_rank_in_the_state():
    made = []
    for param, grad in pairs():
        state = kept(f"{param.name}_m", list(param.shape))
        layers.assign(state * 0.9 + layers.square(grad), state)
        made.append((param, averaged(grad, 2) / (layers.sqrt(state) + 1e-3)))
    descend(made)


@case(WRONG_SUMS, "square needs all of w@GRAD")
def a_mean_of_the_norms_of_ranks():
    made = pairs()
    norm = averaged(layers.sqrt(layers.sums([layers.reduce_sum(layers.square(grad)) for _, grad in made])), 2)
    descend([(param, layers.elementwise_div(averaged(grad, 2), norm + 1.0)) for param, grad in made])


@case(WRONG_SUMS, "elementwise_add adds w_a, the same on every rank, to one rank's part", "accumulated gradients")
def all_steps_summed_in_each():
    made = []
    for param, grad in pairs():
        total = kept(f"{param.name}_a", list(param.shape))
        layers.assign(total + layers.scale(grad, 0.5), total)
        made.append((param, exchange(total)))
    descend(made)


@case(WRONG_SUMS, "sgd updates v by one rank's part of its gradient", "Sum v@GRAD over the ranks")
def one_gradient_of_two():
    first, second = pairs()
    descend([(first[0], averaged(first[1], 2)), second])


@case(WRONG_SUMS, "fill_constant makes mean_0.tmp_0@GRAD, which is not divided by the number of ranks")
def sums_that_nothing_divides():
    descend([(param, exchange(grad)) for param, grad in pairs()])


@case(WRONG_SUMS, "sgd updates v by one rank's part of its gradient")
def parameters_of_the_root():
    mean = loss()
    optimizer.SGD(0.1).minimize(mean)
    for param in mean.block.program.all_parameters():
        exchange(param, "c_broadcast", root=0)


@case(WRONG_SUMS, "c_allreduce_sum leaves w as a sum over the ranks", "Put scale by 1 / ranks after it")
def parameters_summed():
    mean = loss()
    optimizer.SGD(0.1).minimize(mean)
    for param in mean.block.program.all_parameters():
        exchange(param)


def averaging(minimize, names=("w", "v")):
    mean = loss()
    minimize(mean)
    for name in names:
        param = exchange(mean.block.var(name))
        param.block.append_op("scale", {"X": param}, {"Out": param}, {"scale": 0.5})


@case(WRONG_SUMS, "sgd leaves v with the value of one rank", "Average v over the ranks")
def one_parameter_of_two_averaged():
    averaging(lambda mean: optimizer.SGD(0.1).minimize(mean), ["w"])


@case(WRONG_SUMS, "adam updates v by state of one rank's gradients", "Sum gradients in place of parameters")
def parameters_of_adam_averaged():
    averaging(lambda mean: optimizer.Adam(0.1).minimize(mean))


@case(WRONG_SUMS, "clip_by_norm changes the gradient of one rank", "Sum gradients in place of parameters")
def parameters_averaged_behind_clips():
    averaging(lambda mean: optimizer.SGD(0.1, grad_clip=clip.GradientClipByNorm(0.1)).minimize(mean))


@case(WRONG_SUMS, "c_allreduce_sum sums w over the ranks, where it is the same", "divide it by the number of ranks")
def parameters_and_gradients_summed():
    descend([(param, averaged(grad, 2)) for param, grad in pairs()])
    exchange(fluid.default_main_program().global_block().var("w"))


def built(make, *arguments):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        make(*arguments)
    return main, startup


def train(make, rewrites, rank, ranks):
    """The state after some steps; the ranks take their samples in turns."""
    main, startup = built(make, ranks)
    if rewrites:
        rewrite = DataParallel(ranks)
        main = rewrite(main)
        rewrite.prepare(startup, main)
    elif ranks > 1:
        parallel.verify(main, ranks=ranks)
        broadcast_parameters(startup, 1)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    fed = [name for name, var in main.global_block().vars.items() if var.is_data]
    for step in range(STEPS):
        executor.run(main, {name: np.roll(BATCH[name], step, 0)[rank::ranks] for name in fed}, [], scope=scope)
    kinds = main.list_vars() if rewrites else main.all_parameters()  # ranks that average parameters have other state
    names = [var.name for var in kinds if var.persistable and var.dtype.is_floating]
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RIGHT, *RIGHT_SUMS])
def test_ranks_train_as_one_and_nothing_is_said(name, recwarn):
    make, _ = {**RIGHT, **RIGHT_SUMS}[name]
    expected = train(make, name in RIGHT, 0, 1)
    rtol = 2e-4 if "half_precision" in name else 1e-5
    for found in parallel.simulate(lambda rank: train(make, name in RIGHT, rank, 2), 2):
        for each, value in expected.items():
            np.testing.assert_allclose(found[each], value, rtol=rtol, atol=rtol / 5, err_msg=each)
    said = [str(each.message) for each in recwarn]
    assert all(each.startswith("each rank averages mean_0.tmp_0 over its own samples") for each in said), said


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [*WRONG, *WRONG_SUMS])
def test_what_one_rank_would_not_do_is_refused(name):
    make, shown = {**WRONG, **WRONG_SUMS}[name]
    main, _ = built(make)
    with pytest.raises(VerifyError) as error:
        DataParallel(2)(main) if name in WRONG else parallel.verify(main, ranks=2)
    text = str(error.value)
    for each in shown:
        assert each in text, text
    assert re.search(r"created at .*test_programs_by_hand.py:\d+", text)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_three_ranks_divide_by_three_as_the_original_does():
    """By a float32: in 1.8.5 ``scale`` of float64 1.0 and 3.0 by 1/3 is 0.33333334 and 1.00000003."""

    def step(rank, ranks):
        with fluid.unique_name.guard():
            main, startup = fluid.Program(), fluid.Program()
            with fluid.program_guard(main, startup):
                x = fluid.data("x", [None, 2], "float64")
                mean = layers.mean(layers.fc(x, 1, param_attr="u", bias_attr=False))
                ((_, grad),) = pairs(mean)
        feed = {"x": np.arange(12.0).reshape(6, 2)[rank::ranks]}
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        return executor.run(DataParallel(ranks)(main), feed, [grad], scope=scope)[0]

    expected = step(0, 1) * np.float64(np.float32(1 / 3)) * 3
    for found in parallel.simulate(lambda rank: step(rank, 3), 3):
        np.testing.assert_allclose(found, expected, rtol=1e-15)
    np.testing.assert_allclose(step(0, 1) * (1 + 2.98e-8), expected, rtol=1e-10)


def test_local_descent_says_that_each_rank_clips_its_own_gradients():
    """In the original, too, whose operators these are."""

    def clipped(strategy):
        main, _ = built(lambda: optimizer.SGD(0.1, grad_clip=strategy).minimize(loss()))
        return main

    for strategy in (clip.GradientClipByGlobalNorm(1.0), clip.GradientClipByNorm(1.0), clip.GradientClipByValue(1.0)):
        main = clipped(strategy)
        with pytest.warns(UserWarning, match=r"each rank clips its own (v@GRAD, w|w@GRAD, v)@GRAD.*use GradAllReduce"):
            LocalSGD(2).apply(main)
        parallel.verify(main, statistics="local")
        with pytest.raises(VerifyError, match="changes the gradient of one rank"):
            parallel.verify(main)
