"""The bundled digits and MNIST: what readers give, bad files, missing files, downloads."""

import gzip
import hashlib
import http.server
import random
import socket
import struct
import threading
import warnings
import zlib

import numpy as np
import pytest

from minigraph import reader
from minigraph.dataset import digits, mnist
from minigraph.errors import DataError

# The bundled digits


def test_the_digits_are_all_there():
    images, labels = digits.load()
    assert images.shape == (1797, 64)
    assert images.dtype == np.float32
    assert labels.dtype == np.int64
    # What the source says of its test set: values 0 to 16, and this many images per class.
    assert np.unique((images + 1) * 8).tolist() == list(range(17))
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert ((images + 1) * 8).sum(dtype=np.float64) == 561718


def test_train_and_test_readers_split_the_digits_in_file_order():
    images, labels = digits.load()
    samples = [*digits.train()(), *digits.test()()]
    assert len(list(digits.train()())) == 1500
    np.testing.assert_array_equal(np.stack([image for image, _ in samples]), images)
    assert [label for _, label in samples] == labels.tolist()
    assert all(type(label) is int for _, label in samples)


def test_large_digits_are_bilinear_samples_in_the_middle_of_a_black_frame():
    small = digits.load(8)[0].reshape(-1, 8, 8)
    large = digits.load(28)[0].reshape(-1, 28, 28)
    frame = np.ones((28, 28), bool)
    frame[4:24, 4:24] = False
    assert (large[:, frame] == -1).all()

    # NumPy's own interpolation, one axis after the other; a new pixel is 8/20 of an old one wide.
    centres = (np.arange(20) + 0.5) * 8 / 20 - 0.5
    for old, new in zip(small[:50], large[:50], strict=True):
        columns = np.stack([np.interp(centres, np.arange(8), row) for row in old])
        expected = np.stack([np.interp(centres, np.arange(8), column) for column in columns.T]).T
        np.testing.assert_allclose(new[4:24, 4:24], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [8, 28])
def test_the_mean_image_of_each_digit_recognizes_unseen_digits(size):
    images, labels = digits.load(size)
    means = np.stack([images[:1500][labels[:1500] == digit].mean(axis=0) for digit in range(10)])
    guesses = np.linalg.norm(images[1500:, None] - means, axis=2).argmin(axis=1)
    assert (guesses == labels[1500:]).mean() > 0.8


def test_changing_an_image_does_not_change_later_runs():
    train = digits.train()
    first = next(iter(train()))[0]
    before = first.copy()
    first[:] = 7
    np.testing.assert_array_equal(next(iter(train()))[0], before)


@pytest.mark.parametrize("make", [digits.load, digits.train, digits.test])
def test_a_size_other_than_8_and_28_is_an_error(make):
    with pytest.raises(ValueError, match="8 or 28, got 32"):
        make(32)


# MNIST: files made by hand, in a directory of the test's own, and no way to the network


def closed_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """The data directory, empty; the mirrors are a port that nobody listens on."""
    for variable in ("MINIGRAPH_OFFLINE", "MINIGRAPH_STRICT_DATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MINIGRAPH_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(mnist, "MIRRORS", (f"http://127.0.0.1:{closed_port()}/",))
    monkeypatch.setattr(mnist, "_failures", {})
    directory = tmp_path / "mnist"
    directory.mkdir()
    return directory


def _gzipped(content):
    """Without the time of day, so that the names of tests that show it are the same each time."""
    return gzip.compress(content, mtime=0)


def idx_images(pixels, magic=2051, count=None):
    count = len(pixels) if count is None else count
    return struct.pack(">IIII", magic, count, *pixels.shape[1:]) + pixels.tobytes()


def idx_labels(labels, magic=2049, count=None):
    return struct.pack(">II", magic, len(labels) if count is None else count) + bytes(labels)


def random_pixels(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)


PIXELS = {"train": random_pixels(7, seed=1), "test": random_pixels(3, seed=2)}
LABELS = {"train": [5, 0, 4, 1, 9, 2, 1], "test": [7, 2, 1]}
FILES = {
    mnist.TRAIN_IMAGES: _gzipped(idx_images(PIXELS["train"])),
    mnist.TRAIN_LABELS: _gzipped(idx_labels(LABELS["train"])),
    mnist.TEST_IMAGES: _gzipped(idx_images(PIXELS["test"])),
    mnist.TEST_LABELS: _gzipped(idx_labels(LABELS["test"])),
}


def write(directory, files):
    for name, content in files.items():
        (directory / name).write_bytes(content)


def assert_is_mnist(samples, part):
    samples = list(samples)
    assert [label for _, label in samples] == LABELS[part]
    assert all(type(label) is int for _, label in samples)
    images = np.stack([image for image, _ in samples])
    assert images.dtype == np.float32
    expected = PIXELS[part].reshape(-1, 784) / 127.5 - 1
    np.testing.assert_allclose(images, expected, rtol=0, atol=1e-6)


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("part", ["train", "test"])
def test_mnist_reads_gzipped_files(data, part):
    write(data, FILES)
    assert_is_mnist(getattr(mnist, part)()(), part)


def test_mnist_reads_unpacked_files(data):
    write(data, {name.removesuffix(".gz"): gzip.decompress(content) for name, content in FILES.items()})
    assert_is_mnist(mnist.train()(), "train")


def test_mnist_tells_packed_from_unpacked_by_content(data):
    write(data, {name: gzip.decompress(content) for name, content in FILES.items()})
    assert_is_mnist(mnist.test()(), "test")


def test_pixels_are_bit_for_bit_those_of_fluids_reader(tmp_path):
    every_value = np.resize(np.arange(256, dtype=np.uint8), (1, 28, 28))
    write(tmp_path, {"images": idx_images(every_value), "labels": idx_labels([3])})
    [(image, label)] = mnist.reader_creator(tmp_path / "images", tmp_path / "labels")()
    assert zlib.crc32(image[:256].tobytes()) == 0xB62C8544  # recorded from paddle.dataset.mnist 1.8.5
    assert label == 3


@pytest.mark.parametrize("buffer_size", [1, 3, 7, 100])
def test_the_samples_do_not_depend_on_the_size_of_the_blocks(tmp_path, buffer_size):
    write(tmp_path, {"images": FILES[mnist.TRAIN_IMAGES], "labels": FILES[mnist.TRAIN_LABELS]})
    made = mnist.reader_creator(tmp_path / "images", tmp_path / "labels", buffer_size)
    assert_is_mnist(made(), "train")
    assert_is_mnist(made(), "train")


# MNIST: bad files

GOOD_IMAGES, GOOD_LABELS = FILES[mnist.TRAIN_IMAGES], FILES[mnist.TRAIN_LABELS]
PAGE = b"<!DOCTYPE html><title>Please log in to the network</title>"


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        (mnist.TRAIN_IMAGES, GOOD_IMAGES[:-200], "damaged gzip file"),
        (mnist.TRAIN_IMAGES, GOOD_IMAGES[:-1] + b"\xff", "damaged gzip file"),
        (mnist.TRAIN_IMAGES, b"", "cut short"),
        (mnist.TRAIN_IMAGES, PAGE, "wrong magic number"),
        (mnist.TRAIN_IMAGES, GOOD_LABELS, "cut short"),
        (mnist.TRAIN_LABELS, GOOD_IMAGES, "wrong magic number"),
        (mnist.TRAIN_IMAGES, idx_images(PIXELS["train"], magic=2049), "wrong magic number"),
        (mnist.TRAIN_IMAGES, idx_images(PIXELS["train"])[:-1], "cut short"),
        (mnist.TRAIN_IMAGES, idx_images(PIXELS["train"]) + b"\0", "longer than its header says"),
        (mnist.TRAIN_IMAGES, idx_images(PIXELS["train"], count=2**32 - 1), "cut short"),
        (mnist.TRAIN_IMAGES, idx_images(PIXELS["train"][:, :27]), "found: 27x28"),
        (mnist.TRAIN_IMAGES, FILES[mnist.TEST_IMAGES], "images and labels differ in number"),
        (mnist.TRAIN_LABELS, FILES[mnist.TEST_LABELS], "images and labels differ in number"),
        (mnist.TRAIN_LABELS, idx_labels(LABELS["train"], count=8), "cut short"),
        (mnist.TRAIN_LABELS, idx_labels([5, 0, 4, 1, 9, 2, 10]), "label 10"),
    ],
)
def test_a_bad_file_is_an_error_that_names_it_and_no_reason_to_serve_other_data(data, name, content, found):
    write(data, {**FILES, name: content})
    with pytest.raises(DataError) as caught:
        mnist.train()
    message = str(caught.value)
    assert found in message
    assert "expected: " in message
    assert "Replace the file" in message
    assert str(data) in message


def test_a_bad_header_shows_what_was_expected_and_what_was_found(data):
    write(data, {**FILES, mnist.TRAIN_IMAGES: idx_images(PIXELS["train"], magic=2052)})
    with pytest.raises(DataError) as caught:
        mnist.train()
    assert str(caught.value).splitlines() == [
        "train-images-idx3-ubyte.gz: wrong magic number",
        f"  file: {data / mnist.TRAIN_IMAGES}",
        "  expected: 0x00000803",
        "  found: 0x00000804",
        f"  at {caught.value.site}",
        "  Replace the file by an intact copy, or delete it to have it downloaded again.",
    ]


def test_a_file_cut_anywhere_is_an_error(tmp_path):
    (tmp_path / "images").write_bytes(idx_images(PIXELS["train"]))
    for length in range(len(GOOD_LABELS)):
        (tmp_path / "labels").write_bytes(GOOD_LABELS[:length])
        with pytest.raises(DataError):
            mnist.reader_creator(tmp_path / "images", tmp_path / "labels")


@pytest.mark.slow
def test_a_small_file_that_unpacks_to_more_than_images_do_is_an_error(tmp_path):
    (tmp_path / "labels").write_bytes(gzip.compress(bytes(66 << 20), mtime=0))
    with pytest.raises(DataError, match="unpacks to more than images do"):
        mnist.reader_creator(tmp_path / "labels", tmp_path / "labels")


def test_no_changed_byte_of_a_gzipped_file_changes_the_data_unnoticed(tmp_path):
    (tmp_path / "images").write_bytes(idx_images(PIXELS["train"]))
    for position in range(len(GOOD_LABELS)):
        changed = bytearray(GOOD_LABELS)
        changed[position] ^= 0x55
        (tmp_path / "labels").write_bytes(changed)
        try:
            samples = mnist.reader_creator(tmp_path / "images", tmp_path / "labels")()
        except DataError:
            continue
        assert [label for _, label in samples] == LABELS["train"]  # as when only the time in the header differs


# MNIST: neither files nor network


@pytest.mark.slow
@pytest.mark.parametrize(("part", "count"), [("train", 1500), ("test", 297)])
def test_without_files_and_network_the_bundled_digits_are_served_with_a_warning(data, part, count):
    with pytest.warns(mnist.BundledDigitsWarning, match="MNIST IS NOT BEING USED") as caught:
        served = getattr(mnist, part)()
    assert caught[0].filename == __file__
    assert str(data) in str(caught[0].message)
    expected = list(getattr(digits, part)(size=28)())
    samples = list(served())
    assert len(samples) == count
    for (image, label), (expected_image, expected_label) in zip(samples, expected, strict=True):
        np.testing.assert_array_equal(image, expected_image)
        assert label == expected_label
    assert samples[0][0].shape == (784,)


@pytest.mark.parametrize("value", ["1", "true", "yes"])
def test_strictness_makes_missing_data_an_error(monkeypatch, value):
    with pytest.raises(DataError, match="was not downloaded"):
        mnist.train(strict=True)
    monkeypatch.setenv("MINIGRAPH_STRICT_DATA", value)
    with pytest.raises(DataError, match="was not downloaded"):
        mnist.test()


@pytest.mark.parametrize(("value", "strict"), [("1", False), ("0", None), ("", None), ("false", None)])
def test_strictness_can_be_turned_off(monkeypatch, value, strict):
    monkeypatch.setenv("MINIGRAPH_STRICT_DATA", value)
    with pytest.warns(mnist.BundledDigitsWarning):
        mnist.train(strict=strict)


def test_one_file_on_disk_means_that_the_others_must_be_had(data):
    write(data, {name: FILES[name] for name in (mnist.TRAIN_IMAGES, mnist.TRAIN_LABELS)})
    assert_is_mnist(mnist.train()(), "train")
    with pytest.raises(DataError, match=f"{mnist.TEST_IMAGES} is not in"):
        mnist.test()


# MNIST: downloading, from a server of the test's own


class Mirror:
    """A local web server; `files` is what it has, `requests` what it was asked for."""

    def __init__(self, files):
        self.files = dict(files)
        self.requests = []
        self.claimed_extra = 0  # bytes that the header promises and the body does not hold
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.rsplit("/", 1)[-1]
                mirror.requests.append(name)
                if name not in mirror.files:
                    self.send_error(404)
                    return
                content = mirror.files[name]
                self.send_response(200)
                self.send_header("Content-Length", str(len(content) + mirror.claimed_extra))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/mnist/"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def mirror(monkeypatch):
    """A mirror that has the four files, and is the only one."""
    mirror = Mirror(FILES)
    monkeypatch.setattr(mnist, "MIRRORS", (mirror.url,))
    monkeypatch.setattr(mnist, "MD5", {name: hashlib.md5(content).hexdigest() for name, content in FILES.items()})
    yield mirror
    mirror.close()


def test_missing_files_are_downloaded_once(data, mirror):
    assert_is_mnist(mnist.train()(), "train")
    assert_is_mnist(mnist.train()(), "train")
    assert_is_mnist(mnist.test()(), "test")
    assert mirror.requests == list(FILES)
    assert {path.name: path.read_bytes() for path in data.iterdir()} == FILES


def test_the_data_directory_is_made_when_needed(tmp_path, monkeypatch, mirror):
    monkeypatch.setenv("MINIGRAPH_DATA_HOME", str(tmp_path / "a" / "b"))
    assert_is_mnist(mnist.train()(), "train")
    assert (tmp_path / "a" / "b" / "mnist" / mnist.TRAIN_IMAGES).exists()


def test_fetch_downloads_what_is_not_there(data, mirror):
    write(data, {mnist.TRAIN_IMAGES: FILES[mnist.TRAIN_IMAGES]})
    mnist.fetch()
    assert mirror.requests == [mnist.TRAIN_LABELS, mnist.TEST_IMAGES, mnist.TEST_LABELS]


def test_a_second_mirror_is_asked_when_the_first_has_not_got_the_file(data, monkeypatch, mirror):
    empty = Mirror({})
    monkeypatch.setattr(mnist, "MIRRORS", (empty.url, mirror.url))
    assert_is_mnist(mnist.train()(), "train")
    assert empty.requests == mirror.requests == [mnist.TRAIN_IMAGES, mnist.TRAIN_LABELS]
    empty.close()


def test_a_download_with_the_wrong_checksum_is_not_kept(data, mirror):
    mirror.files[mnist.TRAIN_IMAGES] = PAGE
    with pytest.warns(mnist.BundledDigitsWarning, match="wrong MD5 checksum: expected [0-9a-f]{32}, found"):
        mnist.train()
    assert list(data.iterdir()) == []


def test_a_download_that_breaks_off_is_not_kept(data, mirror):
    mirror.claimed_extra = 1000
    mirror.files[mnist.TRAIN_IMAGES] = GOOD_IMAGES[:2000]
    with pytest.raises(DataError, match="wrong MD5 checksum"):
        mnist.train(strict=True)
    assert list(data.iterdir()) == []


def test_a_server_that_does_not_answer_is_given_up(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(mnist, "MIRRORS", (f"http://127.0.0.1:{silent.getsockname()[1]}/",))
        monkeypatch.setattr(mnist, "_TIMEOUT", 0.1)
        with pytest.raises(DataError, match="timed out"):
            mnist.train(strict=True)


def test_a_failed_download_is_not_tried_again_for_each_reader(mirror):
    mirror.files.clear()
    for part in (mnist.train, mnist.test, mnist.train):
        with pytest.warns(mnist.BundledDigitsWarning, match="404"):
            part()
    assert mirror.requests == [mnist.TRAIN_IMAGES]


def test_fetch_does_try_again(mirror):
    mirror.files.clear()
    with pytest.raises(DataError, match="404"):
        mnist.fetch()
    mirror.files.update(FILES)
    mnist.fetch()
    assert_is_mnist(mnist.train()(), "train")


def test_offline_never_asks_the_network(monkeypatch, mirror):
    monkeypatch.setenv("MINIGRAPH_OFFLINE", "1")
    with pytest.warns(mnist.BundledDigitsWarning, match="MINIGRAPH_OFFLINE is set"):
        mnist.train()
    with pytest.raises(DataError, match="MINIGRAPH_OFFLINE is set"):
        mnist.fetch()
    assert mirror.requests == []
    monkeypatch.delenv("MINIGRAPH_OFFLINE")
    assert_is_mnist(mnist.train()(), "train")  # being offline is no failure to remember


def test_a_data_directory_that_cannot_be_made_counts_as_no_download(tmp_path, monkeypatch, mirror):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("MINIGRAPH_DATA_HOME", str(tmp_path / "file"))
    with pytest.warns(mnist.BundledDigitsWarning, match="file"):
        mnist.train()


def test_the_default_data_directory_is_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("MINIGRAPH_DATA_HOME")
    monkeypatch.setattr(mnist.Path, "home", lambda: tmp_path)
    directory = tmp_path / ".cache" / "minigraph" / "dataset" / "mnist"
    directory.mkdir(parents=True)
    write(directory, FILES)
    assert_is_mnist(mnist.train()(), "train")


def test_a_training_loop_reads_shuffled_batches_of_mnist(data):
    write(data, FILES)
    random.seed(0)
    batches = list(reader.batch(reader.shuffle(mnist.train(), buf_size=8192), batch_size=4)())
    assert [len(batch) for batch in batches] == [4, 3]
    assert sorted(label for batch in batches for _, label in batch) == sorted(LABELS["train"])
