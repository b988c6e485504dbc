"""Readers of public data sets give for small files of the same form what Paddle 1.8.5 gives."""

import json
from pathlib import Path

import golden_datasets
import numpy as np
import pytest

from minigraph import dataset
from minigraph.dataset import common
from minigraph.errors import DataError, MissingExtraError, MissingFileError, ProgramError, UnknownNameError

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "datasets.json").read_text(encoding="utf-8"))


@pytest.fixture
def small(tmp_path, monkeypatch):
    golden_datasets.install(dataset, tmp_path, monkeypatch.setattr)
    return tmp_path


@pytest.mark.slow
def test_samples_and_dictionaries_are_those_of_the_original(small):
    found = golden_datasets.read(dataset)
    assert found.keys() == RECORDED.keys()
    assert [name for name in RECORDED if found[name] != RECORDED[name]] == []


def test_the_parts_of_housing_are_disjoint_and_their_first_features_are_at_hand(small):
    train, test = list(dataset.uci_housing.train()()), list(dataset.uci_housing.test()())
    assert (len(train), len(test)) == (8, 2)
    np.testing.assert_array_equal(dataset.uci_housing.predict_reader()[0], test[0][0])


def test_numbers_of_words_of_titles_are_the_same_in_every_process(small):
    assert dataset.movielens.get_movie_title_dict() == {"a": 0, "story": 1, "toy": 2}
    film, user = dataset.movielens.movie_info()[1], dataset.movielens.user_info()[2]
    assert film.value() == [1, [0, 1], [2, 1]]
    assert repr(film) == "MovieInfo(index=1, categories=['Animation', 'Comedy'], title='Toy Story ')"
    assert repr(user) == "UserInfo(index=2, is_male=True, age=6, job_id=16)"


def test_flowers_are_mapped_by_threads(small):
    samples = dataset.flowers.train(mapper=lambda sample: sample)()
    assert sorted(samples) == [
        (f"image {n}".encode(), label) for n, label in zip(range(3, 7), (101, 6, 6, 1), strict=True)
    ]


# Files


def test_a_file_that_is_not_there_says_where_to_get_it_and_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
    with pytest.raises(MissingFileError) as caught:
        dataset.uci_housing.train()
    message = str(caught.value)
    for part in (tmp_path / "uci_housing" / "housing.data", dataset.uci_housing.URL, dataset.uci_housing.MD5):
        assert str(part) in message
    assert "Download it from there" in message


def test_another_file_is_refused(small):
    (small / "uci_housing" / "housing.data").write_bytes(b"1 2")
    with pytest.raises(DataError, match=r"(?s)housing\.data .* is not the right file.*found: "):
        dataset.uci_housing.train()


def test_damaged_files_are_errors(small, monkeypatch):
    with pytest.raises(DataError, match="no matrix 'other'"):
        dataset.flowers._matrix(str(small / "flowers" / "setid.mat"), "other")
    damaged = small / "damaged.mat"
    damaged.write_bytes(bytes(128) + b"\x0f\0\0\0\4\0\0\0abcd")
    with pytest.raises(DataError, match="is no MATLAB 5 file"):
        dataset.flowers._matrix(str(damaged), "labels")
    with pytest.raises(DataError, match="'x' is no label"):
        dataset.conll05._tags(("x",))
    with pytest.raises(DataError, match="no file nothing"), common.tarfile.open(small / "wmt14" / "wmt14.tgz") as tar:
        common.member(tar, "nothing")
    monkeypatch.setattr(dataset.uci_housing, "MD5", common.md5file(str(damaged)))
    damaged.replace(small / "uci_housing" / "housing.data")
    with pytest.raises(DataError, match="could not convert string to float"):
        dataset.uci_housing.test()


def test_samples_are_split_over_files_and_read_by_ranks(tmp_path):
    common.split(lambda: iter([(n, np.full(2, n)) for n in range(5)]), 2, str(tmp_path / "part-%02d"))
    assert len(list(tmp_path.iterdir())) == 3
    read = common.cluster_files_reader(str(tmp_path / "part-*"), 2, 0)
    assert [n for n, _ in read()] == [0, 1, 4]


def test_wrong_arguments_say_what_there_is(small):
    with pytest.raises(ProgramError, match="'en' and 'de', not 'fr'"):
        dataset.wmt16.train(5, 5, "fr")
    with pytest.raises(MissingFileError, match="Make a reader with this size first"):
        dataset.wmt16.get_dict("en", 4)
    with pytest.raises(ProgramError, match="no samples of data_type 3"):
        dataset.imikolov.train({"<unk>": 0}, 2, 3)
    for name in ("voc2012", "mq2007", "sentiment"):
        with pytest.raises(UnknownNameError, match="fluid has it, but"):
            getattr(dataset, name)


# Images


def test_images_are_cropped_and_flipped():
    image = dataset.image
    pixels = np.arange(5 * 4 * 3).reshape(5, 4, 3)
    assert image.to_chw(pixels).shape == (3, 5, 4)
    np.testing.assert_array_equal(image.center_crop(pixels, 2), pixels[1:3, 1:3])
    np.testing.assert_array_equal(image.left_right_flip(pixels), pixels[:, ::-1])
    assert image.random_crop(pixels, 3).shape == (3, 3, 3)


def test_decoding_needs_opencv(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    with pytest.raises(MissingExtraError, match="pip install opencv"):
        dataset.image.load_image_bytes(b"")
