"""Which plans are recorded as CUDA graphs, in which order that happens, and that recordings give what runs give.

The stand-in does what is asked of it at once; a graph of it calls the recorded function once more. So this shows what
is decided, what is copied where and in which order streams and events are used, and nothing of the driver.
"""

import numpy as np
import pytest
from asserting import assert_close
from host_cuda import Stream, launches, ndarray, needs_compiler, on_device
from kernel_calls import OTHER, calls
from networks import CLIPS, OPTIMIZERS, Network
from sampled import DETERMINISTIC, types_of

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError
from minigraph.executor.cuda import graph_capture as cuda_graph
from minigraph.executor.cuda.graph_capture import what_prevents
from minigraph.kernels import find_kernel
from minigraph.kernels.cuda.launching import Capturing
from minigraph.kernels.sparse_rows import SparseRows, merged, merged_or_repeated
from minigraph.runtime.place import CUDAPlace

OBSTACLE = cuda_graph.obstacle


@pytest.fixture
def recording(host_cuda, monkeypatch):
    """While it is recorded, a plan's function changes no state; a launch calls it again on the same memory."""
    call = cuda_graph._call
    monkeypatch.setattr(cuda_graph, "obstacle", OBSTACLE)

    def record(plan, inputs, state, buffers, targets):
        before = [array.copy() for array in state]
        ndarray.looked_at = ndarray.sent = 0
        fetched = call(plan, inputs, state, buffers, targets)
        assert (ndarray.looked_at, ndarray.sent) == (0, 0), "values went between the processor and the device"
        for array, old in zip(state, before, strict=True):
            array[...] = old
        for array in fetched:
            array.fill(77)  # recording computes nothing

        def replay():
            for target, value in zip(fetched, call(plan, inputs, state, buffers, targets), strict=True):
                target[...] = value

        host_cuda.replay = replay
        return fetched

    monkeypatch.setattr(cuda_graph, "_call", record)
    return host_cuda


def executor():
    return fluid.Executor(CUDAPlace(0))


def unrecorded():
    return fluid.Executor(CUDAPlace(0), cuda_graph=False)


def runs_of(network, each):
    return each._graphs[network.plan(each)]


@pytest.mark.laws
@needs_compiler
@pytest.mark.parametrize("clip", ["no clip", "global norm", "norm"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_recorded_plan_trains_as_one_that_is_not(optimizer, clip, recording):
    network = Network(optimizer, clip)
    names = [param.name for param, _ in network.params_grads] + [grad.name for _, grad in network.params_grads]
    recorded = executor()
    found = network.run(recorded, network.scope(), names, steps=5)
    assert runs_of(network, recorded).obstacle is None
    assert recording.events.count("begin") == 1
    assert recording.events.count("launch") == 4
    expected = network.run(unrecorded(), network.scope(), names, steps=5)
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes(), name


@pytest.mark.slow
@needs_compiler
def test_fused_operators_are_recorded_too(host_cuda_fused, recording):
    network, each = Network(), executor()
    found = network.run(each, network.scope(), steps=4)
    assert recording.events.count("launch") == 3
    assert launches.count("fused") % 5 == 0 < len(launches)  # one run, one recording, three launches
    expected = network.run(unrecorded(), network.scope(), steps=4)
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes(), name


@pytest.mark.slow
@needs_compiler
def test_state_that_is_replaced_is_written_to_where_it_was(recording):
    """The counter of a learning rate's schedule, and means of batch normalization."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4])
        hidden = layers.batch_norm(layers.fc(x, 3))
        loss = layers.mean(layers.square(hidden))
        rate = layers.exponential_decay(0.1, 1, 0.5)
        fluid.optimizer.Momentum(rate, 0.9).minimize(loss)
    feed = {"x": np.random.default_rng(0).random((6, 4), "float32")}
    start = fluid.Scope()
    fluid.Executor().run(startup, scope=start)
    results = []
    for each in (executor(), unrecorded()):
        scope = fluid.Scope()
        for name in start.local_var_names():
            scope.var(name).get_tensor().set(np.array(start.find_var(name).get_tensor()), fluid.CPUPlace())
        found = [each.run(main, feed, [loss, rate], scope=scope) for _ in range(5)]
        state = {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}
        results.append((found, state))
        replaced = each.plan_for(main, feed, [loss, rate]).compiled.replaces
    assert replaced
    assert recording.events.count("launch") == 4
    for one, other in zip(*(found for found, _ in results), strict=True):
        assert [a.tobytes() for a in one] == [a.tobytes() for a in other]
    assert results[0][1].keys() == results[1][1].keys()
    for name, value in results[1][1].items():
        assert results[0][1][name].tobytes() == value.tobytes(), name


@pytest.mark.slow
@needs_compiler
def test_the_calls_are_in_order(recording):
    network, each = Network(), executor()
    scope = network.scope()
    network.run(each, scope, steps=1)
    assert not {"begin", "launch"} & set(recording.events)
    recording.events.clear()
    network.run(each, scope, steps=1)
    send = ["the processor waits for an event", "other waits", "sent on other", "event on other", "main waits"]
    log = [entry for entry in recording.events if entry != "event on main"]
    assert log[:5] == send
    lasting = ["allocate from the driver", "allocate as before"]
    assert [entry for entry in log[5:] if not entry.startswith("sent")] == [
        "allocate from a pool of its own", "on other", "begin", *lasting * 3, "end", "on main", "allocate as before",
        "launch",
    ]  # fmt: skip
    recording.events.clear()
    network.run(each, scope, steps=1)
    assert [entry for entry in recording.events if entry != "event on main"] == [*send, "launch"]
    assert recording.events[-1] == "event on main"  # the memory of the feed is free when the launch is done


@pytest.mark.slow
@needs_compiler
def test_another_scope_is_recorded_anew_and_other_arrays_too(recording):
    network, each = Network(), executor()
    first, second = network.scope(), network.scope()
    network.run(each, first, steps=3)
    network.run(each, second, steps=1)
    assert recording.events.count("begin") == 2
    weight = network.params_grads[0][0].name
    second.var(weight).get_tensor().set(np.zeros_like(np.array(second.find_var(weight).get_tensor())), each.place)
    found = network.run(each, second, steps=1)
    assert recording.events.count("begin") == 3
    plain = unrecorded()
    expected = network.scope()
    network.run(plain, expected, steps=1)
    expected.var(weight).get_tensor().set(np.zeros_like(np.array(second.find_var(weight).get_tensor())), each.place)
    assert_close(found, network.run(plain, expected, steps=1))


@pytest.mark.slow
@needs_compiler
def test_a_plan_that_is_recorded_too_often_runs_as_before(recording):
    network, each = Network(), executor()
    scopes = [network.scope() for _ in range(2)]
    with pytest.warns(UserWarning, match="other arrays from run to run"):
        for number in range(12):
            network.run(each, scopes[number % 2], steps=1)
    assert recording.events.count("begin") == 8
    plain = unrecorded()
    found = network.run(each, scopes[0], steps=1)
    assert_close(found, network.run(plain, network.scope(), steps=7))


@pytest.mark.slow
@needs_compiler
def test_what_fails_while_it_is_recorded_runs_as_before(recording, monkeypatch):
    def fail(*args):
        raise RuntimeError("the current stream is capturing")

    monkeypatch.setattr(cuda_graph, "_call", fail)
    network, each = Network(), executor()
    scope = network.scope()
    network.run(each, scope, steps=1)
    with pytest.warns(UserWarning, match="could not be recorded: RuntimeError: the current stream is capturing"):
        found = network.run(each, scope, steps=1)
    assert recording.events.count("end") == 1
    found = network.run(each, scope, steps=1)
    assert "launch" not in recording.events
    assert_close(found, network.run(unrecorded(), network.scope(), steps=3))


@pytest.mark.slow
@needs_compiler
def test_a_recording_that_the_driver_refuses_runs_as_before(recording, monkeypatch):
    def refuse(stream):
        raise RuntimeError("cudaErrorStreamCaptureInvalidated")

    monkeypatch.setattr(Stream, "end_capture", refuse)
    network, each = Network(), executor()
    scope = network.scope()
    with pytest.warns(UserWarning, match="could not be recorded: RuntimeError: cudaErrorStreamCaptureInvalidated"):
        found = network.run(each, scope, steps=3)
    assert_close(found, network.run(unrecorded(), network.scope(), steps=3))


PROGRAMS = {
    "Label is computed": lambda x: layers.softmax_with_cross_entropy(x, layers.fill_constant([2, 1], "int64", 0)),
    "it draws random numbers": lambda x: layers.dropout(x, 0.5),
    "it has an effect": lambda x: layers.Print(x),
    "its kernel reads values": lambda x: layers.gather(x, layers.cast(layers.reduce_sum(x * 0.0), "int32")),
    "how often its block runs": lambda x: layers.while_loop(lambda y: layers.mean(y) > 0.0, lambda y: [y - 1.0], [x])[
        0
    ],
    "a shape depends on values": lambda x: layers.where(x > 0.5),
}


@needs_compiler
@pytest.mark.parametrize("reason", PROGRAMS)
def test_a_plan_that_looks_at_values_is_not_recorded(reason, recording, capfd):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        out = PROGRAMS[reason](fluid.data("x", [None, 3]))
        each = executor()
        for _ in range(3):
            each.run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[out])
    (runs,) = each._graphs.values()
    assert reason in runs.obstacle
    assert "begin" not in recording.events


def test_an_index_into_an_array_of_tensors_is_read_on_the_processor():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        number = layers.fill_constant([1], "int64", 0)
        layers.array_read(layers.array_write(number, number), number)
        layers.array_length(layers.array_write(number, number))
    of_arrays = [op for op in main.global_block().ops if "array" in op.type]
    assert {op.type for op in of_arrays} == {"write_to_array", "read_from_array", "lod_array_length"}
    assert all(what_prevents(op) is not None for op in of_arrays)


@needs_compiler
def test_a_program_that_makes_state_is_not_recorded(recording):
    network, each = Network(), executor()
    scope = fluid.Scope()
    for _ in range(3):
        each.run(network.startup, scope=scope)
    assert "begin" not in recording.events


def test_it_is_on_by_default_and_has_no_meaning_for_a_processor(host_cuda):
    assert fluid.Executor(CUDAPlace(0)).cuda_graph
    assert not fluid.Executor(cuda_graph=True).cuda_graph
    assert fluid.CompiledProgram(fluid.Program()).cuda_graph


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(("is_wanted", "launched"), [(True, 2), (False, 0)])
def test_a_build_strategy_turns_it_off(is_wanted, launched, recording):
    network = Network()
    strategy = fluid.BuildStrategy()
    strategy.cuda_graph = is_wanted
    each, scope = fluid.Executor(CUDAPlace(0)), network.scope()
    for _ in range(3):
        each.run(fluid.CompiledProgram(network.main, strategy), network.feed, [network.loss], scope=scope)
    assert recording.events.count("launch") == launched


def agree(found, expected):
    """Whether the results that a program has are close to those expected."""
    for value, wanted in zip(found, expected, strict=True):
        pairs = zip(value, wanted, strict=True) if isinstance(wanted, list) else [(value, wanted)]
        for one, other in pairs:
            if one is None or other is None:
                continue
            tolerance = 1e-2 if other.dtype == np.float16 else 1e-5
            if (one.dtype, one.shape) != (other.dtype, other.shape):
                return False
            if not np.allclose(np.asarray(one), other, rtol=tolerance, atol=tolerance, equal_nan=True):
                return False
    return True


@needs_compiler
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # an executor lets NaN and infinity pass, too
def test_a_kernel_that_is_recorded_neither_reads_values_nor_sends_any(host_cuda):
    """Every sample of every operator; what the processor and the device exchange is counted, and results compared."""
    wrong, right, different = set(), set(), set()
    for i, sample in enumerate(DETERMINISTIC):
        for call in [call for dtype in types_of(sample, i) for call in calls(sample, dtype)]:
            if what_prevents(call.op) is not None:
                continue
            inputs = [on_device(host_cuda, entry) for entry in call.inputs]
            kernel = find_kernel(call.op.type, "cuda").function
            ndarray.looked_at = ndarray.sent = 0
            with np.errstate(all="ignore"), Capturing(Stream([], "beside")):
                found = kernel(host_cuda, *inputs, **call.keywords)
            (right if (ndarray.looked_at, ndarray.sent) == (0, 0) else wrong).add(call.op.type)
            if not agree(call.by_slot(found), call.expected):
                different.add(call.op.type)
    assert not wrong, "these belong to those of what_prevents"
    assert not different
    assert right >= {"mul", "matmul", "conv2d", "softmax", "relu", "mean", "clip", "batch_norm", "adam", "merged_adam"}
    assert right >= {"softmax_with_cross_entropy", "cross_entropy2", "lookup_table_v2", "lookup_table_v2_grad"}


@needs_compiler
@pytest.mark.parametrize("join", [layers.concat, layers.stack, lambda xs, axis: layers.stack(xs, axis - 2)])
def test_many_arrays_are_joined_without_a_table_of_their_addresses(join, recording):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3])
        out = join([x * float(i) for i in range(12)], 1)
        recorded, plain = executor(), unrecorded()
        for seed in range(3):
            feed = {"x": np.random.default_rng(seed).random((2, 3), "float32")}
            (found,), (expected,) = (each.run(feed=feed, fetch_list=[out]) for each in (recorded, plain))
            assert found.tobytes() == expected.tobytes()
    assert recording.events.count("launch") == 2


def classifier(loss_of):
    """A table of rows, a layer and a loss with labels, trained; the programs and the loss."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, label = fluid.data("ids", [None, 2], "int64"), fluid.data("label", [None, 1], "int64")
        rows = layers.reshape(fluid.embedding(ids, [7, 4], padding_idx=6), [-1, 8])
        loss = layers.mean(loss_of(layers.fc(rows, 5), label))
        fluid.optimizer.Adam(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1)).minimize(loss)
    return main, startup, loss


LOSSES = {
    "softmax": layers.softmax_with_cross_entropy,
    "ignored labels": lambda x, label: layers.softmax_with_cross_entropy(x, label, ignore_index=9),
    "ignored class": lambda x, label: layers.softmax_with_cross_entropy(x, label, ignore_index=2),
    "probabilities": lambda x, label: layers.cross_entropy(layers.softmax(x), label),
}


def batch(seed=0, **changed):
    rng = np.random.default_rng(seed)
    feed = {"ids": rng.integers(0, 7, (6, 2)), "label": rng.integers(0, 5, (6, 1))}
    for name, value in changed.items():
        feed[name][1, 0] = value
    return feed


def snapshot(scope):
    return {name: np.array(scope.find_var(name).get_tensor()).tobytes() for name in scope.local_var_names()}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", LOSSES)
def test_a_classifier_is_recorded_and_trains_as_one_that_is_not(name, recording):
    main, startup, loss = classifier(LOSSES[name])
    results = []
    for each in (executor(), unrecorded()):
        scope = fluid.Scope()
        fluid.Executor().run(startup, scope=scope)
        feeds = [batch(seed, **({"label": 9} if name == "ignored labels" else {})) for seed in range(5)]
        losses = [each.run(main, feed, [loss], scope=scope)[0].tobytes() for feed in feeds]
        results.append((losses, snapshot(scope)))
    assert recording.events.count("launch") == 4
    assert results[0] == results[1]


def sparse_classifier(optimizer, lookups=1, padding=None, grad_clip=None):
    """`classifier` whose table gets gradients of selected rows, looked up several times."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, label = fluid.data("ids", [None, 2], "int64"), fluid.data("label", [None, 1], "int64")
        found = [
            fluid.embedding(ids, [7, 4], is_sparse=True, padding_idx=padding, param_attr="table")
            for _ in range(lookups)
        ]
        loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(layers.reshape(found[-1], [-1, 8]), 5), label))
        for rows in found[:-1]:
            loss = loss + layers.mean(layers.square(rows))
        optimizer(grad_clip).minimize(loss)
    return main, startup, loss


SPARSE = {
    "sgd": lambda clip: fluid.optimizer.SGD(0.1, grad_clip=clip),
    "adagrad": lambda clip: fluid.optimizer.Adagrad(0.1, grad_clip=clip),
    "lazy adam": lambda clip: fluid.optimizer.Adam(0.1, lazy_mode=True, grad_clip=clip),
}


def trained(each, main, startup, loss):
    scope = fluid.Scope()
    fluid.Executor().run(startup, scope=scope)
    return [each.run(main, batch(seed), [loss], scope=scope)[0].tobytes() for seed in range(5)], snapshot(scope)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("padding", [None, 6])
@pytest.mark.parametrize("lookups", [1, 2, 12])
@pytest.mark.parametrize("name", SPARSE)
def test_updates_of_selected_rows_are_recorded_and_give_the_same_bits(name, lookups, padding, recording):
    programs = sparse_classifier(SPARSE[name], lookups, padding)
    recorded = trained(executor(), *programs)
    assert recording.events.count("launch") == 4
    assert recorded == trained(unrecorded(), *programs)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (SPARSE["sgd"], {"grad_clip": fluid.clip.GradientClipByGlobalNorm(0.1)}),  # norms need each row once
        (lambda clip: fluid.optimizer.Momentum(0.1, 0.9), {}),  # changes the other rows, too
        (lambda clip: fluid.optimizer.Adam(0.1), {}),
    ],
)
def test_rows_that_must_be_different_are_not_recorded(optimizer, options, recording):
    programs = sparse_classifier(optimizer, **options)
    recorded = trained(executor(), *programs)
    assert "begin" not in recording.events
    assert recorded == trained(unrecorded(), *programs)


@pytest.mark.parametrize("numbers", [[], [3], [3, 3, 3], [5, 0, 5, 2, 0, 5]])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_are_merged_to_a_fixed_number(numbers, dtype):
    value = np.random.default_rng(0).standard_normal((len(numbers), 2)).astype(dtype)
    given = SparseRows(np.array(numbers, np.int64), value, 6)
    expected = merged(np, given)
    with Capturing(Stream([], "beside")):
        found = merged_or_repeated(OTHER, given)
    assert len(found.rows) == len(numbers)
    assert found.rows.tolist() == [*expected.rows, *[min(numbers, default=0)] * (len(numbers) - len(expected.rows))]
    for number, row in zip(found.rows, found.value, strict=True):
        assert row.tobytes() == expected.value[expected.rows == number].tobytes()


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("wrong", [{"label": 5}, {"label": -1}, {"ids": 7}, {"ids": -1}])
def test_a_wrong_label_is_the_error_of_a_plain_run_and_changes_nothing(wrong, recording):
    main, startup, loss = classifier(layers.softmax_with_cross_entropy)
    messages = []
    for each in (executor(), unrecorded()):
        scope = fluid.Scope()
        fluid.Executor().run(startup, scope=scope)
        for seed in range(3):
            each.run(main, batch(seed), [loss], scope=scope)
        before = snapshot(scope)
        with pytest.raises(ExecutionError) as caught:
            each.run(main, batch(3, **wrong), [loss], scope=scope)
        messages.append(str(caught.value))
        assert snapshot(scope) == before
        each.run(main, batch(4), [loss], scope=scope)
    assert messages[0] == messages[1]
    assert recording.events.count("launch") == 3


@pytest.mark.gpu
@pytest.mark.parametrize("padding", [None, 6])
@pytest.mark.parametrize("lookups", [1, 12])
@pytest.mark.parametrize("name", SPARSE)
def test_a_recording_updates_selected_rows_as_the_plan_on_a_gpu(name, lookups, padding, cuda_place):
    programs = sparse_classifier(SPARSE[name], lookups, padding)
    recorded = fluid.Executor(cuda_place)
    losses, state = trained(recorded, *programs)
    assert [runs.obstacle for runs in recorded._graphs.values()] == [None]
    plain_losses, plain_state = trained(fluid.Executor(cuda_place, cuda_graph=False), *programs)
    pairs = [*zip(losses, plain_losses, strict=True), *((state[key], plain_state[key]) for key in state)]
    for one, other in pairs:
        np.testing.assert_allclose(*(np.frombuffer(each, "float32") for each in (one, other)), rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_recording_trains_as_the_plan_on_a_gpu(optimizer, clip, cuda_place):
    network = Network(optimizer, clip)
    start, results = network.scope(), []
    for each in (fluid.Executor(cuda_place), fluid.Executor(cuda_place, cuda_graph=False)):
        scope = fluid.Scope()
        for name in start.local_var_names():
            scope.var(name).get_tensor().set(np.array(start.find_var(name).get_tensor()), fluid.CPUPlace())
        results.append(network.run(each, scope, steps=5))
        if each.cuda_graph:
            assert runs_of(network, each).obstacle is None
    for name, value in results[1].items():
        np.testing.assert_allclose(results[0][name], value, rtol=1e-5, atol=1e-6, err_msg=str(name))
