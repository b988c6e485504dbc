"""Wrong calls end in errors of the project's own, which name what the user wrote, and leave nothing behind."""

import warnings

import golden_layers
import golden_sequences
import misuse
import misuse_calls
import numpy as np
import pytest

import minigraph as fluid
from minigraph import clip, layers
from minigraph.errors import (
    ClipError,
    FeedError,
    MinigraphError,
    NotFoundError,
    OpError,
    ProgramError,
    UnknownNameError,
    WrongTypeError,
)
from minigraph.passes import RemoveDeadOps

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield fluid.default_main_program(), fluid.default_startup_program()


def data(shape=(2, 4), dtype="float32", name="x"):
    return fluid.data(name, list(shape), dtype)


# Every argument of every function


@pytest.mark.slow
def test_layers_take_what_they_understand_or_say_what_is_wrong():
    faults, done = [], set()
    for function, arrays, _ in golden_layers.CASES.values():
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            variables = {name: fluid.data(name, array.shape, str(array.dtype)) for name, array in arrays.items()}
            function(misuse.Recording(layers, faults, done), **variables)
    assert not faults
    assert len(done) > 100


@pytest.mark.laws
@pytest.mark.parametrize("calls", misuse_calls.CALLS, ids=lambda calls: calls.__name__)
def test_functions_take_what_they_understand_or_say_what_is_wrong(calls):
    faults = []
    calls(misuse.Recording(fluid, faults, set()))
    assert not faults


@pytest.mark.slow
def test_objects_that_configure_training_are_checked_before_or_while_it_is_built():
    faults = []
    for cls, given, what in misuse_calls.constructors(fluid):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            misuse.misuse(
                cls, given, {}, faults, check=lambda made, what=what: misuse_calls.train(fluid, **{what: made})
            )
    assert not faults


@pytest.mark.slow
def test_every_layer_is_misused():
    called = set()

    class Names(misuse.Recording):
        def __getattr__(self, name):
            called.add(name)
            return super().__getattr__(name)

        def recorded(self, thing):
            return Names(thing, [], self._done, {})

    for calls in misuse_calls.CALLS:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            calls(Names(fluid, [], set(), {}))
    for function, arrays, _ in golden_layers.CASES.values():
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            variables = {name: fluid.data(name, array.shape, str(array.dtype)) for name, array in arrays.items()}
            function(Names(layers, [], set(), {}), **variables)
    for function, arrays, lengths, _ in golden_sequences.CASES.values():
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            given = golden_sequences.variables(fluid, arrays, lengths)
            function(Names(layers, [], set(), {}), **given)
    untried = set(layers.__all__) - called
    assert untried <= {"DecodeHelper", "Decoder", "RNNCell", "get_tensor_from_selected_rows", "merge_selected_rows"}, (
        untried
    )


# Operators on variables

UNKNOWN = {
    "text": lambda x: x + "a", "text on the left": lambda x: "a" + x, "nothing": lambda x: x + None,
    "an array": lambda x: x + np.ones(4), "an array on the left": lambda x: np.ones(4) + x, "a list": lambda x: x * [1],
    "a list on the left": lambda x: [1] - x, "a power of text": lambda x: x ** "a", "complex": lambda x: x / 1j,
    "too large": lambda x: x * 10**400, "division by zero": lambda x: x / 0, "text modulo": lambda x: x % "a",
    "text in a 0-d array": lambda x: x + np.array("a"), "compared with a list": lambda x: x == [1, 2],
    "compared with text": lambda x: x < "a", "combined with a number": lambda x: x & 1,
    "a function of NumPy": lambda x: np.sin(x), "a sum by NumPy": lambda x: np.add(x, 1), "len": len, "float": float,
    "int": int, "an index": lambda x: [1, 2][x], "an array of it": np.array, "its value": lambda x: x.numpy(),
    "assigned in parts": lambda x: x.__setitem__(0, 1), "backward": lambda x: x.backward(),
    "its gradient": lambda x: x.gradient(), "cleared": lambda x: x.clear_gradient(), "detached": lambda x: x.detach(),
    "given a value": lambda x: x.set_value(np.ones(4)),
}  # fmt: skip


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_no_operator_means_is_an_error_with_line_and_hint(what, programs):
    x = data()
    before = misuse.state_of(*programs)
    with pytest.raises(MinigraphError) as caught:
        UNKNOWN[what](x)
    assert caught.value.site.filename == __file__
    assert caught.value.hint
    assert misuse.state_of(*programs) == before


def test_scalars_of_numpy_stand_on_either_side():
    x = data()
    found = [np.float32(2) * x, np.float64(2) - x, np.int64(3) + x, x / np.float16(2), np.float32(2) < x]
    assert [str(each.dtype) for each in found] == ["float32"] * 4 + ["bool"]
    values = fluid.Executor().run(feed={"x": np.full((2, 4), 4.0, "float32")}, fetch_list=found)
    assert [value.ravel()[0] for value in values] == [8, -2, 7, 2, True]


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [(layers, "conv2D", "conv2d"), (fluid, "layrs", "layers"), (fluid.optimizer, "Adm", "Adam"), (clip, "zzz", "dir")],
)
def test_an_unknown_name_of_a_module_suggests(module, name, hint):
    with pytest.raises(UnknownNameError, match=rf"(?s)has no '{name}'.*{hint}") as caught:
        getattr(module, name)
    assert caught.value.site.filename == __file__
    assert not hasattr(module, name)


def test_an_attribute_that_was_not_set_has_its_default():
    op = layers.scale(data(), 2.0).block.ops[-1]
    assert (op.attrs["scale"], op.attrs["bias"], op.attr("bias")) == (2.0, 0.0, 0.0)
    assert "bias" not in op.attrs and op.attrs.get("bias") == 0.0, "the mapping holds what was set, and gives the rest"
    with pytest.raises(KeyError, match=r"(?s)no attribute 'biass'.*Did you mean bias"):
        op.attrs["biass"]


# All or nothing


def never_ends(x, **_):
    with layers.StaticRNN().step():
        layers.fc(x, 2)
        raise ZeroDivisionError


def fails_in_a_case(x, **_):
    with layers.Switch() as switch, switch.case(layers.reduce_any(x > 0.0)):
        layers.fc(x, 2)
        raise ZeroDivisionError


def fails_in_a_body(x, **_):
    i = layers.fill_constant([1], "int64", 0)
    layers.while_loop(lambda i: i < 3, lambda i: [layers.fc(x, 2, act="rellu")], [i])


FAILING = {
    "activation": lambda x, **_: layers.fc(x, 3, act="rellu"),
    "initializer": lambda x, **_: layers.fc(x, 3, param_attr=fluid.initializer.NumpyArrayInitializer(np.ones(5))),
    "second input": lambda x, **_: layers.fc([x, None], 3),
    "batch norm": lambda image, **_: layers.batch_norm(image, data_layout="NCWH"),
    "nets": lambda image, **_: fluid.nets.simple_img_conv_pool(image, 4, 1, 1, 1, pool_type="min"),
    "cell": lambda x, sequence, cell, **_: layers.rnn(cell, sequence, initial_states=[x]),
    "step": never_ends,
    "case": fails_in_a_case,
    "loop": fails_in_a_body,
    "branch": lambda x, truth, **_: layers.cond(truth, lambda: layers.fc(x, 3), lambda: layers.fc(x, 3, act="a")),
    "subscript": lambda x, index, **_: x[index, ::0],
    "subscript after a constant": lambda x, index, **_: x[index, 99],
    "comparison": lambda x, **_: x < x.block.var("wide"),
    "minimize": lambda out, **_: fluid.optimizer.Adam(0.1).minimize(out),
    "clip": lambda loss, **_: fluid.optimizer.Adam(0.1, grad_clip=clip.GradientClipByValue(1e39)).minimize(loss),
    "gradients": lambda x, loss, **_: fluid.gradients([loss], [x], [x]),
    "backward of what has no gradient": lambda x, loss, **_: fluid.append_backward(loss, parameter_list=["none"]),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILING)
def test_a_call_that_fails_leaves_nothing_behind(what, programs):
    x = data()
    out = layers.fc(x, 2)
    given = {
        "x": x, "out": out, "loss": layers.mean(out), "image": data((2, 2, 2, 1), name="image"),
        "sequence": data((2, 2, 2), name="sequence"), "truth": layers.reduce_any(x > 0.0),
        "index": layers.fill_constant([1], "int64", 0), "wide": data((3, 7), "int64", "wide"),
        "cell": layers.LSTMCell(3),
    }  # fmt: skip
    # The calls before the one that fails, such as that of StaticRNN(), stay.
    text, before = list(map(str, programs)), misuse.state_of(*programs)
    with pytest.raises((MinigraphError, ZeroDivisionError)):
        FAILING[what](**given)
    if what not in ("case", "loop"):
        assert list(map(str, programs)) == text
        assert what == "step" or misuse.state_of(*programs) == before
    loss = layers.mean(layers.fc(x, 3))
    fluid.optimizer.SGD(0.1).minimize(loss)
    for program in programs:
        fluid.verify(program)
        assert (program.current_block_idx, program.backward_passes, len(program.blocks)) in ((0, 1, 1), (0, 0, 1))
        assert program.current_role == 0
    fluid.Executor().run(programs[1])
    (value,) = fluid.Executor().run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[loss])
    assert np.isfinite(value).all()


def test_a_retry_gives_the_names_and_the_text_of_a_first_call(programs):
    x = data()
    with pytest.raises(NotFoundError, match="rellu"):
        layers.fc(x, 3, act="rellu")
    out = layers.fc(x, 3, act="relu")
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        again = layers.fc(data(), 3, act="relu")
        assert (str(fluid.default_main_program()), again.name) == (str(programs[0]), out.name)
        assert str(fluid.default_startup_program()) == str(programs[1])


def test_an_optimizer_that_failed_can_be_used_again():
    x, optimizer = data(), fluid.optimizer.Adam(0.1, grad_clip=clip.GradientClipByValue(1e39))
    loss = layers.mean(layers.fc(x, 1))
    with pytest.raises(ClipError):
        optimizer.minimize(loss)
    optimizer._grad_clip = None
    optimizer.minimize(loss)
    fluid.Executor().run(fluid.default_startup_program())
    fluid.Executor().run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[loss])


def test_a_cell_that_failed_can_be_used_again():
    cell, sequence = layers.LSTMCell(3), data((2, 5, 4))
    with pytest.raises(MinigraphError):
        layers.rnn(cell, sequence, initial_states=[data((2, 3), name="h"), data((2, 9), name="c")])
    layers.rnn(cell, sequence)
    assert len(fluid.default_main_program().all_parameters()) == 2
    fluid.verify(fluid.default_main_program())


def test_a_call_inside_of_one_that_succeeds_may_fail():
    x = data()

    def body(i, y):
        with pytest.raises(NotFoundError):
            layers.fc(y, 4, act="rellu")
        return [i + 1, layers.fc(y, 4)]

    layers.while_loop(lambda i, y: i < 2, body, [layers.fill_constant([1], "int64", 0), x])
    assert len(fluid.default_main_program().all_parameters()) == 2
    fluid.verify(fluid.default_main_program())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: layers.exponential_decay(0.1, 0, 0.5), r"(?s)^exponential_decay: .*decay_steps = 0"),
        (lambda x: clip.GradientClipByNorm(1.0)([(x, np.ones(2))]), "^GradientClipByNorm: params_grads must be"),
        (
            lambda x: fluid.optimizer.SGD(0.1).apply_gradients([1]),
            r"^SGDOptimizer\.apply_gradients: params_grads must be",
        ),
        (lambda x: layers.fc(x, "a"), r"(?s)^fc: size must be an int, got 'a'.*Give size an int, such as size=10\."),
        (lambda x: layers.fc(x, 3, siz=2), r"(?s)^fc: got an unexpected keyword argument 'siz'.*Did you mean size\?"),
        (lambda x: layers.fc(x), r"(?s)^fc: missing 1 required positional argument: 'size'.*Give it input, size"),
        (
            lambda x: layers.range(0, "a", 1, "int64"),
            r"(?s)^range: .*end = 'a'.*Give end a float or a Variable, .*=0\.1",
        ),
        (
            lambda x: layers.unsqueeze(x, range(2)),
            r"(?s)^unsqueeze2: .*Give axes an int or a sequence of int and Variable or a Variable, such as axes=10",
        ),
        (lambda x: fluid.gradients(None, x), "^gradients: targets must be a Variable or a sequence of Variable"),
        (lambda x: fluid.diff(1, 2), "^diff: a must be a Program, got 1; b must be a Program, got 2"),
    ],
)
def test_an_error_names_what_the_user_has_called(call, message):
    with pytest.raises(MinigraphError, match=message) as caught:
        call(data())
    assert caught.value.site.filename == __file__


def test_an_error_of_a_function_of_the_users_stays_as_it_is():
    x = data()
    with pytest.raises(TypeError) as caught:
        layers.cond(layers.reduce_any(x > 0.0), lambda: 1 + "a", lambda: x)
    assert type(caught.value) is TypeError


# What the error is about


def test_a_variable_of_another_program_is_named():
    with fluid.program_guard(fluid.Program()):
        x = data()
    layers.fc(data((2, 4), name="y"), 3)
    for call in (
        lambda: layers.fc(x, 3),
        lambda: layers.elementwise_add(fluid.default_main_program().global_block().var("y"), x),
    ):
        with pytest.raises(NotFoundError, match=r"(?s)x belongs to another program.*program_guard") as caught:
            call()
        assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["float31", object, "complex64", None, np.void, "O"])
def test_an_unknown_dtype_comes_with_the_line(dtype):
    for call in (
        lambda: layers.cast(data(), dtype), lambda: layers.create_parameter([1], dtype or 5j),
        lambda: layers.fill_constant([1], dtype, 1.0),
        lambda: fluid.default_main_program().global_block().create_var("v", [1], dtype or 5j),
    ):  # fmt: skip
        with pytest.raises(WrongTypeError, match="is not an element type") as caught:
            call()
        assert caught.value.site.filename == __file__


@pytest.mark.parametrize(
    ("strategy", "dtype"),
    [(clip.GradientClipByGlobalNorm(1e5), "float16"), (clip.GradientClipByValue(1e39), "float32")],
)
def test_a_threshold_that_does_not_fit_is_refused_in_the_name_of_the_clip(strategy, dtype):
    loss = layers.mean(layers.fc(data(dtype=dtype), 1))
    with pytest.raises(ClipError, match=rf"^{type(strategy).__name__}.*cannot clip fc_0.*{dtype}") as caught:
        fluid.optimizer.SGD(0.1, grad_clip=strategy).minimize(loss)
    assert "fill_constant" not in str(caught.value)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda pairs: pairs, "must return a list of Variables"),
        (lambda pairs: None, "must return a list of Variables"),
        (lambda pairs: [pairs[0][1]], "was given 2 gradients and returned 1"),
        (lambda pairs: [layers.reduce_sum(grad) for _, grad in pairs], r"returned reduce_sum.*for fc_0.w_0@GRAD"),
    ],
)
def test_a_strategy_of_the_users_that_returns_something_else_is_named(result, message):
    class Wrong(clip.GradientClipBase):
        def emit(self, block, pairs):
            return result(pairs)

    loss = layers.mean(layers.fc(data(), 1))
    with pytest.raises(MinigraphError, match=rf"Wrong\.emit.*{message}"):
        fluid.optimizer.SGD(0.1, grad_clip=Wrong()).minimize(loss)


def test_a_line_that_makes_nothing_is_no_line_of_creation():
    out = layers.relu(data())
    with pytest.raises(FeedError, match=r"\n  at .*test_misuse"):
        fluid.Executor().run(feed={"x": np.ones((2, 5), "float32")}, fetch_list=[out])
    with pytest.raises(OpError, match=r"\n  created at .*test_misuse"):
        layers.matmul(data((2, 3), name="a"), data((2, 3), name="b"))


# Feeds


def run(feed):
    x = data()
    return fluid.Executor().run(feed=feed, fetch_list=[x + 1.0])[0]


@pytest.mark.parametrize("dtype", [">f4", "<f4"])
def test_arrays_of_either_byte_order_are_fed(dtype):
    values = np.arange(8, dtype="float32").reshape(2, 4)
    for _ in range(2):
        assert np.array_equal(run({"x": values.astype(dtype)}), values + 1)


def test_a_mask_is_refused_by_every_run():
    x = data()
    out, executor, plain = x + 1.0, fluid.Executor(), np.ones((2, 4), "float32")
    masked = np.ma.masked_array(plain, np.eye(2, 4))
    for _ in range(3):
        with pytest.raises(FeedError, match=r"(?s)masked at 2 of 8 elements.*filled"):
            executor.run(feed={"x": masked}, fetch_list=[out])
        assert executor.run(feed={"x": plain}, fetch_list=[out])[0].max() == 2
    assert executor.run(feed={"x": np.ma.masked_array(plain)}, fetch_list=[out])[0].max() == 2


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"X": np.ones((2, 4))}, "x is not fed, which .* reads"),
        ({"x": [[1], [1, 2]]}, "(?s)not rectangular.*Pad"),
        ({"x": None}, "(?s)cannot be fed from NoneType.*Feed an array of float32"),
    ],
)
@pytest.mark.filterwarnings("ignore:the program has no variable 'X'")
def test_a_wrong_feed_says_what_to_feed(feed, message):
    with pytest.raises(FeedError, match=message):
        run(feed)


def test_what_runs_is_checked():
    x = data()
    executor = fluid.Executor()
    for wrong in ({"scope": 5}, {"program": "a"}, {"feed": 5}, {"fetch_list": [5]}):
        with pytest.raises(MinigraphError) as caught:
            executor.run(**{"feed": {"x": np.ones((2, 4), "float32")}, "fetch_list": [x], **wrong})
        assert caught.value.site.filename == __file__
    for wrong in ({"cache_size": "a"}, {"place": 5}, {"passes": 5}):
        with pytest.raises(WrongTypeError):
            fluid.Executor(**wrong)


# What is decided of calls that were silent


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: layers.fc(x, 0), ProgramError),
        (lambda x: layers.fc(x, 2.5), WrongTypeError),
        (lambda x: layers.fc(x, 2.0), WrongTypeError),
        (lambda x: layers.conv2d(x.block.var("image"), 0, 1), MinigraphError),
        (lambda x: layers.embedding(x.block.var("ids"), [0, 3]), ProgramError),
        (lambda x: layers.elementwise_add(x, x, axis=-3), OpError),
        (lambda x: layers.reshape(x, [2.5, 4]), MinigraphError),
        (lambda x: layers.cast(x, None), WrongTypeError),
        (lambda x: fluid.data(5, [1]), WrongTypeError),
        (lambda x: fluid.data("", [1]), ProgramError),
        (lambda x: clip.GradientClipByNorm(True), WrongTypeError),
        (lambda x: clip.GradientClipByGlobalNorm("1"), WrongTypeError),
        (lambda x: fluid.optimizer.SGD(float("nan")), ProgramError),
        (lambda x: fluid.optimizer.Adam(0.1, beta1=2.0), ProgramError),
        (lambda x: fluid.optimizer.Adam(0.1, epsilon=-1.0), ProgramError),
        (lambda x: fluid.regularizer.L2Decay(float("nan")), ProgramError),
        (lambda x: fluid.ParamAttr(learning_rate="a"), WrongTypeError),
        (lambda x: fluid.ParamAttr(name=5), WrongTypeError),
        (lambda x: fluid.ParamAttr(gradient_clip=5), WrongTypeError),
        (lambda x: fluid.default_main_program().clone(for_test="a"), WrongTypeError),
        (lambda x: fluid.global_scope().var("v").get_tensor().set("a", fluid.CPUPlace()), WrongTypeError),
        (lambda x: fluid.save(None, "nowhere"), WrongTypeError),
    ],
)
def test_what_the_original_refuses_or_nobody_means_is_refused(call, error, programs):
    x = data()
    data((1, 2, 2, 2), name="image"), data((2, 1), "int64", "ids")
    text = list(map(str, programs))
    with pytest.raises(error) as caught:
        call(x)
    assert caught.value.site.filename == __file__
    assert list(map(str, programs)) == text


@pytest.mark.filterwarnings("error")
def test_what_has_a_meaning_is_accepted_without_a_word():
    x, unknown = data(), data((None, None), name="unknown")
    assert layers.matmul(unknown, data((None, None), name="other")).shape == (-1, -1)
    assert layers.fc(x, np.int64(2)).shape == (2, 2)
    assert fluid.optimizer.SGD(-1.0).get_lr() == -1
    assert fluid.optimizer.SGD(0.1).apply_gradients([]) == clip.GradientClipByNorm(1.0)([]) == []
    assert fluid.optimizer.Momentum(0.1)._op_attrs["mu"] == 0.9
    assert fluid.regularizer.L2Decay(-0.1).regularization_coeff == -0.1
    assert (x == None, x != None, x == "a") == (False, True, False)  # noqa: E711
    assert fluid.global_scope().find_var("unknown") is None
    tensor = fluid.LoDTensor()
    tensor.set(np.ones(2, "float32"))
    assert np.array_equal(tensor, np.ones(2))
    loss = layers.mean(layers.fc(x, 1))
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        pairs = fluid.append_backward(loss)
        fluid.default_main_program().random_seed = -1
        assert not fluid.default_main_program().global_block().ops
    clipped = clip.GradientClipByGlobalNorm(1e-50)(pairs)
    executor, feed = fluid.Executor(), {"x": [[1, 1, 1, 1], [1, 1, 1, 1]]}
    executor.run(fluid.default_startup_program())
    tripled, grad = executor.run(feed=feed, fetch_list=[x * 3.0, clipped[0][1]])
    assert np.array_equal(tripled, np.full((2, 4), 3))
    assert not grad.any()
    zeros = {param.name: np.zeros(param.shape, "float32") for param in fluid.default_main_program().all_parameters()}
    assert executor.run(feed=feed, fetch_list=[loss])[0] != 0
    assert executor.run(feed={**feed, **zeros}, fetch_list=[loss])[0] == 0


def warned(call):
    with pytest.warns(UserWarning) as caught:
        call()
    assert all(each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


@pytest.mark.filterwarnings("default")
def test_minimize_twice_warns():
    loss = layers.mean(layers.fc(data(), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    first, second = warned(lambda: fluid.optimizer.SGD(0.1).minimize(loss))
    assert "gradients of mean_0.tmp_0 are appended a second time" in first
    assert "2 parameters, such as fc_0.b_0, are updated already" in second


@pytest.mark.filterwarnings("error")
def test_two_optimizers_of_different_parameters_do_not_warn():
    x = data()
    first, second = layers.fc(x, 1, param_attr="a", bias_attr=False), layers.fc(x, 1, param_attr="b", bias_attr=False)
    fluid.optimizer.SGD(0.1).minimize(layers.mean(first), parameter_list=["a"])
    fluid.optimizer.Adam(0.1).minimize(layers.mean(second), parameter_list=["b"])


@pytest.mark.filterwarnings("default")
def test_a_loss_without_parameters_and_a_second_pass_warn():
    x = data()
    x.stop_gradient = False
    loss = layers.mean(x)
    (message,) = warned(lambda: fluid.optimizer.SGD(0.1).minimize(loss))
    assert "minimize updates nothing" in message
    (message,) = warned(lambda: fluid.append_backward(loss))
    assert "a second time" in message


@pytest.mark.filterwarnings("default")
def test_a_late_seed_warns_and_an_early_one_does_not():
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        main.random_seed = startup.random_seed = 7
        layers.fc(data(), 3)
        startup.random_seed = 8  # for the layers to come
        startup.random_seed = 0
    layers.fc(data(), 3)
    (message,) = warned(lambda: setattr(startup, "random_seed", 1))
    assert "comes too late for 1 operators" in message
    assert startup.random_seed == 1


@pytest.mark.filterwarnings("default")
def test_removing_dead_operators_without_roots_says_so():
    layers.relu(data())
    program = fluid.default_main_program()
    (message,) = warned(lambda: RemoveDeadOps()(program))
    assert "set program.roots" in message
    program.roots = ()
    assert not RemoveDeadOps()(program).global_block().ops


@pytest.mark.parametrize(
    "look",
    [
        lambda op: op.attr([1]),
        lambda op: op.input([1]),
        lambda op: op.output({}),
        lambda op: op.block.var([1]),
        lambda op: op.block.has_var([1]),
        lambda op: op.block.find_var([1]),
        lambda op: fluid.Scope().var(5),
        lambda op: fluid.Scope().find_var([1]),
        lambda op: fluid.passes.ClipGradients()(5),
    ],
)
def test_what_is_no_name_and_no_program_is_refused_in_our_words(look):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        fluid.layers.relu(fluid.data("x", [None, 2]))
        op = fluid.default_main_program().global_block().ops[0]
    with pytest.raises(MinigraphError) as caught:
        look(op)
    assert caught.value.site.filename.endswith("test_misuse.py")
    assert caught.value.hint
