"""Damaged files: reading one gives what an independent reading of it gives, or an error of minigraph, at once."""

from __future__ import annotations

import codecs
import collections
import gzip
import io
import json
import math
import pickle
import pickletools
import random
import re
import signal
import struct
import tempfile
import threading
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import minigraph as fluid
from explore.shrinking import smallest
from minigraph.dataset import mnist
from minigraph.io import marks, pickles
from minigraph.io.framework_proto import ProgramDesc, TensorDesc
from minigraph.io.program_bytes import serialize_program
from minigraph.io.tensors import read_tensors, tensor_chunks
from minigraph.io.wire import decode, encode
from minigraph.support.atomic_files import digest_of

GOLDEN = Path(__file__).parent.parent / "golden" / "io"
SECONDS = 1.0
"""Processor time that reading one file may take."""
MEMORY, MEMORY_PER_BYTE = 64 << 20, 256
"""Bytes that reading a file may take, and more for each of its bytes."""


def case(seed: int) -> None:
    """Read one damaged file."""
    choose = random.Random(seed)
    name = choose.choice(sorted(FORMATS))
    check(name, damaged(choose, name))


def check(name: str, data: bytes) -> None:
    """Read `data` as a file of the format `name`; raise AssertionError with a small file that breaks the law, too."""
    if problem(name, data):
        found = smallest(data, lambda each: bool(problem(name, each)), shorter)
        raise AssertionError(f"{name}, {len(found)} bytes: {problem(name, found)}\n{found!r}")


def problem(name: str, data: bytes) -> str:
    """What is wrong with how `data` is read; empty if nothing is."""
    form = FORMATS[name]

    def said() -> str:
        try:
            found = form.read(data)
        except fluid.MinigraphError as error:
            size = len(str(error))
            return f"an error of {size} characters" if size > 20_000 + 4 * len(data) else ""
        return "" if tracemalloc.is_tracing() else form.difference(data, found)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with limited(SECONDS):
                found = said()
            peak = peak_of(said)
    except TooSlow:
        return f"takes more than {SECONDS} s"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return found or (f"takes {peak >> 20} MiB" if peak > MEMORY + MEMORY_PER_BYTE * len(data) else "")


def peak_of(function: Callable[[], Any]) -> int:
    """The most memory that a call has at one time, which takes the call several times as long."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class TooSlow(BaseException):
    """Reading takes too long; no handler of errors catches it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` in a block that takes long, where the system has such clocks."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# Damage


def damaged(choose: random.Random, name: str) -> bytes:
    """A file of the format `name` with something in it changed: a number, a part, some bytes."""
    data = choose.choice(originals()[name])
    for _ in range(choose.randint(0, 2)):
        data = ALTERED[name](choose, data)
    for _ in range(choose.choice([0, 0, 1, 1, 1, 2, 4])):
        at, end = sorted(choose.choices(range(len(data) + 1), k=2))
        data = choose.choice(DAMAGES)(choose, data, at, min(end, at + choose.choice([1, 8, 64, 1 << 16])))
    return data[: 1 << 17]


def flipped(choose: random.Random, data: bytes, at: int, end: int) -> bytes:
    return data[:at] + bytes(byte ^ 1 << choose.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]


def spliced(choose: random.Random, data: bytes, at: int, end: int) -> bytes:
    other = choose.choice(originals()[choose.choice(sorted(FORMATS))])
    start, stop = sorted(choose.choices(range(len(other) + 1), k=2))
    return data[:at] + other[start : min(stop, start + 64)] + data[end:]


def numbered(choose: random.Random, data: bytes, at: int, end: int) -> bytes:
    return data[:at] + choose.choice(NUMBERS) + data[choose.choice([at, end]) :]


def repeated(choose: random.Random, data: bytes, at: int, end: int) -> bytes:
    times = choose.choice([2, 3, 30, 3000])
    return data[:at] + data[at:end] * min(times, 1 + (1 << 17) // max(end - at, 1)) + data[end:]


DAMAGES = (
    flipped, flipped, spliced, numbered, repeated,
    lambda choose, data, at, end: data[:at],
    lambda choose, data, at, end: data[:at] + data[end:],
    lambda choose, data, at, end: data[:at] + bytes([choose.randrange(256)]) + data[at + 1 :],
)  # fmt: skip

NUMBERS = [
    *(struct.pack(code, number) for code in ("<q", ">q") for number in (-1, 1 << 62, 1 << 31, 1 << 20, 0)),
    *(struct.pack(code, number) for code in ("<i", ">i") for number in (-1, 1 << 30, 1 << 20, 65535)),
    b"\xff" * 9 + b"\x01", b"\x80" * 8 + b"\x40", b"\xff\xff\xff\xff\x0f", b"\xff\xff\x03", b"\xff", b"\x00",
    b"9" * 5000, b"-1", b"1e999", b"18446744073709551616", b"[" * 500, b"(" * 500, b"{" * 500, b"\\\"" * 500,
]  # fmt: skip


def altered_text(choose: random.Random, data: bytes) -> bytes:
    """Another number, or more brackets, in the place of a number."""
    found = list(re.finditer(rb"(?<![\w.@])-?[0-9]+(?![\w.])", data))
    if not found:
        return data
    start, end = choose.choice(found).span()
    return data[:start] + choose.choice(TEXTS) + data[end:]


def altered_pickle(choose: random.Random, data: bytes) -> bytes:
    """Other operations between two."""
    try:
        starts = [at for _, _, at in pickletools.genops(data) if at]
    except Exception:
        return data
    at, end = sorted(choose.choices(starts, k=2))
    added = choose.choice(OPERATIONS) * choose.choice([1, 1, 2, 40, 4000])
    return data[:at] + added + data[choose.choice([at, at, end]) :]


def altered_tensors(choose: random.Random, data: bytes) -> bytes:
    """A tensor of odd dimensions in front."""
    dims = choose.choices(
        [0, 1, 2, 3, -1, -2, 1 << 20, 1 << 31, 1 << 62, 1 << 63, (1 << 64) - 1], k=choose.randint(0, 4)
    )
    dims *= choose.choice([1, 1, 1, 1, 30, 3000])
    number = choose.choice([0, 1, 2, 3, 4, 5, 6, 20, 21, 7, 99, -1])
    message = encode(TensorDesc(number, dims))
    return struct.pack("<IQIi", 0, 0, 0, len(message)) + message + bytes(choose.choice([0, 8, 24, 4096])) + data


def altered_model(choose: random.Random, data: bytes) -> bytes:
    """Another number or name in a part of the description, or a part many times."""
    try:
        top = decode(ProgramDesc, data)
    except fluid.MinigraphError:
        return data
    part: Any = top
    while True:
        names = [each.name for each in fields(part) if getattr(part, each.name) not in (None, [])]
        if not names:
            return data
        name = choose.choice(names)
        value = getattr(part, name)
        if isinstance(value, list):
            at = choose.randrange(len(value))
            if choose.random() < 0.1:
                value[at : at + 1] = value[at : at + 1] * choose.choice([0, 2, 300])
                return encode(top)
            if is_dataclass(value[at]):
                part = value[at]
            else:
                value[at] = other(choose, value[at])
                return encode(top)
        elif is_dataclass(value):
            part = value
        else:
            setattr(part, name, other(choose, value))
            return encode(top)


def other(choose: random.Random, value: Any) -> Any:
    if isinstance(value, str):
        return choose.choice(["", value + value, "a" * 5000, "x", "\0", "..", "relu", "while", "feed", "\udcff"])
    if isinstance(value, float):
        return choose.choice([math.nan, math.inf, -1e38, 0.0])
    return choose.choice([-1, 0, 1, 2, 7, 1 << 20, (1 << 31) - 1, -(1 << 31)])


def altered_safetensors(choose: random.Random, data: bytes) -> bytes:
    """Another number in the header."""
    size = int.from_bytes(data[:8], "little")
    header = altered_text(choose, data[8 : 8 + size])
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def altered_idx(choose: random.Random, data: bytes) -> bytes:
    """Another number in the header, or very many equal bytes, packed."""
    if data.startswith(b"\x1f\x8b"):
        return zeros() if choose.random() < 0.02 else choose.choice([data + data, gzip.compress(data, mtime=0)])
    return data[:4] + struct.pack(">i", choose.choice([-1, 0, 1, 3, 1 << 30])) + data[8:]


@cache
def zeros() -> bytes:
    """A gzip file of 128 MiB of zeros, which is small."""
    return gzip.compress(bytes(1 << 27), mtime=0)


ALTERED = {
    "pickle": altered_pickle, "tensors": altered_tensors, "model": altered_model, "text": altered_text,
    "safetensors": altered_safetensors, "idx": altered_idx, "mark": altered_tensors,
}  # fmt: skip

TEXTS = [
    b"0", b"-1", b"18446744073709551616", b"9" * 400, b"9" * 5000, b"1e999", b"-", b"[" * 500, b"(" * 500, b"{" * 500,
    b"'", b'"' + b"\\\"" * 50_000, b"<" * 5000, b"x" * 100_000, b"[1, 2]", b"None", b"{'a': [1]}",
]  # fmt: skip

OPERATIONS = [
    b"2", b"2\x86", b"2\x85", b"0", b"(", b"t", b"l", b"d", b"}", b"]", b")", b"a", b"e", b"s", b"u", b"R", b"b", b"N",
    b"h\x00", b"h\x01", b"h\x05", b"q\x00", b"q\x01", b"j\xff\xff\xff\x7f", b"r\xff\xff\xff\x7f", b"K\x01",
    b"X\x01\0\0\0a",
    b"\x8a\x08" + b"\xff" * 8, b"}2\x862N", b"]2a", b"\x8f", b"\x94", b"c_codecs\nencode\n", b"cnumpy\ndtype\n",
]  # fmt: skip


def shorter(data: bytes) -> Iterator[bytes]:
    """`data` without a part, large parts first."""
    size = len(data) // 2
    while size:
        for at in range(0, len(data), size):
            yield data[:at] + data[at + size :]
        size //= 2


# Formats


@dataclass(frozen=True)
class Format:
    """How files of a format are read, and how to tell whether what was read is right."""

    read: Callable[[bytes], Any]
    difference: Callable[[bytes, Any], str]


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, with their types; NumPy's numbers are Python's, and a NaN is equal to another."""
    if isinstance(b, np.generic):
        b = b.item()
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        kinds = a.dtype, b.dtype.newbyteorder("=")
        values = [array.view("u1") != 0 if array.dtype == bool else array for array in (a, b)]
        return kinds[0] == kinds[1] and a.shape == b.shape and np.array_equal(*values, equal_nan=True)
    if isinstance(a, dict) and isinstance(b, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def compared(found: Any, expected: Any) -> str:
    return "" if same(found, expected) else f"gives {found!r:.500}, not {expected!r:.500}"


def tensors_of(data: bytes) -> list[np.ndarray]:
    """The tensors of a file, told from the layout alone."""
    found, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<i", data, at + 16)
        at += 20
        number, dims = 0, []
        for key, value in fields_of(data[at : at + size]):
            number, dims = (value, dims) if key == 1 else (number, dims + ([value] if key == 2 else []))
        at += size
        dtype = np.dtype({0: "b1", 1: "i2", 2: "i4", 3: "i8", 4: "f2", 5: "f4", 6: "f8", 20: "u1", 21: "i1"}[number])
        elements = data[at : at + math.prod(dims) * dtype.itemsize]
        at += len(elements)
        array = np.frombuffer(elements, dtype) if number else np.frombuffer(elements, "u1") != 0
        found.append(array.reshape(dims))
    return found


def fields_of(message: bytes) -> Iterator[tuple[int, int]]:
    """Numbers and values of the fields of a message that holds numbers; packed ones one by one."""
    numbers, at = [], 0

    def varint() -> int:
        nonlocal at
        shift = value = 0
        while True:
            value |= (message[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if message[at - 1] < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            numbers.append((key >> 3, varint()))
        elif key & 7 == 2:
            end = varint() + at
            while key >> 3 == 2 and at < end:
                numbers.append((2, varint()))
            at = end
        else:
            at += 4 if key & 7 == 5 else 8
    for key, value in numbers:
        yield key, (value & (1 << 64) - 1) - (1 << 64 if value >> 63 & 1 else 0)


class Unpickler(pickle._Unpickler):
    """Python's own, in Python, which imports what arrays need and nothing else.

    That in C reserves memory for two billion numbers where a damaged file notes something under the last of them.
    """

    def find_class(self, module: str, name: str) -> Any:
        multiarray = np._core.multiarray if hasattr(np, "_core") else np.core.multiarray
        return {
            "_reconstruct": multiarray._reconstruct, "scalar": multiarray.scalar, "ndarray": np.ndarray,
            "dtype": np.dtype, "encode": codecs.encode, "bytes": bytes, "OrderedDict": collections.OrderedDict,
        }[name]  # fmt: skip


def pickle_difference(data: bytes, found: Any) -> str:
    try:
        expected = Unpickler(io.BytesIO(data), encoding="latin1").load()
    except Exception:  # such as for an element type that no array has, which minigraph does not look at
        return ""
    return compared(found, expected)


def round_trip_difference(data: bytes, found: fluid.Program) -> str:
    """A program that was read comes back from the description of it."""
    again = fluid.io.deserialize_program(serialize_program(found))
    return "" if str(again) == str(found) else f"comes back as another program\n{found}\n{again}"


def text_difference(data: bytes, found: fluid.Program) -> str:
    again = fluid.Program.parse(str(found))
    return "" if str(again) == str(found) else f"comes back as another program\n{found}\n{again}"


def from_file(read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """`read`, given the contents of a file in place of its path."""

    def reading(data: bytes) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "file.safetensors")
            path.write_bytes(data)
            return read(path)

    return reading


def safetensors_difference(data: bytes, found: dict[str, np.ndarray]) -> str:
    size = int.from_bytes(data[:8], "little")
    codes = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U8": "u1"}
    expected = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            part = data[8 + size + start : 8 + size + end]
            code = codes.get(entry["dtype"])
            if code is not None:
                expected[name] = np.frombuffer(part, code).reshape(entry["shape"])
    return compared({name: array for name, array in found.items() if name in expected}, expected)


def with_mark(data: bytes) -> dict[str, bytes]:
    """Two files of a folder whose mark is `data`."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {**MARKED, marks.FOLDER_MARK: data}.items():
            Path(folder, name).write_bytes(content)
        reading = marks.Reading(marks.folder_mark(Path(folder)), is_one_save=True)
        found = {name: reading.read(Path(folder, name), "a file") for name in MARKED}
        reading.check()
        return found


def idx_difference(data: bytes, found: np.ndarray) -> str:
    content = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    return compared(found.reshape(-1), np.frombuffer(content, "u1")[16:])


MARKED = {"a": b"first", "b": b"second"}

FORMATS = {
    "pickle": Format(lambda data: pickles.load(data, "the file"), pickle_difference),
    "tensors": Format(
        lambda data: read_tensors(data, "the file"), lambda data, found: compared(found, tensors_of(data))
    ),
    "model": Format(fluid.io.deserialize_program, round_trip_difference),
    "text": Format(lambda data: fluid.Program.parse(data.decode("utf-8", "replace")), text_difference),
    "mark": Format(with_mark, lambda data, found: compared(found, MARKED)),
    "idx": Format(from_file(lambda path: mnist._read_idx(path, (28, 28))), idx_difference),
}
try:
    import safetensors  # noqa: F401

    FORMATS["safetensors"] = Format(from_file(fluid.io.load_safetensors), safetensors_difference)
except ImportError:
    pass


@cache
def originals() -> dict[str, list[bytes]]:
    """Sound files of each format."""

    def read(*patterns: str) -> list[bytes]:
        return [path.read_bytes() for pattern in patterns for path in sorted(GOLDEN.glob(pattern))]

    arrays = {"w": np.arange(6, dtype="float32").reshape(2, 3), "b": np.array([True, False]), "n": np.array(3)}
    state = {**arrays, "names": [("a", 1), ("b", 2.5)], "epoch": 3, "tied": arrays["w"], "none": None}
    models = read("mlp/*/__model__", "control_flow/*/__model__", "conv/model", "mlp/net.pdmodel")
    images = b"\0\0\x08\x03" + struct.pack(">3i", 2, 28, 28) + bytes(2 * 28 * 28)
    entries = [{name: [digest_of(data + end), "1"] for name, data in MARKED.items()} for end in (b"", b"new")]
    statements = [json.dumps({"held": entries[0], "coming": coming}).encode() for coming in ({}, entries[1])]
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    return {
        "pickle": [
            *read("*/*.pdparams", "*/*.pdopt"), *(pickles.dump(state, protocol) for protocol in (2, 3, 4)),
            *(pickle.dumps(state, protocol) for protocol in range(5)),
        ],
        "tensors": read("*/params", "dtypes/*", "mlp/persistables", "mlp/separate/*"),
        "model": models,
        "text": [str(fluid.io.deserialize_program(model)).encode() for model in models],
        "mark": [b"".join(tensor_chunks(np.frombuffer(each, "u1"))) for each in statements],
        "idx": [images, gzip.compress(images, mtime=0)],
        "safetensors": [struct.pack("<Q", len(header)) + header + arrays["w"].tobytes()],
    }  # fmt: skip
