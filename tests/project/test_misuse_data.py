"""Wrong calls of readers, loaders, files and other libraries' names end in errors of the project's own."""

import inspect
import itertools

import misuse
import misuse_data_calls
import numpy as np
import pytest

import minigraph as fluid
from minigraph.compat.tensorflow import train
from minigraph.compat.torch.nn import utils
from minigraph.errors import MinigraphError
from minigraph.support.public import own_names

pytestmark = pytest.mark.filterwarnings("ignore")

IMAGES = np.array([2051, 4, 28, 28], ">u4").tobytes() + bytes(4 * 28 * 28)
LABELS = np.array([2049, 4], ">u4").tobytes() + bytes(4)


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINIGRAPH_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("MINIGRAPH_OFFLINE", "1")
    monkeypatch.setattr("os.fsync", lambda handle: None)  # the files need not outlive the machine
    (tmp_path / "mnist").mkdir()
    for part in ("mnist/train-", "mnist/t10k-", ""):
        (tmp_path / f"{part}images-idx3-ubyte").write_bytes(IMAGES)
        (tmp_path / f"{part}labels-idx1-ubyte").write_bytes(LABELS)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield


def read(result):
    """Run a reader that was made of a wrong value; what it keeps must have been checked by then."""
    if inspect.isfunction(result):
        run = iter(result())
        list(itertools.islice(run, 3))
        getattr(run, "close", list)()


@pytest.mark.laws
@pytest.mark.parametrize("calls", misuse_data_calls.CALLS, ids=lambda calls: calls.__name__)
def test_functions_take_what_they_understand_or_say_what_is_wrong(calls):
    faults = []
    with fluid.unique_name.guard():
        calls(misuse.Recording(fluid, faults, set(), check=read))
    assert not faults


@pytest.mark.slow
def test_every_function_of_these_modules_is_misused():
    done = set()
    for calls in misuse_data_calls.CALLS:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            calls(misuse.Recording(fluid, [], done, {}))
    called = {name for name, _, _ in done}
    tf, data = fluid.compat.tensorflow, fluid.dataset
    offered = {
        *fluid.io.__all__, *fluid.reader.__all__, *data.digits.__all__, *data.mnist.__all__, *tf.__all__,
        *tf.linalg.__all__, *own_names(train), *own_names(utils), "DataFeeder",
    }  # fmt: skip
    loaders = (fluid.io.DataLoader, fluid.io.DataLoader.__base__, fluid.io.PyReader)
    for cls in (*loaders, fluid.DataFeeder, train.Optimizer):
        offered |= {name for name, value in vars(cls).items() if name[0] != "_" and callable(value)}
    untried = offered - called
    assert untried <= {
        # modules, types and errors
        "linalg", "train", "BundledDigitsWarning", "ComposeNotAligned", "Dataset", "EPSILON", "GATE_GRAPH", "Optimizer",
        "Reader",
        # without arguments
        "get_name", "next", "reset", "start",
        # what the executor calls, and aliases
        "decorate_paddle_reader", "decorate_tensor_provider", "fill", "go_on",
    }, untried  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fluid.reader.shuffle(5, 2), "^shuffle: reader must be a function, got 5"),
        (lambda: fluid.io.chain(iter, 5), "^chain: readers must be a function, got 5"),
        (lambda: fluid.io.xmap_readers(abs, iter, 10**400, 2), "^process_num must be at most 1000"),
        (lambda: fluid.io.firstn(iter, np.ones(2)), "^firstn: n must be an int"),
        (lambda: fluid.dataset.digits.load(9), "(?s)size must be 8 or 28.*Give size=8 .* size=28"),
        (
            lambda: utils.clip_grad_norm_(5, 1.0),
            "^clip_grad_norm_: parameters must be a Tensor or an iterable of Tensor",
        ),
        (lambda: fluid.data("x", [2]).norm("a"), "p must be.*got 'a'"),
    ],
)
def test_an_error_comes_at_once_and_names_what_the_user_has_called(call, message):
    with pytest.raises(MinigraphError, match=message) as caught:
        call()
    assert caught.value.site.filename == __file__
