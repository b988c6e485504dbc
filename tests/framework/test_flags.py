"""What a fluid program sets for the whole process: flags, a version, devices of operators."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import NotFoundError, PlaceError, ProgramError, VersionError, WrongTypeError
from minigraph.framework.flags import _DEFAULTS


@pytest.fixture(autouse=True)
def flags():
    fluid.set_flags(_DEFAULTS)  # others set some, too
    yield
    fluid.set_flags(_DEFAULTS)


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
        ({"FLAGS_check_nan_inf": True}, ProgramError, "asks for what minigraph does not have"),
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
