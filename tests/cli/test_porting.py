"""Scripts for fluid: their imports are changed, and what is missing is listed with lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minigraph.cli.main import main
from minigraph.cli.porting import port, why_missing
from minigraph.errors import DataError

IMPORTS = {
    "import paddle": "import minigraph.compat.paddle as paddle",
    "import paddle as pd": "import minigraph.compat.paddle as pd",
    "import paddle.fluid": "import minigraph.compat.paddle as paddle",
    "import paddle.fluid as fluid": "import minigraph as fluid",
    "import paddle.fluid.layers as L, numpy as np": "import minigraph.layers as L, numpy as np",
    "import paddle, paddle.fluid, os": "import minigraph.compat.paddle as paddle, os",
    "from paddle import fluid": "import minigraph as fluid",
    "from paddle import fluid as F, batch": "import minigraph as F; from minigraph.compat.paddle import batch",
    "from paddle.fluid import layers as L, Executor": "from minigraph import layers as L, Executor",
    "from paddle.fluid.dygraph.nn import (Linear,\n    Conv2D)": "from minigraph.dygraph.nn import Linear, Conv2D",
    "from paddle.fluid.layers.control_flow import StaticRNN": "from minigraph.layers.control_flow import StaticRNN",
    "import paddle.dataset.mnist as mnist": "import minigraph.dataset.mnist as mnist",
    "from paddle.fluid.layers import *": "from minigraph.layers import *",
}


@pytest.mark.parametrize("before", IMPORTS)
def test_an_import_is_changed_and_runs(before):
    ported = port(f"x = 'ä'; {before}  # why\ny = 1\n")
    assert ported.source == f"x = 'ä'; {IMPORTS[before]}  # why\ny = 1\n"
    assert (ported.changed, ported.missing) == (1, ())
    exec(compile(ported.source, "ported", "exec"), {})


@pytest.mark.parametrize("other", ["import numpy as np", "from .paddle import x", "import paddlex", "paddle = 1"])
def test_other_statements_stay(other):
    assert port(other).source == other


def test_imports_inside_functions_are_changed():
    source = "def train():\n    if True:\n        import paddle.fluid as fluid\n        return fluid.Program()\n"
    assert port(source).source == source.replace("paddle.fluid", "minigraph")


def test_missing_names_are_listed_with_lines():
    source = """import paddle
import paddle.fluid as fluid
from paddle.fluid.layers import fc, roi_pool
x = fluid.layers.data("x", [4])
y = fluid.layers.yolo_box(fc(x, 2))
z = paddle.fluid.layers.reduce_meen(y).shape
optimizer = fluid.optimizer.Adam(1e-3)
"""
    missing = port(source).missing
    assert [(each.line, each.name) for each in missing] == [
        (3, "paddle.fluid.layers.roi_pool"),
        (5, "paddle.fluid.layers.yolo_box"),
        (6, "paddle.fluid.layers.reduce_meen"),
    ]
    assert "fluid has it, but detection is out of scope" in missing[0].reason
    assert "Did you mean reduce_mean" in missing[2].reason
    assert why_missing("paddle.fluid.layers.fc") is None


def test_names_that_differ_are_listed_with_what_differs():
    source = "from paddle.fluid import layers\na = layers.allclose(layers.rank(x), y)\nb = layers.fc(a, 2)\n"
    found = port(source).differing
    assert [(each.line, each.name) for each in found] == [
        (2, "paddle.fluid.layers.allclose"),
        (2, "paddle.fluid.layers.rank"),
    ]
    assert found[0].fluid == "Equal infinities are not `allclose`."


def test_a_difference_of_another_module_is_not_listed():
    differing = lambda name: {each.fluid for each in port(f"import paddle.fluid as fluid\n{name}\n").differing}  # noqa: E731
    assert any("Feeds of" in text for text in differing("fluid.layers.data"))
    assert not any("Feeds of" in text for text in differing("fluid.data"))
    assert differing("fluid.dygraph.base.guard") and not differing("fluid.unique_name.guard")


def test_what_is_no_python_is_an_error():
    with pytest.raises(DataError, match=r"old\.py is no Python 3: line 1"):
        port("print 'loss'\n", "old.py")


@pytest.mark.slow
def test_the_command_writes_scripts_that_run(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text("import paddle.fluid as fluid\nprint(fluid.layers.data('x', [2]).shape)\n", encoding="utf-8")
    assert main(["port", str(script), "-o", str(tmp_path / "ported")]) == 0
    assert "1 imports of Paddle changed, every name is here" in capsys.readouterr().err
    assert "paddle" in script.read_text(encoding="utf-8"), "the script itself stays"
    run = subprocess.run(
        [sys.executable, tmp_path / "ported" / "train.py"], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert run.stdout == "(-1, 2)\n"


def test_the_command_names_each_difference_once(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text("import paddle.fluid as fluid\n" + "fluid.layers.rank(x)\n" * 2, encoding="utf-8")
    assert main(["port", str(script)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{script}:2,3: paddle.fluid.layers.rank differs. Fluid: `layers.rank` has no dimensions.")
    assert out.count("\n") == 1


def test_a_script_that_cannot_be_read_keeps_no_other_from_being_written(tmp_path, capsys):
    old, odd, chinese = (tmp_path / name for name in ("old.py", "odd.py", "chinese.py"))
    old.write_text("import paddle\nprint 'loss'\n", encoding="utf-8")
    odd.write_bytes("import paddle  # 损失\n".encode("gbk"))
    chinese.write_bytes("# coding: gbk\nimport paddle.fluid as fluid  # 损失\n".encode("gbk"))
    assert main(["port", str(old), str(odd), str(chinese), "-o", str(tmp_path / "new")]) == 1
    told = capsys.readouterr().err
    assert f"{old} is no Python 3: line 2" in told and f"{odd} is no text that Python reads" in told
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["chinese.py"]
    ported = (tmp_path / "new" / "chinese.py").read_text(encoding="gbk")
    assert ported == "# coding: gbk\nimport minigraph as fluid  # 损失\n"


def test_scripts_of_one_name_are_written_to_folders_of_their_own(tmp_path, capsys):
    for folder in ("nets", "nets/small"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(f"import paddle.fluid as fluid\nWHERE = {folder!r}\n")
    (tmp_path / "train.py").write_text("from nets import fluid, small\n")
    given = [str(tmp_path / "nets"), str(tmp_path / "train.py")]
    assert main(["port", *given, "-o", str(tmp_path / "new")]) == 0
    for folder in ("nets", "nets/small"):
        written = (tmp_path / "new" / folder / "__init__.py").read_text()
        assert written == f"import minigraph as fluid\nWHERE = {folder!r}\n"
    assert (tmp_path / "new" / "train.py").read_text() == "from nets import fluid, small\n"
    assert capsys.readouterr().err.count("every name is here") == 3


def test_the_command_fails_when_names_are_missing(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text("import paddle.fluid as fluid\nfluid.layers.yolo_box\n", encoding="utf-8")
    assert main(["port", str(script)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"{script}:2: paddle.fluid.layers.yolo_box: minigraph.layers has no 'yolo_box'")
    assert "detection is out of scope" in out
    assert main(["port", str(tmp_path / "nothing.py")]) == 1


def test_names_that_numpy_has_removed_are_listed():
    found = port(
        "import numpy as np\nimport numpy\nimport paddle.fluid\na = np.product([2]) * numpy.float(3) + np.prod([1])\n"
    )
    assert [(each.line, each.name, each.reason) for each in found.missing] == [
        (4, "numpy.float", "NumPy 2 has no 'float'. Use float."),
        (4, "numpy.product", "NumPy 2 has no 'product'. Use numpy.prod."),
    ]


def test_modules_that_nothing_has_imported_are_found():
    assert not port("from paddle.fluid.layers.layer_function_generator import templatedoc\n").missing
    assert not port("import paddle\npaddle.compat.to_bytes('a')\n").missing
    [missing] = port("from paddle.fluid.proto import framework_pb2\n").missing
    assert "protobuf's classes are not here" in missing.reason
