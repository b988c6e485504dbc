"""What a fluid program sets for the whole process: flags, a version, devices of operators."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import ExecutionError, NotFoundError, PlaceError, ProgramError, VersionError, WrongTypeError
from minigraph.framework.flags import DEFAULTS


@pytest.fixture(autouse=True)
def flags():
    fluid.set_flags(DEFAULTS)  # others set some, too
    yield
    fluid.set_flags(DEFAULTS)


def test_flags_are_kept():
    assert fluid.get_flags("FLAGS_eager_delete_tensor_gb") == {"FLAGS_eager_delete_tensor_gb": 0.0}
    fluid.set_flags({"FLAGS_eager_delete_tensor_gb": 1, "FLAGS_cudnn_deterministic": 1})
    found = fluid.get_flags(["FLAGS_eager_delete_tensor_gb", "FLAGS_cudnn_deterministic"])
    assert found == {"FLAGS_eager_delete_tensor_gb": 1.0, "FLAGS_cudnn_deterministic": True}
    fluid.framework.set_flags({"FLAGS_check_nan_inf": False})


def test_flags_that_do_not_fit_are_refused_and_nothing_is_set():
    for flags, error, message in [
        ({"FLAGS_foo": 1}, NotFoundError, "there is no flag 'FLAGS_foo'"),
        ({"check_nan_inf": 1}, NotFoundError, "Did you mean FLAGS_check_nan_inf"),
        ({"FLAGS_check_nan_inf": "xx"}, WrongTypeError, "must be of type bool, got 'xx'"),
        ({"FLAGS_paddle_num_threads": 1.5}, WrongTypeError, "must be of type int, got 1.5"),
        ({"FLAGS_init_allocated_mem": True}, ProgramError, "asks for what minigraph does not have"),
        (3, WrongTypeError, "takes a dict"),
    ]:
        if isinstance(flags, dict):
            flags = {"FLAGS_paddle_num_threads": 8, **flags}
        with pytest.raises(error, match=message):
            fluid.set_flags(flags)
    assert fluid.get_flags("FLAGS_paddle_num_threads") == {"FLAGS_paddle_num_threads": 1}
    with pytest.raises(NotFoundError, match="there is no flag"):
        fluid.get_flags(["FLAGS_foo"])
    with pytest.raises(WrongTypeError, match="takes names of flags"):
        fluid.get_flags(3)


@pytest.mark.parametrize("bounds", [("1.8.0",), ("1.8.5",), ("1.8",), ("0.1",), ("1.6.0", "1.8.5"), ("1", "1.9")])
def test_versions_that_paddle_takes_are_taken(bounds):
    fluid.require_version(*bounds)


@pytest.mark.parametrize("bounds", [("1.9",), ("2.0.0",), ("1.8.5.1",), ("1.6.0", "1.7.0"), ("1", "1.8")])
def test_other_versions_are_refused(bounds):
    with pytest.raises(VersionError, match=r"minigraph has the interface of 1\.8\.5"):
        fluid.require_version(*bounds)


def test_what_is_no_version_is_refused():
    for wrong, error in ((1, WrongTypeError), ("a.b", ProgramError), ("1.2.3.4.5", ProgramError), ("", ProgramError)):
        with pytest.raises(error, match="min_version must be"):
            fluid.require_version(wrong)
        if wrong:
            with pytest.raises(error, match="max_version must be"):
                fluid.require_version("1.0", wrong)


def test_operators_are_made_as_ever_inside_a_device_guard():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [1])
        for device in ("cpu", "gpu", "", None):
            with fluid.device_guard(device):
                x = fluid.layers.scale(x, 2.0)
        assert fluid.Executor().run(feed={"x": np.ones(1, "float32")}, fetch_list=[x])[0] == 16
    for device in ("xpu", "cpu:1", 3):
        with pytest.raises(PlaceError, match="must be 'cpu' or 'gpu'"), fluid.device_guard(device):
            pass


def test_what_programs_ask_the_machine_and_the_mode_has_one_answer():
    assert (
        (fluid.core.get_cuda_device_count() > 0) == fluid.is_compiled_with_cuda() == fluid.core.is_compiled_with_cuda()
    )
    assert not fluid.framework.in_dygraph_mode()
    with fluid.dygraph.guard():
        assert fluid.framework.in_dygraph_mode()


def test_pinned_memory_needs_a_gpu():
    if fluid.is_compiled_with_cuda():
        assert isinstance(fluid.cuda_pinned_places()[0], fluid.CUDAPinnedPlace)
    else:
        with pytest.raises(PlaceError, match="serves a GPU"):
            fluid.CUDAPinnedPlace()
        with pytest.raises(PlaceError, match="serves a GPU"):
            fluid.cuda_pinned_places(2)


# FLAGS_check_nan_inf


@pytest.fixture
def checking():
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    yield
    fluid.set_flags({"FLAGS_check_nan_inf": False})


def test_the_first_operator_with_a_result_that_is_not_finite_is_named(checking):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 2])
        hidden = fluid.layers.fc(x, 2)
        loss = fluid.layers.mean(fluid.layers.log(hidden * 0.0 - 1.0))
        fluid.optimizer.SGD(0.1).minimize(loss)
        executor, scope = fluid.Executor(), fluid.global_scope()
        executor.run(fluid.default_startup_program())
        weight = fluid.default_main_program().all_parameters()[0].name
        before = np.array(scope.find_var(weight).get_tensor())
        for _ in range(2):
            with pytest.raises(ExecutionError, match=r"(?s)log gives log_\d+\.tmp_0 NaN or infinite.*test_flags"):
                executor.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[loss])
        np.testing.assert_array_equal(scope.find_var(weight).get_tensor(), before)
        fluid.set_flags({"FLAGS_check_nan_inf": False})
        assert np.isnan(executor.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[loss])[0]).all()


def test_finite_runs_go_on_and_draw_the_same_numbers(checking):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        noise = fluid.layers.gaussian_random([3], seed=5) + fluid.layers.fill_constant([3], "float32", 1.0)
        checked = fluid.Executor().run(fetch_list=[noise])[0]
        fluid.set_flags({"FLAGS_check_nan_inf": False})
        assert fluid.Executor().run(fetch_list=[noise])[0].tolist() == checked.tolist()


def test_the_imperative_mode_checks_results_and_gradients(checking):
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.array([0.0, 1.0], "float32"))
        x.stop_gradient = False
        with pytest.raises(ExecutionError, match="log gives"):
            fluid.layers.log(x)
        loss = fluid.layers.reduce_sum(fluid.layers.sqrt(x))
        with pytest.raises(ExecutionError, match="sqrt_grad gives"):
            loss.backward()
