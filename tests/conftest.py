import gc
import os
import signal
import sys

import numpy as np
import pytest
from host_cuda import Blas, HostCupy, OnTheProcessor, RawModule, launches, ndarray
from hypothesis import settings

import minigraph as fluid
from minigraph.errors import MissingExtraError, PlaceError
from minigraph.kernels import find_kernel
from minigraph.runtime.place import CUDAPlace

pytest_plugins = ["pytest_minigraph"]  # where minigraph is installed pytest finds it by itself

# How long an example takes depends on what else the machine does. The examples are the same each time, so that what
# passes at a commit passes there always; HYPOTHESIS_PROFILE=explore draws new ones, and twice as many.
settings.register_profile("repeat", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

# The width and the colours of what is printed are those of a file, whatever the terminal of the caller asks for.
for _name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)

# Register the kernels, which some tests replace.
find_kernel("relu", "cpu")

# A job in the background ignores Ctrl-C, and so do the processes that it starts: what tests interrupt would not end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collects tests without the garbage collector, which else walks 50,000 tests that live to the end many times.

    Later it runs more rarely than Python's own thresholds ask for: numba, and the programs that tests keep, live to the
    end, too, and walks through all of them took a tenth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(2000, 10, 100)
        gc.enable()


class FewerFiles:
    """Looks for tests in a file of tests, and for examples in a module that has some: a tenth of collection less."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path):
        found = yield
        if file_path.name.startswith("test_"):
            return [each for each in found if type(each) is pytest.Module]
        text = file_path.read_bytes() if found else b""
        return found if b">>>" in text or b"__doc__ = " in text else []


def pytest_configure(config):
    config.pluginmanager.register(FewerFiles())  # the hooks of this file are not called for the modules of minigraph


def pytest_itemcollected(item):
    if item.get_closest_marker("timing"):
        item.add_marker("slow")  # and not in the fast lane


@pytest.fixture(scope="session", autouse=True)
def _compiled_files(request, tmp_path_factory):
    """Tests compile loops where they ask for it, because many compare bits; nothing is left in the user's caches.

    With ``MINIGRAPH_JIT=on`` all do, and plans make tables of native calls from the second run on.

    Workers of a run, later runs and processes that tests start share the folder of compiled loops, whose names contain
    hashes of the sources: `--cache-clear` empties it. Where Python is told to write no bytecode those of a run share a
    folder of bytecode: else each of those processes compiles minigraph again.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINIGRAPH_JIT", jit := os.environ.get("MINIGRAPH_JIT", "off"))
        if jit == "on":
            patch.setattr("minigraph.lowering.codegen.RUNS_BEFORE_NATIVE", 2)
        patch.setenv("MINIGRAPH_JIT_CACHE", str(_kept(request.config, "loops") or folder / "loops"))
        if sys.dont_write_bytecode:
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
            patch.setenv("PYTHONPYCACHEPREFIX", str(folder / "bytecode"))
        yield


def _kept(config, name):
    """A folder of pytest's cache, or None: pytest may run without a cache or where none may be."""
    try:
        return config.cache.mkdir(name)
    except (AttributeError, OSError):
        return None


@pytest.fixture(scope="session")
def kernels_folder(request, tmp_path_factory):
    """The folder of what g++ makes of CUDA's sources, by hashes of them; kept like compiled loops."""
    return _kept(request.config, "kernels") or tmp_path_factory.mktemp("kernels")


@pytest.fixture
def new_program():
    """The default programs and the global scope are new ones."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield


@pytest.fixture
def new_scope():
    """The global scope is a new one."""
    with fluid.scope_guard(fluid.Scope()):
        yield


@pytest.fixture(scope="module")
def like_an_executor():
    """NaN and infinity pass without warnings."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def shared_kernels(monkeypatch):
    """New executors compile no loops, some of which round otherwise than the kernels that the imperative mode calls."""
    monkeypatch.setenv("MINIGRAPH_JIT", "off")


@pytest.fixture
def always_compiled(monkeypatch):
    """Loops are compiled for the smallest arrays, too."""
    monkeypatch.setattr("minigraph.kernels.jit.offers.LEAST", 0)


@pytest.fixture(scope="session")
def cuda_place():
    """The first GPU; a test that asks for it is skipped where there is none."""
    place = CUDAPlace(0)
    try:
        _ = place.xp
    except (MissingExtraError, PlaceError) as error:
        pytest.skip(f"needs a GPU: {error.message}")
    return place


@pytest.fixture
def host_cuda(monkeypatch, kernels_folder):
    """Lets a `CUDAPlace` run on the processor, without recording plans; see the module `host_cuda`."""
    RawModule.folder = kernels_folder
    cupy = HostCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr("minigraph.kernels.cuda.gemm._library", lambda xp: Blas())
    monkeypatch.setattr(
        "minigraph.executor.cuda.graph_capture.obstacle", lambda steps, replaced: "the test does not record"
    )
    launches.clear()
    return cupy


@pytest.fixture
def strict_host_cuda(host_cuda, monkeypatch):
    """`host_cuda` that refuses arrays of the processor where CuPy does."""
    monkeypatch.setattr(ndarray, "is_strict", True)
    return host_cuda


@pytest.fixture
def host_cuda_fused(host_cuda):
    """`host_cuda` with kernels of a body for one element, as `minigraph.kernels.fused_on_gpu` makes them."""

    def elementwise_kernel(*args, **words):
        launch = OnTheProcessor(RawModule.folder).ElementwiseKernel(*args, **words)

        def counted(*arrays):
            launches.append("fused")
            launch(*arrays)

        return counted

    host_cuda.ElementwiseKernel = elementwise_kernel
    return host_cuda
