"""Wrong calls of the imperative mode, and on the host, end in errors of the project's own and change nothing."""

import misuse_imperative
import pytest

import minigraph as fluid
from minigraph.ir.variable_methods import Methods
from minigraph.support.public import own_names
from minigraph.tensor import creation as tensor_functions
from minigraph.tensor import manipulation as tensor_parts

pytestmark = pytest.mark.filterwarnings("ignore")
CASES = misuse_imperative.CASES


@pytest.mark.laws
@pytest.mark.parametrize("title", CASES)
def test_wrong_arguments_are_understood_or_refused(title):
    faults = []
    misuse_imperative.misuse(title, CASES[title], faults)
    assert not faults


def test_everything_that_takes_arguments_is_misused():
    offered = {
        f"nn.{name}" for name in fluid.nn.__all__ if getattr(fluid.nn, name) is not getattr(fluid.dygraph, name, 0)
    }
    offered |= {f"functional.{name}" for name in fluid.nn.functional.__all__}
    offered |= {f"metrics.{name}" for name in own_names(fluid.metrics)}
    offered |= {f"profiler.{name}" for name in ("profiler", "start_profiler", "stop_profiler")}
    offered |= {*fluid.dygraph.__all__}
    for module in (tensor_functions, tensor_parts):
        offered |= {*own_names(module)} & {*fluid.__all__} - {"clip"}  # a module there
    offered |= {f"Tensor.{name}" for name in vars(Methods) if name == "__matmul__" or not name.startswith("_")}
    untried = {name for name in offered if name not in CASES and name.removeprefix("Tensor.") not in CASES}
    untried = {name for name in untried if name.removeprefix("nn.") not in CASES}
    assert untried == {
        "nn.functional",  # a module
        "metrics.MetricBase", "LearningRateDecay", "Tensor", "EagerParameter", "TracedLayer",  # not made by users
        "BackwardStrategy", "enabled", "disable_dygraph", "Env", "ParallelEnv",  # without arguments
        "ProgramTranslator",  # without arguments
        "disable_imperative", "dygraph_to_static_func", "enable_imperative",  # other names
    }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda layer, x: layer.register_forward_pre_hook(5), "hook must be a function, got 5"),
        (lambda layer, x: layer.parameters(include_sublayers="no"), "include_sublayers must be a bool, got 'no'"),
        (lambda layer, x: fluid.to_tensor([1.0], stop_gradient="no"), "stop_gradient must be a bool, got 'no'"),
        (lambda layer, x: fluid.seed(2.5), "seed must be an int, got 2.5"),
        (lambda layer, x: x.nonzero("yes"), "as_tuple must be a bool, got 'yes'"),
        (lambda layer, x: fluid.mean(x, name=5), "name must be a str or None, got 5"),
        (lambda layer, x: fluid.optimizer.SGD(0.1, parameter_list=[]).set_lr(float("nan")), "must be finite, got nan"),
    ],
)
def test_what_was_taken_by_its_truth_or_kept_for_later_is_refused(call, message):
    with pytest.raises(fluid.MinigraphError, match=message) as caught:
        call(fluid.dygraph.Linear(3, 2), misuse_imperative.matrix())
    assert caught.value.site.filename == __file__
    assert caught.value.hint
