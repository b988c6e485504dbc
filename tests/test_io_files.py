"""The layouts of files: tensors, descriptions, pickles, safetensors; damaged ones, harmful ones, a killed writer."""

import builtins
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import minigraph as fluid
from minigraph.errors import DataError
from minigraph.io import files, pickles, tensors
from minigraph.io.framework_proto import BlockDesc, OpAttr, OpDesc, OpVar, ProgramDesc, VarDesc, VarType
from minigraph.io.wire import decode, encode

GOLDEN = Path(__file__).parent / "golden" / "io"
ROOT = Path(__file__).parent.parent
DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]


pytestmark = pytest.mark.usefixtures("new_scope")


def value(name):
    return np.array(fluid.global_scope().find_var(name).get_tensor())


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


# Tensors


@given(st.sampled_from(DTYPES).flatmap(lambda name: arrays.arrays(name, arrays.array_shapes(min_dims=0, min_side=0))))
def test_a_tensor_comes_back_as_it_was(array):
    data = b"".join(tensors.tensor_chunks(array))
    (found,) = tensors.read_tensors(data, "the bytes", 1)
    assert found.dtype == array.dtype and found.shape == array.shape
    assert found.tobytes() == array.tobytes()


def test_an_array_in_another_order_or_byte_order_is_saved_by_its_values():
    array = np.arange(6, dtype="float32").reshape(2, 3)
    expected = b"".join(tensors.tensor_chunks(array))
    assert b"".join(tensors.tensor_chunks(np.asfortranarray(array))) == expected
    assert b"".join(tensors.tensor_chunks(array.astype(">f4"))) == expected


def test_a_tensor_cut_off_anywhere_is_an_error():
    data = b"".join(tensors.tensor_chunks(np.ones((2, 3), "float32")))
    for length in range(len(data)):
        with pytest.raises(DataError, match="the file is damaged"):
            tensors.read_tensors(data[:length], "the file")


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda data: struct.pack("<I", 7) + data[4:], "version 7"),
        (lambda data: data[:4] + struct.pack("<Q", 2) + data[12:], "2 LoD levels"),
        (lambda data: data[:16] + struct.pack("<i", -1) + data[20:], "description of -1 bytes"),
        (lambda data: data.replace(b"\x08\x05\x10", b"\x08\x63\x10"), "element type number 99"),
    ],
)
def test_a_damaged_header_says_what_is_wrong(change, problem):
    data = b"".join(tensors.tensor_chunks(np.ones((2, 3), "float32")))
    with pytest.raises(DataError, match=problem):
        tensors.read_tensors(change(data), "the file")


# The wire format


def test_unknown_fields_are_skipped_and_packed_numbers_read():
    # Field 6 of an attribute, three numbers in one; then a field 99.
    packed = bytes.fromhex("0a0161 1003 32 03 01 02 03 9a0602 7878".replace(" ", ""))
    assert decode(OpAttr, packed) == OpAttr("a", 3, ints=[1, 2, 3])


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1), st.binary(max_size=20))
def test_numbers_and_text_come_back_as_they_were(long, number, text):
    attr = OpAttr("a", 9, i=number, l=long, s=text.decode("utf-8", "surrogateescape"), longs=[long, -1], bools=[True])
    assert decode(OpAttr, encode(attr)) == attr


# Descriptions


def described(ops, names=("a",)):
    variables = [VarDesc(name, VarType(7)) for name in names]
    return encode(ProgramDesc([BlockDesc(0, -1, variables, ops)]))


@pytest.mark.parametrize(
    "data, problem",
    [
        (b"", "it has no block"),
        (b"not a program", "damaged or no program"),
        (described([OpDesc([OpVar("X", ["a"])], [OpVar("Out", ["b"])], "relu")]), "no variable 'b'"),
        (described([OpDesc([OpVar("Y", ["a"])], [OpVar("Out", ["a"])], "relu")]), "unknown input slot 'Y'"),
        (described([OpDesc([OpVar("X", ["a"])], [], "relu")]), "output Out is missing"),
        (
            described([OpDesc([OpVar("X", ["a"])], [OpVar("Out", ["a"])], "relu", [OpAttr("slope", 1, f=2.0)])]),
            "unknown attribute slope",
        ),
        (
            described([OpDesc([OpVar("X", ["a"])], [OpVar("Out", ["a"])], "scale", [OpAttr("scale", 1)])]),
            "attribute scale has no value",
        ),
        (encode(ProgramDesc([BlockDesc(1, 0)])), "block 1 in block 0 stands at place 0"),
    ],
)
def test_a_description_that_contradicts_itself_says_where(data, problem):
    with pytest.raises(DataError) as caught:
        fluid.io.deserialize_program(data)
    assert problem in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_model_is_an_error_of_minigraph_or_a_program(data):
    original = bytearray((GOLDEN / "mlp" / "inference" / "__model__").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        original[data.draw(st.integers(0, len(original) - 1))] = data.draw(st.integers(0, 255))
    with suppress(fluid.MinigraphError):
        fluid.io.deserialize_program(bytes(original[: data.draw(st.integers(0, len(original)))]))


# Pickles


class Harmful:
    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "call, args",
    [
        (os.system, ("touch ran",)),
        (eval, ("open('ran', 'w')",)),
        (builtins.open, ("ran", "w")),
        (subprocess.run, (["touch", "ran"],)),
        (np.lib.format.open_memmap, ("ran", "w+", "f4", (1,))),
        (getattr, ("", "join")),
    ],
)
def test_a_pickle_that_calls_is_refused_before_it_does(call, args, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"w": np.zeros(1), "x": Harmful(call, *args)}, protocol)
    (tmp_path / "net.pdparams").write_bytes(data)
    for load in (fluid.load_dygraph, fluid.load_program_state):
        with pytest.raises(DataError, match="which is not allowed: only arrays and plain containers"):
            load(tmp_path / "net")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cnumpy\ndtype\n(S'O'\ntR.",  # an array of objects has no place
        b"cnumpy.core.multiarray\n_reconstruct\n}b.",  # the state of a function
        b"c_codecs\nencode\n(S'a'\nS'rot13'\ntR.",
        b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'f8'\ntRS'abc'\ntR.",
        b"\x80\x02]q\x00h\x00a.",  # a list that holds itself
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # memory for two billion numbers
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00.",  # bytes that are not there
        b"\x80\x02(Uabc",
        b"\x80\x02" + b"]" * 200 + b"a" * 199 + b".",  # nested too deep
        b"",
    ],
)  # fmt: skip
def test_a_pickle_that_is_no_state_is_an_error(data):
    with pytest.raises(DataError):
        pickles.load(data, "the file")


@pytest.mark.filterwarnings("ignore:invalid escape")  # of text in the damaged pickle
@settings(max_examples=500, deadline=None)
@given(st.data())
def test_a_damaged_pickle_is_an_error_of_minigraph_or_a_state(data):
    original = bytearray((GOLDEN / "mlp" / "net.pdparams").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        original[data.draw(st.integers(0, len(original) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DataError):
        pickles.load(bytes(original[: data.draw(st.integers(0, len(original)))]), "the file")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(PLAIN, st.sampled_from([2, 3, 4]))
def test_plain_values_come_back_as_they_were(value, protocol):
    assert pickles.load(pickles.dump(value, protocol), "the bytes") == value


@given(
    st.sampled_from(DTYPES).flatmap(lambda name: arrays.arrays(name, arrays.array_shapes(min_dims=0, min_side=0))),
    st.booleans(),
)
def test_arrays_come_back_as_they_were_from_pickles_of_any_protocol(array, fortran):
    array = np.asfortranarray(array) if fortran and array.ndim else array
    ours = [pickles.dump({"w": array}, protocol) for protocol in (2, 3, 4)]
    plain = [pickle.dumps({"w": array, "n": np.float32(3)}, protocol) for protocol in range(5)]
    for data in [*ours, *plain, pickle.dumps({"w": array.astype(array.dtype.newbyteorder(">"))}, 2)]:
        found = pickles.load(data, "the bytes")["w"]
        assert found.dtype == array.dtype and found.shape == array.shape
        assert found.tobytes() == array.tobytes()
    for data in ours:  # readable by what knows nothing of minigraph
        np.testing.assert_array_equal(pickle.loads(data)["w"], array)


def test_what_is_written_names_numpy_as_the_old_one_does():
    for protocol in (2, 3):
        data = pickles.dump({"w": np.zeros(2)}, protocol)
        assert b"numpy.core.multiarray" in data and b"numpy._core" not in data


# safetensors


def test_safetensors_files_keep_every_element_type_and_shape(tmp_path):
    state = {name: np.array([[0, 1], [2, 3]]).astype(name) for name in DTYPES}
    state.update(scalar=np.array(2.5), empty=np.zeros((0, 3)), turned=np.arange(6.0).reshape(2, 3).T)
    fluid.io.save_safetensors(state, tmp_path / "net.safetensors", metadata={"epoch": "3"})
    assert_same(fluid.io.load_safetensors(tmp_path / "net.safetensors"), state)
    header = (tmp_path / "net.safetensors").read_bytes()
    assert b'"epoch":"3"' in header[: 8 + int.from_bytes(header[:8], "little")]


def test_a_damaged_safetensors_file_is_an_error(tmp_path):
    path = tmp_path / "net.safetensors"
    fluid.io.save_safetensors({"w": np.ones(4)}, path)
    data = path.read_bytes()
    for length in (0, 7, 20, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(DataError, match="no safetensors file"):
            fluid.io.load_safetensors(path)


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(fluid.errors.MissingExtraError, match="safetensors") as caught:
        fluid.io.save_safetensors({"w": np.ones(4)}, tmp_path / "net.safetensors")
    assert "minigraph[safetensors]" in str(caught.value)


# Whole or not at all


def test_an_error_while_writing_leaves_the_old_files(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    files.write_files({first: [b"old"], second: [b"old"]})

    def failing():
        yield b"new"
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        files.write_files({first: [b"new"], second: failing()})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"first": b"old", "second": b"old"}


@pytest.mark.skipif(os.name == "nt", reason="links need privileges there")
def test_a_link_stays_a_link_to_what_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "file")
    for text in (b"old", b"new"):
        files.write_files({tmp_path / "link": [text]})
        assert (tmp_path / "far" / "file").read_bytes() == text
    assert (tmp_path / "link").is_symlink()


@pytest.mark.skipif(os.name == "nt", reason="permissions are others there")
def test_permissions_are_those_that_writing_would_leave(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    files.write_files({tmp_path / "new": [b""]})
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "new").chmod(0o640)
    files.write_files({tmp_path / "new": [b"again"]})
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


WRITER = """
import itertools, os, signal, sys
import numpy as np
import minigraph as fluid

path, fails_at = sys.argv[1:]
main = fluid.Program()
for name in ("a", "b"):
    main.global_block().create_var(name=name, shape=[1 << 18], dtype="float32", persistable=True)
if fails_at.startswith("fsync"):  # the data is there, nothing is renamed
    last, calls = int(fails_at[5:]), itertools.count()
    os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == last else None
if fails_at == "chunk":  # half of the data is there
    from minigraph.io import variables
    calls, chunks = itertools.count(1), variables.tensor_chunks
    def cut_off(array):
        for chunk in chunks(array):
            yield chunk
            if next(calls) == 7:
                os.kill(os.getpid(), signal.SIGKILL)
    variables.tensor_chunks = cut_off
for step in itertools.count(1):
    for name in ("a", "b"):
        fluid.global_scope().var(name).get_tensor().set(np.full(1 << 18, step, "float32"))
    fluid.io.save_persistables(None, path, main, filename="all")
    fluid.save(main, path + "/net")
    print(step, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("fails_at", ["chunk", "fsync6", "fsync10", 0.0, 0.003, 0.011, 0.017, 0.029])
def test_a_killed_writer_leaves_whole_files(fails_at, tmp_path):
    main = fluid.Program()
    for name in ("a", "b"):
        main.global_block().create_var(name=name, shape=[1 << 18], dtype="float32", persistable=True)
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(fails_at)]
    writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "1\n"
    if not isinstance(fails_at, str):
        time.sleep(fails_at)
        writer.kill()
    writer.stdout.read()
    assert writer.wait() == -signal.SIGKILL
    fluid.io.load_persistables(fluid.Executor(), tmp_path, main, filename="all")
    assert len({*value("a"), *value("b")}) == 1 and value("a")[0] >= 1
    fluid.load(main, tmp_path / "net")
    for name in ("a", "b"):
        assert len({*value(name)}) == 1 and value(name)[0] >= 1
