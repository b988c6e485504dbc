"""Programs of several ranks that are wrong, each refused with the operator and the fix."""

import re

import pytest

import minigraph as fluid
from minigraph import layers, parallel
from minigraph.errors import VerifyError
from minigraph.ir import Role
from minigraph.layers.branches import ConditionalBlock
from minigraph.parallel import DataParallel
from minigraph.passes import GradAllReduce, ShardOptimizerState, SyncBatchNorm
from minigraph.passes.ranks.collective import feed_gradients_of_losses

RIGHT = {}
WRONG = {}


def case(table, *shown):
    def decorate(make):
        table[make.__name__] = (make, shown)
        return make

    return decorate


def training(clip=None, hidden=lambda x: x, error_clip=None, optimizer=fluid.optimizer.SGD, **options):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = hidden(layers.fc(fluid.data("x", [None, 4]), 4, param_attr="w", bias_attr=False))
        main.global_block().var("w").error_clip = error_clip
        loss = layers.mean(layers.fc(x, 1, param_attr="v", bias_attr=False))
        optimizer(0.1, grad_clip=clip, **options).minimize(loss)
    return main


def exchanged(main, ranks=2):
    GradAllReduce(ranks).apply(main)
    return main


def insert(main, type, inputs, outputs, before, role=Role.BACKWARD, **attrs):
    """Insert an operator; `before` is another operator, its type or None for the end."""
    block = main.global_block()
    anchor = block.ops.of_type(before)[0] if isinstance(before, str) else before
    names = {slot: name for slot, name in outputs.items() if not block.has_var(name)}
    for name in names.values():
        block.create_var(name=name)
    with block.inserting_before(anchor):
        return block.append_op(type, inputs, outputs, {"op_role": role, **attrs})


def exchange_of(main, name):
    return next(op for op in main.global_block().ops.of_type("c_allreduce_sum") if op.input("X") == [name])


def summed_by_hand(start=0.5, factor=1.0):
    """Sums between `backward` and `apply_gradients`, which have no role."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        optimizer = fluid.optimizer.SGD(0.1)
        loss = layers.mean(layers.fc(fluid.data("x", [None, 4]), 1, param_attr="w", bias_attr=False))
        ((weight, grad),) = optimizer.backward(loss)
        main.global_block().ops.of_type("fill_constant")[0].set_attr("value", start)
        main.global_block().append_op("c_allreduce_sum", {"X": grad}, {"Out": grad}, {"use_calc_stream": True})
        optimizer.apply_gradients([(weight, layers.clip_by_norm(grad * factor, 0.1))])
    return main


@case(RIGHT)
def sums_by_hand():
    return summed_by_hand()


@case(RIGHT)
def a_factor_besides_the_division():
    return summed_by_hand(factor=0.5)


@case(RIGHT)
def a_division_behind_the_sum():
    return summed_by_hand(start=1.0, factor=0.5)


@case(WRONG, "makes mean_0.tmp_0@GRAD, which is not divided by the number of ranks")
def sums_by_hand_without_a_division():
    return summed_by_hand(start=1.0)


@case(RIGHT)
def clips_and_decays():
    decay = fluid.regularizer.L2Decay(0.1)
    return exchanged(training(fluid.clip.GradientClipByGlobalNorm(1.0), regularization=decay))


@case(RIGHT)
def adam_and_a_schedule():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        loss = layers.mean(layers.fc(layers.dropout(fluid.data("x", [None, 4]), 0.5), 1))
        fluid.optimizer.Adam(layers.exponential_decay(0.1, 10, 0.5)).minimize(loss)
    return exchanged(main)


@case(RIGHT)
def a_rate_that_is_fed():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        rate = layers.scale(fluid.data("rate", [1]), 0.5)
        loss = layers.mean(layers.fc(fluid.data("x", [None, 4]), 1))
        fluid.optimizer.SGD(rate).minimize(loss)
    return exchanged(main)


@case(RIGHT)
def parameters_in_the_loss():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        loss = layers.mean(layers.fc(fluid.data("x", [None, 4]), 1, param_attr="w", bias_attr=False))
        loss = loss + layers.reduce_sum(layers.square(main.global_block().var("w")))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return exchanged(main)


@case(RIGHT)
def local_sgd():
    main = training()
    fluid.passes.LocalSGD(2).apply(main)
    return main


@case(WRONG, "clip_by_norm needs all of w@GRAD", "each rank then clips by its own norm")
def clip_before_the_sum():
    main = exchanged(training())
    insert(
        main,
        "clip_by_norm",
        {"X": "w@GRAD"},
        {"Out": "w@GRAD"},
        exchange_of(main, "w@GRAD"),
        Role.OPTIMIZE,
        max_norm=1.0,
    )
    return main


@case(WRONG, "c_allreduce_sum sums w@GRAD over the ranks, which c_allreduce_sum has done already", "Leave one")
def summed_twice():
    main = exchanged(training())
    insert(main, "c_allreduce_sum", {"X": "w@GRAD"}, {"Out": "w@GRAD"}, "sgd")
    return main


def gathered(then, after_sum=False):
    """The gradient of w, of which `then` makes one of what all ranks give."""
    main = exchanged(training())
    exchange = exchange_of(main, "w@GRAD")
    insert(main, "c_allgather", {"X": "w@GRAD"}, {"Out": "all"}, "sgd" if after_sum else exchange, nranks=2)
    insert(main, "c_sync_comm_stream", {"X": "all"}, {"Out": "all"}, "sgd")
    if not after_sum:
        main.global_block().remove(exchange)
    then(main)
    next(op for op in main.global_block().ops.of_type("sgd") if op.input("Param") == ["w"]).set_input("Grad", ["made"])
    return main


def added(main):
    insert(main, "reshape2", {"X": "all"}, {"Out": "rows", "XShape": "shape"}, "sgd", shape=[2, 4, 4])
    insert(main, "reduce_sum", {"X": "rows"}, {"Out": "made"}, "sgd", dim=[0])


@case(RIGHT)
def gradients_gathered_and_added():
    return gathered(added)


@case(WRONG, "c_allgather gathers w@GRAD, which c_allreduce_sum has summed already", "Leave one of the two out")
def a_sum_gathered_and_added():
    return gathered(added, after_sum=True)


@case(WRONG, "slice takes all, the parts of a sum of all ranks, for the sum", "reduce_sum over dimension 0")
def gathered_gradients_never_added():
    return gathered(lambda main: insert(main, "slice", {"Input": "all"}, {"Out": "made"}, "sgd", axes=[0], starts=[0],
                                        ends=[4]))  # fmt: skip


@case(WRONG, "assign keeps w, which is of the samples of one rank", "Sum w@GRAD over the ranks before it changes w")
def an_update_by_hand():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = layers.mean(layers.fc(fluid.data("x", [None, 4]), 1, param_attr="w", bias_attr=False))
        weight = main.global_block().var("w")
        layers.assign(weight - fluid.gradients(loss, weight)[0] * 0.1, weight)
    return main


@case(WRONG, "by scale_0.tmp_0, which is of the samples of one rank", "Average scale_0.tmp_0: c_allreduce_sum")
def a_rate_by_the_loss_of_a_declared_batch():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = layers.mean(layers.fc(fluid.data("x", [8, 4]), 1, param_attr="w", bias_attr=False))
        rate = layers.scale(loss, 0.1)
        rate.stop_gradient = True
        fluid.optimizer.SGD(rate).minimize(loss)
    return exchanged(main)


@case(RIGHT)
def a_rate_that_is_fed_beside_a_declared_batch():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = layers.mean(layers.fc(fluid.data("x", [8, 4]), 1))
        fluid.optimizer.SGD(fluid.data("rate", [1]) * 0.5).minimize(loss)
    return exchanged(main)


@case(WRONG, "conditional_block updates or exchanges if", "of the samples of one rank, says so", "Decide on all ranks")
def statistics_of_all_ranks_if_one_says_so():
    def hidden(x):
        return layers.cond(layers.reduce_sum(x) > 0.0, lambda: layers.batch_norm(x), lambda: x * 1.0)

    return exchanged(SyncBatchNorm()(training(hidden=hidden)))


@case(WRONG, "c_allreduce_sum sums learning_rate_0 over the ranks, where it is the same")
def a_replicated_value_summed():
    main = exchanged(training())
    rate = main.global_block().ops.of_type("sgd")[0].input("LearningRate")[0]
    insert(main, "c_allreduce_sum", {"X": rate}, {"Out": rate}, "sgd", Role.OPTIMIZE)
    return main


def scattered(main):
    """w@GRAD as one rank's rows of the sum, in `part`."""
    op = exchange_of(main, "w@GRAD")
    insert(main, "c_reducescatter", {"X": "w@GRAD"}, {"Out": "part"}, op, nranks=2)
    main.global_block().remove(op)
    return main


@case(WRONG, "clip_by_norm takes the norm of one rank's part of the elements", "squared_l2_norm, then c_allreduce_sum")
def norm_of_shards():
    main = scattered(exchanged(training()))
    insert(main, "clip_by_norm", {"X": "part"}, {"Out": "clipped"}, "sgd", Role.OPTIMIZE, max_norm=1.0)
    return main


@case(WRONG, "sqrt needs a value of all ranks")
def root_of_one_ranks_squares():
    main = scattered(exchanged(training()))
    insert(main, "squared_l2_norm", {"X": "part"}, {"Out": "squares"}, "sgd", Role.OPTIMIZE)
    insert(main, "sqrt", {"X": "squares"}, {"Out": "norm"}, "sgd", Role.OPTIMIZE)
    return main


@case(WRONG, "c_allreduce_sum sums largest, the maximum over each rank's part", "Use c_allreduce_max")
def maximum_norm_with_a_sum():
    main = scattered(exchanged(training()))
    insert(main, "reduce_max", {"X": "part"}, {"Out": "largest"}, "sgd", Role.OPTIMIZE, reduce_all=True)
    insert(main, "c_allreduce_sum", {"X": "largest"}, {"Out": "largest"}, "sgd", Role.OPTIMIZE)
    return main


def exchanged_by(type):
    """A training in which another exchange stands where the gradient of w is summed."""
    main = exchanged(training())
    reduction = exchange_of(main, "w@GRAD")
    insert(main, type, {"X": "w@GRAD"}, {"Out": "w@GRAD"}, reduction)
    main.global_block().remove(reduction)
    return main


@case(WRONG, "c_allreduce_min takes the minimum of w@GRAD, one rank's part of a sum", "Use c_allreduce_sum")
def minimum_of_parts():
    return exchanged_by("c_allreduce_min")


@case(WRONG, "c_allreduce_prod takes the product of w@GRAD, one rank's part of a sum", "Use c_allreduce_sum")
def product_of_parts():
    return exchanged_by("c_allreduce_prod")


@case(WRONG, "c_broadcast gives every rank the root's part of w@GRAD", "Use c_allreduce_sum")
def gradient_of_the_root():
    return exchanged_by("c_broadcast")


@case(WRONG, "c_allreduce_sum exchanges relu_0.tmp_0@GRAD, the gradient of relu_0.tmp_0, which is of the samples")
def gradients_of_samples_summed():
    main = exchanged(training(hidden=layers.relu))
    name = "relu_0.tmp_0@GRAD"
    insert(main, "c_allreduce_sum", {"X": name}, {"Out": name}, "relu_grad", use_calc_stream=True)
    return main


def used_twice():
    """A training whose parameter w has a gradient of two parts."""

    def hidden(x):
        w = x.block.var("w")
        return layers.matmul(x, w) + layers.reduce_sum(layers.square(w))

    return exchanged(training(hidden=hidden))


case(RIGHT)(used_twice)


def part_of_w(main):
    """The operator that adds up the gradient of w, and the name of one of its parts."""
    op = next(op for op in main.global_block().ops.of_type("sum") if op.output("Out") == ["w@GRAD"])
    return op, op.input("X")[0]


@case(WRONG, "c_allreduce_max takes the maximum of w@GRAD@RENAME@block0@0, one rank's part of a sum")
def maximum_of_a_part_of_a_gradient():
    main = used_twice()
    op, name = part_of_w(main)
    insert(main, "c_allreduce_max", {"X": name}, {"Out": name}, op, use_calc_stream=True)
    return main


@case(WRONG, "sum adds w, the same on every rank, to one rank's part", "Add it after")
def decay_among_the_parts_of_a_gradient():
    main = used_twice()
    op, name = part_of_w(main)
    op.set_input("X", [name, "w"])
    return main


@case(RIGHT)
def extremes_of_what_is_the_same():
    main = exchanged(training())
    for type, name in (("c_allreduce_max", "learning_rate_0"), ("c_allreduce_min", "w")):
        insert(main, type, {"X": name}, {"Out": name}, "sgd", Role.OPTIMIZE, use_calc_stream=True)
    return main


@case(WRONG, "sgd updates w before w@GRAD is summed over the ranks")
def update_before_the_sum():
    main = exchanged(training())
    block = main.global_block()
    update = next(op for op in block.ops.of_type("sgd") if op.input("Param") == ["w"])
    with block.inserting_before(exchange_of(main, "w@GRAD")):
        block.append_op("sgd", dict(update.inputs), dict(update.outputs), {"op_role": Role.OPTIMIZE})
    block.remove(update)
    return main


@case(WRONG, "elementwise_add adds merged, the same on every rank, to one rank's part", "accumulated gradients")
def gradients_accumulated_after_the_sum():
    main = exchanged(training())
    block = main.global_block()
    block.create_var(name="merged", shape=[4, 4], dtype="float32", persistable=True)
    op = exchange_of(main, "w@GRAD")
    insert(main, "elementwise_add", {"X": "merged", "Y": "w@GRAD"}, {"Out": "merged"}, op)
    op.set_input("X", ["merged"])
    return main


@case(WRONG, "sgd updates w by one rank's part of its gradient", "insert c_allreduce_sum")
def a_parameter_left_out():
    main = exchanged(training())
    main.global_block().remove(exchange_of(main, "w@GRAD"))
    return main


@case(WRONG, "clip clips w@GRAD before it is summed over the ranks, as an error_clip of a parameter does")
def error_clip_of_a_parameter():
    """The program of the original's transpiler, which never sums this gradient."""
    main = exchanged(training(error_clip=fluid.clip.ErrorClipByValue(0.1)))
    main.global_block().remove(exchange_of(main, "w@GRAD"))
    return main


@case(WRONG, "clip clips a gradient inside the backward pass, which is divided by the number of ranks there")
def a_threshold_that_depends_on_the_number_of_ranks():
    def clipped(x):
        x.error_clip = fluid.clip.ErrorClipByValue(0.1)
        return layers.relu(x)

    return exchanged(training(hidden=clipped))


@case(WRONG, "clip_by_norm clips a gradient inside the backward pass, which is divided by the number of ranks there")
def a_threshold_of_a_pass_without_roles():
    main = exchanged(training(hidden=layers.relu))
    name = "relu_0.tmp_0@GRAD"
    insert(main, "clip_by_norm", {"X": name}, {"Out": name}, "relu_grad", Role.FORWARD, max_norm=0.1)
    return main


@case(RIGHT)
def a_norm_that_is_only_recorded():
    main = exchanged(training(hidden=layers.relu))
    insert(main, "squared_l2_norm", {"X": "relu_0.tmp_0@GRAD"}, {"Out": "norm"}, "relu_grad", Role.FORWARD)
    return main


@case(WRONG, "batch_norm keeps batch_norm_0.w_1, which is of the samples of one rank", "sync_batch_norm=True")
def statistics_taken_for_global():
    return exchanged(training(hidden=layers.batch_norm))


@case(WRONG, "by rate, which is of the samples of one rank", "drift apart", "Average rate: c_allreduce_sum")
def a_rate_by_the_loss_of_one_rank():
    main = exchanged(training())
    loss = main.global_block().ops.of_type("mean")[0].output("Out")[0]
    insert(main, "scale", {"X": loss}, {"Out": "rate"}, "sgd", Role.FORWARD, scale=0.1)
    main.global_block().ops.of_type("sgd")[0].set_input("LearningRate", ["rate"])
    return main


@case(WRONG, "adds w, the same on every rank, to one rank's part", "Add it after")
def decay_before_the_sum():
    main = exchanged(training())
    insert(main, "elementwise_add", {"X": "w@GRAD", "Y": "w"}, {"Out": "w@GRAD"}, exchange_of(main, "w@GRAD"))
    return main


def divided(**options):
    """A program whose ranks each update a part of the parameters."""
    options = {"optimizer": fluid.optimizer.Momentum, "momentum": 0.9, **options}
    return ShardOptimizerState(2)(exchanged(training(fluid.clip.GradientClipByGlobalNorm(1.0), **options)))


case(RIGHT)(divided)


def only(main, type):
    (op,) = main.global_block().ops.of_type(type)
    return op


@case(WRONG, "clip_parts needs a value of all ranks, but gets norms of one rank's part", "for norms c_allgather")
def norms_of_one_ranks_parts():
    main = divided()
    op = only(main, "c_allgather")
    only(main, "clip_parts").set_input("Norms", op.input("X"))
    main.global_block().remove(op)
    return main


@case(WRONG, "c_allreduce_sum adds up", "squares add up, norms do not", "Use c_allgather")
def norms_added_up():
    main = divided()
    op = only(main, "c_allgather")
    insert(main, "c_allreduce_sum", {"X": op.input("X")[0]}, {"Out": op.input("X")[0]}, op, Role.OPTIMIZE)
    return main


@case(WRONG, "sgd updates each rank's part of v, which is never gathered", "Put c_gather_parts after the updates")
def a_parameter_not_gathered():
    main = divided(optimizer=lambda rate, momentum, grad_clip: fluid.optimizer.SGD(rate, grad_clip=grad_clip))
    main.global_block().remove(only(main, "c_gather_parts"))
    return main


@case(WRONG, "c_gather_parts gathers v.part into w, of which it is no part", "Gather what c_part has made of w")
def parts_of_another_parameter_gathered():
    main = divided()
    op = only(main, "c_gather_parts")
    op.set_input("X", ["v.part" if name == "w.part" else name for name in op.input("X")])
    return main


@case(WRONG, "momentum updates w by w_velocity_0, which is one rank's part of a sum", "drift apart")
def a_gradient_of_one_rank_in_the_state():
    main = exchanged(training(optimizer=fluid.optimizer.Momentum, momentum=0.9))
    insert(main, "assign", {"X": "w@GRAD"}, {"Out": "w_velocity_0"}, exchange_of(main, "w@GRAD")._prev)
    return main


@case(WRONG, "assign keeps w, which is one rank's part of a sum")
def a_gradient_of_one_rank_in_a_parameter():
    main = exchanged(training())
    insert(main, "assign", {"X": "w@GRAD"}, {"Out": "w"}, exchange_of(main, "w@GRAD")._prev)
    return main


@case(WRONG, "scale reads w, parts of which were updated and are not gathered yet", "Put it after the c_gather_parts")
def a_parameter_read_before_it_is_gathered():
    main = divided()
    insert(main, "scale", {"X": "w"}, {"Out": "early"}, "c_gather_parts", Role.OPTIMIZE)
    return main


@case(WRONG, "momentum updates all of v by v_velocity_0, one rank's part of the state", "Let it update c_part")
def all_of_a_parameter_by_a_part_of_its_state():
    main = divided()
    op = next(op for op in main.global_block().ops.of_type("momentum") if op.input("Param") == ["v.part"])
    op.set_input("Param", ["v"])
    op.set_output("ParamOut", ["v"])
    return main


@case(WRONG, "c_part takes a part of w@GRAD, one rank's part of a sum", "use c_reduce_parts")
def parts_of_gradients_that_are_not_summed():
    main = exchanged(training())
    insert(main, "c_part", {"X": "w@GRAD"}, {"Out": "part"}, exchange_of(main, "w@GRAD"), nranks=2)
    return main


def division(main):
    """The operator that divides the gradient of the loss."""
    return next(op for op in main.global_block().ops.of_type("scale") if op.role & Role.BACKWARD)


@case(WRONG, "sgd uses v@GRAD while c_allreduce_sum exchanges it", "Put c_sync_comm_stream with ring_id=0 in front")
def no_wait_for_the_exchange():
    main = exchanged(training())
    main.global_block().remove(only(main, "c_sync_comm_stream"))
    return main


@case(WRONG, "sgd uses v@GRAD while c_allreduce_sum exchanges it")
def a_late_wait_for_the_exchange():
    main = exchanged(training())
    wait = only(main, "c_sync_comm_stream")
    (name,) = wait.input("X")
    insert(main, "c_sync_comm_stream", {"X": name}, {"Out": name}, None)
    main.global_block().remove(wait)
    return main


@case(WRONG, "uses w@GRAD while c_allreduce_sum exchanges it", "ring_id=0 in front of it")
def no_wait_for_a_second_ring():
    main = GradAllReduce(2, rings=2)(training())
    main.global_block().remove(
        main.global_block().ops.of_type("c_sync_comm_stream")[exchange_of(main, "w@GRAD").attr("ring_id")]
    )
    return main


@case(
    WRONG, "c_allreduce_sum exchanges w@GRAD, which mul_grad may still compute", "Put c_sync_calc_stream in front of it"
)
def no_wait_for_the_computation():
    main = exchanged(training())
    main.global_block().remove(
        next(op for op in main.global_block().ops if op.type == "c_sync_calc_stream" and op.input("X") == ["w@GRAD"])
    )
    return main


@case(WRONG, "c_allreduce_sum is on ring 5, but the program has 2 rings", "Set ring_id to a number below 2")
def a_ring_of_its_own():
    main = exchanged(training())
    exchange_of(main, "w@GRAD").set_attr("ring_id", 5)
    insert(main, "c_sync_comm_stream", {"X": "w@GRAD"}, {"Out": "w@GRAD"}, "sgd", ring_id=5)
    return main


@case(WRONG, "fill_constant makes mean_0.tmp_0@GRAD, which is not divided by the number of ranks", "scales_loss=False")
def a_loss_that_is_not_scaled():
    main = exchanged(training())
    main.global_block().remove(division(main))
    return main


@case(
    WRONG,
    "scale divides mean_0.tmp_0@GRAD by the number of ranks, as scale has done already",
    "Leave one of the two out",
)
def a_loss_that_is_scaled_twice():
    main = exchanged(training())
    insert(main, "scale", {"X": "mean_0.tmp_0@GRAD"}, {"Out": "mean_0.tmp_0@GRAD"}, division(main), scale=0.5)
    return main


@case(WRONG, "elementwise_div divides w@GRAD by the number of ranks, as scale has done already")
def a_gradient_that_is_averaged_besides():
    main = exchanged(training())
    insert(main, "fill_constant", {}, {"Out": "two"}, "sgd", shape=[1], value=2.0)
    insert(main, "elementwise_div", {"X": "w@GRAD", "Y": "two"}, {"Out": "w@GRAD"}, "sgd")
    return main


@case(WRONG, "fill_constant makes mean_0.tmp_0@GRAD, which is not divided by the number of ranks: v@GRAD")
def one_gradient_of_two_averaged():
    main = GradAllReduce(2, scales_loss=False)(training())
    insert(main, "scale", {"X": "w@GRAD"}, {"Out": "w@GRAD"}, "sgd", scale=0.5)
    return main


@case(RIGHT)
def gradients_averaged_behind_the_sum():
    main = GradAllReduce(2, scales_loss=False)(training())
    for name in ("w@GRAD", "v@GRAD"):
        insert(main, "scale", {"X": name}, {"Out": name}, "sgd", scale=0.5)
    return main


@case(WRONG, "by means over the rows of one rank", "Leave slot_dim out")
def data_norm_of_slots():
    return exchanged(training(hidden=lambda x: layers.data_norm(x, slot_dim=2)))


@case(RIGHT)
def data_norm():
    return exchanged(training(hidden=layers.data_norm))


@case(RIGHT)
def statistics_that_are_only_used():
    return exchanged(training(hidden=lambda x: layers.batch_norm(x, use_global_stats=True)))


def merging(**options):
    inner = fluid.optimizer.Momentum(0.1, 0.9, **options)
    return training(optimizer=lambda rate, grad_clip: fluid.optimizer.GradientMergeOptimizer(inner, k_steps=2))


@case(RIGHT)
def gradients_merged_over_as_many_steps_as_ranks():
    return exchanged(merging(grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)))


@case(WRONG, "sum adds w@GRAD@GradientMerge_0, the same on every rank, to one rank's part")
def a_merged_gradient_left_out():
    main = exchanged(merging())
    main.global_block().remove(exchange_of(main, "w@GRAD"))
    return main


def scaled(**options):
    def optimizer(rate, grad_clip):
        return fluid.contrib.mixed_precision.decorate(fluid.optimizer.SGD(rate), **options)

    return training(optimizer=optimizer)


@case(RIGHT)
def a_loss_scaling_that_changes():
    return exchanged(scaled())


@case(RIGHT)
def a_loss_scaling_of_the_number_of_ranks():
    return exchanged(scaled(init_loss_scaling=2.0, use_dynamic_loss_scaling=False))


@case(RIGHT)
def updates_by_two_losses():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = layers.fc(fluid.data("x", [None, 4]), 4, param_attr="w", bias_attr=False)
        scores = layers.fc(x, 1, param_attr="v", bias_attr=False)
        fluid.optimizer.SGD(0.1).minimize(layers.mean(scores), parameter_list=["v"])
        fluid.optimizer.Adam(0.1).minimize(layers.mean(layers.square(scores)), parameter_list=["w"])
    return exchanged(main)


def centred(**attrs):
    """A network that subtracts the mean over the samples of all ranks."""

    def hidden(x):
        block = x.block
        total = block.create_var(name="total", stop_gradient=False)
        block.append_op("c_allreduce_sum", {"X": layers.reduce_mean(x, 0, keep_dim=True)}, {"Out": total}, attrs)
        return x - layers.scale(total, 0.5)

    main = training(hidden=hidden)
    GradAllReduce(2).apply(main)
    return main


@case(RIGHT)
def a_mean_over_ranks_in_the_network():
    return centred(use_calc_stream=True)


@case(
    WRONG, "c_allreduce_sum exchanges reduce_mean_0.tmp_0, which reduce_mean may still", "give it use_calc_stream=True"
)
def a_mean_over_ranks_without_waits():
    return centred()


@case(WRONG, "conditional_block updates or exchanges if", "of the samples of one rank, says so", "Decide on all ranks")
def updates_if_the_loss_of_a_rank_says_so():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        loss = layers.mean(layers.fc(fluid.data("x", [None, 4]), 1))
        optimizer = fluid.optimizer.SGD(0.1)
        pairs = optimizer.backward(loss)
        with main.role_guard(Role.OPTIMIZE), ConditionalBlock([loss < 5.0], is_scalar_condition=True).block():
            optimizer.apply_gradients(pairs)
    return exchanged(main)


def averaged():
    main = training()
    fluid.passes.LocalSGD(2).apply(main)
    return main


@case(WRONG, "sgd leaves v with the value of one rank", "Average v over the ranks after the updates")
def a_parameter_that_is_not_averaged():
    main = averaged()
    main.global_block().remove(exchange_of(main, "v"))
    return main


@case(WRONG, "elementwise_sub reads v, which is not divided by the number of ranks", "Put scale by 1 / ranks in front")
def a_sum_of_parameters():
    main = averaged()
    main.global_block().remove(next(op for op in main.global_block().ops.of_type("scale") if op.input("X") == ["v"]))
    return main


@case(WRONG, "scale adds a number, the same on every rank, to one rank's part", "Add it after")
def a_number_added_before_the_sum():
    main = exchanged(training())
    op = exchange_of(main, "w@GRAD")
    insert(main, "scale", {"X": "w@GRAD"}, {"Out": "w@GRAD"}, op._prev, scale=1.0, bias=0.1)
    return main


@case(WRONG, "gets a sum over one rank's part of the elements and a maximum over one rank's part", "in front of it")
def a_sum_and_a_maximum_of_one_ranks_part():
    main = scattered(exchanged(training()))
    for type, name in (("reduce_sum", "sum"), ("reduce_max", "largest")):
        insert(main, type, {"X": "part"}, {"Out": name}, "sgd", Role.OPTIMIZE, reduce_all=True)
    insert(main, "elementwise_add", {"X": "sum", "Y": "largest"}, {"Out": "both"}, "sgd", Role.OPTIMIZE)
    return main


@case(WRONG, "sgd updates w by w@GRAD, which is changed after its sum by numbers of one rank", "drift apart")
def a_dropout_of_a_gradient():
    main = exchanged(training())
    update = next(op for op in main.global_block().ops.of_type("sgd") if op.input("Param") == ["w"])
    insert(main, "dropout", {"X": "w@GRAD"}, {"Out": "w@GRAD", "Mask": "mask"}, update, Role.OPTIMIZE)
    return main


@case(RIGHT)
def a_dropout_of_a_gradient_by_a_seed():
    main = a_dropout_of_a_gradient()
    (op,) = main.global_block().ops.of_type("dropout")
    op.set_attr("fix_seed", True)
    op.set_attr("seed", 3)
    return main


@case(RIGHT)
def a_dropout_of_a_parameter():
    def hidden(x):
        weight = layers.dropout(layers.create_parameter([4, 4], "float32", name="u"), 0.5)
        return layers.matmul(x, weight)

    return exchanged(training(hidden=hidden))


@case(
    WRONG,
    "sqrt needs a value of all ranks, but gets norms of one rank's part",
    "for norms c_allgather",
)
def a_number_of_one_ranks_part():
    main = divided()
    attrs = {"reduction": "squares", "size": 16, "nranks": 2}
    insert(main, "part_reduction", {"X": "w@GRAD.part"}, {"Out": "number"}, "clip_parts", Role.OPTIMIZE, **attrs)
    insert(main, "sqrt", {"X": "number"}, {"Out": "root"}, "clip_parts", Role.OPTIMIZE)
    return main


@case(WRONG, "lamb updates w.part, one rank's part, by norms of all its elements", "Let it update the whole parameter")
def an_update_by_the_norm_of_a_part():
    main = exchanged(training(optimizer=fluid.optimizer.Lamb))
    block = main.global_block()
    op = next(op for op in block.ops.of_type("lamb") if op.input("Param") == ["w"])
    for name in ("w", "w@GRAD"):
        insert(main, "c_part", {"X": name}, {"Out": f"{name}.part"}, op, Role.OPTIMIZE, nranks=2)
    for name in ("w_moment1_0", "w_moment2_0"):
        block.vars[name].tensor_type = block.vars["w.part"].tensor_type
    op.set_input("Param", ["w.part"])
    op.set_input("Grad", ["w@GRAD.part"])
    op.set_output("ParamOut", ["w.part"])
    insert(main, "c_gather_parts", {"X": "w.part", "Whole": "w"}, {"Out": "w"}, op._next, Role.OPTIMIZE, nranks=2)
    return main


@case(
    WRONG, "mean_grad takes mean_0.tmp_0 for Out@GRAD, which flows back from no loss", "Give Out@GRAD the gradient of"
)
def a_loss_in_place_of_its_gradient():
    main = exchanged(training())
    main.global_block().ops.of_type("mean_grad")[0].set_input("Out@GRAD", ["mean_0.tmp_0"])
    return main


@case(WRONG, "mul_grad takes fc_0.tmp_0 for Out@GRAD, which flows back from no loss", "gradient of")
def rows_in_place_of_their_gradient():
    main = exchanged(training())
    main.global_block().ops.of_type("mul_grad")[1].set_input("Out@GRAD", ["fc_0.tmp_0"])
    return main


@case(WRONG, "mean_grad takes mean_0.tmp_0@GRAD for Out@GRAD, which flows back from no loss", "not divided")
def a_division_of_the_loss_in_place_of_its_gradient():
    main = exchanged(training())
    scale = next(op for op in main.global_block().ops.of_type("scale") if op.role & Role.BACKWARD)
    scale.set_input("X", ["mean_0.tmp_0"])
    return main


@case(RIGHT)
def a_gradient_that_is_fed():
    main = exchanged(training())
    feed_gradients_of_losses(main)
    return main


@case(RIGHT)
def a_gradient_from_elsewhere_in_the_loss():
    def hidden(x):
        (slope,) = fluid.gradients(layers.tanh(x), x, fluid.data("towards", [None, 4]))
        return x * slope

    return exchanged(training(hidden=hidden))


@case(WRONG, "sign changes the scale of a gradient inside the backward pass", "after their sum")
def signs_of_a_gradient_inside():
    main = exchanged(training())
    insert(main, "sign", {"X": "fc_1.tmp_0@GRAD"}, {"Out": "fc_1.tmp_0@GRAD"}, "mul_grad")
    return main


@case(RIGHT)
def signs_of_the_sum():
    main = exchanged(training())
    insert(main, "sign", {"X": "w@GRAD"}, {"Out": "w@GRAD"}, "sgd", Role.OPTIMIZE)
    return main


@case(WRONG, "c_sync_comm_stream reads w@GRAD and writes v@GRAD", "use assign to copy")
def a_wait_that_copies():
    main = exchanged(training())
    main.global_block().ops.of_type("c_sync_comm_stream")[0].set_input("X", ["w@GRAD"])
    return main


@case(WRONG, "c_sync_calc_stream reads w and writes v@GRAD", "it only waits")
def a_wait_for_the_computation_that_copies():
    main = exchanged(training())
    main.global_block().ops.of_type("c_sync_calc_stream")[0].set_input("X", ["w"])
    return main


@case(WRONG, "sgd reads v@GRAD.part, which nothing makes before it", "c_part")
def parts_of_gradients_that_nothing_makes():
    main = ShardOptimizerState(2)(exchanged(training()))
    main.global_block().remove(next(op for op in main.global_block().ops if "w@GRAD.part" in op.output_arg_names))
    return main


def with_running_statistics():
    return training(hidden=lambda x: layers.batch_norm(x, moving_mean_name="mean", moving_variance_name="variance"))


@case(WRONG, "c_allreduce_sum leaves mean as a sum over the ranks", "scale by 1 / ranks")
def running_statistics_that_are_summed():
    main = exchanged(with_running_statistics())
    for name in ("mean", "variance"):
        insert(main, "c_allreduce_sum", {"X": name}, {"Out": name}, None, Role.FORWARD, use_calc_stream=True)
    return main


def counting(*, sums_all):
    """Each run adds its samples to a variable, which is summed over the ranks, or what is added to it."""
    main = training()
    block = main.global_block()
    seen = block.create_var(name="seen", shape=[1], dtype="float32", persistable=True)
    with fluid.program_guard(main, fluid.Program()):
        rows = layers.cast(layers.slice(layers.shape(block.var("x")), axes=[0], starts=[0], ends=[1]), "float32")
        if not sums_all:
            block.append_op("c_allreduce_sum", {"X": rows}, {"Out": rows}, {"use_calc_stream": True})
        layers.assign(seen + rows, seen)
        if sums_all:
            block.append_op("c_allreduce_sum", {"X": seen}, {"Out": seen}, {"use_calc_stream": True})
    return exchanged(main)


@case(WRONG, "c_allreduce_sum leaves seen as a sum over the ranks", "sum only what a run adds")
def counts_that_are_summed_with_their_old_values():
    return counting(sums_all=True)


@case(RIGHT)
def counts_of_which_what_is_added_is_summed():
    return counting(sums_all=False)


@case(RIGHT)
def running_statistics_that_are_averaged():
    """By hand, in a program that DataParallel rewrites."""
    main = with_running_statistics()
    for name in ("mean", "variance"):
        insert(main, "c_allreduce_sum", {"X": name}, {"Out": name}, None, Role.FORWARD, use_calc_stream=True)
        insert(main, "scale", {"X": name}, {"Out": name}, None, Role.FORWARD, scale=0.5)
    return DataParallel(2)(main)


@case(WRONG, "clip_parts reads", "which nothing makes before it")
def norms_that_nothing_gathers():
    main = divided()
    main.global_block().remove(main.global_block().ops.of_type("c_allgather")[0])
    return main


@pytest.mark.parametrize("name", RIGHT)
def test_what_trains_like_one_rank_is_accepted(name):
    parallel.verify(RIGHT[name][0]())


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_is_refused_with_operator_and_fix(name):
    make, shown = WRONG[name]
    main = make()
    with pytest.raises(VerifyError) as error:
        parallel.verify(main)
    text = str(error.value)
    for each in shown:
        assert each in text, text
    assert error.value.op in list(main.global_block().ops)
    assert re.search(r"created at .*test_verifying.py:\d+", text)
    assert error.value.hint


def test_ranks_that_exchange_in_another_order_are_refused():
    first, second = exchanged(training()), exchanged(training())
    block = second.global_block()
    op = exchange_of(second, "w@GRAD")
    block.remove(op)
    insert(second, "c_allreduce_sum", {"X": "w@GRAD"}, {"Out": "w@GRAD"}, exchange_of(second, "v@GRAD"))
    with pytest.raises(VerifyError, match="rank 0 and rank 1 exchange in different order"):
        parallel.verify(first, second, statistics="local")


def test_statistics_of_each_rank_may_be_meant():
    parallel.verify(exchanged(training(hidden=layers.batch_norm)), statistics="local")
    DataParallel(2)(training(hidden=layers.batch_norm))


def test_a_program_for_another_number_of_ranks_is_refused():
    main = DataParallel(2)(training())
    with pytest.raises(VerifyError, match=r"scale divides mean_0.tmp_0@GRAD by 2, but there are 4 ranks"):
        DataParallel(4)(main)
    with pytest.raises(VerifyError, match="Divide it by 4"):
        parallel.verify(main, ranks=4)


def test_shards_of_a_rank_are_no_ranks():
    DataParallel(2, shards=8, exact=True)(training(fluid.clip.GradientClipByGlobalNorm(1.0)))


def test_a_sum_of_losses_may_be_meant():
    main = DataParallel(2, scales_loss=False)(training())
    parallel.verify(main, scales_loss=False)
    with pytest.raises(VerifyError, match="not divided"):
        parallel.verify(main)


def test_what_a_step_keeps_is_read_by_the_next():
    def descent(rate, grad_clip):
        return fluid.optimizer.SGD(layers.create_global_var([1], rate, "float32", persistable=True, name="rate"))

    main = training(optimizer=descent)
    with fluid.program_guard(main):
        loss = main.global_block().var(main.global_block().ops.of_type("mean")[0].output("Out")[0])
        layers.assign(loss, main.global_block().var("rate"))
    with pytest.raises(VerifyError, match=r"sgd updates . by rate, which is of the samples of one rank"):
        parallel.verify(exchanged(main), statistics="local")


def test_a_gradient_is_summed_before_an_error_clip_of_its_parameter():
    main = DataParallel(2)(training(error_clip=fluid.clip.ErrorClipByValue(0.1)))
    types = [op.type for op in main.global_block().ops if "w@GRAD" in op.output_arg_names]
    assert types == ["mul_grad", "c_sync_calc_stream", "c_allreduce_sum", "c_sync_comm_stream", "clip"]


def test_data_parallel_refuses_what_is_wrong():
    def clipped(x):
        x.error_clip = fluid.clip.ErrorClipByValue(0.1)
        return layers.relu(x)

    with pytest.raises(VerifyError, match="the threshold depends on how many ranks there are"):
        DataParallel(2)(training(hidden=clipped))
