"""Loading tells files of two saves from each other; files that belong together are loaded in silence."""

import errno
import os

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import DataError
from minigraph.io import marks

pytestmark = [pytest.mark.usefixtures("new_scope"), pytest.mark.filterwarnings("error")]

exe = fluid.Executor(fluid.CPUPlace())
NAMES = ["a", "b", "same"]


def program(names=NAMES):
    main = fluid.Program()
    for name in names:
        main.global_block().create_parameter(name, [3], "float32")
    main.global_block().create_var(name="state", shape=[3], dtype="float32", persistable=True)
    return main


def fill(number, names=(*NAMES, "state")):
    for name in names:
        value = 7 if name == "same" else number
        fluid.global_scope().var(name).get_tensor().set(np.full(3, value, "float32"))


def values(names=("a", "b", "state")):
    return {float(np.array(fluid.global_scope().find_var(name).get_tensor())[0]) for name in names}


WAYS = {
    "separate files": (
        lambda main, path: fluid.io.save_persistables(exe, path, main),
        lambda main, path: fluid.io.load_persistables(exe, path, main),
    ),
    "separate files in the original's other way": (
        lambda main, path: fluid.io.save_persistables(exe, path, main),
        lambda main, path: fluid.load(main, path, exe),
    ),
    "one prefix": (lambda main, path: fluid.save(main, path), lambda main, path: fluid.load(main, path, exe)),
    "a model": (
        lambda main, path: fluid.io.save_inference_model(
            path, [], [main.global_block().var("sum_0.tmp_0")], exe, main, params_filename="all"
        ),
        lambda main, path: fluid.io.load_inference_model(path, exe, params_filename="all"),
    ),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request):
    return request.param


def model():
    """A program with a target, which a model needs."""
    main = program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        fluid.layers.sums([main.global_block().var(name) for name in (*NAMES, "state")])
    return main


@pytest.mark.slow
def test_a_save_that_ends_between_two_files_is_old_or_new_or_an_error(way, tmp_path, monkeypatch):
    save, load = way
    main, path, found = model(), tmp_path / "net", []
    replace = os.replace
    for last in range(12):
        monkeypatch.setattr(os, "replace", replace)
        fill(1)
        save(main, path)
        left = [last]

        def failing(*paths, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.EIO, "the power fails")
            replace(*paths)

        monkeypatch.setattr(os, "replace", failing)
        fill(2)
        try:
            save(main, path)
        except DataError as error:
            assert "the power fails" in str(error)
        fill(0)
        try:
            load(main, path)
        except DataError as error:
            assert "holds files of two saves: the last one ended before it was complete" in error.message
            assert "Save again, or load another copy." in error.hint
            assert error.details[0].startswith("of the last save: ") and error.details[1].startswith("of one before: ")
            assert values() == {0.0}
            found.append("error")
        else:
            (value,) = values()
            found.append(value)
    assert found == sorted(found, key=[1.0, "error", 2.0].index)
    assert {1.0, 2.0} <= set(found)


def test_a_mixture_of_two_saves_is_an_error_also_where_the_first_had_no_mark(tmp_path, monkeypatch):
    main = program()
    fill(1)
    fluid.io.save_persistables(exe, tmp_path, main)
    (tmp_path / marks.FOLDER_MARK).unlink()  # as the original saves
    replace, left = os.replace, [3]

    def failing(*paths):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EIO, "the power fails")
        replace(*paths)

    monkeypatch.setattr(os, "replace", failing)
    fill(2)
    with pytest.raises(DataError, match="the power fails"):
        fluid.io.save_persistables(exe, tmp_path, main)
    with pytest.raises(DataError, match="holds files of two saves"):
        fluid.io.load_persistables(exe, tmp_path, main)
    monkeypatch.undo()
    (tmp_path / marks.FOLDER_MARK).unlink()
    fluid.io.load_persistables(exe, tmp_path, main)
    assert values() == {1.0, 2.0}
    fill(3)
    fluid.io.save_persistables(exe, tmp_path, main)
    fluid.io.load_persistables(exe, tmp_path, main)
    assert values() == {3.0}


def test_a_file_that_was_replaced_is_loaded_with_a_warning_that_names_it(tmp_path):
    main = program()
    fill(1)
    fluid.io.save_persistables(exe, tmp_path / "one", main)
    fill(2)
    fluid.io.save_persistables(exe, tmp_path / "two", main)
    (tmp_path / "one" / "b").write_bytes((tmp_path / "two" / "b").read_bytes())
    with pytest.warns(UserWarning, match=r"b changed after the save that a, same, state came from") as caught:
        fluid.io.load_persistables(exe, tmp_path / "one", main)
    assert values(["a"]) == {1.0} and values(["b"]) == {2.0}
    assert caught[0].filename == __file__
    fluid.io.load_vars(exe, tmp_path / "one", main, vars=["b"])  # alone it is mixed with nothing


def test_a_parameter_file_of_another_model_is_named(tmp_path):
    main = model()
    for number, name in ((1, "one"), (2, "two")):
        fill(number)
        WAYS["a model"][0](main, tmp_path / name)
    (tmp_path / "one" / "all").write_bytes((tmp_path / "two" / "all").read_bytes())
    with pytest.warns(UserWarning, match="all changed after the save that __model__ came from"):
        fluid.io.load_inference_model(tmp_path / "one", exe, params_filename="all")


@pytest.mark.slow
def test_programs_that_save_into_one_folder_one_after_the_other_are_loaded_in_silence(tmp_path):
    main = program()
    first = program(["a"])
    others = program(["b", "same"])
    for number in (1, 2, 3):
        fill(number)
        fluid.io.save_vars(exe, tmp_path, main, vars=["a"])
        fluid.io.save_vars(exe, tmp_path, main, vars=["b", "same"])
        fluid.io.save_persistables(exe, tmp_path, first)
        fill(number + 1)
        fluid.io.save_params(exe, tmp_path, others)
        fluid.io.load_persistables(exe, tmp_path, main)
        fluid.io.save_persistables(exe, tmp_path, main, filename="all")
        fluid.io.load_persistables(exe, tmp_path, main, filename="all")
        assert values(["a"]) == {number} and values(["b"]) == {number + 1}


def test_a_variable_saved_alone_over_its_file_is_loaded_in_silence(tmp_path):
    main = program()
    fill(1)
    fluid.io.save_persistables(exe, tmp_path, main)
    fill(2)
    fluid.io.save_vars(exe, tmp_path, main, vars=["b"])
    fluid.io.load_persistables(exe, tmp_path, main)
    assert values(["a"]) == {1.0} and values(["b"]) == {2.0}


def test_a_folder_that_another_program_has_written_anew_is_loaded_in_silence(tmp_path):
    main = program(["a", "b"])
    for number, name in ((1, "one"), (2, "two")):
        fill(number)
        fluid.io.save_persistables(exe, tmp_path / name, main)
    for path in (tmp_path / "two").iterdir():
        if path.name != marks.FOLDER_MARK:
            path.replace(tmp_path / "one" / path.name)
    fluid.io.load_persistables(exe, tmp_path / "one", main)
    assert values() == {2.0}


def test_one_file_alone_gets_no_mark(tmp_path):
    main = program()
    fill(1)
    fluid.io.save_persistables(exe, tmp_path, main, filename="all")
    fluid.io.save_vars(exe, tmp_path, main, vars=["a"])
    fluid.save({"w": np.ones(2)}, tmp_path / "net.pdparams")
    with fluid.dygraph.guard():
        fluid.save_dygraph(fluid.dygraph.Linear(2, 2).state_dict(), tmp_path / "layer")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "all", "layer.pdparams", "net.pdparams"]


def test_a_copy_of_a_folder_is_loaded_in_silence(way, tmp_path):
    save, load = way
    main = model()
    fill(1)
    save(main, tmp_path / "first" / "net")
    (tmp_path / "first").rename(tmp_path / "second")
    load(main, tmp_path / "second" / "net")


def test_a_damaged_mark_says_nothing(tmp_path):
    main = program()
    fill(1)
    fluid.io.save_persistables(exe, tmp_path, main)
    mark = tmp_path / marks.FOLDER_MARK
    for data in (b"", b"\0" * 30, mark.read_bytes()[:-3], mark.read_bytes().replace(b"coming", b"comino")):
        mark.write_bytes(data)
        fluid.io.load_persistables(exe, tmp_path, main)
    mark.unlink()
    mark.mkdir()
    fluid.io.load_persistables(exe, tmp_path, main)


def test_the_mark_is_a_tensor_and_no_variable(tmp_path):
    main = program()
    fill(1)
    fluid.io.save_persistables(exe, tmp_path, main)
    assert set(fluid.load_program_state(tmp_path)) == {*NAMES, "state"}
    (tensor,) = fluid.io.tensors.read_tensors((tmp_path / marks.FOLDER_MARK).read_bytes(), "the mark")
    assert tensor.dtype == np.uint8


# The imperative mode


def step(layer, optimizer):
    loss = fluid.layers.reduce_sum(layer(fluid.dygraph.to_variable(np.ones((1, 2), "float32"))))
    loss.backward()
    optimizer.minimize(loss)
    layer.clear_gradients()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer_first", [False, True])
def test_a_layer_and_its_optimizer_saved_at_different_moments_are_named(optimizer_first, tmp_path):
    with fluid.dygraph.guard():
        layer = fluid.dygraph.Linear(2, 2)
        optimizer = fluid.optimizer.Adam(0.1, parameter_list=layer.parameters())
        sources = [optimizer, layer] if optimizer_first else [layer, optimizer]
        for _ in range(3):
            step(layer, optimizer)
            for source in sources:
                fluid.save_dygraph(source.state_dict(), tmp_path / "net")
            fluid.load_dygraph(tmp_path / "net")
        step(layer, optimizer)
        fluid.save_dygraph(sources[0].state_dict(), tmp_path / "net")  # and then the program was killed
        with pytest.warns(UserWarning, match=r"net.pdparams, net.pdopt were saved at different moments of training"):
            fluid.load_dygraph(tmp_path / "net")
        fluid.save_dygraph(sources[1].state_dict(), tmp_path / "net")
        fluid.load_dygraph(tmp_path / "net")


def test_a_layer_saved_more_often_than_its_optimizer_belongs_to_it_if_both_are_of_one_moment(tmp_path):
    with fluid.dygraph.guard():
        layer = fluid.dygraph.Linear(2, 2)
        optimizer = fluid.optimizer.Adam(0.1, parameter_list=layer.parameters())
        for _ in range(3):
            step(layer, optimizer)
            fluid.save_dygraph(layer.state_dict(), tmp_path / "net")
        fluid.save_dygraph(optimizer.state_dict(), tmp_path / "net")
        fluid.load_dygraph(tmp_path / "net")
