"""The layouts of files: tensors, descriptions, pickles, safetensors; damaged ones, harmful ones, a killed writer."""

import builtins
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from asserting import assert_same
from explore import files as damage
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scopes import value

import minigraph as fluid
from minigraph.errors import DataError
from minigraph.io import pickles, tensors
from minigraph.io.framework_proto import (
    BlockDesc,
    LoDTensorDesc,
    OpAttr,
    OpDesc,
    OpVar,
    ProgramDesc,
    TensorDesc,
    VarDesc,
    VarType,
)
from minigraph.io.wire import decode, encode

GOLDEN = Path(__file__).parents[1] / "golden" / "io"
ROOT = Path(__file__).parents[2]
DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]


pytestmark = pytest.mark.usefixtures("new_scope")


# Tensors


@pytest.mark.slow
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
        (lambda data: data[:4] + struct.pack("<Q", 2) + data[12:], "a level of 25769803776 bytes should follow"),
        (lambda data: data[:16] + struct.pack("<i", -1) + data[20:], "description of -1 bytes"),
        (lambda data: data.replace(b"\x08\x05\x10", b"\x08\x63\x10"), "element type number 99"),
    ],
)
def test_a_damaged_header_says_what_is_wrong(change, problem):
    data = b"".join(tensors.tensor_chunks(np.ones((2, 3), "float32")))
    with pytest.raises(DataError, match=problem):
        tensors.read_tensors(change(data), "the file")


@pytest.mark.parametrize("dims", [[0, 2**62], [2**62, 0, 2**62], [1] * 100, [-1], [2**32, 2**32], [0] * 65])
@pytest.mark.parametrize("number", [5, 6])
def test_dimensions_that_no_array_has_are_an_error(dims, number):
    description = encode(TensorDesc(number, dims))
    data = struct.pack("<IQIi", 0, 0, 0, len(description)) + description
    with pytest.raises(DataError, match="the file is damaged"):
        tensors.read_tensors(data, "the file")


def test_truth_values_are_0_or_1():
    data = b"".join(tensors.tensor_chunks(np.array([False, True])))
    assert tensors.read_tensors(data[:-1] + b"\x37", "the file")[0].tobytes() == b"\0\1"


# The wire format


@pytest.mark.parametrize("data", ["0001", "808080808001 01"])
def test_a_number_that_no_field_has_is_an_error(data):
    with pytest.raises(DataError, match="there is no field number"):
        decode(OpAttr, bytes.fromhex(data))


def test_parts_of_one_message_are_put_together():
    with_tensor = VarDesc("a", VarType(7, lod_tensor=LoDTensorDesc(TensorDesc(5, [2]))))
    assert decode(VarDesc, encode(with_tensor) + encode(VarDesc("a", VarType(7)))) == with_tensor


def test_unknown_fields_are_skipped_and_packed_numbers_read():
    # Field 6 of an attribute, three numbers in one; then a field 99.
    packed = bytes.fromhex("0a0161 1003 32 03 01 02 03 9a0602 7878".replace(" ", ""))
    assert decode(OpAttr, packed) == OpAttr("a", 3, ints=[1, 2, 3])


@pytest.mark.slow
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
        (encode(ProgramDesc([BlockDesc(n, n - 1) for n in range(5000)])), "block 65 is in more than 64 blocks"),
        (described([OpDesc([OpVar("X", [f"v{n}"])], [], "relu") for n in range(99)]), "and 168 more"),
    ],
)
def test_a_description_that_contradicts_itself_says_where(data, problem):
    with pytest.raises(DataError) as caught:
        fluid.io.deserialize_program(data)
    assert problem in str(caught.value)


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
        b"\x80\x02Nj\xff\xff\xff\x7f.",  # nothing was noted under this number
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00.",  # bytes that are not there
        b"\x80\x02(Uabc",
        b"\x80\x02" + b"]" * 200 + b"a" * 199 + b".",  # nested too deep
        b"",
    ],
)  # fmt: skip
def test_a_pickle_that_is_no_state_is_an_error(data):
    with pytest.raises(DataError):
        pickles.load(data, "the file")


START = b"\x80\x02X\x01\0\0\0a"


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        START + b"2\x86" * 22 + b".",  # pairs of one thing, in pairs
        START + b"2\x86" * 40 + b".",
        b"\x80\x02]q\0" + b"".join(b"]q%c(h%ch%ce" % (n + 1, n, n) for n in range(60)) + b".",  # lists
        b"\x80\x02}X\x01\0\0\0a" + b"2\x86" * 40 + b"Ns.",  # as a key, whose hash asks for all
        b"\x80\x02X" + struct.pack("<I", 50_000) + b"a" * 50_000 + b"q\0X\x06\0\0\0latin1q\x01c_codecs\nencode\nq\x02]("
        + b"h\x02h\0h\x01\x86R" * 7000 + b"e.",  # one text encoded again and again
        b"\x80\x02](" + b"](K\0Ne" * 10_000 + b"eq\0ccollections\nOrderedDict\nq\x01](" + b"h\x01h\0\x85R" * 10_000
        + b"e.",  # one dictionary made again and again
        b"\x80\x02}(" + b"".join(b"\x8a\x0a%bN" % ((2**61 - 1) * n).to_bytes(10, "little") for n in range(1, 9999))
        + b"u.",  # keys with one hash
    ],
    ids=["pairs", "more pairs", "lists", "key", "text", "dictionary", "hashes"],
)  # fmt: skip
def test_a_pickle_that_grows_when_read_is_an_error_at_once(data):
    assert damage.problem("pickle", data) == ""
    with pytest.raises(DataError):
        pickles.load(data, "the file")


def test_containers_and_arrays_that_are_in_several_others_stay_one():
    array, names = np.zeros(1000), ["a", "b"]
    for protocol in range(5):
        found = pickles.load(pickle.dumps({"x": array, "y": [array, names], "z": (names, names)}, protocol), "the file")
        assert found["x"] is found["y"][0]
        assert found["z"] == (["a", "b"], ["a", "b"]) and found["z"][0] is found["z"][1] is found["y"][1]


def test_memory_is_not_reserved_for_what_a_pickle_may_note():
    assert pickles.load(b"\x80\x02Nr\xff\xff\xff\x7f.", "the file") is None


def test_an_array_that_python_2_wrote_is_read():
    array = np.array([1.5, -2.0])
    data = (
        b"\x80\x02}q\x00U\x01wq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85q\x04U\x01bq\x05"
        b"\x87q\x06Rq\x07(K\x01K\x02\x85q\x08cnumpy\ndtype\nq\tU\x02f8q\nK\x00K\x01\x87q\x0bRq\x0c(K\x03U\x01<q\rNNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x0eb\x89U\x10" + array.tobytes() + b"q\x0ftq\x10bs."
    )
    assert_same(pickles.load(data, "the file"), {"w": array})


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.slow
@given(PLAIN, st.sampled_from([2, 3, 4]))
def test_plain_values_come_back_as_they_were(value, protocol):
    assert pickles.load(pickles.dump(value, protocol), "the bytes") == value


@pytest.mark.slow
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


# Damaged files


@pytest.mark.laws
@pytest.mark.parametrize("seed", range(0, 250, 25))
def test_a_damaged_file_gives_what_it_holds_or_an_error_of_minigraph_at_once(seed):
    for each in range(seed, seed + 25):
        damage.case(each)


# Whole or not at all


WRITER = """
import itertools, os, signal, sys
import numpy as np
import minigraph as fluid

path, fails_at = sys.argv[1:]
main = fluid.Program()
for name in ("a", "b"):
    main.global_block().create_var(name=name, shape=[1 << 18], dtype="float32", persistable=True)
if fails_at.startswith("fsync"):  # the 10th: of the second step's first file; the 16th: of a mark before the renames
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
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fails_at", ["chunk", "fsync10", "fsync14", "fsync16", "fsync18", 0.0, 0.003, 0.011, 0.029])
def test_a_killed_writer_leaves_whole_files(fails_at, tmp_path):
    main = fluid.Program()
    for name in ("a", "b"):
        main.global_block().create_var(name=name, shape=[1 << 18], dtype="float32", persistable=True)
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(fails_at)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
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
