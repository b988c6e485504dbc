"""Small files in the form of public data sets; writing them needs neither minigraph nor Paddle."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

REVIEWS = {
    "train/pos/0_9.txt": b"A good, good film. Good!\n",
    "train/neg/0_1.txt": b"A bad film; a bad, bad day",
    "test/pos/0_8.txt": b"good day\r\n",
    "test/neg/0_2.txt": b"",
}
TEXT = {"train": b" a b a c \n b a \n", "valid": b" a <unk> b b \n"}
CAPTIONS = {
    "train": "a dog runs\tein Hund l\u00e4uft\na cat\teine Katze\nno tab\na dog\tein Hund\n",
    "test": "a bird\tein Vogel\n",
    "val": "dog cat\tHund Katze\n",
}
SENTENCES = {
    "train/train": "le chat\tthe cat\n" + "x " * 90 + "\ty\nno tab\n",
    "test/test": "le chien\tthe dog\n",
    "gen/gen": "chat\tcat\n",
}
WORDS = ["The", "cat", "sat", "on", "the", "mat", ".", ";", "Dogs", "bark"]
ROLES = [
    ["-", "*"], ["-", "(A0*)"], ["sit", "(V*)"], ["-", "(A1*"], ["-", "*"], ["-", "*)"], ["-", "*"], None,
    ["-", "(A0*)"], ["bark", "(V*)"],
]  # fmt: skip
FILMS = "1::Toy Story (1995)::Animation|Comedy\n3::A Story (1994)::Drama\n"
USERS = "1::F::1::10::48067\n2::M::56::16::70072\n"


def write(folder):
    """Write the files to a folder; the MD5 of each by its path there."""
    folder = Path(folder)
    files = {
        "imdb/imdb%2FaclImdb_v1.tar.gz": tar({f"aclImdb/{name}": text for name, text in REVIEWS.items()}),
        "imikolov/imikolov%2Fsimple-examples.tgz": tar(
            {f"./simple-examples/data/ptb.{part}.txt": text for part, text in TEXT.items()}
        ),
        "wmt16/wmt16.tar.gz": tar({f"wmt16/{part}": text.encode() for part, text in CAPTIONS.items()}),
        "wmt14/wmt14.tgz": tar(
            {
                "wmt14/src.dict": b"<s>\n<e>\n<unk>\nle\nchat\nchien\n",
                "wmt14/trg.dict": b"<s>\n<e>\n<unk>\nthe\ncat\ndog\n",
                **{f"wmt14/{part}": text.encode() for part, text in SENTENCES.items()},
            }
        ),
        "conll05st/conll05st%2FwordDict.txt": b"bos\neos\nThe\ncat\nsat\non\nDogs\nbark\n",
        "conll05st/conll05st%2FverbDict.txt": b"bark\nsit\n",
        "conll05st/conll05st%2FtargetDict.txt": b"B-A0\nI-A0\nB-A1\nI-A1\nB-V\nI-V\nO\n",
        "conll05st/conll05st%2Femb": b"vectors",
        "conll05st/conll05st-tests.tar.gz": roles(),
        "movielens/movielens%2Fml-1m.zip": films(),
        "uci_housing/housing.data": houses(),
        "cifar/cifar-10-python.tar.gz": images("cifar-10-batches-py", ("data_batch_1", "test_batch"), "labels"),
        "cifar/cifar-100-python.tar.gz": images("cifar-100-python", ("train", "test"), "fine_labels"),
        "flowers/102flowers.tgz": tar({f"jpg/image_{n:05d}.jpg": b"image %d" % n for n in range(1, 7)}),
        "flowers/imagelabels.mat": matlab(labels=np.array([5, 1, 102, 7, 7, 2], "u1")),
        "flowers/setid.mat": matlab(
            trnid=np.array([1], "u2"), valid=np.array([2], "u2"), tstid=np.arange(3, 7, dtype="u2")
        ),
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return {name: hashlib.md5(content).hexdigest() for name, content in files.items()}


def tar(files):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in files.items():
            each = tarfile.TarInfo(name)
            each.size = len(content)
            archive.addfile(each, io.BytesIO(content))
    return target.getvalue()


def roles():
    words = "\n".join("" if word == ";" else word for word in WORDS) + "\n\n"
    props = "\n".join(" ".join(row or ()) for row in ROLES) + "\n\n"
    folder = "conll05st-release/test.wsj/{0}/test.wsj.{0}.gz"
    texts = {"words": words, "props": props}
    return tar({folder.format(kind): gzip.compress(text.encode()) for kind, text in texts.items()})


def films():
    target = io.BytesIO()
    ratings = "".join(f"{1 + n % 2}::{1 + 2 * (n % 2)}::{1 + n % 5}::978300760\n" for n in range(30))
    with zipfile.ZipFile(target, "w") as archive:
        for name, text in (("movies", FILMS), ("users", USERS), ("ratings", ratings)):
            archive.writestr(f"ml-1m/{name}.dat", text.encode("latin"))
    return target.getvalue()


def houses():
    rows = np.random.RandomState(3).uniform(0.1, 100, (10, 14))
    return "\n".join(" ".join(f"{number:.4f}" for number in row) for row in rows).encode()


def images(folder, parts, labels):
    random, files = np.random.RandomState(5), {}
    for part in parts:
        batch = {b"data": random.randint(0, 256, (3, 3072)).astype("u1"), labels.encode(): [3, 1, 2]}
        files[f"{folder}/{part}"] = pickle.dumps(batch, 2)
    return tar({f"{folder}/batches.meta": b"", **files})


def matlab(**matrices):
    """A MATLAB 5 file of compressed row vectors."""
    kinds = {"u1": 2, "u2": 4}
    content = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<HH", 0x0100, 0x4D49)
    for name, numbers in matrices.items():
        code = numbers.dtype.str[1:]
        element = lambda kind, data: struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)  # noqa: E731
        short = struct.pack("<HH", 1, len(name)) + name.encode().ljust(4, b"\0") if len(name) <= 4 else None
        parts = [
            element(6, struct.pack("<II", {"u1": 9, "u2": 11}[code], 0)),
            element(5, struct.pack("<ii", 1, len(numbers))),
            short or element(1, name.encode()),
            element(kinds[code], numbers.tobytes()),
        ]
        packed = zlib.compress(element(14, b"".join(parts)))
        content += struct.pack("<II", 15, len(packed)) + packed
    return content
