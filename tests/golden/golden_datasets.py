"""Record what Paddle 1.8.5 reads from small data sets: python golden_datasets.py, in this folder."""

import itertools
import json
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import small_data_sets

URLS = {
    "imdb": ["MD5"], "imikolov": ["MD5"], "wmt16": ["DATA_MD5"], "wmt14": ["MD5_TRAIN"],
    "conll05": ["DATA_MD5", "WORDDICT_MD5", "VERBDICT_MD5", "TRGDICT_MD5", "EMB_MD5"], "movielens": ["MD5"],
    "uci_housing": ["MD5"], "cifar": ["CIFAR10_MD5", "CIFAR100_MD5"], "flowers": ["DATA_MD5", "LABEL_MD5", "SETID_MD5"],
}  # fmt: skip
"""Constants of each module that hold an MD5."""


def install(dataset, folder, set_attribute=setattr):
    """Let the modules of `dataset` read small files in a folder."""
    sums = small_data_sets.write(folder)
    set_attribute(dataset.common, "DATA_HOME", str(folder))
    for name, constants in URLS.items():
        module = getattr(dataset, name)
        for constant in constants:
            url = getattr(module, constant.replace("MD5", "URL"))
            file = url.rsplit("/", 1)[-1]
            set_attribute(module, constant, next(md5 for path, md5 in sums.items() if path.endswith("/" + file)))


def read(dataset):
    """Everything that the readers give, by name."""
    imdb, imikolov, wmt16, wmt14 = dataset.imdb, dataset.imikolov, dataset.wmt16, dataset.wmt14
    words = imdb.build_dict(re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$"), 0)
    found = {"imdb.dict": sorted(words.items(), key=lambda each: each[1])}
    found.update({"imdb." + part: list(getattr(imdb, part)(words)()) for part in ("train", "test")})
    ngrams = imikolov.build_dict(0)
    found["imikolov.dict"] = sorted(ngrams.items(), key=lambda each: each[1])
    for part in ("train", "test"):
        for n, kind in ((2, 1), (4, 1), (0, 2), (4, 2)):
            found[f"imikolov.{part}.{n}.{kind}"] = list(getattr(imikolov, part)(ngrams, n, kind)())
    for part in ("train", "test", "validation"):
        for language in ("en", "de"):
            found[f"wmt16.{part}.{language}"] = list(getattr(wmt16, part)(5, 6, language)())
    found["wmt16.dict"] = [wmt16.get_dict("en", 5), sorted(wmt16.get_dict("de", 6, reverse=True).items())]
    found.update({"wmt14." + part: list(getattr(wmt14, part)(5)()) for part in ("train", "test", "gen")})
    found["wmt14.dict"] = [sorted(each.items()) for each in wmt14.get_dict(5)]
    *dictionaries, labels = dataset.conll05.get_dict()
    names = {number: label for label, number in labels.items()}  # the numbers are those of a set
    found["conll05.dict"] = [*dictionaries, sorted(labels)]
    found["conll05.test"] = [[*each[:8], [names[number] for number in each[8]]] for each in dataset.conll05.test()()]
    movielens = dataset.movielens
    found["movielens.categories"] = sorted(movielens.movie_categories())
    found["movielens.words"] = sorted(movielens.get_movie_title_dict())
    found["movielens.largest"] = [movielens.max_movie_id(), movielens.max_user_id(), movielens.max_job_id()]
    found["movielens.films"] = [[each.index, each.categories, each.title] for each in movielens.movie_info().values()]
    found["movielens.users"] = [each.value() for each in movielens.user_info().values()]
    for part in ("train", "test"):
        # The numbers of categories and words are those of a set, and differ from run to run.
        found["movielens." + part] = [each[:5] + each[7:] for each in getattr(movielens, part)()()]
        found["uci_housing." + part] = [[x.tolist(), y.tolist()] for x, y in getattr(dataset.uci_housing, part)()()]
        for kind in ("10", "100"):
            samples = getattr(dataset.cifar, part + kind)()()
            found[f"cifar.{part}{kind}"] = [[image[:20].tolist(), label] for image, label in samples]
    cycled = itertools.islice(dataset.cifar.train10(cycle=True)(), 7)
    found["cifar.cycle"] = [label for _, label in cycled]
    for part in ("train", "test", "valid"):
        found["flowers." + part] = list(getattr(dataset.flowers, part)(lambda sample: sample, use_xmap=False)())
    return json.loads(json.dumps(found, default=bytes.decode))


if __name__ == "__main__":
    import paddle.dataset

    with tempfile.TemporaryDirectory() as folder:
        install(paddle.dataset, folder)
        recorded = read(paddle.dataset)
    Path("datasets.json").write_text(json.dumps(recorded, indent=0, sort_keys=True) + "\n", encoding="utf-8")
